#include "fabric/served_store.h"

#include <fcntl.h>
#include <stdexcept>
#include <unistd.h>

#include "starling/fabric/network/store/sockets.h"

namespace starling::network {

ServedStore::ServedStore(const StoreLimits& limits, const std::string& address)
    : server_(address, token_, limits) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  leash_ = ends[1];
  thread_ = std::thread([this, end = ends[0]] {
    server_.serve(end);
    close(end);
  });
}

ServedStore::~ServedStore() {
  close(leash_);
  thread_.join();
}

RawConnection::RawConnection(const ServedStore& store) : token_(store.token()) {
  std::string why;
  socket_ = connect_to(store.address(), StoreClock::now() + kLong, why);
  if (!socket_) throw std::runtime_error(why);
  const std::string greeting = hear(kStoreGreeting.size() + kNonce);
  if (!greeting.starts_with(kStoreGreeting)) throw std::runtime_error("no greeting");
  store_nonce_ = greeting.substr(kStoreGreeting.size());
}

void RawConnection::introduce() {
  const std::string nonce = random_nonce();
  say(nonce + proof_of(token_, kClientRole, store_nonce_, nonce));
  if (hear(1 + kProof) != kWelcome + proof_of(token_, kStoreRole, store_nonce_, nonce))
    throw std::runtime_error("the store does not let us in");
}

// The store may have closed it already.
void RawConnection::say(const std::string& bytes) {
  try {
    send_all(socket_.get(), bytes, StoreClock::now() + kLong);
  } catch (const Disconnected&) {
  }
}

std::string RawConnection::hear(std::size_t bytes) {
  std::string heard;
  try {
    while (heard.size() < bytes) heard += receive_all(socket_.get(), 1, StoreClock::now() + kLong);
  } catch (const Disconnected&) {
  }
  return heard;
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

}  // namespace starling::network
