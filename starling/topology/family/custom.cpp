#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/topology/family/list.h"
#include "starling/topology/graph_file.h"
#include "starling/topology/stored.h"

namespace starling::topology::family {

Family custom() {
  return {
      .name = "custom",
      .summary = "a graph or a weight matrix from a file, checked",
      .parameters = {{"file", "", "an edge list or a matrix, CSV or JSON", ParameterKind::text},
                     {"format", "auto", "auto, edges or matrix"},
                     {"directed", "no", "yes: edges without weights are directed"},
                     {"negative", "no", "yes: negative weights are allowed"},
                     weights_parameter("metropolis")},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const std::string& path = parameters.text("file");
        const std::string& name = parameters.choice("format", {"auto", "edges", "matrix"});
        const GraphFormat format = name == "auto"    ? GraphFormat::automatic
                                   : name == "edges" ? GraphFormat::edges
                                                     : GraphFormat::matrix;
        const Weights weights = read_weights(parameters);
        const GraphFile file = read_graph_file(path, format, setting.n);
        if (file.weighted) {
          if (parameters.given("weights") && weights != Weights::push)
            throw InvalidArgument(
                fmt::format("custom: {} brings its own weights; only weights=push, which asks for "
                            "columns that sum to one, goes with it",
                            path));
          return schedule_from_weights(setting.n, file.entries,
                                       {parameters.yes("negative"), weights == Weights::push}, path);
        }
        std::vector<std::pair<Rank, Rank>> edges;
        for (const Entry& entry : file.entries) edges.emplace_back(entry.receiver, entry.sender);
        const bool directed = parameters.yes("directed");
        const bool fallback = directed && !parameters.given("weights");
        return schedule_from_edges(setting.n, edges, fallback ? Weights::uniform : weights, directed, path);
      }};
}

}  // namespace starling::topology::family
