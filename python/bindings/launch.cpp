#include <algorithm>
#include <pybind11/stl.h>

#include "module.h"
#include "starling/launch/cpus.h"
#include "starling/launch/environment.h"

namespace py = pybind11;

namespace starling::python {

// The variables that `starling run` would give to the ranks of a new job, for callers that start ranks
// themselves.
void bind_launch(py::module_& module) {
  module.def(
      "worker_environments",
      [](Rank n) {
        const std::vector<std::string> ours = launch::Environment().entries();
        const auto job =
            launch::job_environment(launch::random_token(), n, launch::allowed_cpus().size(), {});
        std::vector<std::map<std::string, std::string>> ranks;
        for (Rank rank = 0; rank < n; ++rank) {
          auto& variables = ranks.emplace_back();
          const launch::Environment theirs = launch::rank_environment(job, rank, n);
          for (const std::string& entry : theirs.entries()) {
            if (std::ranges::find(ours, entry) != ours.end()) continue;
            const std::size_t equals = entry.find('=');
            variables[entry.substr(0, equals)] = entry.substr(equals + 1);
          }
        }
        return ranks;
      },
      py::arg("n"), "What differs from this process's, one dict per rank of a new job.");
}

}  // namespace starling::python
