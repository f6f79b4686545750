#pragma once

#include "starling/base/os/descriptor.h"

namespace starling {

/// The two ends of a pipe.
struct Pipe {
  Descriptor read_end, write_end;
};

/// Makes a pipe whose ends block and are not inherited by child programs. Throws Error.
Pipe make_pipe();

void do_not_block(const Descriptor& end);

}  // namespace starling
