#include "starling/flock/mailbox.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <span>
#include <thread>

#include "starling/base/dtype.h"
#include "starling/fabric/local/local.h"
#include "starling/flock/errors.h"

namespace starling::flock {
namespace {

using testing::HasSubstr;
using Values = std::vector<float>;

/// Mailboxes of three ranks in one process; the test decides what arrives when.
class MailboxTest : public testing::Test {
 protected:
  MailboxTest() {
    for (const auto& fabric : fabrics_) mailboxes_.push_back(std::make_unique<Mailbox>(fabric));
  }

  Mailbox& at(Rank rank) { return *mailboxes_[static_cast<std::size_t>(rank)]; }

  using ChangeHeader = std::function<void(MessageHeader& header)>;
  /// Posts the next message of this name.
  void send(Rank from, Rank to, const std::string& name, const Values& values,
            const ChangeHeader& change = {}) {
    Topic& topic = at(from).topic(name);
    const Outgoing message = at(from).fabric().reserve(values.size() * sizeof(float));
    std::ranges::copy(std::as_bytes(std::span(values)), message.bytes().begin());
    MessageHeader header;
    header.name = topic.hash;
    header.sequence = at(from).next_to(topic, to);
    header.dtype = static_cast<std::uint8_t>(DType::float32);
    header.count = values.size();
    if (change) change(header);
    at(from).fabric().post(message, header, to);
  }

  /// Expects the next message of this name.
  Expectation expect(Rank rank, Rank source, const std::string& name, std::size_t count = 1) {
    Topic& topic = at(rank).topic(name);
    Expectation expected;
    expected.source = source;
    expected.name = topic.hash;
    expected.sequence = at(rank).next_from(topic, source);
    expected.dtype = static_cast<std::uint8_t>(DType::float32);
    expected.count = count;
    expected.bytes = count * sizeof(float);
    return expected;
  }

  /// Returns the message that has arrived for the expectation, if any.
  std::optional<Values> take(Rank rank, const Expectation& expected, const std::string& name) {
    const auto arrival = at(rank).take(expected, at(rank).topic(name));
    if (!arrival) return std::nullopt;
    Values values(arrival->bytes().size() / sizeof(float));
    std::ranges::copy(arrival->bytes(), std::as_writable_bytes(std::span(values)).begin());
    return values;
  }

