// Which connections somebody means, who lists, ends or traces some. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/address.h"
#include "core/parameters.h"
#include "line/line.h"
#include "millrace/types.h"

namespace millrace {

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

/// The key that the parameters `protocol`, `source`, `source_port`, `destination` and
/// `destination_port` name; ports may be missing where the protocol has none.
Result<AnyKey> parse_key(Parameters parameters);

}  // namespace millrace
