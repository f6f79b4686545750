#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <iostream>
#include <set>
#include <sstream>
#include <thread>

#include "base/eventually.h"
#include "launch/launched.h"
#include "starling/base/error.h"
#include "starling/base/os/processes.h"
#include "starling/fabric/plugin.h"
#include "starling/flock/flock.h"

// Tests on which addresses the processes of a network job listen, and that no process outlives the launcher.

namespace starling::launch {
namespace {

namespace fs = std::filesystem;

// Inodes of the open sockets of a process.
std::set<std::string> sockets_of(pid_t pid) {
  std::set<std::string> inodes;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    std::error_code ignored;
    const std::string link = fs::read_symlink(entry.path(), ignored);
    if (link.starts_with("socket:[")) inodes.insert(link.substr(8, link.size() - 9));
  }
  return inodes;
}

// The address:port of each listening socket, in the kernel's hexadecimal form.
std::vector<std::string> listens_on(pid_t pid) {
  constexpr const char* kListens = "0A";
  const std::set<std::string> own = sockets_of(pid);
  std::vector<std::string> found;
  for (const char* table : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream file(fmt::format("/proc/{}/net/{}", pid, table));
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >> inode;
      if (own.contains(inode) && (state == kListens || table[0] == 'u')) found.push_back(local);
    }
  }
  return found;
}

// Counts the listening addresses of a job's processes, and checks that all are 127.0.0.1.
int listeners(pid_t launcher) {
  auto processes = descendants(launcher);
  processes.push_back(launcher);
  int count = 0;
  for (const pid_t pid : processes)
    for (const std::string& where : listens_on(pid)) {
      ++count;
      EXPECT_TRUE(where.starts_with("0100007F:")) << pid << " listens on " << where;
    }
  return count;
}

// A zombie has no command line, either.
bool gone(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
  return file.get() == std::char_traits<char>::eof();
}

constexpr const char* kSignal = "LISTENING_TEST_FILE";

// The program of the ranks below: rank 1 joins once the file exists.
TEST(ListeningTest, DISABLED_ARank) {
  const char* file = std::getenv(kSignal);
  ASSERT_NE(file, nullptr);
  fabric::load_fabric("c10d");  // takes most of the time
  if (std::getenv("RANK") == std::string("1")) {
    ASSERT_TRUE(eventually([&] { return fs::exists(file); }));
  }
  const Flock flock = join();
  std::cout << "joined" << std::endl;
  std::this_thread::sleep_for(std::chrono::minutes(1));
}

TEST(ListeningTest, OnlyOnTheChosenInterface) {
  try {
    fabric::check_fabric("c10d");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const fs::path file = fs::temp_directory_path() / fmt::format("starling-listening-{}", getpid());
  Launched job({.words = {"-n", "2", "--fabric", "c10d", "--", fs::read_symlink("/proc/self/exe").string(),
                          "--gtest_also_run_disabled_tests", "--gtest_filter=ListeningTest.DISABLED_ARank"},
                .variables = {fmt::format("{}={}", kSignal, file.string())}});
  // Gloo listens until it is connected, so rank 0 listens while rank 1 is missing; the store always listens.
  EXPECT_TRUE(eventually([&] { return listeners(job.pid()) >= 2; }));
  std::ofstream(file) << "go";
  job.wait_for("joined", 2);
  EXPECT_GE(listeners(job.pid()), 1);
  const auto processes = descendants(job.pid());
  job.signal(SIGKILL);
  for (const pid_t pid : processes)
    EXPECT_TRUE(eventually([&] { return gone(pid); })) << describe_process(pid);
  fs::remove(file);
}

}  // namespace
}  // namespace starling::launch
