#include "starling/fabric/c10d/door.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/c10d/notes.h"
#include "starling/record/log.h"

// What is in the store of a job:
//   door/tickets                 how many newcomers have taken one
//   door/K                       who has ticket K
//   door/K/called                the last opening that K was called for
//   door/K/answered/N            K has heard of opening N
//   door/K/closed                K is in, has given up, or did not answer
//   door/openings                how many there were
//   door/opening N/places        the number of members and the tickets that come in
//   door/opening N/in/K          K has the new fabric
//   door/opening N/good          1: it counts; 0: it does not
//   door/opening N/...           where its ranks meet
namespace starling::c10d_engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::seconds kAnswerWithin{1};  // who is late takes another ticket

std::string of_ticket(std::uint64_t ticket, const std::string& what = "") {
  return fmt::format("door/{}{}{}", ticket, what.empty() ? "" : "/", what);
}

std::string of_opening(std::uint64_t number, const std::string& what) {
  return fmt::format("door/opening {}/{}", number, what);
}

// Waits until `there` or the deadline, and looks once more then.
bool comes(const std::function<bool()>& there, Clock::time_point until) {
  for (;;) {
    const bool last = Clock::now() >= until;
    if (there()) return true;
    if (last) return false;
    std::this_thread::sleep_for(kLook);
  }
}

struct Setting {
  StorePtr store;
  FabricRequest request;
  MakeFabric make;
};

std::shared_ptr<NetworkFabric> make_opened(const Setting& setting, const Opening& opening, Rank rank,
                                           Rank size);

class C10dDoor final : public Door {
 public:
  C10dDoor(Setting setting, std::uint64_t number, Rank newcomers)
      : setting_(std::move(setting)), notes_(setting_.store), number_(number), newcomers_(newcomers) {}

  Opening call() override {
    try {
      return call_waiting();
    } catch (const std::exception& error) {
      if (!std::exchange(complained_, true))
        log(LogLevel::normal,
            fmt::format("nobody can come in: the store does not answer any more: {}", error.what()));
      return {};
    }
  }

  std::shared_ptr<Fabric> open(const Opening& opening, Rank place, Rank members) override {
    std::string places = std::to_string(members);
    for (const std::uint64_t ticket : opening.newcomers) places += fmt::format(" {}", ticket);
    notes_.write(of_opening(opening.number, "places"),
                 places);  // by everybody, so that nobody's death matters
    return make_opened(setting_, opening, place, members + static_cast<Rank>(opening.newcomers.size()));
  }

  bool all_are_in(const Opening& opening) override {
    const auto until = Clock::now() + opening_limit(setting_.request.timeout);
    return std::all_of(opening.newcomers.begin(), opening.newcomers.end(), [&](std::uint64_t ticket) {
      return comes([&] { return notes_.has(of_opening(opening.number, fmt::format("in/{}", ticket))); },
                   until);
    });
  }

  void close(const Opening& opening, bool good) override {
    if (good)
      for (const std::uint64_t ticket : opening.newcomers) notes_.write(of_ticket(ticket, "closed"), "in");
    notes_.write(of_opening(opening.number, "good"), good ? "1" : "0");
  }

  std::uint64_t number() const override { return number_; }
  Rank newcomers() const override { return newcomers_; }

 private:
  Opening call_waiting() {
    const std::uint64_t tickets = notes_.count("door/tickets", 0);
    std::vector<std::uint64_t> waiting;
    while (first_open_ <= tickets && notes_.has(of_ticket(first_open_, "closed"))) ++first_open_;
    for (std::uint64_t ticket = first_open_; ticket <= tickets; ++ticket)
      if (ticket == first_open_ || !notes_.has(of_ticket(ticket, "closed"))) waiting.push_back(ticket);
    if (waiting.empty()) return {};

    Opening opening{notes_.count("door/openings", 1), {}};
    for (const std::uint64_t ticket : waiting)
      notes_.write(of_ticket(ticket, "called"), std::to_string(opening.number));
    const auto until = Clock::now() + kAnswerWithin;
    for (const std::uint64_t ticket : waiting) {
      const std::string answer = of_ticket(ticket, fmt::format("answered/{}", opening.number));
      if (comes([&] { return notes_.has(answer); }, until)) {
        opening.newcomers.push_back(ticket);
        continue;
      }
      log(LogLevel::normal,
          fmt::format("a newcomer ({}) has waited and does not answer any more: the flock goes on without it",
                      notes_.read(of_ticket(ticket))));
      notes_.write(of_ticket(ticket, "closed"), "silent");
    }
    if (opening.newcomers.empty()) return {};
    return opening;
  }

