#include "starling/method/flock_channel.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <optional>

#include "starling/base/error.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/copy.h"

namespace starling {
namespace {

Missing missing_rule(const std::string& name) {
  if (name == "reference") return Missing::reference;
  return name == "own" ? Missing::own : Missing::counts;
}

// A relay's memory, a message each: tree, neighbour and number of blocks, then the sum.
using Head = std::array<std::uint64_t, 3>;

std::vector<ChannelMemory> pack(const Relay::Memory& memory) {
  std::vector<ChannelMemory> packed;
  for (const Relay::Memory::Message& message : memory.messages) {
    const Head head = {message.tree, static_cast<std::uint64_t>(message.neighbor), message.blocks};
    ChannelMemory one{fmt::format("message/{}/{}", message.tree, message.neighbor), {}};
    one.bytes.resize(sizeof head + message.sum.size());
    std::memcpy(one.bytes.data(), head.data(), sizeof head);
    copy_bytes(one.bytes.data() + sizeof head, message.sum.data(), message.sum.size());
    packed.push_back(std::move(one));
  }
  if (!memory.reference.empty()) packed.push_back({"reference", memory.reference});
  if (memory.filled) packed.push_back({"filled", {}});
  return packed;
}

Relay::Memory unpack(const std::vector<ChannelMemory>& packed) {
  Relay::Memory memory;
  for (const ChannelMemory& one : packed) {
    if (one.name == "reference") {
      memory.reference = one.bytes;
    } else if (one.name == "filled") {
      memory.filled = true;
    } else {
      Head head{};
      if (one.bytes.size() < sizeof head) throw Error(one.name + " is too short for a relay's message");
      std::memcpy(head.data(), one.bytes.data(), sizeof head);
      memory.messages.push_back(
          {head[0], static_cast<Rank>(head[1]), head[2], {one.bytes.begin() + sizeof head, one.bytes.end()}});
    }
  }
  return memory;
}

// A block as it travels in fewer bits: it lies in outgoing memory, converted.
struct Shortened {
  Pieces pieces;
  Outgoing memory;
};

class FlockChannel final : public Channel {
 public:
  FlockChannel(const Flock& flock, const std::string& name, const ChannelOptions& options)
      : flock_(flock), name_(name), options_(options) {
    if (!options.relay_rule.empty()) {
      relay_ = flock_.relay(options.schedule->name(), Name(name_ + "/relay"),
                            {.missing = missing_rule(options.relay_rule)});
    } else if (options.schedule) {
      rounds_ = flock_.rounds(options.schedule, Name(name_ + "/mix"));
    }
  }

  Rank rank() const override { return flock_.rank(); }
  Rank size() const override { return flock_.size(); }

