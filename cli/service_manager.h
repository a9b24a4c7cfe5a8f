// Tells systemd that this process is ready (sd_notify(3)): only then does `systemctl start` return
// for a unit of `Type=notify`.
#pragma once

namespace millrace::cli {

/// Sends READY=1 to the socket in NOTIFY_SOCKET; does nothing if that variable is not set. Failures
/// are ignored.
void tell_service_manager_ready();

}  // namespace millrace::cli
