#include "starling/kernel/cuda/driver.h"

#include <gmock/gmock.h>
#include <string>

#include "machine.h"

namespace starling::kernel::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(CudaDriverTest, SaysWhyItCannotBeLoaded) {
  std::string why;
  EXPECT_FALSE(load_driver(&why, "libno_such_library.so"));
  EXPECT_THAT(why, AllOf(HasSubstr("there is no CUDA driver: "), HasSubstr("libno_such_library.so")));
  EXPECT_FALSE(load_driver(&why, "libm.so.6"));
  EXPECT_EQ(why, "the CUDA driver is too old: it lacks cuInit");
  fake_cuda::fail_next("cuInit", CUDA_ERROR_NO_DEVICE);
  EXPECT_FALSE(load_driver(&why, nullptr));
  EXPECT_EQ(why, "the CUDA driver does not start: CUDA_ERROR_NO_DEVICE (a fake error)");
  EXPECT_TRUE(load_driver(&why, nullptr));
}

}  // namespace
}  // namespace starling::kernel::cuda
