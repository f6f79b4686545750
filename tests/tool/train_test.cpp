#include <chrono>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "base/eventually.h"
#include "starling/base/os/program.h"
#include "tool/tool_runner.h"
#include "tool/training_logs.h"

// `starling train` as a user runs it: without a launcher it starts its own workers.
namespace starling::tool {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kData = "synthetic(train=600,test=100)";

ToolRun train_tool(std::vector<std::string> more) {
  std::vector<std::string> words = {"train", "--data", kData, "--workers", "2", "--epochs", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return run_tool(words);
}

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(TrainCommand, WritesALogAReportAndCheckpoints) {
  const Folder folder;
  const ToolRun run = train_tool({"--report", folder.path("run.html"), "--checkpoint", folder.path("saved"),
                                  "--alpha", "0.5", "--lr", "0.02", "--reports", "5"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, AllOf(HasSubstr("2 workers, dsgd-awc on one-peer-exponential, momentum(lr=0.02)"),
                             HasSubstr("images/s"), HasSubstr("done: 10 steps")));
  EXPECT_THAT(run.out,
              testing::ContainsRegex("^[0-9][0-9]:[0-9][0-9]:[0-9][0-9] starting 2 workers: lenet on"));
  const auto log = read_log(folder.path("run.jsonl"));
  ASSERT_GE(log.size(), 3U);
  EXPECT_EQ(log.front().at("kind"), "run");
  EXPECT_EQ(log.front().at("workers"), 2);
  EXPECT_EQ(log.front().at("experiment").at("partition"), "dirichlet(0.5)");
  EXPECT_EQ(log.front().at("experiment").at("optimizer"), "momentum(lr=0.02)");
  EXPECT_THAT(log.front().at("command"), HasSubstr("--alpha 0.5"));
  EXPECT_EQ(log.back().at("kind"), "end");
  const auto reports = of_kind(log, "report");
  EXPECT_EQ(reports.size(), 5U);
  for (const char* key :
       {"loss", "test_accuracy", "test_loss", "local_accuracy", "consensus_distance", "bytes_sent", "waiting",
        "combining", "computing", "workers", "taking_part", "images_per_second"})
    EXPECT_TRUE(reports.back().contains(key)) << key;
  EXPECT_GT(reports.back().at("bytes_sent"), 0);
  EXPECT_TRUE(read_file(folder.path("run.html")).find("lenet on synthetic(train=600") != std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder.path("saved/step-000000010")));
}

// The error comes before anything is fetched or started.
TEST(TrainCommand, RefusesAModelForAnotherKindOfData) {
  const ToolRun run = run_tool({"train", "--data", "cifar10", "--model", "transformer"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("transformer learns text, and this data is images; valid are lenet"));
  EXPECT_EQ(run.out, "");
}

TEST(TrainCommand, StopsADivergingRunAndNamesItsFirstBadStep) {
  const Folder folder;
  const ToolRun run =
      train_tool({"--model", "mlp", "--optimizer", "sgd(lr=1e6)", "--epochs", "50", "--metrics",
                  folder.path("run.jsonl"), "--checkpoint", folder.path("saved")});
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_THAT(run.err, testing::ContainsRegex(
                           "starling: diverged: rank [01]'s loss was not a finite number in step [1-9]"));
  EXPECT_THAT(run.out, HasSubstr("diverged: "));
  const auto log = read_log(folder.path("run.jsonl"));
  EXPECT_EQ(log.back().at("kind"), "end");
  EXPECT_LT(log.back().at("diverged_step"), 10);
  EXPECT_LE(log.back().at("step"), 20);
  for (const json& report : of_kind(log, "report"))  // an epoch has 10 steps
    EXPECT_NEAR(report.at("epoch").get<double>(), report.at("step").get<double>() / 10, 1e-9);
  EXPECT_FALSE(std::filesystem::exists(folder.path("saved/step-000000010")));
}

// Own models and the mean model are evaluated on the same samples: equal models get equal results.
TEST(TrainCommand, EvaluatesOwnModelsAndTheMeanOnTheSameSamples) {
  const Folder folder;
  ASSERT_EQ(train_tool({"--method", "allreduce", "--local-test", "30", "--metrics", folder.path("run.jsonl")})
                .status,
            0);
  const json last = of_kind(read_log(folder.path("run.jsonl")), "report").back();
  EXPECT_EQ(last.at("local_mean_accuracy"), last.at("local_accuracy"));
}

TEST(TrainCommand, DoesTheSameFromAFileAndUnderALauncher) {
  const Folder folder;
  ASSERT_EQ(train_tool({"--method", "dsgd-atc", "--topology", "ring", "--batch", "16", "--lr", "0.02",
                        "--metrics", folder.path("flags.jsonl")})
                .status,
            0);
  const std::string file =
      folder.write("run.toml", "data = \"" + kData +
                                   "\"\nworkers = 2\nepochs = 7\nmethod = \"dsgd-atc\"\ntopology = \"ring\"\n"
                                   "batch = 16\noptimizer = \"momentum\"\nlr = 0.02\n");
  const ToolRun from_file =
      run_tool({"train", "--config", file, "--epochs", "1", "--metrics", folder.path("file.jsonl")});
  ASSERT_EQ(from_file.status, 0) << from_file.err;
  const ToolRun launched = run_tool({"run", "-n", "2", "--", STARLING_TOOL_PATH, "train", "--config", file,
                                     "--epochs", "1", "--metrics", folder.path("launched.jsonl")});
  ASSERT_EQ(launched.status, 0) << launched.err;
  for (const char* other : {"file.jsonl", "launched.jsonl"}) {
    EXPECT_EQ(last_result(folder.path(other)), last_result(folder.path("flags.jsonl")));
    EXPECT_EQ(read_log(folder.path(other)).front().at("experiment"),
              read_log(folder.path("flags.jsonl")).front().at("experiment"));
  }
}

TEST(TrainCommand, WorkersMayBeThreadsOfOneProcess) {
  const Folder folder;
  const auto train = [&](const std::string& processes) {
    return train_tool({"--workers", "3", "--model", "mlp", "--processes", processes, "--metrics",
                       folder.path(processes + ".jsonl"), "--checkpoint", folder.path(processes)});
  };
  ASSERT_EQ(train("each").status, 0);
  const ToolRun one = train("one");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.err, "");
  EXPECT_THAT(one.out, HasSubstr("starting 3 workers in one process: mlp on"));
  EXPECT_EQ(last_result(folder.path("one.jsonl")), last_result(folder.path("each.jsonl")));
  const ToolRun resumed = train_tool({"--workers", "3", "--model", "mlp", "--processes", "each", "--epochs",
                                      "2", "--checkpoint", folder.path("one"), "--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("resumed from the checkpoint of step"));
}

TEST(TrainCommand, ThreadsOfOneProcessReportADivergedRunAsProcessesDo) {
  const ToolRun run =
      train_tool({"--model", "mlp", "--optimizer", "sgd(lr=1e6)", "--epochs", "50", "--processes", "one"});
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_EQ(lines_in(run.err), 1U) << run.err;
  EXPECT_THAT(run.err, HasSubstr("starling: diverged: rank "));
}

TEST(TrainCommand, CommandLineWinsOverAConflictingSettingOfTheFile) {
  const Folder folder;
  const std::string file =
      folder.write("run.toml", "partition = \"dirichlet(0.3)\"\noptimizer = \"adam(lr=0.5)\"\n");
  ASSERT_EQ(
      train_tool({"--config", file, "--alpha", "5", "--lr", "0.002", "--metrics", folder.path("a.jsonl")})
          .status,
      0);
  const json first = read_log(folder.path("a.jsonl")).front().at("experiment");
  EXPECT_EQ(first.at("partition"), "dirichlet(5)");
  EXPECT_EQ(first.at("optimizer"), "adam(lr=0.002)");
  const std::string other = folder.write("other.toml", "alpha = 0.3\nlr = 0.5\n");
  ASSERT_EQ(train_tool({"--config", other, "--partition", "iid", "--optimizer", "adam(lr=0.001)", "--metrics",
                        folder.path("b.jsonl")})
                .status,
            0);
  const json second = read_log(folder.path("b.jsonl")).front().at("experiment");
  EXPECT_EQ(second.at("partition"), "iid");
  EXPECT_EQ(second.at("optimizer"), "adam(lr=0.001)");
}

TEST(TrainCommand, SaysWhatIsWrongInOneLine) {
  const Folder folder;
  bool started = false;
  const auto refuses = [&](std::vector<std::string> words, const std::string& why) {
    const ToolRun run = train_tool(std::move(words));
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_THAT(run.err, AllOf(testing::StartsWith("starling: "), HasSubstr(why)));
    EXPECT_EQ(lines_in(run.err), 1U) << run.err;
    EXPECT_EQ(lines_in(run.out), started ? 1U : 0U) << run.out;
  };
  // Detected before there are workers.
  refuses({"--lr", "-1"}, "--lr: lr = -1 is not a number above 0");
  refuses({"--lr", "nan"}, "lr = nan");
  refuses({"--drop", "2"}, "--drop: drop = 2: must be a share of messages, from 0 to below 1");
  refuses({"--accumulation", "0"}, "accumulation = 0: a step takes at least one batch");
  refuses({"--on-nonfinite", "maybe"}, "unknown on_nonfinite 'maybe'; valid are raise, skip, ignore");
  refuses({"--alpha", "0.1", "--partition", "contiguous"},
          "alpha = 0.1 and partition = contiguous contradict each other");
  refuses({"--report", "/nowhere/x.html"}, "/nowhere/x.html");
  refuses({"--resume"}, "--checkpoint DIR");
  refuses({"--checkpoint", "x", "--resume", "last"}, "last is neither newest nor the number of a step");
  refuses({"--checkpoint-every", "0.5"}, "--checkpoint-every needs --checkpoint DIR");
  refuses({"--keep", "2"}, "--keep needs --checkpoint DIR");
  refuses({"--config", folder.write("bad.toml", "\nlr = -2.5\n")}, "bad.toml, line 2: lr = -2.5");
  refuses({"--topology", "base(q=1)"}, "base has no parameter 'q'; valid are k=1");
  refuses({"--topology", "hypercube", "--workers", "3"}, "power of two");
  refuses({"--message", "bf61"}, "unknown wire format 'bf61' (did you mean bf16?)");
  refuses({"--model", "mlp(widht=5)"}, "mlp has no parameter 'widht' (did you mean width?)");
  refuses({"--data", "synthetic(tarin=5)"}, "synthetic has no parameter 'tarin' (did you mean train?)");
  refuses({"--partition", "dirichlet(alhpa=1)"}, "dirichlet has no parameter 'alhpa' (did you mean alpha?)");
  refuses({"--partition", "dirichlet(alpha=0)"}, "alpha=0 is not valid");
  refuses({"--batch", "0"}, "batch = 0");
  refuses({"--method", "allreduce", "--topology", "rign"}, "unknown topology 'rign' (did you mean ring?)");
  refuses({"--method", "dsgd"}, "unknown method 'dsgd' (did you mean dsgd-atc or dsgd-awc?)");
  refuses({"--method", "dsgd-awd"}, "unknown method 'dsgd-awd' (did you mean dsgd-awc?)");
  refuses({"--processes", "two"}, "processes = two: each, one or auto");
  refuses({"--processes", "one", "--on-peer-failure", "reweight"}, "the threads of a process die together");
  refuses({"--processes", "one", "--eager", "true", "--device", "auto"}, "use --processes each");
  // Detected by all workers, printed once.
  started = true;
  refuses({"--checkpoint", "/proc/nowhere", "--processes", "one"},
          "cannot write checkpoints to /proc/nowhere");
  refuses({"--checkpoint", "/proc/nowhere"}, "cannot write checkpoints to /proc/nowhere");
  refuses({"--checkpoint", folder.path("empty"), "--resume", "5"}, "no checkpoint of step 5");
}

// A run of about a second, long enough to be disturbed.
std::vector<std::string> long_run(const std::string& metrics, const std::string& on_peer_failure) {
  return {"train",
          "--data",
          "synthetic(train=3000,test=200)",
          "--workers",
          "3",
          "--epochs",
          "3",
          "--lr",
          "0.02",
          "--metrics",
          metrics,
          "--on-peer-failure",
          on_peer_failure};
}

void kill_rank(const StartedTool& job, int rank, const std::string& metrics) {
  ASSERT_TRUE(eventually([&] { return of_kind(read_log(metrics), "report").size() >= 3; }));
  const pid_t worker = process_of_rank(job.pid(), rank);
  ASSERT_GT(worker, 0);
  ASSERT_EQ(kill(worker, SIGKILL), 0);
}

TEST(TrainCommand, StopsWhenAWorkerDies) {
  const Folder folder;
  StartedTool job(long_run(folder.path("m.jsonl"), "raise"));
  kill_rank(job, 1, folder.path("m.jsonl"));
  const ToolRun run = job.finish();
  EXPECT_EQ(run.status, 137);
  EXPECT_THAT(run.err, HasSubstr("worker 1 was killed (SIGKILL); the others have 5 s to end"));
  EXPECT_LE(lines_in(run.err), 2U) << run.err;
  EXPECT_THAT(of_kind(read_log(folder.path("m.jsonl")), "end"), testing::IsEmpty());
}

TEST(TrainCommand, ContinuesWithoutTheRankThatWroteTheLog) {
  const Folder folder;
  auto words = long_run(folder.path("m.jsonl"), "reweight");
  for (const char* word : {"--epochs", "1", "--data", "synthetic(train=9000,test=200)"})
    words.emplace_back(word);
  StartedTool job(words);
  kill_rank(job, 0, folder.path("m.jsonl"));
  const ToolRun run = job.finish();
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("starling: worker 0 was killed (SIGKILL); 2 of 3 continue, its data is "
                                 "redistributed at the next epoch\n"));
  EXPECT_THAT(run.out + run.err, Not(HasSubstr("died"))) << "it is said once";
  const auto log = read_log(folder.path("m.jsonl"));
  EXPECT_EQ(log.front().at("kind"), "run");
  EXPECT_EQ(of_kind(log, "run").size(), 1U);
  const auto lost = of_kind(log, "worker_died");
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].at("rank"), 0);
  EXPECT_EQ(of_kind(log, "report").back().at("workers"), 2);
  EXPECT_EQ(log.back().at("kind"), "end");
}

// The visible part of each line on a terminal: the text after the last erasure.
std::vector<std::string> shown_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t erased = line.rfind("\r\033[K");
    lines.push_back(erased == std::string::npos ? line : line.substr(erased + 4));
    while (lines.back().ends_with('\r')) lines.back().pop_back();
  }
  return lines;
}

