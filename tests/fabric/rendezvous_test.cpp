#include "starling/fabric/local/rendezvous.h"

#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "starling/base/error.h"
#include "starling/fabric/local/handshake.h"
#include "starling/fabric/local/local.h"

// Tests authentication in a rendezvous, and detection of deaths across PID namespaces.

namespace starling::fabric {
namespace {

using testing::HasSubstr;

constexpr uid_t kNobody = 65534;

std::string fresh_job() {
  static int count = 0;
  return fmt::format("rendezvous-test-{}-{}", getpid(), count++);
}

LocalOptions quick(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  LocalOptions options;
  options.join_timeout = timeout;
  return options;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A child process that runs `body` and exits with its result.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : process_(fork()) {
    if (process_ != 0) return;
    alarm(60);
    int status = 99;
    try {
      status = body();
    } catch (const std::exception& error) {
      fmt::print(stderr, "child: {}\n", error.what());
    }
    _exit(status);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { wait(); }

  int wait() {
    if (process_ > 0) waitpid(process_, &status_, 0);
    process_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }

 private:
  pid_t process_;
  int status_ = 0;
};

/// A pipe through which one side signals that it is ready.
class Signal {
 public:
  Signal() {
    if (pipe(ends_) != 0) throw Error("pipe");
  }
  ~Signal() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void give() const {
    if (write(ends_[1], "!", 1) != 1) throw Error("write");
  }
  void await() const {
    char byte = 0;
    if (read(ends_[0], &byte, 1) != 1) throw Error("the signal was not given");
  }

 private:
  int ends_[2];
};

Descriptor bound(const std::string& name) {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(made.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(made.get(), 4) != 0)
    throw Error("cannot bind");
  return made;
}

Descriptor connected(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!eventually([&] { return connect(made.get(), reinterpret_cast<sockaddr*>(&address), length) == 0; }))
    throw Error("cannot connect");
  return made;
}

// Receives a packet and answers with `answer`; true if it carried descriptors.
bool got_descriptors(int door, const void* answer, std::size_t bytes) {
  pollfd entry{door, POLLIN, 0};
  if (poll(&entry, 1, 5000) <= 0) return false;
  const Descriptor guest(accept4(door, nullptr, nullptr, SOCK_CLOEXEC));
  bool any = false;
  for (int packets = 0; packets < 3; ++packets) {
    char buffer[256];
    alignas(cmsghdr) char control[256];
    iovec part{buffer, sizeof(buffer)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(guest.get(), &message, 0) <= 0) break;
    any = any || CMSG_FIRSTHDR(&message) != nullptr;
    if (packets == 0 && bytes > 0 && send(guest.get(), answer, bytes, MSG_NOSIGNAL) < 0) break;
  }
  return any;
}

TEST(RendezvousTest, ASocketHeldByAnotherUserReceivesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string job = fresh_job();
  const std::string name = local::rendezvous_name(job);
  const Signal ready;
  Child squatter([&] {
    if (setresuid(kNobody, kNobody, kNobody) != 0) return 2;
    const Descriptor door = bound(name);
    ready.give();
    return got_descriptors(door.get(), nullptr, 0) ? 1 : 0;
  });
  ready.await();
  const std::string of_guest = error_of([&] { join_local(job, 1, 2, quick()); });
  EXPECT_THAT(of_guest, HasSubstr("of user 65534, not by user 0: nothing was sent there"));
  EXPECT_THAT(of_guest, HasSubstr("STARLING_JOB"));
  EXPECT_EQ(squatter.wait(), 0) << "descriptors went to another user";
}

TEST(RendezvousTest, RankZeroNamesTheUserThatHoldsItsSocketName) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string job = fresh_job();
  const std::string name = local::rendezvous_name(job);
  const Signal ready;
  const Signal done;
  Child squatter([&] {
    if (setresuid(kNobody, kNobody, kNobody) != 0) return 2;
    const Descriptor door = bound(name);
    ready.give();
    done.await();
    return 0;
  });
  ready.await();
  EXPECT_THAT(error_of([&] { join_local(job, 0, 2, quick()); }), HasSubstr("of user 65534, not by user 0"));
  done.give();
}

TEST(RendezvousTest, RejectsAProcessOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string job = fresh_job();
  const std::string name = local::rendezvous_name(job);
  Child stranger([&] {
    if (setresuid(kNobody, kNobody, kNobody) != 0) return 2;
    const Descriptor socket = connected(name);
    const local::Hello hello{local::kRendezvousVersion, 1, 2, {}};
    static_cast<void>(send(socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL));
    char byte = 0;
    return recv(socket.get(), &byte, 1, 0) > 0 ? 1 : 0;
  });
  const std::string text = error_of([&] { join_local(job, 0, 2, quick(std::chrono::milliseconds(500))); });
  EXPECT_THAT(text, HasSubstr("did not join"));
  EXPECT_THAT(text, HasSubstr("(1 processes of other users"));
  EXPECT_EQ(stranger.wait(), 0) << "a stranger was answered";
}

TEST(RendezvousTest, AProcessThatDoesNotKnowTheJobReceivesNothing) {
  const std::string job = fresh_job();
  const Signal ready;
  Child squatter([&] {
    const Descriptor door = bound(local::rendezvous_name(job));
    ready.give();
    local::Challenge wrong;  // the socket's name does not reveal the job
    wrong.proof.fill(7);
    return got_descriptors(door.get(), &wrong, sizeof(wrong)) ? 1 : 0;
  });
  ready.await();
  EXPECT_THAT(error_of([&] { join_local(job, 1, 2, quick()); }), HasSubstr("nothing was sent to it"));
  EXPECT_EQ(squatter.wait(), 0) << "descriptors were sent to a process that does not know the job";
}

TEST(RendezvousTest, MalformedPacketsSilenceAndWrongProofsDoNotDisturbTheOthers) {
  const std::string job = fresh_job();
  const std::string name = local::rendezvous_name(job);
  Child rank_one([&] {
    const Descriptor silent = connected(name);
    const Descriptor garbage = connected(name);
    static_cast<void>(send(garbage.get(), "garbage", 7, MSG_NOSIGNAL));
    const Descriptor forger = connected(name);
    const local::Hello hello{local::kRendezvousVersion, 1, 2, local::random_nonce()};
    local::Challenge challenge;
    if (send(forger.get(), &hello, sizeof(hello), MSG_NOSIGNAL) < 0) return 2;
    if (recv(forger.get(), &challenge, sizeof(challenge), 0) != sizeof(challenge)) return 3;
    // Sends the challenge's own proof back, with descriptors.
    const local::Proof proof{challenge.proof};
    const Descriptor null(dup(0));
    local::send_packet(forger.get(), &proof, sizeof(proof),
                       local::RendezvousClock::now() + std::chrono::seconds(5), {&null, &null});
    char byte = 0;
    if (recv(forger.get(), &byte, 1, 0) > 0) return 4;
    const auto fabric = join_local(job, 1, 2, quick());
    fabric->post(fabric->reserve(3), {}, 0);
    return 0;
  });
  const auto fabric = join_local(job, 0, 2, quick());
  const Rank source = 1;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::optional<Arrival> arrival;
  while (!(arrival = fabric->poll(1)) && std::chrono::steady_clock::now() < deadline)
    fabric->sleep(fabric->wake_count(), {&source, 1}, deadline);
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->bytes().size(), 3U);
  EXPECT_EQ(rank_one.wait(), 0);
}

