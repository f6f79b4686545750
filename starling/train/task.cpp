#include "starling/train/task.h"

#include "starling/data/registry.h"
#include "starling/train/image_task.h"

namespace starling {

std::unique_ptr<Task> make_task(const std::string& data) {
  return make_image_task(load(data, Split::train), load(data, Split::test));
}

}  // namespace starling
