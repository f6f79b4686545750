#include "starling/fabric/local/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <thread>

#include "starling/base/error.h"
#include "starling/fabric/local/handshake.h"
#include "starling/fabric/local/region.h"

namespace starling::fabric::local {
namespace {

using Clock = RendezvousClock;

constexpr Rank kMostRanks = 1024;
constexpr std::chrono::milliseconds kExitCheckInterval{20};
constexpr std::chrono::seconds kExitNoticeDelay{1};

/// The parameters of one rank's rendezvous.
struct Context {
  const std::string& job;
  Rank rank;
  Rank size;
  Clock::time_point deadline;
  const AbsentRanks& absent;

  bool exited(Rank r) const { return r != rank && absent.exited && absent.exited(r); }
  /// The lowest rank that has not exited.
  Rank coordinator() const {
    Rank lowest = 0;
    while (exited(lowest)) ++lowest;
    return lowest;
  }

  /// The job's name for messages: only its beginning, since it may be secret.
  std::string job_label() const {
    constexpr std::size_t kShown = 6;
    return job.size() <= 2 * kShown ? job : job.substr(0, kShown) + "...";
  }
};

std::string name_taken_by_other_user(const Context& context, const Credentials& holder) {
  return fmt::format(
      "the rendezvous socket of the job '{}' on this host is held by {}, not by user {}: nothing was sent "
      "there. "
      "Set the same STARLING_JOB for all ranks, to a value that others cannot guess",
      context.job_label(), text(holder), geteuid());
}

// The error of a coordinator whose socket name is in use.
std::string name_taken(const Context& context, const SocketAddress& address) {
  const Descriptor probe = packet_socket(context.size);
  const auto holder = connect(probe.get(), address.get(), address.length) == 0 ? credentials_of(probe.get())
                                                                               : std::optional<Credentials>();
  if (holder && !same_user(holder)) return name_taken_by_other_user(context, *holder);
  return fmt::format("another rank 0 of the job '{}' is running on this host{}", context.job_label(),
                     holder ? fmt::format(" ({})", text(*holder)) : "");
}

/// The coordinator's side (rank 0 unless it has exited): authenticates all joiners concurrently, then sends
/// each of them the descriptors of all ranks.
class Coordinator {
 public:
  Coordinator(const Context& context, RankDescriptors own)
      : context_(context), listener_(packet_socket(context.size)) {
    ranks_.resize(static_cast<std::size_t>(context.size));
    sockets_.resize(ranks_.size());
    ranks_[static_cast<std::size_t>(context.rank)] = std::move(own);
    const SocketAddress address(rendezvous_name(context.job));
    if (bind(listener_.get(), address.get(), address.length) != 0)
      throw Error(errno == EADDRINUSE
                      ? name_taken(context, address)
                      : fmt::format("cannot open the rendezvous socket: {}", std::strerror(errno)));
    listen(listener_.get(), context.size);
  }

  RendezvousResult run() {
    for (; !complete(); replace_exited()) {
      wait();
      std::erase_if(joiners_, [this](Joiner& joiner) { return advance(joiner); });
    }
    RendezvousResult result;
    for (const Descriptor& socket : sockets_)
      if (socket) send_cards(socket.get());
    for (RankDescriptors& descriptors : ranks_) {
      result.regions.push_back(std::move(descriptors.region));
      result.processes.push_back(std::move(descriptors.process));
    }
    return result;
  }

 private:
  /// A process that has not authenticated yet.
  struct Joiner {
    JoinerHandshake handshake;
    RankDescriptors descriptors{};
  };

  bool complete() const {
    return std::ranges::all_of(
        ranks_, [](const RankDescriptors& descriptors) { return static_cast<bool>(descriptors.region); });
  }

  // Provides regions of exited ranks, in which those ranks have left.
  void replace_exited() {
    for (Rank r = 0; r < context_.size; ++r) {
      RankDescriptors& descriptors = ranks_[static_cast<std::size_t>(r)];
      if (descriptors.region || !context_.exited(r)) continue;
      descriptors.region = context_.absent.region_of(r);
      descriptors.process = PeerProcesses::open_own();
    }
  }

