#include "starling/data/idx.h"

#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "starling/base/error.h"
#include "starling/data/packed_file.h"

namespace starling::data {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
// a longer file does not exist, but a damaged header may say so
constexpr std::size_t kMostBytes = std::size_t{1} << 40;

std::string dimension_text(const std::vector<std::size_t>& dimensions) {
  return fmt::format("{}", fmt::join(dimensions, " x "));
}

std::size_t product(const std::vector<std::size_t>& dimensions, const std::string& file) {
  std::size_t total = 1;
  for (const std::size_t size : dimensions) {
    if (size != 0 && total > kMostBytes / size)
      throw Error(fmt::format("{}: its header promises {} values, which is impossible", file,
                              dimension_text(dimensions)));
    total *= size;
  }
  return total;
}

std::filesystem::path find_file(const std::string& set, const std::filesystem::path& folder,
                                const std::string& file) {
  if (const auto found = find_packed(folder / file)) return *found;
  throw Error(fmt::format("{} is not here: {} has no {} (nor {}.gz); `starling data {}` fetches it", set,
                          folder.string(), file, file, set));
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path, std::size_t dimensions) {
  PackedFile file(path);
  std::array<std::uint8_t, 4> magic{};
  if (file.read(magic) < magic.size())
    throw Error(fmt::format("{}: too short for an IDX file, which begins with 4 bytes", file.name()));
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte || magic[3] != dimensions)
    throw Error(
        fmt::format("{}: begins with {:02x}; an IDX file of bytes with {} dimension{} begins with "
                    "00 00 08 {:02x}",
                    file.name(), fmt::join(magic, " "), dimensions, dimensions == 1 ? "" : "s", dimensions));
  IdxArray array;
  for (std::size_t i = 0; i < dimensions; ++i) {
    std::array<std::uint8_t, 4> size{};
    if (file.read(size) < size.size())
      throw Error(fmt::format("{}: cut off inside its header of {} bytes", file.name(), 4 + 4 * dimensions));
    array.dimensions.push_back(std::size_t{size[0]} << 24 | std::size_t{size[1]} << 16 |
                               std::size_t{size[2]} << 8 | std::size_t{size[3]});
  }
  const std::size_t promised = product(array.dimensions, file.name());
  const std::size_t count = file.append(array.values, promised);
  if (count < promised)
    throw Error(fmt::format("{}: cut off: its header promises {} = {} bytes, {} follow", file.name(),
                            dimension_text(array.dimensions), promised, count));
  // zlib verifies a gzip file's checksum, its last bytes, only when the end is read.
  std::array<std::uint8_t, 1> more{};
  if (file.read(more) > 0)
    throw Error(fmt::format("{}: more bytes than the {} = {} that its header promises", file.name(),
                            dimension_text(array.dimensions), promised));
  return array;
}

IdxNames idx_names(Split split) {
  const std::string prefix = split == Split::train ? "train" : "t10k";
  return {prefix + "-images-idx3-ubyte", prefix + "-labels-idx1-ubyte"};
}

Dataset load_idx(const IdxSet& set, Split split, const std::filesystem::path& folder) {
  const IdxNames names = idx_names(split);
  const auto images_file = find_file(set.name, folder, names.images);
  const auto labels_file = find_file(set.name, folder, names.labels);
  IdxArray images = read_idx(images_file, 3);
  IdxArray labels = read_idx(labels_file, 1);
  if (images.dimensions[1] != set.shape.height || images.dimensions[2] != set.shape.width)
    throw Error(fmt::format("{}: images of {} x {}; those of {} have {} x {}", images_file.string(),
                            images.dimensions[1], images.dimensions[2], set.name, set.shape.height,
                            set.shape.width));
  if (images.dimensions[0] != labels.dimensions[0])
    throw Error(fmt::format("{} has {} images and {} has {} labels: they do not belong together",
                            images_file.string(), images.dimensions[0], labels_file.string(),
                            labels.dimensions[0]));
  Dataset data{set.name,   std::move(images.values), std::move(labels.values), set.shape, set.classes,
               {set.mean}, {set.deviation}};
  try {
    data.check();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", labels_file.string(), error.what()));
  }
  return data;
}

}  // namespace starling::data
