// Covers server_authentication of starling/fabric/network/store.
#include <atomic>
#include <deque>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/eventually.h"
#include "fabric/served_store.h"
#include "starling/fabric/network/store/sockets.h"
#include "starling/fabric/plugin.h"

// Tests the store with clients that do not know its token, violate the protocol, or die.

namespace starling::fabric::network {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(StoreAuthenticationTest, RejectsAnotherToken) {
  const ServedStore store;
  for (const std::string token : {"", "a token for test", "a token for tests ", "A token for tests"})
    EXPECT_THAT(error_of([&] { StoreClient(store.where(), token, kLong); }),
                AllOf(HasSubstr(store.where()), HasSubstr("token"), HasSubstr("differs")))
        << token;
  EXPECT_EQ(store.client().add("n", 1), 1);
}

// Whatever a false store answers, the client never sends it the token.
TEST(StoreAuthenticationTest, AnImpostorLearnsNothing) {
  const auto [door, where] = listen_on("127.0.0.1");
  const std::string token = "a token for tests";
  const auto deadline = StoreClock::now() + kLong;
  for (const bool reflects : {false, true}) {
    std::string received;
    std::thread impostor([&] {
      Descriptor guest;
      while (!guest && StoreClock::now() < deadline)
        guest = Descriptor(accept4(door.get(), nullptr, nullptr, SOCK_NONBLOCK));
      send_all(guest.get(), std::string(kStoreGreeting) + std::string(kNonce, 'n'), deadline);
      received = receive_all(guest.get(), kNonce + kProof, deadline);
      send_all(guest.get(), kAccepted + (reflects ? received.substr(kNonce) : std::string(kProof, '\0')),
               deadline);
    });
    EXPECT_THAT(error_of([&] { StoreClient(where.text(), token, kLong); }),
                AllOf(HasSubstr(where.text()), HasSubstr("does not know this job's token")));
    impostor.join();
    EXPECT_THAT(received, Not(HasSubstr(token)));
  }
}

TEST(StoreAuthenticationTest, ReportsAServiceThatIsNotAStore) {
  const auto [door, where] = listen_on("127.0.0.1");
  EXPECT_THAT(error_of([&] { StoreClient(where.text(), "token", milliseconds(60)); }),
              AllOf(HasSubstr(where.text()), HasSubstr("does not answer")));
}

TEST(StoreAuthenticationTest, AProofIsValidForOneConnectionOnly) {
  const ServedStore store;
  RawConnection first(store);
  RawConnection second(store);
  const std::string nonce = random_nonce();
  const std::string proof = proof_of(store.token(), kClientRole, first.store_nonce(), nonce);
  first.send(nonce + proof);
  EXPECT_EQ(first.receive(1), std::string(1, kAccepted));
  second.send(nonce + proof);
  EXPECT_EQ(second.receive(1), std::string(1, kRefused));
}

TEST(StoreAuthenticationTest, SilentClientsBlockNobodyAndAreDropped) {
  StoreLimits limits;
  limits.authentication_timeout = milliseconds(200);
  const ServedStore store(limits);
  std::vector<RawConnection> silent;
  for (int i = 0; i < 50; ++i) silent.emplace_back(store);
  silent[0].send("a");
  StoreClient client = store.client();
  client.set("k", "v");
  for (RawConnection& one : silent) EXPECT_TRUE(one.dropped());
  EXPECT_EQ(client.get("k", kLong), "v");  // an authenticated client may be silent
}

TEST(StoreAuthenticationTest, BoundsTheNumberOfUnauthenticatedClients) {
  StoreLimits limits;
  limits.unauthenticated = 4;
  limits.authentication_timeout = kLong;
  const ServedStore store(limits);
  std::vector<RawConnection> silent;
  for (int i = 0; i < 10; ++i) silent.emplace_back(store);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(silent[i].dropped()) << i;
  EXPECT_EQ(store.client().add("n", 1), 1);
  silent[9].authenticate();
}

/// Connects as fast as possible from this address, and either disconnects at once or stays silent.
class Flood {
 public:
  Flood(const ServedStore& store, int threads, bool stays, in_addr_t from = INADDR_LOOPBACK) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this, where = store.address(), stays, from] { run(where, stays, from); });
  }
  ~Flood() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  int connections() const { return connections_; }
  bool reaches(int connections) const {
    return eventually([&] { return connections_ >= connections; });
  }

 private:
  void run(const StoreAddress& where, bool stays, in_addr_t from) {
    sockaddr_in source{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(from)}, .sin_zero = {}};
    sockaddr_in there{.sin_family = AF_INET,
                      .sin_port = htons(where.port),
                      .sin_addr = {htonl(INADDR_LOOPBACK)},
                      .sin_zero = {}};
    std::deque<Descriptor> open;
    while (!stop_) {
      Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const linger at_once{1, 0};  // otherwise the ports of this host would run out
      setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      if (bind(socket.get(), reinterpret_cast<sockaddr*>(&source), sizeof(source)) != 0 ||
          (connect(socket.get(), reinterpret_cast<sockaddr*>(&there), sizeof(there)) != 0 &&
           errno != EINPROGRESS))
        continue;
      ++connections_;
      open.push_back(std::move(socket));
      while (open.size() > (stays ? 400 : 4)) open.pop_front();
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::vector<std::thread> threads_;
};