  void mix(Pieces pieces) override {
    if (shortens(pieces)) {
      Shortened sent = shorten(pieces);
      jobs_.push_back({rounds_.start(sent.pieces, std::move(sent.memory)), std::move(pieces), sent.pieces});
    } else {
      jobs_.push_back({rounds_.start(pieces), pieces, pieces});
    }
    epoch_ = jobs_.back().exchange.epoch();
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
    if (!options_.schedule || options_.message != DType::float32 ||
        options_.schedule->mixing() == Mixing::two_block)
      return nullptr;
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

  void send(Pieces pieces, Rank to) override {
    for (const Piece& piece : pieces) flock_.start_send(piece.in, to, Name(name_ + "/letter"));
  }
  void receive(Pieces pieces, Rank from) override {
    for (const Piece& piece : pieces)
      letters_.push_back(
          flock_.start_recv({piece.in.dtype, piece.out, piece.in.count}, from, Name(name_ + "/letter")));
  }
  void broadcast(Pieces pieces, Rank root) override {
    pending_.push_back(flock_.start_broadcast(std::move(pieces), root, Name(name_ + "/broadcast")));
  }

  bool busy() const override {
    return !jobs_.empty() || !pending_.empty() || !letters_.empty() || (shared_ && !shared_arrived_);
  }

  bool ready() override {
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

  Exchange next() const override { return rounds_.next(); }
  SchedulePtr schedule() const override { return options_.schedule; }
  std::uint32_t epoch() const override { return epoch_; }
  Step round() const override { return options_.schedule && !relay_ ? rounds_.step() : 0; }
  void set_round(Step round) override {
    if (options_.schedule && !relay_) rounds_.set_step(round);
  }
  std::vector<ChannelMemory> memory() const override {
    if (!relay_) return {};
    return pack(relay_->memory());
  }
  void remember(const std::vector<ChannelMemory>& memory) override {
    if (relay_) relay_->remember(unpack(memory));
  }
  double waited() const override { return waited_; }

 private:
  struct Job {
    Exchanging exchange;
    Pieces pieces;
    Pieces sent;
  };

  bool shortens(const Pieces& pieces) const {
    return options_.message != DType::float32 && pieces[0].in.dtype == DType::float32;
  }

  // What is not float32 (a scalar) travels as it is.
  Shortened shorten(const Pieces& pieces) {
    std::vector<MutableBlock> blocks;
    for (const Piece& piece : pieces)
      blocks.push_back(
          {piece.in.dtype == DType::float32 ? options_.message : piece.in.dtype, nullptr, piece.in.count});
    Shortened sent{pieces_of(blocks), {}};
    sent.memory = flock_.outgoing_bytes(message_bytes(sent.pieces));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::byte* to = sent.memory.bytes().data() + sent.pieces[i].offset;
      convert(pieces[i].in.dtype, pieces[i].in.data, sent.pieces[i].in.dtype, to, pieces[i].in.count);
      sent.pieces[i].in.data = to;
    }
    return sent;
  }

  // out <- x + the sum of w (theirs - own), which keeps the flock's mean whatever the rounding.
  void around(MutableBlock out, const void* x, const void* own, std::span<const Term> terms) const {
    std::vector<Term> others;
    for (const Term& term : terms)
      if (term.data != own) others.push_back(term);
    combine_around(options_.message, static_cast<float*>(out.data), static_cast<const float*>(x), own, others,
                   out.count);
  }

  void finish(Job& job) {
    job.exchange.wait();
    for (std::size_t i = 0; i < job.pieces.size(); ++i) {
      const Piece& piece = job.pieces[i];
      const auto terms = job.exchange.terms(i);
      if (job.sent[i].in.dtype != piece.in.dtype)
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
    } catch (const PeerLost&) {
      if (flock_.on_loss() != OnLoss::reweight) throw;
    }
  }

  void wait_measured() {
    const auto from = std::chrono::steady_clock::now();
    if (shared_ && !shared_arrived_) shared_.wait();
    for (Job& job : jobs_) job.exchange.wait();
    for (Pending& one : pending_) one.wait();
    for (Pending& one : letters_) wait_for_letter(one);
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  }

  Flock flock_;
  std::string name_;
  ChannelOptions options_;
  Rounds rounds_;
  std::optional<Relay> relay_;
  std::vector<Job> jobs_;
  std::vector<Pending> pending_;
  std::vector<Pending> letters_;  // to be received
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
  if (options.message != DType::float32 && options.message != DType::float16 &&
      options.message != DType::bfloat16)
    throw InvalidArgument("messages travel as float32, float16 or bfloat16, not " +
                          starling::name(options.message));
  if (options.message != DType::float32 && !options.relay_rule.empty())
    throw InvalidArgument("relayed sums would gather the rounding of " + starling::name(options.message) +
                          " messages; use float32");
  if (options.message != DType::float32 && options.schedule && has_two_phases(*options.schedule))
    throw InvalidArgument(
        fmt::format("{} passes on means within groups, which {} messages would round; use float32",
                    options.schedule->name(), starling::name(options.message)));
  return std::make_unique<FlockChannel>(flock, name, options);
}

}  // namespace starling
