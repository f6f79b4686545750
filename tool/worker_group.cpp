#include "tool/worker_group.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/os/child.h"
#include "starling/base/os/pipe.h"
#include "starling/launch/environment.h"

namespace starling::tool {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::vector<std::string> training_environment(int threads) {
  return {fmt::format("OMP_NUM_THREADS={}", threads), fmt::format("OPENBLAS_NUM_THREADS={}", threads),
          "MALLOC_TRIM_THRESHOLD_=4000000000", "MALLOC_MMAP_THRESHOLD_=4000000000"};
}

WorkerGroup::WorkerGroup(const std::string& name, const std::vector<std::string>& words, Rank ranks,
                         const std::vector<int>& cpus, const std::vector<std::string>& environment)
    : name_(name) {
  const auto job = launch::job_environment(launch::random_token(), ranks, cpus.size(), environment);
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto [input_end, input] = make_pipe();
    auto [output, output_end] = make_pipe();
    ChildPlan plan;
    plan.file = words.front();
    plan.arguments = words;
    plan.environment = launch::rank_environment(job, rank, ranks).entries();
    plan.cpus = cpus;
    plan.input = input_end.get();
    plan.output = output_end.get();
    plan.own_group = false;  // Ctrl-C reaches them, too
    sigemptyset(&plan.mask);
    getrlimit(RLIMIT_NOFILE, &plan.files);
    workers_.push_back({start_child(plan), std::move(input), std::move(output), {}});
  }
}

WorkerGroup::~WorkerGroup() {
  for (const Worker& worker : workers_)
    if (worker.pid > 0) kill(worker.pid, SIGKILL);
  for (const Worker& worker : workers_)
    if (worker.pid > 0) waitpid(worker.pid, nullptr, 0);
}

void WorkerGroup::tell(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t rank = 0; rank < workers_.size(); ++rank)
    if (write(workers_[rank].input.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw Error(fmt::format("{}: cannot send to rank {}: {}", name_, rank, std::strerror(errno)));
}

std::optional<std::string> WorkerGroup::line_of(Rank rank, std::chrono::seconds limit) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  const auto deadline = Clock::now() + limit;
  for (;;) {
    if (const auto end = worker.unread.find('\n'); end != std::string::npos) {
      std::string line = worker.unread.substr(0, end);
      worker.unread.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd readable{worker.output.get(), POLLIN, 0};
    if (left <= 0 || poll(&readable, 1, static_cast<int>(left)) == 0)
      throw Error(fmt::format("{}: rank {} did not answer for {} s", name_, rank, limit.count()));
    std::array<char, 4096> buffer;
    const ssize_t got = read(worker.output.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    worker.unread.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::vector<std::string> WorkerGroup::answers(std::chrono::seconds limit) {
  std::vector<std::string> lines;
  for (Rank rank = 0; rank < static_cast<Rank>(workers_.size()); ++rank) {
    auto line = line_of(rank, limit);
    if (!line) throw Error(fmt::format("{}: rank {} has ended", name_, rank));
    if (line->starts_with("cannot ")) throw Error(fmt::format("{}: {}", name_, line->substr(7)));
    lines.push_back(std::move(*line));
  }
  return lines;
}

void WorkerGroup::finish(std::chrono::seconds limit) {
  for (Worker& worker : workers_) worker.input.reset();
  const auto deadline = Clock::now() + limit;
  std::string failure;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    while (line_of(static_cast<Rank>(rank), limit)) {
    }
    Ending ending;
    while (waitpid(workers_[rank].pid, &ending.status, 0) < 0 && errno == EINTR && Clock::now() < deadline) {
    }
    workers_[rank].pid = -1;
    if (ending.failed() && failure.empty())
      failure = fmt::format("{}: rank {} ended with {}", name_, rank, ending.text());
  }
  if (!failure.empty()) throw Error(failure);
}

}  // namespace starling::tool
