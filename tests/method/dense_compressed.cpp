#include <cmath>

#include "method/dense.h"
#include "method/dense_codec.h"
#include "starling/codec/registry.h"
#include "starling/flock/block.h"

namespace starling::method {
namespace {

/// The public copies x^ move by the decoded differences.
class DenseChoco : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (hat_.empty()) hat_ = zeros();
    const Number gamma = setting_.number("gamma", 1);
    const std::vector<Vector> y = all_updated();
    for (std::size_t i = 0; i < n(); ++i)
      hat_[i] = hat_[i] + decoded(setting_.text("codec", "identity"), y[i] - hat_[i]);
    const std::vector<Vector> heard = mixed(round(t), hat_);
    for (std::size_t i = 0; i < n(); ++i) x[i] = y[i] + gamma * (heard[i] - hat_[i]);
  }
  std::vector<Vector> hat_;
};

/// Each rank sends its quantized difference from the average of the copies that all ranks know.
class DenseLowPrecisionRing : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (known_.empty()) known_ = x;  // W, and the neighbors' copies L and R
    const Matrix w = round(t);
    const std::vector<Vector> y = all_updated();
    std::vector<Vector> next;
    for (std::size_t i = 0; i < n(); ++i) {
      Vector d = y[i] - (2 - w[i][i]) * known_[i];
      for (std::size_t j = 0; j < n(); ++j)
        if (j != i) d = d + w[i][j] * known_[j];
      next.push_back(known_[i] + as_uint8(d));
    }
    x = known_ = next;
  }
  std::vector<Vector> known_;
};

/// Averages as ByteGrad does: quantized on the way to the rank that owns the chunk, and on the way back.
class ByteAverage : public Dense {
  using Dense::Dense;

 protected:
  Vector byte_mean(const std::vector<Vector>& vectors) const {
    Vector result;
    for (std::size_t owner = 0; owner < n(); ++owner) {
      const std::size_t begin = owner * problem_.count / n();
      const std::size_t end = (owner + 1) * problem_.count / n();
      Vector sum(end - begin);
      for (const Vector& one : vectors)
        sum = sum + as_uint8(Vector(one.begin() + static_cast<std::ptrdiff_t>(begin),
                                    one.begin() + static_cast<std::ptrdiff_t>(end)));
      const Vector mean = as_uint8(1 / static_cast<Number>(vectors.size()) * sum);
      result.insert(result.end(), mean.begin(), mean.end());
    }
    return result;
  }
};

class DenseByteGrad : public ByteAverage {
  using ByteAverage::ByteAverage;
  void step(Step) override {
    std::vector<Vector> there;
    for (std::size_t i = 0; i < n(); ++i)
      if (takes_part(i)) there.push_back(gradient(i));
    if (there.empty()) return;
    const Vector g = byte_mean(there);
    for (std::size_t i = 0; i < n(); ++i) x[i] = local_[i](x[i], g);
  }
};

/// The mean of all ranks' decoded gradients; the compression error is added to the next gradient. PowerSGD
/// sends small parameters unchanged, as all parameters here are.
class DenseCompressedAllreduce : public Dense {
  using Dense::Dense;
  void step(Step) override {
    if (left_out_.empty()) left_out_ = zeros();
    const bool exact = setting_.method.word == "powersgd";
    std::vector<Vector> there;
    for (std::size_t i = 0; i < n(); ++i) {
      if (!takes_part(i)) continue;
      const Vector g = gradient(i) + left_out_[i];
      there.push_back(decoded(exact ? "identity" : setting_.text("codec", ""), g));
      if (setting_.text("feedback", "true") == "true") left_out_[i] = g - there.back();
    }
    if (there.empty()) return;
    const Vector g = mean_of(there);
    for (std::size_t i = 0; i < n(); ++i) x[i] = local_[i](x[i], g);
  }
  std::vector<Vector> left_out_;
};

