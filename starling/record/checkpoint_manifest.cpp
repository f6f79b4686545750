#include "starling/record/checkpoint_manifest.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "starling/base/checksum.h"
#include "starling/base/error.h"

namespace starling::record {
namespace {

constexpr int kVersion = 1;
constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;  // half a million ranks
constexpr int kMostLevels = 8;                                   // a manifest has three

using Json = nlohmann::ordered_json;

std::string manifest_text(const Json& json) {
  return json.dump(1) + "\n";
}

std::string checksum_of_text(const Json& json) {
  const std::string text = manifest_text(json);
  return checksum_text(checksum_of(std::as_bytes(std::span(text))));
}

CheckpointInfo info_of(const Json& json) {
  CheckpointInfo info;
  info.step = json.at("step");
  info.number = json.at("number");
  info.workers = json.at("workers");
  info.run = json.at("run");
  for (const auto& label : json.at("labels"))
    info.labels.emplace_back(label.at(0).get<std::string>(), label.at(1).get<std::string>());
  for (const auto& file : json.at("files"))
    if (file.at("name").get<std::string>().find('/') != std::string::npos)
      throw Error(
          fmt::format("a manifest may only name files of its own folder, not {}", file.at("name").dump()));
  for (const auto& file : json.at("files"))
    info.files.push_back({file.at("rank"),
                          file.at("name"),
                          {file.at("bytes"), parse_checksum(file.at("checksum").get<std::string>())}});
  return info;
}

}  // namespace

std::string manifest_text(const CheckpointInfo& info) {
  Json json = {{"starling_checkpoint", kVersion}, {"step", info.step}, {"number", info.number},
               {"workers", info.workers},         {"run", info.run},   {"labels", Json::array()},
               {"files", Json::array()}};
  for (const auto& [label, text] : info.labels) json["labels"].push_back({label, text});
  for (const auto& file : info.files)
    json["files"].push_back({{"rank", file.rank},
                             {"name", file.name},
                             {"bytes", file.mark.bytes},
                             {"checksum", checksum_text(file.mark.checksum)}});
  json["checksum"] = checksum_of_text(json);
  return manifest_text(json);
}

CheckpointInfo read_manifest(const std::filesystem::path& folder) {
  const auto path = folder / kCheckpointManifest;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  std::error_code unknown;
  if (const auto bytes = std::filesystem::file_size(path, unknown); !unknown && bytes > kMostBytes)
    throw Error(fmt::format("{} is not a manifest of a checkpoint: it has {} bytes", path.string(), bytes));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  try {
    // Written back by recursion, hence the limit.
    Json json = Json::parse(text, [&](int level, Json::parse_event_t, const Json&) {
      if (level > kMostLevels)
        throw Error(
            fmt::format("{} is not a manifest of a checkpoint: it is nested too deeply", path.string()));
      return true;
    });
    const bool as_written = manifest_text(json) == text;  // detects changed spaces, too
    const std::string checksum = json.at("checksum");
    json.erase("checksum");
    if (!as_written || checksum != checksum_of_text(json))
      throw Error(fmt::format("{} is corrupt, or was edited", path.string()));
    if (json.at("starling_checkpoint") != kVersion)
      throw Error(fmt::format("{} was written by a newer version ({}; this one reads {})", path.string(),
                              json.at("starling_checkpoint").dump(), kVersion));
    CheckpointInfo info = info_of(json);
    info.folder = folder;
    return info;
  } catch (const nlohmann::json::exception&) {
    throw Error(fmt::format("{} is truncated or not the manifest of a checkpoint", path.string()));
  }
}

}  // namespace starling::record