  void wait() {
    std::vector<int> sockets = {listener_.get()};
    for (const Joiner& joiner : joiners_) sockets.push_back(joiner.handshake.socket());
    if (!wait_readable(sockets, std::min(context_.deadline, Clock::now() + kExitCheckInterval))) {
      if (Clock::now() >= context_.deadline) throw Error(missing());
      return;
    }
    Descriptor joiner(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (joiner && same_user(credentials_of(joiner.get()))) {
      joiners_.push_back({JoinerHandshake(std::move(joiner))});
    } else if (joiner) {
      ++rejected_;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      throw Error(fmt::format("rank 0 of the job '{}' cannot accept other ranks: {}", context_.job_label(),
                              open_failure(errno, context_.size)));
    }
  }

  // Returns true if nothing more is expected from the joiner: it has joined, is gone, or failed to prove that
  // it knows the job.
  bool advance(Joiner& joiner) {
    using Progress = JoinerHandshake::Progress;
    const Progress progress = joiner.handshake.advance(
        context_.job, context_.size, {&joiner.descriptors.region, &joiner.descriptors.process},
        context_.deadline);
    if (progress == Progress::refused) ++rejected_;
    if (progress == Progress::done) admit(joiner);
    return progress != Progress::waiting;
  }

  void admit(Joiner& joiner) {
    const Hello& hello = joiner.handshake.hello();
    const auto r = static_cast<std::size_t>(hello.rank);
    if (hello.size != context_.size || hello.rank < 0 || hello.rank >= context_.size ||
        hello.rank == context_.rank || sockets_[r])
      throw Error(
          fmt::format("a process joined the job '{}' as rank {} of {}, but the job has {} ranks, each of "
                      "which joins once",
                      context_.job_label(), hello.rank, hello.size, context_.size));
    if (ranks_[r].region) return;  // it was reported as exited meanwhile
    ranks_[r] = std::move(joiner.descriptors);
    sockets_[r] = joiner.handshake.take_socket();
  }

  // A joiner that has died meanwhile is treated like any later death.
  void send_cards(int to) const {
    try {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const RankCard card{static_cast<Rank>(r)};
        send_packet(to, &card, sizeof(card), context_.deadline, {&ranks_[r].region, &ranks_[r].process});
      }
    } catch (const Error&) {
      if (Clock::now() > context_.deadline) throw;
    }
  }

  std::string missing() const {
    std::vector<std::string> ranks;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (!ranks_[r].region) ranks.push_back(std::to_string(r));
    return fmt::format(
        "of {} ranks, these did not join the job '{}' in time: {}{}", context_.size, context_.job_label(),
        join_words(ranks),
        rejected_ == 0
            ? ""
            : fmt::format(" ({} processes of other users, jobs or versions were rejected)", rejected_));
  }

