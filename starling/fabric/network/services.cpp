#include "starling/fabric/network/services.h"

#include <fmt/format.h>
#include <thread>

#include "starling/record/log.h"

namespace starling::network {
namespace {

constexpr std::size_t kMostOnTheWay = std::size_t{16} << 20;  // bytes to one rank before more has to wait
constexpr std::chrono::microseconds kRoomLook{50};

}  // namespace

std::uint64_t NetworkServices::serve(Service service) {
  const std::lock_guard lock(mutex_);
  services_.emplace(++served_, std::move(service));
  return served_;
}

void NetworkServices::end(std::uint64_t service) {
  const std::lock_guard lock(mutex_);
  services_.erase(service);
}

void NetworkServices::send(FrameKind kind, std::uint64_t service, std::uint64_t number,
                           const Outgoing& message, Rank to) {
  Frame frame;
  frame.kind = kind;
  frame.topic = static_cast<std::uint32_t>(service);
  frame.number = number;
  const Slice part = message ? *static_cast<Slice*>(message.handle()) : Slice();
  frame.message.bytes = part.bytes;
  wire_.send(to, frame, part);
}

void NetworkServices::tell(const Outgoing& message, std::uint64_t service, Rank to) {
  if (alive_(to)) send(FrameKind::tell, service, 0, message, to);
}

std::optional<Arrival> NetworkServices::ask(const Outgoing& question, std::uint64_t service, Rank to,
                                            Deadline deadline) {
  if (!alive_(to)) return std::nullopt;
  const std::uint64_t number = questions_.open();
  send(FrameKind::call, service, number, question, to);
  auto answer = questions_.answer(to, number, deadline);
  if (!answer) return std::nullopt;
  auto* held = new Slice(std::move(*answer));
  return Arrival(this, to, held, MessageHeader(), {held->data(), held->bytes});
}

bool NetworkServices::await_room(Rank to, Deadline deadline) const {
  while (alive_(to) && wire_.bytes_on_the_way(to) > kMostOnTheWay) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kRoomLook);
  }
  return true;
}

void NetworkServices::called(Rank from, const Frame& frame, const Slice& payload) {
  FrameKind kind = FrameKind::refusal;
  Outgoing answer;
  {
    const std::shared_lock lock(mutex_);
    const auto found = services_.find(frame.topic);
    if (found != services_.end()) {
      try {
        answer = found->second(from, {payload.data(), payload.bytes});
        kind = FrameKind::answer;
      } catch (const std::exception& error) {
        log(LogLevel::normal, fmt::format("what rank {} asked for failed: {}", from, error.what()));
      }
    }
  }
  if (frame.kind == FrameKind::call) send(kind, 0, frame.number, answer, from);
}

}  // namespace starling::network
