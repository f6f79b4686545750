#include "tool/worker_errors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <iostream>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "starling/base/environment.h"
#include "starling/base/error.h"

namespace starling::tool {
namespace {

struct WorkerError {
  std::string text;
  bool consequence = false;
  std::vector<std::string> ranks = {};
};

std::string content(int file) {
  std::string all;
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = pread(file, buffer.data(), buffer.size(), static_cast<off_t>(all.size()))) > 0)
    all.append(buffer.data(), static_cast<std::size_t>(got));
  return all;
}

// A record is "c3 text" or "-3 text" and a zero byte: the error of rank 3, which is a consequence (c) or a
// cause (-).
std::vector<WorkerError> parse(const std::string& all) {
  std::vector<WorkerError> words;
  for (std::size_t begin = 0, end; (end = all.find('\0', begin)) != std::string::npos; begin = end + 1) {
    const std::string record = all.substr(begin, end - begin);
    const std::size_t space = record.find(' ');
    const std::string text = record.substr(space + 1);
    auto found =
        std::find_if(words.begin(), words.end(), [&](const WorkerError& one) { return one.text == text; });
    if (found == words.end()) found = words.insert(found, {text, record[0] == 'c'});
    found->ranks.push_back(record.substr(1, space - 1));
  }
  return words;
}

}  // namespace

// A file, not a pipe, so that no process has to read while workers run. Records are appended, so that they
// stay whole.
WorkerErrors::WorkerErrors() : file_(memfd_create("starling-worker-errors", 0)) {
  if (!file_ || fcntl(file_.get(), F_SETFL, O_APPEND) != 0)
    throw Error(fmt::format("cannot make a file in memory: {}", std::strerror(errno)));
}

std::string WorkerErrors::variable() const {
  return environment::kWorkerErrors.assignment(std::to_string(file_.get()));
}

void WorkerErrors::print() const {
  std::vector<WorkerError> all = parse(content(file_.get()));
  const auto consequences =
      std::stable_partition(all.begin(), all.end(), [](const WorkerError& one) { return !one.consequence; });
  const auto causes = static_cast<std::size_t>(consequences - all.begin());
  all.resize(std::min(all.size(), std::max<std::size_t>(1, causes)));
  for (const WorkerError& one : all) {
    const bool named = causes < 2 || one.text.starts_with("rank ");
    std::cerr << fmt::format("starling: {}{}\n", named ? "" : fmt::format("rank {}: ", join_words(one.ranks)),
                             one.text);
  }
}

bool report_worker_error(Rank rank, const std::string& text, bool consequence) {
  const char* file = environment::kWorkerErrors.value();
  if (file == nullptr) return false;
  const std::string record = fmt::format("{}{} {}", consequence ? 'c' : '-', rank, text) + '\0';
  return write(std::atoi(file), record.data(), record.size()) == static_cast<ssize_t>(record.size());
}

}  // namespace starling::tool
