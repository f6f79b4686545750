#pragma once

#include <string>
#include <string_view>

#include "starling/base/floors.h"

namespace starling::report {

/// Escapes text for use between tags or inside a quoted attribute, in XML and HTML. Characters that XML
/// forbids even when escaped (control characters, broken UTF-8) become U+FFFD.
std::string escape_markup(std::string_view text);

/// Escapes JavaScript for use inside <script>: nothing in it can end the element or open a comment.
std::string escape_script(std::string_view script);

/// Escapes JSON for use inside <script type="application/json">.
std::string escape_script_json(std::string_view json);

}  // namespace starling::report
