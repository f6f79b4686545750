#include "fabric/harness.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "starling/fabric/faulty/faulty.h"
#include "starling/fabric/local/local.h"

namespace starling {
namespace {

constexpr std::chrono::seconds kLimit{60};  // a rank that runs longer hangs

RankEnd run_body(const std::shared_ptr<Fabric>& fabric, const RankBody& body) {
  try {
    body(fabric);
    return {true, 0, ""};
  } catch (const std::exception& error) {
    return {false, 0, error.what()};
  }
}

// What a fabric is wrapped in before a rank gets it.
using Wrap = std::function<std::shared_ptr<Fabric>(std::shared_ptr<Fabric>)>;

std::vector<RankEnd> on_threads(Rank size, const RankBody& body, const Wrap& wrap) {
  auto fabrics = local_threads(size);
  for (auto& fabric : fabrics) fabric = wrap(std::move(fabric));
  std::vector<RankEnd> ends(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ends.size(); ++r)
    threads.emplace_back([&, r] {
      ends[r] = run_body(fabrics[r], body);
      fabrics[r].reset();  // leaves, as a process does at its end
    });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// Forks the ranks; what they throw comes back through pipes.
std::vector<RankEnd> on_processes(Rank size, const RankBody& body, const Wrap& wrap) {
  static std::atomic<int> jobs{0};
  const std::string job = fmt::format("test-{}-{}", getpid(), jobs++);
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  for (Rank r = 0; r < size; ++r) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      alarm(static_cast<unsigned>(kLimit.count()));
      RankEnd end;
      try {
        const auto fabric = wrap(join_local(job, r, size));
        end = run_body(fabric, body);
      } catch (const std::exception& error) {
        end.message = error.what();
      }
      const ssize_t written = write(ends[1], end.message.data(), end.message.size());
      _exit(end.ok && written >= 0 ? 0 : 1);
    }
    close(ends[1]);
    pids.push_back(pid);
    pipes.push_back(ends[0]);
  }
  std::vector<RankEnd> results;
  for (std::size_t r = 0; r < pids.size(); ++r) {
    RankEnd end;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(pipes[r], buffer, sizeof(buffer))) > 0;)
      end.message.append(buffer, static_cast<std::size_t>(n));
    close(pipes[r]);
    int status = 0;
    waitpid(pids[r], &status, 0);
    end.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    results.push_back(std::move(end));
  }
  return results;
}

}  // namespace

const std::vector<Launcher>& launchers() {
  const Wrap plain = [](std::shared_ptr<Fabric> fabric) { return fabric; };
  const Wrap late = [](std::shared_ptr<Fabric> fabric) {
    Faults faults;
    faults.seed = 5;
    faults.delay = 0.1;
    faults.longest_delay = std::chrono::microseconds(500);
    return make_faulty(std::move(fabric), faults);
  };
  const auto start = [](const auto& how, const Wrap& wrap) {
    return [how, wrap](Rank size, const RankBody& body) { return how(size, body, wrap); };
  };
  static const std::vector<Launcher> all = {{"local_threads", false, start(on_threads, plain)},
                                            {"local_processes", true, start(on_processes, plain)},
                                            {"late_threads", false, start(on_threads, late)},
                                            {"late_processes", true, start(on_processes, late)}};
  return all;
}

std::vector<Launch> launches(const std::vector<Rank>& sizes, bool only_processes) {
  std::vector<Launch> all;
  for (const Launcher& launcher : launchers())
    for (const Rank size : sizes)
      if (launcher.processes || !only_processes) all.push_back({&launcher, size});
  return all;
}

std::string launch_name(const testing::TestParamInfo<Launch>& test) {
  return fmt::format("{}_{}", test.param.launcher->name, test.param.size);
}

}  // namespace starling
