#include "starling/fabric/network/store/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/network/store/sockets.h"

namespace starling::fabric::network {
namespace {

constexpr std::size_t kFreeBuffer =
    1 << 17;  // bytes of buffers that each client may always have, even if the store is full
constexpr std::chrono::milliseconds kLongestWait{std::chrono::hours(24 * 365)};

}  // namespace

void watch_descriptor(int events, int descriptor, std::uint32_t what, int operation) {
  epoll_event event{};
  event.events = what;
  event.data.fd = descriptor;
  if (epoll_ctl(events, operation, descriptor, &event) != 0)
    throw Error(fmt::format("a store cannot monitor its connections: {}", std::strerror(errno)));
}

StoreServer::StoreServer(const std::string& address, std::string token, const StoreLimits& limits)
    : StoreServer(listen_on(address), std::move(token), StoreJournal(), limits) {}

StoreServer::StoreServer(StoreListener listener, std::string token, StoreJournal journal,
                         const StoreLimits& limits)
    : token_(std::move(token)),
      limits_(limits),
      journal_(std::move(journal)),
      entries_(limits,
               [this](const std::string& key, const std::string* value) {
                 if (!replaying_) journal_.write(key, value);
               }),
      listener_(std::move(listener)),
      unauthenticated_events_(epoll_create1(EPOLL_CLOEXEC)),
      events_(epoll_create1(EPOLL_CLOEXEC)) {
  if (token_.empty()) throw InvalidArgument("a store needs its job's token");
  replaying_ = true;
  journal_.replay([this](const std::string& key, const std::string* value) {
    using enum StoreOperation;
    if (value == nullptr)
      entries_.answer({.operation = remove, .keys = {key}});
    else
      entries_.answer({.operation = set, .keys = {key}, .values = {*value}});
  });
  replaying_ = false;
  watch_descriptor(unauthenticated_events_.get(), listener_.socket.get(), EPOLLIN, EPOLL_CTL_ADD);
  watch_descriptor(events_.get(), unauthenticated_events_.get(), EPOLLIN, EPOLL_CTL_ADD);
}

// Serves authenticated clients first, then a bounded number of events of the others.
void StoreServer::serve(int control) {
  watch_descriptor(events_.get(), control, EPOLLIN, EPOLL_CTL_ADD);
  for (;;) {
    std::array<epoll_event, 64> happened{};
    const int count = epoll_wait(events_.get(), happened.data(), happened.size(), milliseconds_to_deadline());
    bool others = false;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = happened[static_cast<std::size_t>(i)];
      if (event.data.fd == control) {
        if (!read_commands(control)) return;
      } else if (event.data.fd == unauthenticated_events_.get()) {
        others = true;
      } else {
        serve_client(event.data.fd, event.events);
      }
    }
    if (others) serve_unauthenticated();
    pass_deadlines();
    erase_dropped();
    resume_accepting();
  }
}

void StoreServer::serve_client(int descriptor, std::uint32_t events) {
  const auto found = clients_.find(descriptor);
  if (found == clients_.end()) return;
  if ((events & EPOLLOUT) != 0) flush(found->second);
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(found->second);
}

