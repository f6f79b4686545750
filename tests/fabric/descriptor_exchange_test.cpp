#include "starling/fabric/cuda/descriptor_exchange.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/local/rendezvous.h"

namespace starling::fabric::cuda {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string exchange_job() {
  static int jobs = 0;
  return fmt::format("descriptor-exchange-{}-{}", getpid(), jobs++);
}

/// An exchange of one rank that serves /dev/null as piece 1 and /dev/zero as piece 2.
struct Exchanging {
  Exchanging(const std::string& job, Rank rank, Rank size)
      : exchange(job, rank, size,
                 {[](Rank, std::uint32_t piece) {
                    return piece == 1   ? Descriptor(dup(null_device()))
                           : piece == 2 ? Descriptor(dup(zero_device()))
                                        : Descriptor();
                  },
                  [this](Rank owner, std::uint32_t piece, Descriptor descriptor) {
                    taken.push_back({owner, piece, device_of(descriptor.get())});
                  },
                  [this](Rank, const std::string& why) { failure = why; },
                  [this](Rank owner, const LentPiece& piece, Descriptor descriptor) {
                    borrowed.push_back({owner, piece.pool, piece.piece, device_of(descriptor.get())});
                  }}) {}

  static int null_device() {
    static const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return file;
  }
  static int zero_device() {
    static const int file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    return file;
  }
  static dev_t device_of(int descriptor) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 ? status.st_rdev : 0;
  }

  struct Taken {
    Rank owner;
    std::uint32_t piece;
    dev_t device;
    bool operator==(const Taken&) const = default;
  };
  struct Borrowed {
    Rank owner;
    std::uint32_t pool;
    std::uint32_t piece;
    dev_t device;
    bool operator==(const Borrowed&) const = default;
  };
  std::vector<Taken> taken;
  std::vector<Borrowed> borrowed;
  std::string failure;
  DescriptorExchange exchange;
};

TEST(DescriptorExchangeTest, RanksAskEachOther) {
  const std::string job = exchange_job();
  Exchanging zero(job, 0, 3), one(job, 1, 3), two(job, 2, 3);
  zero.exchange.ask(1, 1);
  one.exchange.ask(0, 2);
  two.exchange.ask(0, 1);
  two.exchange.ask(0, 2);
  two.exchange.ask(1, 2);
  for (int round = 0; round < 1000 && zero.taken.size() + one.taken.size() + two.taken.size() < 5; ++round)
    for (Exchanging* rank : {&zero, &one, &two}) rank->exchange.run(1ms);
  const dev_t null = Exchanging::device_of(Exchanging::null_device());
  const dev_t full = Exchanging::device_of(Exchanging::zero_device());
  EXPECT_EQ(zero.taken, (std::vector<Exchanging::Taken>{{1, 1, null}}));
  EXPECT_EQ(one.taken, (std::vector<Exchanging::Taken>{{0, 2, full}}));
  EXPECT_EQ(two.taken.size(), 3U);
  // Later requests use the same connections.
  zero.exchange.ask(1, 2);
  for (int round = 0; round < 1000 && zero.taken.size() < 2; ++round)
    for (Exchanging* rank : {&zero, &one}) rank->exchange.run(1ms);
  EXPECT_EQ(zero.taken.back(), (Exchanging::Taken{1, 2, full}));
}

TEST(DescriptorExchangeTest, AsksALateRankAgainAndForgetsADeadOne) {
  const std::string job = exchange_job();
  Exchanging zero(job, 0, 3);
  zero.exchange.ask(1, 1);
  zero.exchange.ask(2, 1);
  for (int round = 0; round < 5; ++round) zero.exchange.run(1ms);
  zero.exchange.forget(2);
  Exchanging one(job, 1, 3);
  for (int round = 0; round < 1000 && zero.taken.empty(); ++round)
    for (Exchanging* rank : {&zero, &one}) rank->exchange.run(1ms);
  EXPECT_EQ(zero.taken.size(), 1U);
  EXPECT_EQ(zero.failure, "");
}

Descriptor connected_to(const std::string& name) {
  Descriptor socket = local::packet_socket(2);
  const local::SocketAddress address(name);
  if (connect(socket.get(), address.get(), address.length) != 0) throw Error("connect");
  return socket;
}

TEST(DescriptorExchangeTest, WhatWasLentIsThereWhenItsOwnerIsGone) {
  const std::string job = exchange_job();
  auto zero = std::make_unique<Exchanging>(job, 0, 2);
  Exchanging one(job, 1, 2);
  const Descriptor lent(dup(Exchanging::zero_device()));
  EXPECT_EQ(zero->exchange.lend(1, {1, 0, 8}, lent), local::Sent::gone);  // it has not asked for any
  one.exchange.accept_loans(0);
  for (int round = 0; round < 1000 && !zero->exchange.connected(1); ++round)
    for (Exchanging* rank : {zero.get(), &one}) rank->exchange.run(1ms);
  ASSERT_TRUE(zero->exchange.connected(1));
  for (const std::uint32_t piece : {0, 1})
    EXPECT_EQ(zero->exchange.lend(1, {3, piece, 8}, lent), local::Sent::packet);
  zero.reset();
  one.exchange.receive();
  const dev_t full = Exchanging::device_of(Exchanging::zero_device());
  EXPECT_EQ(one.borrowed, (std::vector<Exchanging::Borrowed>{{0, 3, 0, full}, {0, 3, 1, full}}));
}

