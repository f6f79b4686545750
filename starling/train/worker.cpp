#include "starling/train/worker.h"

#include <limits>
#include <malloc.h>

#include "starling/train/torch_version.h"

namespace starling {

void prepare_worker(int threads) {
  torch::set_num_threads(threads);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

}  // namespace starling
