#include "core/parameters.h"

#include <charconv>

namespace millrace {

std::optional<AnyAddress> parse_any_address(std::string_view text) {
  if (const auto v4 = parse_address<AddressV4>(text)) return *v4;
  if (const auto v6 = parse_address<AddressV6>(text)) return *v6;
  return std::nullopt;
}

std::optional<unsigned> parse_number(std::string_view text, unsigned most) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

Result<BackendName> parse_backend(std::string_view text) {
  if (const auto address = parse_any_address(text)) return BackendName{*address, std::nullopt};
  const auto colon = text.rfind(':');
  if (colon != text.npos) {
    std::string_view host = text.substr(0, colon);
    const bool in_brackets = host.starts_with('[') && host.ends_with(']');
    if (in_brackets) host = host.substr(1, host.size() - 2);
    const auto address = parse_any_address(host);
    const auto port = parse_number(text.substr(colon + 1), 65535);
    if (address && port && in_brackets == (address->index() == 1))
      return BackendName{*address, static_cast<std::uint16_t>(*port)};
  }
  return wrong_parameter("backend", text,
                         "is no address: give one like 10.0.0.1, 10.0.0.1:80 or [fd00::1]:80");
}

std::unexpected<Error> wrong_parameter(std::string_view name, std::string_view value,
                                       std::string_view what) {
  return std::unexpected(
      Error{std::string(name).append(" \"").append(value).append("\" ").append(what),
            Error::Kind::usage});
}

}  // namespace millrace
