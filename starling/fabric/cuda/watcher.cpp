#include "starling/fabric/cuda/watcher.h"

#include <csignal>

namespace starling::fabric::cuda {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // the longest time between two checks for deaths

}  // namespace

Watcher::~Watcher() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  exchange_->wake();
  thread_.join();
}

void Watcher::start() {
  if (started_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (started_.load(std::memory_order_relaxed)) return;
  exchange_ = std::make_unique<DescriptorExchange>(
      job_, fabric_.rank(), fabric_.size(),
      DescriptorEnds{[this](Rank reader, std::uint32_t piece) { return outbox_.give(reader, piece); },
                     [this](Rank owner, std::uint32_t piece, Descriptor descriptor) {
                       inbox_.received(owner, piece, std::move(descriptor));
                       fabric_.nudge();
                     },
                     [this](Rank owner, const std::string& why) {
                       inbox_.failed(owner, why);
                       fabric_.nudge();
                     },
                     [this](Rank owner, const LentPiece& piece, Descriptor descriptor) {
                       borrowed_.add(owner, piece, std::move(descriptor));
                     }});
  dead_.resize(static_cast<std::size_t>(fabric_.size()));
  thread_ = std::thread([this] { run(); });
  started_.store(true, std::memory_order_release);
}

void Watcher::ask(Rank owner, std::uint32_t piece) {
  start();
  exchange_->ask(owner, piece);
}

void Watcher::run() {
  sigset_t all;  // the program's own threads handle them
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  while (!stopping_) {
    exchange_->run(kLook);
    look_for_deaths();
  }
}

void Watcher::look_for_deaths() {
  for (Rank peer = 0; peer < fabric_.size(); ++peer) {
    if (dead_[static_cast<std::size_t>(peer)] || fabric_.alive(peer)) continue;
    dead_[static_cast<std::size_t>(peer)] = true;
    exchange_->run(std::chrono::milliseconds(0));  // finishes requests from before
    exchange_->forget(peer);
    outbox_.peer_died(peer);
    inbox_.peer_died(peer);
    fabric_.nudge();
  }
}

}  // namespace starling::fabric::cuda
