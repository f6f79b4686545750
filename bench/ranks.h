#pragma once

#include <chrono>
#include <functional>
#include <vector>

namespace starling::bench {

/// What a rank does: its results, at most as many as promised. `meet` returns when all ranks have called it.
using RankBody = std::function<std::vector<double>(int rank, const std::function<void()>& meet)>;

/// Forks `ranks` processes that run `body`, and waits for them: element r is what rank r returned. When one
/// fails or the time is over, all are killed and Error says why. Nothing is left running.
std::vector<std::vector<double>> run_ranks(int ranks, std::size_t most_results, std::chrono::seconds limit,
                                           const RankBody& body);

/// Of every result the largest over the ranks: a batch is as slow as its slowest rank.
std::vector<double> slowest(const std::vector<std::vector<double>>& by_rank);

}  // namespace starling::bench
