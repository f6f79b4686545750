#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/spec.h"
#include "starling/base/types.h"

namespace starling {

/// The kind of a parameter's value: a number, word or list; text that is kept as it is (a file name); or the
/// spec of a topology or codec.
enum class ParameterKind { value, text, topology, codec };

/// A declared parameter of a topology, method, codec, ...: its name and its default as text, "" if it must be
/// given.
struct Parameter {
  std::string name;
  std::string fallback;
  std::string help;
  ParameterKind kind = ParameterKind::value;
};

/// Returns the canonical form of a value that is the spec of a topology or a codec.
using CanonicalPart = std::function<Spec(ParameterKind kind, const Spec& value)>;

/// The arguments of one Spec, checked against the declared parameters. Positional arguments fill parameters
/// in the order of declaration. Every getter throws InvalidArgument with the valid values.
class Parameters {
 public:
  Parameters(const Spec& spec, const std::vector<Parameter>& declared);

  const std::string& owner() const { return owner_; }
  bool given(const std::string& name) const;

  std::int64_t integer(const std::string& name, std::int64_t least, std::int64_t most) const;
  /// An integer, or nothing if the parameter is absent or `auto` (the declared fallback).
  std::optional<std::int64_t> optional_integer(const std::string& name, std::int64_t least,
                                               std::int64_t most) const;
  double number(const std::string& name, double least, double most) const;
  std::optional<double> optional_number(const std::string& name, double least, double most) const;
  std::uint64_t seed() const;
  bool yes(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  const std::string& choice(const std::string& name, const std::vector<std::string>& valid) const;
  /// A nested spec, such as a schedule inside a schedule.
  const Spec& spec(const std::string& name) const;
  /// A list of ranks below n, `[0,2,5..9]`, ascending and without repetition.
  std::vector<Rank> ranks(const std::string& name, Rank n) const;

  /// The canonical spelling, equal for all specs of equal meaning: every parameter by name, in declaration
  /// order, with defaults, numbers in their shortest form. Ranks compare it.
  Spec canonical(const CanonicalPart& part = {}) const;

 private:
  bool automatic(const std::string& name) const;
  [[noreturn]] void fail(const std::string& name, const std::string& expectation) const;

  std::string owner_;
  std::vector<Parameter> declared_;
  std::vector<Spec> values_;
  std::vector<bool> given_;
  std::size_t index(const std::string& name) const;
};

}  // namespace starling
