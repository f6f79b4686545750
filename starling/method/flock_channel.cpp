#include "starling/method/flock_channel.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <optional>

#include "starling/base/error.h"
#include "starling/flock/quiet_losses.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/copy.h"
#include "starling/method/flock_one_sided.h"
#include "starling/method/relay_memory.h"
#include "starling/method/short_form.h"

namespace starling {
namespace {

Missing missing_rule(const std::string& name) {
  if (name == "reference") return Missing::reference;
  if (name == "own") return Missing::own;
  return name == "zero" ? Missing::zero : Missing::counts;
}

// A block as it travels in fewer bits: it lies in outgoing memory.
struct Shortened {
  Pieces pieces;
  Outgoing memory;
};

class FlockChannel final : public Channel {
 public:
  FlockChannel(const Flock& flock, const std::string& name, const ChannelOptions& options)
      : flock_(flock), name_(name), options_(options) {
    if (!options.call.empty()) {
      call_ = std::make_shared<UserCall>();
      call_->call = options.call;
      call_->part = options.part;
      call_->same_step = options.same_step;
      flock_.set_user_call(name_, call_);
    }
    if (options.message != DType::float32) short_form_ = make_short_form(options.message, options.ends);
    if (options.relay) {
      relay_ =
          flock_.relay(options.schedule->name(), Name(name_ + "/relay"),
                       {.missing = missing_rule(options.relay.missing), .overlap = options.relay.overlap});
    } else if (options.schedule) {
      rounds_ = flock_.rounds(options.schedule, Name(name_ + "/mix"));
    }
  }
  // An average under way that was not settled is not wanted any more: others may have left before it ended.
  ~FlockChannel() override {
    const QuietLosses quiet;
    average_ = {};
  }
  FlockChannel(const FlockChannel&) = delete;
  FlockChannel& operator=(const FlockChannel&) = delete;

  Rank rank() const override { return flock_.rank(); }
  Rank size() const override { return flock_.size(); }

  void mix(Pieces pieces) override {
    if (shortens(pieces)) {
      check_exact_if_lost(pieces);
      Shortened sent = shorten(pieces);
      jobs_.push_back({rounds_.start(sent.pieces, std::move(sent.memory)), std::move(pieces), sent.pieces});
    } else {
      jobs_.push_back({rounds_.start(pieces), pieces, pieces});
    }
    epoch_ = jobs_.back().exchange.epoch();
  }

  void differences(Piece piece) override {
    piece.if_lost = IfLost::mutual;
    mix({piece});
    jobs_.back().differences = true;
  }

  void share(ConstBlock x) override {
    Pieces pieces = {{x, nullptr, 0}};
    if (shortens(pieces)) {
      Shortened sent = shorten(pieces);
      shared_from_ = sent.pieces[0].in.data;
      shared_ = rounds_.start(sent.pieces, std::move(sent.memory));
    } else {
      shared_ = rounds_.start(std::move(pieces), std::move(kept_));
    }
    kept_ = {};
    shared_arrived_ = false;
    epoch_ = shared_.epoch();
  }

  std::span<const Term> shared(MutableBlock out) override {
    if (shared_from_ == nullptr) return shared_.terms();
    around(out, out.data, shared_from_, shared_.terms());
    whole_ = {out.data, 1};
    return {&whole_, 1};
  }

  void shared_done() override {
    shared_ = {};
    shared_from_ = nullptr;
  }

  void* outgoing(std::size_t bytes) override {
    if (!options_.schedule || short_form_ || options_.schedule->mixing() == Mixing::two_block) return nullptr;
    outgoing_ = flock_.outgoing_bytes(bytes);
    return outgoing_.bytes().data();
  }
  void keep_for_share() override { kept_ = std::move(outgoing_); }
  void forget_kept() override { kept_ = {}; }

  void mix_outgoing(MutableBlock out) override {
    Pieces pieces = {{{out.dtype, outgoing_.bytes().data(), out.count}, out.data, 0}};
    jobs_.push_back({rounds_.start(pieces, std::move(outgoing_)), pieces, pieces});
    epoch_ = jobs_.back().exchange.epoch();
  }

