#include <starling/extension.h>

STARLING_EXTENSION() {
  starling::register_topology({.name = "ring", .summary = "", .parameters = {}, .make = nullptr});
}
