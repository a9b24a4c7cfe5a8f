// The socket file at which millrace's memifs listen. Linux only; one thread at a time.
//
// DPDK's driver has three faults here. It listens before the device can serve a peer. It ends the
// process if a peer connects while the driver closes. It neither removes nor replaces a socket that
// a killed process left. So the driver listens at another path, which `memif_socket_before`
// returns, until `show` moves the socket to its final path.
#pragma once

#include <map>
#include <string>

#include "millrace/types.h"
#include "port/device_name.h"

namespace millrace {

/// Returns the path that the driver is given: a path of this process alone. If the other end
/// listens or the socket is abstract, the path of the socket itself.
std::string memif_socket_before(const DeviceName& name);

/// The sockets of all memifs that listen. Several memifs may share a socket, and differ in `id`.
/// Once this object is destroyed no peer can connect any more.
class MemifSockets {
 public:
  MemifSockets() = default;
  MemifSockets(const MemifSockets&) = delete;
  MemifSockets& operator=(const MemifSockets&) = delete;
  ~MemifSockets();

  // `check` and `take` do nothing if the device is not a memif, if the other end listens, or if the
  // socket is abstract.

  /// Checks whether the socket can be made, regardless of a process that listens there now. Errors:
  /// failed (a file at the path is not a socket), unreadable (the path is too long, or nothing can
  /// be made there).
  static Result<void> check(const DeviceName& name);
  /// Prepares the socket's path, before the driver listens. Errors: as `check`; failed (another
  /// program listens there).
  Result<void> take(const DeviceName& name);

  /// Moves the sockets to their own paths: peers that connect from now on are served. Errors:
  /// failed (a socket cannot be moved).
  Result<void> show();

 private:
  std::map<std::string, bool> shown_;  // true: moved to its final path; indexed by path
};

}  // namespace millrace
