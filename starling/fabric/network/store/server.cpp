#include "starling/fabric/network/store/server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>

#include "starling/base/error.h"
#include "starling/base/hmac.h"
#include "starling/fabric/network/store/sockets.h"

namespace starling::network {
namespace {

constexpr std::size_t kFree = 1 << 17;  // bytes of buffers that every client may have, however full the store
constexpr std::chrono::milliseconds kLongestWait{std::chrono::hours(24 * 365)};

void watch(int events, int descriptor, std::uint32_t what, int operation = EPOLL_CTL_ADD) {
  epoll_event event{};
  event.events = what;
  event.data.fd = descriptor;
  if (epoll_ctl(events, operation, descriptor, &event) != 0)
    throw Error(fmt::format("a store cannot watch its connections: {}", std::strerror(errno)));
}

// Whether the other end has let go of the pipe; what it may say is not for us.
bool let_go(int leash) {
  char letter = 0;
  const ssize_t got = read(leash, &letter, 1);
  return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
}

}  // namespace

StoreServer::StoreServer(const std::string& address, std::string token, const StoreLimits& limits)
    : token_(std::move(token)),
      limits_(limits),
      entries_(limits),
      door_(listen_on(address, where_)),
      events_(epoll_create1(EPOLL_CLOEXEC)) {
  if (token_.empty()) throw InvalidArgument("a store needs its job's token");
  watch(events_.get(), door_.get(), EPOLLIN);
}

void StoreServer::serve(int leash) {
  watch(events_.get(), leash, EPOLLIN);
  for (;;) {
    std::array<epoll_event, 64> happened{};
    const int count = epoll_wait(events_.get(), happened.data(), happened.size(), milliseconds_to_deadline());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = happened[static_cast<std::size_t>(i)];
      if (event.data.fd == leash) {
        if (let_go(leash)) return;
      } else if (event.data.fd == door_.get()) {
        accept_all();
      } else if (const auto found = clients_.find(event.data.fd); found != clients_.end()) {
        if ((event.events & EPOLLOUT) != 0) flush(found->second);
        if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(found->second);
      }
    }
    pass_deadlines();
    bury();
  }
}

