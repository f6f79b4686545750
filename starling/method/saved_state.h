#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/method/driver.h"
#include "starling/record/checkpoint_file.h"

namespace starling::method {

/// The parts of a rank's state for a checkpoint: views of existing memory, on the host or a device, and
/// copies owned by this object. Valid until the state changes.
class SavedParts {
 public:
  /// Adds a view. If the block is in device memory, this thread's stream writes it.
  void add(const std::string& name, ConstBuffer block);
  void add_view(const std::string& name, const std::string& type, std::span<const std::byte> bytes);
  /// Adds a view of device memory that this thread's stream writes, and keeps `owner`, which may be null.
  void add_device_view(const std::string& name, const std::string& type, std::span<const std::byte> bytes,
                       std::shared_ptr<const void> owner);
  void add_copy(const std::string& name, const std::string& type, std::span<const std::byte> bytes);
  void add_text(const std::string& name, const std::string& text);  // copied
  void add_number(const std::string& name, double value);

  std::span<const StatePart> parts() const { return parts_; }

 private:
  std::vector<StatePart> parts_;
  std::deque<std::vector<std::byte>> own_;
  std::vector<std::shared_ptr<const void>> kept_;
};

/// Adds everything that a driver's blocks, their optimizers and channels keep from step to step. Call it
/// between two steps. x is not included: it belongs to the owner of the blocks.
void save(Driver& driver, SavedParts& parts);

/// Throws Error if the file was written with other blocks, another method, topology, optimizer, rank or
/// number of ranks, and says what differs; changes nothing.
void check_fits(Driver& driver, const CheckpointFile& file);

/// The number of steps after which the file was written.
Step saved_step(const CheckpointFile& file);

/// Restores the state: x is already what it was then, and every rank restores the same step. Messages that
/// were in flight when the state was saved are sent again. Throws like check_fits().
void restore(Driver& driver, const CheckpointFile& file);

}  // namespace starling::method

namespace starling {
using method::check_fits;
using method::restore;
using method::save;
using method::saved_step;
using method::SavedParts;
}  // namespace starling
