#include "starling/method/update.h"

#include <algorithm>

#include "starling/base/registry.h"
#include "starling/kernel/arithmetic.h"
#include "starling/kernel/int8_messages.h"

namespace starling::method {
namespace {

/// Adjacent segments that one pass can update: all have the same settings and have made as many steps.
struct Run {
  std::size_t begin = 0;
  std::size_t count = 0;
  std::size_t group = 0;
  bool active = true;
  std::int64_t steps = 0;  // so far
};

// Calls `step` with each run of active segments and its part of the pass. Their steps count if it returns
// true.
template <typename Step>
void each_run(const UpdatePass& pass, std::span<const Segment> segments, std::vector<std::int64_t>& steps,
              const Step& step) {
  std::vector<Term> terms;
  for (std::size_t i = 0; i < segments.size();) {
    const std::size_t first = i;
    Run run{segments[i].begin, 0, segments[i].group, segments[i].active, steps[i]};
    const auto belongs = [&](const Segment& next) {
      return next.begin == run.begin + run.count && next.active == run.active &&
             (!run.active || (next.group == run.group && steps[i] == run.steps));
    };
    for (; i < segments.size() && belongs(segments[i]); ++i) run.count += segments[i].count;
    const UpdatePass part = part_of(pass, run.begin, run.count, terms);
    if (!run.active)
      copy_through(part);
    else if (step(run, part))
      for (std::size_t s = first; s < i; ++s) ++steps[s];
  }
}

// The part of an optimizer's vector for a run; empty if there is no vector.
Buffer part_of(const OwnedBuffer& vector, const Run& run) {
  const Buffer& whole = vector.buffer();
  return whole.address() == nullptr ? Buffer() : whole.part(run.begin, run.count);
}

OwnedBuffer vector_like(ConstBuffer x) {
  return {x.dtype, x.count, x.memory};
}

class Sgd final : public Update {
 public:
  Sgd(ConstBuffer x, std::size_t segments, Hypers hypers)
      : x_(x), hypers_(std::move(hypers)), steps_(segments, 0) {}

  std::string name() const override { return "sgd"; }

  void apply(const UpdatePass& pass, std::span<const Segment> segments) override {
    each_run(pass, segments, steps_, [&](const Run& run, const UpdatePass& part) {
      const Hyper& hyper = (*hypers_)[run.group];
      // SGD without momentum has no state.
      if (hyper.momentum != 0) make_momentum();
      const SgdRule rule{hyper.lr, hyper.momentum, hyper.dampening, hyper.weight_decay, hyper.nesterov};
      arithmetic_in(x_.memory).sgd_update(part, rule, part_of(m_, run), run.steps == 0);
      return hyper.momentum != 0;
    });
  }

  std::vector<NamedState> state() override {
    std::vector<NamedState> all = {{"steps", {DType::int64, steps_.data(), steps_.size()}}};
    const bool any =
        std::any_of(hypers_->begin(), hypers_->end(), [](const Hyper& h) { return h.momentum != 0; });
    if (any) make_momentum();
    if (x_.count > 0 && has_momentum()) all.push_back({"momentum", m_.buffer()});
    return all;
  }

 private:
  bool has_momentum() const { return m_.buffer().address() != nullptr; }
  void make_momentum() {
    if (!has_momentum()) m_ = vector_like(x_);
  }

  ConstBuffer x_;
  Hypers hypers_;
  OwnedBuffer m_;
  std::vector<std::int64_t> steps_;
};

AdamRule rule_of(const Hyper& hyper, bool decoupled) {
  return {hyper.lr, hyper.beta1, hyper.beta2, hyper.eps, hyper.weight_decay, decoupled};
}

class Adam final : public Update {
 public:
  Adam(ConstBuffer x, std::size_t segments, Hypers hypers, bool decoupled)
      : arithmetic_(arithmetic_in(x.memory)),
        hypers_(std::move(hypers)),
        decoupled_(decoupled),
        m_(vector_like(x)),
        v_(vector_like(x)),
        steps_(segments, 0) {}

  std::string name() const override { return decoupled_ ? "adamw" : "adam"; }

  void apply(const UpdatePass& pass, std::span<const Segment> segments) override {
    each_run(pass, segments, steps_, [&](const Run& run, const UpdatePass& part) {
      arithmetic_.adam_update(part, rule_of((*hypers_)[run.group], decoupled_), part_of(m_, run),
                              part_of(v_, run), static_cast<long>(run.steps + 1));
      return true;
    });
  }

