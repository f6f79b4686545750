#include "starling/train/worker.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <limits>
#include <malloc.h>
#include <torch/cuda.h>

#include "starling/train/torch_version.h"

namespace starling::train {
namespace {

// torch has set the threads of its own loops and of MKL; OpenBLAS reads its variable only when it is loaded.
void set_blas_threads(int threads) {
  if (void* found = dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))
    reinterpret_cast<void (*)(int)>(found)(threads);
}

}  // namespace

void prepare_worker(int threads) {
  at::set_num_threads(threads);
  set_blas_threads(threads);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

int gpus_of_torch() {
  return static_cast<int>(torch::cuda::device_count());
}

}  // namespace starling::train
