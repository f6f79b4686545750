#include "starling/base/buffer.h"

namespace starling {

std::string name(MemoryKind memory) {
  return memory == MemoryKind::host ? "host memory" : "CUDA memory";
}

void throw_not_host_memory(MemoryKind memory) {
  throw InvalidArgument("this operation needs elements in host memory, and these are in " + name(memory) +
                        "; copy them to the host first");
}

void throw_other_element_type(DType dtype, DType asked) {
  throw InvalidArgument("this buffer's elements are " + name(dtype) + ", not " + name(asked));
}

}  // namespace starling