  Context context_;
  Descriptor listener_;
  std::vector<RankDescriptors> ranks_;  // by rank
  std::vector<Descriptor> sockets_;     // by rank, of the accepted joiners
  std::vector<Joiner> joiners_;
  int rejected_ = 0;
};

std::string coordinator_exited(Rank coordinator) {
  return fmt::format("rank {}, the coordinator of the rendezvous, has exited", coordinator);
}

Descriptor connect_to_coordinator(const Context& context, Rank coordinator) {
  const SocketAddress address(rendezvous_name(context.job));
  Descriptor socket = packet_socket(context.size);
  while (connect(socket.get(), address.get(), address.length) != 0) {
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != ENOENT && errno != EINTR)
      throw Error(
          fmt::format("cannot reach rank 0 of the job '{}': {}", context.job_label(), std::strerror(errno)));
    if (Clock::now() > context.deadline)
      throw Error(fmt::format("rank 0 of the job '{}' did not join in time", context.job_label()));
    if (context.exited(coordinator)) throw Error(coordinator_exited(coordinator));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto holder = credentials_of(socket.get());
  if (!same_user(holder)) throw Error(name_taken_by_other_user(context, holder.value_or(Credentials{})));
  return socket;
}

void receive_or_throw(const Context& context, Rank coordinator, int socket, void* packet, std::size_t bytes,
                      std::initializer_list<Descriptor*> descriptors = {}) {
  for (;;) {
    const bool readable = wait_readable({socket}, context.deadline);
    const Received got =
        readable ? receive_packet(socket, packet, bytes, context.size, descriptors) : Received::gone;
    if (got == Received::packet) return;
    // The launcher notices an exit a moment later.
    for (auto until = Clock::now() + kExitNoticeDelay;
         context.absent.exited && readable && got == Received::gone;) {
      if (context.exited(coordinator)) throw Error(coordinator_exited(coordinator));
      if (Clock::now() > until) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (got == Received::gone)
      throw Error(
          fmt::format("the rendezvous of the job '{}' failed{} (rank 0 exited, or other ranks are missing)",
                      context.job_label(), readable ? "" : ": timeout"));
  }
}

RendezvousResult join_coordinator(const Context& context, Rank coordinator, const RankDescriptors& own) {
  const Descriptor socket = connect_to_coordinator(context, coordinator);
  const Hello hello{kRendezvousVersion, context.rank, context.size, random_nonce()};
  send_packet(socket.get(), &hello, sizeof(hello), context.deadline);
  Challenge challenge;
  receive_or_throw(context, coordinator, socket.get(), &challenge, sizeof(challenge));
  if (!knows(context.job, hello, challenge))
    throw Error(fmt::format(
        "{} answers for rank 0 of the job '{}' but does not know the job's token: nothing was sent to it",
        text(credentials_of(socket.get()).value_or(Credentials{})), context.job_label()));
  const Proof proof{proof_of(context.job, Role::joiner, hello, challenge.nonce)};
  send_packet(socket.get(), &proof, sizeof(proof), context.deadline, {&own.region, &own.process});
  RendezvousResult all;
  for (Rank r = 0; r < context.size; ++r) {
    RankCard card;
    RankDescriptors descriptors;
    receive_or_throw(context, coordinator, socket.get(), &card, sizeof(card),
                     {&descriptors.region, &descriptors.process});
    if (card.rank != r)
      throw Error(
          fmt::format("rank 0 of the job '{}' sent the ranks in the wrong order", context.job_label()));
    all.regions.push_back(std::move(descriptors.region));
    all.processes.push_back(std::move(descriptors.process));
  }
  return all;
}

}  // namespace

Descriptor PeerProcesses::open_own() {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
}

bool PeerProcesses::dead(Rank rank) const {
  const Descriptor& process = processes_[static_cast<std::size_t>(rank)];
  if (!process) return false;
  pollfd entry{process.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

std::string rendezvous_name(const std::string& job) {
  constexpr std::size_t kDigits = 32;
  const std::string text = "the rendezvous of job " + job;
  return fmt::format(
      "starling-{}-{}", geteuid(),
      sha256({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}).substr(0, kDigits));
}

RendezvousResult run_rendezvous(const std::string& job, Rank rank, Rank size, int region,
                                std::chrono::milliseconds timeout, const AbsentRanks& absent) {
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size)
    throw InvalidArgument(fmt::format("rank {} of {} is invalid: there are 1 to {} ranks, numbered from 0",
                                      rank, size, kMostRanks));
  const Context context{job, rank, size, Clock::now() + timeout, absent};
  RankDescriptors own{Descriptor(dup(region)), PeerProcesses::open_own()};
  if (!own.region || !own.process)
    throw Error("cannot open a pidfd of this process: " + open_failure(errno, size));
  for (;;) {
    const Rank coordinator = context.coordinator();
    if (coordinator == rank) return Coordinator(context, std::move(own)).run();
    try {
      return join_coordinator(context, coordinator, own);
    } catch (const Error&) {
      if (!context.exited(coordinator)) throw;  // otherwise the next rank becomes the coordinator
    }
  }
}

}  // namespace starling::fabric::local
