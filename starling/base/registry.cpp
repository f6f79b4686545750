#include "starling/base/registry.h"

#include <atomic>
#include <string_view>

namespace starling {
namespace {

std::atomic<std::size_t> registration_count{0};

}  // namespace

std::size_t registrations() {
  return registration_count;
}

void count_registration() {
  ++registration_count;
}

std::string with_article(const std::string& what) {
  const bool vowel = !what.empty() && std::string_view("aeiou").find(what.front()) != std::string_view::npos;
  return (vowel ? "an " : "a ") + what;
}

void check_registered_name(const std::string& what, const std::string& name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (!plain)
    throw InvalidArgument(with_article(what) + " cannot be named '" + name +
                          "'; use letters, digits, '-' and '_'");
}

}  // namespace starling
