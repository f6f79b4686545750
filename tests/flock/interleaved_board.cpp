#include "flock/interleaved_board.h"

#include <stdexcept>
#include <thread>

namespace starling::flock {

class InterleavedFabric final : public Fabric, public Board {
 public:
  InterleavedFabric(Interleaving& all, Rank rank) : all_(all), rank_(rank) {}

  Rank rank() const override { return rank_; }
  Rank size() const override { return all_.size_; }
  Board& board() override { return *this; }
  bool alive(Rank) const override { return true; }

  Outgoing reserve(std::size_t) override { throw std::logic_error("only a board"); }
  void post(const OutgoingRange&, const MessageHeader&, Rank) override {
    throw std::logic_error("only a board");
  }
  std::optional<Arrival> poll(Rank) override { return std::nullopt; }
  std::uint32_t wake_count() const override { return 0; }
  void nudge() override {}
  std::uint64_t expose(std::size_t) override { throw std::logic_error("only a board"); }
  void withdraw(std::uint64_t, std::size_t) override {}
  std::byte* exposed(Rank, std::uint64_t) override { return nullptr; }
  void sleep(std::uint32_t, std::span<const Rank>, Deadline) override {}

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override {
    all_.turn(rank_);
    return all_.registers_.emplace(key, proposal).first->second;
  }
  std::optional<std::int64_t> agreed(std::uint64_t key) const override {
    all_.turn(rank_);
    const auto found = all_.registers_.find(key);
    if (found == all_.registers_.end()) return std::nullopt;
    return found->second;
  }
  void announce(std::uint64_t flock, Step step) override {
    all_.turn(rank_);
    all_.announced_[{rank_, flock}] = step;
  }
  std::optional<Step> announced(Rank rank, std::uint64_t flock) const override {
    all_.turn(rank_);
    const auto found = all_.announced_.find({rank, flock});
    return found == all_.announced_.end() ? -1 : found->second;
  }
  void retire(std::uint64_t) override {}
  void publish(const WaitStatus&) override {}
  WaitStatus waiting(Rank) const override { return {}; }
  LastPost posted(Rank) const override { return {}; }

 private:
  Interleaving& all_;
  Rank rank_;
};

Interleaving::Interleaving(Rank size, unsigned seed)
    : size_(size), random_(seed), running_(static_cast<std::size_t>(size), true) {}

void Interleaving::run(const std::function<void(Fabric& fabric)>& body) {
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size_; ++rank)
    threads.emplace_back([&, rank] {
      InterleavedFabric fabric(*this, rank);
      turn(rank);
      body(fabric);
      leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
}

// A rank runs alone from one turn to the next; its next turn() passes control to the rank drawn.
void Interleaving::turn(Rank rank) {
  std::unique_lock lock(mutex_);
  if (arrived_ < size_) {
    if (++arrived_ == size_) draw();
  } else {
    draw();
  }
  changed_.wait(lock, [&] { return next_ == rank; });
}

void Interleaving::leave(Rank rank) {
  const std::lock_guard lock(mutex_);
  running_[static_cast<std::size_t>(rank)] = false;
  draw();
}

void Interleaving::draw() {
  std::vector<Rank> choices;
  for (Rank rank = 0; rank < size_; ++rank)
    if (running_[static_cast<std::size_t>(rank)]) choices.push_back(rank);
  next_ = choices.empty() ? -1 : choices[random_() % choices.size()];
  changed_.notify_all();
}

}  // namespace starling::flock