TEST(TrainCommand, PrintsADeathOnItsOwnLineAtATerminal) {
  const Folder folder;
  auto words = long_run(folder.path("m.jsonl"), "reweight");
  for (const char* word : {"--data", "synthetic(train=6000,test=200)", "--reports", "20"})
    words.emplace_back(word);
  StartedTool job(words, StartedTool::Output::terminal);
  kill_rank(job, 1, folder.path("m.jsonl"));
  const ToolRun run = job.finish();
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("\r\033[K[")) << "no progress bar to write over";
  std::vector<std::string> told;
  for (const std::string& line : shown_lines(run.out))
    if (line.find("worker 1") != std::string::npos || line.find("died") != std::string::npos ||
        line.find("killed") != std::string::npos)
      told.push_back(line);
  EXPECT_THAT(told,
              testing::ElementsAre("starling: worker 1 was killed (SIGKILL); 2 of 3 continue, its data is "
                                   "redistributed at the next epoch"))
      << run.out;
}

TEST(TrainCommand, EndsTheSameWhenKilledAndResumed) {
  const Folder folder;
  const auto words = [&](const std::string& name) {
    auto all = long_run(folder.path(name + ".jsonl"), "raise");
    for (const std::string& word : {std::string("--checkpoint"), folder.path(name),
                                    std::string("--checkpoint-every"), std::string("0.25")})
      all.push_back(word);
    return all;
  };
  ASSERT_EQ(run_tool(words("whole")).status, 0);
  const std::string metrics = folder.path("killed.jsonl");
  {
    StartedTool job(words("killed"));
    ASSERT_TRUE(eventually([&] { return of_kind(read_log(metrics), "report").size() >= 14; }));
    job.signal(SIGKILL);
  }
  ASSERT_THAT(of_kind(read_log(metrics), "end"), testing::IsEmpty()) << "it was not killed in time";
  // Truncates the log as if the run had been killed while writing it.
  std::filesystem::resize_file(metrics, std::filesystem::file_size(metrics) - 20);
  auto again = words("killed");
  again.emplace_back("--resume");
  const ToolRun run = run_tool(again);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("resumed from the checkpoint of step"));
  EXPECT_EQ(of_kind(read_log(metrics), "resume").size(), 1U);
  EXPECT_EQ(last_result(metrics), last_result(folder.path("whole.jsonl")));
}

