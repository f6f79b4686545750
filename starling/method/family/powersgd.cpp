#include <cmath>
#include <utility>

#include "starling/base/random.h"
#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// PowerSGD: a gradient with its residual, M, is sent as P = M Q, summed over all ranks and orthonormalized,
/// and then Q = M^T P, also summed; the step is along P Q^T, and the rest of M is added to the next gradient.
/// Q starts the next step's iteration. Parameters that would not become shorter are summed unchanged.
class PowerSgd : public Method {
 public:
  explicit PowerSgd(std::size_t rank) : rank_(rank) {}

  void gradient(Block& block) override {
    stage(block) = 0;
    std::vector<Buffer> sent;
    for (const Segment& segment : block.segments) {
      const Shape shape = shape_of(segment);
      const Buffer m = with_residual(block, segment);
      if (shape.rows == 0) {
        sent.push_back(m);
        continue;
      }
      sent.push_back(p_of(block, segment, shape));
      block.arithmetic().multiply(sent.back(), m, start(block, segment, shape), rank_);
    }
    sent.push_back(contributors_of(block));
    write_number(sent.back(), block.skipped ? 0 : 1);
    block.collective().reduce(pieces_of(sent), Reduction::sum);
  }

  void gradient_done(Block& block) override {
    const double contributors = read_number(contributors_of(block));
    if (contributors == 0) {
      block.skipped = true;
      return;
    }
    if (std::exchange(stage(block), 1) == 0) {
      std::vector<Buffer> sent;
      for (const Segment& segment : block.segments)
        if (const Shape shape = shape_of(segment); shape.rows > 0)
          sent.push_back(second_half(block, segment, shape));
      if (!sent.empty()) {
        block.collective().reduce(pieces_of(sent), Reduction::sum);
        return;
      }
    }
    for (const Segment& segment : block.segments) finish(block, segment, contributors);
    block.gradient_scale = 1;
    block.skipped = false;
    block.activate();
  }

  void adapt(Block& block) override { block.update(); }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::none,
            .exact_messages_because = "its factors are sent unchanged",
            .gradient = GradientUse::averaged};
  }

 private:
  struct Shape {
    std::size_t rows = 0;  // 0: not compressed
    std::size_t columns = 0;
  };

  // The parameter's own matrix, or a nearly square one of its elements.
  Shape shape_of(const Segment& segment) const {
    std::size_t count = segment.rows;
    if (count == 0 || segment.count % count != 0)
      for (count = static_cast<std::size_t>(std::sqrt(static_cast<double>(segment.count)));
           count > 1 && segment.count % count != 0; --count) {
      }
    if (count == 0) return {};
    const Shape shape{count, segment.count / count};
    return rank_ * (shape.rows + shape.columns) < segment.count ? shape : Shape{};
  }

  // Gradients of 16 bits are handled in float32.
  static DType type_of(const Block& block) {
    return block.dtype() == DType::float64 ? DType::float64 : DType::float32;
  }
  // In host memory, where it is read in every step.
  static Buffer contributors_of(Block& block) { return block.host_state("contributors", type_of(block), 1); }
  static double& stage(Block& block) { return block.numbers("stage")[0]; }
  static Buffer part(Block& block, const std::string& key, const Segment& segment, std::size_t count) {
    return block.make_state(key + "/" + std::to_string(segment.begin), type_of(block), count);
  }
  static Buffer m_of(Block& block, const Segment& segment) {
    return part(block, "M", segment, segment.count);
  }
  static Buffer left_of(Block& block, const Segment& segment) {
    return part(block, "left", segment, segment.count);
  }
  Buffer p_of(Block& block, const Segment& segment, const Shape& shape) const {
    return part(block, "P", segment, shape.rows * rank_);
  }
  Buffer q_of(Block& block, const Segment& segment, const Shape& shape) const {
    return part(block, "Q", segment, shape.columns * rank_);
  }
  static Buffer gradient_of(Block& block, const Segment& segment) { return part_of(block.gradient, segment); }

  // M = gradient + the last residual; a rank without a gradient adds zero to the sums.
  static Buffer with_residual(Block& block, const Segment& segment) {
    const Buffer m = m_of(block, segment);
    const Buffer left = left_of(block, segment);
    if (block.skipped) {
      block.zero(m);
      return m;
    }
    block.copy(m, gradient_of(block, segment));
    block.combine(m, {{m, block.gradient_scale}, {left, 1}});
    return m;
  }

  // The first Q is drawn, the same on every rank; later ones are the last Q.
  Buffer start(Block& block, const Segment& segment, const Shape& shape) const {
    const Buffer q = q_of(block, segment, shape);
    if (std::exchange(block.numbers("drawn/" + std::to_string(segment.begin))[0], 1) == 1) return q;
    Random random(segment.id, 0, stream::kPowerSgd);
    std::vector<double> drawn(q.count);
    for (double& number : drawn) number = random.normal();
    write_numbers(q, drawn);
    return q;
  }

  Buffer second_half(Block& block, const Segment& segment, const Shape& shape) const {
    const Buffer p = p_of(block, segment, shape);
    const Buffer q = q_of(block, segment, shape);
    block.arithmetic().orthonormalize(p, rank_);
    block.arithmetic().multiply_transposed(q, m_of(block, segment), p, rank_);
    return q;
  }

  // Turns Q, the sum over all ranks, into the mean over those with a gradient.
  void finish(Block& block, const Segment& segment, double contributors) const {
    const Shape shape = shape_of(segment);
    const Buffer m = m_of(block, segment);
    if (shape.rows == 0) {
      block.combine(m, {{m, 1 / contributors}});
      block.copy(gradient_of(block, segment), m);
      return;
    }
    const Buffer q = q_of(block, segment, shape);
    block.combine(q, {{q, 1 / contributors}});
    // A rank without a gradient keeps its residual.
    const Buffer left = left_of(block, segment), mean = block.skipped ? m : left;
    block.arithmetic().multiply_factors(mean, p_of(block, segment, shape), q, rank_);
    block.copy(gradient_of(block, segment), mean);
    if (!block.skipped) block.combine(left, {{m, 1}, {mean, -1}});
  }

  std::size_t rank_;
};

}  // namespace

MethodFamily powersgd() {
  return {"powersgd",
          "allreduce of low-rank gradients with error feedback (PowerSGD)",
          {{"rank", "2", "rank of the matrices that are sent"}},
          [](const Parameters& given) {
            return std::make_shared<PowerSgd>(static_cast<std::size_t>(given.integer("rank", 1, 1024)));
          }};
}

}  // namespace starling::method::family
