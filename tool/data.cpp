#include <algorithm>
#include <fmt/format.h>
#include <iostream>
#include <optional>

#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/data/partition.h"
#include "starling/data/registry.h"
#include "starling/report/table.h"
#include "tool/command.h"
#include "tool/progress.h"

namespace starling::tool {
namespace {

struct DataOptions {
  std::string name;
  std::string folder;
  std::optional<Rank> workers;
  std::optional<std::string> partition;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

// The information about a data set that needs no download.
struct Presence {
  DataSource source;
  std::string folder;  // "" if it is generated
  std::optional<Dataset> train, test;
  std::string problem;  // why it is missing
};

Presence look_for(const DataSource& source) {
  Presence presence;
  presence.source = source;
  try {
    if (source.recipe) presence.folder = data_folder(source.name).string();
    presence.train = load(source.name, Split::train);
    presence.test = load(source.name, Split::test);
  } catch (const Error& error) {
    presence.problem = error.what();
  }
  return presence;
}

bool is_here(const Presence& presence) {
  return presence.train && presence.test;
}

void write_dataset(JsonWriter& json, const Dataset& train, const Dataset& test) {
  json.member("train", train.size()).member("test", test.size()).member("classes", train.classes);
  json.member("shape", std::vector<std::size_t>{train.shape.channels, train.shape.height, train.shape.width});
  json.member("mean", std::vector<double>(train.mean.begin(), train.mean.end()));
  json.member("deviation", std::vector<double>(train.deviation.begin(), train.deviation.end()));
}

void write_folder(JsonWriter& json, const std::string& folder) {
  json.key("folder");
  if (folder.empty()) {
    json.null();
  } else {
    json.value(folder);
  }
}

void list_data(bool as_json) {
  std::vector<Presence> all;
  for (const DataSource& source : data_sources()) all.push_back(look_for(source));
  if (as_json) {
    JsonWriter json(std::cout);
    json.begin_array();
    for (const Presence& each : all) {
      json.begin_object().member("name", each.source.name).member("summary", each.source.summary);
      json.member("here", is_here(each));
      write_folder(json, each.folder);
      if (is_here(each)) {
        write_dataset(json, *each.train, *each.test);
      } else {
        json.member("problem", each.problem);
      }
      json.end_object();
    }
    json.end_array();
    return;
  }
  Table table({{"data set", Align::left},
               {"what it is", Align::left},
               {"train", Align::right},
               {"test", Align::right},
               {"where", Align::left}});
  table.title("Data sets; `starling data NAME` fetches one");
  for (const Presence& each : all) {
    const std::string where = each.folder.empty() ? "generated" : each.folder;
    table.row(
        {each.source.name, each.source.summary, is_here(each) ? std::to_string(each.train->size()) : "-",
         is_here(each) ? std::to_string(each.test->size()) : "-", is_here(each) ? where : "not in " + where});
  }
  for (const Presence& each : all)
    if (!is_here(each)) table.footnote(each.problem);
  table.footnote("Training also takes text:FILE, any text of your own, with the model `transformer`.");
  std::cout << table.text(color_wanted());
}

std::size_t classes_seen(const std::vector<std::size_t>& counts) {
  return static_cast<std::size_t>(
      std::count_if(counts.begin(), counts.end(), [](std::size_t count) { return count > 0; }));
}

// The number of samples of each class, by worker.
std::vector<std::vector<std::size_t>> count_by_worker(const Dataset& data, const std::vector<Shard>& shards) {
  std::vector<std::vector<std::size_t>> counts;
  for (const Shard& shard : shards) {
    auto& row = counts.emplace_back(static_cast<std::size_t>(data.classes), 0);
    for (const std::uint32_t sample : shard) ++row[data.labels[sample]];
  }
  return counts;
}

class DataCommand {
 public:
  explicit DataCommand(const DataOptions& options)
      : options_(options), source_(find_data_source(options.name)) {
    if (!options.workers && (options.partition || options.seed))
      throw InvalidArgument("--partition and --seed split a data set: say how many --workers");
    if (!source_.recipe && !options.folder.empty())
      throw InvalidArgument(fmt::format("{} is generated: it has no --folder", source_.name));
    if (source_.recipe)
      folder_ = options.folder.empty() ? data_folder(source_.name).string() : options.folder;
  }

