#include <cmath>
#include <utility>

#include <Eigen/Dense>

#include "starling/base/random.h"
#include "starling/method/family/list.h"

namespace starling::method::family {
namespace {

/// PowerSGD: a gradient with its residual, M, is sent as P = M Q, summed over all ranks and orthonormalized,
/// and then Q = M^T P, also summed; the step is along P Q^T, and the rest of M is added to the next gradient.
/// Q starts the next step's iteration. Parameters that would not become shorter are summed unchanged. Eigen
/// multiplies the matrices, in host memory.
template <typename T>
class PowerSgd {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Columns = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;

 public:
  explicit PowerSgd(std::size_t rank) : rank_(rank) {}

  void gradient(Block& block) {
    stage(block) = 0;
    const Buffer contributors = contributors_of(block);
    write_number(contributors, block.skipped ? 0 : 1);
    std::vector<Buffer> sent = {contributors};
    for (const Segment& segment : block.segments) {
      const Shape shape = shape_of(segment);
      const Buffer m = with_residual(block, segment);
      if (shape.rows == 0) {
        sent.push_back(m);
        continue;
      }
      const Buffer p = part(block, "P", segment, shape.rows * rank_);
      Eigen::Map<Columns>(floats(p), rows(shape), rank()).noalias() =
          as_matrix(m, shape) *
          Eigen::Map<const Columns>(floats(start(block, segment, shape)), columns(shape), rank());
      sent.push_back(p);
    }
    block.collective().reduce(pieces_of(sent), Reduction::sum);
  }

  void gradient_done(Block& block) {
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

  static Buffer contributors_of(Block& block) { return block.make_state("contributors", dtype_of<T>, 1); }
  static double& stage(Block& block) { return block.numbers("stage")[0]; }
  Eigen::Index rank() const { return static_cast<Eigen::Index>(rank_); }
  static Eigen::Index rows(const Shape& shape) { return static_cast<Eigen::Index>(shape.rows); }
  static Eigen::Index columns(const Shape& shape) { return static_cast<Eigen::Index>(shape.columns); }
  static T* floats(Buffer block) { return block.template host<T>(); }
  static Eigen::Map<Matrix> as_matrix(Buffer block, const Shape& shape) {
    return {floats(block), rows(shape), columns(shape)};
  }
  static Buffer part(Block& block, const std::string& key, const Segment& segment, std::size_t count) {
    return block.make_state(key + "/" + std::to_string(segment.begin), dtype_of<T>, count);
  }
  static Buffer gradient_of(Block& block, const Segment& segment) { return part_of(block.gradient, segment); }

  // M = gradient + the last residual; a rank without a gradient adds zero to the sums.
  static Buffer with_residual(Block& block, const Segment& segment) {
    const Buffer m = part(block, "M", segment, segment.count);
    const Buffer left = part(block, "left", segment, segment.count);
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
    const Buffer q = part(block, "Q", segment, shape.columns * rank_);
    double& drawn = block.numbers("drawn/" + std::to_string(segment.begin))[0];
    if (drawn == 0) {
      Random random(segment.id, 0, stream::kPowerSgd);
      for (std::size_t i = 0; i < q.count; ++i) floats(q)[i] = static_cast<T>(random.normal());
    }
    drawn = 1;
    return q;
  }

  Buffer second_half(Block& block, const Segment& segment, const Shape& shape) const {
    Eigen::Map<Columns> p(floats(part(block, "P", segment, shape.rows * rank_)), rows(shape), rank());
    for (Eigen::Index r = 0; r < rank(); ++r) {
      for (Eigen::Index earlier = 0; earlier < r; ++earlier)
        p.col(r) -= p.col(earlier).dot(p.col(r)) * p.col(earlier);
      const T norm = p.col(r).norm();
      if (norm > 0) p.col(r) /= norm;
    }
    const Buffer q = part(block, "Q", segment, shape.columns * rank_);
    Eigen::Map<Columns>(floats(q), columns(shape), rank()).noalias() =
        as_matrix(part(block, "M", segment, segment.count), shape).transpose() * p;
    return q;
  }

  // Turns Q, the sum over all ranks, into the mean over those with a gradient.
  void finish(Block& block, const Segment& segment, double contributors) const {
    const Shape shape = shape_of(segment);
    const Buffer m = part(block, "M", segment, segment.count);
    if (shape.rows == 0) {
      block.combine(m, {{m, 1 / contributors}});
      block.copy(gradient_of(block, segment), m);
      return;
    }
    const Eigen::Map<const Columns> p(floats(part(block, "P", segment, shape.rows * rank_)), rows(shape),
                                      rank());
    const Eigen::Map<const Columns> q(floats(part(block, "Q", segment, shape.columns * rank_)),
                                      columns(shape), rank());
    const auto share = static_cast<T>(1 / contributors);
    const Matrix step = share * (p * q.transpose());
    const Buffer left = part(block, "left", segment, segment.count);
    if (!block.skipped) as_matrix(left, shape) = as_matrix(m, shape) - step;
    block.copy(gradient_of(block, segment), {dtype_of<T>, step.data(), segment.count});
  }

  std::size_t rank_;
};

/// PowerSgd for blocks of float32 and of float64.
class PowerSgdMethod : public Method {
 public:
  explicit PowerSgdMethod(std::size_t rank) : narrow_(rank), wide_(rank) {}

  void gradient(Block& block) override {
    block.dtype() == DType::float64 ? wide_.gradient(block) : narrow_.gradient(block);
  }
  void gradient_done(Block& block) override {
    block.dtype() == DType::float64 ? wide_.gradient_done(block) : narrow_.gradient_done(block);
  }
  void adapt(Block& block) override { block.update(); }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::none,
            .exact_messages_because = "its factors are sent unchanged",
            .host_memory_because = "its products of matrices are computed by Eigen",
            .gradient = GradientUse::averaged};
  }

 private:
  PowerSgd<float> narrow_;
  PowerSgd<double> wide_;
};

}  // namespace

MethodFamily powersgd() {
  return {"powersgd",
          "allreduce of low-rank gradients with error feedback (PowerSGD)",
          {{"rank", "2", "rank of the matrices that are sent"}},
          [](const Parameters& given) {
            return std::make_shared<PowerSgdMethod>(static_cast<std::size_t>(given.integer("rank", 1, 1024)));
          }};
}

}  // namespace starling::method::family
