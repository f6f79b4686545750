#include <algorithm>
#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "starling/base/hmac.h"
#include "starling/fabric/network/store/server.h"

// Clients that have not proved yet that they know the token. They may be a flood, so everything that is done
// for them is bounded: connections accepted and events handled per turn, connections that are open, bytes of
// each, time of each. Room for a newcomer is made at the expense of the host that has the most of them.

namespace starling::network {
namespace {

constexpr int kAcceptsPerTurn = 8;
constexpr std::size_t kEventsPerTurn = 16;
constexpr std::chrono::milliseconds kWithoutDescriptors{10};

std::string host_of(const sockaddr_storage& address) {
  const auto bytes = [](const auto& part) {
    return std::string(reinterpret_cast<const char*>(&part), sizeof(part));
  };
  if (address.ss_family == AF_INET6) return bytes(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return bytes(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
}

}  // namespace

void StoreServer::serve_lobby() {
  std::array<epoll_event, kEventsPerTurn> happened{};
  const int count = epoll_wait(lobby_.get(), happened.data(), happened.size(), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = happened[static_cast<std::size_t>(i)];
    if (event.data.fd == listener_.socket.get())
      accept_some();
    else
      serve_client(event.data.fd, event.events);
  }
}

void StoreServer::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (strangers_.size() >= limits_.strangers && !make_room()) return;
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    launch::Fd socket(accept4(listener_.socket.get(), reinterpret_cast<sockaddr*>(&address), &size,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) close_door(Clock::now() + kWithoutDescriptors, false);
      return;
    }
    if (clients_.size() < limits_.clients) add_stranger(std::move(socket), host_of(address));
  }
}

// Drops the oldest stranger of the host that has the most of them. Where even that one is young, the door is
// closed for a moment: a client that knows the token needs a moment to prove it.
bool StoreServer::make_room() {
  const auto most = std::ranges::max_element(
      by_address_, {}, &std::unordered_map<std::string, std::size_t>::value_type::second);
  const auto oldest = std::ranges::find_if(
      strangers_, [&](const auto& entry) { return clients_.at(entry.second).address == most->first; });
  Client& client = clients_.at(oldest->second);
  const auto until = client.came + limits_.least;
  if (Clock::now() < until) {
    close_door(until, true);
    return false;
  }
  doom(client);
  return true;
}

void StoreServer::close_door(Clock::time_point until, bool full) {
  door_closed_ = true;
  lobby_full_ = full;
  door_opens_ = until;
  watch_descriptor(lobby_.get(), listener_.socket.get(), 0, EPOLL_CTL_MOD);
}

void StoreServer::open_door_again() {
  const bool room = lobby_full_ && strangers_.size() < limits_.strangers;
  if (!door_closed_ || (!room && Clock::now() < door_opens_)) return;
  door_closed_ = false;
  watch_descriptor(lobby_.get(), listener_.socket.get(), EPOLLIN, EPOLL_CTL_MOD);
}

void StoreServer::add_stranger(launch::Fd socket, std::string address) {
  const int descriptor = socket.get();
  watch_descriptor(lobby_.get(), descriptor, EPOLLIN, EPOLL_CTL_ADD);
  Client& client = clients_[descriptor];
  client.socket = std::move(socket);
  client.nonce = random_nonce();
  client.place = waiting_.end();
  client.came = Clock::now();
  client.number = ++came_;
  ++by_address_[address];
  client.address = std::move(address);
  strangers_.emplace(client.number, descriptor);
  set_deadline(client, client.came + limits_.patience);
  send(client, std::string(kStoreGreeting) + client.nonce);
}

void StoreServer::forget_stranger(const Client& client) {
  strangers_.erase(client.number);
  const auto found = by_address_.find(client.address);
  if (--found->second == 0) by_address_.erase(found);
}

void StoreServer::authenticate(Client& client) {
  if (client.in.size() < kNonce + kProof) return;
  const std::string_view nonce = std::string_view(client.in).substr(0, kNonce);
  const std::string_view proof = std::string_view(client.in).substr(kNonce);
  if (!equal_in_constant_time(proof, proof_of(token_, kClientRole, client.nonce, nonce))) {
    send(client, kRefused + std::string(kProof, '\0'));
    return doom(client);
  }
  const std::string welcome = kWelcome + proof_of(token_, kStoreRole, client.nonce, nonce);
  forget_stranger(client);
  client.trusted = true;
  watch_descriptor(lobby_.get(), client.socket.get(), 0, EPOLL_CTL_DEL);
  watch_descriptor(events_.get(), client.socket.get(), client.watched_for_room ? EPOLLIN | EPOLLOUT : EPOLLIN,
                   EPOLL_CTL_ADD);
  tune(client.socket.get());
  set_deadline(client, Clock::time_point::max());
  client.in.clear();
  send(client, welcome);
}

}  // namespace starling::network