  void reduce(Pieces pieces, Reduction reduction) override {
    if (!shortens(pieces)) {
      pending_.push_back(flock_.start_allreduce(std::move(pieces), reduction, Name(name_ + "/reduce")));
      return;
    }
    if (options_.message == DType::int8)
      throw InvalidArgument(name_ +
                            ": int8 messages cannot be summed on their way to everybody; use float32, "
                            "float16 or bfloat16");
    // An own copy: outgoing memory is read by others while the result is being written.
    const std::size_t element = size_of(options_.message);
    short_.resize(total_count(pieces) * element);
    Pieces sent = {{{options_.message, short_.data(), total_count(pieces)}, short_.data(), 0}};
    std::size_t at = 0;
    for (const Piece& piece : pieces) {
      convert(DType::float32, piece.in.data, options_.message, short_.data() + at * element, piece.in.count);
      at += piece.in.count;
    }
    lengthen_ = pieces;
    pending_.push_back(flock_.start_allreduce(std::move(sent), reduction, Name(name_ + "/reduce")));
  }

  void relay(Piece piece) override { pending_.push_back(relay_->start(piece)); }
  void set_reference(ConstBlock x) override { relay_->set_reference(x); }

  void gather(ConstBlock mine, std::vector<std::byte>& all) override {
    const std::size_t element = size_of(mine.dtype);
    const auto room = [&all, element](std::size_t count) {
      all.resize(count * element);
      return all.data();
    };
    pending_.push_back(flock_.start_allgather(mine, room, Name(name_ + "/gather")));
  }

  void send(Pieces pieces, Rank to, const std::string& tag) override {
    for (const Piece& piece : pieces) flock_.start_send(piece.in, to, Name(name_ + "/" + tag));
  }
  void receive(Pieces pieces, Rank from, const std::string& tag) override {
    for (const Piece& piece : pieces)
      letters_.push_back(
          flock_.start_recv({piece.in.dtype, piece.out, piece.in.count}, from, Name(name_ + "/" + tag)));
  }
  void broadcast(Pieces pieces, Rank root) override {
    pending_.push_back(flock_.start_broadcast(std::move(pieces), root, Name(name_ + "/broadcast")));
  }

  OneSided& window(MutableBlock block, OneSided::Start start) override {
    if (!one_sided_)
      one_sided_ =
          std::make_unique<FlockOneSided>(flock_, name_ + "/window", block, start, options_.schedule);
    return *one_sided_;
  }
  void set_progress(Step steps) override { one_sided_->window().set_progress(steps); }
  void await_progress(Step steps) override { one_sided_->await_progress(steps); }
  void note_age(Step age) override { ages_.add(age); }
  Staleness staleness() const override { return one_sided_ ? one_sided_->window().staleness() : ages_; }
  void start_average(ConstBlock block) override {
    const auto* bytes = static_cast<const std::byte*>(block.data);
    mean_.assign(bytes, bytes + block.bytes());
    const Piece piece{{block.dtype, mean_.data(), block.count}, mean_.data(), 0};
    average_ = flock_.start_allreduce({piece}, Reduction::average,
                                      Name(fmt::format("{}/average/{}", name_, generation_)));
  }
  bool average_arrived(MutableBlock out) override {
    if (!average_.ready()) return false;
    average_.wait();
    copy_bytes(out.data, mean_.data(), mean_.size());
    return true;
  }
  void await_average() override { awaits_average_ = true; }
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  bool busy() const override {
    return awaits_average_ || (one_sided_ && one_sided_->awaits()) || !jobs_.empty() || !pending_.empty() ||
           !letters_.empty() || (shared_ && !shared_arrived_);
  }

  bool ready() override {
    if (one_sided_ && !one_sided_->caught_up()) return false;
    if (awaits_average_ && !average_.ready()) return false;
    if (shared_ && !shared_arrived_ && !shared_.ready()) return false;
    for (Job& job : jobs_)
      if (!job.exchange.ready()) return false;
    for (std::vector<Pending>* all : {&pending_, &letters_})
      for (Pending& one : *all)
        if (!one.ready()) return false;
    return true;
  }

