#include "tool/torch/train_view.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <iostream>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/launcher_notice.h"
#include "starling/report/number_text.h"
#include "tool/command.h"
#include "tool/machine.h"

namespace starling::tool {
namespace {

std::string bar(double share) {
  constexpr int kWidth = 20;
  const int full = std::clamp(static_cast<int>(std::lround(share * kWidth)), 0, kWidth);
  return "[" + std::string(static_cast<std::size_t>(full), '=') +
         std::string(static_cast<std::size_t>(kWidth - full), ' ') + "]";
}

std::string clock() {
  return fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

}  // namespace

TrainView::TrainView(const TrainJob& job, int workers)
    : epochs_(job.experiment.epochs),
      metrics_(job.metrics),
      checkpoints_(job.checkpoints),
      workers_(workers),
      living_(workers),
      what_(job.experiment.data.starts_with("text") ? "windows" : "images"),
      terminal_(isatty(STDOUT_FILENO) != 0) {}

void TrainView::announce(const Experiment& experiment, int workers, bool in_one_process) {
  const std::string text =
      fmt::format("starting {}{}: {} on {}", counted(workers, "worker"),
                  in_one_process ? " in one process" : "", experiment.model, experiment.data);
  std::cout << (isatty(STDOUT_FILENO) != 0 ? text : clock() + " " + text) << std::endl;
}

void TrainView::show(const RunEvent& event) {
  if (const auto* end = std::get_if<RunEnd>(&event); end != nullptr && end->already) {
    // The run was killed between its last checkpoint and its end, so its log lacks the last line.
    const bool lacks_end = std::filesystem::exists(metrics_) && !read_run_log(metrics_).finished();
    if (lacks_end) write(to_line(*end), false);
    line(fmt::format("nothing to do: the run is complete at step {}; pass --epochs above {} to continue it",
                     end->step, epochs_));
    return;
  }
  std::visit(
      [&](const auto& one) {
        auto whole = one;
        if constexpr (requires { whole.command; }) {
          whole.command = command_line();
          whole.date = today();
        }
        if constexpr (requires { whole.machine; }) whole.machine = machine_text();
        write(to_line(whole), std::is_same_v<decltype(whole), RunHeader>);
        print(whole);
      },
      event);
}

void TrainView::write(const std::string& text, bool anew) {
  if (metrics_.empty()) return;
  if (!log_.is_open()) {
    if (!anew && std::filesystem::exists(metrics_)) mend_run_log(metrics_);
    log_.open(metrics_, anew ? std::ios::trunc : std::ios::app);
  }
  log_ << text << std::flush;
  if (!log_) throw Error(fmt::format("cannot write the run's log {}", metrics_));
}

void TrainView::line(const std::string& text) {
  progress_.clear();
  std::cout << (terminal_ ? text : clock() + " " + text) << std::endl;
}

void TrainView::print(const RunHeader& header) {
  line(fmt::format("{} on {}: {}{}, {} on {}, {}, {} parameters", header.setting("model"),
                   header.setting("data"), counted(header.workers, "worker"),
                   header.device == "cpu" ? "" : " on " + header.device, header.setting("method"),
                   header.setting("topology"), header.setting("optimizer"), header.parameters));
  if (checkpoints_.resume)
    line(fmt::format("no checkpoint in {} yet; starting from scratch", checkpoints_.folder.string()));
}

void TrainView::print(const RunReport& report) {
  if (report.test_accuracy) accuracy_ = fmt::format("{:.2f} %", 100 * *report.test_accuracy);
  std::string text = fmt::format(
      "{} epoch {:5.2f}/{}  loss {:.4f}  accuracy {:>7}  {:6.0f} {}/s  distance {:.4f}  sent {}",
      bar(report.epoch / epochs_), report.epoch, epochs_, report.loss, accuracy_, report.images_per_second,
      what_, report.consensus_distance, human_bytes(static_cast<double>(report.bytes_sent)));
  if (report.taking_part < report.workers)
    text += fmt::format("  ({} of {} workers took part)", report.taking_part, report.workers);
  if (terminal_ && !report.test_accuracy)
    progress_.show(text);
  else
    line(text);
}

void TrainView::print(const RunResume& resume) {
  line(fmt::format("resumed from the checkpoint of step {}", resume.step));
  if (!resume.reset.empty()) line(resume.reset);
}

void TrainView::print(const PeerFailure& loss) {
  if (has_launcher()) return;  // the launcher reports it, with the reason
  line(fmt::format("worker {} died; {} of {} continue, its data is redistributed at the next epoch",
                   loss.rank, living_, workers_));
}

void TrainView::print(const RunNotSaved& missing) {
  line(fmt::format("rank {} could not write the checkpoint of step {}: the exit status will be 1",
                   missing.rank, missing.step));
}

void TrainView::print(const RunEnd& end) {
  line(fmt::format("{}: {} steps in {}", end.diverged ? "diverged" : "done", end.step,
                   human_time(end.seconds)));
}

}  // namespace starling::tool
