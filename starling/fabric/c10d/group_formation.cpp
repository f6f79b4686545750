#include "starling/fabric/c10d/group_formation.h"

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
#include "starling/fabric/c10d/store.h"
#include "starling/record/log.h"

// Keys in the store of a job:
//   exits                  exited ranks, as the launcher saw them: one list for all formations
//   formation/here/R       rank R has arrived
//   formation/A/members    the ranks in attempt A: the first list that any rank proposed
//   formation/A/done/R     rank R is connected to all members
//   formation/A/verdict    the first that any rank proposed: kGood, or why the attempt failed
//   formation/A/groups/... the members' addresses, written by Gloo
namespace starling::fabric::c10d_engine {
namespace {

using FormationClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kShortestPause{1};
constexpr std::chrono::milliseconds kLongestPause{50};
constexpr std::chrono::seconds kLongestAttempt{15};  // all ranks have arrived before it starts
constexpr int kHelloTag = 0x53540003;
const std::string kGood = "good";

/// Sleeps longer from poll to poll.
class Backoff {
 public:
  void pause() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, kLongestPause);
  }

 private:
  std::chrono::milliseconds next_ = kShortestPause;
};

/// The store of an attempt that may be cancelled: then waiting calls throw. Other threads use the underlying
/// store at the same time, so nothing waits inside it.
class AttemptStore final : public ::c10d::Store {
 public:
  AttemptStore(StorePtr store, std::shared_ptr<std::atomic<bool>> cancelled, FormationClock::time_point until)
      : store_(std::move(store)), cancelled_(std::move(cancelled)), until_(until) {}

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
    for (Backoff backoff; !store_->check(keys); backoff.pause()) {
      if (*cancelled_) throw Error("the attempt was canceled");
      if (FormationClock::now() > until_) throw Error("not all ranks have published their addresses");
    }
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  StorePtr clone() override {
    return c10::make_intrusive<AttemptStore>(store_, cancelled_, until_);
  }
#endif

 private:
  StorePtr store_;
  std::shared_ptr<std::atomic<bool>> cancelled_;
  FormationClock::time_point until_;
};

