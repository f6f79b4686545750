#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "starling/fabric/network/store/address.h"
#include "starling/fabric/network/store/entries.h"
#include "starling/fabric/network/store/journal.h"
#include "starling/fabric/network/store/sockets.h"
#include "starling/launch/fd.h"

namespace starling::network {

/// A small store where the ranks of a job meet: keys and values, for clients that know the job's token. A
/// client that does not, or talks nonsense, is dropped. Clients that have proved the token are served before
/// all others, and the work for those others is bounded per turn: a flood of connections delays nobody.
class StoreServer {
 public:
  /// Listens on exactly this IPv4 or IPv6 address, on a free port. Throws InvalidArgument for an address that
  /// is none, or means all of them, and Error with the system's reason.
  StoreServer(const std::string& address, std::string token, const StoreLimits& limits = {});

  /// On a socket that listens already, with the entries that the journal has.
  StoreServer(StoreListener listener, std::string token, StoreJournal journal,
              const StoreLimits& limits = {});
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  const StoreAddress& where() const { return listener_.where; }

  /// Serves until the other end of `leash`, a pipe, is closed. A line KEY=VALUE from there sets a key.
  void serve(int leash);

 private:
  using Clock = std::chrono::steady_clock;
  using Waiting = std::multimap<std::string, int>;

  struct Client {
    launch::Fd socket;
    std::string nonce;
    bool trusted = false;
    bool doomed = false;
    bool watched_for_room = false;  // to send
    std::string address;            // of its host
    std::uint64_t number = 0;       // in strangers_
    Clock::time_point came;
    std::string in;
    std::string out;
    std::size_t sent = 0;                  // of `out`
    std::size_t counted = 0;               // of the memory in use: its buffers
    std::optional<StoreRequest> question;  // that waits for keys
    Waiting::iterator place;               // in waiting_, for the first key that is missing
    Clock::time_point deadline = Clock::time_point::max();
  };

  // Clients that have not proved the token: server_lobby.cpp.
  void serve_lobby();
  void accept_some();
  bool make_room();
  void close_door(Clock::time_point until, bool full);
  void open_door_again();
  void add_stranger(launch::Fd socket, std::string address);
  void forget_stranger(const Client& client);
  void authenticate(Client& client);

  bool read_orders(int leash);
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
  void doom(Client& client);
  void bury();
  int milliseconds_to_deadline() const;

  std::string token_;
  StoreLimits limits_;
  StoreJournal journal_;
  bool replaying_ = false;
  StoreEntries entries_;
  StoreListener listener_;
  launch::Fd lobby_;   // an epoll of the listener and the strangers
  launch::Fd events_;  // an epoll of all others, and of lobby_
  std::string orders_;
  std::unordered_map<int, Client> clients_;                  // by descriptor
  std::map<std::uint64_t, int> strangers_;                   // descriptors, in the order in which they came
  std::unordered_map<std::string, std::size_t> by_address_;  // strangers
  std::uint64_t came_ = 0;                                   // strangers so far
  bool door_closed_ = false;
  bool lobby_full_ = false;  // which is why it is closed
  Clock::time_point door_opens_{};
  std::size_t buffered_ = 0;  // bytes
  Waiting waiting_;           // missing keys, and who waits for them
  std::set<std::pair<Clock::time_point, int>> deadlines_;
  std::vector<int> doomed_;
};

/// As epoll_ctl does it; throws Error.
void watch_descriptor(int events, int descriptor, std::uint32_t what, int operation);

}  // namespace starling::network
