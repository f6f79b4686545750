#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "starling/fabric/fabric.h"
#include "starling/fabric/network/memory.h"

namespace starling::network {

/// Questions of this rank to others that are not answered yet. Thread-safe.
class Questions {
 public:
  /// `alive` says whether an answer can still come.
  explicit Questions(std::function<bool(Rank)> alive) : alive_(std::move(alive)) {}

  /// The number of a new one, to be sent now.
  std::uint64_t open();
  /// Waits for the answer, and closes the question. Empty where it was refused, where who was asked is lost,
  /// and after the deadline.
  std::optional<Slice> answer(Rank from, std::uint64_t question, Deadline deadline);

  /// From the wire: the answer, or none will come.
  void answered(std::uint64_t question, std::optional<Slice> answer);
  /// Somebody is lost.
  void look_around() { changed_.notify_all(); }

 private:
  struct Question {
    bool settled = false;
    std::optional<Slice> answer;
  };

  std::function<bool(Rank)> alive_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t asked_ = 0;
  std::map<std::uint64_t, Question> questions_;  // the open ones
};

}  // namespace starling::network
