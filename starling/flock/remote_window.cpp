#include "starling/flock/remote_window.h"

#include <cstring>
#include <fmt/format.h>

#include "starling/flock/errors.h"
#include "starling/kernel/copy.h"

namespace starling::flock {
namespace {

constexpr std::chrono::milliseconds kLockPatience{
    100};  // after this time a rank that waits for a mutex checks whether the holder is alive

enum class Request : std::uint32_t { deposit, read, average_with, progress, lock, unlock };

/// Precedes a value, in both directions; as long as a cache line, so that values are aligned.
struct Note {
  Request request = Request::deposit;
  std::uint32_t flag = 0;  // add; look; a value follows
  double weight = 0;
  double p = 0;
  std::int64_t number = 0;  // stamp; steps; holder
  std::uint64_t unused[4] = {};
};
static_assert(sizeof(Note) == 64);

Outgoing written(Fabric& fabric, const Note& note, std::size_t bytes = 0) {
  Outgoing message = fabric.reserve(sizeof(note) + bytes);
  std::memcpy(message.bytes().data(), &note, sizeof(note));
  return message;
}

Note note_of(std::span<const std::byte> message) {
  Note note;
  if (message.size() < sizeof(note))
    throw Error(fmt::format("a window's message has {} bytes, too few", message.size()));
  std::memcpy(&note, message.data(), sizeof(note));
  return note;
}

}  // namespace

WindowService::WindowService(const std::shared_ptr<Fabric>& fabric, WindowShape shape, const WindowPart& own)
    : fabric_(fabric), shape_(std::move(shape)) {
  for (const Rank member : shape_.members)
    if (member != own.owner) remote_peers_.try_emplace(member, fabric_, shape_, own, member);
  number_ = fabric_->remote_calls()->add_handler(
      [this](Rank from, std::span<const std::byte> said) { return answer(from, said); });
}

WindowService::~WindowService() {
  fabric_->remote_calls()->remove_handler(number_);
  for (auto& [rank, peer] : remote_peers_) peer.window.withdraw();
}

Outgoing WindowService::answer(Rank from, std::span<const std::byte> said) {
  const Note note = note_of(said);
  RemotePeer& peer = remote_peers_.at(from);
  const bool has_value = note.request == Request::deposit || note.request == Request::average_with;
  if (said.size() != sizeof(note) + (has_value ? shape_.value.bytes() : 0))
    throw Error(fmt::format("a window's message has {} bytes", said.size()));
  const auto value = shape_.value.at<const void>(said.data() + sizeof(note));
  Note reply;
  switch (note.request) {
    case Request::deposit:
      peer.window.deposit({value, note.weight, note.p, note.number, note.flag != 0});
      return {};
    case Request::read: {
      Outgoing message;
      peer.window.read([&](const ConstBuffer& tensor, double p, Step stamp) {
        reply.flag = 1;
        reply.p = p;
        reply.number = stamp;
        message = written(*fabric_, reply, tensor.bytes());
        copy_bytes(message.bytes().data() + sizeof(reply), tensor);
      });
      return message ? std::move(message) : written(*fabric_, reply);
    }
    case Request::average_with: {
      Outgoing message = fabric_->reserve(sizeof(reply) + value.bytes());
      reply.number = *peer.window.average_with(value, note.weight,
                                               message.buffer(value.dtype, value.count, sizeof(reply)));
      std::memcpy(message.bytes().data(), &reply, sizeof(reply));
      return message;
    }
    case Request::progress:
      peer.progress.store(note.number, std::memory_order_release);
      return {};
    case Request::lock: {
      const auto holder = peer.window.lock(note.flag != 0);
      reply.flag = holder ? 1 : 0;
      reply.number = holder.value_or(0);
      return written(*fabric_, reply);
    }
    case Request::unlock:
      peer.window.unlock();
      return {};
  }
  throw Error("a window's message of an unknown kind");
}

RemoteWindow::RemoteWindow(std::shared_ptr<Fabric> fabric, const WindowShape& shape,
                           RemoteWindowOptions options, Rank peer, std::uint64_t service, bool has_slot,
                           const std::atomic<Step>& progress)
    : fabric_(std::move(fabric)),
      services_(*fabric_->remote_calls()),
      value_(shape.value),
      options_(std::move(options)),
      peer_(peer),
      service_(service),
      has_slot_(has_slot),
      progress_(progress) {}

std::optional<Arrival> RemoteWindow::ask(const Outgoing& question) const {
  const Deadline until = deadline();
  auto answer = services_.call(question, service_, peer_, until);
  if (!answer && fabric_->alive(peer_) && std::chrono::steady_clock::now() >= until)
    throw TimedOut(
        fmt::format("{}: rank {} has not answered for longer than the timeout", options_.window, peer_));
  return answer;
}

// Waits only if this rank is far ahead of a peer that does not process its deposits.
void RemoteWindow::deposit(const Deposit& given) {
  if (!services_.wait_for_room(peer_, deadline()))
    throw TimedOut(fmt::format("{}: rank {} has not taken what was put for longer than the timeout",
                               options_.window, peer_));
  if (!fabric_->alive(peer_)) return;
  const Outgoing message =
      written(*fabric_, {Request::deposit, given.add ? 1U : 0U, given.weight, given.p, given.stamp},
              given.value.bytes());
  copy_bytes(message.bytes().data() + sizeof(Note), given.value);
  services_.notify(message, service_, peer_);
}

WindowTransport::Reading RemoteWindow::read(const Reader& reader) {
  const auto answer = ask(written(*fabric_, {Request::read}));
  if (!answer) return Reading::lost;
  const Note note = note_of(answer->bytes());
  if (note.flag == 0) return Reading::not_readable;
  reader(value_.at<const void>(answer->bytes().data() + sizeof(note)), note.p, note.number);
  return Reading::done;
}

std::optional<Step> RemoteWindow::average_with(ConstBuffer mine, double weight, Buffer moved) {
  const Outgoing question = written(*fabric_, {Request::average_with, 0, weight}, mine.bytes());
  copy_bytes(question.bytes().data() + sizeof(Note), mine);
  const auto answer = ask(question);
  if (!answer) return std::nullopt;
  copy_bytes(moved.host_data(), answer->bytes().data() + sizeof(Note), moved.bytes());
  return note_of(answer->bytes()).number;
}

void RemoteWindow::tell_progress(Step steps) {
  services_.notify(written(*fabric_, {Request::progress, 0, 0, 0, steps}), service_, peer_);
}

std::optional<Rank> RemoteWindow::lock(bool look) {
  const auto answer = services_.call(written(*fabric_, {Request::lock, look ? 1U : 0U}), service_, peer_,
                                     std::chrono::steady_clock::now() + kLockPatience);
  if (!answer) {
    if (!fabric_->alive(peer_)) throw PeerLost(peer_, options_.window, 0);
    unlock();  // the peer may grant the mutex when it continues
    return peer_;
  }
  const Note note = note_of(answer->bytes());
  if (note.flag == 0) return std::nullopt;
  return static_cast<Rank>(note.number);
}

void RemoteWindow::unlock() {
  services_.notify(written(*fabric_, {Request::unlock}), service_, peer_);
}

}  // namespace starling::flock
