// Parameters of requests (names with values), and how their values are read. Plain functions; any
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

/// Pairs of name and value, like "source" and "10.0.0.0/8".
using Parameters = std::span<const std::pair<std::string, std::string>>;

/// Reads "10.0.0.1", "fd00::1". Returns nothing if the text is no address.
std::optional<AnyAddress> parse_any_address(std::string_view text);

/// Reads a whole number from 0 to `most`. Returns nothing if the text is no such number.
std::optional<unsigned> parse_number(std::string_view text, unsigned most);

/// A backend by address, with or without a port.
struct BackendName {
  AnyAddress address;
  std::optional<std::uint16_t> port;  ///< none: any port
};
/// Reads "10.0.0.1", "10.0.0.1:80" or "[fd00::1]:80". Errors (usage): the text names no backend.
Result<BackendName> parse_backend(std::string_view text);

/// Returns a usage error with the message `NAME "VALUE" WHAT`, where WHAT says what is wrong and
/// what would be right.
std::unexpected<Error> wrong_parameter(std::string_view name, std::string_view value,
                                       std::string_view what);

}  // namespace millrace
