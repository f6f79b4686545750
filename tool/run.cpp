#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/fabric/plugin.h"
#include "starling/launch/launcher.h"
#include "tool/command.h"
#include "tool/run_hosts.h"
#include "tool/store_host.h"
#include "tool/timeline.h"

namespace starling::tool {
namespace {

std::vector<std::string>& program_words() {
  static std::vector<std::string> words;
  return words;
}

// The file for the ranks' timelines; "" for none.
std::string timeline_file(const launch::LaunchOptions& options) {
  const std::string prefix = environment::kTimeline.assignment("");
  std::string file = environment::kTimeline.text();
  for (const std::string& entry : options.environment)
    if (entry.starts_with(prefix)) file = entry.substr(prefix.size());
  return file;
}

// A problem with the timeline does not make the finished job fail.
void merge_if_any(const std::string& file) {
  try {
    if (timeline_parts(file).empty())
      std::cerr << "starling: no timeline: no rank has left one beside " << file
                << "; programs that join no flock do not\n";
    else
      merge_timeline(file, file);
  } catch (const Error& error) {
    std::cerr << "starling: no timeline: " << error.what() << '\n';
  }
}

int run_here(const launch::LaunchOptions& options, int restarts, const std::string& fabric) {
  std::optional<StoreHost> store;
  return launch::launch(restarts, [&](int attempt) {
    launch::LaunchOptions job = options_of_attempt(options, attempt);
    if (!fabric.empty()) job.environment.push_back(environment::kFabric.assignment(fabric));
    if (const std::string host = store_of(fabric); !host.empty()) {
      store.emplace(host, "127.0.0.1");
      job.token = store->token();
      job.on_exit = [&store](Rank rank) { store->tell_exited(rank); };
      job.environment.push_back(environment::kStore.assignment(store->where()));
      job.environment.push_back(environment::kInterface.assignment("lo"));
    }
    return job;
  });
}

void run(launch::LaunchOptions& options, const HostsOptions& hosts, int restarts, const std::string& fabric,
         const CLI::App& command) {
  options.command = program_words();
  if (const auto unknown = command.remaining(); !unknown.empty())
    throw InvalidArgument(unknown_word(command, unknown.front()) +
                          (unknown.front().starts_with("--on-peer-failure")
                               ? "; the program sets on_peer_failure, and --on-failure continue is the "
                                 "launcher's part"
                               : "; see starling run --help"));
  if (options.command.empty())
    throw InvalidArgument("no program to run; write it last, as in: starling run -n 8 ./train");
  const bool counted = command.count("--ranks") > 0;
  const bool elsewhere = command.count("--hosts") > 0;
  if (!counted && !elsewhere)
    throw InvalidArgument("give the number of ranks, as in: starling run -n 8 ./train; or --hosts a:4,b:4");
  const std::string timeline = timeline_file(options);
  if (!timeline.empty()) check_writable(timeline);
  if (!timeline.empty())
    for (const std::string& old : timeline_parts(timeline)) std::filesystem::remove(old);
  exit_status() = elsewhere ? run_on_hosts(options, counted, hosts, restarts, fabric)
                            : run_here(options, restarts, fabric);
  if (!timeline.empty()) merge_if_any(timeline);
}

// Such ranks do not use a store of ours.
bool engine_starts_ranks(const FabricChoice& choice) {
  return find_fabric(choice.name).join == nullptr && store_of(choice).empty();
}

// The error for a fabric whose ranks are started by its engine.
std::string started_by_engine(const std::string& fabric) {
  for (const FabricChoice& choice : fabric_choices())
    if (text(choice) == fabric && engine_starts_ranks(choice))
      return "starling run does not start ranks of " + fabric +
             "; start them with mpirun, or with srun of a Slurm that knows this MPI, as in: "
             "STARLING_FABRIC=" +
             shell_quoted(fabric) + " mpirun -n 4 ./train";
  return "";
}

bool is_dashes(const char* word) {
  return std::string_view(word) == "--";
}

// The first word that is neither an option nor an option's value, or the --.
char** program_begin(const CLI::App& command, char** word, char** end) {
  for (; word != end && !is_dashes(*word) && **word == '-'; ++word) {
    const CLI::Option* option = command.get_option_no_throw(*word);
    const bool wants_value = option != nullptr && option->get_items_expected_min() > 0;
    if (wants_value && word + 1 != end && !is_dashes(word[1])) ++word;
  }
  return word;
}

}  // namespace

int keep_program(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return argc;
  char** end = argv + argc;
  char** begin = program_begin(*app.get_subcommand("run"), argv + 2, end);
  if (begin != end) program_words().assign(begin + (is_dashes(*begin) ? 1 : 0), end);
  return static_cast<int>(begin - argv);
}

void add_run(CLI::App& app) {
  auto options = std::make_shared<launch::LaunchOptions>();
  auto on_failure = std::make_shared<std::string>();
  auto grace = std::make_shared<std::optional<double>>();
  auto restarts = std::make_shared<int>(0);
  auto timeline = std::make_shared<std::string>();
  auto fabric = std::make_shared<std::string>();
  auto hosts = std::make_shared<HostsOptions>();
  std::vector<std::string> fabrics;
  for (const FabricChoice& choice : fabric_choices())
    if (!engine_starts_ranks(choice)) fabrics.push_back(text(choice));
  CLI::App* command = app.add_subcommand("run", "Start a program as n ranks, on this host or on several");
  command->add_option("-n,--ranks", options->ranks, "number of ranks")
      ->check(CLI::Range(1, launch::kMostRanks));
  command->add_flag("--bind", options->bind, "pin every rank to its share of the cores");
  command
      ->add_option("--log-dir", options->log_dir,
                   "also write each rank's output to rank-K.log in this folder")
      ->type_name("DIR");
  command
      ->add_option("--timeout", options->timeout,
                   "stop the job after this many seconds, with exit status 124")
      ->type_name("SECONDS");
  command->add_option("--env", options->environment, "NAME=VALUE for all ranks; may be repeated")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--timeline", *timeline, "record all operations and merge them into this trace (JSON)")
      ->type_name("FILE");
  command
      ->add_option("--fabric", *fabric,
                   "how messages travel: local (shared memory, default) or over a network; see starling info")
      ->check(CLI::Validator(started_by_engine, ""))
      ->check(CLI::IsMember(fabrics));
  command
      ->add_option("--on-failure", *on_failure,
                   "when a rank fails, stop the others at once or continue (default: stop them after "
                   "--grace seconds, unless the ranks' flock has on_peer_failure = reweight)")
      ->check(CLI::IsMember({"stop", "continue"}));
  command
      ->add_option("--grace", *grace,
                   "seconds that ranks have to end by themselves after a failure, and between SIGTERM and "
                   "SIGKILL (default: 30 after SIGTERM to this command, else 5)")
      ->type_name("SECONDS");
  command
      ->add_option("--restart-all", *restarts,
                   "start the whole job again when it has failed, at most this often; ranks find "
                   "STARLING_RESTART=1, 2, ... and starling train resumes from its last checkpoint")
      ->check(whole_number());
  CLI::Option* on_hosts =
      command
          ->add_option("--hosts", hosts->hosts,
                       "where ranks run, and how many on each host, as in a:4,b:4; needs no -n")
          ->type_name("HOSTS");
  const auto for_hosts = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type)->needs(on_hosts);
  };
  for_hosts("--launcher", hosts->launcher, "COMMAND",
            "program that runs a command line on a host, called with HOST and the line (default: ssh)");
  for_hosts("--interface", hosts->interface, "NAME",
            "network interface between the hosts, the same on all, as in eth0");
  for_hosts("--address", hosts->address, "ADDRESS", "address of this host that the ranks connect to");
  for_hosts("--remote-tool", hosts->tool, "FILE",
            "the starling program on the hosts (default: the same path as here)");
  command->allow_extras();
  command->footer(
      "Ranks find STARLING_RANK, STARLING_SIZE, STARLING_JOB and torchrun's variables in their environment.\n"
      "The exit status is the one of the rank that failed first; 0 where the others continued and "
      "finished.\n\n"
      "Examples:\n  starling run -n 8 ./train --lr 0.1\n  starling run -n 4 --bind --log-dir logs -- "
      "python3 -u train.py\n  starling run --hosts node1:4,node2:4 --interface eth0 ./train\n"
      "  starling run -n 8 --restart-all 3 -- starling train --checkpoint saved\n"
      "  starling run --hosts node1,node2 --launcher 'ssh -p 2222' --env PATH=$PATH python3 train.py");
  command->callback([options, hosts, on_failure, grace, restarts, timeline, fabric, command] {
    if (!timeline->empty()) options->environment.push_back(environment::kTimeline.assignment(*timeline));
    if (!on_failure->empty())
      options->on_failure = *on_failure == "stop" ? launch::OnFailure::stop : launch::OnFailure::keep_going;
    if (*grace) options->grace = options->signal_grace = **grace;
    run(*options, *hosts, *restarts, *fabric, *command);
  });
}

}  // namespace starling::tool
