#include "machine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>

namespace fake_cuda {

Machine& Machine::instance() {
  static auto* const machine = new Machine;  // never destroyed: destructors use it at the end of the program
  return *machine;
}

Machine::Machine() {
  for (int device = 0; device < kDevices; ++device)
    streams.push_back(std::make_unique<CUstream_st>(CUstream_st{device, {}}));
}

Allocation::~Allocation() {
  Machine::instance().used[device] -= size;
  close(file);
}

int Machine::take_failure(const std::string& function) {
  const std::lock_guard lock(mutex);
  const auto found = failures.find(function);
  if (found == failures.end()) return 0;
  const int error = found->second;
  failures.erase(found);
  return error;
}

CUstream_st* Machine::stream(CUstream handle) {
  const int device = current_device();
  if (device < 0) return nullptr;
  if (handle == nullptr) return streams[static_cast<std::size_t>(device)].get();
  return handle->device == device ? handle : nullptr;
}

void Machine::enqueue(CUstream_st* stream, Operation operation) {
  const std::lock_guard lock(mutex);
  stream->operations.push_back(std::move(operation));
}

bool Machine::run_some() {
  const std::lock_guard lock(mutex);
  std::vector<CUstream_st*> order;
  for (const auto& stream : streams) order.push_back(stream.get());
  std::shuffle(order.begin(), order.end(), random);
  bool any = false;
  for (CUstream_st* stream : order)
    for (auto most = random() % 4; most > 0 && !stream->operations.empty(); --most) {
      if (!stream->operations.front()()) break;
      stream->operations.pop_front();
      any = true;
    }
  return any;
}

void Machine::finish(CUstream_st* stream) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stream->operations.empty()) return;
    }
    if (run_some()) continue;
    std::this_thread::yield();  // another thread may set a flag
    if (std::chrono::steady_clock::now() > limit) {
      std::fprintf(stderr, "fake CUDA: a stream waits for something that does not happen\n");
      std::abort();
    }
  }
}

cudaError_t load_kernel(const void* kernel, Launcher launcher) {
  Machine& machine = Machine::instance();
  const int device = current_device();
  if (device < 0) return cudaErrorDeviceUninitialized;
  const std::lock_guard lock(machine.mutex);
  machine.kernels[{device, kernel}] = std::move(launcher);
  return cudaSuccess;
}

void fail_next(const std::string& function, int error) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.failures[function] = error;
}

void set_peer_access(bool can) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  machine.peer_access = can;
}

void run_streams() {
  Machine& machine = Machine::instance();
  // Rounds are random: one round without progress does not mean that nothing can run.
  for (int idle = 0; idle < 20;) idle = machine.run_some() ? 0 : idle + 1;
}

std::size_t pending() {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  std::size_t count = 0;
  for (const auto& stream : machine.streams) count += stream->operations.size();
  return count;
}

std::size_t handles() {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  return machine.allocations.size();
}

std::size_t ranges() {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  return machine.ranges.size();
}

std::size_t pool_bytes() {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  std::size_t bytes = 0;
  for (const auto& [memory, size] : machine.pool) bytes += size;
  return bytes;
}

}  // namespace fake_cuda
