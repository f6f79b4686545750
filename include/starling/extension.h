#pragma once

#include "starling/starling.h"
#include "starling/version.h"

/// Starts the one function of a shared library that `starling --load` loads; it registers what the library
/// has:
///
///     STARLING_EXTENSION() {
///       starling::register_topology({...});
///     }
///
/// The version that the library was built against travels with it; another one is refused.
#define STARLING_EXTENSION()                                                                 \
  extern "C" __attribute__((visibility("default"))) const char starling_extension_version[]; \
  extern "C" const char starling_extension_version[] = STARLING_VERSION;                     \
  extern "C" __attribute__((visibility("default"))) void starling_extension();               \
  extern "C" void starling_extension()
