#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "starling/flock/flock.h"
#include "starling/method/update.h"
#include "starling/train/description.h"
#include "starling/train/local_optimizer.h"

namespace starling {

/// Compares the ranks' optimizer settings, which programs may change between steps, while they train. At the
/// begin of steps 0, 1, 2, 4, ... 64 and every 64th from there on each rank posts its settings and goes on;
/// what the others have posted is looked at when the next ones are due. A late answer is waited for half a
/// second, the next late one in a row not at all; dead ranks never. Owned by a Trainer and used by its
/// threads.
class SettingsWatch {
 public:
  struct Options {
    std::string name;           // of the trainer
    bool asynchronous = false;  // ranks may be in different steps: differences are a warning
    bool compares = true;       // false: ranks may have settings of their own
  };

  SettingsWatch() = default;
  SettingsWatch(const SettingsWatch&) = delete;
  SettingsWatch& operator=(const SettingsWatch&) = delete;
  ~SettingsWatch() { forget(); }

  /// Begins anew, on all ranks between the same steps: a new trainer, or a flock with newcomers.
  void start(const Flock& flock, Options options);

  /// At the begin of every step. True where the settings are others than in the step before. Throws
  /// InvalidArgument, on both ranks, where those of two ranks differ.
  bool begin_step(Step step, const LocalOptimizer& optimizer);

  /// Whether note_gradient() wants to see this step's gradients: in the first one, where models are equal and
  /// gradients that are equal on all ranks mean that the data are.
  bool wants_gradients(Step step) const { return flock_ && step == 0; }
  /// A block's gradient before anything has happened to it.
  void note_gradient(std::size_t block, ConstBlock gradient);

 private:
  /// What a rank says of itself.
  struct Report {
    std::int64_t rank = 0;
    std::int64_t step = 0;
    std::uint64_t history = 0;     // of all settings so far, and when they came
    std::int64_t changed = 0;      // the step of the last change
    std::uint64_t gradient = 0;    // the hash of the first gradient; 0: none, or zero
    std::uint64_t text_bytes = 0;  // of what follows
  };
  struct Said {
    Report report;
    std::string text;
  };
  struct Check {
    Said own;
    std::vector<std::uint8_t> others;
    std::optional<Pending> pending;
  };

  bool notice_change(Step step, const std::vector<Hyper>& hypers);
  bool is_due(Step step) const;
  void post(Step step, const LocalOptimizer& optimizer);
  void look();
  /// Whether what was posted has been answered; then it is in `check.others`.
  bool arrived(Check& check);
  void compare(const Check& check);
  void warn_of_equal_gradients(const std::vector<Said>& all) const;
  void differ(const std::string& text);
  void forget();
  std::vector<Rank> peers() const;

  std::optional<Flock> flock_;  // none where a rank is alone
  Options options_;
  std::vector<Hyper> last_;
  std::uint64_t history_ = 0;
  Step changed_ = 0;
  Step seen_ = -1;
  std::vector<std::uint64_t> gradients_;  // hashes by block
  std::deque<Check> checks_;              // posted and not answered yet
  int missed_ = 0;                        // in a row
  bool warned_ = false;
};

/// Adds the settings of an optimizer's groups.
void describe_settings(Description& description, const LocalOptimizer& optimizer);

}  // namespace starling
