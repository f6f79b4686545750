#include "starling/fabric/network/store/client.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/forks.h"
#include "starling/base/hmac.h"

namespace starling::fabric::network {
namespace {

constexpr int kAttempts = 3;
constexpr std::chrono::milliseconds kGrace{
    5000};  // added to a wait: the store itself reports timeouts, unless it hangs

// Both sides prove that they know the token. Throws Disconnected if the store closes the connection.
void authenticate(int socket, const std::string& token, StoreClock::time_point deadline) {
  const std::string greeting = receive_all(socket, kStoreGreeting.size() + kNonce, deadline);
  if (!greeting.starts_with(kStoreGreeting)) throw Error("the service there is not a Starling store");
  const std::string_view store_nonce = std::string_view(greeting).substr(kStoreGreeting.size());
  const std::string nonce = random_nonce();
  send_all(socket, nonce + proof_of(token, kClientRole, store_nonce, nonce), deadline);
  const std::string reply = receive_all(socket, 1 + kProof, deadline);
  if (reply.front() != kAccepted)
    throw Error("it rejected this job's token (STARLING_JOB), which differs from its own");
  if (!equal_in_constant_time(std::string_view(reply).substr(1),
                              proof_of(token, kStoreRole, store_nonce, nonce)))
    throw Error("it does not know this job's token (STARLING_JOB): it is not the store of this job");
}

std::string describe(const StoreRequest& request) {
  constexpr const char* kNames[] = {"set", "get", "wait for", "add to", "compare and set", "check", "remove"};
  if (request.operation == StoreOperation::count) return "count keys";
  const std::string more =
      request.keys.size() > 1 ? fmt::format(" and {} more", request.keys.size() - 1) : "";
  return fmt::format("{} '{}'{}", kNames[static_cast<std::size_t>(request.operation)],
                     request.keys.empty() ? "" : request.keys.front(), more);
}

}  // namespace

StoreClient::StoreClient(const std::string& where, std::string token, std::chrono::milliseconds timeout)
    : where_(read_store_address(where)), token_(std::move(token)), timeout_(timeout) {
  idle_.push_back(connect(true));
}

// Retries, because the store may drop this client among too many others, and may not listen yet at first.
Descriptor StoreClient::connect(bool first) const {
  const auto deadline = StoreClock::now() + timeout_;
  std::string why;
  try {
    for (;;) {
      Descriptor socket = connect_to(where_, deadline, why);
      try {
        if (socket) {
          authenticate(socket.get(), token_, deadline);
          return socket;
        }
      } catch (const Disconnected& error) {
        why = error.what();
      }
      const auto pause = std::chrono::milliseconds(50);
      if ((!socket && !first) || StoreClock::now() + pause > deadline) break;
      std::this_thread::sleep_for(pause);
    }
  } catch (const Error& error) {
    why = error.what();
  }
  throw Error(fmt::format("cannot connect to the store at {}: {}", where_.text(), why));
}

Descriptor StoreClient::take_connection() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Descriptor taken = std::move(idle_.back());
      idle_.pop_back();
      return taken;
    }
  }
  return connect(false);
}

void StoreClient::drop_idle() {
  const std::lock_guard lock(mutex_);
  idle_.clear();
}

StoreAnswer StoreClient::exchange(int socket, const StoreRequest& request,
                                  StoreClock::time_point deadline) const {
  std::optional<StoreAnswer> answer;
  send_all(socket, encode(request), deadline);
  const std::size_t length = read_length(receive_all(socket, kLength, deadline));
  if (length <= limits_.request()) answer = decode_answer(receive_all(socket, length, deadline));
  if (!answer) throw Error("it sent a malformed answer");
  return *answer;
}

StoreAnswer StoreClient::send(const StoreRequest& request) {
  if (!well_formed(request, limits_))
    throw InvalidArgument(
        fmt::format("the store at {} takes keys of up to {} and values of up to {} bytes; cannot {}",
                    where_.text(), limits_.key, limits_.value, describe(request)));
  const auto fail = [&](const std::string& why) {
    return Error(fmt::format("the store at {} failed to {}: {}", where_.text(), describe(request), why));
  };
  const bool waits = request.operation == StoreOperation::get || request.operation == StoreOperation::wait;
  const auto deadline = StoreClock::now() + (waits ? request.timeout + kGrace : timeout_);
  StoreRequest remaining = request;
  StoreAnswer answer;
  Descriptor socket = take_connection();
  for (int attempt = 1;; ++attempt) {
    try {
      answer = exchange(socket.get(), remaining, deadline);
      break;
    } catch (const Disconnected& error) {
      drop_idle();  // the store's process died, and all connections with it
      if (attempt == kAttempts) throw fail(error.what());
      try {
        socket = connect(false);
      } catch (const Error& gone) {
        throw fail(fmt::format("{}; {}", error.what(), gone.what()));
      }
      remaining.timeout = std::max(
          std::chrono::milliseconds(0),
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - kGrace - StoreClock::now()));
    } catch (const Error& error) {
      throw fail(error.what());
    }
  }
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
  }
  if (answer.status == StoreStatus::timed_out)
    throw Error(fmt::format("the store at {} has no key '{}' after {} s", where_.text(), answer.value,
                            static_cast<double>(request.timeout.count()) / 1000));
  if (answer.status == StoreStatus::failed) throw fail(answer.value);
  return answer;
}

// The connection stays open as long as the store's process lives.
std::string StoreClient::wait_for_end(int end) const {
  try {
    for (;;) {
      const Descriptor socket = connect(false);
      pollfd entries[2] = {{socket.get(), POLLIN, 0}, {end, POLLIN, 0}};
      while (poll(entries, 2, -1) < 0 && errno == EINTR) {
      }
      if (entries[1].revents != 0) return "";
    }
  } catch (const Error& error) {
    return error.what();
  }
}

void StoreClient::set(const std::string& key, const std::string& value) {
  send({.operation = StoreOperation::set, .keys = {key}, .values = {value}});
}

std::string StoreClient::get(const std::string& key, std::chrono::milliseconds timeout) {
  return send({.operation = StoreOperation::get, .timeout = timeout, .keys = {key}}).value;
}

void StoreClient::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  send({.operation = StoreOperation::wait, .timeout = timeout, .keys = keys});
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t number) {
  return send({.operation = StoreOperation::add, .number = number, .keys = {key}}).number;
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& desired) {
  return send({.operation = StoreOperation::compare_set, .keys = {key}, .values = {expected, desired}}).value;
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  return send({.operation = StoreOperation::check, .keys = keys}).number != 0;
}

bool StoreClient::remove(const std::string& key) {
  return send({.operation = StoreOperation::remove, .keys = {key}}).number != 0;
}

std::int64_t StoreClient::count() {
  return send({.operation = StoreOperation::count}).number;
}

StoreWatch::StoreWatch(std::shared_ptr<const StoreClient> client,
                       std::function<void(const std::string&)> gone)
    : forks_(forks_so_far()) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  end_ = Descriptor(ends[1]);
  auto end = std::make_shared<Descriptor>(ends[0]);
  thread_ = std::thread([client = std::move(client), gone = std::move(gone), end] {
    if (const std::string why = client->wait_for_end(end->get()); !why.empty()) gone(why);
  });
}

// The thread does not exist in a forked child.
StoreWatch::~StoreWatch() {
  end_.reset();
  forks_so_far() == forks_ ? thread_.join() : thread_.detach();
}

}  // namespace starling::fabric::network
