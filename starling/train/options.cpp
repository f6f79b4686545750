#include "starling/train/options.h"

#include <cmath>
#include <fmt/format.h>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/codec/wire_format.h"

namespace starling::train {
namespace {

constexpr double kLargestBucket = 1e6;  // megabytes

template <typename T>
T choose_word(const std::string& option, const std::string& word,
              const std::vector<std::pair<std::string, T>>& valid) {
  std::vector<std::string> names;
  for (const auto& [name, value] : valid) {
    if (name == word) return value;
    names.push_back(name);
  }
  throw InvalidArgument(unknown_name(option, word, names));
}

}  // namespace

OnPeerFailure failure_policy(const TrainerOptions& options) {
  return choose_word<OnPeerFailure>("on_peer_failure", options.on_peer_failure,
                                    {{"raise", OnPeerFailure::raise}, {"reweight", OnPeerFailure::reweight}});
}

void check_options(const TrainerOptions& options) {
  const auto need = [](bool good, const std::string& text) {
    if (!good) throw InvalidArgument(text);
  };
  const double bucket_mb = options.bucket_mb.value_or(kLargestBucket);
  need(bucket_mb > 0 && bucket_mb <= kLargestBucket,
       fmt::format("bucket_mb = {}: must be more than 0 and at most {:g}", bucket_mb, kLargestBucket));
  need(options.accumulation >= 0,
       fmt::format("accumulation = {}: a step takes one backward() or more; 0 for any number",
                   options.accumulation));
  need(options.clip_norm >= 0 && std::isfinite(options.clip_norm),
       fmt::format("clip_norm = {}: must be a finite number above 0, or 0 for no clipping",
                   options.clip_norm));
  need(options.loss_scale >= 0 && std::isfinite(options.loss_scale),
       fmt::format("loss_scale = {}: must be a finite number above 0, or 0 for no scaling",
                   options.loss_scale));
  need(!options.eager || options.clip_norm == 0,
       "eager and clip_norm exclude each other: eager updates a bucket before the other gradients are known");
  need(!options.eager || options.loss_scale == 0,
       "eager and loss_scale exclude each other: eager updates a bucket before an overflow can be seen");
  choose_word<int>("on_nonfinite", options.on_nonfinite, {{"raise", 0}, {"skip", 0}, {"ignore", 0}});
  choose_word<int>("buffers", options.buffers, {{"average", 0}, {"broadcast", 0}, {"local", 0}});
  parse_wire_format(options.message);
  failure_policy(options);
}

}  // namespace starling::train
