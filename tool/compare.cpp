#include <fmt/format.h>
#include <iostream>

#include "starling/base/json.h"
#include "starling/report/table.h"
#include "starling/simulate/consensus.h"
#include "starling/topology/analysis.h"
#include "tool/command.h"
#include "tool/load.h"
#include "tool/progress.h"

namespace starling::tool {
namespace {

struct CompareOptions {
  std::vector<std::string> names;
  Rank n = 0;
  std::uint64_t seed = 0;
  double tolerance = 1e-10;
  Step max_steps = 200'000;
  double message_bytes = 100e6;
  double bandwidth_gbit = 10;
  double latency_us = 50;
  bool json = false;
};

const std::vector<std::string>& usual_names() {
  static const std::vector<std::string> names = {
      "ring",         "torus",      "exponential", "one-peer-exponential",
      "u-equistatic", "od-equidyn", "ou-equidyn",  "random-matching",
      "base(k=1)",    "base(k=4)",  "ceca",        "fold-unfold",
      "complete"};
  return names;
}

struct Row {
  std::string name;
  StepCost cost;
  std::optional<Finding> rho;
  bool mean_square = false;
  ConsensusResult consensus;
  bool centralized = false;
  std::optional<Contraction> contraction = {};
};

std::optional<double> transient(const Row& row, Rank n, int power) {
  return row.contraction ? transient_steps(*row.contraction, n, power) : std::nullopt;
}

Row measure(const std::string& name, const SchedulePtr& schedule, const CompareOptions& options) {
  ConsensusOptions run;
  run.tolerance = options.tolerance;
  run.max_steps = options.max_steps;
  run.seed = options.seed;
  Row row;
  row.name = name;
  const Step rounds = std::min<Step>(std::max<Step>(1, schedule->random() ? 32 : schedule->period()),
                                     std::max<Step>(1, 20'000'000 / options.n));
  row.cost = step_cost(*schedule, rounds);
  row.rho = find_rho(schedule);
  if (row.rho) row.contraction = find_contraction(schedule, *row.rho);
  row.mean_square =
      row.rho && schedule->random() && !schedule->known_rho() && row.rho->how != "exact average";
  row.consensus = run_consensus(schedule, run);
  return row;
}

Row centralized(const std::string& name, const StepCost& cost) {
  Row row;
  row.name = name;
  row.cost = cost;
  row.rho = Finding{0, "exact", 0};
  row.contraction = Contraction{1, 0};
  row.centralized = true;
  row.consensus.outcome = ConsensusResult::Outcome::reached;
  row.consensus.steps = 1;
  row.consensus.messages = cost.messages;
  return row;
}

void print_table(const std::vector<Row>& rows, const CompareOptions& options, const LinkModel& link) {
  Table table({{"topology", Align::left},
               "peers",
               "rho",
               "steps",
               "bytes/rank/step",
               "all bytes to agree",
               "transient DSGD",
               "transient GT",
               "M/B",
               "L",
               "step time"});
  table.title(fmt::format("{}, messages of {}, {} Gbit/s, {} µs", counted(options.n, "rank"),
                          human_bytes(options.message_bytes), compact(options.bandwidth_gbit),
                          compact(options.latency_us)));
  bool ruled = false;
  for (const Row& row : rows) {
    if (row.centralized && !ruled) table.rule();
    ruled = ruled || row.centralized;
    using Outcome = ConsensusResult::Outcome;
    const Outcome outcome = row.consensus.outcome;
    std::string steps = outcome == Outcome::stopped ? fmt::format("> {}", row.consensus.steps)
                                                    : std::to_string(row.consensus.steps);
    if (outcome == Outcome::computed) steps += " c";
    if (outcome == Outcome::estimated) steps += " e";
    const auto count = [](const std::optional<double>& value) {
      return value ? human_count(*value) : std::string("-");
    };
    table.row(
        {row.name, std::to_string(row.cost.peers),
         row.rho ? compact(row.rho->value, 6) + (row.mean_square ? " ms" : "") : "-", steps,
         human_bytes(row.cost.messages / options.n * options.message_bytes),
         outcome == Outcome::stopped ? "-" : human_bytes(row.consensus.messages * options.message_bytes),
         count(transient(row, options.n, 2)), count(transient(row, options.n, 6)),
         compact(row.cost.models, 4), compact(row.cost.latencies, 4),
         human_time(row.cost.seconds(options.message_bytes, link))});
  }
  table.footnote(
      fmt::format("steps: to a consensus error of {} from random normal values; c: computed from the "
                  "spectrum, e: estimated from rho.",
                  options.tolerance));
  table.footnote(
      "rho: of one step (a period's T-th root); ms: mean-square. transient: n^3 (T / (1 - rho_T))^2 for "
      "DSGD, ^6 for gradient tracking, rho_T of the T steps of a period together.");
  table.footnote("M/B and L: how many message times and latencies a step costs the busiest rank.");
  std::cout << table.text(color_wanted());
}

void write_json(const std::vector<Row>& rows, const CompareOptions& options, const LinkModel& link) {
  JsonWriter json(std::cout);
  json.begin_object()
      .member("n", options.n)
      .member("tolerance", options.tolerance)
      .member("message_bytes", options.message_bytes);
  json.member("bandwidth", link.bandwidth).member("latency", link.latency).key("rows").begin_array();
  const auto number = [&](std::string_view key, const std::optional<double>& value) {
    json.key(key);
    if (value) {
      json.value(*value);
    } else {
      json.null();
    }
  };
  for (const Row& row : rows) {
    json.begin_object()
        .member("name", row.name)
        .member("centralized", row.centralized)
        .member("peers", row.cost.peers);
    number("rho", row.rho ? std::optional(row.rho->value) : std::nullopt);
    json.member("rho_is_mean_square", row.mean_square);
    json.key("period");
    row.contraction ? json.value(row.contraction->rounds) : json.null();
    number("rho_of_period", row.contraction ? std::optional(row.contraction->rho) : std::nullopt);
    json.member("steps", row.consensus.steps).member("outcome", to_string(row.consensus.outcome));
    json.member("messages_per_step", row.cost.messages);
    json.member("bytes_per_rank_per_step", row.cost.messages / options.n * options.message_bytes);
    json.member("bytes_to_agree", row.consensus.messages * options.message_bytes);
    number("transient_dsgd", transient(row, options.n, 2));
    number("transient_gradient_tracking", transient(row, options.n, 6));
    json.member("bandwidth_terms", row.cost.models).member("latency_terms", row.cost.latencies);
    json.member("step_seconds", row.cost.seconds(options.message_bytes, link)).end_object();
  }
  json.end_array().end_object();
}

void run(const CompareOptions& options) {
  const LinkModel link{options.bandwidth_gbit * 1e9 / 8, options.latency_us * 1e-6};
  const auto& names = options.names.empty() ? usual_names() : options.names;
  // Resolves all names before the first run, so that a misspelled one costs no time.
  std::vector<SchedulePtr> schedules;
  for (const std::string& name : names) schedules.push_back(make_schedule(name, options.n, options.seed));
  std::vector<Row> rows;
  Progress progress;
  for (const std::string& name : names) {
    progress.show(fmt::format("[{}/{}] {}", rows.size() + 1, names.size(), name));
    rows.push_back(measure(name, schedules[rows.size()], options));
  }
  progress.clear();
  rows.push_back(centralized("parameter server", parameter_server_cost(options.n)));
  rows.push_back(centralized("ring all-reduce", ring_allreduce_cost(options.n)));
  if (options.json) {
    write_json(rows, options, link);
  } else {
    print_table(rows, options, link);
  }
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command =
      app.add_subcommand("compare", "Put topologies side by side: speed of agreement against cost");
  command->add_option("NAME", options->names, "topologies (default: a selection)");
  command->add_option("-n,--ranks", options->n, "number of ranks")
      ->required()
      ->check(CLI::Range(1, INT32_MAX));
  command->add_option("--tolerance", options->tolerance, "consensus error to reach")->capture_default_str();
  command->add_option("--max-steps", options->max_steps, "give up, or compute, beyond this many steps")
      ->capture_default_str()
      ->check(CLI::Range(Step{1}, Step{1} << 40));
  command
      ->add_option("--message", options->message_bytes,
                   "M, bytes of one message; suffixes kB, MB, GB (default: 100 MB)")
      ->transform(byte_size())
      ->check(CLI::Range(1.0, 1e18));
  command->add_option("--bandwidth", options->bandwidth_gbit, "B, Gbit/s of a link")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 1e6));
  command->add_option("--latency", options->latency_us, "L, microseconds")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  command->add_option("--seed", options->seed, "seed for start values and random topologies (default: 0)")
      ->check(whole_number());
  command->add_flag("--json", options->json, "print JSON");
  add_load_option(*command);
  command->footer(
      "Example:\n  starling compare -n 64 ring exponential one-peer-exponential 'base(k=1)' ceca --message "
      "400MB");
  command->callback([options] { run(*options); });
}

}  // namespace starling::tool
