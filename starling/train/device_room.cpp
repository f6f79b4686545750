#include "starling/train/device_room.h"

#include <exception>
#include <fmt/format.h>
#include <vector>

#include "starling/base/error.h"
#include "starling/codec/wire_format.h"
#include "starling/kernel/device.h"
#include "starling/method/registry.h"
#include "starling/train/flock_checkpoints.h"

namespace starling::train {
namespace {

/// Device memory that is taken to see whether there is enough, and given back with this object.
class Trial {
 public:
  Trial() = default;
  ~Trial() {
    for (const auto& one : taken_) kernel::device().release_shared(one.address, one.bytes);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Throws Error if there is too little for all of these.
  void take(const std::vector<std::size_t>& sizes) {
    std::size_t needed = 0;
    for (const std::size_t size : sizes) needed += size;
    const int number = kernel::device_context().device;
    const auto free_now = [&] {
      return kernel::device().devices().at(static_cast<std::size_t>(number)).bytes_free;
    };
    std::size_t held = 0;
    for (const std::size_t size : sizes) {
      try {
        taken_.push_back(kernel::device().create_shared(size));
      } catch (const Error& error) {
        throw Error(
            fmt::format("the messages of a training step need {} bytes of memory of device {}, and {} "
                        "are free beside parameters, gradients, the optimizer's state and what other "
                        "processes have there ({})",
                        needed, number, free_now() + held, error.what()));
      }
      held += taken_.back().bytes;
    }
  }

 private:
  std::vector<kernel::Device::SharedMemory> taken_;
};

// The messages that a rank holds at the same time: two of each block if it is sent in every step, since
// readers may still use the last one.
std::vector<std::size_t> messages_of(const Replica& replica) {
  const WireFormatPtr format = make_wire_format(replica.options.message);
  std::vector<std::size_t> sizes;
  for (const Bucket& bucket : replica.buckets) {
    const Buffer x = bucket.x_block();
    const std::size_t size = format->exact() ? x.bytes() : format->encoded_bytes(x.count);
    sizes.insert(sizes.end(), replica.schedule ? 2 : 1, size);
  }
  return sizes;
}

// Methods with codecs send less, and windows check their own memory. Members of the flock that newcomers join
// do not make a trainer.
bool is_checked(const Replica& replica) {
  return !replica.buckets[0].x_block().on_host() && replica.flock.size() > 1 &&
         replica.flock.newcomers() == 0 && !replica.method->needs().one_sided &&
         canonical_method(replica.options.method).find("codec=") == std::string::npos;
}

}  // namespace

void make_driver_with_room(Replica& replica) {
  if (!is_checked(replica)) {
    replica.make_driver();
    return;
  }
  Trial trial;  // held until all ranks have theirs
  std::exception_ptr invalid;
  all_or_none(replica.flock, replica.operations_of("memory", replica.options.maker), [&] {
    try {
      replica.make_driver();
    } catch (const InvalidArgument&) {
      invalid = std::current_exception();
      return;
    }
    trial.take(messages_of(replica));
  });
  if (invalid) std::rethrow_exception(invalid);
}

}  // namespace starling::train
