#include "bench/gpu.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "bench/gpu_cases.h"
#include "bench/gpu_rank.h"
#include "bench/ranks.h"
#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/base/median.h"
#include "starling/report/table.h"
#include "tool/command.h"
#include "tool/progress.h"

namespace starling::bench {

std::string GpuCase::text_of(double measured) const {
  if (unit == Unit::seconds) return human_time(measured);
  return unit == Unit::share ? fmt::format("{:.1f} %", measured * 100) : fmt::format("{:.2f}x", measured);
}

std::string GpuCase::bar_text() const {
  if (bar == 0) return "";
  const std::string number = unit == Unit::share   ? fmt::format("{:g} %", bar * 100)
                             : unit == Unit::times ? fmt::format("{:g}x", bar)
                                                   : human_time(bar);
  return (least ? "at least " : "at most ") + number;
}

std::vector<GpuCase> gpu_cases() {
  std::vector<GpuCase> all = gpu_pass_cases();
  for (GpuCase& one : gpu_rank_cases()) all.push_back(std::move(one));
  all.push_back(gpu_kill_case());
  return all;
}

namespace {

struct GpuOptions {
  GpuSettings settings;
  std::string only;
  std::string json_file;
  bool json = false;
  bool list = false;
  bool strict = false;
};

struct GpuResult {
  GpuCase what;
  std::vector<GpuRound> rounds;
  std::string problem;  // why there are none

