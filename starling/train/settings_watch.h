#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "starling/flock/flock.h"
#include "starling/method/update.h"
#include "starling/train/description.h"
#include "starling/train/local_optimizer.h"

namespace starling::train {

/// Compares the ranks' optimizer settings during training, since programs may change them between steps. At
/// the beginning of steps 0, 1, 2, 4, ... 64 and every 64th step after that, each rank posts its settings and
/// continues; it reads the others' posts when the next posts are due. It waits half a second for a late post,
/// not at all if the next one in a row is late, too, and never for dead ranks. Owned by a TrainerMembership.
class SettingsWatch {
 public:
  struct Options {
    std::string name;           // the trainer's name
    std::string caller;         // see TrainerOptions
    bool asynchronous = false;  // ranks may be at different steps: differences are only logged
    bool compares = true;       // false: settings may differ between ranks
    bool equal_models = false;  // the method keeps the models equal
  };

  SettingsWatch() = default;
  SettingsWatch(const SettingsWatch&) = delete;
  SettingsWatch& operator=(const SettingsWatch&) = delete;
  ~SettingsWatch() { forget(); }

  /// Starts, or restarts on another flock; call it on all ranks between the same steps.
  void start(const Flock& flock, Options options);

  /// Call it at the beginning of every step. Returns whether this rank's settings have changed since the step
  /// before. Throws InvalidArgument on both ranks if the settings of two ranks differ. Logs it if the norms
  /// of models differ that the method keeps equal.
  bool begin_step(Step step, const LocalOptimizer& optimizer, const std::function<double()>& norm_of_model);

  /// Whether methods whose ranks are in step compare at the beginning of this step.
  static bool is_usual_check(Step step);

  /// Whether to call note_gradient() in this step: only in the first one, where equal gradients on all ranks
  /// mean equal data.
  bool wants_gradients(Step step) const { return flock_ && step == 0; }
  /// Takes a block's gradient as computed by backward.
  void note_gradient(std::size_t block, std::span<const std::byte> gradient);

 private:
  /// The fixed part of a post; a text follows.
  struct Report {
    std::int64_t rank = 0;
    std::int64_t step = 0;
    std::uint64_t history = 0;     // hash of all settings so far, and of when they changed
    std::int64_t changed = 0;      // the step of the last change
    std::uint64_t gradient = 0;    // the hash of the first gradient; 0: none, or zero
    double norm = 0;               // of the model, if models are compared
    std::uint64_t text_bytes = 0;  // the length of the text that follows
  };
  struct Post {
    Report report;
    std::string text;
  };
  struct Check {
    Post own;
    std::vector<std::uint8_t> others;
    std::optional<Pending> pending;
  };

  bool notice_change(Step step, const std::vector<Hyper>& hypers);
  bool is_due(Step step) const;
  void post(Step step, const LocalOptimizer& optimizer, double norm);
  void read_posts();
  /// Whether the others' posts have arrived; they are then in `check.others`.
  bool arrived(Check& check);
  void compare(const Check& check);
  void warn_of_equal_gradients(const std::vector<Post>& all) const;
  void warn_of_unequal_models(const std::vector<Post>& all);
  void report_difference(const std::string& text);
  void forget();
  std::vector<Rank> peers() const;

  std::optional<Flock> flock_;  // empty if this rank is alone
  Options options_;
  std::vector<Hyper> last_;
  std::uint64_t history_ = 0;
  Step changed_ = 0;
  Step seen_ = -1;
  std::vector<std::uint64_t> gradients_;  // hashes by block
  std::deque<Check> checks_;              // posted; the others' posts are missing
  int missed_ = 0;                        // in a row
  bool warned_ = false;
  bool warned_of_models_ = false;
};

/// Adds the settings of an optimizer's groups.
void describe_settings(Description& description, const LocalOptimizer& optimizer);

}  // namespace starling::train