  void run() {
    if (source_.recipe) {
      Progress progress;
      fetched_ = fetch(source_, folder_, [&](const std::string& what) { progress.show(what + " ..."); });
    }
    train_ = load(options_.name, Split::train, folder_);
    test_ = load(options_.name, Split::test, folder_);
    if (options_.workers) {
      partition_ = partition_name(options_.partition.value_or("iid"), options_.seed.value_or(0));
      shards_ = make_partition(partition_, train_.labels, *options_.workers, 0);
      counts_ = count_by_worker(train_, shards_);
    }
    if (options_.json) {
      write_json();
    } else if (options_.workers) {
      print_workers();
    } else {
      print_summary();
    }
  }

 private:
  void print_summary() const {
    Table table({{"", Align::left}, {"", Align::left}});
    table.title(source_.name + ": " + source_.summary);
    table.row({"training images", std::to_string(train_.size())});
    table.row({"test images", std::to_string(test_.size())});
    table.row({"classes", std::to_string(train_.classes)});
    table.row({"image",
               fmt::format("{} x {} x {}", train_.shape.channels, train_.shape.height, train_.shape.width)});
    if (source_.recipe) {
      table.row({"folder", folder_});
      table.row({"files", fmt::format("{}, SHA-256 verified", source_.recipe->files.size())});
      table.row({"fetched", fetched_.written.empty() ? "nothing: all were here"
                                                     : fmt::format("{} with {}", fetched_.written.size(),
                                                                   join_words(fetched_.sources, " and "))});
    } else {
      table.row({"files", "none: it is generated"});
    }
    std::cout << table.text(color_wanted());
  }

  void print_workers() const {
    std::vector<Column> columns = {
        {"worker", Align::right}, {"samples", Align::right}, {"classes", Align::right}};
    for (int c = 0; c < train_.classes; ++c) columns.emplace_back(std::to_string(c), Align::right);
    Table table(std::move(columns));
    table.title(fmt::format("{}, {} samples over {} by {}", source_.name, train_.size(),
                            counted(static_cast<std::int64_t>(shards_.size()), "worker"), partition_));
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      std::vector<std::string> cells = {std::to_string(i), std::to_string(shards_[i].size()),
                                        std::to_string(classes_seen(counts_[i]))};
      for (const std::size_t count : counts_[i]) cells.push_back(count == 0 ? "-" : std::to_string(count));
      table.row(std::move(cells));
    }
    std::cout << table.text(color_wanted());
  }

  void write_json() const {
    JsonWriter json(std::cout);
    json.begin_object().member("name", source_.name);
    write_folder(json, folder_);
    write_dataset(json, train_, test_);
    json.member("fetched", fetched_.written).member("sources", fetched_.sources);
    if (options_.workers) {
      json.member("partition", partition_).key("workers").begin_array();
      for (std::size_t i = 0; i < shards_.size(); ++i)
        json.begin_object(JsonWriter::Layout::one_line)
            .member("worker", i)
            .member("samples", shards_[i].size())
            .member("by_class", counts_[i])
            .end_object();
      json.end_array();
    }
    json.end_object();
  }

  const DataOptions& options_;
  const DataSource& source_;
  std::string folder_;
  FetchResult fetched_;
  Dataset train_, test_;
  std::string partition_;  // with its seed
  std::vector<Shard> shards_;
  std::vector<std::vector<std::size_t>> counts_;
};

void run(const DataOptions& options) {
  if (!options.name.empty()) {
    DataCommand(options).run();
    return;
  }
  if (!options.folder.empty() || options.workers || options.partition || options.seed)
    throw InvalidArgument("--folder, --workers, --partition and --seed need a data set: starling data NAME");
  list_data(options.json);
}

}  // namespace

void add_data(CLI::App& app) {
  auto options = std::make_shared<DataOptions>();
  CLI::App* command = app.add_subcommand("data", "List data sets, fetch one, or see how workers share it");
  command->add_option("NAME", options->name, "a data set such as mnist or cifar10; without it: lists all");
  command
      ->add_option("--folder", options->folder,
                   "folder of its files (default: NAME in $STARLING_DATA, else in "
                   "$XDG_CACHE_HOME/starling, else in ~/.cache/starling)")
      ->type_name("DIR");
  command
      ->add_option("--workers", options->workers, "split the training images, and show each worker's share")
      ->check(CLI::Range(1, INT32_MAX));
  command
      ->add_option("--partition", options->partition,
                   "partition: iid, contiguous or 'dirichlet(alpha=0.1)', with equal=yes for equal sizes "
                   "(default: iid)")
      ->type_name("PARTITION");
  command->add_option("--seed", options->seed, "seed for the split (default: 0)")->check(whole_number());
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "Examples:\n  starling data\n  starling data mnist\n  starling data mnist --workers 8 --partition "
      "'dirichlet(alpha=0.1)'");
  command->callback([options] { run(*options); });
}

}  // namespace starling::tool
