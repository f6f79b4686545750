#include "starling/kernel/transfer.h"

#include "starling/kernel/arithmetic.h"
#include "starling/kernel/device.h"

namespace starling::kernel {

void transfer(Buffer out, ConstBuffer in) {
  if (out.memory == in.memory) return arithmetic_in(out.memory).copy(out, in);
  if (in.on_host())
    device().copy_to_device(out.address(), in.host_data(), in.bytes());
  else
    device().copy_to_host(out.host_data(), in.address(), in.bytes());
  device().synchronize();
}

}  // namespace starling::kernel