  Setting setting_;
  Notes notes_;
  std::uint64_t number_;
  Rank newcomers_;
  std::uint64_t first_open_ = 1;  // ticket
  bool complained_ = false;
};

std::shared_ptr<NetworkFabric> make_opened(const Setting& setting, const Opening& opening, Rank rank,
                                           Rank size) {
  FabricRequest request = setting.request;
  request.rank = rank;
  request.size = size;
  request.timeout = opening_limit(request.timeout);
  auto fabric = setting.make(of_opening(opening.number, "group"), request);
  fabric->set_door(
      std::make_unique<C10dDoor>(setting, opening.number, static_cast<Rank>(opening.newcomers.size())));
  return fabric;
}

/// Who waits before the door.
class Newcomer {
 public:
  Newcomer(Setting setting, const FinishFabric& finish)
      : setting_(std::move(setting)), finish_(finish), notes_(setting_.store) {
    take_ticket();
  }
  // Nobody needs to wait for an answer of who has given up.
  ~Newcomer() {
    try {
      notes_.write(of_ticket(ticket_, "closed"), "gone");
    } catch (const std::exception&) {
      // The store has gone before.
    }
  }
  Newcomer(const Newcomer&) = delete;
  Newcomer& operator=(const Newcomer&) = delete;

  /// Does what is asked of it; the fabric when it is in.
  std::shared_ptr<Fabric> look() {
    if (notes_.has(of_ticket(ticket_, "closed"))) take_ticket();  // it has been stopped for a while
    const std::uint64_t called = notes_.number(of_ticket(ticket_, "called"));
    if (called > answered_) {
      notes_.write(of_ticket(ticket_, fmt::format("answered/{}", called)), "1");
      answered_ = called;
    }
    if (answered_ == tried_ || !notes_.has(of_opening(answered_, "places"))) return nullptr;
    tried_ = answered_;
    return go_in(tried_);
  }

 private:
  void take_ticket() {
    char host[256] = {};
    gethostname(host, sizeof(host) - 1);
    ticket_ = notes_.count("door/tickets", 1);
    notes_.write(of_ticket(ticket_), fmt::format("process {} of {}", getpid(), host));
  }

  std::shared_ptr<Fabric> go_in(std::uint64_t number) {
    Opening opening{number, {}};
    Rank members = 0;
    std::istringstream places(notes_.read(of_opening(number, "places")));
    places >> members;
    for (std::uint64_t ticket = 0; places >> ticket;) opening.newcomers.push_back(ticket);
    const auto found = std::find(opening.newcomers.begin(), opening.newcomers.end(), ticket_);
    if (found == opening.newcomers.end()) return nullptr;  // answered too late
    const auto index = static_cast<Rank>(found - opening.newcomers.begin());
    const auto size = members + static_cast<Rank>(opening.newcomers.size());
    try {
      std::shared_ptr<Fabric> fabric = make_opened(setting_, opening, members + index, size);
      if (finish_) fabric = finish_(std::move(fabric));
      notes_.write(of_opening(number, fmt::format("in/{}", ticket_)), "1");
      const auto until = Clock::now() + 2 * opening_limit(setting_.request.timeout);
      std::string good;
      comes([&] { return !(good = notes_.read(of_opening(number, "good"))).empty(); }, until);
      if (good == "1") return fabric;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      log(LogLevel::info, fmt::format("not let in this time: {}", text.substr(0, text.find('\n'))));
    }
    return nullptr;
  }

  Setting setting_;
  const FinishFabric& finish_;
  Notes notes_;
  std::uint64_t ticket_ = 0;
  std::uint64_t answered_ = 0;  // openings
  std::uint64_t tried_ = 0;
};

}  // namespace

std::unique_ptr<Door> make_door(StorePtr store, const FabricRequest& request, MakeFabric make) {
  return std::make_unique<C10dDoor>(Setting{std::move(store), request, make}, 0, 0);
}

std::shared_ptr<Fabric> enter(const StorePtr& store, const FabricRequest& request, MakeFabric make,
                              const FinishFabric& finish) {
  std::shared_ptr<Fabric> fabric;
  try {
    Newcomer newcomer({store, request, make}, finish);
    comes([&] { return (fabric = newcomer.look()) != nullptr; }, Clock::now() + request.timeout);
  } catch (const std::exception& error) {
    throw Error(fmt::format("the store where ranks meet does not answer a newcomer: {}", error.what()));
  }
  if (!fabric)
    throw Error(
        fmt::format("nobody has let this process in within {} s: members of the job do so when they call "
                    "welcome(), between two steps",
                    request.timeout.count() / 1000));
  return fabric;
}

}  // namespace starling::c10d_engine
