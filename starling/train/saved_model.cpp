#include "starling/train/saved_model.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::train {
namespace {

const std::string kParameters = "parameters/";
const std::string kBuffers = "buffers/";

}  // namespace

std::string type_name(const torch::Tensor& tensor) {
  return std::string(torch::toString(tensor.scalar_type()));
}

std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

ModuleTensors::Named saved_tensors(const ModuleTensors& module) {
  ModuleTensors::Named all;
  for (const auto& [name, tensor] : module.parameters()) all.emplace_back(kParameters + name, tensor);
  for (const auto& [name, tensor] : module.buffers()) all.emplace_back(kBuffers + name, tensor);
  return all;
}

SavedModel::SavedModel(const ModuleTensors& module) {
  for (const auto& [name, tensor] : saved_tensors(module)) {
    const torch::Tensor memory = tensor.detach().cpu().contiguous();
    places.push_back({name, type_name(memory), bytes_of(memory)});
    tensors.push_back(tensor);
    memories_.push_back(memory);
  }
}

void SavedModel::check(const CheckpointFile& file) const {
  file.check(places);
  for (const auto& part : file.parts()) {
    if (!part.name.starts_with(kParameters) && !part.name.starts_with(kBuffers)) continue;
    const auto same = [&](const StatePlace& place) { return place.name == part.name; };
    if (std::none_of(places.begin(), places.end(), same))
      throw Error(fmt::format("{} has a part {}, which the model here does not have", file.path().string(),
                              part.name));
  }
}

void SavedModel::read(const CheckpointFile& file) {
  file.read_into(places);
  written();
}

void SavedModel::written() {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor own = tensors[i].detach();
    if (own.data_ptr() == memories_[i].data_ptr())
      own.unsafeGetTensorImpl()->bump_version();
    else
      own.copy_(memories_[i]);
  }
}

}  // namespace starling::train
