// A small transformer learns to continue any text file, character by character, with AccumAdamW on a ring:
//
//   build/release/bin/starling run -n 4 -- build/release/bin/example_language_model README.md 300
//
// Every worker reads its own part of the text; the last tenth is used for testing.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <starling/models.h>
#include <starling/starling.h>

constexpr std::int64_t kContext = 64;

// Random windows of [begin, end) and, for each symbol, the next one.
std::pair<torch::Tensor, torch::Tensor> stretches(const torch::Tensor& text, std::int64_t begin,
                                                  std::int64_t end, std::int64_t count) {
  const auto starts = torch::randint(begin, end - kContext - 1, {count, 1});
  const auto places = starts + torch::arange(kContext);
  return {text.index({places}), text.index({places + 1})};
}

torch::Tensor loss_on(starling::Transformer& model, const std::pair<torch::Tensor, torch::Tensor>& batch) {
  return torch::nn::functional::cross_entropy(model->forward(batch.first).flatten(0, 1),
                                              batch.second.flatten());
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s TEXT-FILE [STEPS]\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() < 4000) {
    std::fprintf(stderr, "%s is not there or too short: a language needs at least 4000 characters\n",
                 argv[1]);
    return 2;
  }
  const int steps = argc > 2 ? std::atoi(argv[2]) : 300;
  torch::set_num_threads(1);
  const auto text = torch::from_blob(const_cast<char*>(bytes.data()),
                                     {static_cast<std::int64_t>(bytes.size())}, torch::kUInt8)
                        .to(torch::kLong);

  auto flock = starling::join();
  torch::manual_seed(1);
  starling::Transformer model(starling::TransformerSetting{.context = kContext});
  torch::optim::AdamW adamw(model->parameters(), torch::optim::AdamWOptions(3e-3).weight_decay(0.01));
  starling::Trainer trainer(flock, *model, adamw,
                            {.method = "accum-adamw(s=4)", .topology = "ring", .clip_norm = 1});

  const auto train_end = text.size(0) * 9 / 10;
  const auto share = train_end / flock.size();
  torch::manual_seed(100 + static_cast<std::uint64_t>(flock.rank()));
  for (int step = 0; step < steps; ++step) {
    trainer.zero_grad();
    loss_on(model, stretches(text, share * flock.rank(), share * (flock.rank() + 1), 16)).backward();
    trainer.step();
  }

  const torch::NoGradGuard no_grad;
  const auto mean_model = trainer.global_average();
  torch::manual_seed(7);
  const double loss = loss_on(model, stretches(text, train_end, text.size(0), 64)).item<double>();
  if (flock.rank() != 0) return 0;
  std::printf("after %d steps of %d workers: %.3f bits per character on the last tenth of the text\n", steps,
              flock.size(), loss / std::log(2.0));
  auto written = text.narrow(0, train_end, 32).view({1, -1});
  for (int i = 0; i < 160; ++i) {
    const auto seen = written.narrow(1, std::max<std::int64_t>(0, written.size(1) - kContext),
                                     std::min(kContext, written.size(1)));
    const auto logits = model->forward(seen).index({0, -1});
    written = torch::cat({written, torch::multinomial(torch::softmax(logits / 0.8, 0), 1).view({1, 1})}, 1);
  }
  std::string sample;
  for (std::int64_t i = 0; i < written.size(1); ++i)
    sample += static_cast<char>(written[0][i].item<std::int64_t>());
  std::printf("it writes: %s\n", sample.c_str());
}
