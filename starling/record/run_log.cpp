#include "starling/record/run_log.h"

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/base/spec.h"

namespace starling::record {
namespace {

using Json = nlohmann::ordered_json;  // settings keep their order

std::string setting_text(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Writes numbers and booleans without quotes if they are read back as the same text.
Json json_of(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return !parsed.is_discarded() && !parsed.is_string() && setting_text(parsed) == text ? parsed : Json(text);
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

std::string to_line(const RunHeader& header) {
  Json experiment = Json::object();
  for (const RunSetting& setting : header.experiment) experiment[setting.name] = json_of(setting.value);
  return line_of({{"kind", "run"},
                  {"starling", header.starling},
                  {"torch", header.torch},
                  {"date", header.date},
                  {"command", header.command},
                  {"machine", header.machine},
                  {"workers", header.workers},
                  {"parameters", header.parameters},
                  {"experiment", experiment}});
}

std::string to_line(const RunReport& report) {
  Json json = {{"kind", "report"},
               {"step", report.step},
               {"epoch", report.epoch},
               {"seconds", report.seconds},
               {"loss", report.loss},
               {"learning_rate", report.learning_rate},
               {"images_per_second", report.images_per_second},
               {"consensus_distance", report.consensus_distance},
               {"bytes_sent", report.bytes_sent},
               {"computing", report.computing},
               {"waiting", report.waiting},
               {"combining", report.combining},
               {"staleness", report.staleness},
               {"staleness_most", report.staleness_most},
               {"workers", report.workers},
               {"taking_part", report.taking_part}};
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) json[key] = *value;
  };
  add("test_accuracy", report.test_accuracy);
  add("test_loss", report.test_loss);
  add("local_accuracy", report.local_accuracy);
  add("local_accuracy_least", report.local_accuracy_least);
  add("local_accuracy_most", report.local_accuracy_most);
  add("local_mean_accuracy", report.local_mean_accuracy);
  return line_of(json);
}

std::string to_line(const RunResume& resume) {
  Json json = {{"kind", "resume"}, {"step", resume.step}, {"command", resume.command}, {"date", resume.date}};
  if (!resume.reset.empty()) json["reset"] = resume.reset;
  return line_of(json);
}

std::string to_line(const PeerFailure& loss) {
  return line_of({{"kind", "loss_of_rank"}, {"step", loss.step}, {"rank", loss.rank}});
}

std::string to_line(const RunNotSaved& missing) {
  return line_of({{"kind", "not_saved"}, {"step", missing.step}, {"rank", missing.rank}});
}

std::string to_line(const RunEnd& end) {
  Json json = {{"kind", "end"}, {"step", end.step}, {"seconds", end.seconds}};
  if (end.diverged) {
    json["diverged_step"] = end.diverged->step;
    json["diverged_rank"] = end.diverged->rank;
  }
  return line_of(json);
}

std::string RunDivergence::text() const {
  return "rank " + std::to_string(rank) + "'s loss was not a finite number in step " + std::to_string(step);
}

std::string RunHeader::setting(std::string_view name) const {
  const auto found =
      std::find_if(experiment.begin(), experiment.end(), [&](const RunSetting& s) { return s.name == name; });
  return found == experiment.end() ? "" : found->value;
}

namespace {

// The optimizer as the grammar reads it, and which of its arguments is the learning rate.
struct Optimizer {
  Spec spec;
  std::optional<std::size_t> rate = {};
};

std::optional<Optimizer> optimizer_of(const RunHeader& header) {
  Optimizer optimizer;
  try {
    optimizer.spec = parse_spec(header.setting("optimizer"));
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

}  // namespace

std::optional<double> RunHeader::learning_rate() const {
  const auto optimizer = optimizer_of(*this);
  if (!optimizer || !optimizer->rate) return std::nullopt;
  const std::string& text = optimizer->spec.arguments[*optimizer->rate].value.word;
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' ? std::optional(rate) : std::nullopt;
}

std::string RunHeader::optimizer_family() const {
  auto optimizer = optimizer_of(*this);
  if (!optimizer) return setting("optimizer");
  auto& arguments = optimizer->spec.arguments;
  if (learning_rate()) arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(*optimizer->rate));
  return optimizer->spec.to_string();
}

const RunReport* RunLog::last_evaluation() const {
  const auto found = std::find_if(reports.rbegin(), reports.rend(),
                                  [](const RunReport& report) { return report.test_accuracy.has_value(); });
  return found == reports.rend() ? nullptr : &*found;
}

}  // namespace starling::record
