#include "topology/dense_reference.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "starling/base/spec.h"
#include "topology/dense_parts.h"

namespace starling::topology::reference {
namespace {

/// The argument `key`, or the one at its position.
const Spec* find(const Spec& spec, const std::string& key, bool positional = false) {
  for (const Spec::Argument& argument : spec.arguments) {
    if (argument.key == key || (positional && argument.key.empty())) return &argument.value;
  }
  return nullptr;
}

int integer(const Spec& spec, const std::string& key, int fallback) {
  const Spec* value = find(spec, key);
  return value == nullptr ? fallback : std::stoi(value->word);
}

bool yes(const Spec& spec, const std::string& key) {
  const Spec* value = find(spec, key);
  return value != nullptr && value->word == "yes";
}

std::vector<int> member_list(const Spec& list) {
  std::vector<int> members;
  for (const Spec::Argument& item : list.arguments) {
    const std::string& word = item.value.word;
    const std::size_t dots = word.find("..");
    const int first = std::stoi(word.substr(0, dots));
    const int last = dots == std::string::npos ? first : std::stoi(word.substr(dots + 2));
    for (int member = first; member <= last; ++member) members.push_back(member);
  }
  return members;
}

/// A static graph and its default weights.
std::optional<std::pair<Matrix, std::string>> graph(const Spec& spec, int n) {
  const std::string& name = spec.word;
  if (name == "ring") return {{ring_edges(n), "uniform"}};
  if (name == "one-way-ring") return {{one_way_ring_edges(n), "uniform"}};
  if (name == "chain") return {{chain_edges(n), "metropolis"}};
  if (name == "star") return {{star_edges(n, integer(spec, "center", 0)), "metropolis"}};
  if (name == "grid") return {{grid_edges(n, integer(spec, "rows", 0), false), "metropolis"}};
  if (name == "torus") return {{grid_edges(n, integer(spec, "rows", 0), true), "metropolis"}};
  if (name == "hypercube") return {{hypercube_edges(n), "uniform"}};
  if (name == "complete") return {{complete_edges(n), "uniform"}};
  if (name == "exponential") return {{exponential_edges(n, integer(spec, "base", 2)), "uniform"}};
  if (name == "symmetric-exponential") {
    return {{symmetric_exponential_edges(n, integer(spec, "base", 4)), "uniform"}};
  }
  if (name == "binary-tree") return {{binary_tree_edges(n, yes(spec, "mirror")), "metropolis"}};
  if (name == "k-tree") return {{k_tree_edges(n, integer(spec, "k", 3)), "metropolis"}};
  if (name == "bfs-tree") {
    const Spec& of = *find(spec, "of", true);
    return {{bfs_tree_edges(graph(of, n)->first, integer(spec, "root", 0)), "metropolis"}};
  }
  return std::nullopt;
}

DenseSchedule cycle(std::vector<DenseRound> rounds) {
  // std::function copies its captures, so the matrices are shared.
  const auto shared = std::make_shared<const std::vector<DenseRound>>(std::move(rounds));
  return [shared](Step step) { return (*shared)[static_cast<std::size_t>(step) % shared->size()]; };
}

DenseSchedule cycle(std::vector<Matrix> rounds) {
  std::vector<DenseRound> dense;
  for (Matrix& round : rounds) dense.push_back({std::move(round), {}, {}, {}});
  return cycle(std::move(dense));
}

std::string weights_of(const Spec& spec, const std::string& fallback) {
  const Spec* weights = find(spec, "weights");
  return weights == nullptr ? fallback : weights->word;
}

DenseSchedule build(const Spec& spec, int n);

DenseSchedule hierarchical(const Spec& spec, int n) {
  const int local = n == 1 ? 1 : integer(spec, "local", 1);
  const Matrix inside = Matrix::Constant(local, local, 1.0 / local);
  return [outer = build(*find(spec, "outer", true), n / local), inside](Step step) {
    DenseRound round = outer(step);
    for (Matrix* part : {&round.a, &round.a_from_b, &round.b_from_a, &round.b})
      *part = kronecker(*part, inside);
    return round;
  };
}

DenseSchedule periodic(const Spec& spec, int n) {
  const int h = integer(spec, "h", 1);
  DenseSchedule inner = build(*find(spec, "schedule", true), n);
  const bool two_block = inner(0).two_block();
  return [inner = std::move(inner), two_block, h, n](Step step) {
    if ((step + 1) % h != 0) return inner(two_block ? step % h : step);
    DenseRound mean{Matrix::Constant(n, n, 1.0 / n), {}, {}, {}};
    if (two_block) mean.a_from_b = Matrix::Zero(n, n);
    return mean;
  };
}

DenseSchedule live(const Spec& spec, int n) {
  const std::vector<int> members = member_list(*find(spec, "members"));
  return [inner = build(*find(spec, "schedule", true), static_cast<int>(members.size())), members,
          n](Step step) {
    const DenseRound small = inner(step);
    const auto embed = [&](const Matrix& part, Matrix whole) {
      if (part.size() == 0) return Matrix();
      for (std::size_t i = 0; i < members.size(); ++i) {
        for (std::size_t j = 0; j < members.size(); ++j) {
          whole(members[i], members[j]) = part(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j));
        }
      }
      return whole;
    };
    const Matrix zero = Matrix::Zero(n, n);
    return DenseRound{embed(small.a, Matrix::Identity(n, n)), embed(small.a_from_b, zero),
                      embed(small.b_from_a, zero), embed(small.b, zero)};
  };
}

DenseSchedule build(const Spec& spec, int n) {
  const std::string& name = spec.word;
  if (const auto found = graph(spec, n)) {
    return cycle(std::vector<Matrix>{weigh(found->first, weights_of(spec, found->second))});
  }
  const int k = integer(spec, "k", 1);
  if (name == "double-binary-trees") {
    const std::string weights = weights_of(spec, "metropolis");
    return cycle(std::vector<Matrix>{weigh(binary_tree_edges(n, false), weights),
                                     weigh(binary_tree_edges(n, true), weights)});
  }
  if (name == "one-peer-exponential") return cycle(one_peer_exponential_rounds(n));
  if (name == "k-peer-exponential") return cycle(k_peer_exponential_rounds(n, k));
  if (name == "one-peer-hypercube") return cycle(one_peer_hypercube_rounds(n));
  if (name == "one-peer-ring") return cycle(one_peer_ring_rounds(n));
  if (name == "aer") return cycle(aer_rounds(n, integer(spec, "local", 1)));
  if (name == "hyper-hypercube") return cycle(hyper_hypercube_rounds(n, k));
  if (name == "simple-base") return cycle(simple_base_rounds(n, k));
  if (name == "base") return cycle(base_rounds(n, k));
  if (name == "ceca") return cycle(ceca_rounds(n, k));
  if (name == "ceca-1p") return cycle(ceca_1p_rounds(n));
  if (name == "fold-unfold") return cycle(fold_unfold_rounds(n));
  if (name == "inner-outer-exponential" || name == "inner-outer-ring") {
    const bool exponential = name == "inner-outer-exponential";
    return [n, local = integer(spec, "local", 1), exponential](Step step) {
      return DenseRound{inner_outer_round(n, local, exponential, step), {}, {}, {}};
    };
  }
  if (name == "one-peer-of") {
    return [edges = graph(*find(spec, "graph", true), n)->first](Step step) {
      return DenseRound{one_peer_of_round(edges, step), {}, {}, {}};
    };
  }
  if (name == "hierarchical") return hierarchical(spec, n);
  if (name == "periodic") return periodic(spec, n);
  if (name == "live") return live(spec, n);
  throw std::invalid_argument("no reference for " + name);
}

}  // namespace

DenseSchedule dense_schedule(const std::string& text, int n) {
  return build(parse_spec(text), n);
}

}  // namespace starling::topology::reference
