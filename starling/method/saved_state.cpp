#include "starling/method/saved_state.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/transfer.h"

namespace starling::method {
namespace {

const std::string kMethod = "method";
const std::string kStep = "step";
const std::string kBlocks = "blocks";
const std::string kRank = "rank";
const std::string kSize = "size";

std::string prefix(std::size_t block) {
  return fmt::format("block/{}/", block);
}

// Everything that the saved state of a block depends on; `schedule` is the schedule's name.
std::string shape_of(const Block& block, const std::string& schedule) {
  return fmt::format("{} x {} in {} segments by {}{}, rank {} of {}", block.count(), name(block.dtype()),
                     block.segments.size(), block.local_update ? block.local_update->name() : "nothing",
                     schedule.empty() ? "" : " on " + schedule, block.channel->rank(), block.channel->size());
}

std::string shape_of(const Block& block) {
  const SchedulePtr schedule = block.channel->schedule();
  return shape_of(block, schedule ? schedule->canonical() : "");
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

// Files of earlier versions do not contain their rank.
void demand_own_file(const CheckpointFile& file, const Channel& channel) {
  const auto has = [&](const std::string& part) {
    return std::ranges::any_of(file.parts(), [&](const auto& one) { return one.name == part; });
  };
  if (!has(kRank) || !has(kSize)) return;
  const auto rank = static_cast<Rank>(read_saved_number(file, kRank));
  const auto size = static_cast<Rank>(read_saved_number(file, kSize));
  if (rank != channel.rank() && size == channel.size())
    throw Error(fmt::format(
        "{} was written by rank {} of {}, this is rank {} of {}: each rank saves to and loads from a file of "
        "its own",
        file.path().string(), rank, size, channel.rank(), channel.size()));
}

// The rest of the part's name after the prefix; "" if the prefix differs.
std::string after(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : "";
}

std::vector<NamedState> optimizer_state(Block& block) {
  return block.local_update ? block.local_update->state() : std::vector<NamedState>();
}

// Throws Error if the file has parts that do not exist here and would be lost silently.
void demand_no_more(const CheckpointFile& file, Block& block, const std::string& at) {
  const std::vector<NamedState> known = optimizer_state(block);
  for (const auto& part : file.parts()) {
    const std::string own = after(part.name, at + "optimizer/");
    const auto same = [&](const NamedState& state) { return state.name == own; };
    if (!own.empty() && std::none_of(known.begin(), known.end(), same))
      throw Error(
          fmt::format("{} has a part {}, which the optimizer here does not remember: it was written "
                      "with other settings",
                      file.path().string(), part.name));
  }
}

// State on a device is first read into host memory.
void restore_optimizer(Block& block, const std::string& at, const CheckpointFile& file) {
  const std::vector<NamedState> states = optimizer_state(block);
  std::vector<OwnedBuffer> staged;
  std::vector<StatePlace> places;
  for (const auto& [key, data] : states) {
    Buffer to = data;
    if (!data.on_host()) to = staged.emplace_back(data.dtype, data.count).buffer();
    places.push_back({at + "optimizer/" + key, name(to.dtype), {to.host_bytes(), to.bytes()}});
  }
  file.read_into(places);
  auto from = staged.begin();
  for (const auto& [key, data] : states)
    if (!data.on_host()) kernel::transfer(data, (from++)->buffer());
}

void restore_block(Block& block, const std::string& at, const CheckpointFile& file) {
  if (NeighborChannel* neighbors = block.channel->neighbors())
    neighbors->set_round(static_cast<Step>(read_saved_number(file, at + "round")));
  restore_optimizer(block, at, file);
  block.forget_states();
  std::vector<ChannelMemory> memory;
  for (const auto& part : file.parts()) {
    if (const std::string key = after(part.name, at + "method/"); !key.empty()) {
      const DType dtype = parse_dtype(part.type);
      const Buffer state = block.restore_state(key, dtype, part.bytes / size_of(dtype));
      file.read_into(part.name, {state.host_bytes(), part.bytes});
    } else if (const std::string what = after(part.name, at + "channel/"); !what.empty()) {
      memory.push_back({what, file.read(part.name)});
    }
  }
  if (RelayChannel* relay = block.channel->relay()) relay->remember(memory);
  block.channel->abandon_messages();
}

}  // namespace

void SavedParts::add(const std::string& name, ConstBuffer block) {
  const std::span bytes(static_cast<const std::byte*>(block.address()), block.bytes());
  if (block.on_host())
    add_view(name, starling::name(block.dtype), bytes);
  else
    add_device_view(name, starling::name(block.dtype), bytes, nullptr);
}

void SavedParts::add_view(const std::string& name, const std::string& type,
                          std::span<const std::byte> bytes) {
  parts_.push_back({name, type, bytes});
}

void SavedParts::add_device_view(const std::string& name, const std::string& type,
                                 std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  parts_.push_back({name, type, bytes, kernel::device_context()});
  if (owner) kept_.push_back(std::move(owner));
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
  parts.add_text(kMethod, driver.method().canonical);
  parts.add_number(kBlocks, static_cast<double>(driver.size()));
  if (driver.size() > 0) {
    parts.add_number(kRank, driver[0].channel->rank());
    parts.add_number(kSize, driver[0].channel->size());
  }
  for (std::size_t b = 0; b < driver.size(); ++b) {
    Block& block = driver[b];
    const std::string at = prefix(b);
    parts.add_text(at + "shape", shape_of(block));
    for (const NamedState& state : block.states()) parts.add(at + "method/" + state.name, state.data);
    for (const NamedState& state : optimizer_state(block))
      parts.add(at + "optimizer/" + state.name, state.data);
    if (RelayChannel* relay = block.channel->relay())
      for (const ChannelMemory& memory : relay->memory())
        parts.add_copy(at + "channel/" + memory.name, "bytes", memory.bytes);
    // A round that has begun already restarts.
    const NeighborChannel* neighbors = block.channel->neighbors();
    const Step round = neighbors == nullptr ? 0 : neighbors->round();
    parts.add_number(at + "round",
                     static_cast<double>(driver.begun() ? std::min(round, driver.step()) : round));
  }
  parts.add_number(kStep, static_cast<double>(driver.step()));
}

void check_fits(Driver& driver, const CheckpointFile& file) {
  // Files of earlier versions contain the method and the schedule as the user typed them.
  const Method& method = driver.method();
  if (const std::string then = read_text(file, kMethod); then != method.spec)
    demand_equal(file, "the method", then, method.canonical);
  const auto blocks = static_cast<std::size_t>(read_saved_number(file, kBlocks));
  demand_equal(file, "a number of blocks of", std::to_string(blocks), std::to_string(driver.size()));
  if (driver.size() > 0) demand_own_file(file, *driver[0].channel);
  for (std::size_t b = 0; b < driver.size(); ++b) {
    const SchedulePtr schedule = driver[b].channel->schedule();
    const std::string then = read_text(file, prefix(b) + "shape");
    if (schedule && then == shape_of(driver[b], schedule->name())) continue;
    demand_equal(file, fmt::format("block {} of", b), then, shape_of(driver[b]));
  }
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

}  // namespace starling::method