TEST(RendezvousTest, DetectsADeathInAnotherPidNamespace) {
  const std::string job = fresh_job();
  const Signal joined;
  const Signal kill_it;
  Child outside([&] {
    if (unshare(CLONE_NEWPID) != 0) return 3;
    Signal ready;
    const pid_t inside = fork();
    if (inside == 0) {
      alarm(60);
      const auto fabric = join_local(job, 1, 2, quick());
      if (!fabric->alive(0)) _exit(5);  // the same PID is another process here
      ready.give();
      for (;;) pause();
    }
    ready.await();
    joined.give();
    kill_it.await();
    kill(inside, SIGKILL);
    int status = 0;
    waitpid(inside, &status, 0);
    return WIFSIGNALED(status) ? 0 : 4;
  });
  std::shared_ptr<Fabric> fabric;
  const std::string problem =
      error_of([&] { fabric = join_local(job, 0, 2, quick(std::chrono::seconds(5))); });
  if (!fabric && outside.wait() == 3) GTEST_SKIP() << "no new PID namespaces for this user";
  ASSERT_TRUE(fabric) << problem;
  joined.await();
  EXPECT_TRUE(fabric->alive(1));
  kill_it.give();
  EXPECT_EQ(outside.wait(), 0);
  EXPECT_FALSE(fabric->alive(1));
}

