#include "starling/fabric/local/region.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "starling/base/error.h"

namespace starling::fabric::local {
namespace {

// No process may change a region's size: reading beyond the end of a file raises SIGBUS.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::byte* map(int descriptor) {
  void* base =
      mmap(nullptr, Region::kSpan, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base == MAP_FAILED)
    throw Error(fmt::format("cannot map {} bytes of address space for a shared region: {}", Region::kSpan,
                            std::strerror(errno)));
  return static_cast<std::byte*>(base);
}

using Resource = __rlimit_resource_t;

// Empty if unlimited.
std::optional<std::uint64_t> limit_of(Resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

Region Region::create(const std::string& label) {
  check_memory_limits(1);
  Descriptor descriptor(memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) throw Error(fmt::format("cannot create a shared region: {}", open_failure(errno, 1)));
  if (ftruncate(descriptor.get(), static_cast<off_t>(kSpan)) != 0)
    throw Error(fmt::format("cannot size a shared region: {}", std::strerror(errno)));
  if (fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0)
    throw Error(fmt::format("cannot seal a shared region: {}", std::strerror(errno)));
  std::byte* base = map(descriptor.get());
  return {std::move(descriptor), base};
}

Region Region::adopt(Descriptor descriptor) {
  struct stat status {};
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (fstat(descriptor.get(), &status) != 0 || status.st_size != static_cast<off_t>(kSpan) || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0)
    throw Error("a peer sent a file descriptor that is not a shared region of this version of Starling");
  return {Descriptor(), map(descriptor.get())};  // the mapping stays
}

void refuse_memory_of(Rank rank, const std::string& what) {
  throw Error(
      fmt::format("the shared memory of rank {} is damaged: {}. Rank {} has a bug or is hostile; end the job",
                  rank, what, rank));
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
}

void Region::reserve(std::uint64_t bytes) {
  if (bytes <= reserved_) return;
  if (bytes > kSpan)
    throw Error(fmt::format("a shared region cannot grow to {} bytes; the limit is {}", bytes, kSpan));
  // In small steps: a signal undoes the interrupted step only, so that frequent signals cannot prevent
  // progress.
  constexpr std::uint64_t kStep = std::uint64_t{32} << 20;
  while (reserved_ < bytes) {
    const std::uint64_t now = std::min(bytes - reserved_, kStep);
    const int reason =
        posix_fallocate(descriptor_.get(), static_cast<off_t>(reserved_), static_cast<off_t>(now));
    if (reason == EINTR) continue;
    if (reason != 0)
      throw Error(fmt::format("no memory for {} more bytes of shared region (it holds {}): {}",
                              bytes - reserved_, reserved_, std::strerror(reason)));
    reserved_ += now;
  }
}

void check_memory_limits(Rank ranks) {
  if (const auto limit = limit_of(RLIMIT_FSIZE); limit && *limit < Region::kSpan)
    throw Error(fmt::format(
        "the limit on file sizes (RLIMIT_FSIZE, ulimit -f) is {} bytes, and the shared memory of a "
        "rank needs {}: start with ulimit -f unlimited",
        *limit, Region::kSpan));
  const std::uint64_t needed = Region::kSpan * static_cast<std::uint64_t>(ranks);
  if (const auto limit = limit_of(RLIMIT_AS); limit && *limit < needed)
    throw Error(
        fmt::format("the limit on address space (RLIMIT_AS, ulimit -v) is {} bytes, and {} ranks on one host "
                    "need {} in each process (address space, not memory): start with ulimit -v unlimited",
                    *limit, ranks, needed));
}

std::string open_failure(int reason, Rank ranks) {
  if (reason != EMFILE) return std::strerror(reason);
  // Rank 0 has a socket, a region and a pidfd of every rank open at once.
  constexpr int kEach = 3;
  const auto limit = limit_of(RLIMIT_NOFILE);
  return fmt::format(
      "the limit on open files (RLIMIT_NOFILE, ulimit -n) is {}, and a rendezvous of {} ranks needs {} in "
      "addition to those that the program has open: raise it",
      limit ? std::to_string(*limit) : "not set", ranks, kEach * ranks + 1);
}

}  // namespace starling::fabric::local
