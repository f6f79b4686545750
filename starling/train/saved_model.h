#pragma once

#include <span>
#include <string>
#include <vector>

#include "starling/record/checkpoint_file.h"
#include "starling/train/module_tensors.h"
#include "starling/train/torch_version.h"

namespace starling {

std::string type_name(const torch::Tensor& tensor);
std::span<std::byte> bytes_of(const torch::Tensor& tensor);

/// Everything of a module that is saved, by name.
ModuleTensors::Named saved_tensors(const ModuleTensors& module);

/// A module's tensors and where their bytes lie: in their own memory, unless they have gaps or are on a
/// device; then in a copy.
class SavedModel {
 public:
  explicit SavedModel(const ModuleTensors& module);

  /// Another model's file may have all of this one's tensors, and more.
  void check(const CheckpointFile& file) const;
  void read(const CheckpointFile& file);
  /// The bytes have been written to: the tensors follow.
  void written();

  std::vector<StatePlace> places;
  std::vector<torch::Tensor> tensors;

 private:
  std::vector<torch::Tensor> memories_;
};

}  // namespace starling