  std::vector<NamedState> state() override {
    return {{"steps", {DType::int64, steps_.data(), steps_.size()}}, {"m", m_.buffer()}, {"v", v_.buffer()}};
  }

 private:
  const Arithmetic& arithmetic_;
  Hypers hypers_;
  bool decoupled_;
  OwnedBuffer m_, v_;
  std::vector<std::int64_t> steps_;
};

class AccumAdam final : public Update {
 public:
  AccumAdam(ConstBuffer x, std::size_t segments, Hypers hypers, bool decoupled, long s)
      : arithmetic_(arithmetic_in(x.memory)),
        hypers_(std::move(hypers)),
        decoupled_(decoupled),
        s_(s),
        m_(vector_like(x)),
        v_(vector_like(x)),
        sum_(vector_like(x)),
        steps_(segments, 0) {}

  std::string name() const override { return decoupled_ ? "accum-adamw" : "accum-adam"; }

  void apply(const UpdatePass& pass, std::span<const Segment> segments) override {
    each_run(pass, segments, steps_, [&](const Run& run, const UpdatePass& part) {
      const auto t = static_cast<long>(run.steps + 1);
      arithmetic_.accum_adam_update(part, rule_of((*hypers_)[run.group], decoupled_), part_of(m_, run),
                                    part_of(v_, run), part_of(sum_, run), (t + s_ - 1) / s_, s_, t % s_ == 0);
      return true;
    });
  }

  std::vector<NamedState> state() override {
    return {{"steps", {DType::int64, steps_.data(), steps_.size()}},
            {"m", m_.buffer()},
            {"v", v_.buffer()},
            {"sum", sum_.buffer()}};
  }

