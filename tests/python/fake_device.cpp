// For Python's tests: host memory that counts as the memory of a GPU.
#include "kernel/fake_device.h"

extern "C" {

__attribute__((visibility("default"))) void use_fake_device() {
  starling::kernel::FakeDeviceOptions options;
  options.seed = 7;
  starling::kernel::set_device(std::make_shared<starling::kernel::FakeDevice>(options));
}

__attribute__((visibility("default"))) void crash_fake_device(const char* why) {
  dynamic_cast<starling::kernel::FakeDevice&>(starling::kernel::device()).crash(why);
}

__attribute__((visibility("default"))) void synchronize_fake_device() {
  starling::kernel::device().synchronize();
}
}