/// The threads of cancelled attempts, which end soon by their own time limits.
class AbandonedAttempts {
 public:
  ~AbandonedAttempts() {
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

AbandonedAttempts& abandoned_attempts() {
  static AbandonedAttempts all;
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

// Verifies that every connection leads to the intended rank: Gloo accepts the first process that connects.
// Only a rank of this job can send the expected HMAC.
void verify_peers(const Groups& groups, const FormedGroups& formed, const FabricRequest& request,
                  std::size_t attempt, std::chrono::milliseconds limit) {
  const std::vector<GroupPtr> all = {groups.frames, groups.up, groups.down};
  struct Hello {
    std::string sent, expected, received;
    WorkPtr sending, receiving;
    Rank peer;
  };
  std::vector<Hello> hellos;
  hellos.reserve(all.size() * formed.members.size());
  for (std::size_t g = 0; g < all.size(); ++g)
    for (std::size_t i = 0; i < formed.members.size(); ++i) {
      const Rank peer = formed.members[i];
      if (peer == request.rank) continue;
      Hello& hello = hellos.emplace_back();
      hello.peer = peer;
      hello.sent = hello_text(request.job, attempt, g, request.rank, peer);
      hello.expected = hello_text(request.job, attempt, g, peer, request.rank);
      hello.received.resize(hello.expected.size());
      std::vector<at::Tensor> in = {text_tensor(hello.received)};
      std::vector<at::Tensor> out = {text_tensor(hello.sent)};
      hello.receiving = all[g]->recv(in, static_cast<int>(i), kHelloTag);
      hello.sending = all[g]->send(out, static_cast<int>(i), kHelloTag);
    }
  for (Hello& hello : hellos)
    if (!hello.receiving->wait(limit) || !hello.sending->wait(limit) || hello.received != hello.expected)
      throw Error(fmt::format("a process outside the job connected in place of rank {}", hello.peer));
}

/// One attempt of this rank, on a thread of its own, so that it can be cancelled.
struct Attempt {
  std::size_t number = 0;
  FormedGroups formed;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> ended{false};
  std::string problem;  // valid once it has ended
};

void run_attempt(const std::shared_ptr<Attempt>& attempt, const StorePtr& store, const FabricRequest& request,
                 const MakeGroups& make, FormationClock::time_point until) {
  try {
    const auto& members = attempt->formed.members;
    const auto index = static_cast<Rank>(std::ranges::find(members, request.rank) - members.begin());
    const auto limit = [&] {
      return std::max(std::chrono::milliseconds(1),
                      std::chrono::duration_cast<std::chrono::milliseconds>(until - FormationClock::now()));
    };
    const auto guarded = c10::make_intrusive<AttemptStore>(store, attempt->cancelled, until);
    const auto part = c10::make_intrusive<::c10d::PrefixStore>(
        fmt::format("formation/{}/groups", attempt->number), guarded);
    Groups groups = make(part, index, static_cast<Rank>(members.size()), limit());
    verify_peers(groups, attempt->formed, request, attempt->number, limit());
    if (!*attempt->cancelled) attempt->formed.groups = std::move(groups);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    attempt->problem = text.substr(0, text.find('\n'));
    if (attempt->problem.empty()) attempt->problem = "unknown error";
  }
  attempt->ended = true;
}

/// Forms the process groups of one rank, in as many attempts as needed. Used by one thread.
class GroupFormation {
 public:
  GroupFormation(const StorePtr& store, const StorePtr& job, const FabricRequest& request,
                 const MakeGroups& make)
      : store_(store),
        keys_(store),
        job_keys_(job),
        request_(request),
        make_(make),
        deadline_(FormationClock::now() + request.timeout) {}

  FormedGroups run() {
    keys_.write(arrival_key(request_.rank), "1");
    std::string problem;
    for (std::size_t number = 1;; ++number) {
      const auto attempt = std::make_shared<Attempt>();
      attempt->number = number;
      attempt->formed.members = agree_on_members(number);
      problem = attempt_problem(attempt);
      if (problem.empty()) return std::move(attempt->formed);
      if (FormationClock::now() > deadline_)
        throw Error(fmt::format("rank {} of {} cannot connect to the other ranks over Gloo within {} s: {}",
                                request_.rank, request_.size, request_.timeout.count() / 1000, problem));
      log(LogLevel::info,
          fmt::format("rank {}: attempt {} to connect to the other ranks over Gloo failed: {}", request_.rank,
                      number, problem));
    }
  }

 private:
  static std::string arrival_key(Rank rank) { return fmt::format("formation/here/{}", rank); }
  static std::string key_of(std::size_t attempt, const std::string& what) {
    return fmt::format("formation/{}/{}", attempt, what);
  }

  std::vector<Rank> exits() {
    std::vector<Rank> exited;
    std::istringstream text(job_keys_.read("exits"));
    for (Rank rank = 0; text >> rank;) exited.push_back(rank);
    return exited;
  }

  // All ranks that have not exited, once they have arrived.
  std::vector<Rank> agree_on_members(std::size_t attempt) {
    const std::string key = key_of(attempt, "members");
    std::string agreed = keys_.read(key);
    for (Backoff backoff; agreed.empty(); backoff.pause()) {
      const std::vector<Rank> exited = exits();
      std::vector<Rank> members;
      std::vector<std::string> keys;
      for (Rank r = 0; r < request_.size; ++r)
        if (std::ranges::find(exited, r) == exited.end()) {
          members.push_back(r);
          keys.push_back(arrival_key(r));
        }
      if (keys_.has_all(keys))
        agreed = keys_.agree(key, fmt::format("{}", fmt::join(members, " ")));
      else if (FormationClock::now() > deadline_)
        throw Error(missing_text(members));
      else
        agreed = keys_.read(key);
    }
    std::vector<Rank> members;
    std::istringstream text(agreed);
    for (Rank rank = 0; text >> rank;) members.push_back(rank);
    if (std::ranges::find(members, request_.rank) == members.end())
      throw Error(fmt::format("the other ranks continue without rank {}: the launcher reported its exit",
                              request_.rank));
    if (members.size() < static_cast<std::size_t>(request_.size) && request_.rank == members.front())
      log(LogLevel::normal, fmt::format("{} of {} ranks join; {} exited before", members.size(),
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
      if (!keys_.has(arrival_key(r))) missing.push_back(std::to_string(r));
    return fmt::format("rank {} of {} has waited {} s for rank{} {}, which did not join", request_.rank,
                       request_.size, request_.timeout.count() / 1000, missing.size() == 1 ? "" : "s",
                       join_words(missing));
  }

  // Why the attempt failed; empty if all members are connected to each other. The same on every member.
  std::string attempt_problem(const std::shared_ptr<Attempt>& attempt) {
    const auto until = std::max(FormationClock::now() + std::chrono::milliseconds(100),
                                std::min(deadline_, FormationClock::now() + kLongestAttempt));
    std::thread worker([attempt, store = store_, request = request_, make = make_, until] {
      run_attempt(attempt, store, request, make, until);
    });
    std::string verdict;
    try {
      verdict = wait_for_verdict(*attempt, until);
    } catch (...) {
      *attempt->cancelled = true;
      abandoned_attempts().add(std::move(worker));
      throw;
    }
    if (verdict == kGood) {
      worker.join();
      return "";
    }
    *attempt->cancelled = true;
    abandoned_attempts().add(std::move(worker));
    return verdict;
  }

  std::string wait_for_verdict(const Attempt& attempt, FormationClock::time_point until) {
    const std::string key = key_of(attempt.number, "verdict");
    std::vector<std::string> all;
    for (const Rank r : attempt.formed.members)
      all.push_back(key_of(attempt.number, fmt::format("done/{}", r)));
    bool done = false;
    for (Backoff backoff;; backoff.pause()) {
      if (attempt.ended && !done) {
        if (!attempt.problem.empty())
          return keys_.agree(key, fmt::format("rank {}: {}", request_.rank, attempt.problem));
        keys_.write(key_of(attempt.number, fmt::format("done/{}", request_.rank)), "1");
        done = true;
      }
      if (done && keys_.has_all(all)) return keys_.agree(key, kGood);
      if (const std::string verdict = keys_.read(key); !verdict.empty()) return verdict;
      for (const Rank r : exits())
        if (std::ranges::find(attempt.formed.members, r) != attempt.formed.members.end())
          return keys_.agree(key, fmt::format("rank {} has exited", r));
      if (FormationClock::now() > until + kLongestPause)
        return keys_.agree(key, fmt::format("rank {} timed out waiting for the others", request_.rank));
    }
  }

  const StorePtr& store_;
  PollingStore keys_;
  PollingStore job_keys_;
  const FabricRequest& request_;
  const MakeGroups& make_;
  FormationClock::time_point deadline_;
};

}  // namespace

FormedGroups form_groups(const StorePtr& store, const StorePtr& job, const FabricRequest& request,
                         const MakeGroups& make) {
  return GroupFormation(store, job, request, make).run();
}

}  // namespace starling::fabric::c10d_engine