/// Averages every rank's gradient in quantized levels. It uses the library's codec for its random draws; the
/// codec has its own tests.
class DenseQsgd : public Dense {
  using Dense::Dense;
  void step(Step t) override {
    const CodecPtr codec = make_codec("qsgd(levels=" + setting_.text("levels", "127") + ")");
    std::vector<std::uint8_t> message(codec->encoded_bytes(DType::float32, {problem_.count, 0}));
    std::vector<Vector> there;
    for (std::size_t i = 0; i < n(); ++i) {
      if (!takes_part(i)) continue;
      const Vector g = gradient(i);
      std::vector<float> values(g.begin(), g.end());
      codec->encode(buffer_of(values), 0, {.seed = 0, .stream = i, .step = t}, buffer_of(message));
      codec->decode(buffer_of(message), 0, buffer_of(values));
      there.emplace_back(values.begin(), values.end());
    }
    if (there.empty()) return;
    const Vector g = mean_of(there);
    for (std::size_t i = 0; i < n(); ++i) x[i] = local_[i](x[i], g);
  }
};

/// The direction of the majority; zeros and ties count as positive.
class DenseSign : public Dense {
  using Dense::Dense;
  void step(Step) override {
    std::vector<Number> votes(problem_.count);
    bool anybody = false;
    for (std::size_t i = 0; i < n(); ++i) {
      if (!takes_part(i)) continue;
      anybody = true;
      const Vector g = gradient(i);
      for (std::size_t k = 0; k < g.size(); ++k) votes[k] += g[k] < 0 ? -1 : 1;
    }
    for (Number& vote : votes) vote = vote < 0 ? -1 : 1;
    for (std::size_t i = 0; i < n() && anybody; ++i) x[i] = local_[i](x[i], votes);
  }
};

/// Adam whose second moments are frozen after the warm-up and whose first moments are then averaged in bytes.
class DenseQadam : public ByteAverage {
  using ByteAverage::ByteAverage;
  void step(Step step_of_all) override {
    if (v_.empty()) m_ = v_ = zeros();
    std::vector<Vector> there, moments;
    for (std::size_t i = 0; i < n(); ++i) {
      if (!takes_part(i)) continue;
      there.push_back(gradient(i));
      moments.push_back(moment(i, there.back()));
    }
    if (there.empty()) return;
    ++t_;
    const bool warm = step_of_all >= setting_.steps("warmup", 0);
    const Vector g = mean_of(there);
    const Vector averaged = byte_mean(moments);
    for (std::size_t i = 0; i < n(); ++i) {
      const Vector direction = g + (rule_.decoupled ? 0 : rule_.weight_decay) * x[i];
      m_[i] = warm ? averaged : moment(i, g);
      for (std::size_t k = 0; k < problem_.count; ++k) {
        if (!warm)
          v_[i][k] =
              rule_.beta2 * v_[i][k] + (1 - static_cast<Number>(rule_.beta2)) * direction[k] * direction[k];
        if (rule_.decoupled) x[i][k] -= static_cast<Number>(rule_.lr) * rule_.weight_decay * x[i][k];
        x[i][k] -= rule_.lr * corrected(m_[i][k], rule_.beta1) /
                   (std::sqrt(corrected(v_[i][k], rule_.beta2)) + rule_.eps);
      }
    }
  }
  Vector moment(std::size_t i, const Vector& g) const {
    const Vector decayed = g + (rule_.decoupled ? 0 : rule_.weight_decay) * x[i];
    return rule_.beta1 * m_[i] + (1 - static_cast<Number>(rule_.beta1)) * decayed;
  }
  Number corrected(Number value, Number beta) const { return value / (1 - std::pow(beta, t_)); }

  std::vector<Vector> m_, v_;
  Step t_ = 0;
};

}  // namespace

DenseTable dense_compressed() {
  return {{"choco", make_dense_as<DenseChoco>},
          {"low-precision-ring", make_dense_as<DenseLowPrecisionRing>},
          {"bytegrad", make_dense_as<DenseByteGrad>},
          {"compressed-allreduce", make_dense_as<DenseCompressedAllreduce>},
          {"powersgd", make_dense_as<DenseCompressedAllreduce>},
          {"qsgd", make_dense_as<DenseQsgd>},
          {"sign-sgd", make_dense_as<DenseSign>},
          {"qadam", make_dense_as<DenseQadam>}};
}

}  // namespace starling::method
