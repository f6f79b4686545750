#pragma once

#include <fstream>
#include <string>

#include "tool/progress.h"
#include "tool/torch/train_job.h"

namespace starling::tool {

/// Shows a run as it goes, and writes its log: a line that moves on a terminal, dated lines in a pipe.
class TrainView {
 public:
  /// If its first event is not a header, it appends to the existing log: that of a resumed run, or of a
  /// worker that died.
  TrainView(const TrainJob& job, int workers);

  /// Called on every worker, before the one that reports shows the event.
  void note_death() { --living_; }
  void show(const RunEvent& event);
  /// Before the workers are there, which takes a moment.
  static void announce(const Experiment& experiment, int workers);

 private:
  void print(const RunHeader& header);
  void print(const RunReport& report);
  void print(const RunResume& resume);
  void print(const PeerFailure& loss);
  void print(const RunNotSaved& missing);
  void print(const RunEnd& end);
  void line(const std::string& text);
  void write(const std::string& text, bool anew);

  int epochs_;
  std::string metrics_;
  CheckpointOptions checkpoints_;
  int workers_;
  int living_;
  std::string what_;  // the samples are
  std::ofstream log_;
  bool terminal_;
  Progress progress_;
  std::string accuracy_ = "-";
};

}  // namespace starling::tool