// The flood lasts until the client has its answers. A store without priorities takes seconds for each.
TEST(StoreAuthenticationTest, AFloodDoesNotDelayAuthenticatedClients) {
  const ServedStore store;
  StoreClient client(store.where(), store.token(), milliseconds(1000));
  for (const bool stays : {false, true}) {
    const Flood flood(store, 2, stays);
    ASSERT_TRUE(flood.reaches(1000));
    const int before = flood.connections();
    EXPECT_EQ(error_of([&] {
                for (int i = 0; i < 300; ++i) client.add("n", 1);
              }),
              "");
    EXPECT_GT(flood.connections(), before);
  }
}

TEST(StoreAuthenticationTest, ANewClientAuthenticatesDuringAFlood) {
  const ServedStore store;
  for (const bool stays : {false, true}) {
    const Flood flood(store, 2, stays);
    ASSERT_TRUE(flood.reaches(1000));
    EXPECT_GE(store.client().add("n", 1), 1);
  }
}

// A full store drops a client of the host that has the most connections.
TEST(StoreAuthenticationTest, AFloodFromAnotherHostDropsNoClientOfThisHost) {
  StoreLimits limits;
  limits.unauthenticated = 8;
  limits.authentication_grace = milliseconds(1);
  limits.authentication_timeout = kLong;
  const ServedStore store(limits);
  RawConnection ours(store);
  const Flood flood(store, 1, true, INADDR_LOOPBACK + 1);
  ASSERT_TRUE(flood.reaches(500));
  StoreClient client = store.client();
  EXPECT_EQ(client.add("n", 1), 1);
  ours.authenticate();
}

TEST(StoreAuthenticationTest, DropsClientsWithAMalformedProof) {
  const ServedStore store;
  StoreClient client = store.client();
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{65}, std::size_t{1} << 20}) {
    RawConnection stranger(store);
    stranger.send(std::string(bytes, 'x'));
    while (!stranger.receive(1).empty()) {
    }
    EXPECT_TRUE(stranger.dropped()) << bytes;
    EXPECT_GE(client.add("n", 1), 1);
  }
}

// An authenticated client that violates the protocol is dropped; others are not affected.
TEST(StoreAuthenticationTest, DropsClientsWithAMalformedRequest) {
  const ServedStore store;
  StoreClient client = store.client();
  const auto request = [](StoreOperation operation, std::vector<std::string> keys,
                          std::vector<std::string> values = {}) {
    return encode(StoreRequest{operation, kLong, 0, std::move(keys), std::move(values)});
  };
  std::string unknown = request(StoreOperation::count, {});
  unknown[kLength] = 99;
  std::string shorter = request(StoreOperation::get, {"key"});
  shorter[0] = static_cast<char>(shorter[0] - 1);
  std::string longer = request(StoreOperation::count, {});
  longer[0] = static_cast<char>(longer[0] + 1);
  const std::string waits = request(StoreOperation::get, {"never"});
  const std::vector<std::string> nonsense = {
      std::string(8, '\xff'),                                        // announces 4 GB
      unknown,                                                       // no such operation
      shorter,                                                       // too short a length
      longer + "x",                                                  // bytes beyond its end
      request(StoreOperation::set, {"key"}),                         // no value
      request(StoreOperation::get, {}),                              // no key
      request(StoreOperation::get, {"a", "b"}),                      // two keys
      request(StoreOperation::set, {std::string(4097, 'k')}, {""}),  // a long key
      request(StoreOperation::set, {"k"}, {std::string((16 << 20) + 1, 'v')}),
      waits + waits,  // sent before the answer
  };
  for (std::size_t i = 0; i < nonsense.size(); ++i) {
    RawConnection connection(store);
    connection.authenticate();
    connection.send(nonsense[i]);
    EXPECT_TRUE(connection.dropped()) << i;
    EXPECT_EQ(client.add("n", 1), static_cast<std::int64_t>(i) + 1);
  }
}

