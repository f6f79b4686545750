// Covers client, server and entries of starling/fabric/network/store.
#include <atomic>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/eventually.h"
#include "fabric/served_store.h"
#include "starling/base/error.h"

// Tests the store with authenticated clients.

namespace starling::fabric::network {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(StoreTest, SetsGetsChecksAndRemovesKeys) {
  const ServedStore store;
  StoreClient client = store.client();
  EXPECT_EQ(client.count(), 0);
  client.set("a", "1");
  client.set("b", std::string("\0\xff\n", 3));
  EXPECT_EQ(client.get("a", kLong), "1");
  EXPECT_EQ(client.get("b", kLong), std::string("\0\xff\n", 3));
  client.set("a", "");
  EXPECT_EQ(client.get("a", kLong), "");
  EXPECT_EQ(client.count(), 2);
  EXPECT_TRUE(client.check({"a", "b"}));
  EXPECT_FALSE(client.check({"a", "c"}));
  EXPECT_TRUE(client.check({}));
  EXPECT_TRUE(client.remove("a"));
  EXPECT_FALSE(client.remove("a"));
  EXPECT_FALSE(client.check({"a"}));
  EXPECT_EQ(client.count(), 1);
}

TEST(StoreTest, AddsToNumbers) {
  const ServedStore store;
  StoreClient client = store.client();
  EXPECT_EQ(client.add("n", 5), 5);
  EXPECT_EQ(client.add("n", -7), -2);
  EXPECT_EQ(client.get("n", kLong), "-2");
  EXPECT_EQ(client.add("big", INT64_MAX), INT64_MAX);
  EXPECT_THAT(error_of([&] { client.add("big", 1); }), HasSubstr("64 bits"));
  client.set("word", "12 ");
  EXPECT_THAT(error_of([&] { client.add("word", 1); }),
              AllOf(HasSubstr(store.where()), HasSubstr("add to 'word'"), HasSubstr("not a number")));
  EXPECT_EQ(client.get("word", kLong), "12 ");
}

// As in torch's stores, an empty expected value also matches a missing key.
TEST(StoreTest, ComparesAndSets) {
  const ServedStore store;
  StoreClient client = store.client();
  EXPECT_EQ(client.compare_set("k", "x", "y"), "x");
  EXPECT_FALSE(client.check({"k"}));
  EXPECT_EQ(client.compare_set("k", "", "y"), "y");
  EXPECT_EQ(client.compare_set("k", "", "z"), "y");
  EXPECT_EQ(client.compare_set("k", "y", "z"), "z");
  EXPECT_EQ(client.get("k", kLong), "z");
}

TEST(StoreTest, TransfersLongValuesInBothDirections) {
  const ServedStore store;
  StoreClient client = store.client();
  std::string value(StoreLimits().value, '\0');
  for (std::size_t i = 0; i < value.size(); i += 1009) value[i] = static_cast<char>(i);
  client.set("long", value);
  EXPECT_TRUE(client.get("long", kLong) == value);
}

TEST(StoreTest, RejectsRequestsBeyondTheLimits) {
  const ServedStore store;
  StoreClient client = store.client();
  client.set(std::string(4096, 'k'), "");
  EXPECT_THROW(client.set(std::string(4097, 'k'), ""), InvalidArgument);
  EXPECT_THROW(client.set("k", std::string(StoreLimits().value + 1, 'v')), InvalidArgument);
  EXPECT_THROW(client.wait(std::vector<std::string>(kMostKeys + 1, "k"), milliseconds(1)), InvalidArgument);
  EXPECT_EQ(client.count(), 1);
}

TEST(StoreTest, WakesWaitingClients) {
  const ServedStore store;
  StoreClient client = store.client();
  client.set("there", "");
  std::atomic<int> woken{0};
  const auto waits = [&](const std::vector<std::string>& keys) {
    return std::thread([&, keys] {
      StoreClient waiting = store.client();
      waiting.add("waiting", 1);
      waiting.wait(keys, kLong);
      ++woken;
    });
  };
  std::thread threads[] = {
      waits({"there", "a", "b"}),
      waits({"b", "a"}),
      waits({"number"}),
      waits({"elected", "a"}),
      std::thread([&] {
        StoreClient waiting = store.client();
        waiting.add("waiting", 1);
        woken += waiting.get("a", kLong) == "A" ? 1 : 0;
      }),
  };
  EXPECT_TRUE(eventually([&] { return client.add("waiting", 0) == 5; }));
  EXPECT_EQ(woken, 0);
  client.set("b", "B");
  client.add("number", 1);
  client.compare_set("elected", "", "me");
  EXPECT_TRUE(eventually([&] { return woken > 0; }));
  EXPECT_EQ(woken, 1);  // the client that waits for the number
  client.set("a", "A");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(woken, 5);
}

TEST(StoreTest, WaitsTimeOut) {
  const ServedStore store;
  StoreClient client = store.client();
  client.set("there", "");
  EXPECT_THAT(error_of([&] { client.get("gone", milliseconds(60)); }),
              AllOf(HasSubstr(store.where()), HasSubstr("'gone'"), HasSubstr("0.06 s")));
  EXPECT_THAT(error_of([&] { client.wait({"there", "later"}, milliseconds(0)); }), HasSubstr("'later'"));
  client.set("gone", "back");  // a client whose wait timed out is not answered again
  EXPECT_EQ(client.get("gone", kLong), "back");
}

TEST(StoreTest, AWaitingThreadDoesNotBlockOthers) {
  const ServedStore store;
  StoreClient client = store.client();
  StoreClient other = store.client();
  std::string problem;
  std::thread waiting([&] {
    client.add("waiting", 1);
    problem = error_of([&] { client.wait({"end"}, kLong); });
  });
  EXPECT_TRUE(eventually([&] { return other.add("waiting", 0) == 1; }));
  client.set("end", "");
  waiting.join();
  EXPECT_EQ(problem, "");  // otherwise the wait would have blocked this thread's set() until it timed out
}

TEST(StoreTest, ServesManyClientsAtOnce) {
  StoreLimits limits;
  limits.unauthenticated = 3;  // dropped clients retry
  const ServedStore store(limits);
  std::vector<std::thread> threads;
  std::atomic<int> elected{0};
  constexpr int kThreads = 40;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      StoreClient client = store.client();
      for (int i = 0; i < 25; ++i) client.add("sum", i);
      const std::string me = std::to_string(t);
      if (client.compare_set("leader", "", me) == me) ++elected;
      client.add("ready", 1);
      client.set(fmt::format("rank {}", t), me);
      std::vector<std::string> all;
      for (int other = 0; other < kThreads; ++other) all.push_back(fmt::format("rank {}", other));
      client.wait(all, kLong);
    });
  for (std::thread& thread : threads) thread.join();
  StoreClient client = store.client();
  EXPECT_EQ(client.add("sum", 0), kThreads * 300);
  EXPECT_EQ(client.add("ready", 0), kThreads);
  EXPECT_EQ(elected, 1);
}

