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

/// The program's own values in a checkpoint: numbers, texts, tensors, and lists of these.
using ExtraValues = std::map<std::string, torch::IValue>;

/// Options of Trainer::save().
struct SaveOptions {
  int keep = 3;  // the number of newest complete checkpoints that stay in the folder
  /// The state of this rank's program that it needs to continue, such as its position in the data.
  ExtraValues extra = {};
  /// Returns when the state is copied; a thread writes it. A failure to write is then logged, not thrown.
  bool background = false;
};

/// The result of Trainer::resume().
struct Resumed {
  Step step = 0;
  ExtraValues extra;  // this rank's own values or, if the number of ranks has changed, the first rank's
  /// A text that says what was reset because the number of ranks has changed. Empty: the run continues bit
  /// for bit.
  std::string reset;
};

/// Binds a method to a libtorch module and its optimizer.
///
///   auto flock = starling::join();
///   torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
///   starling::Trainer trainer(flock, *net, sgd, {.method = "dsgd-awc"});
///   trainer.resume("checkpoints");
///   while (trainer.steps() < 1000) {
///     trainer.zero_grad();
///     loss(net->forward(batch.data), batch.target).backward();
///     trainer.step();
///     if (trainer.steps() % 100 == 0) trainer.save("checkpoints");
///   }
///
/// The parameters move to flat memory once, when the trainer is made, and change only in step() (or, with
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

  // Functions of one step.

  /// Sets the gradients to zero and begins the step: starts everything that needs no gradient, such as the
  /// average of the neighbors' models.
  void zero_grad();
  /// The two parts of zero_grad(), for programs that choose their neighbors between them.
  void zero_gradients();
  void begin();
  /// The loss times the loss scale; call backward() on it.
  torch::Tensor scale(const torch::Tensor& loss) const;
  /// If the method averages gradients, .grad is the mean when this returns, and may be changed before step().
  /// backward() has averaged already, unless it computed no gradient for some parameter or gradients are sent
  /// in step() (through the host, with loss_scale, with on_nonfinite "skip").
  void finish_gradients();
  /// Ends the step: updates with the gradients in .grad, and averages. Returns false if this rank's update
  /// was skipped because of an overflow.
  bool step();
  /// Takes part in a step without an update on this rank (an empty batch, an overflow). Call it instead of
  /// backward() and step().
  void skip();
  /// From now on the caller (torch's GradScaler) checks for gradients that are not finite before step(), and
  /// calls skip() instead: gradients are sent unchanged, so that every rank sees them.
  void leave_overflows_to_scaler();

  /// Before an epoch: this rank has `batches` batches. Returns the number of steps that all ranks take: the
  /// largest number of batches of any rank. A collective.
  std::int64_t begin_epoch(std::int64_t batches);
  /// After this rank's last batch: skips until the other ranks have finished, too. Logs once if this rank
  /// took fewer steps than it announced.
  void finish_epoch();

  // The progress of training.

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
  /// The age, in steps, of the values that an asynchronous method has used.
  Staleness staleness() const;
  /// Sets whether ranks may have different optimizer settings from now on; every rank calls it between the
  /// same steps.
  void set_per_rank_settings(bool allowed);
  /// Receives the messages that asynchronous methods have in flight: before models are compared, and at the
  /// end. Every rank calls it between the same steps; save() does it itself.
  void settle();
  /// Whether gradients are sent during backward. Otherwise step() sends them, so that a program can change
  /// them before.
  bool sends_gradients() const;
  std::size_t buckets() const;
  std::size_t parameter_count() const;
  Flock& flock();

  // Membership.

  /// Admits newcomers like Flock::admit(): a collective between two steps. Returns true if any joined:
  /// flock() is then another flock, and the method restarts on it as after a death. A newcomer makes its
  /// Trainer with the same options meanwhile, and receives a neighbor's model, optimizer state and step.
  /// `schedule_of_flock` is as in Flock::admit(), for the flock's own operations.
  bool admit(const std::function<SchedulePtr(Rank size)>& schedule_of_flock = nullptr);
  [[deprecated("call admit")]] bool welcome(
      const std::function<SchedulePtr(Rank size)>& schedule_of_flock = nullptr) {
    return admit(schedule_of_flock);
  }

  // Parameters and optimizer state.

  void broadcast_parameters(Rank root = 0);
  void broadcast_optimizer_state(Rank root = 0);
  /// SGD, Adam and AdamW are updated natively, and their state is kept in the trainer. export copies it to
  /// the optimizer, so that the program can save it; import copies it back after loading.
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
  /// Continues from the newest checkpoint in the folder, or from the one of `step`; a collective. Returns
  /// nothing if there is none yet. If the number of ranks has changed, all start from the mean model (see
  /// Resumed::reset). Throws Error on all ranks, before anything is changed, if a file is damaged or was
  /// written with another model, method, topology or optimizer, and says what differs.
  std::optional<Resumed> resume(const std::filesystem::path& folder, std::optional<Step> step = {});

  /// For programs that write their own files: adds everything that save() writes for this rank to `parts`,
  /// which stays valid until the next step begins. Every rank calls it between the same two steps.
  void save_parts(SavedParts& parts);
  /// Continues from this rank's own file. Throws Error, before anything is changed, if the file does not fit.
  /// After other errors (an unreadable file) the trainer must not be used any more.
  void restore(const CheckpointFile& file);
  /// Starts from the mean of the files' models, for another number of ranks; integer buffers come from the
  /// first file. Optimizer, method and random generator are not restored; the step is the files'. The trainer
  /// must not have made a step.
  void restore_mean(std::span<const CheckpointFile> files);

  // Evaluation.

  /// The root mean square, over the ranks, of the distance to the flock's mean model. A collective.
  double consensus_distance();

  /// While this object exists, the parameters are the flock's mean model.
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
  /// Replaces the parameters by the flock's mean, and the buffers according to the options. A collective.
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