int StoreServer::milliseconds_to_deadline() const {
  if (deadlines_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadlines_.begin()->first - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

void StoreServer::accept_all() {
  for (;;) {
    launch::Fd socket(accept4(door_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors: the visitor stays at the door, and we must not spin until one is free.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    if (clients_.size() >= limits_.clients) continue;
    tune(socket.get());
    const int descriptor = socket.get();
    watch(events_.get(), descriptor, EPOLLIN);
    Client& client = clients_[descriptor];
    client.socket = std::move(socket);
    client.nonce = random_nonce();
    if (++strangers_ > limits_.strangers) drop_oldest_stranger();
    set_deadline(client, Clock::now() + limits_.patience);
    send(client, std::string(kStoreGreeting) + client.nonce);
  }
}

// Who knows the token needs a moment to prove it; who has stood there for longest is the least likely to.
void StoreServer::drop_oldest_stranger() {
  for (const auto& [deadline, descriptor] : deadlines_) {
    Client& client = clients_.at(descriptor);
    if (client.trusted) continue;
    doom(client);
    return;
  }
}

void StoreServer::read_from(Client& client) {
  std::array<char, 1 << 16> chunk;
  while (!client.doomed) {
    const ssize_t got = recv(client.socket.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    // Nobody may speak while its last question is open.
    if (got <= 0 || client.question || (client.trusted && !client.out.empty())) return doom(client);
    client.in.append(chunk.data(), static_cast<std::size_t>(got));
    count_memory(client);
    if (!client.trusted) {
      authenticate(client);
      continue;
    }
    if (client.in.size() < kLength) continue;
    const std::size_t whole = kLength + read_length(std::string_view(client.in).substr(0, kLength));
    if (whole > limits_.request() || client.in.size() > whole) return doom(client);
    if (client.in.size() < whole) continue;
    auto request = decode_request(std::string_view(client.in).substr(kLength));
    if (!request || !well_formed(*request, limits_)) return doom(client);
    std::string().swap(client.in);
    count_memory(client);
    handle(client, std::move(*request));
  }
}

void StoreServer::authenticate(Client& client) {
  if (client.in.size() < kNonce + kProof) return;
  const std::string_view nonce = std::string_view(client.in).substr(0, kNonce);
  const std::string_view proof = std::string_view(client.in).substr(kNonce);
  if (!equal_in_constant_time(proof, proof_of(token_, kClientRole, client.nonce, nonce))) {
    send(client, kRefused + std::string(kProof, '\0'));
    return doom(client);
  }
  std::string welcome = kWelcome + proof_of(token_, kStoreRole, client.nonce, nonce);
  client.trusted = true;
  --strangers_;
  set_deadline(client, Clock::time_point::max());
  client.in.clear();
  send(client, std::move(welcome));
}

void StoreServer::handle(Client& client, StoreRequest request) {
  if (const auto answer = entries_.answer(request, buffered_)) {
    stop_waiting(client);
    send(client, encode(*answer));
    const bool reads = request.operation == StoreOperation::get || request.operation == StoreOperation::wait;
    if (!reads && !request.keys.empty()) wake(request.keys.front());
    return;
  }
  if (!client.question) {
    const auto limit = std::clamp(request.timeout, std::chrono::milliseconds(0), kLongestWait);
    set_deadline(client, Clock::now() + limit);
  }
  client.place = waiting_.emplace(*entries_.missing(request.keys), client.socket.get());
  client.question = std::move(request);
  count_memory(client);
}

// Everybody who waits for this key and no other gets an answer; the others wait for their next one.
void StoreServer::wake(const std::string& key) {
  if (entries_.missing({key}) != nullptr) return;
  const auto [begin, end] = waiting_.equal_range(key);
  std::vector<int> woken;
  for (auto entry = begin; entry != end; ++entry) woken.push_back(entry->second);
  for (const int descriptor : woken) {
    Client& client = clients_.at(descriptor);
    waiting_.erase(client.place);
    client.place = waiting_.end();
    handle(client, *client.question);
  }
}

void StoreServer::stop_waiting(Client& client) {
  if (!client.question) return;
  if (client.place != waiting_.end()) waiting_.erase(client.place);
  client.question.reset();
  set_deadline(client, Clock::time_point::max());
}

void StoreServer::send(Client& client, const std::string& bytes) {
  client.out += bytes;
  count_memory(client);
  flush(client);
}

void StoreServer::flush(Client& client) {
  if (client.doomed || client.out.empty()) return;
  const std::string_view rest = std::string_view(client.out).substr(client.sent);
  const ssize_t sent = ::send(client.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) return doom(client);
  if (sent > 0) client.sent += static_cast<std::size_t>(sent);
  if (client.sent == client.out.size()) {
    std::string().swap(client.out);
    client.sent = 0;
  }
  watch(events_.get(), client.socket.get(), client.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
  count_memory(client);
}

void StoreServer::count_memory(Client& client) {
  std::size_t bytes = client.in.capacity() + client.out.capacity();
  if (client.question)
    for (const std::string& key : client.question->keys) bytes += sizeof(std::string) + key.capacity();
  buffered_ += bytes - client.counted;
  client.counted = bytes;
  if (bytes > kFree && entries_.bytes() + buffered_ > limits_.memory) doom(client);
}

void StoreServer::set_deadline(Client& client, Clock::time_point deadline) {
  const int descriptor = client.socket.get();
  deadlines_.erase({client.deadline, descriptor});
  client.deadline = deadline;
  if (deadline != Clock::time_point::max()) deadlines_.emplace(deadline, descriptor);
}

// A stranger is dropped, a question that waits is answered.
void StoreServer::pass_deadlines() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= Clock::now()) {
    Client& client = clients_.at(deadlines_.begin()->second);
    if (!client.question) {
      doom(client);
      continue;
    }
    const std::string& missing = *entries_.missing(client.question->keys);
    const std::string answer = encode(StoreAnswer{StoreStatus::timed_out, 0, missing});
    stop_waiting(client);
    send(client, answer);
  }
}

// It goes when nobody looks at it any more.
void StoreServer::doom(Client& client) {
  if (client.doomed) return;
  client.doomed = true;
  if (!client.trusted) --strangers_;
  stop_waiting(client);
  set_deadline(client, Clock::time_point::max());
  doomed_.push_back(client.socket.get());
}

void StoreServer::bury() {
  for (const int descriptor : doomed_) {
    buffered_ -= clients_.at(descriptor).counted;
    clients_.erase(descriptor);
  }
  doomed_.clear();
}

}  // namespace starling::network
