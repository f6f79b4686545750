#include "starling/fabric/network/register.h"

#include <cstring>
#include <gtest/gtest.h>
#include <thread>

#include "starling/base/error.h"

// The register without a store: ranks of this process, frames delivered at once unless they are held back.

namespace starling::network {
namespace {

class RegisterTest : public testing::Test {
 protected:
  struct Held {
    Rank from;
    Rank to;
    Frame frame;
  };

  RegisterTest() {
    for (Rank r = 0; r < 3; ++r)
      ranks_.push_back(std::make_unique<Register>(r, 3, [this, r](Rank to, const Frame& frame) {
        hand_over({r, to, frame});
      }));
  }

  void hand_over(const Held& held) {
    if (deaf_ == held.to) {
      held_.push_back(held);
      return;
    }
    Register& to = *ranks_[static_cast<std::size_t>(held.to)];
    if (held.frame.kind == FrameKind::propose)
      to.proposed(held.from, held.frame);
    else
      to.decided(held.frame);
  }

  /// What `rank` tells when it leaves, still to be heard.
  static Slice farewell(Register& rank) {
    const auto entries = rank.close();
    const std::size_t bytes = entries.size() * sizeof(Register::Entry);
    Slice slice{Memory(new std::byte[bytes + 1], std::default_delete<std::byte[]>()), 0, bytes};
    if (bytes > 0) std::memcpy(slice.data(), entries.data(), bytes);
    return slice;
  }

  std::vector<std::unique_ptr<Register>> ranks_;
  Rank deaf_ = -1;
  std::vector<Held> held_;
};

TEST_F(RegisterTest, TheFirstProposalStays) {
  EXPECT_EQ(ranks_[1]->agree(7, 10), 10);
  EXPECT_EQ(ranks_[0]->agree(7, 20), 10);
  EXPECT_EQ(ranks_[2]->agree(7, 30), 10);
  EXPECT_EQ(ranks_[2]->agree(8, 30), 30);
}

TEST_F(RegisterTest, WhoKeepsItHandsItOn) {
  ranks_[2]->agree(7, 10);
  const Slice known = farewell(*ranks_[0]);
  ranks_[1]->left(0, known);
  ranks_[2]->left(0, known);
  EXPECT_EQ(ranks_[1]->agree(7, 20), 10);
  EXPECT_EQ(ranks_[2]->agree(8, 30), 30);
  EXPECT_EQ(ranks_[1]->agree(8, 40), 30);
  EXPECT_THROW(ranks_[0]->agree(9, 1), Error);
}

// Rank 2 hears first that rank 0 has left and asks rank 1, which decides nothing before it has heard it, too.
TEST_F(RegisterTest, TheNextOneWaitsForWhatTheLastOneDecided) {
  ranks_[0]->agree(7, 10);
  const Slice known = farewell(*ranks_[0]);
  ranks_[2]->left(0, {});  // as if what it tells were still on its way
  std::int64_t value = 0;
  std::thread asker([&] { value = ranks_[2]->agree(7, 20); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ranks_[1]->left(0, known);
  asker.join();
  EXPECT_EQ(value, 10);
}

// A proposal that nobody answers any more is made again to the next one.
TEST_F(RegisterTest, WhoIsNotAnsweredAsksTheNext) {
  deaf_ = 0;
  std::int64_t value = 0;
  std::thread asker([&] { value = ranks_[2]->agree(7, 20); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Slice known = farewell(*ranks_[0]);
  ranks_[1]->left(0, known);
  ranks_[2]->left(0, known);
  asker.join();
  EXPECT_EQ(value, 20);
  EXPECT_EQ(ranks_[1]->agree(7, 30), 20);
  deaf_ = -1;
  for (const Held& held : std::exchange(held_, {})) hand_over(held);  // too late: rank 0 has left
}

}  // namespace
}  // namespace starling::network
