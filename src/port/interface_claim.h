// Claims on the kernel's interfaces: at most one millrace process uses an interface. Linux only.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "millrace/types.h"

namespace millrace {

/// Holds claims on interfaces by name, whether or not the interfaces exist, in this network
/// namespace. No other millrace process can claim them until this object is destroyed.
class InterfaceClaims {
 public:
  InterfaceClaims() = default;
  InterfaceClaims(const InterfaceClaims&) = delete;
  InterfaceClaims& operator=(const InterfaceClaims&) = delete;
  ~InterfaceClaims();

  /// Claims these interfaces, too; waits up to `patience` in all for those that another process
  /// holds. Errors: failed (another millrace still holds one, or the kernel gives no socket).
  /// Claims made before the failing one stay.
  Result<void> take(const std::set<std::string>& names, std::chrono::milliseconds patience);

 private:
  std::map<std::string, int> sockets_;  // indexed by interface
};

}  // namespace millrace
