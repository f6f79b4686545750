#include "starling/fabric/c10d/meeting.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "starling/base/error.h"
#include "starling/base/forks.h"
#include "starling/base/hmac.h"
#include "starling/fabric/c10d/notes.h"
#include "starling/record/log.h"

// What is in the store of a job:
//   exits                  ranks that have exited, as the launcher saw it: one list for all meetings
//   meeting/here/R         rank R has come
//   meeting/A/members      who takes part in attempt A: the first list that anybody proposed
//   meeting/A/done/R       rank R is connected to all members
//   meeting/A/verdict      the first that anybody proposed: kGood, or why the attempt failed
//   meeting/A/groups/...   where the members' addresses are
namespace starling::c10d_engine {
namespace {

using MeetingClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kShortestPause{1};
constexpr std::chrono::milliseconds kLongestPause{50};
constexpr std::chrono::seconds kLongestAttempt{15};  // all are there already
constexpr int kHelloTag = 0x53540003;
const std::string kGood = "good";

/// Grows from look to look.
class Pauses {
 public:
  void pause() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, kLongestPause);
  }

 private:
  std::chrono::milliseconds next_ = kShortestPause;
};

/// For an attempt that may be given up while it waits: then every call throws. Others use the store at the
/// same time, so nothing waits inside of it.
class AttemptStore final : public ::c10d::Store {
 public:
  AttemptStore(StorePtr store, std::shared_ptr<std::atomic<bool>> given_up, MeetingClock::time_point until)
      : store_(std::move(store)), given_up_(std::move(given_up)), until_(until) {}

  using Bytes = std::vector<std::uint8_t>;
  void set(const std::string& key, const Bytes& value) override { store_->set(key, value); }
  Bytes get(const std::string& key) override {
    wait({key});
    return store_->get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override { return store_->add(key, value); }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return store_->compareSet(key, expected, desired);
  }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  std::int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override {
    for (Pauses pauses; !store_->check(keys); pauses.pause()) {
      if (*given_up_) throw Error("the attempt was given up");
      if (MeetingClock::now() > until_) throw Error("not all ranks have told where they are");
    }
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  StorePtr clone() override {
    return c10::make_intrusive<AttemptStore>(store_, given_up_, until_);
  }
#endif

 private:
  StorePtr store_;
  std::shared_ptr<std::atomic<bool>> given_up_;
  MeetingClock::time_point until_;
};

/// Threads of attempts that were given up: they end soon, by their own limits.
class GivenUp {
 public:
  ~GivenUp() {
    for (std::thread& thread : threads_) forks_so_far() == forks_ ? thread.join() : thread.detach();
  }
  void add(std::thread thread) {
    const std::lock_guard lock(mutex_);
    threads_.push_back(std::move(thread));
  }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  const int forks_ = forks_so_far();
};

GivenUp& given_up_attempts() {
  static GivenUp all;
  return all;
}

std::string hello_text(const std::string& job, std::size_t attempt, std::size_t group, Rank from, Rank to) {
  const Sha256::Digest digest = hmac_sha256(job, fmt::format("{} {} {} {}", attempt, group, from, to));
  return {digest.begin(), digest.end()};
}

at::Tensor text_tensor(std::string& text) {
  return at::from_blob(text.data(), {static_cast<std::int64_t>(text.size())},
                       at::TensorOptions().dtype(at::kByte));
}

// Every connection must lead to the rank that it is for: Gloo takes the first that comes, whoever it is. Only
// a rank of this job can say what is expected.
void greet_all(const Groups& groups, const Met& met, const FabricRequest& request, std::size_t attempt,
               std::chrono::milliseconds limit) {
  const std::vector<GroupPtr> all = {groups.frames, groups.up, groups.down};
  struct Hello {
    std::string sent, expected, heard;
    WorkPtr sending, hearing;
    Rank peer;
  };
  std::vector<Hello> hellos;
  hellos.reserve(all.size() * met.members.size());
  for (std::size_t g = 0; g < all.size(); ++g)
    for (std::size_t i = 0; i < met.members.size(); ++i) {
      const Rank peer = met.members[i];
      if (peer == request.rank) continue;
      Hello& hello = hellos.emplace_back();
      hello.peer = peer;
      hello.sent = hello_text(request.job, attempt, g, request.rank, peer);
      hello.expected = hello_text(request.job, attempt, g, peer, request.rank);
      hello.heard.resize(hello.expected.size());
      std::vector<at::Tensor> in = {text_tensor(hello.heard)};
      std::vector<at::Tensor> out = {text_tensor(hello.sent)};
      hello.hearing = all[g]->recv(in, static_cast<int>(i), kHelloTag);
      hello.sending = all[g]->send(out, static_cast<int>(i), kHelloTag);
    }
  for (Hello& hello : hellos)
    if (!hello.hearing->wait(limit) || !hello.sending->wait(limit) || hello.heard != hello.expected)
      throw Error(fmt::format("a stranger is in the place of rank {}", hello.peer));
}

/// One attempt of this rank; runs on a thread of its own, so that it can be given up.
struct Attempt {
  std::size_t number = 0;
  Met met;
  std::shared_ptr<std::atomic<bool>> given_up = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> ended{false};
  std::string problem;  // once it has ended
};

void make_attempt(const std::shared_ptr<Attempt>& attempt, const StorePtr& store,
                  const FabricRequest& request, const MakeGroups& make, MeetingClock::time_point until) {
  try {
    const auto& members = attempt->met.members;
    const auto index = static_cast<Rank>(std::ranges::find(members, request.rank) - members.begin());
    const auto limit = [&] {
      return std::max(std::chrono::milliseconds(1),
                      std::chrono::duration_cast<std::chrono::milliseconds>(until - MeetingClock::now()));
    };
    const auto guarded = c10::make_intrusive<AttemptStore>(store, attempt->given_up, until);
    const auto part =
        c10::make_intrusive<::c10d::PrefixStore>(fmt::format("meeting/{}/groups", attempt->number), guarded);
    Groups groups = make(part, index, static_cast<Rank>(members.size()), limit());
    greet_all(groups, attempt->met, request, attempt->number, limit());
    if (!*attempt->given_up) attempt->met.groups = std::move(groups);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    attempt->problem = text.substr(0, text.find('\n'));
    if (attempt->problem.empty()) attempt->problem = "it has failed";
  }
  attempt->ended = true;
}

class Meeting {
 public:
  Meeting(const StorePtr& store, const StorePtr& job, const FabricRequest& request, const MakeGroups& make)
      : store_(store),
        notes_(store),
        job_notes_(job),
        request_(request),
        make_(make),
        deadline_(MeetingClock::now() + request.timeout) {}

