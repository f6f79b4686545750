#include "tool/run_hosts.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <numeric>
#include <optional>
#include <unistd.h>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/os/child.h"
#include "starling/fabric/plugin.h"
#include "starling/launch/address.h"
#include "starling/launch/environment.h"
#include "starling/launch/host_protocol.h"
#include "tool/command.h"
#include "tool/program.h"
#include "tool/store_host.h"

namespace starling::tool {
namespace {

// ssh must not ask for passwords, and notices within a minute that a host has vanished.
constexpr const char* kSsh = "ssh -T -o BatchMode=yes -o ServerAliveInterval=15";
constexpr const char* kPartCommand = "run-part";

// The variables of our environment that hosts get; variables about this process or this host stay here.
std::vector<std::string> variables_for_hosts() {
  using namespace environment;
  const std::array kStay = {kRank,  kSize,   kJob,          kPart,     kHost,
                            kStore, kFabric, kWorkerErrors, kLauncher, kExits};
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool stays = std::ranges::any_of(
        kStay, [&](const EnvironmentVariable& one) { return text.starts_with(one.assignment("")); });
    if (text.starts_with("STARLING_") && !stays) variables.emplace_back(text);
  }
  return variables;
}

std::string chosen_fabric(const std::string& asked, const std::vector<launch::HostShare>& hosts) {
  std::string fabric = asked.empty() ? environment::kFabric.text() : asked;
  if (fabric.empty()) return hosts.size() == 1 ? "local" : "hybrid";
  if (hosts.size() == 1 && fabric == "local") return fabric;
  if (store_of(fabric).empty()) {
    std::vector<std::string> valid;
    for (const FabricChoice& choice : fabric_choices())
      if (!store_of(choice).empty()) valid.push_back(text(choice));
    throw InvalidArgument(
        fmt::format("--fabric {} does not reach several hosts under starling run; these do: {}", fabric,
                    join_words(valid)));
  }
  return fabric;
}

// The address by which the hosts reach this host.
std::string meeting_address(const HostsOptions& options, const std::string& interface,
                            const std::vector<launch::HostShare>& hosts) {
  if (!options.address.empty()) return options.address;
  if (!interface.empty()) return launch::address_of_interface(interface);
  std::vector<std::string> unknown;
  for (const launch::HostShare& host : hosts) {
    const auto address = launch::address_towards(launch::bare_name(host.name));
    if (!address) unknown.push_back(host.name);
    if (address && !launch::is_loopback(*address)) return *address;
  }
  if (unknown.empty()) return "127.0.0.1";
  throw InvalidArgument(fmt::format("cannot resolve {}; check the names, or pass --address or --interface",
                                    join_words(unknown)));
}

// For programs that use torch.distributed's rendezvous, at rank 0.
std::string address_of_first(const std::string& host, const std::string& ours) {
  const auto address = launch::address_towards(host);
  return address && launch::is_loopback(*address) ? ours : host;
}

std::vector<std::string> launcher_words(const std::string& launcher) {
  std::vector<std::string> words;
  try {
    words = launch::split_words(launcher.empty() ? kSsh : launcher);
    if (words.empty()) throw InvalidArgument("it is empty");
    find_program(words.front(), environment::kPath.value());
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("--launcher: {}", error.what()));
  }
  return words;
}

}  // namespace

std::string store_of(const std::string& fabric) {
  for (const FabricChoice& choice : fabric_choices())
    if (text(choice) == fabric) return store_of(choice);
  return "";
}

launch::LaunchOptions options_of_attempt(const launch::LaunchOptions& job, int attempt) {
  launch::LaunchOptions options = job;
  if (attempt > 0) options.environment.push_back(environment::kRestart.assignment(std::to_string(attempt)));
  options.append_logs = attempt > 0;
  return options;
}

