#include <fstream>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launch/launched.h"

namespace starling::launch {
namespace {

using testing::HasSubstr;

struct BadUsage {
  std::vector<std::string> words;
  std::string message;
};

const std::vector<BadUsage> kBadUsages = {
    {{"-n", "0", "--", "true"}, "0 not in range 1 to"},
    {{"-n", "x", "--", "true"}, "x"},
    {{"--", "true"}, "give the number of ranks, as in: starling run -n 8"},
    {{"-n", "2"}, "no program to run"},
    {{"-n", "2", "--"}, "no program to run"},
    {{"-n", "2", "no-such-program"}, "'no-such-program' is not in PATH"},
    {{"-n", "--", "true"}, "--ranks: 1 required"},
    {{"-n", "2", "--bogus", "--", "true"}, "no option '--bogus'"},
    {{"-n", "2", "--bogus", "true"}, "no option '--bogus'"},
    {{"-n", "2", "--log-dri", "x"}, "starling run has no option '--log-dri' (did you mean --log-dir?)"},
    {{"-n", "2", "--on-peer-failure", "reweight", "true"},
     "and --on-failure continue is the launcher's part"},
    {{"-n", "2", "--timeline", "/nonexistent/x.json", "true"}, "cannot write /nonexistent/x.json"},
    {{"-n", "2", "--restart-all", "-1", "--", "true"}, "--restart-all: -1 is not a whole number from 0 on"},
    {{"-n", "2", "--fabric", "mpi", "--", "true"}, "as in: STARLING_FABRIC=mpi mpirun -n 4 ./train"},
    {{"-n", "2", "--fabric", "hybrid(mpi)", "true"}, "as in: STARLING_FABRIC='hybrid(mpi)' mpirun -n 4"},
    {{"-n", "2", "--", ""}, "name is empty"},
    {{"-n", "2", "--", "no-such-program"}, "'no-such-program' is not in PATH"},
    {{"-n", "2", "--", "./no-such"}, "'./no-such' does not exist"},
    {{"-n", "2", "--", "/"}, "'/' is a directory"},
    {{"-n", "2", "--", "/etc/passwd"}, "'/etc/passwd' is not executable"},
    {{"-n", "2", "--env", "FOO", "--", "true"}, "--env needs NAME=VALUE, not 'FOO'"},
    {{"-n", "2", "--env", "=1", "--", "true"}, "--env needs NAME=VALUE, not '=1'"},
    {{"-n", "2", "--env", "RANK=1", "--", "true"}, "--env cannot set RANK"},
    {{"-n", "2", "--timeout", "0", "--", "true"}, "positive number of seconds"},
    {{"-n", "2", "--timeout", "nan", "--", "true"}, "positive number of seconds"},
    {{"-n", "2", "--on-failure", "explode", "--", "true"}, "explode"},
    {{"-n", "2", "--log-dir", "/etc/passwd/x", "--", "true"}, "cannot create the log folder"},
};

TEST(RunUsage, ReportsBadUsageInOneLine) {
  for (const BadUsage& bad : kBadUsages) {
    SCOPED_TRACE(bad.message);
    const Finished job({.words = bad.words});
    EXPECT_EQ(job.status, 2);
    EXPECT_EQ(job.out, "");
    EXPECT_THAT(job.err, testing::StartsWith("starling: "));
    EXPECT_THAT(job.err, HasSubstr(bad.message));
    EXPECT_EQ(count(job.err, "\n"), 1) << job.err;
  }
}

TEST(RunUsage, TheProgramBeginsAtTheFirstWordThatIsNotAnOption) {
  const std::vector<std::vector<std::string>> same = {
      {"-n", "1", "--", "echo", "-n", "a", "--", "b", "--bind"},
      {"-n", "1", "echo", "-n", "a", "--", "b", "--bind"},
      {"-n1", "--bind", "--env", "A=1", "--timeout=20", "echo", "-n", "a", "--", "b", "--bind"},
  };
  for (const auto& words : same) {
    const Finished job({.words = words});
    EXPECT_EQ(job.status, 0) << job.err;
    EXPECT_EQ(job.out, "[0] a -- b --bind\n");
  }
  // A program with the name of one of the tool's commands is still a program.
  EXPECT_THAT(Finished({.words = {"-n", "1", "topo"}}).err, HasSubstr("'topo' is not in PATH"));
}

// Whichever call runs out of descriptors first.
TEST(RunUsage, ReportsTooFewOpenFilesWithTheLimit) {
  for (const rlim_t files : {12, 16, 20}) {
    SCOPED_TRACE(files);
    const Finished job({.words = {}, .instead = [&] {
                          const rlimit limit{files, files};
                          setrlimit(RLIMIT_NOFILE, &limit);
                          execl(STARLING_TOOL_PATH, "starling", "run", "-n", "4", "--", "true", nullptr);
                          return 1;
                        }});
    EXPECT_EQ(job.status, 2);
    EXPECT_THAT(job.err,
                HasSubstr("the limit on open files (RLIMIT_NOFILE, ulimit -n) is " + std::to_string(files) +
                          ", and starting 4 ranks needs up to 80: raise it"));
    EXPECT_EQ(count(job.err, "\n"), 1) << job.err;
  }
}

TEST(RunUsage, ReportsAScriptThatCannotStart) {
  const TestFolder folder;
  const auto script = [&](const std::string& name, const std::string& text) {
    const auto path = folder.path / name;
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  };
  for (const auto& [path, hint] : {std::pair(script("a", "#!/no/such/shell\n"), "interpreter"),
                                   std::pair(script("b", "echo hi\n"), "#!/bin/sh")}) {
    const Finished job({.words = {"-n", "3", "--", path}});
    EXPECT_EQ(job.status, 2);
    EXPECT_THAT(job.err, HasSubstr(hint));
    EXPECT_EQ(count(job.err, "\n"), 1) << job.err;
  }
}

}  // namespace
}  // namespace starling::launch