TEST(StoreTest, MemoryIsBounded) {
  StoreLimits limits;
  limits.memory = 1 << 20;
  const ServedStore store(limits);
  StoreClient client = store.client();
  const std::string third(300'000, 'x');
  client.set("a", third);
  client.set("a", third);
  client.set("b", third);
  EXPECT_THAT(error_of([&] { client.set("c", std::string(600'000, 'x')); }), HasSubstr(store.where()));
  StoreClient again = store.client();
  EXPECT_THAT(error_of([&] {
                for (int i = 0; i < 1000; ++i) again.set(fmt::format("{:4000}", i), "");
              }),
              AllOf(HasSubstr("is full"), HasSubstr("1048576 bytes")));
  EXPECT_TRUE(again.remove("b"));
  again.set("c", "fits");
  EXPECT_EQ(again.get("a", kLong), third);
}

TEST(StoreTest, RemovedKeysUseNoMemory) {
  StoreLimits limits;
  limits.memory = 1 << 18;
  const ServedStore store(limits);
  StoreClient client = store.client();
  for (int i = 0; i < 200; ++i) {
    const std::string key = fmt::format("{:4000}", i);
    client.set(key, "value");
    EXPECT_TRUE(client.remove(key));
  }
}

TEST(StoreTest, ListensOnTheGivenAddressOnly) {
  const ServedStore store;
  EXPECT_EQ(store.address().host, "127.0.0.1");
  const std::string elsewhere = fmt::format("127.0.0.2:{}", store.address().port);
  EXPECT_THAT(error_of([&] { StoreClient(elsewhere, store.token(), milliseconds(60)); }),
              AllOf(HasSubstr(elsewhere), HasSubstr("refused")));
  EXPECT_THROW(StoreServer("0.0.0.0", "token"), InvalidArgument);
  EXPECT_THROW(StoreServer("::", "token"), InvalidArgument);
  EXPECT_THROW(StoreServer("localhost", "token"), InvalidArgument);
  EXPECT_THROW(StoreServer("127.0.0.1", ""), InvalidArgument);
  EXPECT_THAT(error_of([] { StoreServer("203.0.113.7", "token"); }), HasSubstr("203.0.113.7"));
}

TEST(StoreTest, SupportsIpv6) {
  std::unique_ptr<ServedStore> store;
  const std::string problem = error_of([&] { store = std::make_unique<ServedStore>(StoreLimits{}, "::1"); });
  if (!store) GTEST_SKIP() << "no IPv6 here: " << problem;
  EXPECT_TRUE(store->where().starts_with("[::1]:")) << store->where();
  EXPECT_EQ(store->client().add("n", 1), 1);
}

TEST(StoreTest, ParsesAddresses) {
  EXPECT_EQ(read_store_address("node1:29500").host, "node1");
  EXPECT_EQ(read_store_address("[fe80::1%eth0]:1").host, "fe80::1%eth0");
  EXPECT_EQ(read_store_address("10.0.0.1:65535").port, 65535);
  for (const char* text : {"", "node1", ":1", "node1:", "node1:0", "node1:65536", "node1:x", "node1:1 "})
    EXPECT_THROW(read_store_address(text), InvalidArgument) << text;
}

}  // namespace
}  // namespace starling::fabric::network
