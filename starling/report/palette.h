#pragma once

#include <array>
#include <string_view>

namespace starling::report {

/// Twelve colors that most color-blind readers can distinguish, each with a variant for dark backgrounds. The
/// first eight are based on Okabe and Ito (2008); lines also vary their dashes.
struct PaletteColor {
  std::string_view light;
  std::string_view dark;
};

inline constexpr std::array<PaletteColor, 12> kPalette = {{
    {"#0072b2", "#58b2f0"},
    {"#d55e00", "#ff8f4d"},
    {"#009e73", "#2fd0a0"},
    {"#aa3377", "#e07bc0"},
    {"#a87b00", "#f0c75e"},
    {"#3a9bdc", "#a5dcff"},
    {"#4b3aa8", "#a99cff"},
    {"#8c2d19", "#ff9c8f"},
    {"#3f7d20", "#9bd66a"},
    {"#d1607f", "#ffb3c7"},
    {"#5f6773", "#b4bdcb"},
    {"#1f8a8a", "#63dede"},
}};

}  // namespace starling::report
