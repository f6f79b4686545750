#include "tool/command.h"

#include <algorithm>
#include <fmt/format.h>
#include <iostream>
#include <set>
#include <sstream>

#include "bench/async.h"
#include "bench/cases.h"
#include "bench/gpu.h"
#include "bench/simulate.h"
#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/base/median.h"
#include "starling/launch/cpus.h"
#include "starling/report/table.h"
#include "tool/exec_torch_tool.h"
#include "tool/progress.h"

namespace starling::bench {
namespace {

struct BenchOptions {
  int rounds = 5;
  std::string only;
  std::string json_file;
  bool json = false;
  bool quick = false;
  bool list = false;
  bool strict = false;
};

// Two cores, for which the bars hold: more ranks share them.
std::vector<int> chosen_cpus() {
  std::vector<int> cpus = launch::allowed_cpus();
  if (cpus.size() > 2) cpus.resize(2);
  return cpus;
}

std::vector<CommCase> chosen_cases(const BenchOptions& options) {
  std::vector<CommCase> cases = comm_cases(chosen_cpus(), options.quick);
  std::erase_if(cases,
                [&](const CommCase& one) { return one.label().find(options.only) == std::string::npos; });
  if (cases.empty())
    throw InvalidArgument(fmt::format("no case contains '{}'; see starling bench comm --list", options.only));
  return cases;
}

double measure(const CommCase& what, Contender contender, bool quick) {
  switch (what.kind) {
    case CommCase::Kind::stopped:
      return stopped_share(quick ? 0.2 : 1, what.work.cpus);
    case CommCase::Kind::idle:
      return idle_share(quick ? 0.2 : 1, what.work.cpus);
    case CommCase::Kind::start_up:
      return start_up_seconds(what.work.ranks);
    case CommCase::Kind::operation:
      break;
  }
  return seconds_per_operation(contender, what.work);
}

// Results of Open MPI depend much on this permission.
std::string single_copy_note() {
  return single_copy_allowed() ? "Open MPI may read other processes' memory here, and copies once"
                               : "Open MPI may not read other processes' memory here, and copies twice";
}

// Contenders take turns, and each round starts with another one. `notes` collects why results are missing.
CommResult run_case(const CommCase& what, const BenchOptions& options, const std::string& place,
                    Progress& progress, std::set<std::string>& notes) {
  CommResult result{what};
  std::vector<Contender> running;
  for (const Contender contender : what.contenders)
    if (const auto reason = missing(contender)) {
      notes.insert(*reason);
    } else {
      running.push_back(contender);
    }
  if (running.empty() || running.front() != result.ours()) return result;  // nothing to compare with
  std::set<Contender> failed;
  for (int round = 0; round < options.rounds; ++round)
    for (std::size_t turn = 0; turn < running.size(); ++turn) {
      const Contender contender = running[(turn + static_cast<std::size_t>(round)) % running.size()];
      if (failed.contains(contender)) continue;
      progress.show(fmt::format("{} {}, round {} of {}: {}", place, what.label(), round + 1, options.rounds,
                                to_string(contender)));
      try {
        result.of(contender).push_back(measure(what, contender, options.quick));
        if (contender == Contender::mpi && round == 0) notes.insert(single_copy_note());
      } catch (const Error& error) {
        notes.insert(fmt::format("{}: {} failed: {}", what.label(), to_string(contender), error.what()));
        failed.insert(contender);
        result.of(contender).clear();
        result.failed = failed.contains(result.ours());
        if (result.failed) return result;
      }
    }
  return result;
}

std::string times_text(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.2f}x", *ratio) : "-";
}

std::string percent_text(const std::optional<double>& share, int digits) {
  return share ? fmt::format("{:.{}f} %", *share * 100, digits) : "-";
}

std::string ours_text(const CommResult& result) {
  if (result.failed) return "failed";
  const std::vector<double>& values = result.of(result.ours());
  if (values.empty()) return "-";
  const double value = median(values);
  const bool share = result.what.kind == CommCase::Kind::idle || result.what.kind == CommCase::Kind::stopped;
  return share ? percent_text(value, 2) : human_time(value);
}

std::string met_text(const std::optional<bool>& met) {
  return !met ? "-" : *met ? "yes" : "no";
}

void print_table(const std::vector<CommResult>& results, const BenchOptions& options,
                 const std::set<std::string>& notes) {
  Table table({{"case", Align::left},
               {"n", Align::right},
               {"bytes", Align::right},
               {"ours", Align::right},
               {"of ceiling", Align::right},
               {"x MPI", Align::right},
               {"x gloo", Align::right},
               {"bar", Align::left},
               {"met", Align::left}});
  const std::size_t cores = results.front().what.work.cpus.size();
  table.title(fmt::format("Communication on {} core{}, medians of {} interleaved round{}", cores,
                          cores == 1 ? "" : "s", options.rounds, options.rounds == 1 ? "" : "s"));
  for (const CommResult& result : results) {
    const bool sized = result.what.kind == CommCase::Kind::operation;
    table.row({result.what.name, std::to_string(result.what.work.ranks),
               sized ? human_bytes(static_cast<double>(result.what.bytes())) : "-", ours_text(result),
               percent_text(result.share_of_ceiling(), 0), times_text(result.speed_against(Contender::mpi)),
               times_text(result.speed_against(Contender::gloo)), result.what.bars_text(),
               options.quick ? "-" : met_text(result.met())});
  }
  const auto any = [&](const auto& is) { return std::any_of(results.begin(), results.end(), is); };
  if (any([](const CommResult& result) { return result.share_of_ceiling().has_value(); }))
    table.footnote("ceiling: the same reads and writes on private memory, without waiting for other ranks.");
  if (any([](const CommResult& result) { return result.speed_against(Contender::gloo).has_value(); }))
    table.footnote("gloo: its all-reduce of the same bytes.");
  if (any([](const CommResult& result) { return result.what.kind == CommCase::Kind::stopped; }))
    table.footnote(
        "a rank is stopped: the others' window put and update of 1 MB meanwhile, of its usual time.");
  if (any([](const CommResult& result) { return result.what.kind == CommCase::Kind::idle; }))
    table.footnote("waiting: the processor time of a rank whose peer sleeps.");
  if (any([](const CommResult& result) { return result.what.kind == CommCase::Kind::start_up; }))
    table.footnote("start-up: starling run -n 16 -- true.");
  if (options.quick) table.footnote("quick: too little data to compare with the bars.");
  for (const std::string& note : notes) table.footnote(note + ".");
  std::cout << table.text(color_wanted());
}

void write_optional(JsonWriter& json, std::string_view key, const std::optional<double>& value) {
  json.key(key);
  value ? json.value(*value) : json.null();
}

void write_json(std::ostream& out, const std::vector<CommResult>& results, const BenchOptions& options,
                const std::set<std::string>& notes) {
  JsonWriter json(out);
  json.begin_object().member("rounds", options.rounds).member("quick", options.quick);
  json.member("cores", results.front().what.work.cpus.size()).member("notes", notes);
  json.key("cases").begin_array();
  for (const CommResult& result : results) {
    json.begin_object().member("case", result.what.name).member("label", result.what.label());
    json.member("n", result.what.work.ranks).member("bytes", result.what.bytes());
    json.member("ours", to_string(result.ours())).member("failed", result.failed);
    json.key("values").begin_object();
    for (const Contender contender : result.what.contenders)
      json.member(to_string(contender), result.of(contender));
    json.end_object();
    write_optional(json, "of_ceiling", result.share_of_ceiling());
    write_optional(json, "times_mpi", result.speed_against(Contender::mpi));
    write_optional(json, "times_mpi_by_medians", result.ratio_of_medians(Contender::mpi));
    write_optional(json, "times_gloo", result.speed_against(Contender::gloo));
    write_optional(json, "times_gloo_by_medians", result.ratio_of_medians(Contender::gloo));
    json.member("bar", result.what.bars_text()).key("met");
    const std::optional<bool> met = options.quick ? std::nullopt : result.met();
    met ? json.value(*met) : json.null();
    json.end_object();
  }
  json.end_array().end_object();
  out << '\n';
}

void print_list(const std::vector<CommCase>& cases) {
  Table table({{"case", Align::left}, {"bar", Align::left}});
  for (const CommCase& one : cases) table.row({one.label(), one.bars_text()});
  std::cout << table.text(color_wanted());
}

void run(const BenchOptions& options) {
  const std::vector<CommCase> cases = chosen_cases(options);
  if (options.list) {
    print_list(cases);
    return;
  }
  if (options.quick && options.strict)
    throw InvalidArgument("--strict needs full measurements; drop --quick");
  if (!options.json_file.empty()) check_writable(options.json_file);
  std::vector<CommResult> results;
  std::set<std::string> notes;
  Progress progress;
  for (const CommCase& one : cases)
    results.push_back(
        run_case(one, options, fmt::format("[{}/{}]", results.size() + 1, cases.size()), progress, notes));
  progress.clear();
  if (!options.json_file.empty()) {
    std::ostringstream text;
    write_json(text, results, options, notes);
    write_file(options.json_file, text.str());
  }
  if (options.json && options.json_file.empty()) {
    write_json(std::cout, results, options, notes);
  } else {
    print_table(results, options, notes);
  }
  for (const CommResult& result : results)
    if (options.strict && result.met() != true) exit_status() = 1;
}

}  // namespace

