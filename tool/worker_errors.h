#pragma once

#include <string>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

namespace starling::tool {

/// Collects the errors of failed workers in the process that started them, to print equal ones once.
class WorkerErrors {
 public:
  WorkerErrors();

  /// NAME=VALUE for the workers' environment.
  std::string variable() const;
  /// Prints every cause once on standard error, with its ranks if there are several causes. Without a cause,
  /// prints the first consequence.
  void print() const;

 private:
  Descriptor file_;
};

/// Called by a worker; `consequence`: another rank failed first. False if no process collects errors.
bool report_worker_error(Rank rank, const std::string& text, bool consequence);

}  // namespace starling::tool