  void wait() override {
    if (!ready()) wait_measured();
    if (one_sided_) one_sided_->wait();
    if (std::exchange(awaits_average_, false)) average_.wait();
    if (shared_) {
      shared_.wait();
      shared_arrived_ = true;
    }
    std::vector<Job> jobs;
    std::vector<Pending> pending;
    std::vector<Pending> letters;
    std::swap(jobs, jobs_);
    std::swap(pending, pending_);
    std::swap(letters, letters_);
    for (Pending& one : pending) one.wait();
    for (Pending& one : letters) wait_for_letter(one);
    for (Job& job : jobs) finish(job);
    lengthen();
  }

  void note_step(Step step) override {
    if (call_) call_->step.store(step, std::memory_order_relaxed);
  }

  Exchange next() const override { return rounds_.next(); }
  SchedulePtr schedule() const override { return options_.schedule; }
  std::uint32_t epoch() const override { return epoch_; }
  Step round() const override { return options_.schedule && !relay_ ? rounds_.step() : 0; }
  void set_round(Step round) override {
    if (options_.schedule && !relay_) rounds_.set_step(round);
  }
  std::vector<ChannelMemory> memory() override {
    if (!relay_) return {};
    return pack(relay_->memory());
  }
  void remember(const std::vector<ChannelMemory>& memory) override {
    if (relay_) relay_->remember(unpack(memory));
    if (one_sided_) one_sided_->clear();
    // Some may have begun an average, others not: what begins now is another conversation.
    ++generation_;
    average_ = {};
  }
  double waited() const override { return waited_; }

 private:
  struct Job {
    Exchanging exchange;
    Pieces pieces;
    Pieces sent;
    bool differences = false;
  };

  bool shortens(const Pieces& pieces) const { return short_form_ && pieces[0].in.dtype == DType::float32; }

  // What a sender keeps it would have to keep as it was sent, rounded.
  void check_exact_if_lost(const Pieces& pieces) const {
    if (flock_.loses_messages() &&
        std::ranges::any_of(pieces, [](const Piece& piece) { return piece.if_lost == IfLost::returned; }))
      throw InvalidArgument(fmt::format(
          "{}: the method keeps a sum, which {} messages would spoil where messages get lost; use float32",
          name_, name(options_.message)));
  }

  // What is not float32 (a scalar) travels as it is.
  Shortened shorten(const Pieces& pieces) {
    std::vector<MutableBlock> blocks;
    for (const Piece& piece : pieces) {
      const bool shorter = piece.in.dtype == DType::float32;
      const auto [dtype, count] = shorter ? short_form_->travelling(piece.in.count)
                                          : ShortForm::Travelling{piece.in.dtype, piece.in.count};
      blocks.push_back({dtype, nullptr, count});
    }
    Shortened sent{pieces_of(blocks), {}};
    sent.memory = flock_.outgoing_bytes(message_bytes(sent.pieces));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const ConstBlock& in = pieces[i].in;
      sent.pieces[i].if_lost = pieces[i].if_lost;
      std::byte* to = sent.memory.bytes().data() + sent.pieces[i].offset;
      if (in.dtype == DType::float32)
        short_form_->encode(static_cast<const float*>(in.data), in.count, to);
      else
        copy_bytes(to, in.data, in.bytes());
      sent.pieces[i].in.data = to;
    }
    return sent;
  }

  // x keeps what it has of its own, so the flock's mean stays whatever the rounding.
  void around(MutableBlock out, const void* x, const void* own, std::span<const Term> terms) const {
    std::vector<Term> others;
    for (const Term& term : terms)
      if (term.data != own) others.push_back(term);
    if (short_form_ && out.dtype == DType::float32)
      short_form_->around(static_cast<float*>(out.data), static_cast<const float*>(x), own, others,
                          out.count);
    else
      combine_around(out.dtype, out.data, x, own, others, out.count);
  }

