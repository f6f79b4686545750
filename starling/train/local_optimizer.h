#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "starling/method/update.h"
#include "starling/train/bucket.h"

namespace starling::train {

/// The optimizer whose parameters and settings a Trainer uses: libtorch's, or Python's. SGD, Adam and AdamW
/// have native updates, which do in one pass what torch does in many; every other optimizer runs its own
/// code.
class LocalOptimizer {
 public:
  virtual ~LocalOptimizer() = default;

  /// "sgd", "adam", "adamw", or "" for any other.
  const std::string& native() const { return native_; }
  const Hypers& hypers() const { return hypers_; }
  /// The optimizer's class, for error messages.
  virtual std::string name() const = 0;
  /// The parameters by group.
  virtual std::vector<std::vector<torch::Tensor>> groups() const = 0;
  /// The settings of each group by name, as texts that are equal if the settings are.
  using Settings = std::vector<std::pair<std::string, std::string>>;
  virtual std::vector<Settings> settings() const = 0;
  /// Reads the settings again, since learning rate schedulers change them.
  virtual void read_settings() = 0;
  /// Whether the optimizer can only step all parameters together, so that they must be in one bucket.
  virtual bool takes_all_at_once() const { return false; }

  /// The update of one bucket.
  UpdatePtr make_update(const std::vector<Placed>& all, const Bucket& bucket);

  /// Copies native state to the optimizer's own state, so that the program can save it; and the reverse.
  /// `updates`: by bucket.
  virtual void export_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) = 0;
  virtual void import_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) = 0;
  /// The settings and, with `memory`, the state as text; and the reverse. Throws InvalidArgument if it cannot
  /// be saved, Error if the text is another optimizer's.
  virtual std::string saved(bool memory) const = 0;
  virtual void restore(const std::string& text, bool memory) = 0;

 protected:
  LocalOptimizer(std::string native, std::size_t groups)
      : native_(std::move(native)), hypers_(std::make_shared<std::vector<Hyper>>(groups)) {}

  /// Steps the given parameters, by group, along their current gradients.
  virtual void step(std::vector<std::vector<torch::Tensor>>& groups) = 0;

  /// Throws InvalidArgument if the number of groups, or of parameters in group `index`, has changed since the
  /// first call.
  void check_groups(std::size_t groups) const;
  void check_group(std::size_t index, std::size_t parameters);

 private:
  class ForeignUpdate;

  std::string native_;
  Hypers hypers_;
  std::vector<std::size_t> sizes_;  // of the groups
};

// A parameter's part of the native state, for export_state and import_state.

/// The parameter's part of a state vector, as a tensor; undefined if there is no such vector.
torch::Tensor state_part(const std::vector<NamedState>& state, const std::string& name, const Placed& placed);
std::int64_t& steps_of(const std::vector<NamedState>& state, const Placed& placed);
/// Resets the state as before the first update.
void forget_state(const std::vector<NamedState>& state, const Placed& placed);

}  // namespace starling::train
