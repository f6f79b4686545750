#pragma once

#include <fstream>
#include <string>

#include "tool/progress.h"
#include "tool/torch/train_job.h"

namespace starling::tool {

/// Shows the progress of a run and writes its log: one line that is updated on a terminal, dated lines in a
/// pipe.
class TrainView {
 public:
  /// If the first event is not a header, appends to the existing log, which belongs to a resumed run or to a
  /// worker that died.
  TrainView(const TrainJob& job, int workers);

  /// Called on every worker, before the reporting one shows the event.
  void note_death() { --living_; }
  void show(const RunEvent& event);
  /// Called before the workers exist, since starting them takes a moment.
  static void announce(const Experiment& experiment, int workers, bool in_one_process);

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
  std::string what_;  // what the samples are
  std::ofstream log_;
  bool terminal_;
  Progress progress_;
  std::string accuracy_ = "-";
};

}  // namespace starling::tool
