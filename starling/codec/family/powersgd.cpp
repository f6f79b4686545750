#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "starling/codec/draws.h"
#include "starling/codec/family/list.h"
#include "starling/codec/host_codec.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/dot.h"
#include "starling/kernel/quantize.h"

namespace starling::codec::family {
namespace {

/// A parameter as a rows x columns matrix; if that has more elements than the parameter, the last rows are
/// cut short.
struct Matrix {
  explicit Matrix(CodecShape shape)
      : count(shape.count),
        rows(shape.rows > 0 ? std::min(shape.rows, shape.count) : near_square(shape.count)),
        columns(rows > 0 ? (count + rows - 1) / rows : 0) {}

  static std::size_t near_square(std::size_t count) {
    return static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  }
  std::size_t begin(std::size_t row) const { return std::min(row * columns, count); }
  std::size_t width(std::size_t row) const { return std::min(columns, count - begin(row)); }

  std::size_t count;
  std::size_t rows;
  std::size_t columns;
};

// Modified Gram-Schmidt on `rank` vectors, in float64. Runs twice: a vector that the earlier ones span leaves
// only rounding errors, which are orthogonal to nothing.
void orthonormalize(float* vectors, std::size_t rank, std::size_t length) {
  const auto product = [&](const float* a, const float* b) {
    double sum = 0;
    for (std::size_t i = 0; i < length; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  };
  for (std::size_t r = 0; r < rank; ++r) {
    float* vector = vectors + r * length;
    const double before = std::sqrt(product(vector, vector));
    for (std::size_t e = 0; e < 2 * r; ++e) {
      const float* earlier = vectors + e % r * length;
      const double along = product(earlier, vector);
      for (std::size_t i = 0; i < length; ++i)
        vector[i] =
            static_cast<float>(static_cast<double>(vector[i]) - along * static_cast<double>(earlier[i]));
    }
    const double norm = std::sqrt(product(vector, vector));
    const double factor = norm <= 1e-7 * before ? 0 : 1 / norm;  // a NaN stays a NaN
    for (std::size_t i = 0; i < length; ++i)
      vector[i] = static_cast<float>(factor * static_cast<double>(vector[i]));
  }
}

/// Sends M as P Q^T of the given rank: P is the orthonormalized M Q0, with Q0 drawn from the key, and Q = M^T
/// P. The message holds P and Q, column by column.
class PowerSgd : public HostCodec {
 public:
  explicit PowerSgd(std::size_t rank) : rank_(rank) {}

  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override {
    is_wide(dtype);
    const Matrix matrix(shape);
    return whole_message(sizeof(float) *
                         (whole(matrix) ? matrix.count : rank_ * (matrix.rows + matrix.columns)));
  }

 private:
  void host_encode(ConstBuffer in, std::size_t rows, const CodecKey& key,
                   std::span<std::byte> message) const override {
    const Matrix matrix({in.count, rows});
    std::memset(message.data() + message.size() - 8, 0, 8);
    std::vector<float> scratch;
    const float* m = as_floats(in, scratch);
    if (whole(matrix)) return copy_bytes(message.data(), m, matrix.count * sizeof(float));
    auto* p = reinterpret_cast<float*>(message.data());
    float* q = p + rank_ * matrix.rows;
    const std::vector<float> start = drawn(matrix, draw_key(key));
    for (std::size_t row = 0; row < matrix.rows; ++row)
      for (std::size_t r = 0; r < rank_; ++r)
        p[r * matrix.rows + row] = static_cast<float>(
            dot(m + matrix.begin(row), start.data() + r * matrix.columns, matrix.width(row)));
    orthonormalize(p, rank_, matrix.rows);
    std::memset(q, 0, rank_ * matrix.columns * sizeof(float));
    for (std::size_t row = 0; row < matrix.rows; row += kRowsAtOnce) add_rows(matrix, m, row, p, q);
  }

  void host_decode(std::span<const std::byte> message, std::size_t rows, Buffer out) const override {
    const bool wide = is_wide(out.dtype);
    std::vector<float> scratch;
    for_rows({out.count, rows}, message, [&](const auto& row_to, std::size_t begin, std::size_t width) {
      const Buffer to = out.part(begin, width);
      if (!wide) return row_to(to.host<float>());
      scratch.resize(width);
      row_to(scratch.data());
      convert({DType::float32, scratch.data(), width}, to);
    });
  }

  void host_decode_add(std::span<const std::byte> message, std::size_t rows, double weight,
                       Buffer out) const override {
    std::vector<float> decoded;
    std::vector<double> scratch;
    for_rows({out.count, rows}, message, [&](const auto& row_to, std::size_t begin, std::size_t width) {
      decoded.resize(width);
      row_to(decoded.data());
      add_floats(decoded.data(), weight, out.part(begin, width), scratch);
    });
  }

  // with the sum itself, the largest number of terms for which combine() is fast
  static constexpr std::size_t kRowsAtOnce = 3;

  bool whole(const Matrix& matrix) const { return rank_ * (matrix.rows + matrix.columns) >= matrix.count; }

  // Calls body(row_to, begin, width) for every row; row_to(out) writes its elements.
  template <typename Body>
  void for_rows(CodecShape shape, std::span<const std::byte> message, const Body& body) const {
    const Matrix matrix(shape);
    const auto* p = reinterpret_cast<const float*>(message.data());
    const float* q = p + rank_ * matrix.rows;
    const bool as_it_is = whole(matrix);
    std::vector<Term> terms(rank_);
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      const std::size_t begin = matrix.begin(row), width = matrix.width(row);
      const auto row_to = [&](float* out) {
        if (as_it_is) return copy_bytes(out, p + begin, width * sizeof(float));
        for (std::size_t r = 0; r < rank_; ++r)
          terms[r] = {q + r * matrix.columns, static_cast<double>(p[r * matrix.rows + row])};
        combine(DType::float32, out, terms, width, Store::cached);
      };
      body(row_to, begin, width);
    }
  }

  // Uniform on -1 .. 1; any direction that is not orthogonal to the largest singular vectors would do.
  std::vector<float> drawn(const Matrix& matrix, std::uint64_t draws) const {
    std::vector<std::uint32_t> words(rank_ * matrix.columns);
    random_words(draws, 0, words.size(), words.data());
    std::vector<float> start(words.size());
    for (std::size_t i = 0; i < words.size(); ++i)
      start[i] = static_cast<float>(static_cast<std::int32_t>(words[i])) * 0x1p-31F;
    return start;
  }

  // q += M^T p over a few rows; short rows at the end go one by one.
  void add_rows(const Matrix& matrix, const float* m, std::size_t first, const float* p, float* q) const {
    const std::size_t last = std::min(first + kRowsAtOnce, matrix.rows);
    const bool full = matrix.width(last - 1) == matrix.columns;
    for (std::size_t r = 0; r < rank_; ++r) {
      float* to = q + r * matrix.columns;
      std::vector<Term> terms{{to, 1}};
      for (std::size_t row = first; row < last; ++row) {
        terms.push_back({m + matrix.begin(row), static_cast<double>(p[r * matrix.rows + row])});
        if (full) continue;
        combine(DType::float32, to, terms, matrix.width(row), Store::cached);
        terms.pop_back();
      }
      if (full) combine(DType::float32, to, terms, matrix.columns, Store::cached);
    }
  }

  std::size_t rank_;
};

}  // namespace

CodecFamily powersgd() {
  return {"powersgd",
          "each parameter as a matrix of low rank, by one power iteration; needs error feedback",
          {{"rank", "2", "rank of the matrices; parameters that would not be shorter are sent unchanged"}},
          [](const Parameters& given) {
            return std::make_shared<PowerSgd>(static_cast<std::size_t>(given.integer("rank", 1, 1024)));
          }};
}

}  // namespace starling::codec::family
