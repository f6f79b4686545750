#include "starling/method/saved_state.h"

#include <gtest/gtest.h>
#include <set>

#include "base/test_name.h"
#include "method/on_flock.h"
#include "record/folder.h"
#include "starling/record/checkpoint_folder.h"

// A run that is saved and resumed from files in a new job gives the same bits as an uninterrupted run.

namespace starling::method {
namespace {

constexpr Step kSaved = 5;  // not a multiple of any period below
constexpr Step kSteps = 2 * kSaved + 1;

struct SavedRun {
  Problem problem;
  DriverOptions options;
  std::size_t parts = 3;
};

// Steps [from, to) of a driver over x, with gradients that depend on x, the rank and the step. Asynchronous
// methods run in a fixed order of ranks.
template <typename T>
void take_steps(Driver& driver, const Problem& problem, Flock& flock, std::vector<T>& x,
                std::vector<T>& gradient, Step from, Step to) {
  const auto line_up = [&] {
    if (driver.method().asynchronous()) flock.barrier("in order");
  };
  for (Step step = from; step < to; ++step) {
    driver.begin();
    line_up();
    problem.gradient(flock.rank(), x.data(), gradient.data());
    for (std::size_t k = 0; k < gradient.size(); ++k)
      gradient[k] += static_cast<T>(0.01) * static_cast<T>((step * 7 + static_cast<Step>(k)) % 5);
    if ((step + flock.rank()) % 7 == 6)
      for (std::size_t b = 0; b < driver.size(); ++b) driver[b].skipped = true;
    if (driver.method().asynchronous()) {
      for (Rank turn = 0; turn < flock.size(); ++turn) {
        if (turn == flock.rank()) driver.finish();
        line_up();
      }
    } else {
      driver.finish();
    }
  }
}

template <typename T>
Driver driver_of(const SavedRun& run, const Flock& flock, std::vector<T>& x, std::vector<T>& gradient) {
  const Buffer own = buffer_of(x);
  const Buffer along = buffer_of(gradient);
  return run.parts == 0 ? drive(flock, own, along, run.options)
                        : drive_in_parts(flock, own, along, run.options, run.parts, 2 * run.parts - 1);
}

void run_ranks(Rank n, const FlockBody& body) {
  const auto ends = launchers()[0].run(n, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    body(flock);
  });
  for (std::size_t r = 0; r < ends.size(); ++r)
    if (!ends[r].ok) throw Error(fmt::format("rank {}: {}", r, ends[r].message));
}

template <typename T>
void save_to(const std::string& path, Driver& driver, const std::vector<T>& x) {
  driver.settle();
  SavedParts parts;
  parts.add("x", const_buffer_of(x));
  save(driver, parts);
  write_checkpoint_file(path, {}, parts.parts());
}

template <typename T>
testing::AssertionResult goes_on(const SavedRun& run, const RecordFolder& folder) {
  const Problem& problem = run.problem;
  const auto n = static_cast<std::size_t>(problem.n);
  std::vector<std::vector<T>> straight(n);
  std::vector<std::vector<T>> resumed(n);
  const auto file_of = [&](Rank rank) { return folder.path(checkpoint_file_name(rank)); };
  run_ranks(problem.n, [&](Flock& flock) {
    auto x = problem.start_of<T>(flock.rank());
    std::vector<T> gradient(problem.count);
    Driver driver = driver_of(run, flock, x, gradient);
    take_steps(driver, problem, flock, x, gradient, 0, kSaved);
    save_to(file_of(flock.rank()), driver, x);
    take_steps(driver, problem, flock, x, gradient, kSaved, kSteps);
    straight[static_cast<std::size_t>(flock.rank())] = x;
  });
  run_ranks(problem.n, [&](Flock& flock) {
    std::vector<T> x(problem.count, 77);
    std::vector<T> gradient(problem.count, 99);
    Driver driver = driver_of(run, flock, x, gradient);
    const CheckpointFile file(file_of(flock.rank()));
    file.read_into("x", std::as_writable_bytes(std::span(x)));
    restore(driver, file);
    require(driver.step() == kSaved, "the step");
    take_steps(driver, problem, flock, x, gradient, kSaved, kSteps);
    resumed[static_cast<std::size_t>(flock.rank())] = x;
  });
  for (std::size_t r = 0; r < n; ++r)
    if (std::memcmp(straight[r].data(), resumed[r].data(), problem.count * sizeof(T)) != 0)
      return testing::AssertionFailure()
             << "rank " << r << " of " << n << ": " << resumed[r][0] << " instead of " << straight[r][0];
  return testing::AssertionSuccess();
}

struct Setting {
  std::string method;
  std::string topology;
};

void PrintTo(const Setting& one, std::ostream* out) {
  *out << one.method << " on " << one.topology;
}

std::vector<Setting> settings() {
  std::vector<Setting> all = {{"allreduce", "ring"},        {"allreduce-model", "ring"},
                              {"parameter-server", "ring"}, {"local-sgd(tau=3)", "ring"},
                              {"gossip-pga(h=3)", "ring"},  {"gossip-pga(h=4)", "ceca"},
                              {"hierarchical", "ring"},     {"dadam", "one-peer-exponential"},
                              {"accum-adam(s=3)", "ring"},  {"accum-adamw(s=4)", "one-peer-exponential"}};
  for (const char* topology :
       {"ring", "one-peer-exponential", "ceca", "ceca(k=2)", "od-equidyn", "base(k=1)"})
    all.push_back({"dsgd-atc", topology});
  for (const char* topology :
       {"exponential", "one-peer-exponential", "ou-equidyn", "periodic(ring,h=3)", "matcha(graph=ring)"})
    all.push_back({"dsgd-awc", topology});
  for (const char* topology : {"ring", "one-peer-exponential", "od-equidyn"})
    all.push_back({"gradient-tracking", topology});
  for (const char* topology : {"star(weights=push)", "fold-unfold", "one-peer-exponential"})
    all.push_back({"push-sum", topology});
  for (const char* missing : {"counts", "reference", "own"})
    for (const char* topology : {"chain", "binary-tree", "double-binary-trees"})
      for (const char* overlap : {"false", "true"})
        all.push_back({fmt::format("relay-sgd(missing={},overlap={})", missing, overlap), topology});
  for (const char* topology : {"chain", "double-binary-trees"}) all.push_back({"relay-sum-grad", topology});
  for (const char* method : {"extra", "exact-diffusion", "d2", "proxskip(p=0.5)", "lag(threshold=0.3)"})
    for (const char* topology : {"ring", "star"}) all.push_back({method, topology});
  for (const char* method : {"diging", "push-diging", "quasi-global-momentum(mu=0.8)"})
    for (const char* topology : {"ring", "one-peer-exponential"}) all.push_back({method, topology});
  all.insert(all.end(), {{"proxskip(p=0.5)", "complete"},
                         {"choco(codec=top-k(fraction=0.3),gamma=0.4)", "ring"},
                         {"choco(codec=qsgd,gamma=0.4)", "exponential"},
                         {"bytegrad", "ring"},
                         {"qsgd(levels=3)", "ring"},
                         {"qsgd(levels=3,feedback=true)", "ring"},
                         {"sign-sgd", "ring"},
                         {"low-precision-ring", "ring"},
                         {"qadam(warmup=3)", "ring"},
                         {"qadam(warmup=7)", "ring"},
                         {"powersgd(rank=1)", "ring"},
                         {"compressed-allreduce(codec=random-k(fraction=0.3))", "ring"},
                         {"win-put", "ring"},
                         {"win-put", "exponential"},
                         {"async-push-sum", "ring"},
                         {"async-push-sum", "exponential"},
                         {"async-average(staleness=2)", "ring"},
                         {"ad-psgd", "ring"},
                         {"diloco(h=3)", "ring"},
                         {"noloco(h=3)", "random-matching"},
                         {"noloco(h=2)", "base(k=1)"}});
  return all;
}

std::vector<std::string> optimizers_of(const std::string& method) {
  const std::string needed = make_method(method)->needs().optimizer;
  std::vector<std::string> all;
  for (const OptimizerFamily& family : optimizer_families())
    if (family.name.starts_with(needed)) all.push_back(family.name + "(lr=0.05,weight_decay=0.02)");
  return all;
}

class SavedStateTest : public testing::TestWithParam<Setting> {};

TEST_P(SavedStateTest, ContinuesBitForBit) {
  const RecordFolder folder;
  for (const std::string& optimizer : optimizers_of(GetParam().method))
    for (const Rank n : {4, 7}) {  // on the chain of 7, messages of step 5 are still in flight
      SavedRun run;
      run.problem = {.n = n, .count = 23};
      run.options = {
          .method = GetParam().method, .topology = GetParam().topology, .optimizer = optimizer, .seed = 5};
      EXPECT_TRUE(goes_on<float>(run, folder)) << optimizer << " float32";
      run.parts = 0;
      EXPECT_TRUE(goes_on<double>(run, folder)) << optimizer << " float64";
    }
}

std::string setting_name(const testing::TestParamInfo<Setting>& test) {
  return test_name(test.param.method + "_" + test.param.topology);
}

INSTANTIATE_TEST_SUITE_P(All, SavedStateTest, testing::ValuesIn(settings()), setting_name);

TEST(SavedStateListTest, EveryMethodAndOptimizerIsHere) {
  std::set<std::string> methods;
  std::set<std::string> optimizers;
  for (const Setting& one : settings()) {
    methods.insert(parse_spec(one.method).word);
    for (const std::string& optimizer : optimizers_of(one.method))
      optimizers.insert(parse_spec(optimizer).word);
  }
  for (const MethodFamily& family : method_families()) {
    const bool of_tests = family.name.rfind("test-", 0) == 0 || family.name == "alone";
    EXPECT_TRUE(of_tests || methods.contains(family.name)) << family.name;
  }
  for (const char* optimizer : {"sgd", "momentum", "nesterov", "adam", "adamw"})
    EXPECT_TRUE(optimizers.contains(optimizer)) << optimizer;
}

TEST(SavedState, ShortMessagesToo) {
  const RecordFolder folder;
  SavedRun run;
  run.problem = {.n = 4, .count = 40};
  for (const auto& [method, message] : {std::pair{"dsgd-awc", "bfloat16"},
                                        {"dsgd-awc", "int8"},
                                        {"dsgd-atc", "bfloat16"},
                                        {"gradient-tracking", "bfloat16"},
                                        {"gradient-tracking", "int8"},
                                        {"allreduce", "bfloat16"}}) {
    run.options = {
        .method = method, .topology = "ring", .optimizer = "momentum(lr=0.05)", .message = message};
    EXPECT_TRUE(goes_on<float>(run, folder)) << method << " " << message;
  }
}

// Restoring works on a driver that has run further, and on a new one.
TEST(SavedState, ADriverThatHasRunCanBeRestored) {
  for (const Setting& setting : {Setting{"gradient-tracking", "ring"},
                                 {"push-sum", "ring"},
                                 {"dsgd-awc", "ring"},
                                 {"dsgd-atc", "ceca"},
                                 {"relay-sgd(missing=reference)", "chain"}})
    for (const Step saved : {Step{0}, Step{2}}) {
      const RecordFolder folder;
      run_ranks(4, [&](Flock& flock) {
        const Problem problem{.n = 4, .count = 9};
        const SavedRun run{
            problem,
            {.method = setting.method, .topology = setting.topology, .optimizer = "momentum(lr=0.05)"}};
        auto x = problem.start_of<double>(flock.rank());
        std::vector<double> gradient(problem.count);
        Driver driver = driver_of(run, flock, x, gradient);
        take_steps(driver, problem, flock, x, gradient, 0, saved);
        const std::string path = folder.path(checkpoint_file_name(flock.rank()));
        save_to(path, driver, x);
        take_steps(driver, problem, flock, x, gradient, saved, saved + 4);
        const std::vector<double> first = x;
        driver.begin();
        const CheckpointFile file(path);
        file.read_into("x", std::as_writable_bytes(std::span(x)));
        restore(driver, file);
        take_steps(driver, problem, flock, x, gradient, saved, saved + 4);
        require(x == first,
                fmt::format("{} from step {}: {} instead of {}", setting.method, saved, x[0], first[0]));
      });
    }
}

// State that does not fit is refused by name, and nothing changes.
TEST(SavedState, RefusesStateThatDoesNotFit) {
  const RecordFolder folder;
  const Problem problem{.n = 2, .count = 9};
  const SavedRun run{problem, {.method = "gradient-tracking", .topology = "ring", .optimizer = "adam"}};
  run_ranks(2, [&](Flock& flock) {
    auto x = problem.start_of<double>(flock.rank());
    std::vector<double> gradient(problem.count);
    Driver driver = driver_of(run, flock, x, gradient);
    take_steps(driver, problem, flock, x, gradient, 0, 3);
    save_to(folder.path(checkpoint_file_name(flock.rank())), driver, x);
  });
  struct Other {
    std::string says;
    std::function<void(SavedRun&)> change;
    bool others_file = false;
  };
  const std::vector<Other> others = {
      {"the method gradient-tracking, here it is dsgd-atc",
       [](SavedRun& r) { r.options.method = "dsgd-atc"; }},
      {"by adam on", [](SavedRun& r) { r.options.optimizer = "adamw"; }},
      {"by adam on", [](SavedRun& r) { r.options.optimizer = "momentum"; }},
      {"on complete", [](SavedRun& r) { r.options.topology = "complete"; }},
      {"a number of blocks of 3, here it is 2", [](SavedRun& r) { r.parts = 2; }},
      {"block 0 of 0 x float64 in 1 segments", [](SavedRun& r) { r.problem.count = 30; }},
      {"written by rank 1 of 2, this is rank 0 of 2: each rank saves to", [](SavedRun&) {}, true},
  };
  for (const Other& other : others)
    run_ranks(2, [&](Flock& flock) {
      SavedRun changed = run;
      other.change(changed);
      std::vector<double> x(changed.problem.count, 5);
      std::vector<double> gradient(changed.problem.count);
      Driver driver = driver_of(changed, flock, x, gradient);
      take_steps(driver, changed.problem, flock, x, gradient, 0, 1);
      if (other.others_file && flock.rank() == 1) return;
      const std::string path = folder.path(checkpoint_file_name(other.others_file ? 1 : flock.rank()));
      const CheckpointFile file(path);
      const std::string text = message_of<Error>([&] { restore(driver, file); });
      require(text.find(path) == 0 && text.find(other.says) != std::string::npos, text);
      require(driver.step() == 1, "it has changed");
    });
}

// Momentum that the restored optimizer does not have is refused, not dropped.
TEST(SavedState, RefusesAnOptimizerThatRemembersLess) {
  const RecordFolder folder;
  run_ranks(1, [&](Flock& flock) {
    std::vector<double> x(4, 1);
    std::vector<double> gradient(4, 1);
    Driver first = drive(flock, buffer_of(x), buffer_of(gradient), {.optimizer = "momentum"});
    first.finish();
    save_to(folder.path("a"), first, x);
    Driver second = drive(flock, buffer_of(x), buffer_of(gradient), {.optimizer = "sgd", .name = "second"});
    const CheckpointFile file(folder.path("a"));
    const std::string text = message_of<Error>([&] { restore(second, file); });
    require(text.find("block/0/optimizer/momentum") != std::string::npos, text);
  });
}

}  // namespace
}  // namespace starling::method
