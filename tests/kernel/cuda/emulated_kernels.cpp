// Compiles the kernels as C++ for the CPU.

#include "starling/kernel/cuda/codes.cu"
#include "starling/kernel/cuda/int8.cu"
#include "starling/kernel/cuda/maps.cu"
#include "starling/kernel/cuda/matrices.cu"
#include "starling/kernel/cuda/measures.cu"
#include "starling/kernel/cuda/message_updates.cu"
#include "starling/kernel/cuda/plan.cu"
#include "starling/kernel/cuda/sparse.cu"
#include "starling/kernel/cuda/sums.cu"
#include "starling/kernel/cuda/updates.cu"
