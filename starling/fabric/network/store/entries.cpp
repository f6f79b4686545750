#include "starling/fabric/network/store/entries.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace starling::fabric::network {
namespace {

constexpr std::size_t kEntryOverhead = 128;  // bytes per entry, besides key and value

}  // namespace

bool well_formed(const StoreRequest& request, const StoreLimits& limits) {
  struct Shape {
    std::size_t fewest_keys, most_keys, values;
  };
  constexpr Shape kShapes[] = {
      {1, 1, 1},          // set
      {1, 1, 0},          // get
      {0, kMostKeys, 0},  // wait
      {1, 1, 0},          // add
      {1, 1, 2},          // compare_set
      {0, kMostKeys, 0},  // check
      {1, 1, 0},          // remove
      {0, 0, 0},          // count
  };
  const Shape& shape = kShapes[static_cast<std::size_t>(request.operation)];
  const auto within = [](std::size_t limit) {
    return [limit](const std::string& text) { return text.size() <= limit; };
  };
  return request.keys.size() >= shape.fewest_keys && request.keys.size() <= shape.most_keys &&
         request.values.size() == shape.values && std::ranges::all_of(request.keys, within(limits.key)) &&
         std::ranges::all_of(request.values, within(limits.value));
}

const std::string* StoreEntries::missing(const std::vector<std::string>& keys) const {
  const auto found =
      std::ranges::find_if(keys, [&](const std::string& key) { return !entries_.contains(key); });
  return found == keys.end() ? nullptr : &*found;
}

StoreAnswer StoreEntries::put(const std::string& key, std::string value, StoreAnswer answer,
                              std::size_t other_bytes) {
  const auto old = entries_.find(key);
  const std::size_t before = old == entries_.end() ? 0 : key.size() + old->second.size() + kEntryOverhead;
  const std::size_t after = key.size() + value.size() + kEntryOverhead;
  if (after > before && bytes_ - before + after + other_bytes > limits_.memory)
    return {StoreStatus::failed, 0, fmt::format("it is full: its limit is {} bytes", limits_.memory)};
  if (changed_ && (old == entries_.end() || old->second != value)) changed_(key, &value);
  bytes_ = bytes_ - before + after;
  entries_.insert_or_assign(key, std::move(value));
  return answer;
}

// Numbers are stored as text, as in torch's stores.
StoreAnswer StoreEntries::add(const StoreRequest& request, std::size_t other_bytes) {
  const std::string& key = request.keys[0];
  std::int64_t sum = 0;
  if (const auto found = entries_.find(key); found != entries_.end()) {
    const std::string& text = found->second;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), sum);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size())
      return {StoreStatus::failed, 0, "the value is not a number"};
  }
  if (__builtin_add_overflow(sum, request.number, &sum))
    return {StoreStatus::failed, 0, "the sum has more than 64 bits"};
  return put(key, std::to_string(sum), {StoreStatus::done, sum, ""}, other_bytes);
}

// Answers with the value afterwards; an empty expected value also matches a missing key.
StoreAnswer StoreEntries::compare_set(const StoreRequest& request, std::size_t other_bytes) {
  const std::string& expected = request.values[0];
  const std::string& desired = request.values[1];
  const auto found = entries_.find(request.keys[0]);
  if (found == entries_.end() ? expected.empty() : found->second == expected)
    return put(request.keys[0], desired, {StoreStatus::done, 0, desired}, other_bytes);
  return {StoreStatus::done, 0, found == entries_.end() ? expected : found->second};
}

bool StoreEntries::remove(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  if (changed_) changed_(key, nullptr);
  bytes_ -= key.size() + found->second.size() + kEntryOverhead;
  entries_.erase(found);
  return true;
}

std::optional<StoreAnswer> StoreEntries::answer(const StoreRequest& request, std::size_t other_bytes) {
  const auto number = [](std::int64_t value) { return StoreAnswer{StoreStatus::done, value, ""}; };
  switch (request.operation) {
    case StoreOperation::set:
      return put(request.keys[0], request.values[0], {}, other_bytes);
    case StoreOperation::get:
      if (missing(request.keys) != nullptr) return std::nullopt;
      return StoreAnswer{StoreStatus::done, 0, entries_.at(request.keys[0])};
    case StoreOperation::wait:
      if (missing(request.keys) != nullptr) return std::nullopt;
      return number(0);
    case StoreOperation::add:
      return add(request, other_bytes);
    case StoreOperation::compare_set:
      return compare_set(request, other_bytes);
    case StoreOperation::check:
      return number(missing(request.keys) == nullptr ? 1 : 0);
    case StoreOperation::remove:
      return number(remove(request.keys[0]) ? 1 : 0);
    case StoreOperation::count:
      break;
  }
  return number(static_cast<std::int64_t>(entries_.size()));
}

}  // namespace starling::fabric::network
