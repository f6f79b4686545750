#include "starling/record/checkpoint_writer.h"

#include <algorithm>
#include <fmt/format.h>
#include <signal.h>

#include "starling/base/error.h"

namespace starling::record {
namespace {

constexpr std::chrono::seconds kPatience{5};  // for other ranks' files, in the destructor

// Blocks signals in the new thread, so that the program's own threads handle them as before.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointRunOptions options, Rank rank)
    : run_(std::move(options)), rank_(rank) {
  if (rank < 0 || rank >= run_.options().workers)
    throw InvalidArgument(fmt::format("checkpoints: rank {} of {} workers; ranks are 0..{}", rank,
                                      run_.options().workers, run_.options().workers - 1));
  const NoSignals inherited;
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

CheckpointWriter::~CheckpointWriter() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [&] { return !busy_; });
  lock.unlock();
  thread_.request_stop();
  thread_.join();
}

void CheckpointWriter::save(Step step, const Labels& labels, std::span<const StatePart> parts,
                            std::span<const Rank> members) {
  finish();
  state_.take(parts);
  step_ = step;
  labels_ = labels;
  members_.assign(members.begin(), members.end());
  const std::scoped_lock lock(mutex_);
  busy_ = true;
  changed_.notify_all();
}

bool CheckpointWriter::busy() const {
  const std::scoped_lock lock(mutex_);
  return busy_;
}

void CheckpointWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
}

void CheckpointWriter::remove_unfinished() {
  finish();
  run_.remove_unfinished();
}

std::optional<Step> CheckpointWriter::last_saved() const {
  const std::scoped_lock lock(mutex_);
  return last_saved_;
}

std::optional<std::string> CheckpointWriter::problem() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(problem_, std::nullopt);
}

void CheckpointWriter::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return busy_; })) {
    lock.unlock();
    std::optional<std::string> problem;
    try {
      state_.await();
      run_.write(step_, rank_, labels_, state_.parts(), members_, stop);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    lock.lock();
    busy_ = false;
    if (problem)
      problem_ = std::move(problem);
    else
      last_saved_ = step_;
    changed_.notify_all();
  }
}

}  // namespace starling::record
