// Addresses and prefixes in a configuration, and messages about wrong ones. Plain functions; any
// thread may call them.
#pragma once

#include <charconv>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "core/prefix.h"
#include "toml/keys.h"

namespace millrace::config {

template <class A>
constexpr std::string_view kFamilyName = A::kBytes == 4 ? "IPv4" : "IPv6";

/// The parts of a text like "10.0.0.0/8". The parts refer to the text.
struct AddressAndBits {
  std::string_view address;              ///< before the slash
  std::optional<std::string_view> bits;  ///< behind the slash, if there is one

  explicit AddressAndBits(std::string_view text) : address(text.substr(0, text.find('/'))) {
    if (address.size() < text.size()) bits = text.substr(address.size() + 1);
  }
};

/// Reads a prefix length. Without `digits` it is the whole address. Errors: a message that says
/// what would be right.
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

/// Reads a prefix. `digits`: as for `read_bits`. Errors: a message that says what would be right.
template <class A>
std::expected<Prefix<A>, std::string> read_prefix(const A& address,
                                                  std::optional<std::string_view> digits) {
  const auto bits = read_bits<A>(digits);
  if (!bits) return std::unexpected(bits.error());
  const Prefix<A> prefix{prefix_of(address, *bits), *bits};
  if (prefix.address == address) return prefix;
  return std::unexpected(to_string(address) + "/" + std::to_string(*bits) +
                         " has bits set behind its prefix: give " + to_string(prefix));
}

/// Returns a hint if the text is an address with a port, such as "10.0.0.1:80": address and port
/// must be given by two keys. Returns nothing for other texts.
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