  template <typename E>
  static std::string text_of_error(const std::function<void()>& body) {
    try {
      body();
    } catch (const E& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string mismatch_of_take(Rank rank, const Expectation& expected, const std::string& name) {
    return text_of_error<Mismatch>([&] { take(rank, expected, name); });
  }
  std::string reported_mismatch_at(Rank rank) {
    at(rank).drain_all();
    return text_of_error<Mismatch>([&] { at(rank).raise_reported_mismatch(); });
  }

  std::vector<std::shared_ptr<Fabric>> fabrics_ = local_threads(3);
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
};

TEST_F(MailboxTest, MatchesTheKthMessageOfAName) {
  const Expectation first = expect(0, 1, "x");
  const Expectation second = expect(0, 1, "x");
  send(1, 0, "x", {1});
  send(1, 0, "x", {2});
  EXPECT_EQ(take(0, second, "x"), Values{2});
  EXPECT_EQ(take(0, first, "x"), Values{1});
}

TEST_F(MailboxTest, TakesNothingBeforeItHasArrived) {
  const Expectation expected = expect(0, 1, "x");
  EXPECT_EQ(take(0, expected, "x"), std::nullopt);
  send(1, 0, "x", {1});
  EXPECT_EQ(take(0, expected, "x"), Values{1});
  EXPECT_EQ(take(0, expected, "x"), std::nullopt);
}

TEST_F(MailboxTest, KeepsMessagesOfOtherNamesUntilTheyAreExpected) {
  send(1, 0, "early", {1});
  send(1, 0, "early", {2});
  send(1, 0, "x", {3});
  EXPECT_EQ(take(0, expect(0, 1, "x"), "x"), Values{3});
  EXPECT_EQ(take(0, expect(0, 1, "early"), "early"), Values{1});
  EXPECT_EQ(take(0, expect(0, 1, "early"), "early"), Values{2});
}

TEST_F(MailboxTest, CountsEachPairOfRanksSeparately) {
  send(1, 0, "x", {1});
  send(2, 0, "x", {2});
  at(0).drain_all();
  EXPECT_EQ(take(0, expect(0, 2, "x"), "x"), Values{2});
  EXPECT_EQ(take(0, expect(0, 1, "x"), "x"), Values{1});
  const std::uint64_t name = at(1).topic("x").hash;
  EXPECT_TRUE(at(1).sent(name, 0, 0));
  EXPECT_FALSE(at(1).sent(name, 0, 1));
  EXPECT_FALSE(at(1).sent(name, 2, 0));
  EXPECT_FALSE(at(1).sent(name + 1, 0, 0));
}

TEST_F(MailboxTest, ACollectiveCountsAsSentToAllRanks) {
  Topic& topic = at(0).topic("sum");
  EXPECT_EQ(at(0).next_call(topic), 0U);
  EXPECT_TRUE(at(0).sent(topic.hash, 1, 0));
  EXPECT_TRUE(at(0).sent(topic.hash, 2, 0));
  EXPECT_FALSE(at(0).sent(topic.hash, 2, 1));
}

TEST_F(MailboxTest, AMismatchIsRaisedOnBothSidesAndSaysWhatEachHad) {
  send(1, 0, "x", {1, 2, 3});
  const std::string text = mismatch_of_take(0, expect(0, 1, "x", 4), "x");
  EXPECT_EQ(text, "x: rank 1 sent 3 x float32, but rank 0 expected 4 x float32");
  EXPECT_EQ(reported_mismatch_at(1), text);
  EXPECT_EQ(reported_mismatch_at(1), "nothing was thrown");
  EXPECT_EQ(reported_mismatch_at(0), "nothing was thrown");
  EXPECT_EQ(reported_mismatch_at(2), "nothing was thrown");
}

TEST_F(MailboxTest, AMismatchNamesWhatDiffers) {
  const auto mismatch = [&](const ChangeHeader& sent, const std::function<void(Expectation&)>& wanted) {
    send(1, 0, "x", {1}, sent);
    Expectation expected = expect(0, 1, "x");
    wanted(expected);
    return mismatch_of_take(0, expected, "x");
  };
  const auto as_it_is = [](Expectation&) {};
  EXPECT_THAT(mismatch([](MessageHeader& h) { h.dtype = static_cast<std::uint8_t>(DType::int64); }, as_it_is),
              HasSubstr("sent 1 x int64, but rank 0 expected 1 x float32"));
  EXPECT_THAT(
      mismatch([](MessageHeader& h) { h.kind = static_cast<std::uint16_t>(MessageKind::broadcast); },
               as_it_is),
      HasSubstr("sent a broadcast of 1 x float32, but rank 0 expected a point-to-point message of 1 x"));
  EXPECT_THAT(mismatch([](MessageHeader& h) { h.epoch = 2; }, as_it_is),
              HasSubstr("sent 1 x float32, view 2, but"));
  EXPECT_THAT(mismatch([](MessageHeader& h) { h.detail = 2; },
                       [](Expectation& e) {
                         e.detail_means = Detail::root;
                         e.detail = 1;
                       }),
              HasSubstr("sent 1 x float32, root 2, but rank 0 expected 1 x float32, root 1"));
  const std::string schedules = mismatch([](MessageHeader& h) { h.step = 7; },
                                         [](Expectation& e) {
                                           e.detail_means = Detail::schedule;
                                           e.detail = 1;
                                         });
  EXPECT_THAT(schedules, HasSubstr("step 7, another schedule, but rank 0"));
  EXPECT_THAT(schedules, HasSubstr("set the same topology on every rank"));
}

TEST_F(MailboxTest, AMismatchThatBothRanksHaveRaisedIsNotRaisedAgain) {
  send(1, 0, "x", {1, 2});
  send(0, 1, "x", {1});
  EXPECT_THAT(mismatch_of_take(0, expect(0, 1, "x", 1), "x"), HasSubstr("expected 1 x float32"));
  EXPECT_THAT(mismatch_of_take(1, expect(1, 0, "x", 2), "x"), HasSubstr("expected 2 x float32"));
  EXPECT_EQ(reported_mismatch_at(0), "nothing was thrown");
  EXPECT_EQ(reported_mismatch_at(1), "nothing was thrown");
}

TEST_F(MailboxTest, AReportAboutAMessageOfAFailedOperationIsIgnored) {
  send(1, 0, "x", {1, 2});
  at(1).raised(0, at(1).topic("x").hash, 0);
  mismatch_of_take(0, expect(0, 1, "x", 1), "x");
  EXPECT_EQ(reported_mismatch_at(1), "nothing was thrown");
}

TEST_F(MailboxTest, TheNextMessageMatchesAfterAMismatch) {
  send(1, 0, "x", {1, 2});
  send(1, 0, "x", {3});
  mismatch_of_take(0, expect(0, 1, "x"), "x");
  EXPECT_EQ(take(0, expect(0, 1, "x"), "x"), Values{3});
}

TEST_F(MailboxTest, TheSenderMayDecideTheCountOrTheDetail) {
  send(1, 0, "x", {1, 2, 3}, [](MessageHeader& header) { header.detail = 5; });
  Expectation expected = expect(0, 1, "x");
  expected.any_count = true;
  expected.any_detail = true;
  EXPECT_EQ(take(0, expected, "x"), (Values{1, 2, 3}));
}

TEST_F(MailboxTest, RejectsMessagesWithFewerBytesThanTheirHeaderSays) {
  for (const bool any_count : {false, true}) {
    send(1, 0, "x", {1, 2}, [](MessageHeader& header) { header.count = 3; });
    Expectation expected = expect(0, 1, "x", 3);
    expected.any_count = any_count;
    EXPECT_THAT(text_of_error<Error>([&] { take(0, expected, "x"); }),
                HasSubstr("rank 1 sent a damaged message: 8 bytes, which are not 3 x float32"));
  }
}

TEST_F(MailboxTest, DropsARefusedMessageWhenItArrives) {
  const Expectation refused = expect(0, 1, "x");
  at(0).refuse(refused);
  send(1, 0, "x", {1});
  send(1, 0, "x", {2});
  at(0).drain_all();
  EXPECT_EQ(take(0, refused, "x"), std::nullopt);
  EXPECT_EQ(take(0, expect(0, 1, "x"), "x"), Values{2});
}

TEST_F(MailboxTest, DropsTheMissingMessagesOfAFailedOperation) {
  const Expectation late = expect(0, 1, "x");
  at(0).raised(late, true);
  send(1, 0, "x", {1});
  at(0).drain_all();
  EXPECT_EQ(take(0, late, "x"), std::nullopt);
  // A message that has arrived is dropped at once, and no later one in its place.
  send(1, 0, "x", {2});
  at(0).drain_all();
  const Expectation early = expect(0, 1, "x");
  at(0).raised(early, true);
  EXPECT_EQ(take(0, early, "x"), std::nullopt);
  send(1, 0, "x", {3});
  EXPECT_EQ(take(0, expect(0, 1, "x"), "x"), Values{3});
}

TEST_F(MailboxTest, AMessageIsOvertakenByALaterOneOfTheSameNameAndSource) {
  const Expectation lost = expect(0, 1, "x");
  at(1).next_to(at(1).topic("x"), 0);  // number 0 is never posted
  at(2).next_to(at(2).topic("x"), 0);
  send(2, 0, "x", {1});
  send(1, 0, "y", {1});
  at(0).drain_all();
  EXPECT_FALSE(at(0).overtaken(lost));
  send(1, 0, "x", {2});
  at(0).drain_all();
  EXPECT_TRUE(at(0).overtaken(lost));
  EXPECT_FALSE(at(0).overtaken(expect(0, 1, "x")));  // its message has arrived
}

TEST_F(MailboxTest, DistinguishesAttemptsAtAnOperation) {
  constexpr auto kKind = MessageKind::point_to_point;
  const auto of_epoch = [](std::uint32_t epoch) {
    return [epoch](MessageHeader& header) {
      header.epoch = epoch;
      header.sequence = 0;
    };
  };
  Expectation expected = expect(0, 1, "x");
  expected.of_attempt = true;
  expected.epoch = 1;
  send(1, 0, "x", {1}, of_epoch(0));
  EXPECT_EQ(take(0, expected, "x"), std::nullopt);
  EXPECT_EQ(at(0).newest_epoch(expected.name, 0, kKind), 0U);
  send(1, 0, "x", {2}, of_epoch(1));
  send(1, 0, "x", {3}, of_epoch(2));
  EXPECT_EQ(take(0, expected, "x"), Values{2});
  at(0).drain_all();
  EXPECT_EQ(at(0).newest_epoch(expected.name, 0, kKind), 2U);
  EXPECT_EQ(at(0).newest_epoch(expected.name, 0, MessageKind::broadcast), 0U);
  at(0).forget(expected.name, 0, MessageKind::broadcast);
  EXPECT_EQ(at(0).newest_epoch(expected.name, 0, kKind), 2U);
  at(0).forget(expected.name, 0, kKind);
  EXPECT_EQ(at(0).newest_epoch(expected.name, 0, kKind), 0U);
  for (const std::uint32_t epoch : {0U, 2U}) {
    expected.epoch = epoch;
    EXPECT_EQ(take(0, expected, "x"), std::nullopt) << epoch;
  }
}

TEST_F(MailboxTest, RemembersAbandonedCollectivesAndTheirLostRanks) {
  const Expectation expected = expect(0, 1, "sum");
  send(1, 0, "sum", {}, [](MessageHeader& header) {
    header.kind = static_cast<std::uint16_t>(MessageKind::collective_aborted);
    header.detail = 2;
  });
  EXPECT_EQ(take(0, expected, "sum"), std::nullopt);  // the report is not taken for the expected message
  EXPECT_EQ(at(0).given_up(expected.name, 0), 2);
  EXPECT_EQ(at(0).given_up(expected.name, 1), std::nullopt);
}

TEST_F(MailboxTest, KeepsTopicsOfDifferentFlocksApartAndRefusesEqualHashes) {
  Topic& whole = at(0).topic("x");
  Topic& part = at(0).topic("x", 77);
  EXPECT_NE(whole.hash, part.hash);
  EXPECT_EQ(&at(0).topic("x"), &whole);
  EXPECT_EQ(at(0).next_to(part, 1), 0U);
  EXPECT_EQ(at(0).next_to(part, 1), 1U);
  EXPECT_EQ(at(0).next_to(whole, 1), 0U);
  const std::uint64_t flock = Name("y").hash() ^ Name("z").hash();
  at(0).topic("y", flock);
  EXPECT_THAT(text_of_error<InvalidArgument>([&] { at(0).topic("z"); }),
              HasSubstr("the names 'y' and 'z' have the same hash"));
}

TEST_F(MailboxTest, DescribesInternalNamesByTheCallOfTheUser) {
  Topic& before = at(0).topic("trainer/0/mix");
  const auto call = std::make_shared<UserCall>();
  call->call = "Trainer::step()";
  call->part = "bucket 3";
  at(0).set_user_call("trainer/0", call);
  EXPECT_EQ(before.described(), "Trainer::step(), bucket 3");
  call->step = 41;
  EXPECT_EQ(at(0).described("trainer/0/later"), "Trainer::step(), step 41, bucket 3");
  EXPECT_EQ(at(0).described_without_step("trainer/0/later"), "Trainer::step(), bucket 3");
  EXPECT_EQ(at(0).text_of(before.hash), "Trainer::step()");
  EXPECT_EQ(at(0).described("trainer/00"), "trainer/00");
  EXPECT_EQ(at(0).topic("mine").described(7), "mine, step 7");
  EXPECT_EQ(at(0).text_of(at(0).topic("mine").hash + 2), "mine");  // the name of its third part
  EXPECT_THAT(at(0).text_of(1), HasSubstr("another name"));
}

// Each thread takes messages for which other threads wait, and must leave them in the mailbox.
TEST_F(MailboxTest, ThreadsThatWaitForDifferentNamesLoseNothing) {
  constexpr int kMessages = 2000;
  constexpr int kReceivers = 3;
  const auto name_of = [](int receiver) { return "name " + std::to_string(receiver); };
  std::vector<std::vector<float>> received(kReceivers);
  std::vector<std::thread> threads;
  for (int receiver = 0; receiver < kReceivers; ++receiver)
    threads.emplace_back([&, receiver] {
      const std::string name = name_of(receiver);
      for (int k = 0; k < kMessages; ++k) {
        const Expectation expected = expect(0, 1, name);
        std::optional<Values> values;
        while (!(values = take(0, expected, name))) std::this_thread::yield();
        received[static_cast<std::size_t>(receiver)].push_back(values->front());
      }
    });
  for (int k = 0; k < kMessages; ++k)
    for (int receiver = kReceivers - 1; receiver >= 0; --receiver)
      send(1, 0, name_of(receiver), {static_cast<float>(k)});
  for (std::thread& thread : threads) thread.join();
  for (const auto& values : received)
    for (int k = 0; k < kMessages; ++k) ASSERT_EQ(values[static_cast<std::size_t>(k)], static_cast<float>(k));
}

}  // namespace
}  // namespace starling::flock
