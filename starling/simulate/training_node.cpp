#include "starling/simulate/training_node.h"

#include <cmath>

#include "starling/kernel/convert.h"
#include "starling/method/drive.h"
#include "starling/method/registry.h"

namespace starling::simulate {

TrainingNode::TrainingNode(const Objective& objective, const TrainingOptions& options,
                           SimulatedNetwork& network, Rank rank, const std::string& method_text)
    : objective_(objective), options_(options), time_(network.options().time), dtype_(options.precision) {
  const std::size_t dim = objective.dim();
  wide_.resize(dim);
  objective.start(rank, wide_);
  wide_gradient_.resize(dim);
  Buffer x = buffer_of(wide_);
  Buffer gradient = buffer_of(wide_gradient_);
  if (dtype_ == DType::float32) {
    narrow_.assign(wide_.begin(), wide_.end());
    narrow_gradient_.resize(dim);
    x = buffer_of(narrow_);
    gradient = buffer_of(narrow_gradient_);
  }
  const MethodPtr method = make_method(method_text);
  Optimizer optimizer = parse_optimizer(options.optimizer);
  optimizer.hyper.lr = options.lr;
  hypers_ = std::make_shared<std::vector<Hyper>>(1, optimizer.hyper);
  ChannelPtr channel = network.connect(rank);
  channel_ = static_cast<SimulatedChannel*>(channel.get());
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(make_block("x", x, gradient, *method, optimizer, hypers_, std::move(channel)));
  driver_ = std::make_unique<Driver>(method, std::move(blocks));
}

void TrainingNode::begin() {
  if (options_.decay_every > 0) {
    const Step decays = driver_->step() / options_.decay_every;
    (*hypers_)[0].lr = options_.lr / std::pow(options_.decay, static_cast<double>(decays));
  }
  driver_->begin();
}

void TrainingNode::compute() {
  const Rank rank = channel_->rank();
  const Step step = driver_->step();
  if (dtype_ == DType::float32)
    objective_.gradient(rank, step, std::span<const float>(narrow_), std::span(narrow_gradient_));
  else
    objective_.gradient(rank, step, std::span<const double>(wide_), std::span(wide_gradient_));
  channel_->pass_time(time_.compute_seconds(rank, step));
}

void TrainingNode::read_model(std::span<double> out) {
  const Buffer model = driver_->method().model((*driver_)[0]);
  convert(model, {DType::float64, out.data(), out.size()});
}

}  // namespace starling::simulate
