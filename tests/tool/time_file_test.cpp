#include "tool/time_file.h"

#include <gmock/gmock.h>

#include "starling/base/error.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TimeModel read(const std::string& toml, Rank nodes = 8) {
  const Folder folder;
  return read_time_file(folder.write("time.toml", toml), nodes);
}

std::string time_complaint(const std::string& toml) {
  try {
    read(toml);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(TimeFile, TheExample) {
  const TimeModel model = read_time_file(STARLING_EXAMPLES "/simulate/cluster.toml", 16);
  EXPECT_EQ(model.compute_of, (std::vector<double>{0.002, 0.002, 0.002, 0.004}));
  EXPECT_EQ(model.latency(0, 3), 1e-6);
  EXPECT_DOUBLE_EQ(model.seconds_per_byte(0, 3), 0.08e-9);
  EXPECT_EQ(model.latency(0, 4), 50e-6);
  EXPECT_DOUBLE_EQ(model.seconds_per_byte(0, 4), 0.8e-9);
  EXPECT_DOUBLE_EQ(model.seconds_per_byte(12, 4), 8e-9);
  EXPECT_EQ(model.latency(12, 4), 50e-6) << "a link inherits unset values";
  EXPECT_DOUBLE_EQ(model.seconds_per_byte(12, 15), 0.08e-9);
  ASSERT_EQ(model.stragglers.size(), 2U);
  EXPECT_EQ(model.stragglers[0].nodes, std::vector<Rank>{5});
  EXPECT_EQ(model.stragglers[0].every, 3);
  EXPECT_EQ(model.stragglers[0].extra, 0.1);
  EXPECT_EQ(model.stragglers[1].probability, 0.01);
  EXPECT_EQ(model.stragglers[1].factor, 10);
}

TEST(TimeFile, LinksInheritUnsetValues) {
  const TimeModel model = read("latency = 3\nbandwidth = 2\n[[link]]\nfrom = [1]\nlatency = 5\n");
  EXPECT_EQ(model.latency(1, 0), 5);
  EXPECT_DOUBLE_EQ(model.seconds_per_byte(1, 0), 4e-9);
  EXPECT_EQ(model.latency(0, 1), 3);
}

TEST(TimeFile, AnEmptyOneIsTheDefault) {
  const TimeModel model = read("# nothing\n");
  EXPECT_EQ(model.compute_seconds(0, 0), TimeModel().compute);
  EXPECT_EQ(model.latency(0, 7), TimeModel().link.latency);
}

TEST(TimeFile, AListHasEveryNode) {
  EXPECT_EQ(read("compute = [1, 2.5]", 2).compute_seconds(1, 0), 2.5);
  EXPECT_THAT(time_complaint("compute = [1, 2]"),
              AllOf(HasSubstr("line 1"), HasSubstr("a list of 8, one per node")));
}

TEST(TimeFile, ErrorsNameLineKeyAndWhatIsValid) {
  EXPECT_THAT(time_complaint("compute = 1\nlatensy = 2"),
              AllOf(HasSubstr("time.toml, line 2"), HasSubstr("latency")));
  EXPECT_THAT(time_complaint("latency = -1"), HasSubstr("line 1: latency = -1 is not a number from 0 up"));
  EXPECT_THAT(time_complaint("latency = \"fast\""), HasSubstr("latency = fast is not a number"));
  EXPECT_THAT(time_complaint("latency = nan"), HasSubstr("is not a number"));
  EXPECT_THAT(time_complaint("bandwidth = 0"), HasSubstr("bandwidth = 0 is not a number above 0"));
  EXPECT_THAT(time_complaint("bandwidth = [1, 2]"), HasSubstr("bandwidth takes one value, not a list"));
  EXPECT_THAT(time_complaint("[compute_of]\n8 = 1"), AllOf(HasSubstr("line 2"), HasSubstr("from 0 to 7")));
  EXPECT_THAT(time_complaint("[compute_of]\nfirst = 1"), HasSubstr("compute_of.#"));
  EXPECT_THAT(time_complaint("[hosts]\nranks_per_host = 0"), HasSubstr("whole number from 1"));
  EXPECT_THAT(time_complaint("[[link]]\nfrom = [8]"),
              HasSubstr("link.0.from = 8 is not a whole number from 0 to 7"));
  EXPECT_THAT(
      time_complaint("[[straggler]]\nextra = 1\n[[straggler]]\nextra = 1\nprobability = 2"),
      AllOf(HasSubstr("line 5"), HasSubstr("straggler.1.probability = 2 is not a share from 0 to 1")));
  EXPECT_THAT(time_complaint("[[straggler]]\nextra = 1\nevery = 1.5"),
              HasSubstr("every = 1.5 is not a whole number"));
  EXPECT_THAT(time_complaint("[[straggler]]\nnodes = [1]"),
              HasSubstr("[[straggler]] number 1 changes nothing"));
  EXPECT_THAT(time_complaint("compute = "), HasSubstr("line 1"));
}

}  // namespace
}  // namespace starling::tool
