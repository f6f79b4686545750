#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/topology/matrix.h"
#include "starling/topology/registry.h"
#include "starling/topology/stored.h"
#include "topology/random_checks.h"

namespace starling::topology {
namespace {

using testing::HasSubstr;

/// Files in a temporary folder.
class CustomTest : public testing::Test {
 protected:
  CustomTest()
      : folder_(std::filesystem::temp_directory_path() / fmt::format("starling_custom_{}", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~CustomTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text, const std::string& name = "graph") const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  SchedulePtr custom(const std::string& text, Rank n, const std::string& options = "") const {
    return make_schedule(fmt::format("custom(file=\"{}\"{})", write(text), options), n);
  }

  // The error without the folder's name.
  std::string error_of(const std::string& text, Rank n, const std::string& options = "") const {
    try {
      custom(text, n, options);
    } catch (const InvalidArgument& error) {
      std::string message = error.what();
      const std::size_t at = message.find(folder_.string());
      return at == std::string::npos ? message : message.erase(at, folder_.string().size() + 1);
    }
    return "accepted";
  }

  std::filesystem::path folder_;
};

Eigen::MatrixXd dense(const SchedulePtr& schedule) {
  return dense_round(*schedule, 0);
}

Eigen::MatrixXd ring_of(Rank n) {
  return dense(make_schedule("ring", n));
}

TEST_F(CustomTest, EdgeListsInEverySpelling) {
  const std::string spellings[] = {
      "0,1\n1,2\n2,3\n3,0\n",                                  // plain
      "from,to\n0,1\n1,2\n2,3\n3,0",                           // a header, no newline at the end
      "# a ring\n\nfrom to\n0 1 # first\n1 2\n\n2\t3\n3 0\n",  // comments, a header after them, blank lines,
                                                               // tabs
      "0;1\r\n1;2\r\n2;3\r\n3;0\r\n",                          // semicolons and a carriage return
      "\xEF\xBB\xBF"
      "0,1\n1,2\n2,3\n3,0\n",            // the mark that spreadsheets write in front
      "0,1\n1,0\n1,2\n2,3\n3,0\n0,3\n",  // both directions mean the same edge
      "[[0,1],[1,2],[2,3],[3,0]]",       // JSON
      " {\"edges\": [[0,1],[1,2],[2,3],[3,0]], \"comment\": \"x\"}"  // JSON with a name
  };
  for (const std::string& text : spellings)
    EXPECT_LT((dense(custom(text, 4)) - ring_of(4)).norm(), 1e-15) << text;
}

TEST_F(CustomTest, MatricesInEverySpelling) {
  const std::string spellings[] = {
      "0.5,0.25,0.25,0\n0.25,0.5,0,0.25\n0.25,0,0.5,0.25\n0,0.25,0.25,0.5\n",
      "a b c d\n.5 .25 .25 0\n.25 .5 0 .25\n.25 0 .5 .25\n0 .25 .25 .5\n",
      "[[0.5,0.25,0.25,0],[0.25,0.5,0,0.25],[0.25,0,0.5,0.25],[0,0.25,0.25,0.5]]",
      "{\"matrix\":[[0.5,0.25,0.25,0],[0.25,0.5,0,0.25],[0.25,0,0.5,0.25],[0,0.25,0.25,0.5]]}"};
  Eigen::MatrixXd expected(4, 4);
  expected << 0.5, 0.25, 0.25, 0, 0.25, 0.5, 0, 0.25, 0.25, 0, 0.5, 0.25, 0, 0.25, 0.25, 0.5;
  for (const std::string& text : spellings) EXPECT_EQ(dense(custom(text, 4)), expected) << text;
}

TEST_F(CustomTest, WeightedEdgesAreReceiverSenderWeight) {
  Eigen::MatrixXd expected(3, 3);
  expected << 0.75, 0.25, 0, 0, 0.5, 0.5, 1, 0, 0;  // rank 2 takes all of rank 0's value
  EXPECT_EQ(dense(custom("0,0,0.75\n0,1,0.25\n1,1,0.5\n1,2,0.5\n2,0,1\n", 3)), expected);
}

TEST_F(CustomTest, ReadsWhatTheToolPrints) {
  const std::string printed =
      R"({"name": "x", "n": 2, "rounds": [{"step": 0, "edges": [[0, 0, 0.75], [0, 1, 0.25],
                                  [1, 0, 0.25], [1, 1, 0.75]]}]})";
  EXPECT_EQ(dense(custom(printed, 2))(0, 1), 0.25);
}

