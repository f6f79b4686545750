#include <algorithm>
#include <cmath>

#include "starling/simulate/node_random.h"
#include "starling/simulate/objective/list.h"

namespace starling::simulate::objective {
namespace {

// Two layers with tanh between them, then softmax and cross-entropy. The parameters in order are W1 (hidden x
// inputs), b1, W2 (classes x hidden), b2.
struct Shape {
  std::size_t inputs, hidden, classes;

  std::size_t b1() const { return hidden * inputs; }
  std::size_t w2() const { return b1() + hidden; }
  std::size_t b2() const { return w2() + classes * hidden; }
  std::size_t size() const { return b2() + classes; }
};

class Mlp : public Objective {
 public:
  struct Options {
    Shape shape;
    std::uint32_t samples = 1, batch = 0;
    double heterogeneity = 0;
  };

  Mlp(const ObjectiveSetting& setting, const Options& options)
      : Objective(setting.nodes, options.shape.size()),
        shape_(options.shape),
        options_(options),
        seed_(setting.seed) {
    Random common(seed_, 0, stream::kObjective);
    centers_.resize(shape_.classes * shape_.inputs);
    for (double& value : centers_) value = common.normal();
    start_.resize(dim());
    for (std::size_t k = 0; k < shape_.b1(); ++k)
      start_[k] = common.normal() / std::sqrt(static_cast<double>(shape_.inputs));
    for (std::size_t k = shape_.w2(); k < shape_.b2(); ++k)
      start_[k] = common.normal() / std::sqrt(static_cast<double>(shape_.hidden));
    for (Rank node = 0; node < nodes(); ++node) draw_samples(node);
  }

  void start(Rank, std::span<double> x) const override { std::ranges::copy(start_, x.begin()); }

  using Objective::gradient;
  void gradient(Rank node, Step step, std::span<const double> x, std::span<double> out) const override {
    if (options_.batch == 0) return exact_gradient(node, x, out);
    std::ranges::fill(out, 0.0);
    Random random = node_random(seed_, node, step, stream::kObjectiveBatch);
    for (std::uint32_t i = 0; i < options_.batch; ++i) add(node, random.below(options_.samples), x, out);
    for (double& value : out) value /= options_.batch;
  }

  void exact_gradient(Rank node, std::span<const double> x, std::span<double> out) const override {
    std::ranges::fill(out, 0.0);
    for (std::uint32_t i = 0; i < options_.samples; ++i) add(node, i, x, out);
    for (double& value : out) value /= options_.samples;
  }

  double value(std::span<const double> x) const override {
    double sum = 0;
    for (Rank node = 0; node < nodes(); ++node)
      for (std::uint32_t i = 0; i < options_.samples; ++i) sum += forward(node, i, x, scratch());
    return sum / options_.samples / nodes();
  }

 private:
  struct Scratch {
    std::vector<double> hidden, output, error;
  };

  static Scratch& scratch() {
    thread_local Scratch instance;
    return instance;
  }

  // The class of a sample is the node's own with probability `heterogeneity`, else any.
  void draw_samples(Rank node) {
    Random random = node_random(seed_, node, 0, stream::kObjectiveNode);
    const auto classes = static_cast<std::uint32_t>(shape_.classes);
    for (std::uint32_t i = 0; i < options_.samples; ++i) {
      const std::uint32_t any = random.below(classes);
      const bool own = random.uniform() < options_.heterogeneity;
      const std::uint32_t label = own ? static_cast<std::uint32_t>(node) % classes : any;
      labels_.push_back(label);
      for (std::size_t k = 0; k < shape_.inputs; ++k)
        inputs_.push_back(centers_[label * shape_.inputs + k] + random.normal());
    }
  }

  std::size_t index(Rank node, std::uint32_t sample) const {
    return static_cast<std::size_t>(node) * options_.samples + sample;
  }

  // The loss of a sample; `work` then holds the activations and the probabilities.
  double forward(Rank node, std::uint32_t sample, std::span<const double> x, Scratch& work) const {
    const double* input = inputs_.data() + index(node, sample) * shape_.inputs;
    work.hidden.resize(shape_.hidden);
    work.output.resize(shape_.classes);
    for (std::size_t j = 0; j < shape_.hidden; ++j) {
      double sum = x[shape_.b1() + j];
      for (std::size_t k = 0; k < shape_.inputs; ++k) sum += x[j * shape_.inputs + k] * input[k];
      work.hidden[j] = std::tanh(sum);
    }
    for (std::size_t c = 0; c < shape_.classes; ++c) {
      double sum = x[shape_.b2() + c];
      for (std::size_t j = 0; j < shape_.hidden; ++j)
        sum += x[shape_.w2() + c * shape_.hidden + j] * work.hidden[j];
      work.output[c] = sum;
    }
    const double most = *std::ranges::max_element(work.output);
    const double own = work.output[labels_[index(node, sample)]];
    double total = 0;
    for (double& value : work.output) total += value = std::exp(value - most);
    for (double& value : work.output) value /= total;
    return std::log(total) - (own - most);
  }

  // out += the gradient of a sample's loss.
  void add(Rank node, std::uint32_t sample, std::span<const double> x, std::span<double> out) const {
    Scratch& work = scratch();
    forward(node, sample, x, work);
    const double* input = inputs_.data() + index(node, sample) * shape_.inputs;
    work.output[labels_[index(node, sample)]] -= 1;
    work.error.assign(shape_.hidden, 0.0);
    for (std::size_t c = 0; c < shape_.classes; ++c) {
      const double error = work.output[c];
      const std::size_t row = shape_.w2() + c * shape_.hidden;
      for (std::size_t j = 0; j < shape_.hidden; ++j) {
        out[row + j] += error * work.hidden[j];
        work.error[j] += error * x[row + j];
      }
      out[shape_.b2() + c] += error;
    }
    for (std::size_t j = 0; j < shape_.hidden; ++j) {
      const double error = work.error[j] * (1 - work.hidden[j] * work.hidden[j]);
      for (std::size_t k = 0; k < shape_.inputs; ++k) out[j * shape_.inputs + k] += error * input[k];
      out[shape_.b1() + j] += error;
    }
  }

  Shape shape_;
  Options options_;
  std::uint64_t seed_;
  std::vector<double> centers_, start_, inputs_;
  std::vector<std::uint32_t> labels_;
};

ObjectivePtr make_mlp(const Parameters& given, const ObjectiveSetting& setting) {
  Mlp::Options options;
  options.shape.inputs = setting.dim;
  options.shape.hidden = static_cast<std::size_t>(given.integer("hidden", 1, 4096));
  options.shape.classes = static_cast<std::size_t>(given.integer("classes", 2, 1000));
  options.samples = static_cast<std::uint32_t>(given.integer("samples", 1, 10'000'000));
  options.batch = static_cast<std::uint32_t>(given.integer("batch", 0, options.samples));
  options.heterogeneity = given.number("heterogeneity", 0, 1);
  return std::make_shared<Mlp>(setting, options);
}

}  // namespace

ObjectiveFamily mlp() {
  return {"mlp",
          "a network of two layers that classifies clusters of points; --dim is that of the points",
          {{"hidden", "16", "units between the layers"},
           {"classes", "4", "clusters"},
           {"samples", "32", "per node"},
           {"heterogeneity", "0.5", "share of samples from the node's own cluster; the others from any"},
           {"batch", "0", "samples per gradient, redrawn every step; 0: all"}},
          make_mlp};
}

}  // namespace starling::simulate::objective