  Met meet() {
    notes_.write(here_key(request_.rank), "1");
    std::string problem;
    for (std::size_t number = 1;; ++number) {
      const auto attempt = std::make_shared<Attempt>();
      attempt->number = number;
      attempt->met.members = agree_on_members(number);
      problem = verdict_on(attempt);
      if (problem.empty()) return std::move(attempt->met);
      if (MeetingClock::now() > deadline_)
        throw Error(fmt::format("rank {} of {} does not meet the others over Gloo within {} s: {}",
                                request_.rank, request_.size, request_.timeout.count() / 1000, problem));
      log(LogLevel::info, fmt::format("rank {}: attempt {} to meet the others over Gloo failed: {}",
                                      request_.rank, number, problem));
    }
  }

 private:
  static std::string here_key(Rank rank) { return fmt::format("meeting/here/{}", rank); }
  static std::string key_of(std::size_t attempt, const std::string& what) {
    return fmt::format("meeting/{}/{}", attempt, what);
  }

  std::vector<Rank> exits() {
    std::vector<Rank> exited;
    std::istringstream text(job_notes_.read("exits"));
    for (Rank rank = 0; text >> rank;) exited.push_back(rank);
    return exited;
  }

  // All that have not exited, once they are here.
  std::vector<Rank> agree_on_members(std::size_t attempt) {
    const std::string key = key_of(attempt, "members");
    std::string agreed = notes_.read(key);
    for (Pauses pauses; agreed.empty(); pauses.pause()) {
      const std::vector<Rank> exited = exits();
      std::vector<Rank> members;
      std::vector<std::string> keys;
      for (Rank r = 0; r < request_.size; ++r)
        if (std::ranges::find(exited, r) == exited.end()) {
          members.push_back(r);
          keys.push_back(here_key(r));
        }
      if (notes_.has_all(keys))
        agreed = notes_.agree(key, fmt::format("{}", fmt::join(members, " ")));
      else if (MeetingClock::now() > deadline_)
        throw Error(missing_text(members));
      else
        agreed = notes_.read(key);
    }
    std::vector<Rank> members;
    std::istringstream text(agreed);
    for (Rank rank = 0; text >> rank;) members.push_back(rank);
    if (std::ranges::find(members, request_.rank) == members.end())
      throw Error(fmt::format("the others go on without rank {}: they have seen it exit", request_.rank));
    if (members.size() < static_cast<std::size_t>(request_.size) && request_.rank == members.front())
      log(LogLevel::normal, fmt::format("{} of {} ranks meet: {} exited before", members.size(),
                                        request_.size, absent_text(members)));
    return members;
  }