TEST_F(CustomTest, UnweightedEdgesGoFromTo) {
  Eigen::MatrixXd expected(3, 3);  // 0 sends to 1, 1 to 2, 2 to 0 and 1
  expected << 1.0 / 2, 0, 1.0 / 2, 1.0 / 3, 1.0 / 3, 1.0 / 3, 0, 1.0 / 2, 1.0 / 2;
  const std::string edges = "0 1\n1 2\n2 0\n2 1\n";
  EXPECT_EQ(dense(custom(edges, 3, ",directed=yes")), expected);
  const SchedulePtr push = custom(edges, 3, ",directed=yes,weights=push");
  EXPECT_EQ(push->mixing(), Mixing::push_sum);
  Eigen::MatrixXd columns(3, 3);
  columns << 1.0 / 2, 0, 1.0 / 3, 1.0 / 2, 1.0 / 2, 1.0 / 3, 0, 1.0 / 2, 1.0 / 3;
  EXPECT_EQ(dense(push), columns);
}

TEST_F(CustomTest, WeightRulesApplyToEdges) {
  const std::string star = "0,1\n0,2\n0,3\n";
  EXPECT_LT((dense(custom(star, 4)) - dense(make_schedule("star", 4))).norm(), 1e-15);
  for (const std::string rule : {"uniform", "laplacian", "push"})
    EXPECT_LT(
        (dense(custom(star, 4, ",weights=" + rule)) - dense(make_schedule("star(weights=" + rule + ")", 4)))
            .norm(),
        1e-12)
        << rule;
}

TEST_F(CustomTest, PushColumnsSumToOne) {
  const std::string columns = "0.5,0.2,0\n0.5,0.4,0.5\n0,0.4,0.5\n";
  const SchedulePtr schedule = custom(columns, 3, ",weights=push");
  EXPECT_EQ(schedule->mixing(), Mixing::push_sum);
  EXPECT_EQ(dense(schedule)(1, 0), 0.5);
  EXPECT_EQ(error_of(columns, 3), "graph: row 0 sums to 0.7, not to 1");
  EXPECT_EQ(error_of("0.5,0.5,0\n0.5,0.4,0.1\n0,0.2,0.8\n", 3, ",weights=push"),
            "graph: column 1 sums to 1.1, not to 1");
}

TEST_F(CustomTest, OneRankAndTwoRanks) {
  EXPECT_EQ(dense(custom("1\n", 1))(0, 0), 1);
  EXPECT_EQ(dense(custom("", 1))(0, 0), 1);
  EXPECT_EQ(dense(custom("0,1\n", 2))(0, 1), 0.5);
  // Two rows of two numbers that sum to one are read as a matrix, unless the format says otherwise.
  EXPECT_EQ(dense(custom("0,1\n1,0\n", 2))(0, 0), 0);
  EXPECT_EQ(dense(custom("0,1\n1,0\n", 2, ",format=edges"))(0, 0), 0.5);
}

TEST_F(CustomTest, NegativeWeightsMustBeMeant) {
  const std::string matrix = "1.2,-0.2,0,0\n-0.2,0.9,0.3,0\n0,0.3,0.4,0.3\n0,0,0.3,0.7\n";
  EXPECT_EQ(error_of(matrix, 4), "graph: row 0, column 1 is -0.2; negative weights need negative=yes");
  EXPECT_EQ(dense(custom(matrix, 4, ",negative=yes"))(0, 1), -0.2);
}

TEST_F(CustomTest, WeightsThatCannotBeAreRefused) {
  EXPECT_EQ(error_of("1,0,0,0\n0,.5,.4,0\n0,0,1,0\n0,0,0,1\n", 4), "graph: row 1 sums to 0.9, not to 1");
  EXPECT_EQ(error_of("0.5,0.5\n0.5,0.4\n", 2),
            "graph: row 1 sums to 0.9, not to 1");  // has as many columns as an edge
  EXPECT_EQ(error_of("0,0,0.5\n0,1,0.5\n1,1,1\n2,2,1\n0,1,0\n", 3), "graph: row 0, column 1 is given twice");
  EXPECT_EQ(error_of("0,0,1\n1,3,1\n2,2,1\n", 3),
            "graph: edge 2 (1, 3): rank 3 is out of range; n = 3 allows 0..2");
  EXPECT_EQ(error_of("0,0,nan\n", 2), "graph: row 0, column 0 is not a finite number");
  EXPECT_EQ(error_of("1,0,0,0\n0,1,0,0\n0,0,1,0\n0,0,0,1\n", 4),
            "graph: the graph is not strongly connected: rank 1 is cut off from rank 0");
  // All ranks receive from rank 0, which receives from none.
  EXPECT_EQ(error_of("0,0,1\n1,0,0.5\n1,1,0.5\n2,1,1\n", 3),
            "graph: the graph is not strongly connected: rank 1 is cut off from rank 0");
  EXPECT_EQ(error_of("0,0,0.5\n0,1,0.5\n1,0,1\n", 2, ",weights=uniform"),
            "custom: graph brings its own weights; only weights=push, which asks for columns that sum to "
            "one, goes with it");
}

