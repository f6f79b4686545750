#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <optional>

#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/report/table.h"
#include "starling/report/topology_svg.h"
#include "starling/topology/analysis.h"
#include "starling/topology/matrix.h"
#include "tool/command.h"
#include "tool/listing.h"
#include "tool/load.h"

namespace starling::tool {
namespace {

struct TopoOptions {
  std::string name;
  Rank n = 0;
  std::optional<Step> steps;
  std::optional<Rank> rank;
  std::uint64_t seed = 0;
  double message_bytes = 100e6;
  bool json = false;
  std::string svg;
};

std::string yes_no(const std::optional<bool>& flag) {
  return !flag ? "not computed at this n" : *flag ? "yes" : "no";
}

std::string describe_rho(const Analysis& analysis) {
  if (!analysis.rho) return "not computed";
  const double rho = analysis.rho->value;
  std::string text = rho > 0.9999 && rho < 1 ? "1 - " + compact(1 - rho, 4) : compact(rho, 8);
  if (analysis.rho->standard_error > 0) text += " ± " + compact(analysis.rho->standard_error, 2);
  return fmt::format("{} ({}{})", text, analysis.rho_is_mean_square ? "mean-square, " : "",
                     analysis.rho->how);
}

std::string describe_mixing(const Analysis& analysis) {
  switch (analysis.mixing) {
    case Mixing::push_sum:
      return "columns sum to one: needs push-sum";
    case Mixing::two_block:
      return "two blocks per rank (CECA)";
    case Mixing::average:
      break;
  }
  if (!analysis.row_stochastic || !analysis.column_stochastic) return "not computed at this n";
  if (*analysis.row_stochastic && *analysis.column_stochastic) return "doubly stochastic";
  return *analysis.row_stochastic ? "rows only: averages with unequal influence"
                                  : "neither rows nor columns sum to one";
}

std::string describe_exactness(const Analysis& analysis) {
  if (analysis.exact)
    return fmt::format("after {} {} from {} (seen by running it)", analysis.exact->rounds,
                       analysis.exact->rounds == 1 ? "round" : "rounds",
                       analysis.exact->from_any_step ? "any step" : "the start of a period");
  if (analysis.exactness_run || analysis.period == 0) return "no";
  // Too large to run; a formula, if there is one, still gives the answer.
  return analysis.rho && analysis.rho->value == 0 ? "after a period (by formula, not run at this n)"
                                                  : "not computed at this n and period";
}

void print_analysis(const Analysis& analysis, double bytes) {
  Table table({{"", Align::left}, {"", Align::left}});
  table.title(fmt::format("{} on {}", analysis.name, counted(analysis.n, "rank")));
  const LinkModel link;
  std::string period = std::to_string(analysis.period);
  if (analysis.period == 0) period = analysis.random ? "random: redrawn every step" : "too long to count";
  if (analysis.random && analysis.period > 1) period += ", redrawn every period";
  table.row({"period", analysis.period == 1 && !analysis.random ? "1, static" : period});
  table.row({"mixing", describe_mixing(analysis)});
  if (analysis.mixing != Mixing::two_block) table.row({"symmetric", yes_no(analysis.symmetric)});
  if (analysis.nonnegative && !*analysis.nonnegative) table.row({"negative weights", "yes"});
  table.row({"connected", yes_no(analysis.connected)});
  table.row({"rho", describe_rho(analysis)});
  if (analysis.second_modulus) table.row({"|lambda_2|", compact(*analysis.second_modulus, 8)});
  if (analysis.lambda_min)
    table.row({"lambda_min", compact(std::abs(*analysis.lambda_min) < 1e-12 ? 0 : *analysis.lambda_min, 8)});
  if (!analysis.round_rho.empty()) {
    std::vector<std::string> values;
    for (const double value : analysis.round_rho) values.push_back(compact(value, 4));
    if (values.size() > 12) {
      values.resize(12);
      values.emplace_back("...");
    }
    table.row({"rho of each round", join_words(values, " ")});
  }
  table.row({"exact average", describe_exactness(analysis)});
  table.row({"peers a step", std::to_string(analysis.cost.peers)});
  table.row({"messages a step", compact(analysis.cost.messages)});
  table.row({fmt::format("bytes a step at {} each", human_bytes(bytes)),
             human_bytes(analysis.cost.messages * bytes)});
  if (analysis.messages_per_exact) {
    table.row({"messages per exact average", compact(*analysis.messages_per_exact)});
    table.row({"bytes per exact average", human_bytes(*analysis.messages_per_exact * bytes)});
  }
  table.row(
      {"time of a step",
       fmt::format("{} M/B + {} L = {} at 10 Gbit/s, 50 µs", compact(analysis.cost.models, 4),
                   compact(analysis.cost.latencies, 4), human_time(analysis.cost.seconds(bytes, link)))});
  std::cout << table.text(color_wanted());
}

const char* lane_name(Lane lane) {
  return lane == Lane::a ? "a" : "b";
}

void print_exchanges(const Schedule& schedule, Rank first, Rank last, Step steps) {
  Table table({{"step", Align::right},
               {"rank", Align::right},
               {"self", Align::right},
               {"mean over", Align::left},
               {"receives from (weight)", Align::left},
               {"sends to", Align::left}});
  table.title(first == last ? fmt::format("What rank {} does", first) : "What every rank does");
  const bool lanes = schedule.mixing() == Mixing::two_block;
  const auto shorten = [](std::vector<std::string>& words) {
    if (words.size() <= 8) return;
    const std::size_t more = words.size() - 8;
    words.resize(8);
    words.push_back(fmt::format("and {} more", more));
  };
  Exchange exchange;
  for (Step t = 0; t < steps; ++t) {
    if (first != last) table.rule();
    for (Rank rank = first; rank <= last; ++rank) {
      schedule.exchange(t, rank, exchange);
      std::vector<std::string> sources;
      std::vector<std::string> destinations;
      for (const Source& s : exchange.sources)
        sources.push_back(
            fmt::format("{}{} ({})", s.rank, lanes ? lane_name(s.lane) : "", compact(s.weight)));
      for (const Destination& d : exchange.destinations)
        destinations.push_back(fmt::format("{}{}", d.rank, lanes ? lane_name(d.lane) : ""));
      shorten(sources);
      shorten(destinations);
      const Group& group = exchange.group;
      const std::string mean =
          group.size() > 1 ? fmt::format("{} ranks, {}..{}", group.size(), group[0], group[group.size() - 1])
                           : "-";
      table.row({std::to_string(t), std::to_string(rank), compact(exchange.self_weight), mean,
                 sources.empty() ? "-" : join_words(sources),
                 destinations.empty() ? "-" : join_words(destinations)});
    }
  }
  std::cout << table.text(color_wanted());
}

template <typename T>
void optional_member(JsonWriter& json, std::string_view key, const std::optional<T>& value) {
  json.key(key);
  if (value) {
    json.value(*value);
  } else {
    json.null();
  }
}

void write_analysis(JsonWriter& json, const Analysis& analysis, double bytes) {
  json.key("analysis").begin_object();
  json.member("random", analysis.random);
  json.member("mixing", analysis.mixing == Mixing::average    ? "average"
                        : analysis.mixing == Mixing::push_sum ? "push-sum"
                                                              : "two-block");
  optional_member(json, "row_stochastic", analysis.row_stochastic);
  optional_member(json, "column_stochastic", analysis.column_stochastic);
  optional_member(json, "symmetric", analysis.symmetric);
  optional_member(json, "nonnegative", analysis.nonnegative);
  optional_member(json, "connected", analysis.connected);
  optional_member(json, "rho_how", analysis.rho ? std::optional(analysis.rho->how) : std::nullopt);
  json.member("rho_is_mean_square", analysis.rho_is_mean_square);
  json.member("rho_standard_error", analysis.rho ? analysis.rho->standard_error : 0.0);
  json.member("round_rho", analysis.round_rho);
  optional_member(json, "second_modulus", analysis.second_modulus);
  optional_member(json, "lambda_min", analysis.lambda_min);
  optional_member(json, "exact_rounds",
                  analysis.exact ? std::optional(analysis.exact->rounds) : std::nullopt);
  optional_member(json, "exact_from_any_step",
                  analysis.exact ? std::optional(analysis.exact->from_any_step) : std::nullopt);
  json.member("peers", analysis.cost.peers);
  json.member("messages_per_step", analysis.cost.messages);
  json.member("message_bytes", bytes);
  json.member("bytes_per_step", analysis.cost.messages * bytes);
  optional_member(json, "messages_per_exact_average", analysis.messages_per_exact);
  json.member("bandwidth_terms", analysis.cost.models);
  json.member("latency_terms", analysis.cost.latencies);
  json.member("step_seconds", analysis.cost.seconds(bytes, LinkModel{}));
  json.end_object();
}

// CECA: how received blocks enter the two blocks, if that is the same for every rank (no groups, no idle
// ranks).
void write_update(JsonWriter& json, const Schedule& schedule, Step step) {
  struct Coefficients {
    double self[2] = {0, 0};
    double from_a[2] = {0, 0};
    double from_b[2] = {0, 0};
    bool operator==(const Coefficients&) const = default;
  };
  std::optional<Coefficients> common;
  for (Rank rank = 0; rank < schedule.size(); ++rank) {
    const Exchange exchange = schedule.exchange(step, rank);
    Coefficients mine{{exchange.self_weight, exchange.self_weight_b}, {0, 0}, {0, 0}};
    for (const Source& source : exchange.sources) {
      double* from = source.lane == Lane::a ? mine.from_a : mine.from_b;
      from[0] = source.weight;
      from[1] = source.weight_b;
    }
    if (exchange.group.size() > 1 || (common && *common != mine)) return;
    common = mine;
  }
  json.key("update").begin_object(JsonWriter::Layout::one_line);
  json.member("a_self", common->self[0])
      .member("a_from_a", common->from_a[0])
      .member("a_from_b", common->from_b[0]);
  json.member("b_self", common->self[1])
      .member("b_from_a", common->from_a[1])
      .member("b_from_b", common->from_b[1]);
  json.end_object();
}

void write_edges(JsonWriter& json, std::string_view key, const std::vector<Entry>& entries, bool lanes,
                 const std::optional<Rank>& rank) {
  json.key(key).begin_array();
  for (const Entry& entry : entries) {
    if (rank && entry.receiver != *rank) continue;
    json.begin_array(JsonWriter::Layout::one_line)
        .value(entry.receiver)
        .value(entry.sender)
        .value(entry.weight);
    if (lanes) json.value(lane_name(entry.lane));
    json.end_array();
  }
  json.end_array();
}

void write_round(JsonWriter& json, const Schedule& schedule, Step step, const std::optional<Rank>& rank) {
  const bool lanes = schedule.mixing() == Mixing::two_block;
  json.begin_object();
  json.member("step", step);
  const Exchange exchange = schedule.exchange(step, rank.value_or(0));
  if (rank && !lanes && exchange.group.size() <= 1) {  // one row needs no matrix, so any n is possible
    std::vector<Entry> row = {{*rank, *rank, Lane::a, exchange.self_weight}};
    for (const Source& source : exchange.sources)
      row.push_back({*rank, source.rank, source.lane, source.weight});
    write_edges(json, "edges", row, lanes, rank);
  } else {
    const RoundMatrix round(schedule, step);
    if (lanes) write_update(json, schedule, step);
    write_edges(json, "edges", round.entries(Lane::a), lanes, rank);
    if (lanes) write_edges(json, "edges_b", round.entries(Lane::b), lanes, rank);
  }
  if (rank) {
    json.key("destinations").begin_array(JsonWriter::Layout::one_line);
    for (const Destination& destination : exchange.destinations) {
      json.begin_array(JsonWriter::Layout::one_line).value(destination.rank);
      if (lanes) json.value(lane_name(destination.lane));
      json.end_array();
    }
    json.end_array();
  }
  json.end_object();
}

void write_json(const TopoOptions& options, const Schedule& schedule, const Analysis& analysis, Step steps) {
  JsonWriter json(std::cout);
  json.begin_object()
      .member("name", options.name)
      .member("schedule", schedule.name())
      .member("n", schedule.size());
  optional_member(json, "period", schedule.period() == 0 ? std::nullopt : std::optional(schedule.period()));
  optional_member(json, "rho", analysis.rho ? std::optional(analysis.rho->value) : std::nullopt);
  if (options.rank) json.member("rank", *options.rank);
  write_analysis(json, analysis, options.message_bytes);
  json.key("rounds").begin_array();
  for (Step t = 0; t < steps; ++t) write_round(json, schedule, t, options.rank);
  json.end_array().end_object();
}

void run(const TopoOptions& options, const CLI::App& command) {
  if (options.name.empty()) {
    for (const char* option : {"--ranks", "--steps", "--rank", "--seed", "--message", "--svg"})
      if (command.count(option) > 0)
        throw InvalidArgument(fmt::format(
            "{} needs a topology, as in: starling topo ring -n 8; starling topo lists them", option));
    list_topologies(options.json);
    return;
  }
  if (options.n == 0) throw InvalidArgument("give the number of ranks: starling topo NAME -n N");
  const SchedulePtr schedule = make_schedule(options.name, options.n, options.seed);
  if (options.rank && *options.rank >= options.n)
    throw InvalidArgument(
        fmt::format("--rank {} is not one of the {} ranks 0..{}", *options.rank, options.n, options.n - 1));
  const Step period = std::max<Step>(1, schedule->period());
  const Step steps = options.steps.value_or(period);
  if (!options.svg.empty()) write_file(options.svg, topology_svg(*schedule));
  const Analysis analysis = analyze(schedule);
  if (options.json) {
    write_json(options, *schedule, analysis, steps);
    return;
  }
  print_analysis(analysis, options.message_bytes);
  if (options.rank || options.steps) {
    constexpr Rank kMostRanks = 64;
    if (!options.rank && options.n > kMostRanks)
      throw InvalidArgument(fmt::format(
          "--steps prints every rank up to n = {}; add --rank R, or --json for all of them", kMostRanks));
    std::cout << '\n';
    print_exchanges(*schedule, options.rank.value_or(0), options.rank.value_or(options.n - 1),
                    options.steps.value_or(std::min<Step>(period, 16)));
  }
  if (!options.svg.empty()) std::cout << "\ndrawn: " << options.svg << '\n';
}

}  // namespace

void add_topo(CLI::App& app) {
  auto options = std::make_shared<TopoOptions>();
  CLI::App* command = app.add_subcommand("topo", "List topologies, or analyze and draw one");
  command->add_option(
      "NAME", options->name,
      "a topology such as ring, 'base(k=2)' or 'periodic(ring, h=16)'; without it: lists all");
  command->add_option("-n,--ranks", options->n, "number of ranks")->check(CLI::Range(1, INT32_MAX));
  command->add_option("--steps", options->steps, "rounds to print (default: one period)")
      ->check(CLI::Range(Step{1}, Step{1} << 40));
  command->add_option("--rank", options->rank, "show what this rank does in each step")
      ->check(CLI::Range(0, INT32_MAX));
  command->add_option("--seed", options->seed, "seed for random topologies without seed= (default: 0)")
      ->check(whole_number());
  command
      ->add_option("--message", options->message_bytes,
                   "bytes of one message, for the byte counts; suffixes kB, MB, GB (default: 100 MB)")
      ->transform(byte_size())
      ->check(CLI::Range(1.0, 1e18));
  command->add_flag("--json", options->json,
                    "print JSON: the analysis, and [receiver, sender, weight] of every round");
  command->add_option("--svg", options->svg, "draw it to this SVG file")->type_name("FILE");
  add_load_option(*command);
  command->footer(
      "Examples:\n  starling topo\n  starling topo 'base(k=2)' -n 24 --rank 3\n  starling topo ceca -n 12 "
      "--svg ceca.svg");
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace starling::tool
