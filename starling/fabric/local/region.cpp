#include "starling/fabric/local/region.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "starling/base/error.h"

namespace starling::local {
namespace {

std::byte* map(int descriptor) {
  void* base =
      mmap(nullptr, Region::kSpan, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base == MAP_FAILED) throw Error(fmt::format("cannot map a shared region: {}", std::strerror(errno)));
  return static_cast<std::byte*>(base);
}

}  // namespace

Region Region::create(const std::string& label) {
  const int descriptor = memfd_create(label.c_str(), MFD_CLOEXEC);
  if (descriptor < 0) throw Error(fmt::format("cannot make a shared region: {}", std::strerror(errno)));
  if (ftruncate(descriptor, static_cast<off_t>(kSpan)) != 0) {
    const int reason = errno;
    close(descriptor);
    throw Error(fmt::format("cannot size a shared region: {}", std::strerror(reason)));
  }
  try {
    return {descriptor, map(descriptor)};
  } catch (...) {
    close(descriptor);
    throw;
  }
}

Region Region::adopt(int descriptor) {
  try {
    std::byte* base = map(descriptor);
    close(descriptor);  // the mapping stays
    return {-1, base};
  } catch (...) {
    close(descriptor);
    throw;
  }
}

Region::Region(Region&& other) noexcept {
  *this = std::move(other);
}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(base_, other.base_);
  std::swap(reserved_, other.reserved_);
  return *this;
}

Region::~Region() {
  if (base_ != nullptr) munmap(base_, kSpan);
  if (descriptor_ >= 0) close(descriptor_);
}

void Region::reserve(std::uint64_t bytes) {
  if (bytes <= reserved_) return;
  if (bytes > kSpan)
    throw Error(fmt::format("a shared region cannot grow to {} bytes; the limit is {}", bytes, kSpan));
  // Little by little, so that signals, which undo what they interrupt, cannot keep it from getting anywhere.
  constexpr std::uint64_t kStep = std::uint64_t{32} << 20;
  while (reserved_ < bytes) {
    const std::uint64_t now = std::min(bytes - reserved_, kStep);
    const int reason = posix_fallocate(descriptor_, static_cast<off_t>(reserved_), static_cast<off_t>(now));
    if (reason == EINTR) continue;
    if (reason != 0)
      throw Error(fmt::format("no memory for {} more bytes of shared region (it holds {}): {}",
                              bytes - reserved_, reserved_, std::strerror(reason)));
    reserved_ += now;
  }
}

}  // namespace starling::local