  // A mean within a group that was passed on is nobody's own: the average less x, then.
  void subtract_own(const Piece& piece, const void* sent, std::span<const Term> terms) const {
    const auto is_own = [&](const Term& term) { return term.data == sent; };
    if (std::any_of(terms.begin(), terms.end(), is_own)) {
      around({piece.in.dtype, piece.out, piece.in.count}, nullptr, sent, terms);
      return;
    }
    combine(piece.in.dtype, piece.out, terms, piece.in.count);
    const Term difference[] = {{piece.out, 1}, {piece.in.data, -1}};
    combine(piece.in.dtype, piece.out, difference, piece.in.count);
  }

  void finish(Job& job) {
    job.exchange.wait();
    for (std::size_t i = 0; i < job.pieces.size(); ++i) {
      const Piece& piece = job.pieces[i];
      const auto terms = job.exchange.terms(i);
      if (job.differences)
        subtract_own(piece, job.sent[i].in.data, terms);
      else if (job.sent[i].in.dtype != piece.in.dtype)
        around({piece.in.dtype, piece.out, piece.in.count}, piece.in.data, job.sent[i].in.data, terms);
      else
        combine(piece.in.dtype, piece.out, terms, piece.in.count);
    }
  }

  void lengthen() {
    std::size_t at = 0;
    for (const Piece& piece : lengthen_) {
      convert(options_.message, short_.data() + at * size_of(options_.message), DType::float32, piece.out,
              piece.in.count);
      at += piece.in.count;
    }
    lengthen_.clear();
  }

  void wait_for_letter(Pending& one) const {
    try {
      one.wait();
    } catch (const PeerLost& error) {
      if (flock_.on_peer_failure() != OnPeerFailure::reweight) throw;
      flock_.go_on_without(error.peer());
    }
  }

  void wait_measured() {
    const auto from = std::chrono::steady_clock::now();
    if (one_sided_) one_sided_->wait();
    while (awaits_average_ && !average_.wait_for(std::chrono::seconds(1))) {
    }
    if (shared_ && !shared_arrived_) shared_.wait();
    for (Job& job : jobs_) job.exchange.wait();
    for (Pending& one : pending_) one.wait();
    for (Pending& one : letters_) wait_for_letter(one);
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  }

  Flock flock_;
  std::string name_;
  ChannelOptions options_;
  std::shared_ptr<UserCall> call_;
  std::unique_ptr<ShortForm> short_form_;  // null where messages are exact
  Rounds rounds_;
  std::optional<Relay> relay_;
  std::vector<Job> jobs_;
  std::vector<Pending> pending_;
  std::vector<Pending> letters_;  // to be received
  std::vector<std::byte> mean_;
  Pending average_;  // of mean_, that nobody waits for
  int generation_ = 0;
  bool awaits_average_ = false;  // but for now
  Staleness ages_;
  std::unique_ptr<FlockOneSided> one_sided_;
  Exchanging shared_;
  bool shared_arrived_ = false;
  const void* shared_from_ = nullptr;  // where x went in fewer bits
  Term whole_{};
  Outgoing outgoing_;
  Outgoing kept_;
  std::vector<std::byte> short_;
  Pieces lengthen_;
  std::uint32_t epoch_ = 0;
  double waited_ = 0;
};

}  // namespace

namespace {

// A mean within a group that is passed on would be rounded on the way.
bool has_two_phases(const Schedule& schedule) {
  constexpr Step kMostSteps = 1024;
  const Step steps = std::clamp<Step>(schedule.period(), 1, kMostSteps);
  for (Step step = 0; step < steps; ++step) {
    const Exchange exchange = schedule.exchange(step, 0);
    if (exchange.group.size() > 1 && !exchange.sources.empty()) return true;
  }
  return false;
}

}  // namespace

ChannelPtr make_flock_channel(const Flock& flock, const std::string& name, const ChannelOptions& options) {
  if (options.message != DType::float32 && options.relay)
    throw InvalidArgument("relayed sums would gather the rounding of " + starling::name(options.message) +
                          " messages; use float32");
  if (options.message != DType::float32 && options.schedule && has_two_phases(*options.schedule))
    throw InvalidArgument(
        fmt::format("{} passes on means within groups, which {} messages would round; use float32",
                    options.schedule->name(), starling::name(options.message)));
  return std::make_unique<FlockChannel>(flock, name, options);
}

}  // namespace starling
