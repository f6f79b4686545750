// Code that the kernels must not contain, compiled as nvcc does without -fmad=false: see check_ptx.cmake.
__global__ void contracted(float* x, float a, float b) {
  x[threadIdx.x] = a * x[threadIdx.x] + b;
}
