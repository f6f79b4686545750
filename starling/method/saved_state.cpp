#include "starling/method/saved_state.h"

#include <cstring>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling {
namespace {

std::string prefix(std::size_t block) {
  return fmt::format("block/{}/", block);
}

}  // namespace

void SavedParts::add(const std::string& name, ConstBlock block) {
  add_view(name, starling::name(block.dtype),
           {static_cast<const std::byte*>(block.data), block.count * size_of(block.dtype)});
}

void SavedParts::add_view(const std::string& name, const std::string& type, std::span<const std::byte> bytes) {
  parts_.push_back({name, type, bytes});
}

void SavedParts::add(const std::string& name, const std::vector<std::byte>& bytes) {
  parts_.push_back({name, "bytes", own_.emplace_back(bytes)});
}

void SavedParts::add_text(const std::string& name, const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  parts_.push_back({name, "text", own_.emplace_back(first, first + text.size())});
}

void SavedParts::add_number(const std::string& name, double value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  parts_.push_back({name, starling::name(DType::float64), own_.emplace_back(first, first + sizeof value)});
}

void save(Driver& driver, SavedParts& parts) {
  for (std::size_t b = 0; b < driver.size(); ++b) {
    Block& block = driver[b];
    const std::string at = prefix(b);
    for (const NamedState& state : block.states()) parts.add(at + "method/" + state.name, state.data);
    if (block.local_update)
      for (const NamedState& state : block.local_update->state())
        parts.add(at + "optimizer/" + state.name, state.data);
    for (const ChannelMemory& memory : block.channel->memory())
      parts.add(at + "channel/" + memory.name, memory.bytes);
    // A round that has begun already begins again.
    const Step round = block.channel->round();
    parts.add_number(at + "round", static_cast<double>(driver.begun() ? std::min(round, driver.step()) : round));
  }
  parts.add_number("step", static_cast<double>(driver.step()));
}

void restore(Driver& driver, const CheckpointFile& file) {
  driver.restart();
  double step = 0;
  file.read_into("step", std::as_writable_bytes(std::span(&step, 1)));
  driver.set_step(static_cast<Step>(step));
  for (std::size_t b = 0; b < driver.size(); ++b) {
    Block& block = driver[b];
    const std::string at = prefix(b);
    double round = 0;
    file.read_into(at + "round", std::as_writable_bytes(std::span(&round, 1)));
    block.channel->set_round(static_cast<Step>(round));
    if (block.local_update)
      for (const NamedState& state : block.local_update->state())
        file.read_into(at + "optimizer/" + state.name,
                       {static_cast<std::byte*>(state.data.data), ConstBlock(state.data).bytes()});
    std::vector<ChannelMemory> memory;
    for (const auto& part : file.parts()) {
      if (part.name.rfind(at + "method/", 0) == 0) {
        const DType dtype = parse_dtype(part.type);
        const MutableBlock state =
            block.make_state(part.name.substr(at.size() + std::strlen("method/")), dtype, part.bytes / size_of(dtype));
        file.read_into(part.name, {static_cast<std::byte*>(state.data), part.bytes});
      } else if (part.name.rfind(at + "channel/", 0) == 0) {
        memory.push_back({part.name.substr(at.size() + std::strlen("channel/")), file.read(part.name)});
      }
    }
    block.channel->remember(memory);
  }
}

}  // namespace starling