TEST(StoreAuthenticationTest, DropsAWaitingClientThatSendsAnotherRequest) {
  const ServedStore store;
  RawConnection connection(store);
  connection.authenticate();
  const std::string question = encode(StoreRequest{StoreOperation::get, kLong, 0, {"never"}, {}});
  connection.send(question);
  store.client().set("other", "");  // the store, which has one thread, has read the request before this one
  connection.send(question);
  EXPECT_TRUE(connection.dropped());
  store.client().set("never", "");
}

TEST(StoreAuthenticationTest, BoundsTheMemoryOfIncompleteRequests) {
  StoreLimits limits;
  limits.memory = 1 << 20;
  const ServedStore store(limits);
  RawConnection connection(store);
  connection.authenticate();
  connection.send(encode(StoreRequest{StoreOperation::set, kLong, 0, {"k"}, {std::string(8 << 20, 'v')}})
                      .substr(0, 4 << 20));
  EXPECT_TRUE(connection.dropped());
  StoreClient client = store.client();
  client.set("k", std::string(400'000, 'v'));
}

TEST(StoreAuthenticationTest, ForgetsAClientThatDiesWhileWaiting) {
  const ServedStore store;
  StoreClient client = store.client();
  {
    RawConnection connection(store);
    connection.authenticate();
    connection.send(encode(StoreRequest{StoreOperation::get, kLong, 0, {"key"}, {}}));
  }
  RawConnection other(store);
  other.authenticate();
  other.send(encode(StoreRequest{StoreOperation::get, kLong, 0, {"key"}, {}}));
  client.set("key", "value");
  EXPECT_THAT(other.receive(kLength + 18), HasSubstr("value"));
}

/// A store in its own process.
class StoreAlone {
 public:
  StoreAlone() {
    StoreServer server("127.0.0.1", "token");
    where_ = server.where().text();
    pid_ = fork();
    if (pid_ != 0) return;
    int ends[2];
    alarm(60);
    if (pipe(ends) == 0) server.serve(ends[0]);
    _exit(1);
  }
  ~StoreAlone() {
    kill(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  StoreAlone(const StoreAlone&) = delete;
  StoreAlone& operator=(const StoreAlone&) = delete;

  void kill(int signal) const { ::kill(pid_, signal); }
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  pid_t pid_ = -1;
};

TEST(StoreAuthenticationTest, TheDeathOfAStoreEndsAllWaits) {
  const StoreAlone store;
  StoreClient client(store.where(), "token", kLong);
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(50));
    store.kill(SIGKILL);
  });
  EXPECT_THAT(error_of([&] { client.get("key", kLong); }),
              AllOf(HasSubstr(store.where()), HasSubstr("get 'key'"), HasSubstr("closed the connection")));
  EXPECT_THAT(error_of([&] { client.set("key", ""); }),
              AllOf(HasSubstr(store.where()), HasSubstr("refused")));
  killer.join();
}

TEST(StoreAuthenticationTest, AHangingStoreEndsAllWaitsByTimeout) {
  const StoreAlone store;
  StoreClient client(store.where(), "token", milliseconds(100));
  client.set("key", "");
  store.kill(SIGSTOP);
  EXPECT_THAT(error_of([&] { client.set("key", ""); }),
              AllOf(HasSubstr(store.where()), HasSubstr("does not answer")));
}

// Goes through the engine, if it is available and its suites run.
class TokenTest : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TokenTest);

TEST_P(TokenTest, RanksWithAnotherTokenCannotJoin) {
  const ServedStore store;
  const FabricPlugin& plugin = load_fabric(GetParam());
  const auto join = [&](const std::string& token) {
    plugin.join({.rank = 0, .size = 1, .job = token, .store_address = store.where(), .interface_ = "lo"});
  };
  EXPECT_EQ(error_of([&] { join(store.token()); }), "");
  EXPECT_THAT(error_of([&] { join("another"); }), AllOf(HasSubstr(store.where()), HasSubstr("token")));
}

std::vector<std::string> engines_with_a_store() {
  const char* name = std::getenv("STARLING_TEST_FABRIC");
  return name != nullptr && std::string(name) == "c10d" ? std::vector<std::string>{name}
                                                        : std::vector<std::string>{};
}
INSTANTIATE_TEST_SUITE_P(Engines, TokenTest, testing::ValuesIn(engines_with_a_store()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace starling::fabric::network
