#include "starling/fabric/mpi/process_watch.h"

#include <cstdint>
#include <fstream>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "starling/base/name_hash.h"
#include "starling/fabric/mpi/engine.h"

namespace starling::fabric::mpi_engine {
namespace {

// Equal for processes whose PIDs are comparable: the same boot of the same host, the same PID namespace.
std::uint64_t pid_namespace_id() {
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) != 0) return 0;
  return hash_name(text + std::to_string(space.st_ino));
}

}  // namespace

ProcessWatch::ProcessWatch(MPI_Comm comm) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  struct ProcessId {
    std::uint64_t pid_namespace;
    std::uint64_t process;
  };
  const ProcessId mine = {pid_namespace_id(), static_cast<std::uint64_t>(getpid())};
  std::vector<ProcessId> all(static_cast<std::size_t>(size));
  check(MPI_Allgather(&mine, sizeof(ProcessId), MPI_BYTE, all.data(), sizeof(ProcessId), MPI_BYTE, comm),
        "cannot exchange the process ids of the ranks");
  for (int r = 0; r < size; ++r) {
    const ProcessId& other = all[static_cast<std::size_t>(r)];
    if (r == rank || mine.pid_namespace == 0 || other.pid_namespace != mine.pid_namespace) continue;
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(other.process), 0));
    if (fd >= 0) processes_.push_back({r, fd});
  }
}

ProcessWatch::~ProcessWatch() {
  stop();
  for (const Process& process : processes_) close(process.fd);
}

void ProcessWatch::start(Ended ended) {
  if (processes_.empty()) return;
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (stop_fd_ < 0) return;
  ended_ = std::move(ended);
  thread_ = std::thread([this] { run(); });
}

void ProcessWatch::run() {
  std::vector<pollfd> waiting = {{stop_fd_, POLLIN, 0}};
  for (const Process& process : processes_) waiting.push_back({process.fd, POLLIN, 0});
  for (;;) {
    poll(waiting.data(), waiting.size(), -1);
    if (waiting[0].revents != 0) return;
    for (std::size_t i = 1; i < waiting.size(); ++i)
      if (waiting[i].fd >= 0 && waiting[i].revents != 0) {
        waiting[i].fd = -1;  // reported once
        ended_(processes_[i - 1].rank);
      }
  }
}

void ProcessWatch::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  static_cast<void>(!write(stop_fd_, &one, sizeof(one)));
  thread_.join();
  close(stop_fd_);
}

}  // namespace starling::fabric::mpi_engine
