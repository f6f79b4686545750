#pragma once

#include "starling/data/registry.h"

namespace starling::data {

/// The data set `fashion-mnist`: 60,000 + 10,000 images of clothing, 28 x 28 (Xiao, Rasul, Vollgraf).
DataSource fashion_mnist_source();

}  // namespace starling::data
