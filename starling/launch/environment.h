#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

/// Environment variables in the form of execve, NAME=VALUE; initially a copy of this process's.
class Environment {
 public:
  Environment();

  void set(std::string_view name, std::string_view value);
  /// Null if it is not set.
  const char* get(std::string_view name) const;
  const std::vector<std::string>& entries() const { return entries_; }

 private:
  std::vector<std::string> entries_;
};

/// Adds the user's NAME=VALUE assignments. Throws InvalidArgument for malformed ones and for variables that
/// the launcher sets per rank.
void add_user_variables(Environment& environment, const std::vector<std::string>& assignments);

/// The environment that all ranks of a job share: its token, torchrun's MASTER_ADDR and MASTER_PORT, and a
/// fair number of OpenMP threads. `assignments` override these, except for the token.
Environment job_environment(const std::string& token, Rank n, std::size_t cpus,
                            const std::vector<std::string>& assignments);

/// The numbers of a rank in its job and on its host.
struct RankNumbers {
  Rank rank, size;
  Rank local_rank, local_size;
};

/// Adds STARLING_RANK, RANK and the other variables of one rank.
Environment rank_environment(const Environment& job, const RankNumbers& numbers);
/// The same for a job on one host.
Environment rank_environment(const Environment& job, Rank rank, Rank n);

/// A TCP port that is currently free on this machine.
int free_port();

/// 32 random hexadecimal digits.
std::string random_token();

}  // namespace starling::launch
