// Reads JSON that another process has sent. `number_from` and `with_address` throw a
// `std::exception` (nlohmann::json::exception, std::invalid_argument, ...) if the JSON is not as it
// must be.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/address.h"
#include "core/json.h"
#include "millrace/types.h"

namespace millrace {

/// Returns the whole number that `json` is, which must be from `least` to `most`.
template <class Number>
Number number_from(const Json& json, Number least, Number most) {
  if (!json.is_number_unsigned()) throw std::invalid_argument("number");
  const auto value = json.get<std::uint64_t>();
  if (value < least || value > most) throw std::out_of_range("number");
  return static_cast<Number>(value);
}
template <class Number>
Number number_from(const Json& json) {
  return number_from<Number>(json, 0, std::numeric_limits<Number>::max());
}

/// Calls `then` with the member "address", an `AddressV4` or `AddressV6`.
template <class Then>
void with_address(const Json& json, Then&& then) {
  const std::string text = json.at("address");
  if (const auto v4 = parse_address<AddressV4>(text)) {
    then(*v4);
  } else {
    then(parse_address<AddressV6>(text).value());
  }
}

/// Returns the error (failed) for JSON that is not what a running millrace sends to the process
/// that takes over.
inline Error no_offer() {
  return {
      "the answer at the control socket cannot be read: it must come from a millrace that can hand "
      "over"};
}

}  // namespace millrace
