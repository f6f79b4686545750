#pragma once

#include <optional>
#include <string>

namespace starling::launch {

/// The address of this machine from which it would send to `host`, a name or an address; nothing where the
/// name is not known or no way leads there. Nothing is sent.
std::optional<std::string> address_towards(const std::string& host);

bool is_loopback(const std::string& address);

/// The first address of an interface of this machine, IPv4 before IPv6. Throws InvalidArgument that lists the
/// interfaces.
std::string address_of_interface(const std::string& name);

/// The interface that has this address; "" for none.
std::string interface_with(const std::string& address);

}  // namespace starling::launch
