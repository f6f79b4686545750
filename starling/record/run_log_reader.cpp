#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/record/run_log.h"

namespace starling::record {
namespace {

using Json = nlohmann::ordered_json;  // settings keep their order

std::string dumped(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : dumped(value);
}

/// One line of a log, with its position for error messages.
class Line {
 public:
  Line(const std::string& path, std::size_t number, std::string_view text)
      : path_(path), number_(number), json_(Json::parse(text, nullptr, /*allow_exceptions=*/false)) {}

  bool is_object() const { return json_.is_object(); }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(fmt::format("{}:{}: {}", path_, number_, why));
  }

  void read(const char* key, std::string& to) const { to = as<std::string>(key, "a text"); }
  void read(const char* key, int& to) const { to = whole<int>(key, 0, std::numeric_limits<int>::max()); }
  void read(const char* key, Step& to) const { to = whole<Step>(key, 0, std::numeric_limits<Step>::max()); }
  void read(const char* key, std::uint64_t& to) const {
    to = whole<std::uint64_t>(key, 0, std::numeric_limits<std::uint64_t>::max());
  }
  void read(const char* key, double& to) const {
    to = at(key).is_null() ? std::numeric_limits<double>::quiet_NaN() : as<double>(key, "a number");
  }
  void read(const char* key, std::vector<RunSetting>& to) const {
    const Json& settings = at(key);
    if (!settings.is_object()) wrong(key, "an object of settings");
    for (const auto& [name, value] : settings.items()) to.push_back({name, text_of(value)});
  }
  /// Leaves `to` unchanged if the key is missing.
  template <typename T>
  void read_optional(const char* key, T& to) const {
    if (json_.contains(key)) read(key, to);
  }
  void read_optional(const char* key, std::optional<double>& to) const {
    if (json_.contains(key)) read(key, to.emplace());
  }

  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail(fmt::format("the key \"{}\" is missing", key));
    return *found;
  }

  [[noreturn]] void wrong(const char* key, const char* wanted) const {
    fail(fmt::format("\"{}\" should be {}, not {}", key, wanted, dumped(at(key))));
  }

 private:
  template <typename T>
  T as(const char* key, const char* wanted) const {
    const Json& value = at(key);
    if (std::is_same_v<T, std::string> ? !value.is_string() : !value.is_number()) wrong(key, wanted);
    return value.get<T>();
  }

  template <typename T>
  T whole(const char* key, T least, T most) const {
    const Json& value = at(key);
    // Accepts counts that were written as floating-point numbers: 1.5e9 or 3.0.
    if (value.is_number_float()) {
      const double number = value.get<double>();
      if (number == std::floor(number) && number >= 0 && number < 9e15 && number <= static_cast<double>(most))
        return static_cast<T>(number);
    } else if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      if (number >= static_cast<std::uint64_t>(least) && number <= static_cast<std::uint64_t>(most))
        return static_cast<T>(number);
    }
    wrong(key, "a non-negative integer");
  }

  const std::string& path_;
  std::size_t number_;
  Json json_;
};

RunHeader header_of(const Line& line) {
  RunHeader header;
  line.read("starling", header.starling);
  line.read("command", header.command);
  line.read("workers", header.workers);
  line.read_optional("torch", header.torch);
  line.read_optional("date", header.date);
  line.read_optional("machine", header.machine);
  line.read_optional("device", header.device);
  line.read_optional("parameters", header.parameters);
  line.read("experiment", header.experiment);
  line.read_optional("canonical", header.canonical);
  for (RunSetting& setting : header.experiment)
    if (setting.name == "on_loss") setting.name = "on_peer_failure";  // its old name
  return header;
}