  std::optional<double> value(double GpuRound::*of) const {
    if (rounds.empty()) return std::nullopt;
    std::vector<double> values;
    for (const GpuRound& round : rounds) values.push_back(round.*of);
    return what.worst ? *std::max_element(values.begin(), values.end()) : median(values);
  }
  std::optional<double> seconds() const { return value(&GpuRound::seconds); }
  std::optional<double> measured() const { return value(&GpuRound::measured); }
  std::optional<bool> met() const {
    if (!problem.empty()) return false;
    return what.bar == 0 ? std::nullopt : std::optional(what.met(*measured()));
  }
};

/// The measured GPU.
struct Gpu {
  std::string about;
  std::string problem;  // why there is none
};

// Queried in a child process: this process forks others, which could not use a driver that it had loaded.
Gpu look_for_gpu() {
  if (!kernel::may_have_device()) return {"", kernel::why_no_device()};
  struct Told {
    std::array<char, 256> about{};
    std::array<char, 1024> problem{};
  };
  const Shared<Told> told;
  const auto tell = [](auto& room, const std::string& text) {
    std::strncpy(room.data(), text.c_str(), room.size() - 1);
  };
  run_ranks(1, 0, kGpuLimit, [&](int, const auto&) {
    tell(told->problem, kernel::why_no_device());
    if (told->problem[0] == '\0')
      tell(told->about, kernel::device().devices().at(0).name + ", " + kernel::device().version());
    return std::vector<double>();
  });
  return {told->about.data(), told->problem.data()};
}

std::vector<GpuCase> chosen_cases(const GpuOptions& options) {
  std::vector<GpuCase> cases = gpu_cases();
  std::erase_if(cases, [&](const GpuCase& one) { return one.name.find(options.only) == std::string::npos; });
  if (cases.empty())
    throw InvalidArgument(fmt::format("no case contains '{}'; see starling bench gpu --list", options.only));
  return cases;
}

void print_list(const std::vector<GpuCase>& cases) {
  Table table(
      {{"case", Align::left}, {"processes", Align::right}, {"bar", Align::left}, {"of", Align::left}});
  for (const GpuCase& one : cases) table.row({one.name, std::to_string(one.ranks), one.bar_text(), one.of});
  std::cout << table.text(tool::color_wanted());
}

std::string met_text(const std::optional<bool>& met) {
  return !met ? "-" : *met ? "yes" : "no";
}

void print_table(const std::vector<GpuResult>& results, const GpuOptions& options, const Gpu& gpu) {
  Table table({{"case", Align::left},
               {"processes", Align::right},
               {"time", Align::right},
               {"measured", Align::right},
               {"of", Align::left},
               {"bar", Align::left},
               {"met", Align::left}});
  const GpuSettings& settings = options.settings;
  table.title(fmt::format("{}: {} float32, medians of {} interleaved rounds", gpu.about,
                          human_count(static_cast<double>(settings.elements)), settings.rounds));
  for (const GpuResult& result : results) {
    const bool failed = !result.problem.empty();
    table.row({result.what.name, std::to_string(result.what.ranks),
               failed ? "failed" : human_time(*result.seconds()),
               failed ? "-" : result.what.text_of(*result.measured()), result.what.of, result.what.bar_text(),
               settings.quick && !failed ? "-" : met_text(result.met())});
    if (failed) table.footnote(fmt::format("{}: {}.", result.what.name, result.problem));
  }
  for (const GpuResult& result : results) {
    if (result.what.worst && result.problem.empty())
      table.footnote(fmt::format("{}: the slowest of {}; a tenth of the elements.", result.what.name,
                                 result.rounds.size()));
    if (result.what.unit == GpuCase::Unit::seconds && !result.what.worst)
      table.footnote(result.what.name + ": measured is the time without waits for other ranks.");
  }
  if (settings.quick) table.footnote("quick: too little data to compare with the bars.");
  std::cout << table.text(tool::color_wanted());
}

void write_json(std::ostream& out, const std::vector<GpuResult>& results, const GpuOptions& options,
                const Gpu& gpu) {
  JsonWriter json(out);
  const auto optional = [&](std::string_view key, const auto& value) {
    json.key(key);
    value ? json.value(*value) : json.null();
  };
  json.begin_object().member("gpu", gpu.about).member("rounds", options.settings.rounds);
  json.member("elements", options.settings.elements).member("quick", options.settings.quick);
  json.key("cases").begin_array();
  for (const GpuResult& result : results) {
    json.begin_object().member("case", result.what.name).member("processes", result.what.ranks);
    optional("seconds", result.seconds());
    optional("measured", result.measured());
    std::vector<double> measured;
    for (const GpuRound& round : result.rounds) measured.push_back(round.measured);
    json.member("rounds", measured).member("of", result.what.of).member("bar", result.what.bar_text());
    optional("met", options.settings.quick ? std::nullopt : result.met());
    json.key("problem");
    result.problem.empty() ? json.null() : json.value(result.problem);
    json.end_object();
  }
  json.end_array().end_object();
  out << '\n';
}

void run(GpuOptions options) {
  const std::vector<GpuCase> cases = chosen_cases(options);
  if (options.list) return print_list(cases);
  if (options.settings.quick && options.strict)
    throw InvalidArgument("--strict needs full measurements; drop --quick");
  // the smallest message with its own memory
  if (options.settings.quick) options.settings.elements = 300'000;
  if (!options.json_file.empty()) tool::check_writable(options.json_file);
  const Gpu gpu = look_for_gpu();
  if (!gpu.problem.empty()) {
    std::cerr << "starling: no GPU to measure: " << gpu.problem << '\n';
    tool::exit_status() = 1;
    return;
  }
  std::vector<GpuResult> results;
  tool::Progress progress;
  for (const GpuCase& one : cases) {
    progress.show(fmt::format("[{}/{}] {}", results.size() + 1, cases.size(), one.name));
    GpuResult& result = results.emplace_back(GpuResult{one, {}, ""});
    try {
      result.rounds = one.measure(options.settings);
    } catch (const Error& error) {
      result.problem = error.what();
    }
    if (!result.problem.empty() || (options.strict && result.met() == false)) tool::exit_status() = 1;
  }
  progress.clear();
  if (!options.json_file.empty()) {
    std::ostringstream text;
    write_json(text, results, options, gpu);
    tool::write_file(options.json_file, text.str());
  }
  if (options.json && options.json_file.empty())
    write_json(std::cout, results, options, gpu);
  else
    print_table(results, options, gpu);
}

}  // namespace

void add_bench_gpu(CLI::App& bench) {
  auto options = std::make_shared<GpuOptions>();
  CLI::App* command =
      bench.add_subcommand("gpu", "Passes, steps and averages in a GPU's memory, beside their limits");
  GpuSettings& settings = options->settings;
  command->add_option("--rounds", settings.rounds, "rounds; a case and its limit run once per round")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--elements", settings.elements, "float32 of the model")
      ->capture_default_str()
      ->check(CLI::Range(std::size_t{1'000'000}, std::size_t{10'000'000'000}));
  command->add_option("--kills", settings.kills, "how often one of four processes is killed")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000));
  command->add_option("--only", options->only, "only cases whose name contains this; see --list");
  command->add_flag("--list", options->list, "list the cases, measure nothing");
  command->add_flag("--quick", settings.quick,
                    "run every case with very little data, only to check that it works");
  command->add_flag("--strict", options->strict,
                    "exit status 1 when a bar (a figure that Starling promises) is missed");
  CLI::Option* json =
      command->add_option("--json", options->json_file, "print JSON, or write it to FILE beside the table")
          ->type_name("[FILE]")
          ->expected(0, 1);
  command->footer(
      "Without a GPU, or if a case fails, it prints the reason and exits with status 1.\n\n"
      "Examples:\n  starling bench gpu\n  starling bench gpu --only kill --kills 200");
  command->callback([options, json] {
    options->json = json->count() > 0;
    run(*options);
  });
}

}  // namespace starling::bench
