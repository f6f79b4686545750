#include "starling/method/flock_channel.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <optional>

#include "starling/base/error.h"
#include "starling/base/stopwatch.h"
#include "starling/codec/wire_format.h"
#include "starling/flock/byte_operations.h"
#include "starling/flock/neighbor_exchanger.h"
#include "starling/kernel/arithmetic.h"
#include "starling/method/flock_collective.h"
#include "starling/method/flock_one_sided.h"
#include "starling/method/flock_relay.h"

namespace starling::method {
namespace {

/// The neighbor exchanges of one block on a flock. Used by one thread at a time, like its channel.
class FlockNeighbors final : public NeighborChannel, private SharedExchange::Lender {
 public:
  FlockNeighbors(const Flock& flock, const std::string& name, SchedulePtr schedule, WireFormatPtr format,
                 std::vector<std::size_t> ends)
      : flock_(flock),
        name_(name),
        schedule_(std::move(schedule)),
        format_(std::move(format)),
        ends_(std::move(ends)),
        exchanger_(flock_, schedule_, Name(name_ + "/mix")) {}

  void mix(Pieces pieces) override;
  void mix(Outgoing written, Buffer out) override;
  void differences(Piece piece) override;
  SharedExchange share(ConstBuffer x, Outgoing written) override;
  Outgoing outgoing(ConstBuffer block) override;
  ConstBuffer outgoing_form(ConstBuffer block) const override {
    if (block.dtype != DType::float32) return {block.dtype, nullptr, block.count};
    return {format_->dtype(), nullptr, format_->encoded_count(block.count)};
  }
  std::span<const std::size_t> ends() const override { return ends_; }

  Exchange next() const override { return exchanger_.next(); }
  Step round() const override { return exchanger_.step(); }
  void set_round(Step round) override { exchanger_.set_step(round); }
  std::uint32_t epoch() const override { return epoch_; }

  // Called by the channel.

  bool busy() const { return !jobs_.empty() || (shared_ && !shared_arrived_); }
  bool ready();
  /// Waits for the messages of all exchanges.
  void await();
  /// Waits, and writes the results.
  void finish();

 private:
  struct Job {
    PendingExchange exchange;
    Pieces pieces;
    Pieces sent;
    bool differences = false;
  };
  /// Blocks in outgoing memory, in the wire format.
  struct Encoded {
    Pieces pieces;
    Outgoing memory;
  };

  std::span<const Term> lent_terms(Buffer out) override;
  kernel::PassMessages lent_messages() override;
  void give_back() noexcept override;

  void add_job(PendingExchange exchange, Pieces pieces, Pieces sent);
  bool encodes(const Pieces& pieces) const {
    return !format_->exact() && pieces[0].in.dtype == DType::float32;
  }
  void check_exact_if_lost(const Pieces& pieces) const;
  Encoded encode(const Pieces& pieces);
  void combine_around(Buffer out, ConstBuffer x, ConstBuffer own, std::span<const Term> terms) const;
  static std::vector<Term> others_of(ConstBuffer own, std::span<const Term> terms);
  void subtract_own(const Piece& piece, ConstBuffer sent, std::span<const Term> terms) const;
  void finish(Job& job);

