#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "bench/torch/command.h"
#include "bench/torch/worker.h"
#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/launch/cpus.h"
#include "starling/report/page.h"
#include "starling/report/table.h"
#include "starling/version.h"
#include "tool/machine.h"
#include "tool/program.h"
#include "tool/progress.h"
#include "tool/torch/command.h"
#include "tool/worker_group.h"

namespace starling::bench {
namespace {

using namespace std::chrono_literals;

struct ScalingBenchOptions {
  std::string work = "lenet";
  std::vector<std::string> methods = {"dsgd-awc", "dsgd-atc", "gradient-tracking", "allreduce"};
  std::vector<std::string> topologies = {"ring", "one-peer-exponential"};
  std::vector<int> workers = {1, 2, 4, 8};
  int rounds = 7;
  double seconds = 0.5;
  bool json = false;
  std::string html;
};

// Methods without a topology are measured once.
bool follows_topology(const std::string& method) {
  return method.rfind("allreduce", 0) != 0 && method.rfind("local-sgd", 0) != 0 &&
         method != "parameter-server" && method != "alone";
}

struct Point {
  std::string method, topology;
  int workers = 0;
  std::vector<double> images_per_second;
  std::vector<double> waiting;  // fraction of the time

  static double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  double spread() const {
    const double middle = mean(images_per_second);
    double squares = 0;
    for (const double value : images_per_second) squares += (value - middle) * (value - middle);
    return images_per_second.size() < 2
               ? 0
               : std::sqrt(squares / static_cast<double>(images_per_second.size() - 1));
  }
};

std::vector<Point> measure(const ScalingBenchOptions& options, int workers, Progress& progress) {
  const std::vector<int> cpus = launch::allowed_cpus();
  const int threads = std::max(1, static_cast<int>(cpus.size()) / workers);
  const TrainingWork& work = training_work(options.work);
  WorkerGroup group("starling", {own_path(), "worker", options.work, std::to_string(threads)}, workers, cpus,
                    training_environment(threads));
  std::vector<Point> points = {{"alone", "-", workers, {}, {}}};
  for (const std::string& method : options.methods) {
    if (const std::size_t at = method.find('@'); at != std::string::npos) {
      points.push_back({method.substr(0, at), method.substr(at + 1), workers, {}, {}});
      continue;
    }
    if (!follows_topology(method)) {
      points.push_back({method, "-", workers, {}, {}});
      continue;
    }
    for (const std::string& topology : options.topologies)
      points.push_back({method, topology, workers, {}, {}});
  }
  const auto run = [&](const Point& point, int steps) {
    group.tell(fmt::format("{} {} {}", point.method, point.topology, steps));
    double slowest = 0, waited = 0;
    for (const std::string& line : group.answers(300s)) {
      std::istringstream numbers(line);
      double seconds = 0, waiting = 0;
      numbers >> seconds >> waiting;
      slowest = std::max(slowest, seconds);
      waited += waiting / workers;
    }
    return std::pair(slowest, waited);
  };
  for (const Point& point : points) run(point, 3);
  const int steps = std::max(2, static_cast<int>(options.seconds / (run(points[0], 5).first / 5)));
  for (int round = 0; round < options.rounds; ++round)
    for (std::size_t turn = 0; turn < points.size(); ++turn) {
      Point& point = points[(turn + static_cast<std::size_t>(round)) % points.size()];
      progress.show(fmt::format("{} workers, round {} of {}: {} {}", workers, round + 1, options.rounds,
                                point.method, point.topology));
      const auto [seconds, waited] = run(point, steps);
      point.images_per_second.push_back(static_cast<double>(steps) * work.batch * workers / seconds);
      point.waiting.push_back(waited / seconds);
    }
  return points;
}

Table table_of(const std::vector<Point>& points, const ScalingBenchOptions& options) {
  Table table({{"method", Align::left},
               {"topology", Align::left},
               {"n", Align::right},
               {"images/s", Align::right},
               {"spread", Align::right},
               {"of alone", Align::right},
               {"waiting", Align::right}});
  table.title(fmt::format("{} on synthetic images, batch {}, {} interleaved rounds", options.work,
                          training_work(options.work).batch, options.rounds));
  double alone = 0;
  for (const Point& point : points) {
    const double speed = Point::mean(point.images_per_second);
    if (point.method == "alone") {
      if (&point != &points.front()) table.rule();
      alone = speed;
    }
    table.row({point.method, point.topology, std::to_string(point.workers), fmt::format("{:.0f}", speed),
               fmt::format("{:.0f}", point.spread()), fmt::format("{:.1f} %", 100 * speed / alone),
               fmt::format("{:.1f} %", 100 * Point::mean(point.waiting))});
  }
  table.footnote(
      "alone: every worker for itself, without communication; waiting: for other workers, mean over the "
      "workers");
  return table;
}

// Against the number of workers, with one line per method and topology.
LineChart chart(const std::vector<Point>& points, const std::string& title, const std::string& y_label,
                double (*value)(const Point& point, double alone)) {
  LineChart result;
  result.title = title;
  result.x_label = "workers";
  result.y_label = y_label;
  result.log_x = true;
  result.markers = true;
  double alone = 0;
  for (const Point& point : points) {
    if (point.method == "alone") alone = Point::mean(point.images_per_second);
    const std::string name = point.topology == "-" ? point.method : point.method + " on " + point.topology;
    auto line = std::find_if(result.series.begin(), result.series.end(),
                             [&](const Series& series) { return series.name == name; });
    if (line == result.series.end())
      line = result.series.insert(line, {name, {}, {}, point.method == "alone"});
    line->x.push_back(point.workers);
    line->y.push_back(value(point, alone));
  }
  return result;
}

void write_page(const std::vector<Point>& points, const ScalingBenchOptions& options) {
  Page page("Throughput against the number of workers",
            fmt::format("{} on synthetic images, batch {} per worker, {}", options.work,
                        training_work(options.work).batch, machine_text()));
  page.section("Images per second")
      .paragraph("All workers together. Where there are more workers than cores, they share them.")
      .chart(chart(points, "Images per second", "images/s",
                   [](const Point& point, double) { return Point::mean(point.images_per_second); }));
  page.section("Beside no communication")
      .paragraph("The same steps, every worker for itself, are 100 %.")
      .chart(chart(points, "Share of the speed without communication", "%",
                   [](const Point& point, double alone) {
                     return 100 * Point::mean(point.images_per_second) / alone;
                   }));
  page.section("Waiting").chart(
      chart(points, "Share of the time spent waiting for others", "%",
            [](const Point& point, double) { return 100 * Point::mean(point.waiting); }));
  page.section("Figures").table(table_of(points, options));
  write_file(options.html, page.html({command_line(), STARLING_VERSION, today()}));
}

void print_json(const std::vector<Point>& points) {
  JsonWriter json(std::cout);
  json.begin_array();
  for (const Point& point : points)
    json.begin_object(JsonWriter::Layout::one_line)
        .member("method", point.method)
        .member("topology", point.topology)
        .member("n", point.workers)
        .member("images_per_second", point.images_per_second)
        .member("waiting", point.waiting)
        .end_object();
  json.end_array();
  std::cout << '\n';
}

void run(const ScalingBenchOptions& options) {
  if (!options.html.empty()) check_writable(options.html);
  Progress progress;
  std::vector<Point> all;
  for (const int workers : options.workers) {
    const auto points = measure(options, workers, progress);
    all.insert(all.end(), points.begin(), points.end());
  }
  progress.clear();
  if (options.json)
    print_json(all);
  else
    std::cout << table_of(all, options).text(color_wanted());
  if (options.html.empty()) return;
  write_page(all, options);
  if (!options.json) std::cout << "Open " << options.html << " in a browser.\n";
}

}  // namespace

void add_bench_scaling(CLI::App& bench) {
  auto options = std::make_shared<ScalingBenchOptions>();
  CLI::App* command =
      bench.add_subcommand("scaling", "Images per second: methods x topologies x numbers of workers");
  command->add_option("--model", options->work, "lenet, resnet20 or mlp")
      ->check(CLI::IsMember({"lenet", "resnet20", "mlp"}))
      ->capture_default_str();
  command
      ->add_option("--methods", options->methods,
                   "methods, separated by ';'; METHOD@TOPOLOGY for one that needs its own topology")
      ->type_name("METHOD")
      ->delimiter(';')
      ->default_str(join_words(options->methods, ";"));
  command
      ->add_option("--topologies", options->topologies,
                   "topologies, separated by ';', for methods that use one")
      ->type_name("TOPOLOGY")
      ->delimiter(';')
      ->default_str(join_words(options->topologies, ";"));
  command->add_option("--workers", options->workers, "numbers of workers")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "interleaved rounds")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "seconds per measurement")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("--html", options->html, "write the HTML report to FILE")->type_name("FILE");
  command->footer(
      "Example:\n  starling bench scaling --model mlp --methods 'dsgd-awc;local-sgd(tau=8)' --workers 2,4");
  command->callback([options] { run(*options); });
}

}  // namespace starling::bench
