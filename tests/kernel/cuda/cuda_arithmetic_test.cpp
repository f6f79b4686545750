#include "starling/kernel/cuda/cuda_arithmetic.h"

#include <gmock/gmock.h>

#include "starling/base/error.h"
#include "twins.h"

namespace starling::kernel::cuda {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(CudaArithmeticTest, RefusesWhatTheHostRefuses) {
  std::vector<float> x(4, 1);
  std::vector<std::int32_t> whole(4, 1);
  const Buffer device(DType::float32, x.data(), 4, MemoryKind::cuda, nullptr);
  const Buffer integers(DType::int32, whole.data(), 4, MemoryKind::cuda, nullptr);
  const Buffer host(DType::float32, x.data(), 4);
  const Term own{ConstBuffer(device), 1};
  const auto refuses = [](const auto& call, const char* text) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refuses([&] { on_gpu().zero(host); }, "elements in host memory");
  refuses([&] { on_gpu().combine(device, std::vector<Term>{{ConstBuffer(host), 1}}); }, "host memory");
  refuses([&] { on_gpu().combine(integers, {&own, 1}); }, "combine: needs a floating dtype");
  refuses([&] { on_gpu().combine(device, std::vector<Term>(33, own)); }, "at most 32 terms, not 33");
  refuses([&] { on_gpu().scale(integers, 2); }, "scale: needs a floating dtype");
  refuses([&] { on_gpu().divide(integers, 2); }, "divide: needs a floating dtype");
  refuses([&] { on_gpu().copy(integers, device); }, "no conversion from float32 to int32");
  refuses([&] { (void)on_gpu().sum_of_squares(integers); }, "sum of squares");
  refuses([&] { on_gpu().sgd_update({{&own, 1}, integers, 1, integers}, {}, {}, true); }, "sgd: parameters");
  refuses(
      [&] {
        on_gpu().adam_update({{}, device, 1, device}, {}, device, device, 1);
      },
      "something to start from");
  refuses([&] { on_gpu().multiply(device, device, host, 2); }, "elements in host memory");
  refuses([&] { on_gpu().multiply_transposed(device, device, integers, 2); },
          "multiply_transposed: M, P and Q");
  refuses([&] { on_gpu().multiply_factors(device, device, device, 3); }, "4 elements cannot be the product");
  refuses([&] { on_gpu().orthonormalize(integers, 2); }, "factors are float32 or float64, not int32");
  refuses([&] { on_gpu().reduce(static_cast<Reduction>(9), device, device); }, "valid are sum, min, max");
  EXPECT_EQ(fake_cuda::pending(), 0U);
}

TEST(CudaArithmeticTest, DoesNothingWithEmptyBlocks) {
  const Buffer none(DType::float32, nullptr, 0, MemoryKind::cuda, nullptr);
  const Term own{ConstBuffer(none), 1};
  on_gpu().zero(none);
  on_gpu().copy(none, none);
  on_gpu().swap(none, none);
  on_gpu().copy_strided(none, 2, none, 1);
  on_gpu().combine(none, {&own, 1});
  on_gpu().combine_around(DType::float16, none, none, own, {});
  on_gpu().reduce(Reduction::sum, none, none);
  on_gpu().divide(none, 2);
  on_gpu().sgd_update({{&own, 1}, none, 1, none}, {}, none, true);
  on_gpu().moments({}, none, none, none, none);
  EXPECT_TRUE(on_gpu().all_finite(none));
  EXPECT_EQ(fake_cuda::pending(), 0U);
}

}  // namespace
}  // namespace starling::kernel::cuda
