// Tells the service manager, systemd, that this process does its work: then `systemctl start` ends,
// for units of `Type=notify` (sd_notify(3)).
#pragma once

namespace millrace::cli {

/// Without a service manager that waits for it (`NOTIFY_SOCKET`) nothing is told.
void tell_service_manager_ready();

}  // namespace millrace::cli