std::vector<std::string> with_checkpoints(std::vector<std::string> words, const std::string& folder) {
  for (const std::string& word :
       {std::string("--checkpoint"), folder, std::string("--checkpoint-every"), std::string("0.25")})
    words.push_back(word);
  return words;
}

TEST(TrainCommand, ResumesByItselfWhenAllRanksWereKilled) {
  const Folder folder;
  const auto words = [&](const std::string& name) {
    return with_checkpoints(long_run(folder.path(name + ".jsonl"), "reweight"), folder.path(name));
  };
  ASSERT_EQ(run_tool(words("whole")).status, 0);
  const std::string metrics = folder.path("killed.jsonl");
  std::vector<std::string> all = {"run", "-n", "3", "--restart-all", "1", STARLING_TOOL_PATH};
  for (const std::string& word : words("killed")) all.push_back(word);
  StartedTool job(all);
  ASSERT_TRUE(eventually([&] { return of_kind(read_log(metrics), "report").size() >= 14; }));
  for (const int rank : {0, 1, 2}) {
    const pid_t worker = process_of_rank(job.pid(), rank);
    ASSERT_GT(worker, 0);
    ASSERT_EQ(kill(worker, SIGKILL), 0);
  }
  const ToolRun run = job.finish();
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("restarting all ranks (restart 1 of 1)"));
  EXPECT_THAT(run.out, HasSubstr("resumed from the checkpoint of step"));
  EXPECT_EQ(of_kind(read_log(metrics), "resume").size(), 1U);
  EXPECT_EQ(last_result(metrics), last_result(folder.path("whole.jsonl")));
}

