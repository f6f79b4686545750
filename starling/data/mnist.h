#pragma once

#include "starling/data/registry.h"

namespace starling::data {

/// The data set `mnist`: 60,000 + 10,000 handwritten digits, 28 x 28 (LeCun, Cortes, Burges).
DataSource mnist_source();

}  // namespace starling::data
