#pragma once

#include <optional>
#include <string>

namespace starling::launch {

/// The local address from which this machine would send to `host`, a name or an address. Empty if the name
/// cannot be resolved or there is no route. Nothing is sent.
std::optional<std::string> address_towards(const std::string& host);

bool is_loopback(const std::string& address);

/// The first address of an interface of this machine, IPv4 before IPv6. Throws InvalidArgument that lists the
/// interfaces.
std::string address_of_interface(const std::string& name);

/// The interface that has this address; "" if none has.
std::string interface_with(const std::string& address);

}  // namespace starling::launch