TEST(TrainCommand, FailsWhereTheLastCheckpointCouldNotBeWritten) {
  const Folder folder;
  const std::string metrics = folder.path("m.jsonl");
  StartedTool job(with_checkpoints(long_run(metrics, "raise"), folder.path("saved")));
  ASSERT_TRUE(eventually([&] { return of_kind(read_log(metrics), "report").size() >= 3; }));
  std::filesystem::rename(folder.path("saved"), folder.path("moved"));
  folder.write("saved", "not a folder");
  const ToolRun run = job.finish();
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("Not a directory"));
  EXPECT_THAT(run.out, AllOf(HasSubstr("could not write the checkpoint of step"),
                             HasSubstr("the exit status will be 1"), HasSubstr("done:")));
  EXPECT_EQ(of_kind(read_log(metrics), "not_saved").size(), 1U);
  EXPECT_EQ(of_kind(read_log(metrics), "end").size(), 1U) << "training goes on";
}

// A disk that is too small for any checkpoint.
TEST(TrainCommand, FailsOnAFullDiskAndLeavesNothing) {
  const Folder folder;
  std::filesystem::create_directories(folder.path("disk"));
  const auto unshare = in_path("unshare");
  const auto in_namespace = [&](const std::string& script) {
    return run_program({*unshare, "-m", "sh", "-c",
                        "mount -t tmpfs -o size=100k none " + folder.path("disk") + " && " + script},
                       std::chrono::seconds(120));
  };
  if (!unshare || !in_namespace("true").succeeded()) GTEST_SKIP() << "needs a mount namespace";
  const std::string train = std::string(STARLING_TOOL_PATH) + " train --data '" + kData +
                            "' --workers 2 --epochs 1 --checkpoint " + folder.path("disk") +
                            "/saved --checkpoint-every 0.25";
  const auto run = in_namespace(train + "; status=$?; ls " + folder.path("disk") +
                                "/saved | sed 's/^/left: /'; exit $status");
  EXPECT_EQ(run.ending.exit_status(), 1) << run.out << run.err;
  EXPECT_THAT(run.err, HasSubstr("No space left on device"));
  EXPECT_THAT(run.out, AllOf(HasSubstr("could not write the checkpoint of step"), HasSubstr("done:"),
                             Not(HasSubstr("left:"))));
}