  std::string absent_text(const std::vector<Rank>& members) const {
    std::vector<std::string> absent;
    for (Rank r = 0; r < request_.size; ++r)
      if (std::ranges::find(members, r) == members.end()) absent.push_back(std::to_string(r));
    return fmt::format("rank{} {}", absent.size() == 1 ? "" : "s", join_words(absent));
  }

  std::string missing_text(const std::vector<Rank>& awaited) {
    std::vector<std::string> missing;
    for (const Rank r : awaited)
      if (!notes_.has(here_key(r))) missing.push_back(std::to_string(r));
    return fmt::format("rank {} of {} has waited {} s for rank{} {}, which did not join", request_.rank,
                       request_.size, request_.timeout.count() / 1000, missing.size() == 1 ? "" : "s",
                       join_words(missing));
  }

  // Empty when all members are connected to each other, else why not. All of them get the same.
  std::string verdict_on(const std::shared_ptr<Attempt>& attempt) {
    const auto until = std::max(MeetingClock::now() + std::chrono::milliseconds(100),
                                std::min(deadline_, MeetingClock::now() + kLongestAttempt));
    std::thread worker([attempt, store = store_, request = request_, make = make_, until] {
      make_attempt(attempt, store, request, make, until);
    });
    std::string verdict;
    try {
      verdict = wait_for_verdict(*attempt, until);
    } catch (...) {
      *attempt->given_up = true;
      given_up_attempts().add(std::move(worker));
      throw;
    }
    if (verdict == kGood) {
      worker.join();
      return "";
    }
    *attempt->given_up = true;
    given_up_attempts().add(std::move(worker));
    return verdict;
  }

  std::string wait_for_verdict(const Attempt& attempt, MeetingClock::time_point until) {
    const std::string key = key_of(attempt.number, "verdict");
    std::vector<std::string> all;
    for (const Rank r : attempt.met.members) all.push_back(key_of(attempt.number, fmt::format("done/{}", r)));
    bool done = false;
    for (Pauses pauses;; pauses.pause()) {
      if (attempt.ended && !done) {
        if (!attempt.problem.empty())
          return notes_.agree(key, fmt::format("rank {}: {}", request_.rank, attempt.problem));
        notes_.write(key_of(attempt.number, fmt::format("done/{}", request_.rank)), "1");
        done = true;
      }
      if (done && notes_.has_all(all)) return notes_.agree(key, kGood);
      if (const std::string verdict = notes_.read(key); !verdict.empty()) return verdict;
      for (const Rank r : exits())
        if (std::ranges::find(attempt.met.members, r) != attempt.met.members.end())
          return notes_.agree(key, fmt::format("rank {} has exited", r));
      if (MeetingClock::now() > until + kLongestPause)
        return notes_.agree(key, fmt::format("rank {} has waited too long for the others", request_.rank));
    }
  }

  const StorePtr& store_;
  Notes notes_;
  Notes job_notes_;
  const FabricRequest& request_;
  const MakeGroups& make_;
  MeetingClock::time_point deadline_;
};

}  // namespace

Met meet_all(const StorePtr& store, const StorePtr& job, const FabricRequest& request,
             const MakeGroups& make) {
  return Meeting(store, job, request, make).meet();
}

}  // namespace starling::c10d_engine
