#include <gtest/gtest.h>

#include "method/on_flock.h"
#include "starling/codec/registry.h"

// Tests how many bytes compressed methods send, as counted by the flock.

namespace starling::method {
namespace {

constexpr Rank kWireRanks = 4;
constexpr std::size_t kCount = 10'000;
// Header before the encoded bytes: the sender, and the number of contributors
constexpr std::uint64_t kHead = 16;

std::uint64_t encoded(const std::string& codec, std::size_t count) {
  return make_codec(codec)->encoded_bytes(DType::float32, {count, 0});
}

/// Bytes that rank 0 sends in its fourth step.
std::uint64_t bytes_of_a_step(const std::string& method, const std::string& topology,
                              const std::string& optimizer = "sgd(lr=0.01)",
                              const std::string& message = "float32") {
  const SharedNumbers<std::uint64_t> sent(1);
  const auto ends = launchers()[0].run(kWireRanks, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(30s);
    std::vector<float> x(kCount, 1.0F);
    std::vector<float> gradient(kCount);
    Driver driver =
        drive(flock, buffer_of(x), buffer_of(gradient),
              {.method = method, .topology = topology, .optimizer = optimizer, .message = message});
    for (Step step = 0; step < 4; ++step) {
      const std::uint64_t before = flock.bytes_sent();
      for (std::size_t i = 0; i < kCount; ++i)
        gradient[i] = 0.01F * static_cast<float>((i * 37 + static_cast<std::size_t>(step)) % 101) - 0.5F;
      driver.finish();
      if (flock.rank() == 0) *sent.data() = flock.bytes_sent() - before;
    }
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
  return *sent.data();
}

TEST(CompressedMessagesTest, NeighborsGetEncodedDifferences) {
  const std::uint64_t plain = bytes_of_a_step("dsgd-atc", "ring");
  EXPECT_EQ(plain, 2 * 4 * kCount);
  for (const char* codec :
       {"fp16", "uint8", "sign", "qsgd(levels=7)", "top-k(fraction=0.01)", "powersgd(rank=2)"})
    EXPECT_EQ(bytes_of_a_step(fmt::format("choco(codec={},gamma=0.1)", codec), "ring"),
              2 * encoded(codec, kCount))
        << codec;
  EXPECT_EQ(bytes_of_a_step("low-precision-ring", "ring"), 2 * encoded("uint8", kCount));
  // The size that the codec documents.
  EXPECT_LT(encoded("uint8", kCount), kCount * 101 / 100 + 64);
  EXPECT_LT(encoded("sign", kCount), kCount / 8 + kCount / 256 + 64);
  EXPECT_EQ(encoded("top-k(fraction=0.01)", kCount), 8 * kCount / 100);
}

// One byte per element, and two numbers for every 512 elements.
TEST(CompressedMessagesTest, MessagesInFewerBits) {
  const auto sent = [](const std::string& method, const std::string& message) {
    return bytes_of_a_step(method, "ring", "sgd(lr=0.01)", message);
  };
  for (const char* method : {"dsgd-atc", "dsgd-awc"}) {
    const std::uint64_t plain = sent(method, "float32");
    EXPECT_EQ(2 * sent(method, "bfloat16"), plain);
    EXPECT_EQ(sent(method, "int8"), 2 * (kCount + 8 * 20)) << method;
    EXPECT_LT(static_cast<double>(sent(method, "int8")), 0.255 * static_cast<double>(plain)) << method;
  }
}

TEST(CompressedMessagesTest, EveryRankGetsEncodedGradients) {
  const std::uint64_t others = kWireRanks - 1;
  EXPECT_EQ(bytes_of_a_step("qsgd(levels=127)", "ring"),
            others * (kHead + encoded("qsgd(levels=127)", kCount)));
  EXPECT_EQ(bytes_of_a_step("compressed-allreduce(codec=sign)", "ring"),
            others * (kHead + encoded("sign", kCount)));
}

// A chunk to each rank, and a chunk of the result to each: 2 (n - 1) / n of a block, encoded.
TEST(CompressedMessagesTest, ScatteredGradientsAreGathered) {
  const std::uint64_t others = kWireRanks - 1;
  const std::uint64_t part = kHead + encoded("uint8", kCount / kWireRanks);
  EXPECT_EQ(bytes_of_a_step("bytegrad", "ring"), 2 * others * part);
  EXPECT_EQ(bytes_of_a_step("qadam(warmup=1)", "ring", "adam"), 2 * others * part);
  const std::uint64_t votes = kHead + (kCount / kWireRanks + 63) / 64 * 8;
  EXPECT_EQ(bytes_of_a_step("sign-sgd", "ring"), 2 * others * votes);
}

// 100 x 100 elements as two factors of 100 x 2, and the number of contributors.
TEST(CompressedMessagesTest, LowRankFactorsAreSent) {
  EXPECT_EQ(bytes_of_a_step("powersgd(rank=2)", "ring"), (kWireRanks - 1) * 4 * (2 * 100 * 2 + 1));
}

TEST(CompressedMessagesTest, ARankThatHardlyMovedSendsAFlag) {
  EXPECT_EQ(bytes_of_a_step("lag(threshold=1000)", "ring"), 2U);
  EXPECT_EQ(bytes_of_a_step("lag(threshold=0)", "ring"), 2 * (4 * kCount + 1));
}

}  // namespace
}  // namespace starling::method
