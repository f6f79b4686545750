#include "starling/launch/pipe.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::launch {

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  return {Fd(ends[0]), Fd(ends[1])};
}

void do_not_block(const Fd& end) {
  fcntl(end.get(), F_SETFL, O_NONBLOCK);
}

}  // namespace starling::launch
