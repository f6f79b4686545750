#include "starling/data/fashion_mnist.h"

#include "starling/data/idx.h"

namespace starling::data {

DataSource fashion_mnist_source() {
  const IdxSet set{.name = "fashion-mnist",
                   .shape = {.channels = 1, .height = 28, .width = 28},
                   .classes = 10,
                   .mean = 0.2860F,
                   .deviation = 0.3530F};
  const IdxNames train = idx_names(Split::train);
  const IdxNames test = idx_names(Split::test);
  return {.name = set.name,
          .summary = "pieces of clothing, 28 x 28, gray: 60000 to train, 10000 to test",
          .parameters = {},
          .load = [set](const Parameters& /*none*/, Split split,
                        const std::filesystem::path& folder) { return load_idx(set, split, folder); },
          .recipe = Recipe{
              .npm = {},
              .from_npm = {},
              .debian = {"dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"},
              .mirrors = {"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
                          "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"},
              .archive = {},
              .files = {{train.images, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
                        {train.labels, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
                        {test.images, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
                        {test.labels, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}}}};
}

}  // namespace starling::data
