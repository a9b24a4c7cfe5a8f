// Which connections somebody means, who lists, ends or traces some. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/address.h"
#include "line/line.h"
#include "millrace/types.h"

namespace millrace {

/// "10.0.0.1", "fd00::1"; nothing where it is no address.
std::optional<AnyAddress> parse_any_address(std::string_view text);

/// What is asked, by name: "source", "10.0.0.0/8".
using Parameters = std::span<const std::pair<std::string, std::string>>;

/// All parts that are given must hold.
struct ConnectionFilter {
  struct Prefix {
    AnyAddress address;
    unsigned bits = 0;
  };

  std::optional<std::uint8_t> protocol;
  std::optional<Prefix> source;
  std::optional<Prefix> destination;
  std::optional<std::uint16_t> source_port;
  std::optional<std::uint16_t> destination_port;
  std::optional<std::string_view> state;  ///< its name, which two may have
  std::optional<Prefix> backend;
  std::optional<std::uint16_t> backend_port;

  bool takes(const ListedConnection& connection) const;
  bool takes_all() const;
};

/// Takes the parts that a filter has, by the names of its members, out of `parameters`; others are
/// left to the caller, who says with `is_other` which it knows. Errors (usage) say what is wrong.
Result<ConnectionFilter> parse_filter(Parameters parameters, bool (*is_other)(std::string_view));

/// A backend, as "10.0.0.1" (whatever its port) or "10.0.0.1:80", "[fd00::1]:80".
struct BackendName {
  AnyAddress address;
  std::optional<std::uint16_t> port;
};
Result<BackendName> parse_backend(std::string_view text);

/// The key that the parameters `protocol`, `source`, `source_port`, `destination` and
/// `destination_port` name; ports may be missing where the protocol has none.
Result<AnyKey> parse_key(Parameters parameters);

}  // namespace millrace
