#include "starling/fabric/network/store/supervisor.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"

namespace starling::fabric::network {
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

void StoreSupervisor::serve(int control, const std::function<void(const std::string&)>& say) {
  for (int quick = 0; quick < kMostQuickDeaths;) {
    const auto begin = StoreClock::now();
    const pid_t pid = fork();
    if (pid < 0) throw Error(fmt::format("cannot start the store's process: {}", std::strerror(errno)));
    if (pid == 0) {
      try {
        StoreServer(listener_.share(), token_, journal_.share()).serve(control);
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
          fmt::format("the rendezvous store (process {}) died ({}); restarted with the same entries, ranks "
                      "reconnect when they need it",
                      pid, ending_text(status)));
  }
  throw Error(
      "the rendezvous store died repeatedly and is not restarted: the job continues, but no process can join "
      "it "
      "any more, and it cannot recover from the failure of a rank");
}

}  // namespace starling::fabric::network