// Lines KEY=VALUE set a key. False when the other end is closed.
bool StoreServer::read_commands(int control) {
  std::array<char, 4096> chunk;
  const ssize_t got = read(control, chunk.data(), chunk.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  commands_.append(chunk.data(), static_cast<std::size_t>(got));
  for (std::size_t end = 0; (end = commands_.find('\n')) != std::string::npos; commands_.erase(0, end + 1)) {
    const std::size_t sign = commands_.find('=');
    if (sign >= end) continue;
    const std::string key = commands_.substr(0, sign);
    entries_.answer({.operation = StoreOperation::set,
                     .keys = {key},
                     .values = {commands_.substr(sign + 1, end - sign - 1)}},
                    buffered_);
    wake(key);
  }
  if (commands_.size() > limits_.key + limits_.value) commands_.clear();
  return true;
}

int StoreServer::milliseconds_to_deadline() const {
  auto next = deadlines_.empty() ? Clock::time_point::max() : deadlines_.begin()->first;
  if (accepting_paused_) next = std::min(next, accepting_resumes_);
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

void StoreServer::read_from(Client& client) {
  std::array<char, 1 << 16> chunk;
  while (!client.dropped) {
    const std::size_t most = client.trusted ? chunk.size() : kNonce + kProof - client.in.size();
    const ssize_t got = recv(client.socket.get(), chunk.data(), most, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    // A client must not send anything while its last request is unanswered.
    if (got <= 0 || client.request || (client.trusted && !client.out.empty())) return drop(client);
    client.in.append(chunk.data(), static_cast<std::size_t>(got));
    count_memory(client);
    if (!client.trusted) {
      authenticate(client);
      continue;
    }
    if (client.in.size() < kLength) continue;
    const std::size_t whole = kLength + read_length(std::string_view(client.in).substr(0, kLength));
    if (whole > limits_.request() || client.in.size() > whole) return drop(client);
    if (client.in.size() < whole) continue;
    auto request = decode_request(std::string_view(client.in).substr(kLength));
    if (!request || !well_formed(*request, limits_)) return drop(client);
    std::string().swap(client.in);
    count_memory(client);
    handle(client, std::move(*request));
  }
}

void StoreServer::handle(Client& client, StoreRequest request) {
  if (const auto answer = entries_.answer(request, buffered_)) {
    stop_waiting(client);
    send(client, encode(*answer));
    const bool reads = request.operation == StoreOperation::get || request.operation == StoreOperation::wait;
    if (!reads && !request.keys.empty()) wake(request.keys.front());
    return;
  }
  if (!client.request) {
    const auto limit = std::clamp(request.timeout, std::chrono::milliseconds(0), kLongestWait);
    set_deadline(client, Clock::now() + limit);
  }
  client.waiter = waiting_.emplace(*entries_.missing(request.keys), client.socket.get());
  client.request = std::move(request);
  count_memory(client);
}

// Answers all clients that only wait for this key; the others then wait for their next missing key.
void StoreServer::wake(const std::string& key) {
  if (entries_.missing({key}) != nullptr) return;
  const auto [begin, end] = waiting_.equal_range(key);
  std::vector<int> woken;
  for (auto entry = begin; entry != end; ++entry) woken.push_back(entry->second);
  for (const int descriptor : woken) {
    Client& client = clients_.at(descriptor);
    waiting_.erase(client.waiter);
    client.waiter = waiting_.end();
    handle(client, *client.request);
  }
}

void StoreServer::stop_waiting(Client& client) {
  if (!client.request) return;
  if (client.waiter != waiting_.end()) waiting_.erase(client.waiter);
  client.request.reset();
  set_deadline(client, Clock::time_point::max());
}

void StoreServer::send(Client& client, const std::string& bytes) {
  client.out += bytes;
  count_memory(client);
  flush(client);
}

void StoreServer::flush(Client& client) {
  if (client.dropped || client.out.empty()) return;
  const std::string_view rest = std::string_view(client.out).substr(client.sent);
  const ssize_t sent = ::send(client.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return drop(client);
  if (sent > 0) client.sent += static_cast<std::size_t>(sent);
  if (client.sent == client.out.size()) {
    std::string().swap(client.out);
    client.sent = 0;
  }
  if (client.watched_for_room == client.out.empty()) {
    client.watched_for_room = !client.out.empty();
    watch_descriptor(client.trusted ? events_.get() : unauthenticated_events_.get(), client.socket.get(),
                     client.watched_for_room ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
  }
  count_memory(client);
}

void StoreServer::count_memory(Client& client) {
  std::size_t bytes = client.in.capacity() + client.out.capacity();
  if (client.request)
    for (const std::string& key : client.request->keys) bytes += sizeof(std::string) + key.capacity();
  buffered_ += bytes - client.counted;
  client.counted = bytes;
  if (bytes > kFreeBuffer && entries_.bytes() + buffered_ > limits_.memory) drop(client);
}

void StoreServer::set_deadline(Client& client, Clock::time_point deadline) {
  const int descriptor = client.socket.get();
  deadlines_.erase({client.deadline, descriptor});
  client.deadline = deadline;
  if (deadline != Clock::time_point::max()) deadlines_.emplace(deadline, descriptor);
}

// Drops clients that did not authenticate in time, and answers requests whose wait timed out.
void StoreServer::pass_deadlines() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= Clock::now()) {
    Client& client = clients_.at(deadlines_.begin()->second);
    if (!client.request) {
      drop(client);
      continue;
    }
    const std::string& missing = *entries_.missing(client.request->keys);
    const std::string answer = encode(StoreAnswer{StoreStatus::timed_out, 0, missing});
    stop_waiting(client);
    send(client, answer);
  }
}

// Only marks the client; erase_dropped() removes it when no caller uses it any more.
void StoreServer::drop(Client& client) {
  if (client.dropped) return;
  client.dropped = true;
  if (!client.trusted) forget_unauthenticated(client);
  stop_waiting(client);
  set_deadline(client, Clock::time_point::max());
  dropped_.push_back(client.socket.get());
}

void StoreServer::erase_dropped() {
  for (const int descriptor : dropped_) {
    buffered_ -= clients_.at(descriptor).counted;
    clients_.erase(descriptor);
  }
  dropped_.clear();
}

}  // namespace starling::fabric::network