TEST(TrainCommand, ReportsThatTheRunIsComplete) {
  const Folder folder;
  const auto again = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--checkpoint", folder.path("saved"), "--checkpoint-every", "0.5", "--metrics",
                             folder.path("m.jsonl")});
    return train_tool(more);
  };
  ASSERT_EQ(again({}).status, 0);
  const std::string log = read_file(folder.path("m.jsonl"));
  const std::string complete = "nothing to do: the run is complete at step 10; pass --epochs above";
  const ToolRun run = again({"--resume"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr(complete));
  EXPECT_EQ(lines_in(run.out + run.err), 2U) << run.out << run.err;  // the first line says what is started
  EXPECT_EQ(read_file(folder.path("m.jsonl")), log);
  // A log without its end record gets only that record.
  folder.write("m.jsonl", log.substr(0, log.rfind("{\"kind\":\"end\"")));
  EXPECT_THAT(again({"--resume"}).out, HasSubstr(complete));
  const auto ended = read_log(folder.path("m.jsonl"));
  EXPECT_EQ(ended.back().at("kind"), "end");
  EXPECT_EQ(lines_in(read_file(folder.path("m.jsonl"))), lines_in(log));
  const ToolRun longer = again({"--resume", "--epochs", "2"});
  EXPECT_EQ(longer.status, 0) << longer.err;
  EXPECT_THAT(longer.out,
              AllOf(HasSubstr("resumed from the checkpoint of step 10"), HasSubstr("done: 20 steps")));
}

