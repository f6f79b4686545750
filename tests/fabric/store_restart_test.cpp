// Covers supervisor, journal and watch of starling/fabric/network/store.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/eventually.h"
#include "fabric/served_store.h"
#include "starling/base/os/processes.h"
#include "starling/fabric/network/store/supervisor.h"

// Tests a store whose process dies and is restarted.

namespace starling::fabric::network {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kToken = "a token for tests";

/// A supervisor in its own process.
class Supervised {
 public:
  Supervised() {
    StoreSupervisor supervisor("127.0.0.1", kToken);
    where_ = supervisor.where().text();
    int control[2];
    int said[2];
    if (pipe(control) != 0 || pipe(said) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      alarm(60);
      close(control[1]);
      const auto say = [&](const std::string& text) {
        static_cast<void>(!write(said[1], (text + "\n").data(), text.size() + 1));
      };
      try {
        supervisor.serve(control[0], say);
      } catch (const std::exception& error) {
        say(error.what());
        _exit(1);
      }
      _exit(0);
    }
    close(control[0]);
    close(said[1]);
    control_ = control[1];
    said_ = said[0];
  }
  ~Supervised() {
    if (control_ >= 0) end();
    close(said_);
  }
  Supervised(const Supervised&) = delete;
  Supervised& operator=(const Supervised&) = delete;

  const std::string& where() const { return where_; }
  StoreClient client() const { return {where_, kToken, kLong}; }

  /// The serving process.
  pid_t server() const {
    std::vector<pid_t> children;
    if (!eventually([&] { return !(children = descendants(pid_)).empty(); }))
      throw std::runtime_error("no process serves the store");
    return children.front();
  }
  void kill_server() const {
    const pid_t dead = server();
    kill(dead, SIGKILL);
    if (!eventually([&] { return server() != dead; })) throw std::runtime_error("no restart");
  }
  void kill_supervisor() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  void order(const std::string& line) const {
    ASSERT_EQ(write(control_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  std::string next_report() const {
    std::string line;
    for (char letter = 0; read(said_, &letter, 1) == 1 && letter != '\n';) line += letter;
    return line;
  }
  /// Closes the control pipe and returns the supervisor's exit status.
  int end() {
    close(std::exchange(control_, -1));
    int status = 0;
    if (pid_ > 0) waitpid(pid_, &status, 0);
    return status;
  }

 private:
  std::string where_;
  pid_t pid_ = -1;
  int control_ = -1;
  int said_ = -1;
};

TEST(StoreJournalTest, ReplaysAllChangesInOrder) {
  StoreJournal journal = StoreJournal::create();
  const std::string values[] = {"1", std::string("\0\n", 2), ""};
  journal.write("a", &values[0]);
  journal.write("b", &values[1]);
  journal.write("a", nullptr);
  journal.write("c", &values[2]);
  std::vector<std::string> changes;
  const auto note = [&](const std::string& key, const std::string* value) {
    changes.push_back(value == nullptr ? key + " removed" : key + "=" + *value);
  };
  journal.share().replay(note);
  EXPECT_THAT(changes, ElementsAre("a=1", std::string("b=\0\n", 4), "a removed", "c="));
  changes.clear();
  StoreJournal().replay(note);
  EXPECT_THAT(changes, ElementsAre());
}

TEST(StoreRestartTest, ANewProcessHasAllEntries) {
  Supervised store;
  StoreClient client = store.client();
  client.set("gone", "x");
  client.set("word", "value");
  client.remove("gone");
  for (int i = 1; i < 100; ++i) client.add("n", 1);
  EXPECT_EQ(client.compare_set("agreed", "", "first"), "first");
  store.kill_server();
  EXPECT_THAT(store.next_report(),
              AllOf(HasSubstr("died (signal 9"), HasSubstr("restarted with the same entries")));
  EXPECT_EQ(client.add("n", 1), 100);
  EXPECT_EQ(client.compare_set("agreed", "", "second"), "first");
  EXPECT_EQ(client.get("word", kLong), "value");
  EXPECT_FALSE(client.check({"gone"}));
  EXPECT_EQ(client.count(), 3);
  store.kill_server();
  EXPECT_EQ(client.add("n", 1), 101);
  EXPECT_EQ(store.end(), 0);
}

TEST(StoreRestartTest, AWaitSurvivesARestart) {
  const Supervised store;
  StoreClient client = store.client();
  std::string got;
  std::thread waiting([&] { got = client.get("later", kLong); });
  std::this_thread::sleep_for(milliseconds(20));
  store.kill_server();
  store.client().set("later", "value");
  waiting.join();
  EXPECT_EQ(got, "value");
}

// Supervisor and server share the listening socket: the store is gone only when both are.
TEST(StoreRestartTest, ReportsTheEndOnlyWithoutARestart) {
  Supervised store;
  StoreClient client = store.client();
  int end[2];
  ASSERT_EQ(pipe(end), 0);
  std::string why;
  std::thread watch([&] { why = client.wait_for_end(end[0]); });
  store.kill_server();
  EXPECT_EQ(client.add("n", 1), 1);
  const pid_t server = store.server();
  store.kill_supervisor();
  EXPECT_EQ(client.add("n", 1), 2);
  kill(server, SIGKILL);
  watch.join();
  EXPECT_THAT(why, AllOf(HasSubstr(store.where()), HasSubstr("refused")));
  EXPECT_THAT(error_of([&] { client.add("n", 1); }), HasSubstr("refused"));
  close(end[0]);
  close(end[1]);
}

TEST(StoreRestartTest, AWatchEndsOnRequest) {
  const ServedStore store;
  const StoreClient client = store.client();
  int end[2];
  ASSERT_EQ(pipe(end), 0);
  close(end[1]);
  EXPECT_EQ(client.wait_for_end(end[0]), "");
  close(end[0]);
}

TEST(StoreRestartTest, TheControlPipeSetsKeys) {
  const Supervised store;
  StoreClient client = store.client();
  store.order("exited/3=exit status 1\nexi");
  EXPECT_EQ(client.get("exited/3", kLong), "exit status 1");
  store.order("ted/4=\n=\nnonsense\n");
  EXPECT_EQ(client.get("exited/4", kLong), "");
  store.kill_server();
  EXPECT_EQ(client.get("exited/3", kLong), "exit status 1");
}

}  // namespace
}  // namespace starling::fabric::network
