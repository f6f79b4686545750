#include <algorithm>
#include <fmt/format.h>
#include <iostream>

#include "starling/base/error.h"
#include "starling/base/spec.h"
#include "starling/method/registry.h"
#include "starling/method/update.h"
#include "starling/simulate/objective_registry.h"
#include "starling/topology/registry.h"
#include "tool/command.h"
#include "tool/load.h"
#include "tool/progress.h"
#include "tool/simulate.h"
#include "tool/time_file.h"
#include "tool/training_race.h"

namespace starling::tool {
namespace {

struct TrainCommand {
  std::vector<std::string> methods = {kDefaultMethod}, topologies = {kDefaultTopology};
  Rank n = 0;
  std::size_t dim = 0;
  std::string problem = "quadratic";
  std::string data, time, precision = "float64", html;
  TrainingOptions training;
  int seeds = 1;
  bool trace = false;
  bool json = false;
};

constexpr std::size_t kUsualDim = 10;

ObjectivePtr objective_of(const TrainCommand& command, std::uint64_t seed) {
  if (command.data.empty()) {
    if (command.n == 0)
      throw InvalidArgument("give the number of nodes (-n N), or --data FILE with a row for each");
    const std::size_t dim = command.dim > 0 ? command.dim : kUsualDim;
    return make_objective(command.problem, command.n, dim, seed);
  }
  if (command.problem != "quadratic")
    throw InvalidArgument(
        fmt::format("--data is for --problem quadratic; {} makes its own data", command.problem));
  ObjectivePtr read = read_quadratic(command.data);
  if (command.n != 0 && command.n != read->nodes())
    throw InvalidArgument(
        fmt::format("{} has {} rows, one per node, but -n says {}", command.data, read->nodes(), command.n));
  if (command.dim != 0 && command.dim != read->dim())
    throw InvalidArgument(
        fmt::format("{} has {} coordinates, but --dim says {}", command.data, read->dim(), command.dim));
  return read;
}

// Throws for errors that do not depend on the number of nodes: a misspelled name or parameter.
void check_names(const TrainCommand& command) {
  for (const std::string& method : command.methods) make_method(method);
  for (const std::string& topology : command.topologies) check_topology_spec(topology);
  parse_optimizer(command.training.optimizer);
}

// The learning rate is the first parameter of every optimizer.
void use_rate_of_optimizer(TrainCommand& command, bool lr_given) {
  const std::string& optimizer = command.training.optimizer;
  const Spec spec = parse_spec(optimizer);
  const bool has_rate =
      (!spec.arguments.empty() && spec.arguments.front().key.empty()) ||
      std::ranges::any_of(spec.arguments, [](const Spec::Argument& one) { return one.key == "lr"; });
  if (!has_rate) return;
  if (lr_given)
    throw InvalidArgument(fmt::format("--lr {} and --optimizer {} contradict each other; give one",
                                      command.training.lr, optimizer));
  command.training.lr = parse_optimizer(optimizer).hyper.lr;
}

// Every method on every topology; methods without a topology once.
std::vector<RaceRun> pairs_of(const TrainCommand& command) {
  std::vector<RaceRun> runs;
  for (const std::string& method : command.methods) {
    if (!make_method(method)->needs_schedule()) {
      runs.push_back({method, ""});
      continue;
    }
    for (const std::string& topology : command.topologies) runs.push_back({method, topology});
  }
  return runs;
}

TrainingRace race_of(TrainCommand& command, const Objective& objective) {
  TrainingRace race;
  race.n = objective.nodes();
  race.dim = objective.dim();
  race.problem = command.data.empty() ? command.problem : command.data;
  race.time_file = command.time;
  race.seeds = command.seeds;
  race.options = command.training;
  race.options.precision = parse_dtype(command.precision);
  if (!command.time.empty()) race.options.time = read_time_file(command.time, race.n);
  race.options.time.seed = race.options.seed;
  race.runs = pairs_of(command);
  if (command.trace && (race.runs.size() > 1 || race.seeds > 1))
    throw InvalidArgument("--trace is of one run: give one method, one topology and one seed");
  return race;
}

void run_one(TrainingRace& race, RaceRun& run, const std::vector<ObjectivePtr>& objectives,
             const TrainCommand& command) {
  TrainingOptions options = race.options;
  options.method = run.method;
  options.topology = run.topology.empty() ? command.topologies.front() : run.topology;
  if (command.trace) {
    race.trace.emplace();
    options.observe = [&](Step, const SimulatedModels& models) {
      auto& step = race.trace->emplace_back();
      for (Rank node = 0; node < race.n; ++node) {
        const auto model = models(node);
        step.emplace_back(model.begin(), model.end());
      }
    };
  }
  try {
    std::vector<TrainingResult> results;
    for (const ObjectivePtr& objective : objectives) {
      results.push_back(run_training(*objective, options));
      ++options.seed;
      ++options.time.seed;
    }
    run.result = mean_of(results);
  } catch (const InvalidArgument& error) {
    run.refusal = error.what();
  }
}

void run_all(TrainCommand& command) {
  // Checks names, files and combinations before the first run, so that a mistake costs no time.
  check_names(command);
  if (command.trace && !command.json) throw InvalidArgument("--trace needs --json");
  if (!command.html.empty()) check_writable(command.html);
  std::vector<ObjectivePtr> objectives;
  for (int k = 0; k < command.seeds; ++k)
    objectives.push_back(objective_of(command, command.training.seed + static_cast<std::uint64_t>(k)));
  TrainingRace race = race_of(command, *objectives.front());
  Progress progress;
  progress.show(fmt::format("{}: looking for the least value", race.problem));
  race.least_known = objectives.front()->least_value().has_value();
  std::size_t number = 0;
  for (RaceRun& run : race.runs) {
    ++number;
    race.options.progress = [&](Step step) {
      progress.show(fmt::format("[{}/{}] {}: step {}", number, race.runs.size(), run.label(), step));
      return true;
    };
    run_one(race, run, objectives, command);
  }
  progress.clear();
  if (std::ranges::none_of(race.runs, [](const RaceRun& run) { return run.refusal.empty(); }))
    throw InvalidArgument(race.runs.front().refusal);
  // With several runs, divergence of one is a result; a single run that diverges sets the exit status.
  if (std::ranges::all_of(race.runs, [](const RaceRun& run) {
        return !run.refusal.empty() || run.result.diverged.has_value();
      })) {
    exit_status() = kDivergedStatus;
    for (const RaceRun& run : race.runs)
      if (run.result.diverged)
        std::cerr << fmt::format("starling: {}: diverged: {}\n", run.label(), run.result.diverged->text());
  }
  if (!command.html.empty()) write_file(command.html, race_page(race, command_line(), today()));
  if (command.json) return write_race(std::cout, race);
  std::cout << race_table(race).text(color_wanted());
  if (!command.html.empty()) std::cout << "\nreport: " << command.html << '\n';
}

std::string problems_text() {
  std::string text = "Problems:\n";
  for (const ObjectiveFamily& family : objective_families()) {
    text += fmt::format("  {:<15}{}\n", family.name, family.summary);
    for (const Parameter& parameter : family.parameters)
      text += fmt::format("    {:<20}{}\n", parameter.name + "=" + parameter.fallback, parameter.help);
  }
  return text;
}

}  // namespace

void add_simulate_train(CLI::App& simulate) {
  auto options = std::make_shared<TrainCommand>();
  TrainingOptions& training = options->training;
  CLI::App* command = simulate.add_subcommand("train", "Train on many nodes: methods on topologies");
  command->add_option("-n,--nodes", options->n, "number of nodes; --data sets it")
      ->check(CLI::Range(1, INT32_MAX));
  command->add_option("-m,--method", options->methods, "one or more methods")
      ->type_name("METHOD")
      ->capture_default_str();
  command->add_option("-t,--topology", options->topologies, "one or more topologies")
      ->type_name("TOPOLOGY")
      ->capture_default_str();
  CLI::Option* lr = command->add_option("--lr", training.lr, "learning rate")->capture_default_str();
  CLI::Option* decay = command->add_option("--decay", training.decay, "divide the learning rate by this")
                           ->capture_default_str();
  decay->needs(command
                   ->add_option("--decay-every", training.decay_every,
                                "steps between two such divisions; 0: never divide")
                   ->check(CLI::Range(Step{0}, Step{1} << 40))
                   ->capture_default_str()
                   ->needs(decay));
  command->add_option("--steps", training.steps, "steps of every node")
      ->capture_default_str()
      ->check(CLI::Range(Step{0}, Step{1} << 40));
  command->add_option("--problem", options->problem, "objective to minimize; see below")
      ->type_name("PROBLEM")
      ->capture_default_str();
  command->add_option("--dim", options->dim, "dimension of the problem (default: 10)")
      ->check(CLI::Range(1, 1 << 24));
  command
      ->add_option("--data", options->data,
                   "a quadratic problem from JSON: {\"a\": [[...]], \"b\": [[...]], \"x0\": [...]}")
      ->type_name("FILE");
  command->add_option("--optimizer", training.optimizer, "optimizer of every node")
      ->type_name("OPTIMIZER")
      ->capture_default_str();
  command
      ->add_option("--seed", training.seed,
                   "seed for data, batches, random topologies, dropped messages and stragglers")
      ->check(whole_number())
      ->capture_default_str();
  command
      ->add_option("--seeds", options->seeds,
                   "average over N seeds starting at --seed; each has its own data")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--precision", options->precision, "precision of models and messages")
      ->check(CLI::IsMember({"float64", "float32"}))
      ->capture_default_str();
  command->add_option("--threads", training.threads, "threads; 0: one per core. The result is the same")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_option("--drop", training.drop, "share of messages that are dropped")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--time", options->time, "TOML file with the speeds of nodes and links")
      ->type_name("FILE");
  command->add_option("--points", training.points, "points per curve, at most")
      ->check(CLI::Range(Step{2}, Step{1} << 30))
      ->capture_default_str();
  command->add_flag("--trace", options->trace, "with --json: every node's model after every step");
  command->add_option("--html", options->html, "write a page with the curves to this file")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "print JSON");
  add_load_option(*command);
  command->footer(
      problems_text() +
      "\nExample:\n  starling simulate train -n 300 --problem logistic --dim 100 --lr 0.5 -m dsgd-atc "
      "gradient-tracking -t ring exponential --html race.html");
  command->callback([options, lr] {
    use_rate_of_optimizer(*options, lr->count() > 0);
    run_all(*options);
  });
}

}  // namespace starling::tool
