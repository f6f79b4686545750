#include "fabric/harness.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "fabric/mpi_ranks.h"
#include "kernel/fake_device.h"
#include "starling/fabric/cuda/cuda.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/local/local.h"
#include "starling/fabric/network/store/server.h"
#include "starling/fabric/plugin.h"

namespace starling::fabric {
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

// Creates the fabric of one rank of a job.
using Join = std::function<std::shared_ptr<Fabric>(Rank rank)>;
// Prepares one job and returns how its ranks join.
using MakeJoin = std::function<Join(Rank size)>;

std::vector<RankEnd> on_threads(Rank size, const RankBody& body, const MakeJoin& make_join) {
  const Join join = make_join(size);
  std::vector<RankEnd> ends(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ends.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        auto fabric = join(static_cast<Rank>(r));
        ends[r] = run_body(fabric, body);
      } catch (const std::exception& error) {
        ends[r] = {false, 0, error.what()};
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// Forks the ranks; they report exceptions through pipes.
std::vector<RankEnd> on_processes(Rank size, const RankBody& body, const MakeJoin& make_join) {
  const Join join = make_join(size);
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
        const auto fabric = join(r);
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

std::string new_job() {
  static std::atomic<int> jobs{0};
  return fmt::format("test-{}-{}", getpid(), jobs++);
}

Join local_rank_threads(Rank size) {
  auto fabrics = std::make_shared<std::vector<std::shared_ptr<Fabric>>>(local_threads(size));
  return [fabrics](Rank rank) { return std::move((*fabrics)[static_cast<std::size_t>(rank)]); };
}

Join local_rank_processes(Rank size) {
  return [job = new_job(), size](Rank rank) { return join_local(job, rank, size); };
}

// With STARLING_TEST_DEVICE=cuda, tests of device messages run on a GPU.
bool on_gpu() {
  static const char* const asked = std::getenv("STARLING_TEST_DEVICE");
  return asked != nullptr && std::string(asked) == "cuda";
}

// Runs in a process of its own: a process that has used CUDA cannot fork ranks that use it.
std::vector<RankEnd> on_threads_apart(Rank size, const RankBody& body, const MakeJoin& make_join) {
  int pipes[2];
  if (pipe(pipes) != 0) throw std::runtime_error("pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    close(pipes[0]);
    alarm(static_cast<unsigned>(kLimit.count()));
    std::string told;
    for (const RankEnd& end : on_threads(size, body, make_join))
      told += fmt::format("{}{}{}", end.ok ? '+' : '-', end.message, '\0');
    _exit(write(pipes[1], told.data(), told.size()) == static_cast<ssize_t>(told.size()) ? 0 : 1);
  }
  close(pipes[1]);
  std::vector<RankEnd> ends;
  std::string text;
  for (char letter = 0; read(pipes[0], &letter, 1) > 0;) {
    if (letter != '\0') {
      text += letter;
      continue;
    }
    ends.push_back({text.front() == '+', 0, text.substr(1)});
    text.clear();
  }
  close(pipes[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  ends.resize(static_cast<std::size_t>(size),
              {false, WIFSIGNALED(status) ? WTERMSIG(status) : 0, "the process of all threads has ended"});
  return ends;
}

/// Sets the device of this process for the duration of a job of threads; in a rank's own process, until its
/// end.
class UsedDevice {
 public:
  explicit UsedDevice(const kernel::FakeDeviceOptions& options) {
    if (!on_gpu() || options.inline_execution)
      kernel::set_device(std::make_shared<kernel::FakeDevice>(options));
  }
  ~UsedDevice() { kernel::set_device(nullptr); }
  UsedDevice(const UsedDevice&) = delete;
  UsedDevice& operator=(const UsedDevice&) = delete;

  void enter_thread() const { kernel::device_context() = {0, kernel::device().new_stream()}; }
};

MakeJoin device_threads(kernel::FakeDeviceOptions options) {
  return [options](Rank size) -> Join {
    auto device = std::make_shared<UsedDevice>(options);
    return [device, job = new_job(), join = local_rank_threads(size)](Rank rank) {
      device->enter_thread();
      return with_device_messages(join(rank), job);
    };
  };
}

MakeJoin device_processes(kernel::FakeDeviceOptions options) {
  return [options](Rank size) -> Join {
    return [options, job = new_job(), join = local_rank_processes(size)](Rank rank) mutable {
      if (options.seed != 0) options.seed += static_cast<std::uint64_t>(rank);
      static const UsedDevice device(options);
      device.enter_thread();
      return with_device_messages(join(rank), job);
    };
  };
}

MakeJoin late(const MakeJoin& make_join) {
  return [make_join](Rank size) -> Join {
    return [join = make_join(size)](Rank rank) {
      Faults faults;
      faults.seed = 5;
      faults.delay = 0.1;
      faults.longest_delay = std::chrono::microseconds(500);
      return make_faulty(join(rank), faults);
    };
  };
}

/// A process that hosts the rendezvous store of a job.
class StoreProcess {
 public:
  explicit StoreProcess(const std::string& token) {
    int told[2];
    int held[2];
    if (pipe(told) != 0 || pipe(held) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      close(held[1]);
      network::StoreServer store("127.0.0.1", token);
      const std::uint16_t port = store.where().port;
      if (write(told[1], &port, sizeof(port)) == sizeof(port)) store.serve(held[0]);
      _exit(0);
    }
    close(told[1]);
    close(held[0]);
    held_ = held[1];
    if (read(told[0], &port_, sizeof(port_)) != sizeof(port_)) throw std::runtime_error("no store");
    close(told[0]);
  }
  ~StoreProcess() {
    close(held_);
    if (owner_ == getpid()) waitpid(pid_, nullptr, 0);
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  const pid_t owner_ = getpid();
  pid_t pid_ = -1;
  int held_ = -1;
  std::uint16_t port_ = 0;
};

MakeJoin with_plugin(const std::string& name) {
  return [name](Rank size) -> Join {
    const FabricPlugin& plugin = load_fabric(name);
    const std::string job = new_job();
    auto store = std::make_shared<StoreProcess>(job);
    return [&plugin, store, size, job](Rank rank) {
      return plugin.join({rank, size, job, store->address(), "lo", std::chrono::seconds(30)});
    };
  };
}

// Every two ranks share a simulated host.
MakeJoin on_pretended_hosts(const MakeJoin& make_join) {
  return [make_join](Rank size) -> Join {
    return [join = make_join(size), job = new_job()](Rank rank) {
      return join_hybrid(std::dynamic_pointer_cast<NetworkFabric>(join(rank)), job, std::chrono::seconds(30),
                         fmt::format("host {}", rank / 2));
    };
  };
}

// Starts newcomers, which get their ranks from the members; if `hybrid`, on a simulated host.
auto later_processes(bool hybrid) {
  return [hybrid](Rank members, Rank newcomers, const std::function<void(Rank)>& before,
                  const RankBody& body) {
    const FabricPlugin& plugin = load_fabric(std::string("c10d"));
    const std::string job = new_job();
    const StoreProcess store(job);
    const auto join = [&](Rank number) {
      FabricRequest request{number, members, job, store.address(), "lo", std::chrono::seconds(20)};
      const WrapFabric finish =
          hybrid ? wrap_in_hybrid(job, request.timeout, fmt::format("host {}", number / 2)) : WrapFabric();
      if (number < members) return hybrid ? finish(plugin.join(request)) : plugin.join(request);
      before(number);
      return plugin.enter(request, finish);
    };
    return on_processes(members + newcomers, body, [&](Rank) -> Join { return join; });
  };
}

auto start(std::vector<RankEnd> (*how)(Rank, const RankBody&, const MakeJoin&), const MakeJoin& make_join) {
  return [how, make_join](Rank size, const RankBody& body) { return how(size, body, make_join); };
}

std::vector<Launcher> launchers_on(const std::string& prefix, const kernel::FakeDeviceOptions& options) {
  const bool apart = on_gpu() && !options.inline_execution;
  return {{prefix + "_threads", false, true,
           start(apart ? on_threads_apart : on_threads, device_threads(options))},
          {prefix + "_processes", true, true, start(on_processes, device_processes(options))}};
}

std::vector<Launch> launches_of(const std::vector<Launcher>& some, const std::vector<Rank>& sizes,
                                bool only_processes) {
  std::vector<Launch> all;
  for (const Launcher& launcher : some)
    for (const Rank size : sizes)
      if (size <= launcher.most && (launcher.processes || !only_processes)) all.push_back({&launcher, size});
  return all;
}

std::vector<Launcher> make_launchers() {
  const char* name = std::getenv("STARLING_TEST_FABRIC");
  if (name != nullptr && std::string(name) == "mpi") return mpi_launchers();
  if (name != nullptr && std::string(name) == "cuda") return device_launchers();
  if (name != nullptr && std::string(name) == "hybrid")
    return {{"hybrid_threads", false, false, start(on_threads, on_pretended_hosts(with_plugin("c10d")))},
            {"hybrid_processes", true, false, start(on_processes, on_pretended_hosts(with_plugin("c10d"))),
             1000, later_processes(true)}};
  if (name != nullptr)
    return {{fmt::format("{}_threads", name), false, false, start(on_threads, with_plugin(name))},
            {fmt::format("{}_processes", name), true, false, start(on_processes, with_plugin(name)), 1000,
             later_processes(false)}};
  return {{"local_threads", false, true, start(on_threads, local_rank_threads)},
          {"local_processes", true, true, start(on_processes, local_rank_processes)},
          {"late_threads", false, true, start(on_threads, late(local_rank_threads))},
          {"late_processes", true, true, start(on_processes, late(local_rank_processes))}};
}

// The threads of a process stop one by one, so all of them must be checked.
bool all_threads_stopped(pid_t process) {
  std::error_code gone;
  std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", process), gone);
  for (; !gone && thread != std::filesystem::directory_iterator(); thread.increment(gone)) {
    std::ifstream file(thread->path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t name_end = text.rfind(')');  // followed by a blank and the state
    if (name_end != std::string::npos && std::string_view("TtZX").find(text.at(name_end + 2)) == text.npos)
      return false;
  }
  return true;
}

}  // namespace

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = make_launchers();
  return all;
}

Stopped::Stopped(pid_t process) : process_(process) {
  kill(process_, SIGSTOP);
  if (!eventually([&] { return all_threads_stopped(process_); })) throw Error("a process does not stop");
}

Stopped::~Stopped() {
  kill(process_, SIGCONT);
}

const std::vector<Launcher>& device_launchers() {
  static const std::vector<Launcher> all = launchers_on("device", {.seed = 7});
  return all;
}

const std::vector<Launcher>& inline_device_launchers() {
  static const std::vector<Launcher> all = launchers_on("inline", {.inline_execution = true});
  return all;
}

std::vector<Launch> launches(const std::vector<Rank>& sizes, bool only_processes) {
  return launches_of(launchers(), sizes, only_processes);
}

std::vector<Launch> device_launches(const std::vector<Rank>& sizes) {
  return launches_of(device_launchers(), sizes, false);
}

std::vector<Launch> launches_with_newcomers(Rank size) {
  std::vector<Launch> all;
  for (const Launcher& launcher : launchers())
    if (launcher.run_with_newcomers) all.push_back({&launcher, size});
  return all;
}

std::string launch_name(const testing::TestParamInfo<Launch>& test) {
  return fmt::format("{}_{}", test.param.launcher->name, test.param.size);
}

}  // namespace starling::fabric
