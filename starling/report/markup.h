#pragma once

#include <string>
#include <string_view>

#include "starling/base/floors.h"

namespace starling::report {

/// Text as it may stand between tags or inside a quoted attribute, in XML and in HTML. What XML forbids even
/// when escaped (control characters, broken UTF-8) becomes U+FFFD.
std::string escape_markup(std::string_view text);

/// JavaScript as it may stand inside <script>: nothing in it can end the element or open a comment.
std::string escape_script(std::string_view script);

/// JSON as it may stand inside <script type="application/json">.
std::string escape_script_json(std::string_view json);

}  // namespace starling::report
