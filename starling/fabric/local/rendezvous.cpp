#include "starling/fabric/local/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

#include "starling/base/error.h"
#include "starling/fabric/local/handshake.h"
#include "starling/fabric/local/limits.h"
#include "starling/fabric/local/peers.h"

namespace starling::local {
namespace {

using Clock = RendezvousClock;

constexpr Rank kMostRanks = 1024;
constexpr std::chrono::milliseconds kLookForExits{20};
constexpr std::chrono::seconds kHearOfExit{1};

/// What all functions here need to know.
struct Rendezvous {
  const std::string& job;
  Rank rank;
  Rank size;
  Clock::time_point deadline;
  const Absence& absence;

  bool exited(Rank r) const { return r != rank && absence.exited && absence.exited(r); }
  /// The rank that the others meet at: the lowest that has not exited.
  Rank host() const {
    Rank lowest = 0;
    while (exited(lowest)) ++lowest;
    return lowest;
  }

  /// The job's name may be its secret: logs show the beginning.
  std::string shown() const {
    constexpr std::size_t kShown = 6;
    return job.size() <= 2 * kShown ? job : job.substr(0, kShown) + "...";
  }
};

Descriptor make_socket(const Rendezvous& meeting) {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) throw Error("cannot make a socket: " + open_failure(errno, meeting.size));
  return made;
}

// Abstract: it has no file and vanishes with its last process.
socklen_t fill_address(const std::string& job, sockaddr_un& address) {
  address.sun_family = AF_UNIX;
  const std::string name = rendezvous_name(job);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Root is no exception: a process of root's among a user's ranks is there by mistake.
bool same_user(const std::optional<Credentials>& credentials) {
  return credentials && credentials->user == geteuid();
}

std::string squatted(const Rendezvous& meeting, const Credentials& holder) {
  return fmt::format(
      "the name by which the ranks of the job '{}' meet on this host is taken by {}, not by user {}: nothing "
      "was sent there. Give all ranks the same STARLING_JOB, a word that others cannot guess",
      meeting.shown(), text(holder), geteuid());
}

// Who holds the name that rank 0 wanted.
std::string taken(const Rendezvous& meeting, const sockaddr_un& address, socklen_t length) {
  const Descriptor probe = make_socket(meeting);
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  const auto holder =
      connect(probe.get(), any, length) == 0 ? credentials_of(probe.get()) : std::optional<Credentials>();
  if (holder && !same_user(holder)) return squatted(meeting, *holder);
  return fmt::format("another rank 0 of the job '{}' is running on this host{}", meeting.shown(),
                     holder ? fmt::format(" ({})", text(*holder)) : "");
}

/// The host's side, which is rank 0 unless it has exited: lets guests in, each as fast as it answers.
class Host {
 public:
  Host(const Rendezvous& meeting, Pair own) : meeting_(meeting), door_(make_socket(meeting)) {
    pairs_.resize(static_cast<std::size_t>(meeting.size));
    sockets_.resize(pairs_.size());
    pairs_[static_cast<std::size_t>(meeting.rank)] = std::move(own);
    sockaddr_un address{};
    const socklen_t length = fill_address(meeting.job, address);
    if (bind(door_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
      throw Error(errno == EADDRINUSE ? taken(meeting, address, length)
                                      : fmt::format("cannot open the rendezvous: {}", std::strerror(errno)));
    listen(door_.get(), meeting.size);
  }

  Meeting run() {
    for (; !complete(); replace_exited()) {
      wait();
      for (Guest& guest : guests_)
        if (!advance(guest)) {
          guest.socket = Descriptor();
        } else if (guest.pair.region) {
          admit(guest);
        }
      std::erase_if(guests_, [](const Guest& guest) { return !guest.socket; });
    }
    Meeting meeting;
    for (const Descriptor& socket : sockets_)
      if (socket) send_cards(socket.get());
    for (Pair& pair : pairs_) {
      meeting.regions.push_back(std::move(pair.region));
      meeting.processes.push_back(std::move(pair.process));
    }
    return meeting;
  }

 private:
  /// A process that has not proved itself yet.
  struct Guest {
    Descriptor socket;
    bool said_hello = false;
    Hello hello{};
    Nonce nonce{};
    Pair pair{};
  };

  bool complete() const {
    return std::ranges::all_of(pairs_, [](const Pair& pair) { return static_cast<bool>(pair.region); });
  }

  // Everybody finds a rank there that has left.
  void replace_exited() {
    for (Rank r = 0; r < meeting_.size; ++r) {
      Pair& pair = pairs_[static_cast<std::size_t>(r)];
      if (pair.region || !meeting_.exited(r)) continue;
      pair.region = meeting_.absence.region_of(r);
      pair.process = Peers::open_own();
    }
  }

  void wait() {
    std::vector<int> sockets = {door_.get()};
    for (const Guest& guest : guests_) sockets.push_back(guest.socket.get());
    if (!wait_readable(sockets, std::min(meeting_.deadline, Clock::now() + kLookForExits))) {
      if (Clock::now() >= meeting_.deadline) throw Error(missing());
      return;
    }
    Descriptor guest(accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (guest && same_user(credentials_of(guest.get()))) {
      guests_.push_back({std::move(guest)});
    } else if (guest) {
      ++turned_away_;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      throw Error(fmt::format("rank 0 of the job '{}' cannot let others in: {}", meeting_.shown(),
                              open_failure(errno, meeting_.size)));
    }
  }

  // False when it has gone or has not proved that it knows the job.
  bool advance(Guest& guest) {
    if (!guest.said_hello) {
      const Received got =
          receive_packet(guest.socket.get(), &guest.hello, sizeof(guest.hello), meeting_.size);
      if (got != Received::packet) return got == Received::nothing;
      if (guest.hello.version != kRendezvousVersion) return refuse();
      guest.said_hello = true;
      guest.nonce = random_nonce();
      const Challenge challenge{kRendezvousVersion, guest.nonce,
                                proof_of(meeting_.job, Role::host, guest.hello, guest.nonce)};
      try {
        send_packet(guest.socket.get(), &challenge, sizeof(challenge), meeting_.deadline);
      } catch (const Error&) {
        return false;
      }
    }
    Proof proof;
    const Received got =
        receive_packet(guest.socket.get(), &proof, sizeof(proof), meeting_.size, &guest.pair);
    if (got != Received::packet) return got == Received::nothing;
    const auto wanted = proof_of(meeting_.job, Role::guest, guest.hello, guest.nonce);
    return equal(proof.proof, wanted) || refuse();
  }

  bool refuse() {
    ++turned_away_;
    return false;
  }

  void admit(Guest& guest) {
    const Hello& hello = guest.hello;
    const auto r = static_cast<std::size_t>(hello.rank);
    if (hello.size != meeting_.size || hello.rank < 0 || hello.rank >= meeting_.size ||
        hello.rank == meeting_.rank || sockets_[r])
      throw Error(fmt::format(
          "a process joined the job '{}' as rank {} of {}, which does not fit {} ranks with each number once",
          meeting_.shown(), hello.rank, hello.size, meeting_.size));
    if (!pairs_[r].region) {  // else it has exited since
      pairs_[r] = std::move(guest.pair);
      sockets_[r] = std::move(guest.socket);
    }
    guest.socket = Descriptor();
  }

  // A guest that has died meanwhile is a death like any later one.
  void send_cards(int to) const {
    try {
      for (std::size_t r = 0; r < pairs_.size(); ++r) {
        const Card card{static_cast<Rank>(r)};
        send_packet(to, &card, sizeof(card), meeting_.deadline, &pairs_[r].region, &pairs_[r].process);
      }
    } catch (const Error&) {
      if (Clock::now() > meeting_.deadline) throw;
    }
  }

  std::string missing() const {
    std::vector<std::string> ranks;
    for (std::size_t r = 0; r < pairs_.size(); ++r)
      if (!pairs_[r].region) ranks.push_back(std::to_string(r));
    return fmt::format(
        "these of {} ranks did not join the job '{}' in time: {}{}", meeting_.size, meeting_.shown(),
        join_words(ranks),
        turned_away_ == 0
            ? ""
            : fmt::format(" ({} processes of other users, other jobs or other versions were turned away)",
                          turned_away_));
  }

  Rendezvous meeting_;
  Descriptor door_;
  std::vector<Pair> pairs_;          // by rank
  std::vector<Descriptor> sockets_;  // by rank, of those that were let in
  std::vector<Guest> guests_;
  int turned_away_ = 0;
};

std::string host_exited(Rank host) {
  return fmt::format("rank {}, at which the others meet, has exited", host);
}

Descriptor connect_to_host(const Rendezvous& meeting, Rank host) {
  sockaddr_un address{};
  const socklen_t length = fill_address(meeting.job, address);
  Descriptor socket = make_socket(meeting);
  while (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != ENOENT && errno != EINTR)
      throw Error(
          fmt::format("cannot reach rank 0 of the job '{}': {}", meeting.shown(), std::strerror(errno)));
    if (Clock::now() > meeting.deadline)
      throw Error(fmt::format("rank 0 of the job '{}' did not come in time", meeting.shown()));
    if (meeting.exited(host)) throw Error(host_exited(host));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto holder = credentials_of(socket.get());
  if (!same_user(holder)) throw Error(squatted(meeting, holder.value_or(Credentials{})));
  return socket;
}

void receive_or_throw(const Rendezvous& meeting, Rank host, int socket, void* packet, std::size_t bytes,
                      Pair* pair = nullptr) {
  for (;;) {
    const bool readable = wait_readable({socket}, meeting.deadline);
    const Received got =
        readable ? receive_packet(socket, packet, bytes, meeting.size, pair) : Received::gone;
    if (got == Received::packet) return;
    // The launcher hears of it a moment later.
    for (auto until = Clock::now() + kHearOfExit;
         meeting.absence.exited && readable && got == Received::gone;) {
      if (meeting.exited(host)) throw Error(host_exited(host));
      if (Clock::now() > until) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (got == Received::gone)
      throw Error(
          fmt::format("the job '{}' did not come together {} (rank 0 has gone, or other ranks are missing)",
                      meeting.shown(), readable ? "" : "in time"));
  }
}

Meeting visit(const Rendezvous& meeting, Rank host, const Pair& own) {
  const Descriptor socket = connect_to_host(meeting, host);
  const Hello hello{kRendezvousVersion, meeting.rank, meeting.size, random_nonce()};
  send_packet(socket.get(), &hello, sizeof(hello), meeting.deadline);
  Challenge challenge;
  receive_or_throw(meeting, host, socket.get(), &challenge, sizeof(challenge));
  if (challenge.version != kRendezvousVersion ||
      !equal(challenge.proof, proof_of(meeting.job, Role::host, hello, challenge.nonce)))
    throw Error(fmt::format(
        "{} answers for rank 0 of the job '{}' and does not know its name: nothing was sent to it",
        text(credentials_of(socket.get()).value_or(Credentials{})), meeting.shown()));
  const Proof proof{proof_of(meeting.job, Role::guest, hello, challenge.nonce)};
  send_packet(socket.get(), &proof, sizeof(proof), meeting.deadline, &own.region, &own.process);
  Meeting all;
  for (Rank r = 0; r < meeting.size; ++r) {
    Card card;
    Pair pair;
    receive_or_throw(meeting, host, socket.get(), &card, sizeof(card), &pair);
    if (card.rank != r)
      throw Error(fmt::format("rank 0 of the job '{}' sent ranks in disorder", meeting.shown()));
    all.regions.push_back(std::move(pair.region));
    all.processes.push_back(std::move(pair.process));
  }
  return all;
}

}  // namespace

std::string rendezvous_name(const std::string& job) {
  constexpr std::size_t kDigits = 32;
  const std::string text = "the rendezvous of job " + job;
  return fmt::format(
      "starling-{}-{}", geteuid(),
      sha256({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}).substr(0, kDigits));
}

Meeting meet(const std::string& job, Rank rank, Rank size, int region, std::chrono::milliseconds timeout,
             const Absence& absence) {
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size)
    throw InvalidArgument(
        fmt::format("rank {} of {} is not possible; 1 to {} ranks, numbered from 0", rank, size, kMostRanks));
  const Rendezvous meeting{job, rank, size, Clock::now() + timeout, absence};
  Pair own{Descriptor(dup(region)), Peers::open_own()};
  if (!own.region || !own.process) throw Error("cannot watch this process: " + open_failure(errno, size));
  for (;;) {
    const Rank host = meeting.host();
    if (host == rank) return Host(meeting, std::move(own)).run();
    try {
      return visit(meeting, host, own);
    } catch (const Error&) {
      if (!meeting.exited(host)) throw;  // else the next one takes its place
    }
  }
}

}  // namespace starling::local
