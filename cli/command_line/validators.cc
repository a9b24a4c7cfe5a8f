#include "validators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace millrace::cli {
namespace {

/// True for numbers with a leading zero, as "010": some programs read it as eight, some as ten.
bool may_be_octal(std::string_view text) {
  return text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

/// True if the whole text is a number of at most 64 bits to `strtoull`, which takes 0x10, too.
bool fits_64_bits(const std::string& text) {
  if (may_be_octal(text)) return false;
  char* end = nullptr;
  errno = 0;
  std::strtoull(text.c_str(), &end, 0);
  return errno == 0 && end == text.c_str() + text.size();
}

template <class T>
CLI::Validator within(T from, T to, std::string_view what) {
  return CLI::Validator(
      [from, to, what](std::string& text) {
        T value{};
        const char* end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, value);
        // Comparisons with "nan" are false, so "nan" is refused.
        const bool right =
            read.ec == std::errc{} && read.ptr == end && value >= from && value <= to;
        if (right && !may_be_octal(text)) return std::string{};
        return fmt::format("'{}' is no {} from {} to {}{}", text, what, from, to,
                           right ? ": write it without the leading zero" : "");
      },
      fmt::format("{} to {}", from, to));
}

}  // namespace

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& value) {
        return value.empty() ? std::string("is empty: give a file") : std::string{};
      },
      "");
}

CLI::Validator not_negative() {
  return CLI::Validator(
      [](std::string& value) {
        if (value.starts_with('-')) return value + " is negative: give a number from 0 on";
        return fits_64_bits(value)
                   ? std::string{}
                   : fmt::format("'{}' is no whole number from 0 to {}", value, UINT64_MAX);
      },
      "");
}

CLI::Validator whole_number(std::uint64_t from, std::uint64_t to) {
  return within(from, to, "whole number");
}

CLI::Validator number(double from, double to) { return within(from, to, "number"); }

CLI::Validator one_of(std::vector<std::string> names) {
  const std::string shown = fmt::format("{{{}}}", fmt::join(names, ","));
  return CLI::Validator(
      [names = std::move(names)](std::string& name) {
        return std::ranges::find(names, name) != names.end()
                   ? std::string{}
                   : fmt::format("'{}' is none of {}", name, fmt::join(names, ", "));
      },
      shown);
}

}  // namespace millrace::cli
