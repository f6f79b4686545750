#include "starling/train/transfer_state.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/sha256.h"
#include "starling/flock/byte_operations.h"
#include "starling/kernel/transfer.h"
#include "starling/record/log.h"
#include "starling/train/saved_model.h"

namespace starling::train {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kDigest = 64;  // hexadecimal digits

Bytes as_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

void check_digest(const std::string& what, const std::string& here, const std::string& there, Rank rank,
                  Rank from) {
  if (here != there)
    throw Error(
        fmt::format("{} that rank {} received is not what rank {} has sent: SHA-256 {}... here, {}... there; "
                    "the network damages messages",
                    what, rank, from, here.substr(0, 16), there.substr(0, 16)));
}

/// The messages from a member to one newcomer, in order.
class StateStream {
 public:
  StateStream(Flock& flock, const std::string& trainer, Rank newcomer)
      : flock_(flock), name_(fmt::format("{}/model for {}", trainer, newcomer)) {}

  void send_text(const std::string& text, Rank to) {
    flock_.send(std::vector<std::int64_t>{static_cast<std::int64_t>(text.size())}, to, Name(name_));
    flock_.send(as_bytes(sha256(as_bytes(text)) + text), to, Name(name_));
  }
  std::string receive_text(const std::string& what, Rank from) {
    std::vector<std::int64_t> length = {0};
    flock_.recv(length, from, Name(name_));
    Bytes bytes(kDigest + static_cast<std::size_t>(length[0]));
    flock_.recv(bytes, from, Name(name_));
    const Bytes text(bytes.begin() + kDigest, bytes.end());
    check_digest(what, sha256(text), std::string(bytes.begin(), bytes.begin() + kDigest), flock_.rank(),
                 from);
    return {text.begin(), text.end()};
  }
  void send(std::span<const StatePlace> places, Rank to) {
    Sha256 digest;
    for (const StatePlace& place : places) {
      digest.update(unsigned_bytes(place));
      ByteOperations(flock_).send({DType::uint8, place.bytes.data(), place.bytes.size()}, to, Name(name_));
    }
    flock_.send(as_bytes(digest.finish()), to, Name(name_));
  }
  void receive(std::span<const StatePlace> places, Rank from) {
    Sha256 digest;
    for (const StatePlace& place : places) {
      ByteOperations(flock_)
          .recv({DType::uint8, place.bytes.data(), place.bytes.size()}, from, Name(name_))
          .wait();
      digest.update(unsigned_bytes(place));
    }
    Bytes there(kDigest);
    flock_.recv(there, from, Name(name_));
    check_digest("the model", digest.finish(), {there.begin(), there.end()}, flock_.rank(), from);
  }

 private:
  static std::span<const std::uint8_t> unsigned_bytes(const StatePlace& place) {
    return {reinterpret_cast<const std::uint8_t*>(place.bytes.data()), place.bytes.size()};
  }

  Flock& flock_;
  std::string name_;
};

/// Everything that is transferred, except the optimizer's settings, which determine what state there is.
struct TransferState {
  explicit TransferState(Replica& replica) : model(replica.module), places(model.places) {
    const auto updates = replica.updates();
    for (std::size_t b = 0; b < updates.size(); ++b) {
      std::vector<NamedState> states = updates[b]->state();
      const Bucket& bucket = replica.buckets[b];
      if (bucket.has_master_weights()) states.push_back({"master weights", bucket.x_block()});
      for (const NamedState& state : states) {
        const Buffer bytes = on_host(state.data);
        places.push_back({fmt::format("block {}/{}", b, state.name),
                          name(state.data.dtype),
                          {bytes.host_bytes(), bytes.bytes()}});
      }
    }
    places.push_back({"numbers", "Double", std::as_writable_bytes(std::span(numbers))});
  }
  TransferState(const TransferState&) = delete;
  TransferState& operator=(const TransferState&) = delete;

  /// One line per part, for comparing.
  std::string table() const {
    std::string text;
    for (const StatePlace& place : places)
      text += fmt::format("{}, {} bytes of {}\n", place.name, place.bytes.size(), place.type);
    return text;
  }

  /// Call this after writing to the places: updates the state that they are copies of.
  void written() {
    model.written();
    for (const Copy& copy : copies) kernel::transfer(copy.original, copy.memory.buffer());
  }

  SavedModel model;
  double numbers[4] = {};  // step, loss scale, good steps, steps left in the epoch
  std::vector<StatePlace> places;

 private:
  /// A copy of state on a device.
  struct Copy {
    OwnedBuffer memory;
    Buffer original;
  };

  Buffer on_host(const Buffer& state) {
    if (state.on_host()) return state;
    const Copy& copy = copies.emplace_back(Copy{OwnedBuffer(state.dtype, state.count), state});
    kernel::transfer(copy.memory.buffer(), state);
    return copy.memory.buffer();
  }

  std::vector<Copy> copies;
};

std::string line_at(const std::string& table, std::size_t near) {
  const std::size_t begin = near == 0 ? 0 : table.rfind('\n', near - 1) + 1;
  return table.substr(begin, table.find('\n', near) - begin);
}

}  // namespace

void send_state(Replica& replica, const TrainingStep::Progress& progress, Rank newcomer) {
  const torch::NoGradGuard no_grad;
  std::string optimizer;
  try {
    optimizer = replica.save_optimizer();
  } catch (const InvalidArgument& error) {
    log(LogLevel::normal, fmt::format("rank {} starts with its own optimizer: {}", newcomer, error.what()));
  }
  TransferState state(replica);
  state.numbers[0] = static_cast<double>(replica.driver->step());
  state.numbers[1] = progress.loss_scale;
  state.numbers[2] = progress.good_steps;
  state.numbers[3] = static_cast<double>(progress.epoch_left);
  StateStream stream(replica.flock, replica.options.name, newcomer);
  stream.send_text(optimizer, newcomer);
  stream.send_text(state.table(), newcomer);
  stream.send(state.places, newcomer);
}

void receive_state(Replica& replica, TrainingStep::Progress& progress, Rank from) {
  const torch::NoGradGuard no_grad;
  StateStream stream(replica.flock, replica.options.name, replica.flock.rank());
  const std::string optimizer = stream.receive_text("the optimizer's state", from);
  if (!optimizer.empty()) replica.restore_optimizer(optimizer);
  TransferState state(replica);
  const std::string theirs = stream.receive_text("the list of tensors", from);
  if (const std::string own = state.table(); own != theirs) {
    const auto at = static_cast<std::size_t>(
        std::mismatch(own.begin(), own.end(), theirs.begin(), theirs.end()).first - own.begin());
    throw Error(fmt::format("rank {} trains another model than rank {}: '{}' here, '{}' there",
                            replica.flock.rank(), from, line_at(own, at), line_at(theirs, at)));
  }
  stream.receive(state.places, from);
  state.written();
  replica.driver->set_step(static_cast<Step>(state.numbers[0]));
  progress.loss_scale = state.numbers[1];
  progress.good_steps = static_cast<int>(state.numbers[2]);
  progress.epoch_left = static_cast<std::int64_t>(state.numbers[3]);
}

}  // namespace starling::train
