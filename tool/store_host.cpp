#include "tool/store_host.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <iostream>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/plugin.h"
#include "tool/bench_program.h"
#include "tool/command.h"

namespace starling::tool {
namespace {

constexpr const char* kCommand = "host-store";

// What it says goes to standard output: the port, or why there is none.
void host(const std::string& fabric, const std::string& address) {
  std::uint16_t port = 0;
  std::shared_ptr<void> store;
  try {
    const FabricPlugin& plugin = load_fabric(fabric);
    if (plugin.host == nullptr) throw Error(fmt::format("ranks of {} meet without a store", fabric));
    store = plugin.host(address, port);
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    exit_status() = 1;
    return;
  }
  std::cout << "port " << port << std::endl;
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
}

std::string read_all(int end, char until) {
  std::string text;
  for (char letter = 0; read(end, &letter, 1) == 1 && letter != until;) text += letter;
  return text;
}

}  // namespace

StoreHost::StoreHost(const std::string& fabric, const std::string& address) {
  int in[2];
  int out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
    throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const std::string self = own_path();
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);  // Ctrl-C is for the launcher
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl(self.c_str(), self.c_str(), kCommand, fabric.c_str(), address.c_str(), nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  hold_ = in[1];
  const std::string said = read_all(out[0], '\n');
  close(out[0]);
  constexpr std::string_view kPort = "port ";
  if (!said.starts_with(kPort)) {
    close(hold_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    throw Error(said.empty() ? fmt::format("the store of {} did not start", fabric) : said);
  }
  where_ = fmt::format("{}:{}", address, said.substr(kPort.size()));
}

StoreHost::~StoreHost() {
  close(hold_);
  waitpid(pid_, nullptr, 0);
}

void add_host_store(CLI::App& app) {
  auto fabric = std::make_shared<std::string>();
  auto address = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(kCommand, "The store where ranks meet; starling run starts it");
  command->group("");  // not for people
  command->add_option("fabric", *fabric)->required();
  command->add_option("address", *address)->required();
  command->callback([fabric, address] { host(*fabric, *address); });
}

}  // namespace starling::tool
