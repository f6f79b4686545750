#pragma once

#include <chrono>
#include <functional>
#include <vector>

namespace starling::bench {

/// The work of a rank; returns at most the promised number of results. `meet` returns when all ranks have
/// called it.
using RankBody = std::function<std::vector<double>(int rank, const std::function<void()>& meet)>;

/// Forks `ranks` processes that run `body`, and waits for them: element r is the result of rank r. If one
/// fails, or at the time limit, all are killed and Error says why. Leaves no process running.
std::vector<std::vector<double>> run_ranks(int ranks, std::size_t most_results, std::chrono::seconds limit,
                                           const RankBody& body);

/// For every result the largest over the ranks: a batch is as slow as its slowest rank.
std::vector<double> slowest(const std::vector<std::vector<double>>& by_rank);

}  // namespace starling::bench