int run_on_hosts(const launch::LaunchOptions& asked, bool counted, const HostsOptions& options, int restarts,
                 const std::string& fabric) {
  const auto hosts = launch::parse_hosts(options.hosts);
  const Rank size = std::accumulate(hosts.begin(), hosts.end(), Rank{0},
                                    [](Rank sum, const launch::HostShare& host) { return sum + host.ranks; });
  if (counted && asked.ranks != size)
    throw InvalidArgument(
        fmt::format("-n {} but --hosts has {} ranks in all; -n is not needed", asked.ranks, size));
  launch::Environment checked;
  launch::add_user_variables(checked, asked.environment);

  std::optional<StoreHost> store;
  return launch::launch(restarts, [&](int attempt) {
    const launch::LaunchOptions job = options_of_attempt(asked, attempt);
    launch::LaunchOptions outer = job;
    outer.ranks = size;
    outer.command = launcher_words(options.launcher);
    launch::StartMessage start{launch::random_token(), 0,          1, size, job.bind,
                               variables_for_hosts(),  job.command};
    const auto set = [&](const char* name, const std::string& value) {
      start.environment.push_back(fmt::format("{}={}", name, value));
    };
    const std::string between = chosen_fabric(fabric, hosts);
    set(environment::kFabric.name, between);
    if (const std::string host = store_of(between); !host.empty()) {
      const std::string interface =
          options.interface.empty() ? environment::kInterface.text() : options.interface;
      const std::string address = meeting_address(options, interface, hosts);
      store.emplace(host, address);
      start.token = store->token();
      outer.on_exit = [&store](Rank rank) { store->tell_exited(rank); };
      set(environment::kStore.name, store->where());
      if (!interface.empty()) set(environment::kInterface.name, interface);
      if (hosts.size() > 1) {
        set("MASTER_ADDR", address_of_first(launch::bare_name(hosts.front().name), address));
        set("MASTER_PORT", std::to_string(launch::free_port()));
      }
    }
    start.environment.insert(start.environment.end(), job.environment.begin(), job.environment.end());

    const std::string tool = options.tool.empty() ? own_path() : options.tool;
    const std::string line = fmt::format("cd {} && exec {} {}", shell_quoted(std::filesystem::current_path()),
                                         shell_quoted(tool), kPartCommand);
    for (const launch::HostShare& host : hosts) {
      start.ranks = host.ranks;
      outer.hosts.push_back({host.name, host.ranks, line, encode(start)});
      start.first += host.ranks;
    }
    return outer;
  });
}

namespace {

// The interface through which this host reaches the store is the one through which other hosts reach it. An
// interface that Starling or the user has chosen for Gloo takes precedence.
void choose_interface(std::vector<std::string>& environment) {
  const std::string assigns_store = environment::kStore.assignment("");
  std::string store;
  for (const std::string& entry : environment) {
    for (const EnvironmentVariable& chosen : {environment::kInterface, environment::kGlooInterface})
      if (entry.starts_with(chosen.assignment(""))) return;
    if (entry.starts_with(assigns_store)) store = entry.substr(assigns_store.size());
  }
  if (store.empty() || !environment::kGlooInterface.text().empty()) return;
  std::string address = store.substr(0, store.rfind(':'));
  if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
  const auto mine = launch::address_towards(address);
  if (!mine) throw Error(fmt::format("no route from this host to {}, where the job was started", address));
  if (const std::string name = launch::interface_with(*mine); !name.empty())
    environment.push_back(environment::kInterface.assignment(name));
}

void run_part() {
  if (isatty(STDIN_FILENO) != 0) throw InvalidArgument("this command is only for starling run --hosts");
  launch::StartMessage start = launch::read_start_message(STDIN_FILENO);
  choose_interface(start.environment);
  launch::LaunchOptions options;
  options.ranks = start.ranks;
  options.command = start.command;
  options.environment = start.environment;
  options.bind = start.bind;
  options.token = start.token;
  options.part = launch::JobPart{start.first, start.size};
  options.on_failure = launch::OnFailure::keep_going;  // the main launcher decides
  exit_status() = launch::launch(options);
}

}  // namespace

void add_run_part(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand(kPartCommand, "The ranks of one host; starling run --hosts starts it there");
  command->group("");  // hidden: not for users
  command->callback(run_part);
}

}  // namespace starling::tool