static void add_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Benchmark communication, training, GPUs and the simulator");
  bench->require_subcommand(1);
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      bench->add_subcommand("comm", "Operations between processes, beside Open MPI, gloo and the memory bus");
  command->add_option("--rounds", options->rounds, "rounds; every contender runs once per round")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--only", options->only, "only cases whose name contains this; see --list");
  command->add_flag("--list", options->list, "list the cases, measure nothing");
  command->add_flag("--quick", options->quick,
                    "run every case with very little data, only to check that it works");
  command->add_flag(
      "--strict", options->strict,
      "exit status 1 when a bar (a figure that Starling promises) is missed or could not be measured");
  CLI::Option* json =
      command->add_option("--json", options->json_file, "print JSON, or write it to FILE beside the table")
          ->type_name("[FILE]")
          ->expected(0, 1);
  command->footer(
      "./run bench installs and builds Open MPI's and gloo's contenders first.\n\n"
      "Example:\n  starling bench comm --only 100MB --rounds 9 --json figures.json");
  command->callback([options, json] {
    options->json = json->count() > 0;
    run(*options);
  });
  add_bench_async(*bench);
  add_bench_gpu(*bench);
  add_bench_simulate(*bench);
  add_torch_command(*bench, "training", "Training steps, beside no communication at all and PyTorch's DDP");
  add_torch_command(*bench, "scaling", "Images per second: methods x topologies x numbers of workers");
}

}  // namespace starling::bench

namespace starling::tool {

void add_bench(CLI::App& app) {
  bench::add_command(app);
}

}  // namespace starling::tool
