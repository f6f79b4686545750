#include <algorithm>
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "starling/base/hmac.h"
#include "starling/fabric/network/store/server.h"

// Clients that have not authenticated yet. They may come in floods, so everything that is done for them is
// bounded: connections accepted and events handled per iteration, open connections, bytes and time of each.
// Room for a new client is made at the expense of the host with the most unauthenticated ones.

namespace starling::fabric::network {
namespace {

constexpr int kAcceptsPerIteration = 8;
constexpr std::size_t kEventsPerIteration = 16;
constexpr std::chrono::milliseconds kWithoutDescriptors{10};

std::string host_of(const sockaddr_storage& address) {
  const auto bytes = [](const auto& part) {
    return std::string(reinterpret_cast<const char*>(&part), sizeof(part));
  };
  if (address.ss_family == AF_INET6) return bytes(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return bytes(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
}

}  // namespace

void StoreServer::serve_unauthenticated() {
  std::array<epoll_event, kEventsPerIteration> happened{};
  const int count = epoll_wait(unauthenticated_events_.get(), happened.data(), happened.size(), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = happened[static_cast<std::size_t>(i)];
    if (event.data.fd == listener_.socket.get())
      accept_some();
    else
      serve_client(event.data.fd, event.events);
  }
}

void StoreServer::accept_some() {
  for (int i = 0; i < kAcceptsPerIteration; ++i) {
    if (unauthenticated_.size() >= limits_.unauthenticated && !make_room()) return;
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    Descriptor socket(accept4(listener_.socket.get(), reinterpret_cast<sockaddr*>(&address), &size,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) pause_accepting(Clock::now() + kWithoutDescriptors, false);
      return;
    }
    if (clients_.size() < limits_.clients) add_unauthenticated(std::move(socket), host_of(address));
  }
}

// Drops the oldest unauthenticated client of the host that has the most. If even that one is young, pauses
// accepting instead: a client that knows the token needs a moment to prove it.
bool StoreServer::make_room() {
  const auto most = std::ranges::max_element(
      by_address_, {}, &std::unordered_map<std::string, std::size_t>::value_type::second);
  const auto oldest = std::ranges::find_if(
      unauthenticated_, [&](const auto& entry) { return clients_.at(entry.second).address == most->first; });
  Client& client = clients_.at(oldest->second);
  const auto until = client.came + limits_.authentication_grace;
  if (Clock::now() < until) {
    pause_accepting(until, true);
    return false;
  }
  drop(client);
  return true;
}

void StoreServer::pause_accepting(Clock::time_point until, bool full) {
  accepting_paused_ = true;
  too_many_unauthenticated_ = full;
  accepting_resumes_ = until;
  watch_descriptor(unauthenticated_events_.get(), listener_.socket.get(), 0, EPOLL_CTL_MOD);
}

void StoreServer::resume_accepting() {
  const bool room = too_many_unauthenticated_ && unauthenticated_.size() < limits_.unauthenticated;
  if (!accepting_paused_ || (!room && Clock::now() < accepting_resumes_)) return;
  accepting_paused_ = false;
  watch_descriptor(unauthenticated_events_.get(), listener_.socket.get(), EPOLLIN, EPOLL_CTL_MOD);
}

void StoreServer::add_unauthenticated(Descriptor socket, std::string address) {
  const int descriptor = socket.get();
  watch_descriptor(unauthenticated_events_.get(), descriptor, EPOLLIN, EPOLL_CTL_ADD);
  Client& client = clients_[descriptor];
  client.socket = std::move(socket);
  client.nonce = random_nonce();
  client.waiter = waiting_.end();
  client.came = Clock::now();
  client.number = ++came_;
  ++by_address_[address];
  client.address = std::move(address);
  unauthenticated_.emplace(client.number, descriptor);
  set_deadline(client, client.came + limits_.authentication_timeout);
  send(client, std::string(kStoreGreeting) + client.nonce);
}

void StoreServer::forget_unauthenticated(const Client& client) {
  unauthenticated_.erase(client.number);
  const auto found = by_address_.find(client.address);
  if (--found->second == 0) by_address_.erase(found);
}

void StoreServer::authenticate(Client& client) {
  if (client.in.size() < kNonce + kProof) return;
  const std::string_view nonce = std::string_view(client.in).substr(0, kNonce);
  const std::string_view proof = std::string_view(client.in).substr(kNonce);
  if (!equal_in_constant_time(proof, proof_of(token_, kClientRole, client.nonce, nonce))) {
    send(client, kRefused + std::string(kProof, '\0'));
    return drop(client);
  }
  const std::string welcome = kAccepted + proof_of(token_, kStoreRole, client.nonce, nonce);
  forget_unauthenticated(client);
  client.trusted = true;
  watch_descriptor(unauthenticated_events_.get(), client.socket.get(), 0, EPOLL_CTL_DEL);
  watch_descriptor(events_.get(), client.socket.get(), client.watched_for_room ? EPOLLIN | EPOLLOUT : EPOLLIN,
                   EPOLL_CTL_ADD);
  tune(client.socket.get());
  set_deadline(client, Clock::time_point::max());
  client.in.clear();
  send(client, welcome);
}

}  // namespace starling::fabric::network
