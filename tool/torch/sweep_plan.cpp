#include "tool/torch/sweep_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <span>

#include "starling/base/checksum.h"
#include "starling/base/error.h"

namespace starling::tool {
namespace {

// The last setting changes fastest.
void add_product(const SweepValues& values, std::vector<SweepRun>& runs) {
  std::vector<SweepRun> all = {{}};
  for (const auto& [name, texts] : values) {
    std::vector<SweepRun> longer;
    for (const SweepRun& run : all)
      for (const std::string& text : texts) {
        longer.push_back(run);
        longer.back().settings.emplace_back(name, text);
      }
    all = std::move(longer);
  }
  for (SweepRun& run : all)
    if (std::none_of(runs.begin(), runs.end(),
                     [&](const SweepRun& other) { return other.settings == run.settings; }))
      runs.push_back(std::move(run));
}

}  // namespace

void put(SweepValues& values, const std::string& name, std::vector<std::string> texts) {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == name; });
  if (found == values.end())
    values.emplace_back(name, std::move(texts));
  else
    found->second = std::move(texts);
}

std::string SweepRun::setting(const std::string& name) const {
  for (const auto& [key, text] : settings)
    if (key == name) return text;
  return {};
}

std::string SweepRun::folder() const {
  std::string all, begin;
  std::vector<std::pair<std::string, std::string>> sorted = settings;
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [name, text] : sorted) all += name + '=' + text + '\n';
  for (const char* name : {"method", "topology", "seed"}) {
    std::string text = setting(name);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; },
        '-');
    if (!text.empty()) begin += text.substr(0, 24) + '_';
  }
  return begin + checksum_text(checksum_of(std::as_bytes(std::span(all))));
}

std::vector<std::string> SweepRun::arguments() const {
  std::vector<std::string> words;
  for (const auto& [name, text] : settings) words.push_back(fmt::format("{}={}", option_name(name), text));
  return words;
}

std::vector<SweepRun> plan_sweep(const SweepValues& common, const std::vector<SweepValues>& cases) {
  std::vector<SweepRun> runs;
  if (cases.empty()) add_product(common, runs);
  for (const SweepValues& one : cases) {
    SweepValues values = common;
    for (const auto& [name, texts] : one) put(values, name, texts);
    add_product(values, runs);
  }
  return runs;
}

SweepFile read_sweep_file(const std::string& path, const Settings& known) {
  SweepFile file;
  for (const TomlEntry& entry : read_toml(path)) {
    const std::string where = fmt::format("{}, line {}", path, entry.line);
    SweepValues* into = &file.common;
    std::string name = entry.key;
    if (name.rfind("case.", 0) == 0) {
      const std::size_t dot = name.find('.', 5);
      if (dot == std::string::npos) throw Error(where + ": write [[case]], a list of tables");
      const auto number = static_cast<std::size_t>(std::stoul(name.substr(5, dot - 5)));
      if (file.cases.size() <= number) file.cases.resize(number + 1);
      into = &file.cases[number];
      name = name.substr(dot + 1);
    }
    name = known.current_name(name);
    std::vector<std::string> texts;
    for (const TomlScalar& value : entry.values) {
      known.check_type(name, value, where);
      texts.push_back(to_text(value));
    }
    put(*into, name, std::move(texts));
  }
  return file;
}

}  // namespace starling::tool
