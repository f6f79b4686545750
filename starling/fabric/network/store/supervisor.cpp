#include "starling/fabric/network/store/supervisor.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"

namespace starling::network {
namespace {

constexpr int kMostQuickDeaths = 5;  // one after another
constexpr std::chrono::seconds kQuick{1};

std::string ending_text(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}, {}", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

}  // namespace

StoreSupervisor::StoreSupervisor(const std::string& address, std::string token)
    : token_(std::move(token)), listener_(listen_on(address)), journal_(StoreJournal::create()) {
  if (token_.empty()) throw InvalidArgument("a store needs its job's token");
}

void StoreSupervisor::serve(int leash, const std::function<void(const std::string&)>& say) {
  for (int quick = 0; quick < kMostQuickDeaths;) {
    const auto begin = StoreClock::now();
    const pid_t pid = fork();
    if (pid < 0) throw Error(fmt::format("the store cannot be started: {}", std::strerror(errno)));
    if (pid == 0) {
      try {
        StoreServer(listener_.share(), token_, journal_.share()).serve(leash);
        _exit(0);
      } catch (const std::exception& error) {
        say(error.what());
        _exit(1);
      }
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    quick = StoreClock::now() - begin < kQuick ? quick + 1 : 0;
    if (quick < kMostQuickDeaths)
      say(
          fmt::format("the store where ranks meet (process {}) died ({}): another process goes on with its "
                      "entries; ranks connect to it again when they need it",
                      pid, ending_text(status)));
  }
  throw Error(
      "the store where ranks meet dies as often as it is started: the job goes on without it, but nobody can "
      "join any more, and ranks cannot agree after a death");
}

}  // namespace starling::network
