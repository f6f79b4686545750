#include "starling/method/update.h"

#include <algorithm>
#include <cstring>

#include "starling/base/closest.h"
#include "starling/kernel/copy.h"

namespace starling {
namespace {

using Bytes = std::vector<std::byte>;

std::byte* at(Bytes& state, DType dtype, std::size_t element) {
  return state.data() + element * size_of(dtype);
}

// Walks over the segments; `step` gets a stride of each active one.
template <typename Step>
void each_segment(DType dtype, const Stride& stride, std::span<const Segment> segments, const Step& step) {
  std::vector<Term> terms;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const Stride part = part_of(dtype, stride, segment.begin, segment.count, terms);
    if (segment.active)
      step(i, segment, part);
    else
      copy_through(dtype, part);
  }
}

class Sgd final : public Update {
 public:
  Sgd(DType dtype, std::size_t count, std::size_t segments, Hypers hypers)
      : dtype_(dtype), count_(count), hypers_(std::move(hypers)), steps_(segments, 0) {}

  std::string name() const override { return "sgd"; }

  void apply(const Stride& stride, std::span<const Segment> segments) override {
    each_segment(dtype_, stride, segments, [&](std::size_t i, const Segment& segment, const Stride& part) {
      const Hyper& hyper = (*hypers_)[segment.group];
      // Without momentum there is nothing to remember.
      if (hyper.momentum != 0) m_.resize(count_ * size_of(dtype_));
      const SgdRule rule{hyper.lr, hyper.momentum, hyper.dampening, hyper.weight_decay, hyper.nesterov};
      sgd_update(dtype_, part, rule, m_.empty() ? nullptr : at(m_, dtype_, segment.begin), steps_[i] == 0);
      if (hyper.momentum != 0) ++steps_[i];
    });
  }

  std::vector<NamedState> state() override {
    std::vector<NamedState> all = {{"steps", {DType::int64, steps_.data(), steps_.size()}}};
    const bool any =
        std::any_of(hypers_->begin(), hypers_->end(), [](const Hyper& h) { return h.momentum != 0; });
    if (any) m_.resize(count_ * size_of(dtype_));
    if (!m_.empty()) all.push_back({"momentum", {dtype_, m_.data(), count_}});
    return all;
  }

 private:
  DType dtype_;
  std::size_t count_;
  Hypers hypers_;
  Bytes m_;
  std::vector<std::int64_t> steps_;
};

AdamRule rule_of(const Hyper& hyper, bool decoupled) {
  return {hyper.lr, hyper.beta1, hyper.beta2, hyper.eps, hyper.weight_decay, decoupled};
}

class Adam final : public Update {
 public:
  Adam(DType dtype, std::size_t count, std::size_t segments, Hypers hypers, bool decoupled)
      : dtype_(dtype),
        count_(count),
        hypers_(std::move(hypers)),
        decoupled_(decoupled),
        m_(count * size_of(dtype)),
        v_(count * size_of(dtype)),
        steps_(segments, 0) {}

  std::string name() const override { return decoupled_ ? "adamw" : "adam"; }

  void apply(const Stride& stride, std::span<const Segment> segments) override {
    each_segment(dtype_, stride, segments, [&](std::size_t i, const Segment& segment, const Stride& part) {
      adam_update(dtype_, part, rule_of((*hypers_)[segment.group], decoupled_), at(m_, dtype_, segment.begin),
                  at(v_, dtype_, segment.begin), static_cast<long>(++steps_[i]));
    });
  }

  std::vector<NamedState> state() override {
    return {{"steps", {DType::int64, steps_.data(), steps_.size()}},
            {"m", {dtype_, m_.data(), count_}},
            {"v", {dtype_, v_.data(), count_}}};
  }

 private:
  DType dtype_;
  std::size_t count_;
  Hypers hypers_;
  bool decoupled_;
  Bytes m_, v_;
  std::vector<std::int64_t> steps_;
};

class AccumAdam final : public Update {
 public:
  AccumAdam(DType dtype, std::size_t count, std::size_t segments, Hypers hypers, bool decoupled, long s)
      : dtype_(dtype),
        count_(count),
        hypers_(std::move(hypers)),
        decoupled_(decoupled),
        s_(s),
        m_(count * size_of(dtype)),
        v_(count * size_of(dtype)),
        sum_(count * size_of(dtype)),
        steps_(segments, 0) {}

  std::string name() const override { return decoupled_ ? "accum-adamw" : "accum-adam"; }

