// The file at which a memif of ours listens. Linux only; one thread at a time.
//
// DPDK's driver listens before the device can serve who connects, ends the process where somebody
// connects while it closes, and neither takes away nor replaces what was left by who was killed. So
// it listens elsewhere, `memif_socket_before` says where, until `show_memif_socket`.
#pragma once

#include <string>

#include "millrace/types.h"
#include "port/device_name.h"

namespace millrace {

/// For the driver; where the other end listens, that is its socket.
std::string memif_socket_before(const DeviceName& name);

// Nothing where the device is no memif, or the other end listens.

/// Whether nobody listens there. Errors: somebody does (failed), or the path is too long
/// (unreadable).
Result<void> check_memif_socket(const DeviceName& name);
/// Who connects is served. Error (failed): why the file cannot be there.
Result<void> show_memif_socket(const DeviceName& name);
/// Nobody can connect any more.
void remove_memif_socket(const DeviceName& name);

}  // namespace millrace
