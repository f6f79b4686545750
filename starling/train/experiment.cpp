#include "starling/train/experiment.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numbers>

#include "starling/method/update.h"
#include "starling/train/device_tensors.h"
#include "starling/train/experiment_checkpoint.h"
#include "starling/train/experiment_data.h"
#include "starling/train/experiment_device.h"
#include "starling/train/experiment_evaluation.h"
#include "starling/train/experiment_meter.h"
#include "starling/train/gradient_pass.h"
#include "starling/train/torch_cuda.h"
#include "starling/train/torch_optimizer.h"
#include "starling/version.h"

namespace starling::train {
namespace {

// The learning rate's factor at a point of the run.
double rate_factor(const Experiment& experiment, double epoch) {
  if (epoch < experiment.warmup) return epoch / experiment.warmup;
  if (!experiment.cosine) return 1;
  const double rest = experiment.epochs - experiment.warmup;
  return 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, (epoch - experiment.warmup) / rest)));
}

// On a device, losses and results are not checked in every step, which would wait for the device: a loss that
// is not finite ends the run at the next report.
TrainerOptions trainer_options(const Experiment& experiment, const Model& model) {
  const bool on_device = is_on_device(model.parameters()[0]);
  return {
      .method = experiment.method,
      .topology = experiment.topology,
      .seed = experiment.seed,
      .message = experiment.message,
      .accumulation = experiment.accumulation,
      .clip_norm = experiment.clip_norm,
      .eager = experiment.eager,
      .on_nonfinite = on_device && experiment.on_nonfinite == "raise" ? "ignore" : experiment.on_nonfinite,
      .on_peer_failure = experiment.on_peer_failure};
}

// For errors about the operations of reports, evaluations and checkpoints.
void name_operations(Flock& flock) {
  const auto call = std::make_shared<UserCall>();
  call->call = "run_experiment()";
  flock.set_user_call("experiment", call);
}

/// The loop over epochs and steps.
class ExperimentRun {
 public:
  ExperimentRun(Flock& flock, const Experiment& experiment, const Reporter& report,
                const CheckpointOptions& checkpoints, std::shared_ptr<const Task> task)
      : flock_(flock),
        experiment_((name_operations(flock), check_numbers(experiment), experiment)),
        report_(report),
        device_(find_device(experiment.device, flock.local_rank())),
        stream_(device_),
        data_(flock, experiment, std::move(task)),
        lr_(parse_optimizer(experiment.optimizer).hyper.lr),
        checkpoints_(flock, experiment, checkpoints),
        model_(make_model()),
        optimizer_(make_torch_optimizer(experiment.optimizer, model_->parameters())),
        pass_(data_.task(), *model_, experiment.accumulation, graphs_of(experiment)),
        trainer_(flock, *model_, *optimizer_, trainer_options(experiment, *model_)),
        meter_(trainer_, report_) {}

  RunReport run() {
    if (!begin()) return meter_.totals();
    for (; position_.epoch < experiment_.epochs && !meter_.divergence();
         ++position_.epoch, position_.step = 0) {
      if (position_.epoch > 0) data_.redistribute(meter_.find_dead());
      train_epoch();
      evaluate();
      if (!meter_.divergence() && checkpoints_.is_due(position_.epoch + 1.0)) {
        RunPosition next = position_;
        ++next.epoch;
        next.step = 0;
        save(next);
      }
    }
    checkpoints_.finish();
    checkpoints_.print_problem();
    if (const auto missing = checkpoints_.not_saved()) report_(*missing);
    report_(RunEnd{trainer_.steps(), meter_.totals().seconds, meter_.divergence()});
    return evaluated_;
  }

 private:
  // Initialized with the same numbers on every device.
  ModelPtr make_model() const {
    // Ranks may be threads of one process, which share torch's generator.
    static std::mutex drawing;
    const std::lock_guard lock(drawing);
    torch::manual_seed(experiment_.seed);
    ModelPtr model = data_.task().make_model(experiment_.model);
    model->to(device_);
    return model;
  }

  // With eager, hooks average inside backward, which cannot be recorded.
  GradientPass::MakeGraph graphs_of(const Experiment& experiment) const {
    if (!experiment.cuda_graph || experiment.eager) return nullptr;
    return [device = device_] { return make_graph(device); };
  }

  // Resumes if the options ask for it; returns false if the resumed run is already complete.
  bool begin() {
    std::optional<ExperimentCheckpoints::Restored> restored;
    {
      const ExperimentMeter::Uncounted uncounted(meter_);
      restored = checkpoints_.resume(trainer_);
    }
    if (!restored) {
      report_(header());
      return true;
    }
    position_ = restored->position;
    meter_.resume(position_.totals, position_.bytes);
    if (position_.epoch >= experiment_.epochs) {
      report_(RunEnd{trainer_.steps(), meter_.totals().seconds, {}, true});
      return false;
    }
    report_(RunResume{trainer_.steps(), {}, {}, restored->reset});
    return true;
  }

