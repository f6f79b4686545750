#pragma once

#include "starling/starling.h"
#include "starling/version.h"

/// Defines the entry point of a shared library that `starling --load` loads. Its body registers what the
/// library adds:
///
///   STARLING_EXTENSION() {
///     starling::register_topology({...});
///   }
///
/// The library records the Starling version that it was built with; another version refuses to load it.
#define STARLING_EXTENSION()                                                                 \
  extern "C" __attribute__((visibility("default"))) const char starling_extension_version[]; \
  extern "C" const char starling_extension_version[] = STARLING_VERSION;                     \
  extern "C" __attribute__((visibility("default"))) void starling_extension();               \
  extern "C" void starling_extension()
