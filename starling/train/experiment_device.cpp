#include "starling/train/experiment_device.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <torch/cuda.h>

#include "starling/base/error.h"

namespace starling::train {
namespace {

const std::string kNumbered = "cuda:";

// The N of cuda:N; -1 for other texts.
int number_in(const std::string& text) {
  const std::string digits = text.starts_with(kNumbered) ? text.substr(kNumbered.size()) : "";
  const bool number =
      !digits.empty() && digits.size() < 4 &&
      std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return number ? std::stoi(digits) : -1;
}

}  // namespace

void check_device(const std::string& text) {
  if (text != "auto" && text != "cpu" && text != "cuda" && number_in(text) < 0)
    throw InvalidArgument(fmt::format("device = {}: auto, cpu, cuda, or one GPU such as cuda:0", text));
}

torch::Device find_device(const std::string& text, Rank local_rank) {
  check_device(text);
  if (text == "cpu") return torch::kCPU;
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if (gpus == 0 && text == "auto") return torch::kCPU;
  if (gpus == 0)
    throw InvalidArgument(
        fmt::format("device = {}: this PyTorch sees no GPU (see starling info); train with cpu", text));
  const int number = number_in(text);
  if (number >= gpus)
    throw InvalidArgument(
        fmt::format("device = {}: there are {} GPUs here, cuda:0 to cuda:{}", text, gpus, gpus - 1));
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(number >= 0 ? number : local_rank % gpus)};
}

}  // namespace starling::train
