#include "starling/train/task.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/data/registry.h"

namespace starling::train {
namespace {

constexpr std::string_view kText = "text";
constexpr std::string_view kTextFile = "text:";

const std::vector<Parameter> kTextParameters = {{"file", "", "a text file, plain or gzip"},
                                                {"block", "64", "characters of a window"}};

// In `text:FILE` the rest is the file's name, whatever characters it contains.
std::optional<Spec> text_spec(const std::string& data) {
  if (data.starts_with(kTextFile)) {
    Spec spec{std::string(kText), false, {}};
    if (data.size() > kTextFile.size())
      spec.arguments.push_back({"file", Spec{data.substr(kTextFile.size()), false, {}}});
    return spec;
  }
  Spec spec = parse_spec(data);
  if (spec.word != kText || spec.is_list) return std::nullopt;
  return spec;
}

}  // namespace

ModelInput kind_of_data(const std::string& data) {
  if (text_spec(data)) return ModelInput::text;
  std::vector<std::string> names;
  for (const DataSource& source : data_sources()) names.push_back(source.name);
  const Spec spec = parse_spec(data);
  if (spec.is_list || std::find(names.begin(), names.end(), spec.word) == names.end()) {
    names.emplace_back("text:FILE");
    throw InvalidArgument(unknown_name("data set", spec.to_string(), names));
  }
  return ModelInput::images;
}

std::string canonical_task(const std::string& data) {
  if (const auto spec = text_spec(data)) return Parameters(*spec, kTextParameters).canonical().to_string();
  return canonical_data(data);
}

std::unique_ptr<Task> make_task(const std::string& data) {
  if (const auto spec = text_spec(data)) {
    const Parameters given(*spec, kTextParameters);
    return make_text_task(
        read_text(given.text("file"), static_cast<std::size_t>(given.integer("block", 1, 1'000'000))));
  }
  kind_of_data(data);
  return make_image_task(load(data, Split::train), load(data, Split::test));
}

}  // namespace starling::train