TEST(TrainCommand, FailsWhereItsOutputCannotBeWritten) {
  const std::string line =
      std::string(STARLING_TOOL_PATH) + " train --data '" + kData + "' --workers 2 --epochs 1 > /dev/full";
  const auto run = run_program({"/bin/sh", "-c", line}, std::chrono::seconds(60));
  EXPECT_EQ(run.ending.exit_status(), 2);
  EXPECT_EQ(run.err, "starling: cannot write to standard output\n");
}

// The user has forgotten --resume.
TEST(TrainCommand, DoesNotReplaceTheCheckpointsOfAnotherRun) {
  const Folder folder;
  const std::vector<std::string> words = {"--checkpoint", folder.path("saved")};
  ASSERT_EQ(train_tool(words).status, 0);
  const std::string why = folder.path("saved") +
                          " has checkpoints of an earlier run, the last of step 10, which a new run would "
                          "replace; continue that run with --resume, or give another folder\n";
  const ToolRun again = train_tool(words);
  EXPECT_EQ(again.status, 2);
  EXPECT_EQ(again.err, "starling: " + why);
  EXPECT_EQ(again.out, "");
  const ToolRun launched = run_tool({"run", "-n", "2", "--", STARLING_TOOL_PATH, "train", "--data", kData,
                                     "--epochs", "1", "--checkpoint", folder.path("saved")});
  EXPECT_EQ(launched.status, 2);
  EXPECT_THAT(launched.err, HasSubstr(why));
  EXPECT_TRUE(std::filesystem::exists(folder.path("saved/step-000000010")));
}

TEST(TrainCommand, StartsFromScratchWithoutACheckpoint) {
  const Folder folder;
  folder.write("m.jsonl", "{\"kind\":\"run\",\"of\":\"another time\"}\n");
  const ToolRun run =
      train_tool({"--checkpoint", folder.path("saved"), "--resume", "--metrics", folder.path("m.jsonl")});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("no checkpoint in " + folder.path("saved") + " yet; starting from scratch"));
  EXPECT_EQ(of_kind(read_log(folder.path("m.jsonl")), "run").size(), 1U);
}

}  // namespace
}  // namespace starling::tool
