#include "starling/kernel/cuda/driver.h"

#include <dlfcn.h>
#include <type_traits>

#include "starling/base/error.h"

namespace starling::kernel::cuda {
namespace {

Driver& table() {
  static Driver instance;
  return instance;
}

// The driver's name and description of an error.
std::string text_of(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (table().cuGetErrorName_(result, &name) != CUDA_SUCCESS || name == nullptr)
    return "error " + std::to_string(static_cast<int>(result));
  if (table().cuGetErrorString_(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return std::string(name) + " (" + text + ")";
}

}  // namespace

// The names in cuda.h are macros for the functions' current versions. They are expanded before they become
// strings; the members' names are pasted as written.
#define STARLING_TEXT_OF(name) #name
#define STARLING_SYMBOL_OF(name) STARLING_TEXT_OF(name)

bool load_driver(std::string* why, const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    *why = std::string("there is no CUDA driver: ") + dlerror();
    return false;
  }
  Driver& functions = table();
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function != nullptr) return true;
    *why = std::string("the CUDA driver is too old: it lacks ") + symbol;
    return false;
  };
#define STARLING_FIND(name) \
  if (!find(functions.name##_, STARLING_SYMBOL_OF(name))) return false;
  STARLING_DRIVER_FUNCTIONS(STARLING_FIND)
#undef STARLING_FIND
  if (const CUresult result = functions.cuInit_(0); result != CUDA_SUCCESS) {
    *why = "the CUDA driver does not start: " + text_of(result);
    return false;
  }
  return true;
}

const Driver& driver() {
  return table();
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  throw Error(std::string("CUDA: ") + call + ": " + text_of(result));
}

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that the next call does not report it
  throw Error(std::string("CUDA: ") + call + ": " + cudaGetErrorName(result) + " (" +
              cudaGetErrorString(result) + ")");
}

void throw_out_of_memory(std::size_t bytes) {
  std::size_t free = 0, total = 0;
  check(driver().cuMemGetInfo_(&free, &total), "cuMemGetInfo");
  throw Error("the CUDA device has too little memory: " + std::to_string(bytes) + " bytes are needed, " +
              std::to_string(free) + " of " + std::to_string(total) + " are free");
}

}  // namespace starling::kernel::cuda
