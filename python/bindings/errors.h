#pragma once

namespace starling::python {

/// Translates Starling's exceptions to the classes of starling._core, whichever of our modules throws them.
void translate_exceptions();

}  // namespace starling::python