  Flock flock_;
  const std::string name_;
  const SchedulePtr schedule_;
  const WireFormatPtr format_;
  const std::vector<std::size_t> ends_;
  NeighborExchanger exchanger_;
  std::vector<Job> jobs_;
  PendingExchange shared_;
  bool shared_arrived_ = false;
  ConstBuffer shared_message_;  // the message, if x was sent with fewer bits
  Term whole_{};
  std::vector<Term> others_;
  std::uint32_t epoch_ = 0;
};

void FlockNeighbors::add_job(PendingExchange exchange, Pieces pieces, Pieces sent) {
  epoch_ = exchange.epoch();
  jobs_.push_back({std::move(exchange), std::move(pieces), std::move(sent)});
}

void FlockNeighbors::mix(Pieces pieces) {
  if (encodes(pieces)) {
    check_exact_if_lost(pieces);
    Encoded sent = encode(pieces);
    add_job(exchanger_.start(sent.pieces, std::move(sent.memory)), std::move(pieces), sent.pieces);
  } else {
    add_job(exchanger_.start(pieces), pieces, pieces);
  }
}

void FlockNeighbors::mix(Outgoing written, Buffer out) {
  const ConstBuffer form = outgoing_form(out);
  const Buffer message = written.buffer(form.dtype, form.count);
  const Pieces sent = {{message, message.dtype == out.dtype ? out : Buffer(), 0}};
  Pieces pieces = sent;
  if (message.dtype != out.dtype) pieces = {{out, out, 0}};
  add_job(exchanger_.start(sent, std::move(written)), std::move(pieces), sent);
}

void FlockNeighbors::differences(Piece piece) {
  piece.if_lost = IfLost::mutual;
  mix({piece});
  jobs_.back().differences = true;
}

SharedExchange FlockNeighbors::share(ConstBuffer x, Outgoing written) {
  Pieces pieces = {{x, {}, 0}};
  if (encodes(pieces)) {
    const ConstBuffer form = outgoing_form(x);
    const Pieces as_written = {{written.buffer(form.dtype, form.count), {}, 0}};
    Encoded sent = written ? Encoded{as_written, std::move(written)} : encode(pieces);
    shared_message_ = sent.pieces[0].in;
    shared_ = exchanger_.start(sent.pieces, std::move(sent.memory));
  } else {
    shared_ = exchanger_.start(std::move(pieces), std::move(written));
  }
  shared_arrived_ = false;
  epoch_ = shared_.epoch();
  return SharedExchange(*this);
}

std::span<const Term> FlockNeighbors::lent_terms(Buffer out) {
  if (shared_message_.address() == nullptr) return shared_.terms();
  combine_around(out, out, shared_message_, shared_.terms());
  whole_ = {out, 1};
  return {&whole_, 1};
}

kernel::PassMessages FlockNeighbors::lent_messages() {
  if (shared_message_.address() == nullptr) return {};
  others_ = others_of(shared_message_, shared_.terms());
  return {shared_message_.dtype, shared_message_.address(), others_};
}

void FlockNeighbors::give_back() noexcept {
  shared_ = {};
  shared_message_ = {};
}

Outgoing FlockNeighbors::outgoing(ConstBuffer block) {
  if (schedule_->mixing() == Mixing::two_block) return {};
  return flock_.outgoing_bytes(outgoing_form(block).bytes(), block.memory);
}

bool FlockNeighbors::ready() {
  if (shared_ && !shared_arrived_ && !shared_.ready()) return false;
  for (Job& job : jobs_)
    if (!job.exchange.ready()) return false;
  return true;
}

void FlockNeighbors::await() {
  if (shared_ && !shared_arrived_) shared_.wait();
  for (Job& job : jobs_) job.exchange.wait();
}

void FlockNeighbors::finish() {
  if (shared_) {
    shared_.wait();
    shared_arrived_ = true;
  }
  std::vector<Job> jobs;
  std::swap(jobs, jobs_);
  for (Job& job : jobs) finish(job);
}

// A sender would keep its share of a lost message as it was sent, which is rounded.
void FlockNeighbors::check_exact_if_lost(const Pieces& pieces) const {
  if (flock_.loses_messages() &&
      std::ranges::any_of(pieces, [](const Piece& piece) { return piece.if_lost == IfLost::returned; }))
    throw InvalidArgument(fmt::format(
        "{}: the method keeps a sum, which {} messages would spoil where messages get lost; use float32",
        name_, format_->name()));
}

// Pieces that are not float32 (scalars) are sent unchanged.
FlockNeighbors::Encoded FlockNeighbors::encode(const Pieces& pieces) {
  const MemoryKind memory = pieces[0].in.memory;
  std::vector<Buffer> blocks;
  for (const Piece& piece : pieces) {
    if (piece.in.dtype == DType::float32)
      blocks.emplace_back(format_->dtype(), nullptr, format_->encoded_count(piece.in.count));
    else
      blocks.emplace_back(piece.in.dtype, nullptr, piece.in.count);
  }
  Encoded sent{pieces_of(blocks), {}};
  sent.memory = flock_.outgoing_bytes(message_bytes(sent.pieces), memory);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const ConstBuffer& in = pieces[i].in;
    sent.pieces[i].if_lost = pieces[i].if_lost;
    const Buffer to = sent.memory.buffer(blocks[i].dtype, blocks[i].count, sent.pieces[i].offset);
    if (in.dtype == DType::float32)
      format_->encode(in, to);
    else
      arithmetic_in(memory).copy(to, in);
    sent.pieces[i].in = to;
  }
  return sent;
}

std::vector<Term> FlockNeighbors::others_of(ConstBuffer own, std::span<const Term> terms) {
  std::vector<Term> others;
  for (const Term& term : terms)
    if (term.data != own.address()) others.push_back(term);
  return others;
}

// x + sum of weight * (theirs - own): x itself is not rounded, so the flock's mean stays the same.
void FlockNeighbors::combine_around(Buffer out, ConstBuffer x, ConstBuffer own,
                                    std::span<const Term> terms) const {
  const std::vector<Term> others = others_of(own, terms);
  if (own.dtype != out.dtype)
    format_->combine_around(out, x, own, others);
  else
    arithmetic_in(out.memory).combine_around(out.dtype, out, x, {own, 1}, others);
}

// If a group's mean was sent, no term is this rank's own: the difference is the average minus x.
void FlockNeighbors::subtract_own(const Piece& piece, ConstBuffer sent, std::span<const Term> terms) const {
  const auto is_own = [&](const Term& term) { return term.data == sent.address(); };
  if (std::any_of(terms.begin(), terms.end(), is_own)) {
    combine_around(piece.out, {}, sent, terms);
    return;
  }
  const Arithmetic& arithmetic = arithmetic_in(piece.out.memory);
  arithmetic.combine(piece.out, terms);
  const Term difference[] = {{piece.out, 1}, {piece.in, -1}};
  arithmetic.combine(piece.out, difference);
}

void FlockNeighbors::finish(Job& job) {
  job.exchange.wait();
  for (std::size_t i = 0; i < job.pieces.size(); ++i) {
    const Piece& piece = job.pieces[i];
    const auto terms = job.exchange.terms(i);
    if (job.differences)
      subtract_own(piece, job.sent[i].in, terms);
    else if (job.sent[i].in.dtype != piece.in.dtype)
      combine_around(piece.out, piece.in, job.sent[i].in, terms);
    else
      arithmetic_in(piece.out.memory).combine(piece.out, terms);
  }
}

/// All channels of one block on a flock.
class FlockChannel final : public Channel {
 public:
  FlockChannel(const Flock& flock, const std::string& name, const ChannelOptions& options,
               WireFormatPtr format)
      : flock_(flock), schedule_(options.schedule), collective_(flock, name, format) {
    if (!options.call.empty()) {
      call_ = std::make_shared<UserCall>();
      call_->call = options.call;
      call_->part = options.part;
      call_->same_step = options.same_step;
      flock_.set_user_call(name, call_);
    }
    if (options.relay)
      relay_.emplace(flock_, name, schedule_, options.relay);
    else if (schedule_)
      neighbors_.emplace(flock_, name, schedule_, std::move(format), options.ends);
    if (schedule_ && options.one_sided) one_sided_.emplace(flock_, name, schedule_);
  }

