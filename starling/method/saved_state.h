#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "starling/method/driver.h"
#include "starling/record/checkpoint_file.h"

namespace starling::method {

/// The parts of a rank's state that a checkpoint is made of: views of where they lie, and what was put
/// together for the occasion. Valid until the state changes.
class SavedParts {
 public:
  /// A view where it lies in host memory, else a copy.
  void add(const std::string& name, ConstBuffer block);
  void add_view(const std::string& name, const std::string& type, std::span<const std::byte> bytes);
  void add_copy(const std::string& name, const std::string& type, std::span<const std::byte> bytes);
  void add_text(const std::string& name, const std::string& text);  // copied
  void add_number(const std::string& name, double value);

  std::span<const StatePart> parts() const { return parts_; }

 private:
  std::vector<StatePart> parts_;
  std::deque<std::vector<std::byte>> own_;
};

/// What a driver's blocks, their optimizers and channels remember from step to step, between two steps. x is
/// not in it: it belongs to the owner of the blocks.
void save(Driver& driver, SavedParts& parts);

/// Throws Error when the file was written with other blocks, another method, topology, optimizer, rank or
/// number of ranks, and says which; changes nothing.
void check_fits(Driver& driver, const CheckpointFile& file);

/// After how many steps the file was written.
Step saved_step(const CheckpointFile& file);

/// Goes on from there: x is what it was then, and every rank restores the same step. What was on its way when
/// the state was saved is sent again. Throws as check_fits() does.
void restore(Driver& driver, const CheckpointFile& file);

}  // namespace starling::method

namespace starling {
using method::check_fits;
using method::restore;
using method::save;
using method::saved_step;
using method::SavedParts;
}  // namespace starling
