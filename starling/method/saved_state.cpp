#include "starling/method/saved_state.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling {
namespace {

const std::string kMethod = "method";
const std::string kStep = "step";
const std::string kBlocks = "blocks";

std::string prefix(std::size_t block) {
  return fmt::format("block/{}/", block);
}

// Everything that what is remembered of a block depends on.
std::string shape_of(const Block& block) {
  const SchedulePtr schedule = block.channel->schedule();
  return fmt::format("{} x {} in {} segments by {}{}, rank {} of {}", block.count(), name(block.dtype()),
                     block.segments.size(), block.local_update ? block.local_update->name() : "nothing",
                     schedule ? " on " + schedule->name() : "", block.channel->rank(), block.channel->size());
}

std::string read_text(const CheckpointFile& file, const std::string& part) {
  const std::vector<std::byte> bytes = file.read(part);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

double read_saved_number(const CheckpointFile& file, const std::string& part) {
  double number = 0;
  file.read_into(part, std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

void demand_equal(const CheckpointFile& file, const std::string& what, const std::string& then,
                  const std::string& now) {
  if (then != now)
    throw Error(
        fmt::format("{} was written with {} {}, here it is {}", file.path().string(), what, then, now));
}

// Its text is kept by files: the rank is found in it.
void demand_own_block(const CheckpointFile& file, std::size_t number, const std::string& then,
                      const std::string& now) {
  const std::size_t rank = now.rfind("rank "), size = now.rfind(" of ");
  const std::size_t rank_then = then.rfind("rank "), size_then = then.rfind(" of ");
  if (then != now && rank_then != then.npos && size_then != then.npos &&
      then.substr(0, rank_then) == now.substr(0, rank) && then.substr(size_then) == now.substr(size))
    throw Error(
        fmt::format("{} was written by {}, this is {}: each rank saves to and loads from a file of its own",
                    file.path().string(), then.substr(rank_then), now.substr(rank)));
  demand_equal(file, fmt::format("block {} of", number), then, now);
}

// The part's name after the prefix; empty where it has another.
std::string after(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : "";
}

std::vector<StatePlace> optimizer_places(Block& block, const std::string& at) {
  std::vector<StatePlace> places;
  if (!block.local_update) return places;
  for (const NamedState& state : block.local_update->state())
    places.push_back({at + "optimizer/" + state.name,
                      name(state.data.dtype),
                      {static_cast<std::byte*>(state.data.data), ConstBlock(state.data).bytes()}});
  return places;
}

// What is in the file and not here would be lost in silence.
void demand_no_more(const CheckpointFile& file, Block& block, const std::string& at) {
  const std::vector<StatePlace> places = optimizer_places(block, at);
  for (const auto& part : file.parts()) {
    const auto same = [&](const StatePlace& place) { return place.name == part.name; };
    if (!after(part.name, at + "optimizer/").empty() && std::none_of(places.begin(), places.end(), same))
      throw Error(
          fmt::format("{} has a part {}, which the optimizer here does not remember: it was written "
                      "with other settings",
                      file.path().string(), part.name));
  }
}

void restore_block(Block& block, const std::string& at, const CheckpointFile& file) {
  block.channel->set_round(static_cast<Step>(read_saved_number(file, at + "round")));
  file.read_into(optimizer_places(block, at));
  block.forget_states();
  std::vector<ChannelMemory> memory;
  for (const auto& part : file.parts()) {
    if (const std::string key = after(part.name, at + "method/"); !key.empty()) {
      const DType dtype = parse_dtype(part.type);
      const MutableBlock state = block.make_state(key, dtype, part.bytes / size_of(dtype));
      file.read_into(part.name, {static_cast<std::byte*>(state.data), part.bytes});
    } else if (const std::string what = after(part.name, at + "channel/"); !what.empty()) {
      memory.push_back({what, file.read(part.name)});
    }
  }
  block.channel->remember(memory);
}

}  // namespace

void SavedParts::add(const std::string& name, ConstBlock block) {
  add_view(name, starling::name(block.dtype),
           {static_cast<const std::byte*>(block.data), block.count * size_of(block.dtype)});
}

void SavedParts::add_view(const std::string& name, const std::string& type,
                          std::span<const std::byte> bytes) {
  parts_.push_back({name, type, bytes});
}

void SavedParts::add_copy(const std::string& name, const std::string& type,
                          std::span<const std::byte> bytes) {
  parts_.push_back({name, type, own_.emplace_back(bytes.begin(), bytes.end())});
}

void SavedParts::add_text(const std::string& name, const std::string& text) {
  add_copy(name, "text", std::as_bytes(std::span(text)));
}

void SavedParts::add_number(const std::string& name, double value) {
  add_copy(name, starling::name(DType::float64), std::as_bytes(std::span(&value, 1)));
}

void save(Driver& driver, SavedParts& parts) {
  parts.add_text(kMethod, driver.method().spec);
  parts.add_number(kBlocks, static_cast<double>(driver.size()));
  for (std::size_t b = 0; b < driver.size(); ++b) {
    Block& block = driver[b];
    const std::string at = prefix(b);
    parts.add_text(at + "shape", shape_of(block));
    for (const NamedState& state : block.states()) parts.add(at + "method/" + state.name, state.data);
    if (block.local_update)
      for (const NamedState& state : block.local_update->state())
        parts.add(at + "optimizer/" + state.name, state.data);
    for (const ChannelMemory& memory : block.channel->memory())
      parts.add_copy(at + "channel/" + memory.name, "bytes", memory.bytes);
    // A round that has begun already begins again.
    const Step round = block.channel->round();
    parts.add_number(at + "round",
                     static_cast<double>(driver.begun() ? std::min(round, driver.step()) : round));
  }
  parts.add_number(kStep, static_cast<double>(driver.step()));
}

void check_fits(Driver& driver, const CheckpointFile& file) {
  demand_equal(file, "the method", read_text(file, kMethod), driver.method().spec);
  const auto blocks = static_cast<std::size_t>(read_saved_number(file, kBlocks));
  demand_equal(file, "a number of blocks of", std::to_string(blocks), std::to_string(driver.size()));
  for (std::size_t b = 0; b < driver.size(); ++b)
    demand_own_block(file, b, read_text(file, prefix(b) + "shape"), shape_of(driver[b]));
}

Step saved_step(const CheckpointFile& file) {
  return static_cast<Step>(read_saved_number(file, kStep));
}

void restore(Driver& driver, const CheckpointFile& file) {
  check_fits(driver, file);
  for (std::size_t b = 0; b < driver.size(); ++b) demand_no_more(file, driver[b], prefix(b));
  driver.restart();
  driver.set_step(saved_step(file));
  for (std::size_t b = 0; b < driver.size(); ++b) restore_block(driver[b], prefix(b), file);
}

}  // namespace starling
