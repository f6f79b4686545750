// An extension built for another version.
#include <starling/extension.h>

#undef STARLING_VERSION
#define STARLING_VERSION "0.0.7"

STARLING_EXTENSION() {}
