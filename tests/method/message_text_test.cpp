#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "starling/fabric/local/local.h"
#include "starling/method/drive.h"

// A driver's errors name its call and its step, not its internal operations.

namespace starling::method {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(DriverMessageTest, ErrorsNameTheCallAndTheStep) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "allreduce", "gradient-tracking"}) {
    auto fabrics = local_threads(2);
    const auto steps = [&](std::size_t rank, int count) {
      Flock flock(fabrics[rank]);
      flock.set_timeout(std::chrono::seconds(20));
      std::vector<float> x(100);
      std::vector<float> gradient(100);
      DriverOptions options;
      options.method = method;
      options.topology = "ring";
      Driver driver = drive(flock, buffer_of(x), buffer_of(gradient), options);
      for (int step = 0; step < count; ++step) driver.finish();
    };
    std::thread other([&] {
      steps(1, 3);
      fabrics[1].reset();  // leaves
    });
    try {
      steps(0, 5);
      ADD_FAILURE() << method << ": no error was thrown";
    } catch (const PeerLost& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("Driver::finish(), step 3"), Not(HasSubstr("/")))) << method;
    }
    other.join();
  }
}

}  // namespace
}  // namespace starling::method
