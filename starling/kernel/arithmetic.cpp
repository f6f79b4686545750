#include "starling/kernel/arithmetic.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "starling/base/error.h"
#include "starling/kernel/average.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/device.h"
#include "starling/kernel/element_rules.h"
#include "starling/kernel/finite.h"
#include "starling/kernel/matrices.h"

namespace starling::kernel {
namespace {

constexpr std::align_val_t kAlignment{64};

// Calls body with the element type, float32 or float64.
template <typename Body>
void as_parameters(DType dtype, const char* rule, const Body& body) {
  if (dtype == DType::float32)
    body(float{});
  else if (dtype == DType::float64)
    body(double{});
  else
    throw InvalidArgument(std::string(rule) + ": parameters are float32 or float64, not " + name(dtype));
}

double squares_of(ConstBuffer x) {
  if (x.dtype == DType::float32 || x.dtype == DType::float64) return kernel::sum_of_squares(x);
  double sum = 0;
  dispatch(x.dtype, [&]<typename E>(std::type_identity<E>) {
    for (const E& element : std::span(x.host<E>(), x.count)) {
      const auto number = static_cast<double>(element);
      sum += number * number;
    }
  });
  return sum;
}

class HostArithmetic final : public Arithmetic {
 public:
  std::shared_ptr<void> allocate(std::size_t bytes) const override {
    void* memory = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment);
    std::memset(memory, 0, bytes);
    return {memory, [](void* one) { ::operator delete(one, kAlignment); }};
  }

  void zero(Buffer out) const override {
    if (out.count > 0) std::memset(out.host_data(), 0, out.bytes());
  }
  void copy(Buffer out, ConstBuffer in) const override {
    if (in.dtype == out.dtype)
      copy_bytes(out.host_data(), in);
    else
      convert(in, out);
  }
  void copy_strided(Buffer out, std::size_t out_step, ConstBuffer in, std::size_t in_step) const override {
    dispatch(in.dtype, [&]<typename E>(std::type_identity<E>) {
      E* to = out.host<E>();
      const E* from = in.host<E>();
      for (std::size_t k = 0; k * in_step < in.count; ++k) to[k * out_step] = from[k * in_step];
    });
  }
  void gather(Buffer out, std::span<const GatheredPart> parts) const override {
    for (const GatheredPart& part : parts)
      if (const Buffer to = out.part(part.begin, part.count); part.from == nullptr)
        zero(to);
      else
        copy(to, {out.dtype, part.from, part.count});
  }
  void swap(Buffer a, Buffer b) const override {
    std::byte* first = a.host_bytes();
    std::swap_ranges(first, first + a.bytes(), b.host_bytes());
  }
  void combine(Buffer out, std::span<const Term> terms) const override { starling::combine(out, terms); }
  void combine_around(DType message, Buffer out, ConstBuffer x, Term own,
                      std::span<const Term> others) const override {
    check_on_host({&own, 1});
    kernel::combine_around(message, out.host_data(), x.host_data(), own.data, others, out.count);
  }
  void reduce(Reduction reduction, Buffer accumulator, ConstBuffer in) const override {
    kernel::reduce(reduction, accumulator, in);
  }
  void scale(Buffer x, double factor) const override { kernel::scale(x, factor); }
  void divide(Buffer x, double number) const override { kernel::divide(x, number); }
  double sum_of_squares(ConstBuffer x) const override { return kernel::sum_of_squares(x); }
  void add_squares(Buffer sum, ConstBuffer x, double factor) const override {
    *sum.host<double>() += squares_of(x) * factor * factor;
  }
  void clip(Buffer x, double factor, ConstBuffer squares, double limit) const override {
    scale(x, rules::clipped(factor, *squares.host<double>(), limit));
  }
  void divide_by(Buffer out, ConstBuffer in, ConstBuffer number) const override {
    if (const double divisor = *number.host<double>(); divisor > 0) {
      const Term term(in, 1 / divisor);
      combine(out, {&term, 1});
    }
  }
  bool all_finite(ConstBuffer x) const override { return kernel::all_finite(x); }

  void moments(const MomentRule& rule, ConstBuffer x, ConstBuffer gradient, Buffer m,
               Buffer v) const override {
    as_parameters(m.dtype, "moments", [&]<typename T>(T) {
      const T* at = x.host<T>();
      const T* g = gradient.host<T>();
      T* first = m.host<T>();
      for (std::size_t i = 0; i < m.count; ++i) first[i] = rules::first_moment(rule, at[i], g[i], first[i]);
      if (v.address() == nullptr) return;
      T* second = v.host<T>();
      for (std::size_t i = 0; i < m.count; ++i)
        second[i] = rules::second_moment(rule, at[i], g[i], second[i]);
    });
  }
  void moment_step(const MomentStepRule& rule, Buffer x, ConstBuffer m, ConstBuffer v) const override {
    as_parameters(x.dtype, "moment_step", [&]<typename T>(T) {
      T* at = x.host<T>();
      const T* first = m.host<T>();
      const T* second = v.host<T>();
      for (std::size_t i = 0; i < x.count; ++i) at[i] = rules::moment_step(rule, at[i], first[i], second[i]);
    });
  }

  void sgd_update(const UpdatePass& pass, const SgdRule& rule, Buffer m, bool first) const override {
    kernel::sgd_update(pass, rule, m, first);
  }
  void adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, long t) const override {
    kernel::adam_update(pass, rule, m, v, t);
  }
  void accum_adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, Buffer sum, long t,
                         long s, bool fold) const override {
    kernel::accum_adam_update(pass, rule, m, v, sum, t, s, fold);
  }

  void multiply(Buffer p, ConstBuffer m, ConstBuffer q, std::size_t rank) const override {
    kernel::multiply(p, m, q, rank);
  }
  void multiply_transposed(Buffer q, ConstBuffer m, ConstBuffer p, std::size_t rank) const override {
    kernel::multiply_transposed(q, m, p, rank);
  }
  void multiply_factors(Buffer m, ConstBuffer p, ConstBuffer q, std::size_t rank) const override {
    kernel::multiply_factors(m, p, q, rank);
  }
  void orthonormalize(Buffer factor, std::size_t rank) const override {
    kernel::orthonormalize(factor, rank);
  }

  std::shared_ptr<bool> make_mark() const override { return std::make_shared<bool>(false); }
};

}  // namespace

const Arithmetic& arithmetic_in(MemoryKind memory) {
  static const HostArithmetic host;
  return memory == MemoryKind::host ? host : device().arithmetic();
}

OwnedBuffer::OwnedBuffer(DType dtype, std::size_t count, MemoryKind memory)
    : memory_(arithmetic_in(memory).allocate(count * size_of(dtype))),
      buffer_(dtype, memory_.get(), count, memory, nullptr) {}

}  // namespace starling::kernel
