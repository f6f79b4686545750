#pragma once

#include "starling/codec/wire_format.h"
#include "starling/flock/flock.h"
#include "starling/kernel/arithmetic.h"
#include "starling/method/channel.h"

namespace starling::method {

/// The collectives and point-to-point messages of one block on a flock.
class FlockCollective final : public CollectiveChannel {
 public:
  FlockCollective(const Flock& flock, const std::string& name, WireFormatPtr format)
      : flock_(flock), name_(name), format_(std::move(format)) {}
  ~FlockCollective();
  FlockCollective(const FlockCollective&) = delete;
  FlockCollective& operator=(const FlockCollective&) = delete;

  void reduce(Pieces pieces, Reduction reduction) override;
  void gather(ConstBuffer mine, std::vector<std::byte>& all) override;
  void broadcast(Pieces pieces, Rank root) override;
  void send(Pieces pieces, Rank to, const std::string& tag) override;
  void receive(Pieces pieces, Rank from, const std::string& tag) override;
  void start_average(ConstBuffer block) override;
  bool average_arrived(Buffer out) override;
  void await_average() override { awaits_average_ = true; }

  // Called by the channel.

  bool busy() const { return awaits_average_ || !pending_.empty() || !receiving_.empty(); }
  bool ready();
  void await();
  void finish();
  /// Renames averages from now on, since some ranks may have started one and others not.
  void abandon_average();

 private:
  void reduce_encoded(Pieces pieces, Reduction reduction);
  void decode();
  void wait_for_message(Pending& one) const;

  Flock flock_;
  const std::string name_;
  const WireFormatPtr format_;
  std::vector<Pending> pending_;
  std::vector<Pending> receiving_;
  OwnedBuffer mean_;
  Pending average_;  // of mean_, in the background
  int generation_ = 0;
  bool awaits_average_ = false;
  OwnedBuffer encoded_;
  Pieces decode_into_;
};

}  // namespace starling::method