  RunHeader header() const {
    RunHeader header;
    header.starling = STARLING_VERSION;
    header.torch = TORCH_VERSION;
    header.workers = flock_.size();
    header.device = model_->parameters()[0].device().str();
    header.parameters = static_cast<std::int64_t>(trainer_.parameter_count());
    header.experiment = settings_of(experiment_);
    header.canonical = canonical_settings_of(experiment_);
    return header;
  }

  void train_epoch() {
    data_.start_epoch(position_.epoch, position_.step * experiment_.accumulation);
    const std::int64_t steps = steps_of_epoch();
    const std::int64_t every = std::max<std::int64_t>(1, steps / std::max(1, experiment_.reports));
    const auto epoch_now = [&] {
      return position_.epoch + static_cast<double>(position_.step) / static_cast<double>(steps);
    };
    meter_.start_clock();
    while (position_.step < steps && !meter_.divergence()) {
      set_rate(epoch_now());
      take_step();
      ++position_.step;
      const double epoch = meter_.totals().epoch = epoch_now();
      const bool at_end = position_.step + every / 2 >= steps;
      if (position_.step < steps && evaluation_is_due(steps)) {
        evaluate();
        meter_.start_clock();
      } else if (experiment_.reports > 0 && position_.step % every == 0 && !at_end) {
        report_progress();
      }
      if (position_.step < steps && checkpoints_.is_due(epoch) && !meter_.agree_on_divergence())
        save(position_);
    }
    if (!meter_.divergence()) meter_.totals().epoch = position_.epoch + 1;
  }

  // Whether one of the epoch's evaluations falls into the step that has just ended.
  bool evaluation_is_due(std::int64_t steps) const {
    const auto number = [&](std::int64_t step) { return step * experiment_.evaluations / steps; };
    return number(position_.step) > number(position_.step - 1);
  }

  std::int64_t steps_of_epoch() {
    const ExperimentMeter::Uncounted uncounted(meter_);
    return data_.steps_per_epoch();
  }

  void set_rate(double epoch) {
    const double rate = meter_.totals().learning_rate = lr_ * rate_factor(experiment_, epoch);
    set_learning_rate(*optimizer_, rate);
  }

  // A rank without data skips the step, and so does a rank whose loss is not finite, until all ranks end the
  // run.
  void take_step() {
    bool has_gradient = false;
    trainer_.zero_grad();
    for (int k = 0; k < experiment_.accumulation; ++k) {
      const auto samples = data_.next_batch();
      if (samples.empty()) break;
      meter_.add_batch(pass_.loss(samples), samples.size());
      if (!meter_.own_loss_is_finite() && experiment_.on_nonfinite != "ignore") {
        has_gradient = false;
        break;
      }
      pass_.backward();
      has_gradient = true;
    }
    if (has_gradient) {
      trainer_.step();
      meter_.add_step();
    } else {
      trainer_.skip();
    }
  }

  void report_progress() {
    meter_.sum_up();
    checkpoints_.print_problem();
    report_(meter_.totals());
    meter_.start_clock();
  }

  void evaluate() {
    meter_.sum_up();
    const ExperimentMeter::Uncounted uncounted(meter_);
    evaluated_ = meter_.totals();
    evaluate_run(trainer_, data_.task(), *model_, experiment_.local_test, evaluated_);
    checkpoints_.print_problem();
    report_(evaluated_);
  }

  void save(const RunPosition& where) {
    RunPosition position = where;
    position.totals = meter_.totals();
    if (position.step > 0) position.totals.seconds = meter_.seconds_until_now();
    position.bytes = meter_.bytes_to_save();
    checkpoints_.save(trainer_, position);
  }

  Flock& flock_;
  const Experiment& experiment_;
  const Reporter& report_;
  const torch::Device device_;
  const OwnStream stream_;
  ExperimentData data_;
  double lr_;
  ExperimentCheckpoints checkpoints_;
  ModelPtr model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  GradientPass pass_;
  Trainer trainer_;
  ExperimentMeter meter_;
  RunPosition position_;
  RunReport evaluated_;
};

}  // namespace

RunReport run_experiment(Flock& flock, const Experiment& experiment, const Reporter& report,
                         const CheckpointOptions& checkpoints, std::shared_ptr<const Task> task) {
  return ExperimentRun(flock, experiment, report, checkpoints, std::move(task)).run();
}

}  // namespace starling::train