  void apply(const Stride& stride, std::span<const Segment> segments) override {
    each_segment(dtype_, stride, segments, [&](std::size_t i, const Segment& segment, const Stride& part) {
      const auto t = static_cast<long>(++steps_[i]);
      accum_adam_update(dtype_, part, rule_of((*hypers_)[segment.group], decoupled_),
                        at(m_, dtype_, segment.begin), at(v_, dtype_, segment.begin),
                        at(sum_, dtype_, segment.begin), (t + s_ - 1) / s_, s_, t % s_ == 0);
    });
  }

  std::vector<NamedState> state() override {
    return {{"steps", {DType::int64, steps_.data(), steps_.size()}},
            {"m", {dtype_, m_.data(), count_}},
            {"v", {dtype_, v_.data(), count_}},
            {"sum", {dtype_, sum_.data(), count_}}};
  }

 private:
  DType dtype_;
  std::size_t count_;
  Hypers hypers_;
  bool decoupled_;
  long s_;
  Bytes m_, v_, sum_;
  std::vector<std::int64_t> steps_;
};

const Parameter kLr{"lr", "0.01", "step size"};
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
UpdatePtr adam(DType dtype, std::size_t count, std::size_t segments, Hypers hypers) {
  return make_adam(dtype, count, segments, std::move(hypers), false);
}
UpdatePtr adamw(DType dtype, std::size_t count, std::size_t segments, Hypers hypers) {
  return make_adam(dtype, count, segments, std::move(hypers), true);
}

}  // namespace

Stride part_of(DType dtype, const Stride& stride, std::size_t begin, std::size_t count,
               std::vector<Term>& terms) {
  const std::size_t bytes = begin * size_of(dtype);
  const auto moved = [&](auto* pointer) { return pointer == nullptr ? nullptr : pointer + bytes; };
  terms.assign(stride.from.begin(), stride.from.end());
  for (Term& term : terms) term.data = static_cast<const std::byte*>(term.data) + bytes;
  Stride part = stride;
  part.from = terms;
  part.gradient = moved(static_cast<const std::byte*>(stride.gradient));
  part.x = moved(static_cast<std::byte*>(stride.x));
  part.copy = moved(static_cast<std::byte*>(stride.copy));
  part.count = count;
  return part;
}

void copy_through(DType dtype, const Stride& stride) {
  const bool alone = stride.from.size() == 1 && stride.from[0].weight == 1;
  if (!alone)
    combine(dtype, stride.x, stride.from, stride.count);
  else if (stride.from[0].data != stride.x)
    copy_bytes(stride.x, stride.from[0].data, stride.count * size_of(dtype));
  if (stride.copy != nullptr) copy_bytes(stride.copy, stride.x, stride.count * size_of(dtype));
}

UpdatePtr make_sgd(DType dtype, std::size_t count, std::size_t segments, Hypers hypers) {
  return std::make_unique<Sgd>(dtype, count, segments, std::move(hypers));
}
UpdatePtr make_adam(DType dtype, std::size_t count, std::size_t segments, Hypers hypers, bool decoupled) {
  return std::make_unique<Adam>(dtype, count, segments, std::move(hypers), decoupled);
}
UpdatePtr make_accum_adam(DType dtype, std::size_t count, std::size_t segments, Hypers hypers, bool decoupled,
                          long s) {
  return std::make_unique<AccumAdam>(dtype, count, segments, std::move(hypers), decoupled, s);
}

const std::vector<OptimizerFamily>& optimizer_families() {
  const Parameter beta1{"beta1", "0.9", "memory of the mean"};
  const Parameter beta2{"beta2", "0.999", "memory of the squares"};
  const Parameter eps{"eps", "1e-8", "keeps the division sane"};
  static const std::vector<OptimizerFamily> families = {
      {"sgd", "plain gradient steps", {kLr, kDecay}, sgd_hyper, make_sgd},
      {"momentum", "heavy ball", {kLr, kMomentum, kDecay}, momentum_hyper, make_sgd},
      {"nesterov", "Nesterov's momentum", {kLr, kMomentum, kDecay}, nesterov_hyper, make_sgd},
      {"adam", "Adam", {kLr, beta1, beta2, eps, kDecay}, adam_hyper, adam},
      {"adamw", "Adam with decoupled weight decay", {kLr, beta1, beta2, eps, kDecay}, adamw_hyper, adamw},
  };
  return families;
}

Optimizer parse_optimizer(std::string_view text) {
  const Spec spec = parse_spec(text);
  std::vector<std::string> names;
  for (const OptimizerFamily& family : optimizer_families()) {
    if (family.name == spec.word && !spec.is_list)
      return {family.hyper(Parameters(spec, family.parameters)), family.make};
    names.push_back(family.name);
  }
  throw InvalidArgument(unknown_name("optimizer", spec.to_string(), names));
}

}  // namespace starling
