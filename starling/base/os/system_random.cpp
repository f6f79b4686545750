#include "starling/base/os/system_random.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/random.h>

#include "starling/base/error.h"

namespace starling {

void fill_random(std::span<std::byte> memory) {
  if (getrandom(memory.data(), memory.size(), 0) != static_cast<ssize_t>(memory.size()))
    throw Error(fmt::format("the system provides no random numbers: {}", std::strerror(errno)));
}

}  // namespace starling
