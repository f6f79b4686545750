#include <fmt/format.h>
#include <iostream>

#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/report/table.h"
#include "starling/topology/registry.h"
#include "tool/command.h"
#include "tool/consensus_report.h"
#include "tool/load.h"
#include "tool/progress.h"
#include "tool/simulate.h"

namespace starling::tool {
namespace {

struct ConsensusCommand {
  std::vector<std::string> topologies;
  Rank n = 0;
  ConsensusOptions consensus;
  std::string html;
  bool json = false;
};

std::string steps_text(const ConsensusResult& result) {
  using Outcome = ConsensusResult::Outcome;
  std::string count = std::to_string(result.steps);
  switch (result.outcome) {
    case Outcome::reached:
      return count;
    case Outcome::computed:
      return count + " (computed)";
    case Outcome::estimated:
      return count + " (estimated)";
    case Outcome::stopped:
      return "> " + count;
  }
  return count;
}

void write_json(const std::vector<ConsensusResult>& results, const ConsensusCommand& options) {
  JsonWriter json(std::cout);
  json.begin_object()
      .member("n", options.n)
      .member("dim", options.consensus.dim)
      .member("tolerance", options.consensus.tolerance);
  json.member("seed", options.consensus.seed).key("results").begin_array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ConsensusResult& result = results[i];
    json.begin_object().member("topology", options.topologies[i]).member("schedule", result.topology);
    json.member("outcome", to_string(result.outcome))
        .member("steps", result.steps)
        .member("error", result.error);
    json.member("messages", result.messages)
        .member("seconds", result.seconds)
        .member("steps_run", result.steps_run);
    json.key("curve").begin_array();
    for (const ConsensusPoint& point : result.curve)
      json.begin_array(JsonWriter::Layout::one_line)
          .value(point.step)
          .value(point.error)
          .value(point.messages)
          .end_array();
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

void run(ConsensusCommand& options) {
  // Resolves all names before the first run, so that a misspelled one costs no time.
  std::vector<SchedulePtr> schedules;
  for (const std::string& name : options.topologies)
    schedules.push_back(make_schedule(name, options.n, options.consensus.seed));
  if (!options.html.empty()) check_writable(options.html);
  std::vector<ConsensusResult> results;
  Progress progress;
  for (const SchedulePtr& schedule : schedules) {
    const std::string& name = options.topologies[results.size()];
    const auto show = [&](Step step, double error) {
      progress.show(fmt::format("[{}/{}] {}: step {}, error {:.1e}", results.size() + 1, schedules.size(),
                                name, step, error));
      return true;
    };
    show(0, 1);
    options.consensus.progress = show;
    results.push_back(run_consensus(schedule, options.consensus));
  }
  progress.clear();
  if (!options.html.empty())
    write_file(options.html,
               consensus_page(results, options.topologies, options.consensus, command_line(), today()));
  if (options.json) {
    write_json(results, options);
    return;
  }
  std::cout << consensus_table(results, options.topologies, options.consensus).text(color_wanted());
  if (!options.html.empty()) std::cout << "\nreport: " << options.html << '\n';
}

}  // namespace

Table consensus_table(const std::vector<ConsensusResult>& results, const std::vector<std::string>& names,
                      const ConsensusOptions& options) {
  Table table({{"topology", Align::left},
               {"steps", Align::right},
               "messages",
               "per rank",
               "final error",
               "time",
               "time a step"});
  table.title(fmt::format("Average consensus of {} to an error of {}", counted(results.front().n, "rank"),
                          compact(options.tolerance)));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ConsensusResult& result = results[i];
    const bool ran = result.steps_run > 0;
    table.row({names[i], steps_text(result), human_count(result.messages),
               compact(result.messages / result.n, 4), fmt::format("{:.1e}", result.error),
               ran ? human_time(result.seconds) : "-",
               ran ? human_time(result.seconds / static_cast<double>(result.steps_run)) : "-"});
  }
  table.footnote("messages: of one model's size, from all ranks; a mean over g ranks counts as 2 (g - 1).");
  table.footnote("computed: by the eigenvalues and the start's spectrum, not run; estimated: from rho.");
  return table;
}

void add_simulate_consensus(CLI::App& simulate) {
  auto options = std::make_shared<ConsensusCommand>();
  CLI::App* command = simulate.add_subcommand("consensus", "Average random values until all ranks agree");
  command->add_option("-n,--ranks", options->n, "number of ranks")
      ->required()
      ->check(CLI::Range(1, INT32_MAX));
  command
      ->add_option("-t,--topology,TOPOLOGY", options->topologies,
                   "one or more topologies, with or without -t")
      ->type_name("TOPOLOGY")
      ->required();
  command
      ->add_option("--tolerance", options->consensus.tolerance, "stop at this ||x - mean|| / ||x_0 - mean||")
      ->capture_default_str();
  command->add_option("--dim", options->consensus.dim, "values per rank")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--seed", options->consensus.seed, "seed for start values and random topologies")
      ->check(whole_number())
      ->capture_default_str();
  command
      ->add_option("--max-steps", options->consensus.max_steps,
                   "run no more steps than this; slower static topologies are computed instead")
      ->capture_default_str()
      ->check(CLI::Range(Step{1}, Step{1} << 40));
  command->add_option("--html", options->html, "write a page with the curves to this file")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "print JSON");
  add_load_option(*command);
  command->footer(
      "Example:\n  starling simulate consensus -n 4900 -t ring exponential od-equidyn 'base(k=1)' ceca "
      "--html race.html");
  command->callback([options] { run(*options); });
}

}  // namespace starling::tool
