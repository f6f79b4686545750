#include "starling/record/run_log.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "record/folder.h"
#include "starling/base/error.h"

namespace starling::record {
namespace {

using testing::HasSubstr;

RunHeader toy_header() {
  RunHeader header;
  header.starling = "0.1.0";
  header.torch = "1.13.1";
  header.date = "2026-11-15";
  header.command = "starling train --topology 'base(k=2)'";
  header.machine = "2 cores";
  header.workers = 8;
  header.parameters = 61706;
  header.experiment = {
      {"data", "mnist"}, {"method", "dsgd-awc"}, {"optimizer", "momentum(lr=0.05, momentum=0.8)"},
      {"warmup", "0.2"}, {"cosine", "true"},     {"seed", "18446744073709551615"},
      {"name", "01"},    {"label", "1e5"},       {"odd", "a \"b\"\n"}};
  return header;
}

RunReport toy_report(Step step, double loss) {
  RunReport report;
  report.step = step;
  report.epoch = 0.1;
  report.seconds = 1.0 / 3;
  report.loss = loss;
  report.learning_rate = 0.05;
  report.images_per_second = 9000;
  report.consensus_distance = 0.01;
  report.bytes_sent = (std::uint64_t{1} << 60) + 1;
  report.computing = 2.5;
  report.waiting = 0.3;
  report.combining = 0.4;
  report.workers = 8;
  report.taking_part = 7;
  return report;
}

class RunLogFile : public testing::Test {
 protected:
  RunLog read(const std::string& text) {
    folder_.write("metrics.jsonl", text);
    return read_run_log(folder_.path("metrics.jsonl"));
  }
  std::string complaint(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  }