  Rank rank() const override { return flock_.rank(); }
  Rank size() const override { return flock_.size(); }
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  SchedulePtr schedule() const override { return schedule_; }
  NeighborChannel* neighbors() override { return neighbors_ ? &*neighbors_ : nullptr; }
  CollectiveChannel& collective() override { return collective_; }
  OneSidedChannel* one_sided() override { return one_sided_ ? &*one_sided_ : nullptr; }
  RelayChannel* relay() override { return relay_ ? &*relay_ : nullptr; }

  bool busy() const override {
    return (neighbors_ && neighbors_->busy()) || (one_sided_ && one_sided_->busy()) ||
           (relay_ && relay_->busy()) || collective_.busy();
  }

  bool ready() override {
    return !(one_sided_ && !one_sided_->ready()) && collective_.ready() && !(relay_ && !relay_->ready()) &&
           !(neighbors_ && !neighbors_->ready());
  }

  void wait() override {
    if (!ready()) wait_measured();
    if (one_sided_) one_sided_->await();
    collective_.finish();
    if (relay_) relay_->finish();
    if (neighbors_) neighbors_->finish();
  }
  double waited() const override { return waited_; }

  void note_age(Step age) override { ages_.add(age); }
  Staleness staleness() const override {
    return one_sided_ && one_sided_->has_window() ? one_sided_->staleness() : ages_;
  }
  void note_step(Step step) override {
    if (call_) call_->step.store(step, std::memory_order_relaxed);
  }
  void record_update(const std::string& name, Step step, const std::function<void()>& pass) override {
    ByteOperations(flock_).record_update(name, step, pass);
  }
  void abandon_messages() override {
    if (one_sided_) one_sided_->clear();
    collective_.abandon_average();
  }

 private:
  void wait_measured() {
    waited_ += seconds_of([&] {
      if (one_sided_) one_sided_->await();
      collective_.await();
      if (relay_) relay_->await();
      if (neighbors_) neighbors_->await();
    });
  }

  Flock flock_;
  const SchedulePtr schedule_;
  std::shared_ptr<UserCall> call_;
  FlockCollective collective_;
  std::optional<FlockNeighbors> neighbors_;
  std::optional<FlockOneSidedChannel> one_sided_;
  std::optional<FlockRelay> relay_;
  Staleness ages_;
  double waited_ = 0;
};

// Whether a round takes a group's mean and sends it on, so that it would be rounded in between.
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
  WireFormatPtr format = make_wire_format(options.message, options.ends);
  if (!format->exact() && options.relay)
    throw InvalidArgument("relayed sums would gather the rounding of " + format->name() +
                          " messages; use float32");
  if (!format->exact() && options.schedule && has_two_phases(*options.schedule))
    throw InvalidArgument(
        fmt::format("{} passes on means within groups, which {} messages would round; use float32",
                    options.schedule->name(), format->name()));
  return std::make_unique<FlockChannel>(flock, name, options, std::move(format));
}

}  // namespace starling::method