 private:
  const Arithmetic& arithmetic_;
  Hypers hypers_;
  bool decoupled_;
  long s_;
  OwnedBuffer m_, v_, sum_;
  std::vector<std::int64_t> steps_;
};

const Parameter kLr{"lr", "0.01", "step size"};
const Parameter kMomentumLr{"lr", "0.05", "step size"};  // the default of `starling train`
const Parameter kDecay{"weight_decay", "0", "of the parameters, per step"};
const Parameter kMomentum{"momentum", "0.9", "share of the last direction that is kept"};

constexpr double kMostMemory = 0.999999999;  // with 1 the first moments would never fill

Hyper sgd_hyper(const Parameters& given) {
  Hyper hyper;
  hyper.lr = given.number("lr", 0, 1e6);
  hyper.weight_decay = given.number("weight_decay", 0, 1e6);
  return hyper;
}
Hyper momentum_hyper(const Parameters& given) {
  Hyper hyper = sgd_hyper(given);
  hyper.momentum = given.number("momentum", 0, 1);
  return hyper;
}
Hyper nesterov_hyper(const Parameters& given) {
  Hyper hyper = momentum_hyper(given);
  hyper.nesterov = true;
  return hyper;
}
Hyper adam_hyper(const Parameters& given) {
  Hyper hyper = sgd_hyper(given);
  hyper.beta1 = given.number("beta1", 0, kMostMemory);
  hyper.beta2 = given.number("beta2", 0, kMostMemory);
  hyper.eps = given.number("eps", 0, 1);
  return hyper;
}
Hyper adamw_hyper(const Parameters& given) {
  Hyper hyper = adam_hyper(given);
  hyper.decoupled = true;
  return hyper;
}
UpdatePtr adam(ConstBuffer x, std::size_t segments, Hypers hypers) {
  return make_adam(x, segments, std::move(hypers), false);
}
UpdatePtr adamw(ConstBuffer x, std::size_t segments, Hypers hypers) {
  return make_adam(x, segments, std::move(hypers), true);
}

}  // namespace

UpdatePass part_of(const UpdatePass& pass, std::size_t begin, std::size_t count, std::vector<Term>& terms) {
  const std::size_t bytes = begin * size_of(pass.x.dtype);
  const auto moved = [&](auto buffer) {
    return buffer.address() == nullptr ? buffer : buffer.part(begin, count);
  };
  const std::size_t number = pass.from.size();
  terms.assign(pass.from.begin(), pass.from.end());
  for (Term& term : terms) term.data = static_cast<const std::byte*>(term.data) + bytes;
  terms.insert(terms.end(), pass.messages.others.begin(), pass.messages.others.end());
  UpdatePass part = pass;
  part.from = std::span(terms).first(number);
  part.messages.others = std::span(terms).subspan(number);
  part.part.begin += begin;
  // int8 messages stay whole.
  if (pass.messages && pass.messages.dtype != DType::int8) {
    const std::size_t before = begin * size_of(pass.messages.dtype);
    part.messages.own = static_cast<const std::byte*>(pass.messages.own) + before;
    for (Term& term : std::span(terms).subspan(number))
      term.data = static_cast<const std::byte*>(term.data) + before;
  }
  part.gradient = moved(pass.gradient);
  part.x = moved(pass.x);
  part.x.count = count;
  if (!pass.sends_int8()) part.copy = moved(pass.copy);
  part.rounded = moved(pass.rounded);
  return part;
}

void start_from(const UpdatePass& pass) {
  const Arithmetic& arithmetic = arithmetic_in(pass.x.memory);
  const bool alone = pass.from.size() == 1 && pass.from[0].weight == 1;
  const PassMessages& messages = pass.messages;
  if (messages) {
    const ConstBuffer x = pass.x.at(pass.from[0].data);
    ConstBuffer own = pass.x.at(messages.own);
    if (messages.dtype == DType::int8) {
      own.dtype = DType::int8;
      own.count = kernel::int8_message_bytes(pass.part.ends);
      kernel::combine_around_int8(pass.part, pass.x, x, own, messages.others);
    } else {
      arithmetic.combine_around(messages.dtype, pass.x, x, {own, 1}, messages.others);
    }
  } else if (!alone) {
    arithmetic.combine(pass.x, pass.from);
  } else if (pass.from[0].data != pass.x.address()) {
    arithmetic.copy(pass.x, pass.x.at(pass.from[0].data));
  }
}

void write_copies(const UpdatePass& pass) {
  const Arithmetic& arithmetic = arithmetic_in(pass.x.memory);
  if (pass.sends_int8())
    kernel::encode_int8(pass.part, pass.x, pass.copy);
  else if (pass.copy.address() != nullptr)
    arithmetic.copy(pass.copy, pass.x);
  if (pass.rounded.address() != nullptr) arithmetic.copy(pass.rounded, pass.x);
}

void copy_through(const UpdatePass& pass) {
  start_from(pass);
  write_copies(pass);
}

UpdatePtr make_sgd(ConstBuffer x, std::size_t segments, Hypers hypers) {
  return std::make_unique<Sgd>(x, segments, std::move(hypers));
}
UpdatePtr make_adam(ConstBuffer x, std::size_t segments, Hypers hypers, bool decoupled) {
  return std::make_unique<Adam>(x, segments, std::move(hypers), decoupled);
}
UpdatePtr make_accum_adam(ConstBuffer x, std::size_t segments, Hypers hypers, bool decoupled, long s) {
  return std::make_unique<AccumAdam>(x, segments, std::move(hypers), decoupled, s);
}

namespace {

Registry<OptimizerFamily>& all_optimizers() {
  const Parameter beta1{"beta1", "0.9", "memory of the mean"};
  const Parameter beta2{"beta2", "0.999", "memory of the squares"};
  const Parameter eps{"eps", "1e-8", "keeps the division sane"};
  static Registry<OptimizerFamily> instance(
      "optimizer",
      {
          {"sgd", "plain gradient steps", {kLr, kDecay}, sgd_hyper, make_sgd},
          {"momentum", "heavy ball", {kMomentumLr, kMomentum, kDecay}, momentum_hyper, make_sgd},
          {"nesterov", "Nesterov's momentum", {kMomentumLr, kMomentum, kDecay}, nesterov_hyper, make_sgd},
          {"adam", "Adam", {kLr, beta1, beta2, eps, kDecay}, adam_hyper, adam},
          {"adamw", "Adam with decoupled weight decay", {kLr, beta1, beta2, eps, kDecay}, adamw_hyper, adamw},
      });
  return instance;
}

}  // namespace

std::vector<OptimizerFamily> optimizer_families() {
  return all_optimizers().entries();
}

Optimizer parse_optimizer(std::string_view text) {
  const Spec spec = parse_spec(text);
  const OptimizerFamily& family = all_optimizers().find(spec);
  return {family.hyper(Parameters(spec, family.parameters)), family.make};
}

std::string canonical_optimizer(std::string_view text) {
  return all_optimizers().canonical(parse_spec(text)).to_string();
}

}  // namespace starling::method
