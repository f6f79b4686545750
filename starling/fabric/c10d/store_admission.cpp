#include "starling/fabric/c10d/store_admission.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/c10d/store.h"
#include "starling/record/log.h"

// Keys in the store of a job:
//   admission/tickets          how many newcomers have taken a ticket
//   admission/K                the process with ticket K
//   admission/K/called         the last round to which K was invited
//   admission/K/answered/N     K has answered the invitation to round N
//   admission/K/closed         K was admitted, has given up, or did not answer
//   admission/rounds           how many rounds there were
//   admission/round N/members  the number of members and the tickets to be admitted
//   admission/round N/in/K     K has joined the new fabric
//   admission/round N/good     1: the round succeeded; 0: it failed
//   admission/round N/...      keys of its group formation
namespace starling::fabric::c10d_engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{20};
constexpr std::chrono::seconds kAnswerTimeout{1};  // a newcomer that answers later takes another ticket

std::string ticket_key(std::uint64_t ticket, const std::string& what = "") {
  return fmt::format("admission/{}{}{}", ticket, what.empty() ? "" : "/", what);
}

std::string round_key(std::uint64_t number, const std::string& what) {
  return fmt::format("admission/round {}/{}", number, what);
}

// Polls until `done` returns true; false after the deadline, at which it polls a last time.
bool wait_until(const std::function<bool()>& done, Clock::time_point until) {
  for (;;) {
    const bool last = Clock::now() >= until;
    if (done()) return true;
    if (last) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
}

/// What members and newcomers need to form fabrics.
struct Context {
  StorePtr store;
  FabricRequest request;
  MakeFabric make;
};

std::shared_ptr<NetworkFabric> make_admitted_fabric(const Context& context, const AdmissionRound& round,
                                                    Rank rank, Rank size);

/// The members' side of an admission, through the store of the job. Used by one thread at a time.
class StoreAdmission final : public Admission {
 public:
  StoreAdmission(Context context, std::uint64_t number, Rank newcomers)
      : context_(std::move(context)), keys_(context_.store), number_(number), newcomers_(newcomers) {}

  AdmissionRound invite() override {
    try {
      return invite_waiting();
    } catch (const std::exception& error) {
      if (!std::exchange(store_failure_logged_, true))
        log(LogLevel::normal,
            fmt::format("no process can join the job any more: its store does not answer: {}", error.what()));
      return {};
    }
  }

  std::shared_ptr<Fabric> form_fabric(const AdmissionRound& round, Rank index, Rank members) override {
    std::string places = std::to_string(members);
    for (const std::uint64_t ticket : round.newcomers) places += fmt::format(" {}", ticket);
    keys_.write(round_key(round.number, "members"),
                places);  // written by every member, so that no single death matters
    return make_admitted_fabric(context_, round, index, members + static_cast<Rank>(round.newcomers.size()));
  }

  bool all_joined(const AdmissionRound& round) override {
    const auto until = Clock::now() + admission_time_limit(context_.request.timeout);
    return std::all_of(round.newcomers.begin(), round.newcomers.end(), [&](std::uint64_t ticket) {
      return wait_until([&] { return keys_.has(round_key(round.number, fmt::format("in/{}", ticket))); },
                        until);
    });
  }

  void conclude(const AdmissionRound& round, bool accepted) override {
    if (accepted)
      for (const std::uint64_t ticket : round.newcomers) keys_.write(ticket_key(ticket, "closed"), "in");
    keys_.write(round_key(round.number, "good"), accepted ? "1" : "0");
  }

  std::uint64_t round_number() const override { return number_; }
  Rank newcomers() const override { return newcomers_; }

 private:
  AdmissionRound invite_waiting() {
    const std::uint64_t tickets = keys_.count("admission/tickets", 0);
    std::vector<std::uint64_t> waiting;
    while (first_open_ <= tickets && keys_.has(ticket_key(first_open_, "closed"))) ++first_open_;
    for (std::uint64_t ticket = first_open_; ticket <= tickets; ++ticket)
      if (ticket == first_open_ || !keys_.has(ticket_key(ticket, "closed"))) waiting.push_back(ticket);
    if (waiting.empty()) return {};

    AdmissionRound round{keys_.count("admission/rounds", 1), {}};
    for (const std::uint64_t ticket : waiting)
      keys_.write(ticket_key(ticket, "called"), std::to_string(round.number));
    const auto until = Clock::now() + kAnswerTimeout;
    for (const std::uint64_t ticket : waiting) {
      const std::string answer = ticket_key(ticket, fmt::format("answered/{}", round.number));
      if (wait_until([&] { return keys_.has(answer); }, until)) {
        round.newcomers.push_back(ticket);
        continue;
      }
      log(LogLevel::normal, fmt::format("a newcomer ({}) does not answer any more; continuing without it",
                                        keys_.read(ticket_key(ticket))));
      keys_.write(ticket_key(ticket, "closed"), "silent");
    }
    if (round.newcomers.empty()) return {};
    return round;
  }

  Context context_;
  PollingStore keys_;
  std::uint64_t number_;
  Rank newcomers_;
  std::uint64_t first_open_ = 1;  // the first ticket that may be open
  bool store_failure_logged_ = false;
};

std::shared_ptr<NetworkFabric> make_admitted_fabric(const Context& context, const AdmissionRound& round,
                                                    Rank rank, Rank size) {
  FabricRequest request = context.request;
  request.rank = rank;
  request.size = size;
  request.timeout = admission_time_limit(request.timeout);
  auto fabric = context.make(round_key(round.number, "group"), request);
  fabric->set_admission(
      std::make_unique<StoreAdmission>(context, round.number, static_cast<Rank>(round.newcomers.size())));
  return fabric;
}

/// A newcomer's side of an admission. Used by one thread.
class Newcomer {
 public:
  Newcomer(Context context, const WrapFabric& wrap)
      : context_(std::move(context)), wrap_(wrap), keys_(context_.store) {
    take_ticket();
  }
  // Closes its ticket, so that members do not wait for an answer.
  ~Newcomer() {
    try {
      keys_.write(ticket_key(ticket_, "closed"), "gone");
    } catch (const std::exception&) {
      // The store is gone: there is no ticket to close.
    }
  }
  Newcomer(const Newcomer&) = delete;
  Newcomer& operator=(const Newcomer&) = delete;

  /// Answers invitations; returns the fabric once this process was admitted, otherwise null.
  std::shared_ptr<Fabric> poll() {
    if (keys_.has(ticket_key(ticket_, "closed")))
      take_ticket();  // this process was stopped too long to answer
    const std::uint64_t called = keys_.number(ticket_key(ticket_, "called"));
    if (called > answered_) {
      keys_.write(ticket_key(ticket_, fmt::format("answered/{}", called)), "1");
      answered_ = called;
    }
    if (answered_ == tried_ || !keys_.has(round_key(answered_, "members"))) return nullptr;
    tried_ = answered_;
    return join_round(tried_);
  }

 private:
  void take_ticket() {
    char host[256] = {};
    gethostname(host, sizeof(host) - 1);
    ticket_ = keys_.count("admission/tickets", 1);
    keys_.write(ticket_key(ticket_), fmt::format("process {} of {}", getpid(), host));
  }

  std::shared_ptr<Fabric> join_round(std::uint64_t number) {
    AdmissionRound round{number, {}};
    Rank members = 0;
    std::istringstream words(keys_.read(round_key(number, "members")));
    words >> members;
    for (std::uint64_t ticket = 0; words >> ticket;) round.newcomers.push_back(ticket);
    const auto found = std::find(round.newcomers.begin(), round.newcomers.end(), ticket_);
    if (found == round.newcomers.end()) return nullptr;  // it answered too late
    const auto index = static_cast<Rank>(found - round.newcomers.begin());
    const auto size = members + static_cast<Rank>(round.newcomers.size());
    try {
      std::shared_ptr<Fabric> fabric = make_admitted_fabric(context_, round, members + index, size);
      if (wrap_) fabric = wrap_(std::move(fabric));
      keys_.write(round_key(number, fmt::format("in/{}", ticket_)), "1");
      const auto until = Clock::now() + 2 * admission_time_limit(context_.request.timeout);
      std::string good;
      wait_until([&] { return !(good = keys_.read(round_key(number, "good"))).empty(); }, until);
      if (good == "1") return fabric;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      log(LogLevel::info, fmt::format("not admitted in this round: {}", text.substr(0, text.find('\n'))));
    }
    return nullptr;
  }

  Context context_;
  const WrapFabric& wrap_;
  PollingStore keys_;
  std::uint64_t ticket_ = 0;
  std::uint64_t answered_ = 0;  // the round of the last invitation that this process answered
  std::uint64_t tried_ = 0;
};

}  // namespace

std::unique_ptr<Admission> make_store_admission(StorePtr store, const FabricRequest& request,
                                                MakeFabric make) {
  return std::make_unique<StoreAdmission>(Context{std::move(store), request, make}, 0, 0);
}

std::shared_ptr<Fabric> enter(const StorePtr& store, const FabricRequest& request, MakeFabric make,
                              const WrapFabric& wrap) {
  std::shared_ptr<Fabric> fabric;
  try {
    Newcomer newcomer({store, request, make}, wrap);
    wait_until([&] { return (fabric = newcomer.poll()) != nullptr; }, Clock::now() + request.timeout);
  } catch (const std::exception& error) {
    throw Error(fmt::format("the rendezvous store does not answer a newcomer: {}", error.what()));
  }
  if (!fabric)
    throw Error(fmt::format(
        "no running job admitted this process within {} s: a job admits newcomers when its ranks call "
        "admit(), between two steps",
        request.timeout.count() / 1000));
  return fabric;
}

}  // namespace starling::fabric::c10d_engine
