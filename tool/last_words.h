#pragma once

#include <string>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

namespace starling::tool {

/// What workers say when they give up, gathered by the process that started them: what many say is told once.
class LastWords {
 public:
  LastWords();

  /// NAME=VALUE for the workers' environment.
  std::string variable() const;
  /// On standard error: every cause once, of several with the ranks that gave them. Without a cause, the
  /// first of the consequences.
  void tell() const;

 private:
  Descriptor file_;
};

/// Of a worker; a consequence is the failure of somebody else. False where nobody gathers them.
bool leave_last_words(Rank rank, const std::string& text, bool consequence);

}  // namespace starling::tool
