#include "data/data_files.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <stdlib.h>
#include <zlib.h>

namespace starling::data {

namespace fs = std::filesystem;

DataFolder::DataFolder() {
  std::string name = (fs::temp_directory_path() / "starling_data_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

DataFolder::~DataFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path DataFolder::write(const std::string& name, const Bytes& bytes) const {
  fs::create_directories((path_ / name).parent_path());
  std::ofstream out(path_ / name, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path_ / name;
}

fs::path DataFolder::write(const std::string& name, const std::string& text) const {
  return write(name, Bytes(text.begin(), text.end()));
}

fs::path DataFolder::program(const std::string& name, const std::string& script) const {
  const fs::path path = write(name, "#!/bin/sh\n" + script);
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

std::vector<std::string> DataFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Variable::Variable(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
  if (const char* before = getenv(name_.c_str())) before_ = before;
  if (value) {
    setenv(name_.c_str(), value->c_str(), 1);
  } else {
    unsetenv(name_.c_str());
  }
}

Variable::~Variable() {
  if (before_) {
    setenv(name_.c_str(), before_->c_str(), 1);
  } else {
    unsetenv(name_.c_str());
  }
}

Bytes file_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Bytes gzip(const Bytes& bytes) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  if (deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflate");
  Bytes packed(deflateBound(&stream, bytes.size()) + 64);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Bytes tar(const std::map<std::string, Bytes>& members) {
  Bytes archive;
  for (const auto& [name, content] : members) {
    Bytes header(512, 0);
    const auto put = [&](std::size_t at, const std::string& text) {
      std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
    };
    put(0, name);
    put(124, fmt::format("{:011o}", content.size()));
    put(156, "0");
    put(257, "ustar");
    archive.insert(archive.end(), header.begin(), header.end());
    archive.insert(archive.end(), content.begin(), content.end());
    archive.resize((archive.size() + 511) / 512 * 512, 0);
  }
  archive.resize(archive.size() + 1024, 0);
  return archive;
}

Bytes idx(const std::vector<std::uint32_t>& dimensions, int modulus) {
  Bytes bytes = {0, 0, 8, static_cast<std::uint8_t>(dimensions.size())};
  std::size_t count = 1;
  for (const std::uint32_t size : dimensions) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(size >> shift));
    count *= size;
  }
  for (std::size_t i = 0; i < count; ++i)
    bytes.push_back(static_cast<std::uint8_t>(i % static_cast<std::size_t>(modulus)));
  return bytes;
}

Bytes png(std::size_t width, std::size_t height, const Bytes& pixels) {
  Bytes file = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const auto put = [](Bytes& to, std::size_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<std::uint8_t>(number >> shift));
  };
  const auto chunk = [&](const std::string& kind, const Bytes& content) {
    Bytes checked(kind.begin(), kind.end());
    checked.insert(checked.end(), content.begin(), content.end());
    put(file, content.size());
    file.insert(file.end(), checked.begin(), checked.end());
    put(file, crc32(0, checked.data(), static_cast<uInt>(checked.size())));
  };
  Bytes header;
  put(header, width);
  put(header, height);
  header.insert(header.end(), {8, 2, 0, 0, 0});
  chunk("IHDR", header);
  Bytes rows;
  for (std::size_t y = 0; y < height; ++y) {
    rows.push_back(static_cast<std::uint8_t>(y % 5));
    const auto at = [&](std::ptrdiff_t x, std::ptrdiff_t row) {
      return x < 0 || row < 0
                 ? 0
                 : int{pixels[static_cast<std::size_t>(row) * 3 * width + static_cast<std::size_t>(x)]};
    };
    for (std::size_t i = 0; i < 3 * width; ++i) {
      const auto x = static_cast<std::ptrdiff_t>(i), row = static_cast<std::ptrdiff_t>(y);
      const int left = at(x - 3, row), above = at(x, row - 1), both = at(x - 3, row - 1);
      const int to_left = std::abs(above - both), to_above = std::abs(left - both),
                to_both = std::abs(left + above - 2 * both);
      const int nearest = to_left <= to_above && to_left <= to_both ? left
                          : to_above <= to_both                     ? above
                                                                    : both;
      const int guess[] = {0, left, above, (left + above) / 2, nearest};
      rows.push_back(static_cast<std::uint8_t>(at(x, row) - guess[y % 5]));
    }
  }
  Bytes packed(compressBound(rows.size()));
  uLongf size = packed.size();
  if (compress(packed.data(), &size, rows.data(), rows.size()) != Z_OK) throw std::runtime_error("compress");
  const auto middle = packed.begin() + static_cast<std::ptrdiff_t>(size / 2);
  chunk("IDAT", Bytes(packed.begin(), middle));
  chunk("IDAT", Bytes(middle, packed.begin() + static_cast<std::ptrdiff_t>(size)));
  chunk("IEND", {});
  return file;
}

}  // namespace starling::data
