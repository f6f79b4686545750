#include "starling/train/model/transformer.h"

#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::train {
namespace {

/// Attention, then two dense layers; each preceded by a norm, and each added to its input.
class Layer final : public torch::nn::Module {
 public:
  explicit Layer(const TransformerSetting& setting)
      : heads_(setting.heads),
        norm1_(torch::nn::LayerNormOptions({setting.width})),
        norm2_(torch::nn::LayerNormOptions({setting.width})),
        queries_keys_values_(setting.width, 3 * setting.width),
        merge_(setting.width, setting.width),
        up_(setting.width, 4 * setting.width),
        down_(4 * setting.width, setting.width) {
    register_module("norm1", norm1_);
    register_module("norm2", norm2_);
    register_module("queries_keys_values", queries_keys_values_);
    register_module("merge", merge_);
    register_module("up", up_);
    register_module("down", down_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor seen = x + attend(norm1_(x));
    return seen + down_(torch::gelu(up_(norm2_(seen))));
  }

 private:
  torch::Tensor attend(const torch::Tensor& x) {
    const auto batch = x.size(0), length = x.size(1), width = x.size(2);
    const std::int64_t head_width = width / heads_;
    const auto parts =
        queries_keys_values_(x).view({batch, length, 3, heads_, head_width}).permute({2, 0, 3, 1, 4});
    const auto future =
        torch::ones({length, length}, torch::TensorOptions(torch::kBool).device(x.device())).triu(1);
    const auto scores =
        parts[0].matmul(parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(head_width));
    const auto looks =
        torch::softmax(scores.masked_fill(future, -std::numeric_limits<float>::infinity()), -1);
    return merge_(looks.matmul(parts[2]).transpose(1, 2).reshape({batch, length, width}));
  }

  std::int64_t heads_;
  torch::nn::LayerNorm norm1_, norm2_;
  torch::nn::Linear queries_keys_values_, merge_, up_, down_;
};

}  // namespace

TransformerImpl::TransformerImpl(const TransformerSetting& setting)
    : setting_(setting),
      symbol_(setting.symbols, setting.width),
      place_(setting.context, setting.width),
      norm_(torch::nn::LayerNormOptions({setting.width})),
      head_(setting.width, setting.symbols) {
  if (setting.width % setting.heads != 0)
    throw InvalidArgument(fmt::format("a transformer of width {} cannot have {} heads: they share it equally",
                                      setting.width, setting.heads));
  register_module("symbol", symbol_);
  register_module("place", place_);
  for (std::int64_t i = 0; i < setting.layers; ++i) layers_->push_back(std::make_shared<Layer>(setting));
  register_module("layers", layers_);
  register_module("norm", norm_);
  register_module("head", head_);
}

torch::Tensor TransformerImpl::forward(const torch::Tensor& symbols) {
  const std::int64_t length = symbols.size(1);
  if (length > setting_.context)
    throw InvalidArgument(
        fmt::format("{} symbols are more than the context of {}", length, setting_.context));
  torch::Tensor x = symbol_(symbols) + place_(torch::arange(length, symbols.device()));
  for (const auto& layer : *layers_) x = std::static_pointer_cast<Layer>(layer)->forward(x);
  return head_(norm_(x));
}

ModelFamily transformer_family() {
  return {"transformer",
          "a causal language model of characters",
          {{"layers", "2", "how many"},
           {"width", "64", "of its layers"},
           {"heads", "4", "of each layer, which share the width"},
           {"block", "auto", "how many previous characters it uses; auto: a window of the text"}},
          [](const Parameters& given, const ModelSetting& setting) {
            const std::int64_t block = given.optional_integer("block", 1, 1'000'000).value_or(setting.length);
            if (block < setting.length)
              throw InvalidArgument(fmt::format(
                  "transformer(block={}) cannot see a whole window of {} characters; take block={} or "
                  "more, or shorter windows: text(file=FILE, block={})",
                  block, setting.length, setting.length, block));
            return std::make_shared<TransformerImpl>(
                TransformerSetting{.symbols = setting.classes,
                                   .context = block,
                                   .width = given.integer("width", 1, 1'000'000),
                                   .heads = given.integer("heads", 1, 1'000'000),
                                   .layers = given.integer("layers", 1, 1000)});
          },
          ModelInput::text};
}

}  // namespace starling::train
