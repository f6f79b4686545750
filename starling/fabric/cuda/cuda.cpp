#include "starling/fabric/cuda/cuda.h"

#include <cstring>
#include <fmt/format.h>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/forks.h"
#include "starling/fabric/cuda/flag_pages.h"
#include "starling/fabric/cuda/inbox.h"
#include "starling/fabric/cuda/outbox.h"
#include "starling/fabric/cuda/pool.h"
#include "starling/fabric/cuda/watcher.h"
#include "starling/fabric/forwarding.h"
#include "starling/record/log.h"

namespace starling::fabric {
namespace cuda {
namespace {

/// What a rank's messages and pools in device memory need. Later members use earlier ones.
struct DeviceParts {
  DeviceParts(Fabric& fabric, const std::string& job, const CudaOptions& options)
      : flags(fabric),
        outbox(fabric.rank(), fabric.size(), flags, options.memory_limit),
        inbox(fabric, flags, [this](Rank owner, std::uint32_t piece) { watcher.ask(owner, piece); }),
        watcher(fabric, job, outbox, inbox, borrowed),
        pools(fabric, watcher, borrowed) {}

  FlagPages flags;
  Outbox outbox;
  Inbox inbox;
  BorrowedPieces borrowed;
  Watcher watcher;
  Pools pools;
};

/// A local fabric plus messages in device memory; for each of those, the local fabric carries a ticket.
/// Thread-safe.
class CudaFabric final : public ForwardingFabric {
 public:
  CudaFabric(std::shared_ptr<Fabric> local, const std::string& job, const CudaOptions& options)
      : ForwardingFabric(std::move(local)),
        forks_(forks_so_far()),
        linger_(options.linger),
        parts_(std::make_unique<DeviceParts>(inner(), job, options)) {}

  ~CudaFabric() override {
    if (forks_so_far() != forks_)
      static_cast<void>(parts_.release());  // in a forked child they belong to the parent
    else if (!linger())
      abandon();
  }

  DeviceMessages* device_messages() override { return &parts_->outbox; }
  DevicePools* device_pools() override { return &parts_->pools; }

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    if (range.memory() == MemoryKind::host) return inner().post(range, header, to);
    parts_->watcher.start();
    const Outgoing message = inner().reserve(sizeof(Ticket));
    const Ticket ticket = parts_->outbox.publish(range, to);
    std::memcpy(message.bytes().data(), &ticket, sizeof(ticket));
    MessageHeader head = header;
    head.flag = kTicketFlag;
    inner().post(message, head, to);
  }

  std::optional<Arrival> poll(Rank source) override { return parts_->inbox.poll(source); }

  /// A dead peer counts as alive while its messages may still become readable.
  bool alive(Rank peer) const override { return inner().alive(peer) || parts_->inbox.waiting(peer); }

 private:
  /// Returns whether no device uses this rank's memory any more.
  bool linger() {
    if (!kernel::device_failure().empty()) return false;
    const auto end = std::chrono::steady_clock::now() + linger_;
    const auto done = [this] {
      parts_->inbox.discard();
      return parts_->outbox.all_written() && parts_->inbox.all_read() &&
             !parts_->outbox.readers_need_pieces();
    };
    try {
      while (!done()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      return true;
    } catch (const Error&) {
      return false;  // The peer's memory is damaged; its own readers report that.
    }
  }

  /// Leaves, but keeps all that this rank's streams still use, and the watcher, which ends their waits when
  /// peers die.
  void abandon() {
    inner().leave();
    if (kernel::device_failure().empty())
      log(LogLevel::normal,
          fmt::format(
              "rank {} leaves while its device waits for messages of others; their memory stays mapped "
              "until the process ends",
              rank()));
    static std::mutex mutex;
    static auto& kept = *new std::vector<std::pair<std::shared_ptr<Fabric>, DeviceParts*>>;
    const std::lock_guard lock(mutex);
    kept.emplace_back(shared_inner(), parts_.release());
  }

  const int forks_;
  const std::chrono::milliseconds linger_;
  std::unique_ptr<DeviceParts> parts_;
};

}  // namespace
}  // namespace cuda

std::shared_ptr<Fabric> with_device_messages(std::shared_ptr<Fabric> fabric, const std::string& job,
                                             const CudaOptions& options) {
  if (!kernel::may_have_device() || fabric->remote_calls() != nullptr) return fabric;
  return std::make_shared<cuda::CudaFabric>(std::move(fabric), job, options);
}

}  // namespace starling::fabric
