#pragma once

#include "starling/data/registry.h"

namespace starling::data {

/// `fashion-mnist`: 60,000 + 10,000 pieces of clothing of 28 x 28 (Xiao, Rasul, Vollgraf).
DataSource fashion_mnist_source();

}  // namespace starling::data
