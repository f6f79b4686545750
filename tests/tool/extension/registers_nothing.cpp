#include <starling/extension.h>

STARLING_EXTENSION() {}
