// Values in rules of a configuration, as text. Plain functions; any thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "function/firewall/matching.h"

namespace millrace {

/// Reads "80" or "8000-8100".
std::optional<Range> range_from(std::string_view text);

struct Rate {
  std::uint64_t connections = 1;
  std::uint64_t in_us = 1;
};
/// Reads "1000/s", "20/min", "5/h" or "1/d"; at most one connection a microsecond.
std::optional<Rate> rate_from(std::string_view text);

/// The messages that a name or a type stands for; none where a family has no such message.
struct IcmpMessages {
  std::optional<Range> v4;
  std::optional<Range> v6;
};
/// Reads a name ("echo-request"), a type ("8"), or a type and codes ("3/4", "5/0-3").
std::optional<IcmpMessages> icmp_messages_from(std::string_view text);
/// Returns all names, for messages to people.
std::string icmp_names();

}  // namespace millrace
