#include "tool/store_host.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <iostream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/network/store/protocol.h"
#include "starling/fabric/network/store/supervisor.h"
#include "starling/fabric/plugin.h"
#include "starling/launch/environment.h"
#include "tool/command.h"
#include "tool/program.h"

namespace starling::tool {
namespace {

constexpr const char* kCommand = "host-store";

// Raises the limit on open files, because every rank has one or two connections.
void allow_many_files() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

void tell_people(const std::string& text) {
  std::cerr << fmt::format("starling: {}\n", text) << std::flush;
}

// The store's process. Standard input brings the token in a line, where no other process can see it; its end
// also ends this process. Standard output reports the port, or why there is none.
void host(const std::string& address) {
  bool ready = false;
  try {
    std::string token;
    std::getline(std::cin, token);
    network::check_token(token);
    allow_many_files();
    network::StoreSupervisor store(address, token);
    std::cout << "port " << store.where().port << '\n' << std::flush;
    ready = true;
    store.serve(STDIN_FILENO, tell_people);
  } catch (const std::exception& error) {
    ready ? tell_people(error.what()) : static_cast<void>(std::cout << error.what() << '\n' << std::flush);
    exit_status() = 1;
  }
}

std::string read_all(int end, char until) {
  std::string text;
  for (char letter = 0; read(end, &letter, 1) == 1 && letter != until;) text += letter;
  return text;
}

}  // namespace

StoreHost::StoreHost(const std::string& fabric, const std::string& address) : token_(launch::random_token()) {
  check_fabric(fabric);
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
    throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const std::string self = own_path();
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);  // the launcher handles Ctrl-C
    sigset_t none;  // a launcher that restarts its job blocks signals
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl(self.c_str(), self.c_str(), kCommand, address.c_str(), nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  hold_ = in[1];
  fcntl(hold_, F_SETFL, O_NONBLOCK);
  const std::string line = token_ + "\n";
  const bool told = write(hold_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const std::string said = read_all(out[0], '\n');
  close(out[0]);
  constexpr std::string_view kPort = "port ";
  if (!told || !said.starts_with(kPort)) {
    close(hold_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    throw Error(said.empty() ? fmt::format("the store of {} did not start", fabric) : said);
  }
  const int port = std::stoi(said.substr(kPort.size()));
  where_ = network::StoreAddress{address, static_cast<std::uint16_t>(port)}.text();
}

StoreHost::~StoreHost() {
  close(hold_);
  waitpid(pid_, nullptr, 0);
}

void StoreHost::tell_exited(Rank rank) {
  exits_ += fmt::format("{}{}", exits_.empty() ? "" : " ", rank);
  const std::string line = fmt::format("starling/exits={}\n", exits_);
  // If the store is gone, or its pipe is full because it is suspended, nobody needs the notice.
  static_cast<void>(!write(hold_, line.data(), line.size()));
}

void add_host_store(CLI::App& app) {
  auto address = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand(kCommand, "The store in which ranks find each other; starling run starts it");
  command->group("");  // hidden: not for users
  command->add_option("address", *address)->required();
  command->callback([address] { host(*address); });
}

}  // namespace starling::tool
