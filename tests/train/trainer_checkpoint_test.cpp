#include <gtest/gtest.h>

#include "record/folder.h"
#include "starling/method/saved_state.h"
#include "starling/record/checkpoint_file.h"
#include "starling/train/torch_optimizer.h"
#include "train/trained.h"

// A trainer that is saved and then restored in other processes continues bit for bit.
namespace starling::train {
namespace {

constexpr Step kSaved = 5;
constexpr Step kSteps = 11;

/// A module with more than plain layers: statistics, random draws, a frozen layer, and one with two names.
struct Rich : torch::nn::Module {
  explicit Rich(std::int64_t width = 6, bool deep = false) {
    first = register_module("first", torch::nn::Linear(5, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    shared = register_module("shared", torch::nn::Linear(width, width));
    register_module("again", shared);
    frozen = register_module("frozen", torch::nn::Linear(width, width));
    if (deep) register_module("deep", torch::nn::Linear(2, 2));
    seldom = register_module("seldom", torch::nn::Linear(width, 3));
    head = register_module("head", torch::nn::Linear(width, 3));
    for (torch::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x, bool all) {
    torch::Tensor y = torch::dropout(norm->forward(first->forward(x)), 0.3, true);
    y = torch::tanh(shared->forward(torch::tanh(shared->forward(y))));
    y = frozen->forward(y);
    return all ? head->forward(y) + seldom->forward(y) : head->forward(y);
  }
  torch::nn::Linear first{nullptr}, shared{nullptr}, frozen{nullptr}, seldom{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

struct Saved {
  std::string name;
  TrainerOptions options = {};
  std::string optimizer = "momentum";
  torch::Dtype type = torch::kFloat32;
  bool overflows = false;
  Rank ranks = 3;
};

OptimizerPtr optimizer_of(const std::string& name, Rich& net) {
  Tensors trained;
  for (const torch::Tensor& parameter : net.parameters())
    if (parameter.requires_grad()) {
      const auto same = [&](const torch::Tensor& one) { return one.is_same(parameter); };
      if (std::none_of(trained.begin(), trained.end(), same)) trained.push_back(parameter);
    }
  return local_optimizer(name).make(trained);
}

void take_steps(Trainer& trainer, Rich& net, torch::optim::Optimizer& local, const Saved& run, Step from,
                Step to) {
  const Rank rank = trainer.flock().rank();
  for (Step t = from; t < to; ++t) {
    set_learning_rate(local, 0.05 / static_cast<double>(t + 1));
    trainer.zero_grad();
    for (int k = 0; k < run.options.accumulation; ++k) {
      const torch::Tensor x = scattered({4, 5}, 100 * t + 10 * rank + k, run.type);
      torch::Tensor loss = net.forward(x, t % 3 == 1).square().mean().to(torch::kFloat32);
      if (run.overflows && t % 4 == 2) loss = loss * std::numeric_limits<float>::infinity();
      trainer.scale(loss).backward();
    }
    trainer.step();
  }
}

/// The whole visible state of a run.
std::vector<std::byte> seen(Trainer& trainer, const Rich& net) {
  std::vector<std::byte> all;
  const auto add = [&](const torch::Tensor& tensor) {
    const torch::Tensor whole = tensor.detach().contiguous();
    const auto* first = static_cast<const std::byte*>(whole.data_ptr());
    all.insert(all.end(), first, first + whole.nbytes());
  };
  for (const torch::Tensor& parameter : net.parameters()) add(parameter);
  for (const torch::Tensor& buffer : net.buffers()) add(buffer);
  add(torch::tensor({trainer.loss_scale(), static_cast<double>(trainer.steps())}));
  add(torch::rand({3}));  // the state of the random generator
  return all;
}

void write(const std::string& path, Trainer& trainer) {
  SavedParts parts;
  trainer.save_parts(parts);
  write_checkpoint_file(path, {}, parts.parts());
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The random generator is global in a process, so ranks must be processes.
void run_ranks(const Saved& run, const FlockBody& body) {
  const auto ends = ends_on("local_processes", run.ranks, body);
  for (std::size_t r = 0; r < ends.size(); ++r)
    EXPECT_TRUE(ends[r].ok) << run.name << " rank " << r << ": " << ends[r].message << " signal "
                            << ends[r].signal;
}

void expect_to_continue(const Saved& run) {
  const RecordFolder folder;
  const auto file_of = [&](Rank rank) { return folder.path(std::to_string(rank)); };
  run_ranks(run, [&](Flock& flock) {
    torch::manual_seed(10 + static_cast<std::uint64_t>(flock.rank()));
    Rich net;
    net.to(run.type);
    const OptimizerPtr local = optimizer_of(run.optimizer, net);
    Trainer trainer(flock, net, *local, run.options);
    take_steps(trainer, net, *local, run, 0, kSaved);
    write(file_of(flock.rank()), trainer);
    take_steps(trainer, net, *local, run, kSaved, kSteps);
    folder.write(std::to_string(flock.rank()) + ".end", text_of(seen(trainer, net)));
  });
  run_ranks(run, [&](Flock& flock) {
    torch::manual_seed(999);
    Rich net;
    net.to(run.type);
    const OptimizerPtr local = optimizer_of(run.optimizer, net);
    Trainer trainer(flock, net, *local, run.options);
    take_steps(trainer, net, *local, run, 40, 41);  // a different state
    trainer.restore(CheckpointFile(file_of(flock.rank())));
    require(local->param_groups()[0].options().get_lr() == 0.05 / static_cast<double>(kSaved), "the rate");
    take_steps(trainer, net, *local, run, kSaved, kSteps);
    require(text_of(seen(trainer, net)) == folder.read(std::to_string(flock.rank()) + ".end"), "another end");
  });
}

TEST(TrainerCheckpoint, EveryOptimizerContinuesBitForBit) {
  for (const TestOptimizer& one : local_optimizers())
    if (one.name != "softened")
      expect_to_continue({.name = one.name, .options = {.bucket_mb = 1e-4}, .optimizer = one.name});
}

TEST(TrainerCheckpoint, MasterWeightsContinueBitForBit) {
  for (const char* method : {"dsgd-awc", "dsgd-atc"})
    expect_to_continue({.name = method,
                        .options = {.method = method, .bucket_mb = 1e-4, .master_weights = true},
                        .optimizer = "adamw",
                        .type = torch::kBFloat16});
}

TEST(TrainerCheckpoint, EveryKindOfMethodContinuesBitForBit) {
  for (const auto& [method, topology] : std::vector<std::pair<std::string, std::string>>{
           {"dsgd-atc", "ceca"},
           {"dsgd-awc", "od-equidyn"},
           {"gradient-tracking", "ring"},
           {"push-sum", "star(weights=push)"},
           {"relay-sgd", "chain"},
           {"relay-sgd(missing=reference)", "double-binary-trees"},
           {"accum-adamw(s=3)", "one-peer-exponential"},
           {"local-sgd(tau=3)", "ring"}})
    for (const bool foreign : {false, true}) {
      const bool accumulates = method.starts_with("accum");
      if (accumulates && foreign) continue;
      expect_to_continue(
          {.name = method + " on " + topology,
           .options = {.method = method, .topology = topology, .bucket_mb = foreign ? 4 : 1e-4},
           .optimizer = accumulates ? "adamw"
                        : foreign   ? "rmsprop"
                                    : "nesterov",
           .ranks = 4});
    }
}

TEST(TrainerCheckpoint, EveryOptionContinuesBitForBit) {
  expect_to_continue({.name = "eager", .options = {.bucket_mb = 1e-4, .eager = true}});
  expect_to_continue(
      {.name = "eager atc", .options = {.method = "dsgd-atc", .bucket_mb = 1e-4, .eager = true}});
  expect_to_continue(
      {.name = "eager foreign", .options = {.bucket_mb = 4, .eager = true}, .optimizer = "rmsprop"});
  expect_to_continue(
      {.name = "clipped", .options = {.bucket_mb = 1e-4, .accumulation = 2, .clip_norm = 0.01}});
  expect_to_continue({.name = "scaled", .options = {.clip_norm = 1, .loss_scale = 4096}, .overflows = true});
  expect_to_continue({.name = "bfloat16 messages", .options = {.bucket_mb = 1e-4, .message = "bfloat16"}});
  expect_to_continue({.name = "float64", .optimizer = "adam", .type = torch::kFloat64});
  // Torch's optimizer updates the types that native optimizers do not support.
  expect_to_continue({.name = "bfloat16 parameters", .optimizer = "momentum", .type = torch::kBFloat16});
  expect_to_continue({.name = "bfloat16 parameters", .optimizer = "adam", .type = torch::kBFloat16});
}

/// A trainer on one rank after some steps, and its file.
struct Alone {
  explicit Alone(Flock& flock, const TrainerOptions& options = {}, const std::string& optimizer = "momentum",
                 std::int64_t width = 6, bool deep = false)
      : net(width, deep), local(optimizer_of(optimizer, net)), trainer(flock, net, *local, options) {}
  void steps(Step from, Step to) { take_steps(trainer, net, *local, {.name = ""}, from, to); }

  Rich net;
  OptimizerPtr local;
  Trainer trainer;
};

TEST(TrainerCheckpoint, RefusesAnotherModelMethodOrOptimizerAndNamesIt) {
  const RecordFolder folder;
  const std::string path = folder.path("a");
  on_ranks(1, [&](Flock& flock) {
    Alone first(flock);
    first.steps(0, 2);
    write(path, first.trainer);
    const auto refused = [&](Alone other, const std::string& says) {
      other.steps(0, 1);
      const torch::Tensor before = flat_parameters(other.net).clone();
      const CheckpointFile file(path);
      const std::string text = message_of<Error>([&] { other.trainer.restore(file); });
      require(text.find(path) == 0 && text.find(says) != std::string::npos, says + ": " + text);
      require_equal(flat_parameters(other.net), before, "changed by what was refused");
      other.steps(1, 2);
    };
    refused(Alone(flock, {.name = "width"}, "momentum", 7),
            "parameter first.weight: [6, 5] in the checkpoint, [7, 5] here");
    refused(Alone(flock, {.name = "deep"}, "momentum", 6, true),
            "parameter deep.weight: none in the checkpoint, [2, 2] here");
    refused(Alone(flock, {.method = "dsgd-atc", .name = "method"}),
            "method: dsgd-awc in the checkpoint, dsgd-atc here");
    refused(Alone(flock, {.topology = "complete", .name = "topology"}), "topology: ");
    refused(Alone(flock, {.name = "optimizer"}, "adam"), "optimizer: SGD in the checkpoint, Adam here");
    refused(Alone(flock, {.name = "foreign"}, "adagrad"), "optimizer: SGD in the checkpoint, Adagrad here");
    refused(Alone(flock, {.bucket_mb = 1e-4, .name = "buckets"}), "parameters per bucket: ");

    Alone deep(flock, {.name = "from deep"}, "momentum", 6, true);
    write(path, deep.trainer);
    refused(Alone(flock, {.name = "shallow"}), "parameter deep.weight: [2, 2] in the checkpoint, none here");
  });
}

TEST(TrainerCheckpoint, RefusesBuffersOfAnotherType) {
  const RecordFolder folder;
  struct Counting : torch::nn::Module {
    explicit Counting(torch::Dtype type) {
      register_module("layer", layer);
      register_buffer("seen", torch::zeros({3}, type));
    }
    torch::nn::Linear layer{2, 2};
  };
  on_ranks(1, [&](Flock& flock) {
    Counting whole(torch::kInt32), broken(torch::kFloat32);
    torch::optim::SGD first(whole.parameters(), 0.1), second(broken.parameters(), 0.1);
    Trainer a(flock, whole, first, {.name = "a"}), b(flock, broken, second, {.name = "b"});
    write(folder.path("a"), a);
    const CheckpointFile file(folder.path("a"));
    const std::string text = message_of<Error>([&] { b.restore(file); });
    require(text.find("type of buffer seen: Int in the checkpoint, float32 here") != std::string::npos, text);
  });
}

TEST(TrainerCheckpoint, RefusesAnOptimizerThatCannotBeSaved) {
  on_ranks(1, [](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    Softened local(network->parameters());
    Trainer trainer(flock, *network, local, {});
    SavedParts parts;
    const std::string text = message_of<InvalidArgument>([&] { trainer.save_parts(parts); });
    require(text.find("do not implement save()") != std::string::npos, text);
  });
}

TEST(TrainerCheckpoint, RefusesToSaveOrRestoreTheMeanModel) {
  const RecordFolder folder;
  on_ranks(2, [&](Flock& flock) {
    Alone one(flock);
    const std::string path = folder.path(std::to_string(flock.rank()));
    write(path, one.trainer);
    const auto averaged = one.trainer.global_average();
    SavedParts parts;
    const CheckpointFile file(path);
    for (const std::string& text : {message_of<InvalidArgument>([&] { one.trainer.save_parts(parts); }),
                                    message_of<InvalidArgument>([&] { one.trainer.restore(file); })})
      require(text.find("revert it or keep it first") != std::string::npos, text);
  });
}

// Changes before the checkpoint are restored as in an uninterrupted run.
TEST(TrainerCheckpoint, IncludesChangesMadeByHand) {
  const RecordFolder folder;
  for (const char* method : {"push-sum", "dsgd-awc", "dsgd-atc"})
    on_ranks(2, [&](Flock& flock) {
      const std::string path = folder.path(std::to_string(flock.rank()));
      const auto run = [&](bool resumes, const std::string& name) {
        const NetworkPtr network = make_network("mlp", flock.rank());
        const OptimizerPtr local = local_optimizer("momentum").make(network->parameters());
        Trainer trainer(flock, *network, *local, {.method = method, .name = name});
        if (!resumes) {
          for (Step t = 0; t < 3; ++t) train_step(trainer, *network, flock.rank(), t);
          set_parameters(*network, flat_parameters(*network) * 1.5);
          write(path, trainer);
        } else {
          trainer.restore(CheckpointFile(path));
        }
        for (Step t = 3; t < 6; ++t) train_step(trainer, *network, flock.rank(), t);
        return flat_parameters(*network).clone();
      };
      const torch::Tensor straight = run(false, "straight");
      require_equal(run(true, "resumed"), straight, method);
    });
}

TEST(TrainerCheckpoint, RestoresTheMeanModelOfAnotherNumberOfRanks) {
  const RecordFolder folder;
  constexpr Rank kThen = 3;
  on_ranks(kThen, [&](Flock& flock) {
    Alone one(flock, {.method = "local-sgd(tau=1000)"});
    one.steps(0, 3);
    write(folder.path(std::to_string(flock.rank())), one.trainer);
  });
  on_ranks(2, [&](Flock& flock) {
    std::vector<CheckpointFile> files;
    for (Rank rank = 0; rank < kThen; ++rank) files.emplace_back(folder.path(std::to_string(rank)));
    Alone now(flock, {.method = "push-sum"}, "adam");
    now.trainer.restore_mean(files);
    require(now.trainer.steps() == 3, "the step");
    const auto mean_of = [&](const std::string& part, const torch::Tensor& like) {
      std::vector<torch::Tensor> all;
      for (const CheckpointFile& file : files) {
        torch::Tensor one = torch::empty_like(like);
        file.read_into(part, {static_cast<std::byte*>(one.data_ptr()), one.nbytes()});
        all.push_back(one.to(torch::kFloat64));
      }
      require(!torch::equal(all[0], all[1]), "the models do not differ in this test");
      return torch::stack(all).mean(0).to(torch::kFloat32);
    };
    require_close(now.net.head->weight.detach(), mean_of("parameters/head.weight", now.net.head->weight),
                  "parameter", 1e-7);
    require_close(now.net.norm->running_mean,
                  mean_of("buffers/norm.running_mean", now.net.norm->running_mean), "statistics", 1e-7);
    require(now.net.norm->num_batches_tracked.item<std::int64_t>() == 3, "the count");
    require(now.trainer.consensus_distance() == 0, "everybody has the same");
    // State that the method derives from the parameters is updated, too: a step without an update changes
    // nothing.
    const torch::Tensor before = flat_parameters(now.net).clone();
    now.trainer.skip();
    require_close(flat_parameters(now.net), before, "after one average", 1e-6);
    require(message_of<InvalidArgument>([&] {
              now.trainer.restore_mean(files);
            }).find("make a new trainer") != std::string::npos,
            "a trainer that has trained");
    Alone narrow(flock, {.name = "narrow"}, "adam", 5);
    require(message_of<Error>([&] { narrow.trainer.restore_mean(files); }).find("parameter first.weight") !=
                std::string::npos,
            "another model");
  });
}

// save() and resume(), one call each.
TEST(TrainerCheckpoint, SaveAndResumeContinueBitForBit) {
  for (const bool background : {false, true}) {
    const Saved run{.name = "save",
                    .options = {.method = "gradient-tracking", .topology = "ring", .bucket_mb = 1e-4},
                    .optimizer = "adam"};
    const RecordFolder folder;
    const std::string saved = folder.path("saved");
    run_ranks(run, [&](Flock& flock) {
      torch::manual_seed(10 + static_cast<std::uint64_t>(flock.rank()));
      Rich net;
      const OptimizerPtr local = optimizer_of(run.optimizer, net);
      Trainer trainer(flock, net, *local, run.options);
      require(!trainer.resume(saved), "there is no checkpoint yet");
      take_steps(trainer, net, *local, run, 0, kSaved);
      const ExtraValues extra = {{"epoch", 7}, {"best", 0.5}, {"order", torch::arange(3) + flock.rank()}};
      trainer.save(saved, {.extra = extra, .background = background});
      take_steps(trainer, net, *local, run, kSaved, kSteps);
      folder.write(std::to_string(flock.rank()) + ".end", text_of(seen(trainer, net)));
    });
    run_ranks(run, [&](Flock& flock) {
      torch::manual_seed(999);
      Rich net;
      const OptimizerPtr local = optimizer_of(run.optimizer, net);
      Trainer trainer(flock, net, *local, run.options);
      take_steps(trainer, net, *local, run, 40, 41);  // a different state
      const auto resumed = trainer.resume(saved);
      require(resumed && resumed->step == kSaved && trainer.steps() == kSaved, "the step");
      require(resumed->reset.empty(), resumed->reset);
      require(resumed->extra.at("epoch").toInt() == 7 && resumed->extra.at("best").toDouble() == 0.5,
              "numbers");
      require_equal(resumed->extra.at("order").toTensor(), torch::arange(3) + flock.rank(),
                    "this rank's own");
      take_steps(trainer, net, *local, run, kSaved, kSteps);
      require(text_of(seen(trainer, net)) == folder.read(std::to_string(flock.rank()) + ".end"),
              "the resumed run ends in another state");
    });
  }
}

TEST(TrainerCheckpoint, ResumeRefusesAnotherModelOnAllRanksAndNamesIt) {
  const RecordFolder folder;
  on_ranks(2, [&](Flock& flock) {
    Alone first(flock, {.name = "first"});
    first.steps(0, 2);
    first.trainer.save(folder.path("saved"));
    Alone wide(flock, {.name = "wide"}, "momentum", 7);
    const torch::Tensor before = flat_parameters(wide.net).clone();
    std::string text = message_of<Error>([&] { wide.trainer.resume(folder.path("saved")); });
    require(text.find("parameter first.weight: [6, 5] in the checkpoint, [7, 5] here") != text.npos, text);
    require_equal(flat_parameters(wide.net), before, "changed by what was refused");
    wide.steps(0, 1);
    // Only one rank is wrong: the other rank throws, too.
    Alone other(flock, {.name = "other"});
    other.net.register_buffer("seen", torch::zeros({flock.rank() + 1}));
    other.trainer.save(folder.path("more"));
    if (flock.rank() == 1) other.net.register_buffer("extra", torch::zeros({1}));
    text = message_of<Error>([&] { other.trainer.resume(folder.path("more")); });
    require(text.find("buffer extra: none in the checkpoint, [1] here") != text.npos, text);
    require(flock.rank() == 1 || text.starts_with("rank 1: "), text);
  });
}

TEST(TrainerCheckpoint, ResumeWithAnotherNumberOfRanksStartsFromTheMeanModel) {
  const RecordFolder folder;
  on_ranks(3, [&](Flock& flock) {
    Alone one(flock, {.method = "local-sgd(tau=1000)"});
    one.steps(0, 3);
    one.trainer.save(folder.path("saved"), {.extra = {{"from", flock.rank()}}});
    const auto average = one.trainer.global_average();
    if (flock.rank() == 0)
      folder.write("mean", std::to_string(flat_parameters(one.net).to(torch::kFloat64).sum().item<double>()));
  });
  on_ranks(2, [&](Flock& flock) {
    Alone now(flock, {.method = "local-sgd(tau=1000)"});
    const auto resumed = now.trainer.resume(folder.path("saved"));
    require(resumed && resumed->step == 3 && now.trainer.steps() == 3, "the step");
    require(resumed->reset.find("3 files of 3 workers, now 2: all ranks start from the mean model") == 0,
            resumed->reset);
    require(resumed->extra.at("from").toInt() == 0, "the first rank's values");
    require(now.trainer.consensus_distance() == 0, "the models differ");
    require(std::abs(flat_parameters(now.net).to(torch::kFloat64).sum().item<double>() -
                     std::stod(folder.read("mean"))) < 1e-4,
            "not the mean");
    now.steps(3, 5);
    // A trainer that has already made steps has the optimizer state of another model.
    const std::string text = message_of<Error>([&] { now.trainer.resume(folder.path("saved")); });
    require(text.find("restore_mean after 5 steps") != text.npos, text);
  });
}

}  // namespace
}  // namespace starling::train
