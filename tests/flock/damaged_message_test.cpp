// Covers mailbox and cell of starling/flock against damaged memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "starling/fabric/local/local.h"
#include "starling/flock/cell.h"
#include "starling/flock/flock.h"

// Headers and windows that another process wrote: invalid contents are an error that names the rank.

namespace starling::flock {
namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Rank 1 sends `bytes` bytes with a header that announces `count` numbers.
void send_lie(Fabric& fabric, const Name& name, std::uint64_t count, std::size_t bytes, MessageKind kind) {
  MessageHeader header;
  header.name = name.hash();
  header.count = count;
  header.dtype = static_cast<std::uint8_t>(DType::float32);
  header.kind = static_cast<std::uint16_t>(kind);
  fabric.post(fabric.reserve(bytes), header, 0);
}

TEST(DamagedMessageTest, FewerBytesThanTheHeaderSaysAreRefused) {
  const auto fabrics = local_threads(2);
  Flock flock(fabrics[0]);
  std::vector<float> x(1000);
  send_lie(*fabrics[1], "letter", 1000, 40, MessageKind::point_to_point);
  EXPECT_THAT(error_of([&] { flock.recv(x, 1, "letter"); }), HasSubstr("rank 1 sent a damaged message"));
  send_lie(*fabrics[1], "sum", 1000, 8, MessageKind::reduction);
  EXPECT_THAT(error_of([&] { flock.allreduce(x, Reduction::sum, "sum"); }),
              HasSubstr("rank 1 sent a damaged message"));
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{11}, ~std::uint64_t{0} / 2 + 6}) {
    send_lie(*fabrics[1], Name("gather"), count, 42, MessageKind::gathering);
    EXPECT_THAT(error_of([&] { flock.allgather(x, "gather"); }), HasSubstr("rank 1 sent a damaged message"));
    flock = Flock(fabrics[0]);  // restarts the count of gathers at 0
  }
}

TEST(DamagedMessageTest, CellsOfDamagedControlMemoryAreReadOrRefused) {
  const auto fabrics = local_threads(2);
  constexpr std::size_t kBytes = 256;
  const std::size_t control = Cell::control_bytes(2, 1);
  std::byte* memory = fabrics[0]->exposed(0, fabrics[0]->expose(control));
  Cell owner(fabrics[0], memory, {0, 1}, 1, 0, kBytes);
  Cell reader(fabrics[1], memory, {0, 1}, 1, 1, kBytes);
  owner.replace([&](const Content& fresh) { *fresh.p = 2; });
  ASSERT_TRUE(reader.look());
  std::mt19937_64 random(5);
  auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(memory);
  int refused = 0;
  double touched = 0;
  for (int k = 0; k < 3000; ++k) {
    for (std::size_t i = 0; i < control / 8; ++i)
      if (random() % 2 == 0) words[i] = random() % 3 == 0 ? random() : random() % (1 << 20);
    try {
      const Cell::Held held = reader.look();
      if (held) touched += held.p() + std::to_integer<int>(held.data()[kBytes - 1]);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace starling::flock