// Runs `body` in a child with this limit and returns its output.
std::string with_limit(__rlimit_resource_t resource, rlim_t most, const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw Error("pipe");
  Child child([&] {
    const rlimit limit{most, most};
    if (setrlimit(resource, &limit) != 0) return 2;
    const std::string text = error_of(body);
    return write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 3;
  });
  close(ends[1]);
  std::string text;
  char buffer[1024];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  EXPECT_EQ(child.wait(), 0) << "the limit killed it";
  return text;
}

TEST(LimitsTest, ErrorsNameTheLimitItsValueAndTheNeededValue) {
  const std::string file = with_limit(RLIMIT_FSIZE, 1 << 20, [] { local_threads(2); });
  EXPECT_THAT(file, HasSubstr("RLIMIT_FSIZE, ulimit -f) is 1048576 bytes"));
  EXPECT_THAT(file, HasSubstr("needs 68719476736"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers need terabytes
  const std::string space = with_limit(RLIMIT_AS, rlim_t{3} << 30, [] { local_threads(2); });
  EXPECT_THAT(space, HasSubstr("RLIMIT_AS, ulimit -v) is 3221225472 bytes, and 2 ranks on one host need "
                               "137438953472"));
#endif
}

TEST(LimitsTest, BothSidesReportTooFewOpenFiles) {
  const std::string job = fresh_job();
  constexpr Rank kRanks = 40;
  std::vector<std::unique_ptr<Child>> others;
  for (Rank rank = 2; rank < kRanks; ++rank)
    others.push_back(std::make_unique<Child>([&, rank] {
      error_of([&] { join_local(job, rank, kRanks, quick(std::chrono::seconds(10))); });
      return 0;
    }));
  others.push_back(std::make_unique<Child>([&] {
    error_of([&] { join_local(job, 0, kRanks, quick(std::chrono::seconds(10))); });
    return 0;
  }));
  const std::string guest = with_limit(RLIMIT_NOFILE, 40, [&] { join_local(job, 1, kRanks, quick()); });
  EXPECT_THAT(guest, HasSubstr("RLIMIT_NOFILE, ulimit -n) is 40, and a rendezvous of 40 ranks needs 121"));
  for (const auto& other : others) other->wait();

  const std::string next = fresh_job();
  others.clear();
  for (Rank rank = 1; rank < kRanks; ++rank)
    others.push_back(std::make_unique<Child>([&, rank] {
      error_of([&] { join_local(next, rank, kRanks, quick(std::chrono::seconds(3))); });
      return 0;
    }));
  const std::string host = with_limit(RLIMIT_NOFILE, 40, [&] { join_local(next, 0, kRanks, quick()); });
  EXPECT_THAT(host, HasSubstr("RLIMIT_NOFILE, ulimit -n) is 40"));
  for (const auto& other : others) other->wait();
}

}  // namespace
}  // namespace starling::fabric
