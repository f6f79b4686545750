#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/served_store.h"
#include "starling/fabric/network/store/supervisor.h"
#include "starling/launch/processes.h"

// A store whose process dies, and the one that goes on in its place.

namespace starling::network {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kToken = "a token for tests";

/// A supervisor in a process of its own.
class Supervised {
 public:
  Supervised() {
    StoreSupervisor supervisor("127.0.0.1", kToken);
    where_ = supervisor.where().text();
    int leash[2];
    int said[2];
    if (pipe(leash) != 0 || pipe(said) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      alarm(60);
      close(leash[1]);
      const auto say = [&](const std::string& text) {
        static_cast<void>(!write(said[1], (text + "\n").data(), text.size() + 1));
      };
      try {
        supervisor.serve(leash[0], say);
      } catch (const std::exception& error) {
        say(error.what());
        _exit(1);
      }
      _exit(0);
    }
    close(leash[0]);
    close(said[1]);
    leash_ = leash[1];
    said_ = said[0];
  }
  ~Supervised() {
    if (leash_ >= 0) end();
    close(said_);
  }
  Supervised(const Supervised&) = delete;
  Supervised& operator=(const Supervised&) = delete;

  const std::string& where() const { return where_; }
  StoreClient client() const { return {where_, kToken, kLong}; }

  /// The process that serves.
  pid_t server() const {
    for (;; std::this_thread::sleep_for(milliseconds(1)))
      if (const auto children = launch::descendants(pid_); !children.empty()) return children.front();
  }
  void kill_server() const {
    const pid_t dead = server();
    kill(dead, SIGKILL);
    while (server() == dead) std::this_thread::sleep_for(milliseconds(1));
  }
  void kill_supervisor() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  void order(const std::string& line) const {
    ASSERT_EQ(write(leash_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  std::string next_words() const {
    std::string line;
    for (char letter = 0; read(said_, &letter, 1) == 1 && letter != '\n';) line += letter;
    return line;
  }
  /// Lets go; the supervisor's exit status.
  int end() {
    close(std::exchange(leash_, -1));
    int status = 0;
    if (pid_ > 0) waitpid(pid_, &status, 0);
    return status;
  }

 private:
  std::string where_;
  pid_t pid_ = -1;
  int leash_ = -1;
  int said_ = -1;
};

TEST(StoreJournalTest, TellsAllChangesInOrder) {
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

TEST(StoreRestartTest, AnotherProcessGoesOnWithAllEntries) {
  Supervised store;
  StoreClient client = store.client();
  client.set("gone", "x");
  client.set("word", "value");
  client.remove("gone");
  for (int i = 1; i < 100; ++i) client.add("n", 1);
  EXPECT_EQ(client.compare_set("agreed", "", "first"), "first");
  store.kill_server();
  EXPECT_THAT(store.next_words(), AllOf(HasSubstr("died (signal 9"), HasSubstr("goes on with its entries")));
  EXPECT_EQ(client.add("n", 1), 100);
  EXPECT_EQ(client.compare_set("agreed", "", "second"), "first");
  EXPECT_EQ(client.get("word", kLong), "value");
  EXPECT_FALSE(client.check({"gone"}));
  EXPECT_EQ(client.count(), 3);
  store.kill_server();
  EXPECT_EQ(client.add("n", 1), 101);
  EXPECT_EQ(store.end(), 0);
}

TEST(StoreRestartTest, AWaitOutlivesTheProcess) {
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

// The listening socket is the supervisor's and the server's: only when both are gone is the store.
TEST(StoreRestartTest, TheEndIsToldOnlyWhenNobodyGoesOn) {
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

TEST(StoreRestartTest, AWatchEndsWhenItIsTold) {
  const ServedStore store;
  const StoreClient client = store.client();
  int end[2];
  ASSERT_EQ(pipe(end), 0);
  close(end[1]);
  EXPECT_EQ(client.wait_for_end(end[0]), "");
  close(end[0]);
}

TEST(StoreRestartTest, WhoHoldsTheLeashSetsKeys) {
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
}  // namespace starling::network
