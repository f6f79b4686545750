#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/nonfinite.h"
#include "starling/flock/flock.h"
#include "starling/train/module_tensors.h"
#include "starling/train/options.h"
#include "starling/train/torch_version.h"

namespace starling::record {
class CheckpointFile;
}
namespace starling::method {
class SavedParts;
}

namespace starling::train {

class LocalOptimizer;

/// Values of the program's own in a checkpoint: numbers, texts, tensors, and lists of these.
using ExtraValues = std::map<std::string, torch::IValue>;

/// How Trainer::save() writes.
struct SaveOptions {
  int keep = 3;  // the newest complete checkpoints that stay in the folder
  /// What this rank's program needs to continue, such as its position in the data.
  ExtraValues extra = {};
  /// Returns when the state is copied; a thread writes. A checkpoint that could not be written is then
  /// logged, not thrown.
  bool background = false;
};

/// What Trainer::resume() has restored.
struct Resumed {
  Step step = 0;
  ExtraValues extra;  // this rank's own or, if the number of ranks has changed, the first rank's
  /// What was reset because the number of ranks has changed, in words. Empty: the run continues bit for bit.
  std::string reset;
};

/// Binds a method to a libtorch module and its optimizer.
///
///     auto flock = starling::join();
///     torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
///     starling::Trainer trainer(flock, *net, sgd, {.method = "dsgd-awc"});
///     trainer.resume("checkpoints");
///     while (trainer.steps() < 1000) {
///       trainer.zero_grad();
///       loss(net->forward(batch.data), batch.target).backward();
///       trainer.step();
///       if (trainer.steps() % 100 == 0) trainer.save("checkpoints");
///     }
///
/// The parameters move into flat memory once, when the trainer is made, and change only in step() (or, with
/// `eager`, inside backward). Not thread-safe; every rank makes the same calls.
class Trainer {
 public:
  Trainer(Flock flock, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
          TrainerOptions options = {});
  /// For any module and optimizer, such as Python's.
  Trainer(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer,
          TrainerOptions options = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  // One step.

  /// Sets the gradients to zero and begins the step: starts what needs no gradient, such as the average of
  /// the neighbors' models.
  void zero_grad();
  /// The two parts of zero_grad(), for programs that choose their neighbors between them.
  void zero_gradients();
  void begin();
  /// The loss times the loss scale; call backward() on it.
  torch::Tensor scale(const torch::Tensor& loss) const;
  /// If the method averages gradients, .grad is the mean when this returns, and may be changed before step().
  /// backward() has averaged already unless it computed no gradient for some parameter, or gradients wait for
  /// step() (on a device, with loss_scale, with on_nonfinite "skip").
  void finish_gradients();
  /// Ends the step: updates with the gradients in .grad, and averages. False if this rank's update was
  /// skipped because of an overflow.
  bool step();
  /// Takes part in a step without an update of this rank (an empty batch, an overflow). Call it instead of
  /// backward() and step().
  void skip();
  /// From now on the caller (torch's GradScaler) looks for gradients that are not finite before step(), and
  /// calls skip() instead: the gradients are sent unchanged, so that every rank sees them.
  void leave_overflows_to_scaler();

  /// Before an epoch: this rank has `batches` batches. Returns the number of steps that all ranks take: the
  /// largest number of batches of any rank. A collective.
  std::int64_t begin_epoch(std::int64_t batches);
  /// After this rank's last batch: skips until the other ranks have finished, too. Logs once if this rank
  /// took fewer steps than it announced.
  void finish_epoch();

  // Where training is.

  /// Steps so far.
  Step steps() const;
  /// Sets the step counter, for resuming from the program's own file. On every rank, between two steps.
  void set_steps(Step steps);
  double loss_scale() const;
  /// The 2-norm of the last step's gradients before clipping. Without clip_norm or loss_scale it is computed
  /// in this call, which must come before zero_grad().
  double gradient_norm() const;
  /// Seconds spent waiting for other ranks so far.
  double waited() const;
  /// Seconds spent updating, averaging and sending so far, without the waiting.
  double combined() const;
  /// The age, in steps, of what an asynchronous method has used.
  Staleness staleness() const;
  /// Whether ranks may have different optimizer settings from now on; every rank sets it between the same
  /// steps.
  void set_per_rank_settings(bool allowed);
  /// Receives the messages that asynchronous methods have under way: before models are compared, and at the
  /// end. Every rank calls it between the same steps; save() does it by itself.
  void settle();
  /// Whether the method sends gradients: during backward, as they are.
  bool sends_gradients() const;
  std::size_t buckets() const;
  std::size_t parameter_count() const;
  Flock& flock();

  // TrainerMembership.

  /// Admits newcomers, as Flock::admit() does: a collective between two steps. True if any joined:
  /// flock() is then another flock, and the method restarts on it as after a death. A newcomer, which makes
  /// its Trainer with the same options meanwhile, receives a neighbor's model, optimizer state and step.
  /// `schedule_of_flock` as in Flock::admit(), for the flock's own operations.
  bool admit(const std::function<SchedulePtr(Rank size)>& schedule_of_flock = nullptr);
  [[deprecated("call admit")]] bool welcome(
      const std::function<SchedulePtr(Rank size)>& schedule_of_flock = nullptr) {
    return admit(schedule_of_flock);
  }

  // Parameters and optimizer state.

  void broadcast_parameters(Rank root = 0);
  void broadcast_optimizer_state(Rank root = 0);
  /// SGD, Adam and AdamW are updated natively, and their state is kept in the trainer. export copies it to
  /// the optimizer, before that is saved; import reads it from there, after it was loaded.
  void export_optimizer_state();
  void import_optimizer_state();
  /// Call this after changing parameters by hand. (In-place operations of torch are noticed without it,
  /// unless training is eager; then this is a collective.)
  void parameters_changed();

  /// The flat memory of the parameters, by bucket, on the host.
  std::vector<torch::Tensor> flat_parameters() const;
  /// Call this after writing to the flat memory.
  void flat_parameters_changed();

  // Checkpoints (docs/checkpoints.md).

  /// Writes a checkpoint of everything that is needed to continue bit for bit: parameters, buffers,
  /// optimizer, method state, torch's random generator, the step. A collective between the same two steps. A
  /// checkpoint is complete or does not exist, whenever a rank is killed. Throws the same Error on all ranks
  /// if it could not be written. All ranks must see the folder.
  void save(const std::filesystem::path& folder, const SaveOptions& options = {});
  /// Continues from the newest checkpoint in the folder, or from the one of `step`; a collective. Nothing if
  /// there is none yet. If there were more or fewer ranks, all start from the mean model (see
  /// Resumed::reset). Throws Error on all ranks, before anything is changed, if a file is damaged or was
  /// written with another model, method, topology or optimizer, and says what differs.
  std::optional<Resumed> resume(const std::filesystem::path& folder, std::optional<Step> step = {});

  /// For programs that write files of their own: adds everything that save() writes of this rank to `parts`;
  /// valid until the next step begins. Every rank calls it between the same two steps.
  void save_parts(SavedParts& parts);
  /// Continues from this rank's own file. Throws Error, before anything is changed, if the file does not
  /// fit. After other errors (a file that cannot be read) the trainer cannot be used any more.
  void restore(const CheckpointFile& file);
  /// Starts from the mean of the files' models, for another number of ranks; integer buffers are the first
  /// file's. Optimizer, method and random generator are not restored; the step is the files'. The trainer
  /// must not have made a step.
  void restore_mean(std::span<const CheckpointFile> files);

  // Evaluation.

  /// The root mean square, over the ranks, of the distance to the flock's mean model. A collective.
  double consensus_distance();

  /// While it lives, the parameters are the flock's mean model.
  class [[nodiscard]] Averaged {
   public:
    explicit Averaged(Trainer& trainer) : trainer_(&trainer) {}
    Averaged(Averaged&& other) noexcept : trainer_(std::exchange(other.trainer_, nullptr)) {}
    ~Averaged() { revert(); }
    /// Restores this rank's own model.
    void revert();
    /// Every rank continues with the mean model.
    void keep();

   private:
    Trainer* trainer_;
  };
  /// Replaces the parameters by the flock's mean, and the buffers as the options say. A collective.
  Averaged global_average();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace starling::train

namespace starling {
using train::ExtraValues;
using train::Resumed;
using train::SaveOptions;
using train::Trainer;
}  // namespace starling
