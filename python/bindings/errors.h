#pragma once

namespace starling::python {

/// Starling's exceptions reach Python as the classes of starling._core, from whichever of our modules they
/// are thrown.
void translate_exceptions();

}  // namespace starling::python
