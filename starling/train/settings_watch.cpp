#include "starling/train/settings_watch.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include "starling/base/checksum.h"
#include "starling/base/error.h"
#include "starling/record/log.h"

namespace starling::train {
namespace {

constexpr Step kEvery = 64;       // steps between two checks, once the first ones are over
constexpr Rank kAllToAll = 16;    // up to this many ranks, all ranks post to all
constexpr std::size_t kOpen = 4;  // the number of checks that may be in flight
constexpr int kPatience = 1;      // how many late checks in a row to wait for
// Ranks that are in step have posted long before their posts are read.
constexpr std::chrono::milliseconds kGrace{500};

// Hashes that are equal for numbers that differ only in the last bits.
std::uint64_t mixed(std::uint64_t before, double number) {
  const std::uint64_t words[] = {before, std::bit_cast<std::uint32_t>(static_cast<float>(number))};
  return checksum_of(std::as_bytes(std::span(words)));
}

bool same(const Hyper& a, const Hyper& b) {
  return a.lr == b.lr && a.momentum == b.momentum && a.dampening == b.dampening &&
         a.weight_decay == b.weight_decay && a.nesterov == b.nesterov && a.beta1 == b.beta1 &&
         a.beta2 == b.beta2 && a.eps == b.eps;
}

}  // namespace

void describe_settings(Description& description, const LocalOptimizer& optimizer) {
  const auto groups = optimizer.settings();
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const auto& [name, value] : groups[g])
      description.add(groups.size() == 1 ? fmt::format("the optimizer's {}", name)
                                         : fmt::format("{} of the optimizer's group {}", name, g),
                      value);
}

void SettingsWatch::start(const Flock& flock, Options options) {
  forget();
  flock_.reset();
  if (flock.size() > 1) {
    flock_ = flock;
    const auto call = std::make_shared<UserCall>();
    call->call = options.caller + "step()";
    flock_->set_user_call(options.name + "/watch", call);
  }
  options_ = std::move(options);
  history_ = 0;
  changed_ = 0;
  seen_ = -1;
  missed_ = 0;
  last_.clear();
  gradients_.clear();
}

bool SettingsWatch::begin_step(Step step, const LocalOptimizer& optimizer,
                               const std::function<double()>& norm_of_model) {
  if (step == seen_) return false;
  seen_ = step;
  const bool changed = notice_change(step, *optimizer.hypers());
  if (flock_ && is_due(step)) {
    read_posts();
    if (options_.compares || step == 1) post(step, optimizer, options_.equal_models ? norm_of_model() : 0);
  }
  return changed;
}

bool SettingsWatch::notice_change(Step step, const std::vector<Hyper>& hypers) {
  if (last_.size() == hypers.size() && std::equal(last_.begin(), last_.end(), hypers.begin(), same))
    return false;
  last_ = hypers;
  changed_ = step;
  history_ = mixed(history_, static_cast<double>(step));
  for (const Hyper& hyper : hypers)
    for (const double number : {hyper.lr, hyper.momentum, hyper.dampening, hyper.weight_decay,
                                hyper.nesterov ? 1.0 : 0.0, hyper.beta1, hyper.beta2, hyper.eps})
      history_ = mixed(history_, number);
  return true;
}

// If ranks are not in step, checks become rarer, so that those of a fast rank do not pile up at a slow one.
bool SettingsWatch::is_due(Step step) const {
  return options_.asynchronous ? step == 0 || std::has_single_bit(static_cast<std::uint64_t>(step))
                               : is_usual_check(step);
}

bool SettingsWatch::is_usual_check(Step step) {
  return step % kEvery == 0 || (step < kEvery && std::has_single_bit(static_cast<std::uint64_t>(step)));
}

// In larger flocks, the neighbors in the exponential graph, in both directions.
std::vector<Rank> SettingsWatch::peers() const {
  const Rank n = flock_->size();
  const Rank own = flock_->rank();
  std::vector<Rank> all;
  if (n <= kAllToAll) {
    for (Rank r = 0; r < n; ++r)
      if (r != own) all.push_back(r);
    return all;
  }
  for (Rank distance = 1; distance < n; distance *= 2)
    for (const Rank r : {(own + distance) % n, (own + n - distance) % n})
      if (std::find(all.begin(), all.end(), r) == all.end()) all.push_back(r);
  return all;
}

void SettingsWatch::post(Step step, const LocalOptimizer& optimizer, double norm) {
  Check& check = checks_.emplace_back();
  if (options_.compares) {
    Description settings;
    describe_settings(settings, optimizer);
    check.own.text = settings.text();
  }
  Report& report = check.own.report;
  report = {flock_->rank(), step, history_, changed_, 0, norm, check.own.text.size()};
  const auto is_nonzero = [](std::uint64_t hash) { return hash != 0; };
  if (step == 1 && std::any_of(gradients_.begin(), gradients_.end(), is_nonzero))
    report.gradient = checksum_of(std::as_bytes(std::span(gradients_)));
  std::vector<std::uint8_t> message(sizeof(report) + check.own.text.size());
  std::memcpy(message.data(), &report, sizeof(report));
  std::memcpy(message.data() + sizeof(report), check.own.text.data(), check.own.text.size());
  const std::vector<Rank> others = peers();
  const Room room = [&answers = check.others](std::size_t count) {
    answers.resize(count);
    return buffer_of(answers);
  };
  // The message is copied; the elements of a deque do not move.
  check.pending =
      ByteOperations(*flock_).neighbor_allgather({DType::uint8, message.data(), message.size()}, room, others,
                                                 others, Name(options_.name + "/watch/settings"));
}

