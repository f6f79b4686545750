#pragma once

#include "starling/data/text.h"
#include "starling/train/task.h"

namespace starling {

/// To foretell each character of a text from those before it in its window, by cross entropy.
std::unique_ptr<Task> make_text_task(TextWindows text);

}  // namespace starling
