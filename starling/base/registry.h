#pragma once

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/base/parameters.h"

namespace starling {

/// "a topology", "an objective".
std::string with_article(const std::string& what);
/// Throws InvalidArgument if the spec grammar cannot read the name.
void check_registered_name(const std::string& what, const std::string& name);

/// The number of additions to any registry of this process.
std::size_t registrations();
void count_registration();

/// The entries of one kind (topologies, methods, codecs, ...) that specs can name, in the order of
/// registration. Thread-safe. Entries are never removed, so references to them stay valid.
///
/// An Entry has `name`, `aliases`, `summary` and `parameters`.
template <typename Entry>
class Registry {
 public:
  /// `what`: the kind in the singular, for messages. `part`: canonicalizes values that are specs themselves.
  Registry(std::string what, std::vector<Entry> entries, CanonicalPart part = {})
      : what_(std::move(what)),
        part_(std::move(part)),
        entries_(std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end())) {}

  /// Finds an entry by name or alias. Throws InvalidArgument with the closest name and all valid names.
  const Entry& find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    if (const Entry* entry = look_up(name)) return *entry;
    throw InvalidArgument(unknown_name(what_, name, names_of(entries_)));
  }
  const Entry& find(const Spec& spec) const {
    if (spec.is_list)
      throw InvalidArgument("expected " + with_article(what_) + "'s name, not the list " + spec.to_string());
    return find(spec.word);
  }

  std::vector<Entry> entries() const {
    const std::lock_guard lock(mutex_);
    return {entries_.begin(), entries_.end()};
  }

  /// Throws InvalidArgument if the name or one of its aliases is taken.
  void add(Entry entry) {
    std::vector<std::string> names = entry.aliases;
    names.insert(names.begin(), entry.name);
    const std::lock_guard lock(mutex_);
    for (const std::string& name : names) {
      check_registered_name(what_, name);
      if (look_up(name) != nullptr)
        throw InvalidArgument(with_article(what_) + " named '" + name + "' exists already");
    }
    entries_.push_back(std::move(entry));
    count_registration();
  }

  /// The canonical spelling of a spec (Parameters::canonical) under the entry's main name.
  Spec canonical(const Spec& spec) const {
    const Entry& entry = find(spec);
    Spec named = spec;
    named.word = entry.name;
    return Parameters(named, entry.parameters).canonical(part_);
  }

 private:
  const Entry* look_up(const std::string& name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name ||
          std::find(entry.aliases.begin(), entry.aliases.end(), name) != entry.aliases.end())
        return &entry;
    return nullptr;
  }

  template <typename Entries>
  static std::vector<std::string> names_of(const Entries& entries) {
    std::vector<std::string> names;
    for (const Entry& entry : entries) names.push_back(entry.name);
    return names;
  }

  std::string what_;
  CanonicalPart part_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
};

}  // namespace starling
