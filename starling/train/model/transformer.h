#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "starling/train/model/model.h"

namespace starling::train {

struct TransformerSetting {
  std::int64_t symbols = 256;  // the size of the alphabet
  std::int64_t context = 64;   // the number of previous symbols that it uses
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
};

/// A character language model: from a batch of symbols (batch x length) to the logits of the symbol after
/// each (batch x length x symbols). Attention is causal.
class TransformerImpl : public Model {
 public:
  explicit TransformerImpl(const TransformerSetting& setting);
  torch::Tensor forward(const torch::Tensor& symbols) override;

 private:
  TransformerSetting setting_;
  torch::nn::Embedding symbol_, place_;
  torch::nn::ModuleList layers_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Transformer);

}  // namespace starling::train

namespace starling {
using train::Transformer;
using train::TransformerSetting;
}  // namespace starling
