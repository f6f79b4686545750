#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "starling/base/os/descriptor.h"
#include "starling/fabric/network/store/entries.h"
#include "starling/fabric/network/store/journal.h"
#include "starling/fabric/network/store/sockets.h"

namespace starling::fabric::network {

/// The rendezvous store of a job: a small key-value store for clients that know the job's token. A client
/// that does not, or that violates the protocol, is dropped. Authenticated clients are served before all
/// others, and the work for the others is bounded per iteration, so that a flood of connections does not
/// delay the job. One thread.
class StoreServer {
 public:
  /// Listens on exactly this IPv4 or IPv6 address, on a free port. Throws InvalidArgument if it is not an
  /// address or is the wildcard address, and Error with the system's reason.
  StoreServer(const std::string& address, std::string token, const StoreLimits& limits = {});

  /// Serves on an existing listening socket, with the entries of the journal.
  StoreServer(StoreListener listener, std::string token, StoreJournal journal,
              const StoreLimits& limits = {});
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  const StoreAddress& where() const { return listener_.where; }

  /// Serves until the other end of the pipe `control` is closed. A line KEY=VALUE from it sets a key.
  void serve(int control);

 private:
  using Clock = std::chrono::steady_clock;
  using Waiters = std::multimap<std::string, int>;

  struct Client {
    Descriptor socket;
    std::string nonce;
    bool trusted = false;
    bool dropped = false;
    bool watched_for_room = false;  // to send
    std::string address;            // of its host
    std::uint64_t number = 0;       // key in unauthenticated_
    Clock::time_point came;
    std::string in;
    std::string out;
    std::size_t sent = 0;                 // of `out`
    std::size_t counted = 0;              // bytes of its buffers in buffered_
    std::optional<StoreRequest> request;  // waits for keys
    Waiters::iterator waiter;             // in waiting_, for the first missing key
    Clock::time_point deadline = Clock::time_point::max();
  };

  // Clients that have not authenticated: server_authentication.cpp.
  void serve_unauthenticated();
  void accept_some();
  bool make_room();
  void pause_accepting(Clock::time_point until, bool full);
  void resume_accepting();
  void add_unauthenticated(Descriptor socket, std::string address);
  void forget_unauthenticated(const Client& client);
  void authenticate(Client& client);

  bool read_commands(int control);
  void serve_client(int descriptor, std::uint32_t events);
  void read_from(Client& client);
  void handle(Client& client, StoreRequest request);
  void wake(const std::string& key);
  void stop_waiting(Client& client);
  void send(Client& client, const std::string& bytes);
  void flush(Client& client);
  void count_memory(Client& client);
  void set_deadline(Client& client, Clock::time_point deadline);
  void pass_deadlines();
  void drop(Client& client);
  void erase_dropped();
  int milliseconds_to_deadline() const;

  std::string token_;
  StoreLimits limits_;
  StoreJournal journal_;
  bool replaying_ = false;
  StoreEntries entries_;
  StoreListener listener_;
  Descriptor unauthenticated_events_;  // epoll of the listener and unauthenticated clients
  Descriptor events_;                  // epoll of all others, and of unauthenticated_events_
  std::string commands_;
  std::unordered_map<int, Client> clients_;                  // by descriptor
  std::map<std::uint64_t, int> unauthenticated_;             // descriptors, in order of arrival
  std::unordered_map<std::string, std::size_t> by_address_;  // unauthenticated clients
  std::uint64_t came_ = 0;                                   // unauthenticated clients so far
  bool accepting_paused_ = false;
  bool too_many_unauthenticated_ = false;  // the reason of the pause
  Clock::time_point accepting_resumes_{};
  std::size_t buffered_ = 0;  // bytes
  Waiters waiting_;           // missing keys and the clients that wait for them
  std::set<std::pair<Clock::time_point, int>> deadlines_;
  std::vector<int> dropped_;
};

/// epoll_ctl that throws Error.
void watch_descriptor(int events, int descriptor, std::uint32_t what, int operation);

}  // namespace starling::fabric::network
