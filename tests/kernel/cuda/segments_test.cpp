#include <cstring>
#include <functional>
#include <memory>

#include "starling/kernel/device.h"
#include "starling/method/update.h"
#include "twins.h"

// Local optimizers over whole blocks: groups of settings, and parameters without a gradient.

namespace starling::kernel::cuda {
namespace {

using method::Hyper;
using method::Hypers;
using method::Segment;
using method::UpdatePtr;

class SegmentsTest : public testing::Test {
 protected:
  SegmentsTest() {
    set_device(std::shared_ptr<Device>(&test_gpu(), [](Device*) {}));
  }
  ~SegmentsTest() override { set_device(nullptr); }

  template <typename T>
  void check(const std::function<UpdatePtr(ConstBuffer x, std::size_t segments, Hypers hypers)>& make) {
    constexpr std::size_t kCount = 64 + 1003 + 37 + 7;
    std::vector<Segment> segments = {{0, 64, 0}, {64, 1003, 1}, {1067, 37, 0}, {1104, 7, 1}};
    const auto hypers = std::make_shared<std::vector<Hyper>>();
    hypers->push_back({.lr = 0.1,
                       .momentum = 0.9,
                       .dampening = 0.2,
                       .weight_decay = 0.01,
                       .beta1 = 0.8,
                       .decoupled = true});
    hypers->push_back({.lr = 0.02, .momentum = 0.5, .nesterov = true, .beta2 = 0.95, .decoupled = true});
    for (std::size_t n = 1; n <= 6; ++n) {
      Twins<T> x(n + 2, kCount, Layout::scattered, n);  // the terms, the gradient, the copy
      const UpdatePtr on_host = make(x[0].host(), segments.size(), hypers);
      const UpdatePtr on_device = make(x[0].device(), segments.size(), hypers);
      for (std::size_t step = 0; step < 4; ++step) {
        for (std::size_t i = 0; i < segments.size(); ++i) segments[i].active = (step + i) % 3 != 0;
        (*hypers)[0].lr = 0.1 / static_cast<double>(step + 1);
        const std::vector<double> weights(n, 1 / static_cast<double>(n));
        const std::vector<Term> host = x.host_terms(weights), device = x.device_terms(weights);
        on_host->apply({host, x[n].host(), 0.75, x[0].host(), x[n + 1].host()}, segments);
        on_device->apply({device, x[n].device(), 0.75, x[0].device(), x[n + 1].device()}, segments);
        finish();
        ASSERT_TRUE(x.same()) << on_host->name() << ", " << n << " terms, step " << step;
      }
      const auto of_host = on_host->state(), of_device = on_device->state();
      ASSERT_EQ(of_host.size(), of_device.size());
      for (std::size_t i = 0; i < of_host.size(); ++i) {
        const Buffer& expected = of_host[i].data;
        DeviceVector<std::byte> bytes(expected.bytes());
        if (of_device[i].data.on_host())
          std::memcpy(bytes.data(), of_device[i].data.host_data(), bytes.size());
        else
          on_gpu().copy({expected.dtype, bytes.data(), expected.count, MemoryKind::cuda, nullptr},
                        of_device[i].data);
        finish();
        std::vector<T> left(bytes.size() / sizeof(T)), right(left.size());
        std::memcpy(left.data(), bytes.data(), bytes.size());
        std::memcpy(right.data(), expected.host_data(), bytes.size());
        ASSERT_TRUE(same_blocks(left, right)) << on_host->name() << ", " << of_host[i].name;
      }
    }
  }

  template <typename T>
  void check_all() {
    check<T>(method::make_sgd);
    for (const bool decoupled : {false, true}) {
      check<T>([&](ConstBuffer x, std::size_t segments, Hypers hypers) {
        return method::make_adam(x, segments, std::move(hypers), decoupled);
      });
      check<T>([&](ConstBuffer x, std::size_t segments, Hypers hypers) {
        return method::make_accum_adam(x, segments, std::move(hypers), decoupled, 2);
      });
    }
  }
};

TEST_F(SegmentsTest, HaveTheBitsOfTheHost) {
  check_all<float>();
  check_all<double>();
  check_all<Half>();
  check_all<BFloat16>();
}

}  // namespace
}  // namespace starling::kernel::cuda
