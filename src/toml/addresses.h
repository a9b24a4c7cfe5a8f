// Addresses and prefixes in a configuration: what is wrong with one, in words.
#pragma once

#include <charconv>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "core/address.h"
#include "toml/keys.h"

namespace millrace::config {

template <class A>
constexpr std::string_view kFamilyName = A::kBytes == 4 ? "IPv4" : "IPv6";

/// "10.0.0.0/8": what stands before the slash and, where there is one, behind it.
struct AddressAndBits {
  std::string_view address;
  std::optional<std::string_view> bits;

  explicit AddressAndBits(std::string_view text) : address(text.substr(0, text.find('/'))) {
    if (address.size() < text.size()) bits = text.substr(address.size() + 1);
  }
};

/// The prefix length that the digits are; all bits where there are none.
template <class A>
std::expected<unsigned, std::string> read_bits(std::optional<std::string_view> digits) {
  constexpr unsigned kMost = 8 * A::kBytes;
  if (!digits) return kMost;
  unsigned bits = 0;
  const std::string text(*digits);
  const char* end = text.c_str() + text.size();
  const auto parsed = std::from_chars(text.c_str(), end, bits);
  if (parsed.ec == std::errc{} && parsed.ptr == end && bits <= kMost) return bits;
  return std::unexpected(in_quotes(*digits) + " is no prefix length: give 0 to " +
                         std::to_string(kMost));
}

/// Why an address is not the prefix that it should be; nothing where it is.
template <class A>
std::optional<std::string> bits_behind(const A& address, unsigned bits) {
  const A prefix = prefix_of(address, bits);
  if (prefix == address) return std::nullopt;
  const std::string length = "/" + std::to_string(bits);
  return to_string(address) + length + " has bits set behind its prefix: give " +
         to_string(prefix) + length;
}

/// What would be right where the text is an address with its port, as "10.0.0.1:80"; else nothing.
inline std::optional<std::string> hint_of_port(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == text.npos || colon + 1 == text.size()) return std::nullopt;
  const std::string_view port = text.substr(colon + 1);
  std::string_view address = text.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']'))
    address = address.substr(1, address.size() - 2);
  else if (address.contains(':'))
    return std::nullopt;
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool is_port = error == std::errc{} && end == port.data() + port.size() && number != 0;
  const bool is_there = parse_address<AddressV4>(address).has_value() ||
                        parse_address<AddressV6>(address).has_value();
  if (!is_port || !is_there) return std::nullopt;
  return "give address = " + in_quotes(address) + " and port = " + std::string(port);
}

inline bool is_address(std::string_view text) {
  return parse_address<AddressV4>(text).has_value() || parse_address<AddressV6>(text).has_value();
}

}  // namespace millrace::config
