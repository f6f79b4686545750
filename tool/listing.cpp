#include "tool/listing.h"

#include <fmt/format.h>
#include <iostream>
#include <optional>

#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/base/word_wrap.h"
#include "starling/codec/registry.h"
#include "starling/method/registry.h"
#include "starling/report/table.h"
#include "starling/topology/registry.h"
#include "tool/command.h"
#include "tool/load.h"

namespace starling::tool {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kGap = 2;    // columns between a name and the text
constexpr std::size_t kKeys = 24;  // columns for the keys of a description, including the gap

using Lines = std::vector<std::string>;

std::string joined(const Lines& words, const std::string& between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string spelled(const Parameter& parameter) {
  return parameter.name + "=" + parameter.fallback;
}

std::string parameters_of(const std::vector<Parameter>& parameters) {
  Lines words;
  for (const Parameter& parameter : parameters) words.push_back(spelled(parameter));
  return joined(words);
}

// The requirements of a family's method with default parameters; empty if a parameter must be given.
std::optional<MethodRequirements> needs_of(const MethodFamily& family) {
  try {
    return make_method(family.name)->needs();
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

std::string properties_of(const Family& family) {
  if (family.random) return family.changing ? "random, changes with the step" : "random, static";
  return family.changing ? "changes with the step" : "static";
}

/// The information about an entry that lists show in addition to its name, parameters and summary.
std::string remark_on(const Family& family) {
  return properties_of(family);
}
std::string remark_on(const MethodFamily& family) {
  const auto needs = needs_of(family);
  return needs ? "needs " + joined(describe(*needs), "; ") : "";
}
std::string remark_on(const CodecFamily&) {
  return {};
}

template <typename Entry>
void print_list(const std::vector<Entry>& entries, const std::string& kind, const std::string& title) {
  Table table({{kind, Align::left}, {"what it is", Align::left}});
  table.title(title);
  std::size_t names = kind.size();
  for (const Entry& entry : entries) names = std::max(names, entry.name.size());
  const std::size_t width = kWidth - names - kGap;
  for (const Entry& entry : entries) {
    Lines lines = wrap_words(entry.summary, width);
    const auto add = [&](const std::string& text) {
      if (text.empty()) return;
      for (std::string& line : wrap_words(text, width - 2)) lines.push_back("  " + std::move(line));
    };
    add(parameters_of(entry.parameters));
    add(remark_on(entry));
    if (!entry.aliases.empty()) add("also called " + joined(entry.aliases));
    std::string name = entry.name;
    for (std::string& line : lines) table.row({std::exchange(name, ""), std::move(line)});
  }
  table.footnote("Indented: parameters with their defaults (required if none), then the rest.");
  std::cout << table.text(color_wanted());
}

void write_remarks(JsonWriter& json, const Family& family) {
  json.member("changing", family.changing).member("random", family.random);
}

void write_remarks(JsonWriter& json, const MethodFamily& family) {
  json.key("requirements");
  const auto needs = needs_of(family);
  if (!needs) {
    json.null();
    return;
  }
  const auto text = [&](const char* key, const std::string& value) {
    json.key(key);
    value.empty() ? json.null() : json.value(value);
  };
  json.begin_object();
  json.member("topology", topology_text(*needs)).member("topologies", examples_of(needs->schedule));
  json.member("push_sum_schedules", needs->push_sum_schedules);
  json.member("two_block_schedules", needs->two_block_schedules);
  text("optimizer", needs->optimizer);
  text("exact_messages_because", needs->exact_messages_because);
  text("no_int8_because", needs->no_int8_because);
  text("no_losses_because", needs->no_losses_because);
  json.member("sends_gradients", needs->gradient != GradientUse::own);
  json.member("one_sided", needs->one_sided).member("asynchronous", needs->asynchronous);
  json.end_object();
}

void write_remarks(JsonWriter&, const CodecFamily&) {}

template <typename Entry>
void write_entry(JsonWriter& json, const Entry& entry) {
  json.begin_object().member("name", entry.name).member("aliases", entry.aliases);
  json.member("summary", entry.summary);
  write_remarks(json, entry);
  json.key("parameters").begin_array();
  for (const Parameter& parameter : entry.parameters) {
    json.begin_object(JsonWriter::Layout::one_line).member("name", parameter.name).key("default");
    parameter.fallback.empty() ? json.null() : json.value(parameter.fallback);
    json.member("help", parameter.help).end_object();
  }
  json.end_array().end_object();
}

template <typename Entry>
void write_list(const std::vector<Entry>& entries) {
  JsonWriter json(std::cout);
  json.begin_array();
  for (const Entry& entry : entries) write_entry(json, entry);
  json.end_array();
}

/// A full description in two columns, wrapped.
class Sheet {
 public:
  void add(std::string key, const std::string& text) {
    if (text.empty()) return;
    for (std::string& line : wrap_words(text, kWidth - kKeys))
      table_.row({std::exchange(key, ""), std::move(line)});
  }
  void print(const std::string& title) {
    table_.title(title);
    std::cout << table_.text(color_wanted());
  }

 private:
  Table table_{{{"", Align::left}, {"", Align::left}}};
};

void describe_rest(Sheet& sheet, const Family& family) {
  sheet.add("kind", properties_of(family));
  sheet.add("analysis", fmt::format("starling topo '{}' -n 16", family.name));
}

void describe_rest(Sheet& sheet, const MethodFamily& family) {
  const auto needs = needs_of(family);
  if (!needs) return;
  const auto because = [&](const std::string& key, const std::string& what, const std::string& reason) {
    if (!reason.empty()) sheet.add(key, what + ": " + reason);
  };
  sheet.add("topology", topology_text(*needs));
  if (needs->schedule != ScheduleKind::none) sheet.add("for example", examples_of(needs->schedule));
  if (needs->push_sum_schedules) sheet.add("also", "topologies with weights=push, which only keep sums");
  if (needs->two_block_schedules) sheet.add("also", "topologies of two blocks per rank (ceca)");
  if (!needs->optimizer.empty()) because("optimizer", optimizer_text(*needs), needs->optimizer_because);
  because("messages", "float32 only", needs->exact_messages_because);
  because("messages", "not int8", needs->no_int8_because);
  because("lost messages", "none", needs->no_losses_because);
  if (needs->gradient != GradientUse::own) sheet.add("gradients", "are sent to other ranks");
  if (needs->one_sided) sheet.add("windows", "are used: memory that other ranks write to");
  if (needs->asynchronous) sheet.add("asynchronous", "ranks do not wait for slower ones");
  sheet.add("canonical", canonical_method(family.name));
}

void describe_rest(Sheet&, const CodecFamily&) {}

template <typename Entry>
void print_one(const Entry& entry) {
  Sheet sheet;
  if (!entry.aliases.empty()) sheet.add("also called", joined(entry.aliases));
  for (const Parameter& parameter : entry.parameters)
    sheet.add(spelled(parameter),
              parameter.fallback.empty() ? parameter.help + " (must be given)" : parameter.help);
  describe_rest(sheet, entry);
  sheet.print(entry.name + ": " + entry.summary);
}

template <typename Entry>
void show(const std::vector<Entry>& entries, const Entry* one, bool json, const std::string& kind,
          const std::string& title) {
  if (one != nullptr && json) {
    JsonWriter writer(std::cout);
    write_entry(writer, *one);
  } else if (one != nullptr) {
    print_one(*one);
  } else if (json) {
    write_list(entries);
  } else {
    print_list(entries, kind, title);
  }
}

/// Adds a command that lists the entries of a registry, or shows a single one.
template <typename List, typename Find>
void add_listing(CLI::App& app, const std::string& command_name, const std::string& kind, const List& list,
                 const Find& find) {
  struct Options {
    std::string name;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand(command_name, fmt::format("List {}, or show one in full", command_name));
  command->add_option("NAME", options->name, fmt::format("show this {} in full", kind));
  command->add_flag("--json", options->json, "print JSON");
  add_load_option(*command);
  command->footer(fmt::format("Examples:\n  starling {0}\n  starling {0} {1}\n  starling {0} --json",
                              command_name, list().front().name));
  command->callback([=] {
    const Spec spec = options->name.empty() ? Spec{} : parse_spec(options->name);
    const auto* one = options->name.empty() ? nullptr : &find(spec);
    if (!spec.arguments.empty())
      throw InvalidArgument(
          fmt::format("starling {} shows a {} with all its parameters: give its name only, {}", command_name,
                      kind, one->name));
    std::string title = fmt::format("{}; `starling {} NAME` shows one in full", command_name, command_name);
    title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title.front())));
    show(list(), one, options->json, kind, title);
  });
}

}  // namespace

void list_topologies(bool json) {
  show<Family>(topology_families(), nullptr, json, "topology",
               "Topologies; `starling topo NAME -n N` analyzes one");
}

void add_methods(CLI::App& app) {
  add_listing(app, "methods", "method", method_families, find_method);
}

void add_topologies(CLI::App& app) {
  add_listing(app, "topologies", "topology", topology_families, find_topology);
}

void add_codecs(CLI::App& app) {
  add_listing(app, "codecs", "codec", codec_families, find_codec);
}

}  // namespace starling::tool
