// Features of the kernel's interfaces that `ethtool -k` shows, by the kernel's own names. Linux
// only. Plain functions; any thread may call them, in the interface's network namespace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

enum class FeatureState : std::uint8_t {
  off,  ///< also if the kernel knows no such feature
  on,
  fixed,  ///< on, and cannot be turned off
};

FeatureState feature_state(const std::string& interface, std::string_view feature);
/// False, with `errno` set: the kernel or the interface refuses.
bool set_feature(const std::string& interface, std::string_view feature, bool on);

}  // namespace millrace
