#include "starling/launch/environment.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/os/descriptor.h"
#include "starling/base/os/system_random.h"

namespace starling::launch {
namespace {

constexpr std::array<std::string_view, 9> kSetByLauncher = {
    environment::kRank.name,      environment::kSize.name,           environment::kJob.name,
    environment::kPart.name,      environment::kLauncher.name,       environment::kTorchRank.name,
    environment::kTorchSize.name, environment::kTorchLocalRank.name, environment::kTorchLocalSize.name};

bool names(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
}

}  // namespace

// Rank 0 will bind the port soon. Without sockets, returns the usual port: the job may not need one.
int free_port() {
  constexpr int kUsual = 29500;
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!socket || bind(socket.get(), any, size) != 0 || getsockname(socket.get(), any, &size) != 0)
    return kUsual;
  return ntohs(address.sin_port);
}

Environment::Environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries_.emplace_back(*entry);
}

void Environment::set(std::string_view name, std::string_view value) {
  std::erase_if(entries_, [&](const std::string& entry) { return names(entry, name); });
  entries_.push_back(fmt::format("{}={}", name, value));
}

const char* Environment::get(std::string_view name) const {
  const auto found =
      std::ranges::find_if(entries_, [&](const std::string& entry) { return names(entry, name); });
  return found == entries_.end() ? nullptr : found->c_str() + name.size() + 1;
}

void add_user_variables(Environment& environment, const std::vector<std::string>& assignments) {
  for (const std::string& assignment : assignments) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0)
      throw InvalidArgument(fmt::format("--env needs NAME=VALUE, not '{}'", assignment));
    const std::string_view name = std::string_view(assignment).substr(0, equals);
    if (std::ranges::find(kSetByLauncher, name) != kSetByLauncher.end())
      throw InvalidArgument(fmt::format("--env cannot set {}: starling run sets it", name));
    environment.set(name, std::string_view(assignment).substr(equals + 1));
  }
}

Environment job_environment(const std::string& token, Rank n, std::size_t cpus,
                            const std::vector<std::string>& assignments) {
  Environment environment;
  environment.set(environment::kMasterAddress.name, "127.0.0.1");
  environment.set(environment::kMasterPort.name, std::to_string(free_port()));
  if (environment.get(environment::kOmpThreads.name) == nullptr)
    environment.set(environment::kOmpThreads.name,
                    std::to_string(std::max<std::size_t>(1, cpus / static_cast<std::size_t>(n))));
  add_user_variables(environment, assignments);
  environment.set(environment::kJob.name, token);
  return environment;
}

Environment rank_environment(const Environment& job, const RankNumbers& numbers) {
  Environment environment = job;
  for (const std::string_view name : {environment::kRank.name, environment::kTorchRank.name})
    environment.set(name, std::to_string(numbers.rank));
  for (const std::string_view name : {environment::kSize.name, environment::kTorchSize.name})
    environment.set(name, std::to_string(numbers.size));
  environment.set(environment::kTorchLocalRank.name, std::to_string(numbers.local_rank));
  environment.set(environment::kTorchLocalSize.name, std::to_string(numbers.local_size));
  return environment;
}

Environment rank_environment(const Environment& job, Rank rank, Rank n) {
  return rank_environment(job, {rank, n, rank, n});
}

std::string random_token() {
  std::array<std::uint64_t, 2> bits{};
  fill_random(std::as_writable_bytes(std::span(bits)));
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace starling::launch
