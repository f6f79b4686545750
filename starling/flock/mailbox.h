#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "starling/fabric/fabric.h"
#include "starling/flock/flock_types.h"
#include "starling/flock/name.h"
#include "starling/record/trace.h"

namespace starling::flock {

/// The meaning of MessageHeader::detail, which both sides must agree on, in addition to shape and type.
enum class Detail : std::uint8_t { none, schedule, layout, weight, root, reduction, shape };

/// Added to the message kind of collectives with OnPeerFailure::reweight, whose ranks exchange more messages.
inline constexpr std::uint16_t kReweightingKind = 0x100;

/// A message that an operation expects from one source. The k-th message from i to j under a name is matched
/// with the k-th that j expects from i.
struct Expectation {
  Rank source = 0;
  MessageKind kind = MessageKind::point_to_point;
  Detail detail_means = Detail::none;
  std::uint8_t dtype = 0;
  bool any_detail = false;   // the sender decides
  bool any_count = false;    // the sender decides, as in an all-gather of different lengths
  bool of_attempt = false;   // messages of other epochs belong to other attempts at the same operation
  bool later_phase = false;  // the source sends it without another call
  std::uint32_t epoch = 0;
  std::uint64_t name = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes =
      0;  // how many bytes of the message are read; with `any_count` the message's count decides
  std::uint64_t detail = 0;
  Step step = 0;
};

/// The state of one name: how many messages were sent to and expected from each rank, and how many
/// collectives were started.
struct Topic {
  std::string text;
  std::uint64_t hash = 0;
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> expected;
  std::uint64_t calls = 0;
  std::uint32_t recorded = 0;              // see RecordName
  std::shared_ptr<const UserCall> call{};  // null if the user chose the name

  /// The steps in the records of an operation that begins now.
  RecordStep record_step(std::optional<Step> step = std::nullopt) const {
    const Step user = call ? call->step.load(std::memory_order_relaxed) : step.value_or(Flight::kNoStep);
    return {step.value_or(0), user};
  }
  /// The operation's name in messages, with `step` if it counts steps.
  std::string described(std::optional<Step> step = std::nullopt) const;
};

/// Matches messages without a coordinator, above all fabrics: keeps sequence numbers per name and pair of
/// ranks, messages that arrived before they were expected, and the reports that tell a sender about a
/// receiver's mismatch. Thread-safe.
class Mailbox {
 public:
  explicit Mailbox(std::shared_ptr<Fabric> fabric) : fabric_(std::move(fabric)) {}

  Fabric& fabric() const { return *fabric_; }

  /// The topic of this name in this flock; the reference stays valid.
  Topic& topic(const Name& name, std::uint64_t flock = 0);
  /// Declares that names starting with `beginning` and a slash belong to this call.
  void set_user_call(const std::string& beginning, std::shared_ptr<const UserCall> call);
  /// Remembers the name of a schedule by its hash, for error messages.
  void note_schedule(std::uint64_t hash, const std::string& name);
  /// The text by which messages name an operation.
  std::string described(std::string_view name) const;
  /// described() without the step of the call.
  std::string described_without_step(std::string_view name) const;
  /// The numbers of the topic's next message to `peer`, from `peer`, and of its next collective.
  std::uint64_t next_to(Topic& topic, Rank peer);
  std::uint64_t next_from(Topic& topic, Rank peer);
  std::uint64_t next_call(Topic& topic);
  /// Whether message number `sequence` under this name has been sent to `peer`.
  bool sent(std::uint64_t name, Rank peer, std::uint64_t sequence) const;
  /// The name with this hash, if this rank has used it.
  std::string text_of(std::uint64_t name) const;

  /// Takes the expected message if it has arrived. Throws Mismatch, on both sides, if it differs from the
  /// expectation; `topic` is for the error text.
  std::optional<Arrival> take(const Expectation& expectation, const Topic& topic);

  /// Takes in all messages that have arrived, from all ranks.
  void drain_all();
  /// Throws Mismatch if a receiver has reported one about a message of this rank.
  void raise_reported_mismatch();

  /// Call it when an operation that awaited this message has thrown: reports about it are ignored, and if it
  /// has not arrived yet (`missing`), it is dropped when it does.
  void raised(const Expectation& expectation, bool missing);
  /// Likewise for a message that this rank has sent.
  void raised(Rank to, std::uint64_t name, std::uint64_t sequence);

  /// No operation waits for this message any more: it is dropped when it arrives.
  void refuse(const Expectation& expectation);
  /// Whether a later message of the same name has arrived from the same source; then this one was lost.
  bool overtaken(const Expectation& expectation) const;

  /// The lost rank because of which a member aborted this collective; empty if none did.
  std::optional<Rank> given_up(std::uint64_t name, std::uint64_t sequence) const;

  /// What a rank said when it left; empty if it said nothing.
  std::string why_left(Rank peer);

  /// The highest epoch of early messages (name, sequence): a rank with a higher epoch has started a later
  /// attempt.
  std::uint32_t newest_epoch(std::uint64_t name, std::uint64_t sequence, MessageKind kind) const;
  /// Drops early messages (name, sequence), which remain from failed attempts.
  void forget(std::uint64_t name, std::uint64_t sequence, MessageKind kind);

 private:
  struct Key {
    std::uint64_t name;
    std::uint64_t sequence;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>(key.name + key.sequence * 0xD1B54A32D192ED03u);
    }
  };
  struct MismatchReport {
    Rank from;
    Key about;
    std::string text;
  };

  std::shared_ptr<const UserCall> call_of(std::string_view name) const;
  void drain(Rank source);
  void keep(Arrival arrival);
  std::optional<Arrival> take_early(const Expectation& expectation);
  bool mismatch_reported(Rank with, const Key& about) const;
  void report_mismatch(Rank with, const Key& about);
  [[noreturn]] void disagree(const Expectation& expectation, const MessageHeader& header, const Topic& topic);

  std::shared_ptr<Fabric> fabric_;
  /// The schedule whose hash is the lower half of this detail; "" if its name is not known.
  std::string schedule_named(std::uint64_t detail) const;

  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::string> schedules_;  // by the lower halves of their hashes
  std::unordered_map<std::uint64_t, std::unique_ptr<Topic>> topics_;
  std::map<std::string, std::shared_ptr<const UserCall>, std::less<>> calls_;  // by the beginning of names
  std::unordered_map<Key, std::vector<Arrival>, KeyHash> early_;  // arrived before they were expected
  std::vector<MismatchReport> received_reports_;
  std::atomic<bool> has_received_reports_{false};
  std::map<std::tuple<Rank, std::uint64_t, std::uint64_t>, MessageKind> unwanted_;  // source, name, number
  std::map<std::pair<std::uint64_t, std::uint64_t>, Rank> given_up_;                // name, number
  std::map<Rank, std::string> why_left_;
  // the last mismatches that this rank detected itself
  std::deque<std::pair<Rank, Key>> reported_mismatches_;
};

}  // namespace starling::flock
