#pragma once

#include "starling/launch/fd.h"

namespace starling::launch {

struct Pipe {
  Fd read_end, write_end;
};

/// Neither end is inherited; both block. Throws Error.
Pipe make_pipe();

void do_not_block(const Fd& end);

}  // namespace starling::launch