TEST_F(CustomTest, EdgesThatCannotBeAreRefused) {
  EXPECT_EQ(error_of("0,1\n1,4\n", 4), "graph: edge 2 (1, 4): rank 4 is out of range; n = 4 allows 0..3");
  EXPECT_EQ(error_of("0,1\n-1,2\n", 4), "graph: edge 2 (-1, 2): rank -1 is out of range; n = 4 allows 0..3");
  EXPECT_EQ(error_of("0,1\n2,2\n1,2\n", 3, ",format=edges"), "graph: edge 2 (2, 2) joins a rank to itself");
  EXPECT_EQ(error_of("0,1\n2,3\n", 4), "graph: the graph is not connected: rank 2 is cut off from rank 0");
  EXPECT_EQ(error_of("0,1\n1,2\n", 3, ",directed=yes"),
            "graph: the graph is not strongly connected: rank 1 is cut off from rank 0");
  EXPECT_EQ(error_of("0,1.5\n", 4), "graph: row 0: 1.5 is not a rank");
  EXPECT_EQ(error_of("0,1\n1,1e10\n", 4), "graph: row 1: 10000000000 is not a rank");
  EXPECT_EQ(error_of("0,1\n1,2\n2,0\n", 3, ",directed=yes,weights=metropolis"),
            "metropolis and laplacian weights need an undirected graph; use weights=uniform or push");
}

TEST_F(CustomTest, FilesThatCannotBeReadAreRefused) {
  EXPECT_EQ(error_of("0,1\n1,2,3\n", 4), "graph:2: 3 columns where the first row has 2");
  EXPECT_EQ(error_of("\n\n0,1\n1,x\n", 4), "graph:4: not a row of numbers: 1,x");
  EXPECT_EQ(error_of("O,1\n1,2\n2,0\n", 3),
            "graph:1: not a row of numbers: O,1");  // a typing error, not a header
  EXPECT_EQ(error_of("from,to\nreally\n0,1\n", 2), "graph:2: not a row of numbers: really");
  EXPECT_EQ(error_of("1,2,3,4,5\n", 4),
            "graph: 5 columns; an edge has 2 (from, to) or 3 (receiver, sender, weight), a matrix n = 4");
  EXPECT_EQ(error_of("1,0\n0,1\n", 3, ",format=matrix"),
            "graph: a matrix of 2 rows and 2 columns does not fit n = 3");
  EXPECT_EQ(error_of("1,0,0\n0,1,0\n", 3, ",format=matrix"),
            "graph: a matrix of 2 rows and 3 columns does not fit n = 3");
  EXPECT_EQ(error_of("# nothing\n", 3), "graph: no rows of numbers");
  EXPECT_EQ(error_of("{\"edges\": [[0,1],", 3), "graph: not valid JSON");
  EXPECT_EQ(error_of("{\"nodes\": 3}", 3), "graph: expected an array of rows");
  EXPECT_EQ(error_of("{\"edges\": 3}", 3), "graph: expected an array of rows");
  EXPECT_EQ(error_of("[[0,1],[1,\"2\"]]", 3), "graph: row 1 is not an array of numbers");
  EXPECT_EQ(error_of("[[0,1],7]", 3), "graph: row 1 is not an array of numbers");
  EXPECT_EQ(error_of("[[0,1],[0,1,2]]", 3), "graph: row 1 has 3 columns where row 0 has 2");
  EXPECT_EQ(error_of("{\"rounds\": [{\"edges\": []}, {\"edges\": []}]}", 3),
            "graph: a custom graph is static; the file must hold exactly one round");
  EXPECT_EQ(error_of("{\"rounds\": 1}", 3),
            "graph: a custom graph is static; the file must hold exactly one round");
  try {
    make_schedule("custom(file=/no/such/file.csv)", 3);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "cannot open the graph file /no/such/file.csv");
  }
}

TEST(StoredTest, ChecksProgramsToo) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message([] { schedule_from_weights(0, {}); }),
            "weights: a topology needs at least one rank, not n = 0");
  EXPECT_EQ(message([] { schedule_from_edges(-1, {}, Weights::metropolis); }),
            "edges: a topology needs at least one rank, not n = -1");
  EXPECT_EQ(message([] {
              schedule_from_weights(2, {{0, 0, Lane::a, 1}}, {}, "my weights");
            }),
            "my weights: row 1 sums to 0, not to 1");
  EXPECT_EQ(message([] {
              schedule_from_edges(3, {{0, 1}}, Weights::metropolis);
            }),
            "edges: the graph is not connected: rank 2 is cut off from rank 0");
}

// Tolerates the writer's rounding, but no larger error.
TEST(StoredTest, SumsMayMissOneByRoundingOnly) {
  const auto with = [](double weight) {
    return schedule_from_weights(
        2, {{0, 0, Lane::a, weight}, {0, 1, Lane::a, 0.5}, {1, 0, Lane::a, 0.5}, {1, 1, Lane::a, 0.5}});
  };
  EXPECT_NO_THROW(with(0.5 + 1e-10));
  EXPECT_THROW(with(0.5 + 1e-8), InvalidArgument);
}

}  // namespace
}  // namespace starling::topology
