// Requests as names and values, and addresses and backends as such values. Plain functions; any
// thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/address.h"
#include "millrace/types.h"

namespace millrace {

/// What is asked, by name: "source", "10.0.0.0/8".
using Parameters = std::span<const std::pair<std::string, std::string>>;

/// "10.0.0.1", "fd00::1"; nothing where it is no address.
std::optional<AnyAddress> parse_any_address(std::string_view text);

/// A whole number up to `most`; nothing where the text is none.
std::optional<unsigned> parse_number(std::string_view text, unsigned most);

/// A backend, as "10.0.0.1" (whatever its port) or "10.0.0.1:80", "[fd00::1]:80".
struct BackendName {
  AnyAddress address;
  std::optional<std::uint16_t> port;
};
/// Errors (usage) say what is wrong.
Result<BackendName> parse_backend(std::string_view text);

/// Returns the error (usage) of a parameter: its name, its value and what is wrong with that.
std::unexpected<Error> wrong_parameter(std::string_view name, std::string_view value,
                                       std::string_view what);

}  // namespace millrace
