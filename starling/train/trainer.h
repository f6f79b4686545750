#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "starling/base/nonfinite.h"
#include "starling/flock/flock.h"
#include "starling/train/module_tensors.h"
#include "starling/train/options.h"
#include "starling/train/torch_version.h"

namespace starling {

class CheckpointFile;
class LocalOptimizer;
class SavedParts;

/// Binds a method to a libtorch module and its optimizer.
///
///     auto flock = starling::join();
///     torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
///     starling::Trainer trainer(flock, *net, sgd, {.method = "dsgd-awc"});
///     for (auto& batch : *loader) {
///       trainer.zero_grad();
///       loss(net->forward(batch.data), batch.target).backward();
///       trainer.step();
///     }
///
/// The parameters move into flat memory once, when the trainer is made, and change only in step() (or, with
/// `eager`, inside backward). Not thread-safe; every rank makes the same calls.
class Trainer {
 public:
  Trainer(Flock flock, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
          TrainerOptions options = {});
  /// Of any module and optimizer, such as Python's.
  Trainer(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer,
          TrainerOptions options = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  /// Zeroes the gradients and lets what needs no gradient begin, such as the average of the neighbours'
  /// models.
  void zero_grad();
  /// The two apart, for programs that choose their neighbours between them.
  void zero_gradients();
  void begin();
  /// The loss times the loss scale; call backward() on it.
  torch::Tensor scale(const torch::Tensor& loss) const;
  /// Where the method averages gradients, it has when this returns: what is in .grad is the mean, which may
  /// be changed before step(). backward() has done it already unless it computed no gradient for some
  /// parameter, or gradients wait for step() (on a device, with loss_scale, with on_nonfinite "skip").
  void finish_gradients();
  /// Ends the step: updates along what is in .grad and averages. False when this rank's update was skipped
  /// because of an overflow.
  bool step();
  /// Takes part in a step without an update of its own: an empty batch, an overflow. In place of backward().
  void skip();
  /// From now on somebody else (torch's GradScaler) looks for gradients that are not finite before step(),
  /// and calls skip() instead: they travel as they are, so that every rank sees them.
  void leave_overflows_to_scaler();

  /// Before an epoch: this rank has so many batches. Returns how many steps everybody is going to take: the
  /// most that anybody has batches.
  std::int64_t begin_epoch(std::int64_t batches);
  /// After a rank's last batch: keeps answering the others until they have finished, too.
  void finish_epoch();

  /// Steps so far.
  Step steps() const;
  /// A run that was saved goes on: as after so many steps. Every rank says the same, between two steps.
  void set_steps(Step steps);
  double loss_scale() const;
  /// The 2-norm of the last step's gradients before clipping. Without clip_norm or loss_scale it is computed
  /// when asked for, which must be before zero_grad().
  double gradient_norm() const;
  /// Seconds spent waiting for others, so far.
  double waited() const;
  /// Seconds spent updating, averaging and sending, so far, without the waiting.
  double combined() const;
  /// How old what an asynchronous method has used was, in steps.
  Staleness staleness() const;
  /// Whether ranks may have optimizer settings of their own from now on; every rank says the same between the
  /// same steps.
  void set_per_rank_settings(bool allowed);
  /// Takes in what asynchronous methods have under way: before the models are compared or saved, or at the
  /// end. Every rank calls it between the same steps; save() does it by itself.
  void settle();
  /// Whether gradients travel: then they do so during backward, as they are.
  bool sends_gradients() const;
  std::size_t buckets() const;
  std::size_t parameter_count() const;
  Flock& flock();

  /// Lets newcomers in, as Flock::welcome() does: a collective between two steps. True when somebody came:
  /// flock() is then another, the method begins anew on it as after a death, and each newcomer's Trainer,
  /// which it makes meanwhile with the same options, starts with a neighbour's model, optimizer and step,
  /// whose digest it checks. `schedule_of_flock` as in Flock::welcome(), for the flock's own operations.
  bool welcome(const std::function<SchedulePtr(Rank size)>& schedule_of_flock = nullptr);

  void broadcast_parameters(Rank root = 0);
  void broadcast_optimizer_state(Rank root = 0);
  /// Natively updated optimizers (SGD, Adam, AdamW) keep their state in the trainer. Before the optimizer is
  /// saved: writes it there; after it was loaded: reads it.
  void export_optimizer_state();
  void import_optimizer_state();
  /// The parameters were changed by hand. (In-place operations of torch are noticed without, unless training
  /// is eager; then this is a collective.)
  void parameters_changed();

  /// The flat memory of the parameters, bucket by bucket, on the host; and word that it was written to.
  std::vector<torch::Tensor> flat_parameters() const;
  void flat_parameters_changed();

  /// Everything that this rank needs to go on from here, between two steps, on every rank between the same
  /// ones: parameters, buffers, optimizer,
  /// what the method remembers, torch's random generator, the step. Valid until the next step begins.
  void save(SavedParts& parts);
  /// As it was when the file was written, on every rank from its own file, the optimizer's settings included;
  /// nothing of what follows differs by a bit from what would have followed then. Throws Error when the file
  /// does not fit, names why, and has changed nothing; after other errors (a file that cannot be read) the
  /// trainer is of no use any more.
  void restore(const CheckpointFile& file);
  /// The mean of these files' models, where there are more or fewer ranks than there were; of buffers that
  /// are whole numbers the first file's. Optimizer, method and random generator begin anew, in a trainer that
  /// has not made a step; the step is the files'.
  void restore_mean(std::span<const CheckpointFile> files);

  /// The root mean square, over the ranks, of the distance to the flock's mean model. A collective.
  double consensus_distance();

  /// The mean model, in place of this rank's own until this goes.
  class [[nodiscard]] Averaged {
   public:
    explicit Averaged(Trainer& trainer) : trainer_(&trainer) {}
    Averaged(Averaged&& other) noexcept : trainer_(std::exchange(other.trainer_, nullptr)) {}
    ~Averaged() { revert(); }
    /// Everybody gets its own model back.
    void revert();
    /// The mean model stays.
    void keep();

   private:
    Trainer* trainer_;
  };
  /// A collective. Buffers as the options say.
  Averaged global_average();

 private:
  struct State;

  template <typename Body>
  auto in_step(const char* call, const Body& body) -> decltype(body());

  std::unique_ptr<State> state_;
};

}  // namespace starling
