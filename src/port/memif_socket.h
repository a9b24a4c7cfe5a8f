// The file at which memifs of ours listen. Linux only; one thread at a time.
//
// DPDK's driver listens before the device can serve who connects, ends the process where somebody
// connects while it closes, and neither takes away nor replaces what was left by who was killed. So
// it listens elsewhere, `memif_socket_before` says where, until `show`.
#pragma once

#include <map>
#include <string>

#include "millrace/types.h"
#include "port/device_name.h"

namespace millrace {

/// For the driver; where the other end listens, that is its socket. Else of this process alone.
std::string memif_socket_before(const DeviceName& name);

/// Of all memifs that listen; several may do so at one, and their `id` tells them apart. Nobody can
/// connect any more once it is destroyed.
class MemifSockets {
 public:
  MemifSockets() = default;
  MemifSockets(const MemifSockets&) = delete;
  MemifSockets& operator=(const MemifSockets&) = delete;
  ~MemifSockets();

  // Nothing where the device is no memif, or the other end listens.

  /// Whether it can be there, whoever listens there now. Errors: what is there is no socket
  /// (failed); the path is too long, or nothing can be made there (unreadable).
  static Result<void> check(const DeviceName& name);
  /// Before the driver listens. Errors: as `check`, and that somebody listens there (failed).
  Result<void> take(const DeviceName& name);

  /// Who connects from now on is served. Error (failed): why a file cannot be there.
  Result<void> show();

 private:
  std::map<std::string, bool> shown_;  // by path
};

}  // namespace millrace
