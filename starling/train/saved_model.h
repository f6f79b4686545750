#pragma once

#include <span>
#include <string>
#include <vector>

#include "starling/record/checkpoint_file.h"
#include "starling/train/module_tensors.h"
#include "starling/train/torch_version.h"

namespace starling::train {

std::string type_name(const torch::Tensor& tensor);
std::span<std::byte> bytes_of(const torch::Tensor& tensor);

/// The parameters and buffers of a module, with their names in checkpoints.
ModuleTensors::Named saved_tensors(const ModuleTensors& module);

/// A module's tensors with their bytes: in the tensors' own memory or, if they have gaps or are on a device,
/// in a copy.
class SavedModel {
 public:
  explicit SavedModel(const ModuleTensors& module);

  /// Throws Error if the file does not have exactly these tensors.
  void check(const CheckpointFile& file) const;
  void read(const CheckpointFile& file);
  /// Call this after writing to the bytes: updates the tensors.
  void written();

  std::vector<StatePlace> places;
  std::vector<torch::Tensor> tensors;

 private:
  std::vector<torch::Tensor> memories_;
};

}  // namespace starling::train
