#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

/// Variables as execve wants them, NAME=VALUE; starts as a copy of this process's.
class Environment {
 public:
  Environment();

  void set(std::string_view name, std::string_view value);
  /// Null when it is not set.
  const char* get(std::string_view name) const;
  const std::vector<std::string>& entries() const { return entries_; }

 private:
  std::vector<std::string> entries_;
};

/// Adds the user's NAME=VALUE; throws InvalidArgument for anything else and for what differs from rank to
/// rank.
void add_user_variables(Environment& environment, const std::vector<std::string>& assignments);

/// What all ranks of a job share: its token, torchrun's meeting point, and a fair number of OpenMP threads.
/// Variables of `assignments` win, except for the token.
Environment job_environment(const std::string& token, Rank n, std::size_t cpus,
                            const std::vector<std::string>& assignments);

/// A rank in its job, and among those of its host.
struct RankPlace {
  Rank rank, size;
  Rank local_rank, local_size;
};

/// STARLING_RANK, RANK and their like.
Environment rank_environment(const Environment& job, const RankPlace& place);
/// The same, where all are on one host.
Environment rank_environment(const Environment& job, Rank rank, Rank n);

/// A TCP port that is free on this machine at this moment.
int free_port();

/// 32 random hexadecimal digits.
std::string random_token();

}  // namespace starling::launch
