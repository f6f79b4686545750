#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "starling/flock/flock.h"
#include "starling/method/defaults.h"
#include "starling/record/run_log.h"

namespace starling::train {

class Task;

/// The settings of one training run, the same on every rank.
struct Experiment {
  std::string data = "mnist";
  std::string model = "lenet";
  std::string method = kDefaultMethod;
  std::string topology = kDefaultTopology;
  std::string optimizer = "momentum(lr=0.05)";
  std::string partition = "iid";
  /// What a worker without data does: repeat its shard ("again"), so that all workers take part in every
  /// step, or "skip" until the longest shard has ended.
  std::string uneven = "again";
  std::string device = "auto";  // for training: cpu, cuda (the host's GPUs in turn), cuda:N, or auto
  bool cuda_graph = true;       // on a GPU, a batch's work is recorded once and repeated (docs/gpu.md)
  int batch = 32;               // per worker
  int epochs = 2;
  double warmup = 0;   // epochs during which the learning rate rises from zero
  bool cosine = true;  // afterwards the rate falls to zero along a cosine; otherwise it stays
  std::uint64_t seed = 1;
  std::string on_peer_failure = "raise";
  std::string message = "float32";
  double drop = 0;  // fraction of the neighbors' messages that are dropped, see join()
  int accumulation = 1;
  double clip_norm = 0;
  std::string on_nonfinite = "raise";
  bool eager = false;
  int reports = 10;      // per epoch, in addition to the evaluations
  int evaluations = 1;   // of the mean model, per epoch
  int local_test = 500;  // test samples for evaluating each rank's own model
};

/// Calls visit(name, member, help text) for every setting: one list for command lines, files and logs.
template <typename E, typename Visit>
void visit_settings(E& e, Visit&& visit) {
  visit("data", e.data, "data set: mnist, fashion-mnist, cifar10, synthetic, text:FILE");
  visit("model", e.model, "lenet, mlp, resnet20, vgg11, transformer; with settings, as in mlp(width=512)");
  visit("method", e.method, "decentralized algorithm (see `starling methods`)");
  visit("topology", e.topology, "communication graph; see starling topo");
  visit("optimizer", e.optimizer,
        "sgd, momentum, nesterov, adam, adamw; with settings, as in adamw(lr=0.001)");
  visit("partition", e.partition, "how samples are split among workers: iid, contiguous, dirichlet(0.1)");
  visit("uneven", e.uneven,
        "a worker that runs out of data: again = repeat its shard, skip = idle until the rest finish");
  visit("device", e.device, "where workers train: cpu, cuda (the GPUs in turn), cuda:0, or auto");
  visit("cuda_graph", e.cuda_graph,
        "on a GPU, whether a batch's work is recorded once and then repeated by one launch");
  visit("batch", e.batch, "samples per worker and step");
  visit("epochs", e.epochs, "passes over the data");
  visit("warmup", e.warmup, "epochs in which the learning rate rises from zero");
  visit("cosine", e.cosine, "whether the learning rate falls to zero along a cosine afterwards");
  visit("seed", e.seed, "seed for initialization, data split and shuffling");
  visit("on_peer_failure", e.on_peer_failure,
        "if a worker dies: raise (all stop) or reweight (the others continue)");
  visit("message", e.message, "wire format of model messages: float32, float16, bfloat16, int8");
  visit("drop", e.drop, "share of the neighbors' messages that are dropped, to test a method");
  visit("accumulation", e.accumulation, "batches per step");
  visit("clip_norm", e.clip_norm, "gradients longer than this are scaled down to it; 0: never");
  visit("on_nonfinite", e.on_nonfinite,
        "if a gradient is infinite or NaN: raise (the worker stops; on a GPU nothing is checked), skip (its "
        "update) or ignore");
  visit("eager", e.eager, "whether layers are updated and sent inside backward");
  visit("reports", e.reports, "progress reports per epoch, in addition to the evaluations");
  visit("evaluations", e.evaluations, "evaluations on the test data per epoch, the last at its end");
  visit("local_test", e.local_test, "test samples for evaluating each worker's own model; 0: none");
}

/// Throws InvalidArgument for unknown names, and unknown parameters, of method, topology, optimizer, data
/// set, model, partition and wire format. Reads no data.
void check_names(const Experiment& experiment);
/// Throws InvalidArgument if the topology does not exist for this number of workers on one host, or the
/// method cannot use it.
void check_schedule(const Experiment& experiment, Rank workers);
/// Throws InvalidArgument if the model cannot learn this kind of samples. Reads no data.
void check_model(const Experiment& experiment);
/// Throws InvalidArgument for settings out of range.
void check_numbers(const Experiment& experiment);

/// The settings that decide what is trained, as text.
std::vector<RunSetting> settings_of(const Experiment& experiment);
/// The settings in canonical form, without values derived from the seed: equal for repetitions.
std::vector<RunSetting> canonical_settings_of(const Experiment& experiment);
/// The canonical form of a setting's value in an experiment with this seed, equal for all values of equal
/// meaning: `base` and `base(k=1)`, `bf16` and `bfloat16`. Invalid values stay unchanged.
std::string canonical_setting(const std::string& name, const std::string& value, std::uint64_t seed);

struct CheckpointOptions {
  std::filesystem::path folder;  // empty: no checkpoints
  double every = 1;              // epochs between checkpoints; may be a fraction
  int keep = 3;                  // how many of the newest checkpoints
  /// Resume from the newest checkpoint, or from the one of `resume_step`; start from scratch if there is
  /// none.
  bool resume = false;
  std::optional<Step> resume_step = {};
};

/// Throws InvalidArgument for options out of range, and if a new run would replace the checkpoints of another
/// one in its folder.
void check_checkpoints(const CheckpointOptions& options);

/// The events of a run, as its log contains them.
using RunEvent = std::variant<RunHeader, RunReport, RunResume, PeerFailure, RunNotSaved, RunEnd>;
using Reporter = std::function<void(const RunEvent&)>;

/// The data set of an experiment (train/task.h). Workers forked afterwards share its memory.
std::shared_ptr<const Task> load_task(const std::string& data);
std::size_t test_samples(const Task& task);

/// Trains on `task` if given, else on the data that the experiment names. `report` is called on every rank
/// with the same events; the caller fills in the header's command and date. If a loss is not finite, the run
/// ends soon, and RunEnd says so. Returns the last evaluation. If a complete run is resumed, RunEnd is the
/// only event, and the result is the saved part of its last report.
RunReport run_experiment(Flock& flock, const Experiment& experiment, const Reporter& report,
                         const CheckpointOptions& checkpoints = {},
                         std::shared_ptr<const Task> task = nullptr);

}  // namespace starling::train

namespace starling {
using train::CheckpointOptions;
using train::Experiment;
using train::run_experiment;
}  // namespace starling
