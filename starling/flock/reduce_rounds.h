#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "starling/base/floors.h"

namespace starling::flock {

/// The algorithm of an all-reduce. All but the last give the same bits on every rank and in every run;
/// different algorithms may differ in the last bit.
enum class AllreduceAlgorithm {
  direct,    // every rank reads all others' memory: the fastest on one host
  ring,      // 2 (n - 1) rounds of 1/n each: the fewest bytes over slow links
  doubling,  // log2 n rounds with whole blocks: the fewest rounds
  halving,   // 2 log2 n rounds, as few bytes as the ring
  tree,      // up to one rank and down again: the fewest messages
  native,    // the fabric's engine if it has one; otherwise direct
};

std::string name(AllreduceAlgorithm algorithm);
/// Throws InvalidArgument with the valid names.
AllreduceAlgorithm parse_allreduce_algorithm(std::string_view name);

/// One round of an all-reduce of `count` elements for one of n members: it sends first, then adds what it
/// receives to its own elements, or replaces them.
struct ReduceRound {
  struct Transfer {
    std::size_t peer;  // index of the member
    std::size_t begin;
    std::size_t end;
    bool add = false;  // adds what is received
    // For received elements that are added: how many members' blocks are in them, and in this member's own
    // elements.
    std::size_t theirs = 0;
    std::size_t mine = 0;
  };
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
};

/// The rounds of an algorithm that exchanges messages (neither direct nor native), for the member with index
/// `place`.
std::vector<ReduceRound> reduce_rounds(AllreduceAlgorithm algorithm, std::size_t place, std::size_t n,
                                       std::size_t count);

}  // namespace starling::flock
