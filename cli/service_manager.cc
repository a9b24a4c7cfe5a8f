#include "service_manager.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "port/unix_address.h"

namespace millrace::cli {

void tell_service_manager_ready() {
  constexpr std::string_view kReady = "READY=1";
  const char* const socket = std::getenv("NOTIFY_SOCKET");
  if (socket == nullptr) return;
  const std::string path = socket;
  auto address = unix_address(path);
  if (!address || path.empty()) return;
  if (path.front() == '@') address->sun_path[0] = '\0';  // an abstract name
  const int notify = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (notify < 0) return;
  ::sendto(notify, kReady.data(), kReady.size(), MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&*address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size()));
  ::close(notify);
}

}  // namespace millrace::cli
