// Which millrace has an interface of the kernel's. Linux only.
//
// One thread at a time.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "millrace/types.h"

namespace millrace {

/// Of one interface, there or not; a network namespace has its own.
class InterfaceClaim {
 public:
  explicit InterfaceClaim(std::string name) : name_(std::move(name)) {}
  InterfaceClaim(const InterfaceClaim&) = delete;
  InterfaceClaim& operator=(const InterfaceClaim&) = delete;
  ~InterfaceClaim();

  /// Nobody else shall have it until this is destroyed. Error (failed): another millrace has it,
  /// and keeps it so long.
  Result<void> take(std::chrono::milliseconds patience);

 private:
  std::string name_;
  int socket_ = -1;
};

}  // namespace millrace
