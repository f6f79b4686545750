#include "starling/topology/weights.h"

namespace starling::topology {

Parameter weights_parameter(const std::string& fallback) {
  return {"weights", fallback, "metropolis, uniform, laplacian or push"};
}

Weights read_weights(const Parameters& parameters) {
  const std::string& name = parameters.choice("weights", {"metropolis", "uniform", "laplacian", "push"});
  if (name == "metropolis") return Weights::metropolis;
  if (name == "uniform") return Weights::uniform;
  return name == "laplacian" ? Weights::laplacian : Weights::push;
}

}  // namespace starling::topology
