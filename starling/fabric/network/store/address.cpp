#include "starling/fabric/network/store/address.h"

#include <charconv>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::fabric::network {

std::string StoreAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

StoreAddress read_store_address(const std::string& text) {
  StoreAddress address;
  if (const std::size_t colon = text.rfind(':'); colon != std::string::npos) {
    address.host = text.substr(0, colon);
    if (address.host.starts_with('[') && address.host.ends_with(']'))
      address.host = address.host.substr(1, address.host.size() - 2);
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + colon + 1, end, address.port);
    if (result.ec == std::errc() && result.ptr == end && address.port != 0 && !address.host.empty())
      return address;
  }
  throw InvalidArgument(fmt::format("'{}' is not the address:port of a store", text));
}

}  // namespace starling::fabric::network
