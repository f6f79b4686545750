#include "fabric/served_store.h"

#include <fcntl.h>
#include <stdexcept>
#include <unistd.h>

#include "starling/fabric/network/store/sockets.h"

namespace starling::fabric::network {

ServedStore::ServedStore(const StoreLimits& limits, const std::string& address)
    : server_(address, token_, limits) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  control_ = ends[1];
  thread_ = std::thread([this, end = ends[0]] {
    server_.serve(end);
    close(end);
  });
}

ServedStore::~ServedStore() {
  close(control_);
  thread_.join();
}

RawConnection::RawConnection(const ServedStore& store) : token_(store.token()) {
  std::string why;
  socket_ = connect_to(store.address(), StoreClock::now() + kLong, why);
  if (!socket_) throw std::runtime_error(why);
  const std::string greeting = receive(kStoreGreeting.size() + kNonce);
  if (!greeting.starts_with(kStoreGreeting)) throw std::runtime_error("no greeting");
  store_nonce_ = greeting.substr(kStoreGreeting.size());
}

void RawConnection::authenticate() {
  const std::string nonce = random_nonce();
  send(nonce + proof_of(token_, kClientRole, store_nonce_, nonce));
  if (receive(1 + kProof) != kAccepted + proof_of(token_, kStoreRole, store_nonce_, nonce))
    throw std::runtime_error("the store rejected the proof");
}

// The store may have closed it already.
void RawConnection::send(const std::string& bytes) {
  try {
    send_all(socket_.get(), bytes, StoreClock::now() + kLong);
  } catch (const Disconnected&) {
  }
}

std::string RawConnection::receive(std::size_t bytes) {
  std::string received;
  try {
    while (received.size() < bytes) received += receive_all(socket_.get(), 1, StoreClock::now() + kLong);
  } catch (const Disconnected&) {
  }
  return received;
}

bool RawConnection::dropped() {
  try {
    receive_all(socket_.get(), 1, StoreClock::now() + std::chrono::seconds(5));
    return false;
  } catch (const Disconnected&) {
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace starling::fabric::network
