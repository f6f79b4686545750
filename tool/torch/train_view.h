#pragma once

#include <fstream>
#include <string>

#include "starling/train/experiment.h"
#include "tool/progress.h"

namespace starling::tool {

/// Shows a run as it goes, and writes its log: a line that moves on a terminal, dated lines in a pipe.
class TrainView {
 public:
  /// `metrics` may be empty. Whose first event is not a header goes on with the log that is there: a resumed
  /// run, or a worker whose predecessor died.
  TrainView(const Experiment& experiment, std::string metrics, bool resuming);

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
  bool resuming_;
  std::string what_;  // the samples are
  std::ofstream log_;
  bool terminal_;
  Progress progress_;
  std::string accuracy_ = "-";
};

}  // namespace starling::tool
