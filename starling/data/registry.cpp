#include "starling/data/registry.h"

#include <fmt/format.h>

#include "starling/base/environment.h"
#include "starling/base/registry.h"
#include "starling/data/cifar10.h"
#include "starling/data/fashion_mnist.h"
#include "starling/data/mnist.h"
#include "starling/data/synthetic.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;

// Empty if the variable is unset or relative, which the XDG rules say to ignore.
fs::path folder_variable(const EnvironmentVariable& variable) {
  fs::path folder = variable.text();
  return folder.is_absolute() ? folder : fs::path();
}

Registry<DataSource>& all_data() {
  static Registry<DataSource> instance("data set", {
                                                       mnist_source(),
                                                       fashion_mnist_source(),
                                                       cifar10_source(),
                                                       synthetic_source(),
                                                   });
  return instance;
}

}  // namespace

std::vector<DataSource> data_sources() {
  return all_data().entries();
}

void register_data(DataSource source) {
  all_data().add(std::move(source));
}

std::string canonical_data(std::string_view text) {
  return all_data().canonical(parse_spec(text)).to_string();
}

const DataSource& find_data_source(std::string_view text) {
  return all_data().find(parse_spec(text));
}

fs::path data_folder(const std::string& name) {
  // STARLING_DATA may be relative to the working directory.
  if (const std::string own = environment::kData.text(); !own.empty()) return fs::path(own) / name;
  if (const fs::path cache = folder_variable(environment::kCacheFolder); !cache.empty())
    return cache / "starling" / name;
  if (const fs::path home = folder_variable(environment::kHome); !home.empty())
    return home / ".cache" / "starling" / name;
  throw Error("no folder for data sets: set STARLING_DATA to a folder (XDG_CACHE_HOME and HOME are not set)");
}

Dataset load(std::string_view text, Split split, const fs::path& folder) {
  const Spec spec = parse_spec(text);
  const DataSource& source = all_data().find(spec);
  const Parameters parameters(spec, source.parameters);
  if (source.recipe)
    return source.load(parameters, split, folder.empty() ? data_folder(source.name) : folder);
  if (!folder.empty()) throw InvalidArgument(fmt::format("{} is generated and has no folder", source.name));
  return source.load(parameters, split, folder);
}

FetchResult fetch(const DataSource& source, const fs::path& folder,
                  const std::function<void(const std::string&)>& tell) {
  if (!source.recipe) throw InvalidArgument(fmt::format("{} is generated and has no files", source.name));
  return fetch(source.name, *source.recipe, folder.empty() ? data_folder(source.name) : folder, tell);
}

}  // namespace starling::data
