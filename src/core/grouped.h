// Numbers as text that is easy to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace millrace {

/// Returns 1234567 as "1,234,567".
inline std::string grouped(std::uint64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(digits.begin() + at, ',');
  }
  return digits;
}

}  // namespace millrace
