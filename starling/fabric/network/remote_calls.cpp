#include "starling/fabric/network/remote_calls.h"

#include <fmt/format.h>
#include <thread>

#include "starling/record/log.h"

namespace starling::fabric::network {
namespace {

constexpr std::size_t kMostInFlight = std::size_t{16} << 20;  // bytes to one rank; more must wait
constexpr std::chrono::microseconds kRoomCheckInterval{50};

}  // namespace

std::uint64_t NetworkRemoteCalls::add_handler(Handler handler) {
  const std::lock_guard lock(mutex_);
  handlers_.emplace(++last_handler_, std::move(handler));
  return last_handler_;
}

void NetworkRemoteCalls::remove_handler(std::uint64_t handler) {
  const std::lock_guard lock(mutex_);
  handlers_.erase(handler);
}

void NetworkRemoteCalls::send(FrameKind kind, std::uint64_t handler, std::uint64_t number,
                              const Outgoing& message, Rank to) {
  Frame frame;
  frame.kind = kind;
  frame.topic = static_cast<std::uint32_t>(handler);
  frame.number = number;
  const Slice part = message ? *static_cast<Slice*>(message.handle()) : Slice();
  frame.message.bytes = part.bytes;
  transport_.send(to, frame, part);
}

void NetworkRemoteCalls::notify(const Outgoing& arguments, std::uint64_t handler, Rank to) {
  if (alive_(to)) send(FrameKind::notify, handler, 0, arguments, to);
}

std::optional<Arrival> NetworkRemoteCalls::call(const Outgoing& arguments, std::uint64_t handler, Rank to,
                                                Deadline deadline) {
  if (!alive_(to)) return std::nullopt;
  const std::uint64_t number = requests_.open();
  send(FrameKind::call, handler, number, arguments, to);
  auto answer = requests_.wait_for_answer(to, number, deadline);
  if (!answer) return std::nullopt;
  auto* held = new Slice(std::move(*answer));
  return Arrival(this, to, held, MessageHeader(), {held->data(), held->bytes});
}

bool NetworkRemoteCalls::wait_for_room(Rank to, Deadline deadline) const {
  while (alive_(to) && transport_.bytes_in_flight(to) > kMostInFlight) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kRoomCheckInterval);
  }
  return true;
}

void NetworkRemoteCalls::called(Rank from, const Frame& frame, const Slice& payload) {
  FrameKind kind = FrameKind::refusal;
  Outgoing answer;
  {
    const std::shared_lock lock(mutex_);
    const auto found = handlers_.find(frame.topic);
    if (found != handlers_.end()) {
      try {
        answer = found->second(from, {payload.data(), payload.bytes});
        kind = FrameKind::answer;
      } catch (const std::exception& error) {
        log(LogLevel::normal, fmt::format("a remote call from rank {} failed: {}", from, error.what()));
      }
    }
  }
  if (frame.kind == FrameKind::call) send(kind, 0, frame.number, answer, from);
}

}  // namespace starling::fabric::network
