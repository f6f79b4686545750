#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <variant>

#include "starling/flock/flock.h"
#include "starling/record/run_log.h"

namespace starling {

/// One training run on a data set, the same on every rank.
struct Experiment {
  std::string data = "mnist";
  std::string model = "lenet";
  std::string method = "dsgd-awc";
  std::string topology = "one-peer-exponential";
  std::string optimizer = "momentum(lr=0.05)";
  std::string partition = "iid";
  /// Whose shard ends first begins it "again", so that everybody takes part in every step; or "skip"s until
  /// the longest shard has ended.
  std::string uneven = "again";
  int batch = 32;  // per worker
  int epochs = 2;
  double warmup = 0;   // epochs in which the learning rate rises from zero
  bool cosine = true;  // it falls to zero along a cosine afterwards; else it stays
  std::uint64_t seed = 1;
  std::string on_peer_failure = "raise";
  std::string message = "float32";
  double drop = 0;  // share of the neighbours' messages that get lost, see join()
  int accumulation = 1;
  double clip_norm = 0;
  std::string on_nonfinite = "raise";
  bool eager = false;
  int reports = 10;      // per epoch, beside the evaluation at its end
  int local_test = 500;  // test samples that every rank judges its own model by
};

/// Calls visit(name, member, what it means) for every setting: one list for command lines, files and logs.
template <typename E, typename Visit>
void visit_settings(E& e, Visit&& visit) {
  visit("data", e.data, "what is learned: mnist, fashion-mnist, cifar10, synthetic, text:FILE");
  visit("model", e.model, "lenet, mlp, resnet20, vgg11, transformer; with settings, as in mlp(width=512)");
  visit("method", e.method, "how models meet; see docs/methods.md");
  visit("topology", e.topology, "who talks to whom; see starling topo");
  visit("optimizer", e.optimizer,
        "sgd, momentum, nesterov, adam, adamw; with settings, as in adamw(lr=0.001)");
  visit("partition", e.partition, "how the samples are dealt: iid, contiguous, dirichlet(0.1)");
  visit("uneven", e.uneven,
        "whose data end first begins them again, or skips until all have ended: again, skip");
  visit("batch", e.batch, "samples per worker and step");
  visit("epochs", e.epochs, "passes over the data");
  visit("warmup", e.warmup, "epochs in which the learning rate rises from zero");
  visit("cosine", e.cosine, "whether it falls to zero along a cosine afterwards");
  visit("seed", e.seed, "of the start, the split and the order");
  visit("on_peer_failure", e.on_peer_failure,
        "a worker dies: raise (everybody stops) or reweight (the others go on)");
  visit("message", e.message, "what models travel as: float32, float16, bfloat16, int8");
  visit("drop", e.drop,
        "share of the neighbours' messages that get lost on the way, to see what a method makes of it");
  visit("accumulation", e.accumulation, "batches per step");
  visit("clip_norm", e.clip_norm, "gradients longer than this are scaled down to it; 0: never");
  visit("on_nonfinite", e.on_nonfinite,
        "a worker's gradient is infinite or NaN: raise (it stops), skip (its update is left out) or ignore");
  visit("eager", e.eager, "whether layers are updated and sent inside backward");
  visit("reports", e.reports, "reports per epoch, beside the evaluation at its end");
  visit("local_test", e.local_test, "test samples by which every worker's own model is judged, too; 0: none");
}

/// Throws InvalidArgument for names that nothing has: of method, topology, optimizer, data set and model.
void check_names(const Experiment& experiment);
/// Throws InvalidArgument where the model does not learn what the data set's samples are. Neither looks at
/// data.
void check_model(const Experiment& experiment);

/// Those that decide what is trained, as text.
std::vector<RunSetting> settings_of(const Experiment& experiment);

struct CheckpointOptions {
  std::filesystem::path folder;  // empty: no checkpoints
  double every = 1;              // epochs between them; parts of epochs, too
  int keep = 3;                  // the last ones
  /// Go on from the newest one, or from the one of this step. Where there is none, from the start.
  bool resume = false;
  std::optional<Step> resume_step = {};
};

/// What happens in a run, in the words of its log.
using RunEvent = std::variant<RunHeader, RunReport, RunResume, PeerFailure, RunNotSaved, RunEnd>;
using Reporter = std::function<void(const RunEvent&)>;

/// Trains. `report` is called on every rank, with the same everywhere; the header's command and date are the
/// caller's to fill in. A run whose loss is not a finite number any more ends soon, and RunEnd says so.
/// Returns the last evaluation. Where a complete run is resumed, RunEnd is the only event, and what was saved
/// of its last report is returned.
RunReport run_experiment(Flock& flock, const Experiment& experiment, const Reporter& report,
                         const CheckpointOptions& checkpoints = {});

}  // namespace starling