void read_report(RunLog& log, const Line& line) {
  RunReport report;
  line.read("step", report.step);
  line.read("epoch", report.epoch);
  line.read("seconds", report.seconds);
  line.read("loss", report.loss);
  line.read("learning_rate", report.learning_rate);
  line.read("images_per_second", report.images_per_second);
  line.read("consensus_distance", report.consensus_distance);
  line.read("bytes_sent", report.bytes_sent);
  line.read("computing", report.computing);
  line.read("waiting", report.waiting);
  line.read("combining", report.combining);
  line.read_optional("staleness", report.staleness);
  line.read_optional("staleness_most", report.staleness_most);
  line.read("workers", report.workers);
  line.read("taking_part", report.taking_part);
  line.read_optional("test_accuracy", report.test_accuracy);
  line.read_optional("test_loss", report.test_loss);
  line.read_optional("local_accuracy", report.local_accuracy);
  line.read_optional("local_accuracy_least", report.local_accuracy_least);
  line.read_optional("local_accuracy_most", report.local_accuracy_most);
  line.read_optional("local_mean_accuracy", report.local_mean_accuracy);
  log.reports.push_back(report);
}

void read_resume(RunLog& log, const Line& line) {
  RunResume resume;
  line.read("step", resume.step);
  line.read("command", resume.command);
  line.read_optional("date", resume.date);
  line.read_optional("reset", resume.reset);
  std::erase_if(log.reports, [&](const RunReport& report) { return report.step > resume.step; });
  std::erase_if(log.lost, [&](const PeerFailure& loss) { return loss.step > resume.step; });
  log.end.reset();
  log.resumes.push_back(resume);
}

void read_peer_failure(RunLog& log, const Line& line) {
  PeerFailure failure;
  line.read("step", failure.step);
  line.read("rank", failure.rank);
  log.lost.push_back(failure);
}

void read_end(RunLog& log, const Line& line) {
  line.read("step", log.end.emplace().step);
  line.read("seconds", log.end->seconds);
  RunDivergence diverged;
  line.read_optional("diverged_step", diverged.step);
  line.read_optional("diverged_rank", diverged.rank);
  if (diverged.step > 0) log.end->diverged = diverged;
}

void read_second_header(RunLog& log, const Line& line) {
  line.fail("a second run begins here; a file contains one run, which began in " + log.path + ":1");
}

using LineReader = std::function<void(RunLog&, const Line&)>;

const std::map<std::string, LineReader>& line_readers() {
  static const std::map<std::string, LineReader> readers = {
      {"report", read_report},
      {"resume", read_resume},
      {"worker_died", read_peer_failure},
      {"loss_of_rank", read_peer_failure},  // former name
      {"end", read_end},
      {"run", read_second_header}};
  return readers;
}

std::string contents(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(fmt::format("cannot read {}: it is a folder", path));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>(in), {});
  if (!in) throw Error(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return text;
}

}  // namespace

RunLog read_run_log(const std::string& path) {
  const std::string text = contents(path);
  RunLog log;
  log.path = path;
  std::size_t number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t newline = std::min(text.find('\n', start), text.size());
    const Line line(path, ++number, std::string_view(text).substr(start, newline - start));
    start = newline + 1;
    if (!line.is_object()) {
      log.cut_off = newline == text.size();
      if (log.cut_off && number > 1) break;
      line.fail("not a JSON object; a run's log has one per line");
    }
    std::string kind;
    line.read("kind", kind);
    if (number == 1) {
      if (kind != "run")
        line.fail("the first line of a run's log is of the kind \"run\", not \"" + kind + "\"");
      log.header = header_of(line);
    } else if (const auto reader = line_readers().find(kind); reader != line_readers().end()) {
      reader->second(log, line);
    }
  }
  if (number == 0) throw Error(path + " is empty; a run's log begins with a line of the kind \"run\"");
  return log;
}

bool mend_run_log(const std::string& path) {
  const std::string text = contents(path);
  const std::size_t whole = text.rfind('\n') + 1;  // 0 if there is none
  if (whole == text.size()) return false;
  if (Json::accept(text.substr(whole))) {  // only the newline is missing
    std::ofstream(path, std::ios::binary | std::ios::app) << '\n';
  } else {
    std::filesystem::resize_file(path, whole);
  }
  return true;
}

}  // namespace starling::record
