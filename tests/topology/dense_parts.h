#pragma once

#include <string>
#include <vector>

#include "topology/dense_reference.h"

/// The parts of dense_reference.cpp; tests include dense_reference.h only.
namespace starling::topology::reference {

// Graphs: entry (i, j) is 1 if i receives from j.
Matrix ring_edges(int n);
Matrix one_way_ring_edges(int n);
Matrix chain_edges(int n);
Matrix star_edges(int n, int center);
Matrix grid_edges(int n, int rows, bool wrap);  // rows = 0: the default
Matrix hypercube_edges(int n);
Matrix complete_edges(int n);
Matrix exponential_edges(int n, int base);
Matrix symmetric_exponential_edges(int n, int base);
Matrix binary_tree_edges(int n, bool mirror);
Matrix k_tree_edges(int n, int k);
Matrix bfs_tree_edges(const Matrix& graph, int root);

// The rounds of one period.
std::vector<Matrix> one_peer_exponential_rounds(int n);
std::vector<Matrix> k_peer_exponential_rounds(int n, int k);
std::vector<Matrix> one_peer_hypercube_rounds(int n);
std::vector<Matrix> one_peer_ring_rounds(int n);
std::vector<Matrix> aer_rounds(int n, int local);
std::vector<Matrix> fold_unfold_rounds(int n);
std::vector<DenseRound> ceca_rounds(int n, int k);
std::vector<DenseRound> ceca_1p_rounds(int n);

// Single rounds of families with long periods.
Matrix inner_outer_round(int n, int local, bool exponential, Step step);
Matrix one_peer_of_round(const Matrix& edges, Step step);

}  // namespace starling::topology::reference