bool SettingsWatch::arrived(Check& check) {
  try {
    if (options_.asynchronous || missed_ >= kPatience) {
      if (!check.pending->ready()) return false;
      check.pending->wait();
      return true;
    }
    return check.pending->wait_for(std::min<std::chrono::nanoseconds>(kGrace, flock_->timeout() / 4));
  } catch (const PeerLost&) {
    // The operation that needs that rank reports it.
    check.others.clear();
    return true;
  }
}

void SettingsWatch::read_posts() {
  while (!checks_.empty()) {
    if (!arrived(checks_.front())) {
      ++missed_;
      break;
    }
    missed_ = 0;
    const Check check = std::move(checks_.front());
    checks_.pop_front();
    compare(check);
  }
  while (checks_.size() >= kOpen) {
    checks_.front().pending->forget();
    checks_.pop_front();
  }
}

void SettingsWatch::forget() {
  for (Check& check : checks_) check.pending->forget();
  checks_.clear();
}

void SettingsWatch::compare(const Check& check) {
  std::vector<Post> all = {check.own};
  for (std::size_t at = 0; at + sizeof(Report) <= check.others.size();) {
    Post& one_post = all.emplace_back();
    std::memcpy(&one_post.report, check.others.data() + at, sizeof(Report));
    at += sizeof(Report);
    if (one_post.report.text_bytes > check.others.size() - at) throw Error("a post of settings is truncated");
    one_post.text.assign(reinterpret_cast<const char*>(check.others.data()) + at, one_post.report.text_bytes);
    at += one_post.report.text_bytes;
  }
  if (all.size() == 1) return;
  std::sort(all.begin(), all.end(),
            [](const Post& a, const Post& b) { return a.report.rank < b.report.rank; });
  warn_of_equal_gradients(all);
  if (!options_.compares) return;
  const Post& first = all.front();
  for (const Post& other : all) {
    if (other.report.step != first.report.step) continue;  // they were restored at different steps
    const bool same_now = other.text == first.text;
    if (const auto difference =
            same_now ? std::nullopt
                     : first_difference(Description::parse(first.text), Description::parse(other.text)))
      return report_difference(fmt::format(
          "{} (step {})", difference->text(first.report.rank, other.report.rank), first.report.step));
    if (other.report.history != first.report.history && !options_.asynchronous)
      return report_difference(fmt::format(
          "the optimizer's settings have changed at different steps or to different values before step {}: "
          "the last time at step {} on rank {}, at step {} on rank {}",
          first.report.step, first.report.changed, first.report.rank, other.report.changed,
          other.report.rank));
  }
  if (options_.equal_models) warn_of_unequal_models(all);
}

void SettingsWatch::report_difference(const std::string& text) {
  const std::string all = fmt::format(
      "the ranks do not train alike any more: {}. Change settings on every rank in the same step, or allow "
      "differences with per_rank_settings = true",
      text);
  if (!options_.asynchronous) throw InvalidArgument(all);
  if (!warned_) log(LogLevel::normal, all);
  warned_ = true;
}

void SettingsWatch::warn_of_equal_gradients(const std::vector<Post>& all) const {
  const std::uint64_t gradient = all.front().report.gradient;
  const bool equal = std::all_of(all.begin(), all.end(),
                                 [&](const Post& one_post) { return one_post.report.gradient == gradient; });
  if (gradient == 0 || !equal || flock_->rank() != 0) return;
  log(LogLevel::normal,
      "all ranks have computed the same first gradient, so they train on the same data. Give each rank its "
      "own part, for example with FlockSampler (docs/training.md)");
}

// The lower of the two ranks logs it. Differences by rounding on other processors are ignored.
void SettingsWatch::warn_of_unequal_models(const std::vector<Post>& all) {
  constexpr double kRounding = 1e-4;
  const auto own = std::find_if(all.begin(), all.end(),
                                [&](const Post& one_post) { return one_post.report.rank == flock_->rank(); });
  for (auto other = own + 1; other != all.end() && !warned_of_models_; ++other) {
    const double difference = std::abs(other->report.norm - own->report.norm);
    if (other->report.step != own->report.step || !(difference > kRounding * own->report.norm)) continue;
    warned_of_models_ = true;
    log(LogLevel::normal,
        fmt::format(
            "the models of ranks {} and {} differ at step {}; this method keeps equal models equal, "
            "but does not make different ones equal. After loading or changing a model on one rank, call "
            "broadcast_parameters() on every rank",
            own->report.rank, other->report.rank, own->report.step));
  }
}

void SettingsWatch::note_gradient(std::size_t block, std::span<const std::byte> gradient) {
  if (gradients_.size() <= block) gradients_.resize(block + 1);
  const bool zero =
      std::all_of(gradient.begin(), gradient.end(), [](std::byte one) { return one == std::byte{}; });
  gradients_[block] = zero ? 0 : checksum_of(gradient);
}

}  // namespace starling::train
