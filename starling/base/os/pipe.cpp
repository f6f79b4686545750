#include "starling/base/os/pipe.h"

#include <cerrno>
#include <fcntl.h>

#include "starling/base/error.h"
#include "starling/base/system_error.h"

namespace starling {

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot create a pipe", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void do_not_block(const Descriptor& end) {
  fcntl(end.get(), F_SETFL, O_NONBLOCK);
}

}  // namespace starling