  RecordFolder folder_;
  const std::string header_ = to_line(toy_header());
};

TEST_F(RunLogFile, ReadsBackWhatWasWritten) {
  RunReport evaluated = toy_report(20, 0.25);
  evaluated.test_accuracy = 0.98;
  evaluated.test_loss = 0.07;
  evaluated.local_accuracy = 0.97;
  evaluated.local_accuracy_least = 0.96;
  evaluated.local_accuracy_most = 0.99;
  evaluated.local_mean_accuracy = 0.98;
  const RunLog log = read(header_ + to_line(toy_report(10, 0.5)) + to_line(PeerFailure{15, 2}) +
                          to_line(evaluated) + to_line(RunEnd{20, 30.125}));
  EXPECT_EQ(log.path, folder_.path("metrics.jsonl"));
  EXPECT_EQ(log.header.starling, "0.1.0");
  EXPECT_EQ(log.header.torch, "1.13.1");
  EXPECT_EQ(log.header.date, "2026-11-15");
  EXPECT_EQ(log.header.command, toy_header().command);
  EXPECT_EQ(log.header.machine, "2 cores");
  EXPECT_EQ(log.header.workers, 8);
  EXPECT_EQ(log.header.parameters, 61706);
  EXPECT_EQ(log.header.experiment, toy_header().experiment);
  ASSERT_EQ(log.reports.size(), 2U);
  const RunReport& first = log.reports[0];
  EXPECT_EQ(first.step, 10);
  EXPECT_EQ(first.epoch, 0.1);
  EXPECT_EQ(first.seconds, 1.0 / 3);
  EXPECT_EQ(first.loss, 0.5);
  EXPECT_EQ(first.learning_rate, 0.05);
  EXPECT_EQ(first.images_per_second, 9000);
  EXPECT_EQ(first.consensus_distance, 0.01);
  EXPECT_EQ(first.bytes_sent, (std::uint64_t{1} << 60) + 1);
  EXPECT_EQ(first.computing, 2.5);
  EXPECT_EQ(first.waiting, 0.3);
  EXPECT_EQ(first.combining, 0.4);
  EXPECT_EQ(first.workers, 8);
  EXPECT_EQ(first.taking_part, 7);
  EXPECT_FALSE(first.test_accuracy || first.test_loss || first.local_accuracy || first.local_accuracy_least ||
               first.local_accuracy_most);
  EXPECT_EQ(log.reports[1].test_accuracy, 0.98);
  EXPECT_EQ(log.reports[1].test_loss, 0.07);
  EXPECT_EQ(log.reports[1].local_accuracy, 0.97);
  EXPECT_EQ(log.reports[1].local_accuracy_least, 0.96);
  EXPECT_EQ(log.reports[1].local_accuracy_most, 0.99);
  EXPECT_EQ(log.reports[1].local_mean_accuracy, 0.98);
  EXPECT_EQ(log.last_evaluation(), &log.reports[1]);
  ASSERT_EQ(log.lost.size(), 1U);
  EXPECT_EQ(log.lost[0].step, 15);
  EXPECT_EQ(log.lost[0].rank, 2);
  ASSERT_TRUE(log.finished());
  EXPECT_EQ(log.end->step, 20);
  EXPECT_EQ(log.end->seconds, 30.125);
  EXPECT_FALSE(log.cut_off);
}

TEST_F(RunLogFile, WritesSettingsWithTypes) {
  EXPECT_THAT(header_, HasSubstr("\"warmup\":0.2,\"cosine\":true,\"seed\":18446744073709551615"));
  EXPECT_THAT(header_, HasSubstr("\"name\":\"01\",\"label\":\"1e5\""));
}

TEST_F(RunLogFile, ReadsFormerNamesOfSettings) {
  RunHeader header = toy_header();
  header.experiment.push_back({"on_loss", "reweight"});
  EXPECT_EQ(read(to_line(header)).header.setting("on_peer_failure"), "reweight");
}

TEST_F(RunLogFile, FindsTheLearningRateInTheOptimizer) {
  RunHeader header = toy_header();
  EXPECT_EQ(header.setting("data"), "mnist");
  EXPECT_EQ(header.setting("topology"), "");
  EXPECT_EQ(header.learning_rate(), 0.05);
  EXPECT_EQ(without_learning_rate(header.setting("optimizer")), "momentum(momentum=0.8)");
  header.experiment = {{"optimizer", "adam(0.001)"}};
  EXPECT_EQ(header.learning_rate(), 0.001);
  EXPECT_EQ(without_learning_rate("adam(0.001)"), "adam");
  for (const char* without : {"adam", "adam(beta1=0.8)", "my optimizer (", ""}) {
    header.experiment = {{"optimizer", without}};
    EXPECT_EQ(header.learning_rate(), std::nullopt) << without;
    EXPECT_EQ(without_learning_rate(without), without);
  }
  header.experiment = {{"optimizer", "adam"}};
  header.canonical = {{"optimizer", "adam(lr=0.01,beta1=0.9)"}};
  EXPECT_EQ(header.learning_rate(), 0.01);
}

TEST_F(RunLogFile, CarriesCanonicalSettingsBesideTheTypedOnes) {
  RunHeader header = toy_header();
  header.experiment = {{"topology", "base"}, {"batch", "32"}};
  header.canonical = {{"topology", "base(k=1)"}};
  const RunLog log = read(to_line(header));
  EXPECT_EQ(log.header.canonical, header.canonical);
  EXPECT_EQ(log.header.setting("topology"), "base");
  EXPECT_EQ(log.header.canonical_setting("topology"), "base(k=1)");
  EXPECT_EQ(log.header.canonical_setting("batch"), "32");
  EXPECT_EQ(log.header.canonical_setting("none"), "");
  // Logs of earlier versions have no canonical settings.
  EXPECT_THAT(header_, testing::Not(HasSubstr("canonical")));
  EXPECT_EQ(read(header_).header.canonical_setting("data"), "mnist");
}

TEST_F(RunLogFile, ReadsNonFiniteNumbersAsNaN) {
  const std::string line = to_line(toy_report(10, std::nan("")));
  EXPECT_THAT(line, HasSubstr("\"loss\":null"));
  EXPECT_TRUE(std::isnan(read(header_ + line).reports[0].loss));
}

TEST_F(RunLogFile, ReadsTheFormerNameOfADeath) {
  const RunLog log = read(header_ + R"({"kind":"loss_of_rank","step":15,"rank":2})" + "\n");
  ASSERT_EQ(log.lost.size(), 1U);
  EXPECT_EQ(log.lost[0].step, 15);
  EXPECT_EQ(log.lost[0].rank, 2);
  EXPECT_THAT(to_line(log.lost[0]), testing::HasSubstr("\"worker_died\""));
}

TEST_F(RunLogFile, TheEndSaysWhereTheRunDiverged) {
  EXPECT_FALSE(read(header_ + to_line(RunEnd{20, 1})).end->diverged);
  const RunLog log = read(header_ + to_line(RunEnd{20, 1, RunDivergence{7, 2}}));
  ASSERT_TRUE(log.end && log.end->diverged);
  EXPECT_EQ(log.end->diverged->text(), "rank 2's loss was not a finite number in step 7");
}

TEST_F(RunLogFile, ResumingDiscardsReportsAfterTheCheckpoint) {
  RunLog log = read(header_ + to_line(toy_report(100, 3)) + to_line(toy_report(120, 4)) +
                    to_line(PeerFailure{110, 1}) + to_line(PeerFailure{90, 0}) + to_line(RunEnd{120, 1}) +
                    to_line(RunResume{100, "starling train --resume", "2026-11-16", "momentum"}) +
                    to_line(toy_report(120, 2)));
  ASSERT_EQ(log.reports.size(), 2U);
  EXPECT_EQ(log.reports[0].loss, 3);
  EXPECT_EQ(log.reports[1].loss, 2);
  ASSERT_EQ(log.lost.size(), 1U);
  EXPECT_EQ(log.lost[0].rank, 0);
  EXPECT_FALSE(log.finished());
  ASSERT_EQ(log.resumes.size(), 1U);
  EXPECT_EQ(log.resumes[0].step, 100);
  EXPECT_EQ(log.resumes[0].command, "starling train --resume");
  EXPECT_EQ(log.resumes[0].date, "2026-11-16");
  EXPECT_EQ(log.resumes[0].reset, "momentum");
}

TEST_F(RunLogFile, SkipsATruncatedLastLine) {
  const std::string line = to_line(toy_report(10, 0.5));
  for (std::size_t length = 1; length + 1 < line.size(); ++length) {
    const RunLog log = read(header_ + line + line.substr(0, length));
    EXPECT_EQ(log.reports.size(), 1U) << length;
    EXPECT_TRUE(log.cut_off) << length;
    EXPECT_FALSE(log.finished());
  }
  const RunLog whole = read(header_ + line.substr(0, line.size() - 1));
  EXPECT_EQ(whole.reports.size(), 1U);
  EXPECT_FALSE(whole.cut_off);
}

TEST_F(RunLogFile, RemovesATruncatedLineBeforeAppending) {
  const std::string line = to_line(toy_report(10, 0.5));
  const auto mended = [&](const std::string& text) {
    folder_.write("metrics.jsonl", text);
    mend_run_log(folder_.path("metrics.jsonl"));
    return folder_.read("metrics.jsonl");
  };
  EXPECT_EQ(mended(header_ + line + line.substr(0, 30)), header_ + line);
  EXPECT_FALSE(mend_run_log(folder_.path("metrics.jsonl")));
  EXPECT_EQ(mended(header_ + line.substr(0, line.size() - 1)), header_ + line);
  EXPECT_EQ(mended(header_.substr(0, 20)), "");
}

TEST_F(RunLogFile, IgnoresUnknownKeysAndKinds) {
  const RunLog log = read(header_ + "{\"kind\":\"weather\",\"rain\":true}\n" +
                          "{\"new\":[1],\"kind\":\"end\",\"step\":3.0,\"seconds\":2}\n");
  EXPECT_EQ(log.end->step, 3);
  EXPECT_EQ(log.reports.size(), 0U);
}

TEST_F(RunLogFile, NamesErrorsWithFileAndLine) {
  const std::string path = folder_.path("metrics.jsonl");
  const std::string line = to_line(toy_report(10, 0.5));
  EXPECT_EQ(complaint(header_ + "{\"kind\":\"rep\n" + line),
            path + ":2: not a JSON object; a run's log has one per line");
  EXPECT_THAT(complaint(header_ + "\n" + line), HasSubstr(":2: not a JSON object"));
  EXPECT_THAT(complaint(header_ + "[1]\n" + line), HasSubstr(":2: not a JSON object"));
  EXPECT_EQ(complaint(header_ + line + "{\"step\":1}\n"), path + ":3: the key \"kind\" is missing");
  EXPECT_THAT(complaint("{\"kind\":\"run\",\"starling\":\"1\",\"command\":\"c\",\"workers\":2}\n"),
              HasSubstr(":1: the key \"experiment\" is missing"));
  EXPECT_THAT(complaint(header_ + "{\"kind\":\"end\",\"step\":\"x\",\"seconds\":1}\n"),
              HasSubstr(":2: \"step\" should be a non-negative integer, not \"x\""));
  EXPECT_THAT(complaint(header_ + "{\"kind\":\"end\",\"step\":-1,\"seconds\":1}\n"), HasSubstr("not -1"));
  EXPECT_THAT(complaint(header_ + "{\"kind\":\"end\",\"step\":1,\"seconds\":\"1\"}\n"),
              HasSubstr("\"seconds\" should be a number, not \"1\""));
  EXPECT_THAT(complaint(line), HasSubstr(":1: the first line of a run's log is of the kind \"run\""));
  EXPECT_THAT(complaint(header_ + header_), HasSubstr(":2: a second run begins here"));
  EXPECT_THAT(complaint(header_.substr(0, 9)), HasSubstr(":1: not a JSON object"));
  EXPECT_THAT(complaint(""), HasSubstr("is empty"));
  EXPECT_THROW(read_run_log(folder_.path("none.jsonl")), Error);
  EXPECT_THROW(read_run_log(folder_.path(".")), Error);
}

}  // namespace
}  // namespace starling::record
