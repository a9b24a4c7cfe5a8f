#include "core/address.h"

#include <arpa/inet.h>

#include <array>
#include <charconv>

namespace millrace {
namespace {

template <class A>
constexpr int kFamily = A::kBytes == 4 ? AF_INET : AF_INET6;

}  // namespace

/// Formats an address without inet_ntop, which takes several times as long: a list of connections
/// may have millions of addresses.
template <>
std::string to_string(const AddressV4& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  char* at = text.data();
  for (const std::uint8_t byte : address.bytes) {
    if (at != text.data()) *at++ = '.';
    at = std::to_chars(at, text.data() + text.size(), byte).ptr;
  }
  return {text.data(), at};
}

template <class A>
std::string to_string(const A& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(kFamily<A>, address.bytes.data(), text.data(), text.size());
}

template <class A>
std::optional<A> parse_address(std::string_view text) {
  A address;
  if (text.contains('\0')) return std::nullopt;
  if (::inet_pton(kFamily<A>, std::string(text).c_str(), address.bytes.data()) != 1) {
    return std::nullopt;
  }
  return address;
}

template <class A>
std::string with_port(const A& address, std::uint16_t port) {
  std::string text = to_string(address);
  if (port == 0) return text;
  return (A::kBytes == 4 ? text : "[" + text + "]") + ":" + std::to_string(port);
}

template std::string to_string(const AddressV6&);
template std::optional<AddressV4> parse_address(std::string_view);
template std::optional<AddressV6> parse_address(std::string_view);
template std::string with_port(const AddressV4&, std::uint16_t);
template std::string with_port(const AddressV6&, std::uint16_t);

std::string to_string(const AnyAddress& address) {
  return std::visit([](const auto& is) { return to_string(is); }, address);
}

}  // namespace millrace