// A stopped reader takes nothing; what it asked for before does not hold up others.
TEST(DescriptorExchangeTest, AReaderThatTakesNothingHasAFullQueue) {
  const std::string job = exchange_job();
  Exchanging zero(job, 0, 2), one(job, 1, 2);
  one.exchange.accept_loans(0);
  for (int round = 0; round < 1000 && !zero.exchange.connected(1); ++round)
    for (Exchanging* rank : {&zero, &one}) rank->exchange.run(1ms);
  const Descriptor lent(dup(Exchanging::null_device()));
  std::uint32_t sent = 0;
  while (sent < 100'000 && zero.exchange.lend(1, {1, sent, 8}, lent) == local::Sent::packet) ++sent;
  EXPECT_GE(sent, 100U);
  EXPECT_EQ(zero.exchange.lend(1, {1, sent, 8}, lent), local::Sent::full);
  one.exchange.receive();
  EXPECT_EQ(one.borrowed.size(), sent);
  EXPECT_EQ(zero.exchange.lend(1, {1, sent, 8}, lent), local::Sent::packet);
}

TEST(DescriptorExchangeTest, NothingIsGivenToWhoDoesNotKnowTheJob) {
  const std::string job = exchange_job();
  Exchanging zero(job, 0, 2);
  const std::string name = local::rendezvous_name("the device memory of rank 0 of " + job);
  const Descriptor stranger = connected_to(name);
  const local::Hello hello{local::kRendezvousVersion, 1, 2, local::random_nonce()};
  local::send_packet(stranger.get(), &hello, sizeof(hello), std::chrono::steady_clock::now() + 5s);
  zero.exchange.run(100ms);
  local::Challenge challenge;
  ASSERT_EQ(local::receive_packet(stranger.get(), &challenge, sizeof(challenge), 2), local::Received::packet);
  EXPECT_FALSE(local::knows("another job", hello, challenge));
  const local::Proof reflected{challenge.proof};
  local::send_packet(stranger.get(), &reflected, sizeof(reflected), std::chrono::steady_clock::now() + 5s);
  const std::uint32_t piece = 1;
  local::send_packet(stranger.get(), &piece, sizeof(piece), std::chrono::steady_clock::now() + 5s);
  for (int round = 0; round < 5; ++round) zero.exchange.run(1ms);
  Descriptor descriptor;
  EXPECT_EQ(local::receive_packet(stranger.get(), &challenge, sizeof(challenge), 2, {&descriptor}),
            local::Received::gone);
  EXPECT_FALSE(descriptor);
  // Other ranks are still served.
  Exchanging one(job, 1, 2);
  one.exchange.ask(0, 1);
  for (int round = 0; round < 1000 && one.taken.empty(); ++round)
    for (Exchanging* rank : {&zero, &one}) rank->exchange.run(1ms);
  EXPECT_EQ(one.taken.size(), 1U);
}

TEST(DescriptorExchangeTest, AnOwnerThatDoesNotKnowTheJobIsRefused) {
  const std::string job = exchange_job();
  Exchanging zero(job, 0, 2);
  Descriptor squatter = local::packet_socket(2);
  const local::SocketAddress address(local::rendezvous_name("the device memory of rank 1 of " + job));
  ASSERT_EQ(bind(squatter.get(), address.get(), address.length), 0);
  ASSERT_EQ(listen(squatter.get(), 2), 0);
  zero.exchange.ask(1, 1);
  zero.exchange.run(100ms);
  const Descriptor accepted(accept(squatter.get(), nullptr, nullptr));
  local::Challenge wrong;
  wrong.proof.fill(7);
  local::send_packet(accepted.get(), &wrong, sizeof(wrong), std::chrono::steady_clock::now() + 5s);
  zero.exchange.run(100ms);
  EXPECT_THAT(zero.failure, HasSubstr("device memory of rank 1"));
  EXPECT_THAT(zero.failure, HasSubstr("does not know the job's token"));
}

TEST(DescriptorExchangeTest, ATakenNameIsAnError) {
  const std::string job = exchange_job();
  const Exchanging zero(job, 0, 2);
  EXPECT_THAT(
      [&] { Exchanging(job, 0, 2); },
      testing::ThrowsMessage<Error>(HasSubstr("cannot open the socket over which it shares device memory")));
}

}  // namespace
}  // namespace starling::fabric::cuda
