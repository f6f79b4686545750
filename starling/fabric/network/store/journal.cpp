#include "starling/fabric/network/store/journal.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "starling/base/error.h"
#include "starling/fabric/network/store/protocol.h"

// The file: a head that says whether the journal is complete, then set and remove requests in the format of
// the network protocol.
namespace starling::fabric::network {
namespace {

constexpr std::string_view kComplete = "complete";
constexpr std::string_view kIncomplete = "cut off!";
constexpr std::size_t kMostBytes = std::size_t{4} << 30;

bool write_at(int file, std::string_view bytes, std::size_t at) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    at += static_cast<std::size_t>(wrote);
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

bool read_at(int file, std::string& bytes, std::size_t at) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got = pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

StoreJournal StoreJournal::create() {
  Descriptor file(memfd_create("starling-store-journal", MFD_CLOEXEC));
  if (!file || !write_at(file.get(), kComplete, 0))
    throw Error(fmt::format("cannot create the journal of a store: {}", std::strerror(errno)));
  return StoreJournal(std::move(file));
}

StoreJournal StoreJournal::share() const {
  return StoreJournal(Descriptor(fcntl(file_.get(), F_DUPFD_CLOEXEC, 0)));
}

void StoreJournal::replay(const Change& change) {
  if (!file_) return;
  std::string head(kComplete.size(), '\0');
  if (!read_at(file_.get(), head, 0) || head != kComplete)
    throw Error("the store's journal is incomplete: its entries are lost");
  end_ = head.size();
  struct stat status {};
  if (fstat(file_.get(), &status) != 0)
    throw Error(fmt::format("the store's journal cannot be read: {}", std::strerror(errno)));
  const auto size = static_cast<std::size_t>(status.st_size);
  // The last change may be truncated; then no client has received its answer.
  while (size - end_ >= kLength) {
    std::string length(kLength, '\0');
    if (!read_at(file_.get(), length, end_)) break;
    std::string bytes(std::min(read_length(length), size), '\0');
    if (bytes.size() > size - end_ - kLength || !read_at(file_.get(), bytes, end_ + kLength)) break;
    const auto request = decode_request(bytes);
    if (!request || request->keys.size() != 1) break;
    change(request->keys.front(), request->values.empty() ? nullptr : &request->values.front());
    end_ += kLength + bytes.size();
  }
}

void StoreJournal::write(const std::string& key, const std::string* value) {
  if (!file_) return;
  StoreRequest request;
  request.operation = value == nullptr ? StoreOperation::remove : StoreOperation::set;
  request.keys = {key};
  if (value != nullptr) request.values = {*value};
  const std::string bytes = encode(request);
  if (end_ == 0) end_ = kComplete.size();
  if (end_ + bytes.size() > kMostBytes || !write_at(file_.get(), bytes, end_)) {
    write_at(file_.get(), kIncomplete, 0);
    file_.reset();
    return;
  }
  end_ += bytes.size();
}

}  // namespace starling::fabric::network
