// Which millrace has which interfaces of the kernel's. Linux only.
//
// One thread at a time.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "millrace/types.h"

namespace millrace {

/// Of interfaces, there or not; a network namespace has its own. Nobody else shall have them until
/// this is destroyed.
class InterfaceClaims {
 public:
  InterfaceClaims() = default;
  InterfaceClaims(const InterfaceClaims&) = delete;
  InterfaceClaims& operator=(const InterfaceClaims&) = delete;
  ~InterfaceClaims();

  /// Those, too. Error (failed): another millrace has one, and keeps it so long; what was taken
  /// before it stays.
  Result<void> take(const std::set<std::string>& names, std::chrono::milliseconds patience);

 private:
  std::map<std::string, int> sockets_;  // by interface
};

}  // namespace millrace
