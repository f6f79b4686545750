#include <gtest/gtest.h>

#include "twins.h"

namespace starling::kernel::cuda {
namespace {

template <typename T>
void check_combine() {
  std::uint64_t seed = 0;
  for (const std::size_t n : kTermCounts)
    for (const std::size_t count : kCounts)
      for (const Layout layout : kLayouts)
        for (const std::vector<double>& weights : weights_of(n)) {
          Twins<T> x(n + 1, count, layout, ++seed);
          on_host().combine(x[n].host(), x.host_terms(weights));
          on_gpu().combine(x[n].device(), x.device_terms(weights));
          finish();
          ASSERT_TRUE(x.same()) << n << " terms, layout " << static_cast<int>(layout);
        }
}

TEST(CudaSumsTest, CombinesAsTheHost) {
  check_combine<float>();
  check_combine<double>();
  check_combine<Half>();
  check_combine<BFloat16>();
}

TEST(CudaSumsTest, CombinesIntoATermAndWithoutTerms) {
  Twins<float> x(3, 1003, Layout::aligned, 1);
  const double weights[] = {0.25, 0.5, 0.25};
  on_host().combine(x[1].host(), x.host_terms(weights));
  on_gpu().combine(x[1].device(), x.device_terms(weights));
  on_host().combine(x[2].host(), {});
  on_gpu().combine(x[2].device(), {});
  finish();
  EXPECT_TRUE(x.same());
}

// Includes the difference of values to themselves: equal messages leave x unchanged.
template <typename Message, typename T>
void check_combine_around() {
  std::uint64_t seed = 0;
  for (const std::size_t n : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 9U})
    for (const std::size_t count : kCounts)
      for (const Layout layout : kLayouts)
        for (const bool has_x : {true, false}) {
          Twins<Message> messages(n + 1, count, layout, ++seed);
          Twins<T> x(2, count, layout, ++seed);
          std::vector<double> weights(n);
          for (std::size_t t = 0; t < n; ++t) weights[t] = 0.3 - 0.2 * static_cast<double>(t);
          std::vector<Term> host = messages.host_terms(weights), device = messages.device_terms(weights);
          if (n > 0) device[n - 1].data = messages[n].device().address();  // the rank's own message
          if (n > 0) host[n - 1].data = messages[n].host().address();
          on_host().combine_around(dtype_of<Message>, x[1].host(), has_x ? x[0].host() : Buffer(),
                                   {ConstBuffer(messages[n].host()), 0}, host);
          on_gpu().combine_around(dtype_of<Message>, x[1].device(), has_x ? x[0].device() : Buffer(),
                                  {ConstBuffer(messages[n].device()), 0}, device);
          finish();
          ASSERT_TRUE(x.same()) << n << " terms, layout " << static_cast<int>(layout);
        }
}

TEST(CudaSumsTest, CombinesAroundAMessageAsTheHost) {
  check_combine_around<float, float>();
  check_combine_around<double, double>();
  check_combine_around<Half, float>();
  check_combine_around<BFloat16, float>();
}

}  // namespace
}  // namespace starling::kernel::cuda
