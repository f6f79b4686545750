#include "starling/base/spec.h"
#include "starling/method/registry.h"
#include "starling/method/update.h"
#include "starling/topology/known_name.h"
#include "starling/train/experiment.h"
#include "starling/train/task.h"

namespace starling {

void check_names(const Experiment& experiment) {
  const MethodPtr method = make_method(experiment.method);
  if (method->needs_schedule()) check_topology_name(experiment.topology);
  parse_optimizer(experiment.optimizer);
  kind_of_data(experiment.data);
  const Spec model = parse_spec(experiment.model);
  for (const ModelFamily& family : model_families())
    if (family.name == model.word) return;
  find_model(model, ModelInput::images);  // throws
}

void check_model(const Experiment& experiment) {
  find_model(parse_spec(experiment.model), kind_of_data(experiment.data));
}

}  // namespace starling
