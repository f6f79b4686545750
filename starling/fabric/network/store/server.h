#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "starling/fabric/network/store/address.h"
#include "starling/fabric/network/store/entries.h"
#include "starling/launch/fd.h"

namespace starling::network {

/// A small store where the ranks of a job meet: keys and values, for those who know the job's token. Who does
/// not, or says what makes no sense, is dropped, and nobody else notices.
class StoreServer {
 public:
  /// Listens on exactly this IPv4 or IPv6 address, on a free port. Throws InvalidArgument for an address that
  /// is none, or means all of them, and Error with the system's reason.
  StoreServer(const std::string& address, std::string token, const StoreLimits& limits = {});

  const StoreAddress& where() const { return where_; }

  /// Serves until the other end of `leash`, a pipe, is closed.
  void serve(int leash);

 private:
  using Clock = std::chrono::steady_clock;
  using Waiting = std::multimap<std::string, int>;

  struct Client {
    launch::Fd socket;
    std::string nonce;
    bool trusted = false;
    bool doomed = false;
    std::string in;
    std::string out;
    std::size_t sent = 0;                  // of `out`
    std::size_t counted = 0;               // of the memory in use: its buffers
    std::optional<StoreRequest> question;  // that waits for keys
    Waiting::iterator place;               // in waiting_, for the first key that is missing
    Clock::time_point deadline = Clock::time_point::max();
  };

  void accept_all();
  void drop_oldest_stranger();
  void read_from(Client& client);
  void authenticate(Client& client);
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
  StoreEntries entries_;
  StoreAddress where_;
  launch::Fd door_;
  launch::Fd events_;
  std::unordered_map<int, Client> clients_;  // by descriptor
  std::size_t strangers_ = 0;
  std::size_t buffered_ = 0;  // bytes
  Waiting waiting_;           // missing keys, and who waits for them
  std::set<std::pair<Clock::time_point, int>> deadlines_;
  std::vector<int> doomed_;
};

}  // namespace starling::network
