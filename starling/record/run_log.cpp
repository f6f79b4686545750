#include "starling/record/run_log.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/base/spec.h"

namespace starling::record {
namespace {

using Json = nlohmann::ordered_json;

// Numbers and booleans are written without quotes if they are read back as the same text.
bool is_literal(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return !parsed.is_discarded() && !parsed.is_string() &&
         parsed.dump(-1, ' ', false, Json::error_handler_t::replace) == text;
}

/// One line of a log.
class LogLine {
 public:
  explicit LogLine(const char* kind) { json_.begin_object().member("kind", kind); }

  template <typename T>
  LogLine& add(std::string_view name, const T& value) {
    json_.member(name, value);
    return *this;
  }
  LogLine& add(std::string_view name, const std::optional<double>& value) {
    if (value) json_.member(name, *value);
    return *this;
  }
  LogLine& add(std::string_view name, const std::vector<RunSetting>& settings) {
    json_.key(name).begin_object();
    for (const RunSetting& setting : settings) {
      json_.key(setting.name);
      is_literal(setting.value) ? json_.literal(setting.value) : json_.value(setting.value);
    }
    json_.end_object();
    return *this;
  }

  std::string text() {
    json_.end_object();
    return out_.str() + '\n';
  }

 private:
  std::ostringstream out_;
  JsonWriter json_{out_, JsonWriter::Layout::compact, 0};
};

}  // namespace

std::string to_line(const RunHeader& header) {
  LogLine line("run");
  line.add("starling", header.starling)
      .add("torch", header.torch)
      .add("date", header.date)
      .add("command", header.command)
      .add("machine", header.machine)
      .add("device", header.device)
      .add("workers", header.workers)
      .add("parameters", header.parameters)
      .add("experiment", header.experiment);
  if (!header.canonical.empty()) line.add("canonical", header.canonical);
  return line.text();
}

std::string to_line(const RunReport& report) {
  return LogLine("report")
      .add("step", report.step)
      .add("epoch", report.epoch)
      .add("seconds", report.seconds)
      .add("loss", report.loss)
      .add("learning_rate", report.learning_rate)
      .add("images_per_second", report.images_per_second)
      .add("consensus_distance", report.consensus_distance)
      .add("bytes_sent", report.bytes_sent)
      .add("computing", report.computing)
      .add("waiting", report.waiting)
      .add("combining", report.combining)
      .add("staleness", report.staleness)
      .add("staleness_most", report.staleness_most)
      .add("workers", report.workers)
      .add("taking_part", report.taking_part)
      .add("test_accuracy", report.test_accuracy)
      .add("test_loss", report.test_loss)
      .add("local_accuracy", report.local_accuracy)
      .add("local_accuracy_least", report.local_accuracy_least)
      .add("local_accuracy_most", report.local_accuracy_most)
      .add("local_mean_accuracy", report.local_mean_accuracy)
      .text();
}

std::string to_line(const RunResume& resume) {
  LogLine line("resume");
  line.add("step", resume.step).add("command", resume.command).add("date", resume.date);
  if (!resume.reset.empty()) line.add("reset", resume.reset);
  return line.text();
}

std::string to_line(const PeerFailure& loss) {
  return LogLine("worker_died").add("step", loss.step).add("rank", loss.rank).text();
}

std::string to_line(const RunNotSaved& missing) {
  return LogLine("not_saved").add("step", missing.step).add("rank", missing.rank).text();
}

std::string to_line(const RunEnd& end) {
  LogLine line("end");
  line.add("step", end.step).add("seconds", end.seconds);
  if (end.diverged) line.add("diverged_step", end.diverged->step).add("diverged_rank", end.diverged->rank);
  return line.text();
}

std::string RunDivergence::text() const {
  return "rank " + std::to_string(rank) + "'s loss was not a finite number in step " + std::to_string(step);
}

namespace {

std::optional<std::string> value_in(const std::vector<RunSetting>& settings, std::string_view name) {
  const auto found = std::ranges::find(settings, name, &RunSetting::name);
  return found == settings.end() ? std::nullopt : std::optional(found->value);
}

// A parsed optimizer spec, and the index of its learning rate argument.
struct Optimizer {
  Spec spec;
  std::optional<std::size_t> rate = {};
};

std::optional<Optimizer> read_optimizer(const std::string& text) {
  Optimizer optimizer;
  try {
    optimizer.spec = parse_spec(text);
  } catch (const InvalidArgument&) {
    return std::nullopt;  // a custom optimizer with its own syntax
  }
  const auto& arguments = optimizer.spec.arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].key == "lr") optimizer.rate = i;
  // lr is the first parameter of every optimizer.
  if (!optimizer.rate && !arguments.empty() && arguments.front().key.empty()) optimizer.rate = 0;
  return optimizer;
}

std::optional<double> rate_of(const Optimizer& optimizer) {
  if (!optimizer.rate) return std::nullopt;
  const std::string& text = optimizer.spec.arguments[*optimizer.rate].value.word;
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' ? std::optional(rate) : std::nullopt;
}

}  // namespace

std::string RunHeader::setting(std::string_view name) const {
  return value_in(experiment, name).value_or("");
}

std::string RunHeader::canonical_setting(std::string_view name) const {
  return value_in(canonical, name).value_or(setting(name));
}

std::optional<double> RunHeader::learning_rate() const {
  const auto optimizer = read_optimizer(canonical_setting("optimizer"));
  return optimizer ? rate_of(*optimizer) : std::nullopt;
}

std::string without_learning_rate(const std::string& optimizer) {
  auto read = read_optimizer(optimizer);
  if (!read) return optimizer;
  auto& arguments = read->spec.arguments;
  if (rate_of(*read)) arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(*read->rate));
  return read->spec.to_string();
}

const RunReport* RunLog::last_evaluation() const {
  const auto found = std::find_if(reports.rbegin(), reports.rend(),
                                  [](const RunReport& report) { return report.test_accuracy.has_value(); });
  return found == reports.rend() ? nullptr : &*found;
}

}  // namespace starling::record
