#include "tool/timeline.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iostream>

#include "starling/base/error.h"
#include "starling/report/number_text.h"
#include "starling/report/timeline_trace.h"
#include "tool/command.h"

namespace starling::tool {

TimelineRun read_timeline_aloud(const std::string& file) {
  TimelineRun run = read_timeline(file);
  const auto words = [](const auto& items) {
    std::vector<std::string> list;
    for (const auto& item : items) list.push_back(fmt::format("{}", item));
    return join_words(list);
  };
  if (!run.missing.empty())
    std::cerr << fmt::format("starling: of {} ranks these left no timeline: {}\n", run.size,
                             words(run.missing));
  if (!run.strange.empty())
    std::cerr << fmt::format(
        "starling: skipped, because they are from a run with another number of ranks: {}\n",
        words(run.strange));
  for (const TimelinePart& part : run.parts)
    if (part.damaged > 0)
      std::cerr << fmt::format("starling: {}.{} is damaged: {} of its {} operations are left out\n", file,
                               part.rank, part.damaged, part.damaged + part.events.size());
  return run;
}

void merge_timeline(const std::string& file, const std::string& path) {
  const TimelineRun run = read_timeline_aloud(file);
  std::ofstream out(path, std::ios::binary);
  if (out) write_chrome_trace(out, run);
  close_file(out, path);
  std::size_t events = 0;
  for (const TimelinePart& part : run.parts)
    events += static_cast<std::size_t>(
        std::ranges::count_if(part.events, [](const TimelineEvent& event) { return event.device < 0; }));
  std::cerr << fmt::format("starling: {} of {} are in {}; open it in Perfetto or chrome://tracing\n",
                           counted(static_cast<std::int64_t>(events), "operation"),
                           counted(static_cast<std::int64_t>(run.parts.size()), "rank"), path);
}

void add_timeline(CLI::App& app) {
  struct Options {
    std::string file, out;
    double seconds = 0;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("timeline", "Merge, summarize or draw what STARLING_TIMELINE=FILE recorded");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* help) {
    CLI::App* sub = command->add_subcommand(name, help);
    sub->add_option("FILE", options->file, "as in STARLING_TIMELINE=FILE; the ranks wrote FILE.0, FILE.1 ...")
        ->required();
    return sub;
  };
  CLI::App* merge = add("merge", "One Chrome/Perfetto trace (JSON) of all ranks");
  merge->add_option("-o,--output", options->out, "file to write (default: FILE itself)")->type_name("FILE");
  merge->footer("Example:\n  starling timeline merge trace -o trace.json");
  merge->callback(
      [options] { merge_timeline(options->file, options->out.empty() ? options->file : options->out); });
  CLI::App* summary = add("summary", "A table: how often, how long, how much of it waiting");
  summary->footer("Example:\n  starling timeline summary trace.json");
  summary->callback(
      [options] { std::cout << timeline_summary(read_timeline_aloud(options->file)).text(color_wanted()); });
  CLI::App* draw = add("draw", "A picture (SVG): a row per rank, waiting lighter");
  draw->add_option("-o,--output", options->out, "the SVG file")->type_name("FILE")->required();
  draw->add_option("--seconds", options->seconds, "draw only this many seconds, from the middle of the run")
      ->check(seconds_above_0());
  draw->footer("Example:\n  starling timeline draw trace.json --seconds 0.01 -o trace.svg");
  draw->callback([options] {
    write_file(options->out, timeline_svg(read_timeline_aloud(options->file), options->seconds));
  });
  command->footer(
      "Examples:\n  starling run -n 4 --timeline trace.json -- ./train\n  starling timeline summary "
      "trace.json\n"
      "  starling timeline draw trace.json --seconds 0.01 -o trace.svg");
}

}  // namespace starling::tool
