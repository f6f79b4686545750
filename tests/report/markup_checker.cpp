#include "report/markup_checker.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace starling::report {
namespace {

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == ':';
}

class Reader {
 public:
  explicit Reader(std::string_view xml) : xml_(xml) {}

  CheckedMarkup read() {
    while (at_ < xml_.size() && result_.problem.empty()) {
      if (xml_[at_] == '<') {
        read_tag();
      } else {
        read_text();
      }
    }
    if (result_.problem.empty() && !open_.empty())
      result_.problem = "<" + result_.elements[open_.back()].name + "> stays open";
    return result_;
  }

 private:
  void fail(const std::string& what) {
    if (result_.problem.empty()) result_.problem = what + " at: " + std::string(xml_.substr(at_, 60));
  }

  std::string read_name() {
    const std::size_t start = at_;
    while (at_ < xml_.size() && is_name_character(xml_[at_])) ++at_;
    return std::string(xml_.substr(start, at_ - start));
  }

  void skip_space() {
    while (at_ < xml_.size() && std::isspace(static_cast<unsigned char>(xml_[at_])) != 0) ++at_;
  }

  bool accept(std::string_view token) {
    if (xml_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void check_entities(std::string_view text) {
    for (std::size_t i = text.find('&'); i != std::string_view::npos; i = text.find('&', i + 1)) {
      const std::size_t end = text.find(';', i);
      if (end == std::string_view::npos || end - i > 7) fail("bare &");
    }
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r')
        fail("control character");
  }

  void read_text() {
    const std::size_t end = std::min(xml_.find('<', at_), xml_.size());
    const std::string_view text = xml_.substr(at_, end - at_);
    check_entities(text);
    if (open_.empty()) {
      if (text.find_first_not_of(" \n") != std::string_view::npos) fail("text outside the root");
    } else {
      result_.elements[open_.back()].text += text;
    }
    at_ = end;
  }

  void read_tag() {
    if (accept("</")) {
      const std::string name = read_name();
      if (open_.empty() || result_.elements[open_.back()].name != name)
        return fail("</" + name + "> closes nothing");
      open_.pop_back();
      if (!accept(">")) fail("unfinished closing tag");
      return;
    }
    ++at_;
    Element element;
    element.name = read_name();
    if (element.name.empty()) return fail("bare <");
    for (skip_space(); at_ < xml_.size() && is_name_character(xml_[at_]); skip_space()) {
      const std::string key = read_name();
      if (!accept("=\"")) return fail("attribute without quotes");
      const std::size_t end = xml_.find('"', at_);
      if (end == std::string_view::npos) return fail("unfinished attribute");
      const std::string value(xml_.substr(at_, end - at_));
      if (value.find('<') != std::string::npos) return fail("< in an attribute");
      check_entities(value);
      if (!element.attributes.emplace(key, value).second) return fail("attribute given twice");
      at_ = end + 1;
    }
    const bool empty = accept("/>");
    if (!empty && !accept(">")) return fail("unfinished tag");
    if (open_.empty() && !result_.elements.empty()) fail("second root");
    result_.elements.push_back(std::move(element));
    if (!empty) open_.push_back(result_.elements.size() - 1);
  }

  std::string_view xml_;
  std::size_t at_ = 0;
  CheckedMarkup result_;
  std::vector<std::size_t> open_;
};

bool has_class(const Element& element, std::string_view class_name) {
  const auto found = element.attributes.find("class");
  if (found == element.attributes.end()) return false;
  std::istringstream words(found->second);
  for (std::string word; words >> word;)
    if (word == class_name) return true;
  return false;
}

}  // namespace

std::size_t CheckedMarkup::count(std::string_view name) const {
  return static_cast<std::size_t>(
      std::count_if(elements.begin(), elements.end(), [&](const Element& e) { return e.name == name; }));
}

std::size_t CheckedMarkup::count_class(std::string_view class_name) const {
  return static_cast<std::size_t>(std::count_if(elements.begin(), elements.end(),
                                                [&](const Element& e) { return has_class(e, class_name); }));
}

std::vector<std::string> CheckedMarkup::texts(std::string_view class_name) const {
  std::vector<std::string> found;
  for (const Element& element : elements)
    if (has_class(element, class_name)) found.push_back(element.text);
  return found;
}

CheckedMarkup check_markup(std::string_view xml) {
  return Reader(xml).read();
}

}  // namespace starling::report
