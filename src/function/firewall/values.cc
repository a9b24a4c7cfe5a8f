#include "function/firewall/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace millrace {
namespace {

template <class Number>
std::optional<Number> number_from(std::string_view digits) {
  Number value = 0;
  const std::string text(digits);
  const char* const end = text.c_str() + text.size();
  const auto read = std::from_chars(text.c_str(), end, value);
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  return value;
}

struct IcmpName {
  std::string_view name;
  std::optional<std::uint8_t> v4;  ///< type; none: the family has no message of that name
  std::optional<std::uint8_t> v6;
};
/// The messages that may begin a connection, or that a router processes (RFC 792, RFC 1256, RFC
/// 4443, RFC 8335).
constexpr std::array<IcmpName, 5> kIcmpNames{{{"echo-request", 8, 128},
                                              {"timestamp-request", 13, std::nullopt},
                                              {"router-solicitation", 10, 133},
                                              {"router-advertisement", 9, 134},
                                              {"extended-echo-request", 42, 160}}};

std::optional<Range> messages(std::optional<std::uint8_t> type, Range codes) {
  if (!type) return std::nullopt;
  return Range{icmp_message(*type, static_cast<std::uint8_t>(codes.first)),
               icmp_message(*type, static_cast<std::uint8_t>(codes.last))};
}

}  // namespace

std::optional<Range> range_from(std::string_view text) {
  const auto dash = text.find('-');
  const auto first = number_from<std::uint16_t>(text.substr(0, dash));
  const auto last = dash == text.npos ? first : number_from<std::uint16_t>(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return Range{*first, *last};
}

std::optional<Rate> rate_from(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 4> kSeconds{
      {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}}};
  const auto slash = text.find('/');
  if (slash == text.npos) return std::nullopt;
  const auto count = number_from<std::uint64_t>(text.substr(0, slash));
  const auto* const unit = std::ranges::find(kSeconds, text.substr(slash + 1),
                                             [](const auto& one) { return one.first; });
  if (!count || unit == kSeconds.end()) return std::nullopt;
  const Rate rate{.connections = *count, .in_us = unit->second * 1'000'000};
  if (rate.connections == 0 || rate.connections > rate.in_us) return std::nullopt;
  return rate;
}

std::optional<IcmpMessages> icmp_messages_from(std::string_view text) {
  constexpr Range kAll{0, 255};
  const auto* const named = std::ranges::find(kIcmpNames, text, &IcmpName::name);
  if (named != kIcmpNames.end())
    return IcmpMessages{messages(named->v4, kAll), messages(named->v6, kAll)};
  const auto slash = text.find('/');
  const auto type = number_from<std::uint8_t>(text.substr(0, slash));
  const auto codes = slash == text.npos ? std::optional(kAll) : range_from(text.substr(slash + 1));
  if (!type || !codes || codes->last > 255) return std::nullopt;
  return IcmpMessages{messages(type, *codes), messages(type, *codes)};
}

std::string icmp_names() {
  std::string all;
  for (const IcmpName& one : kIcmpNames) all.append(all.empty() ? "" : ", ").append(one.name);
  return all;
}

}  // namespace millrace
