#pragma once

#include <string>

namespace starling::tool {

/// A line on the terminal that is overwritten again and again; prints nothing to a pipe.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace starling::tool
