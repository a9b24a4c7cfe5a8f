#include "port/interface_claim.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

namespace millrace {
namespace {

/// Returns a socket bound to the interface's abstract name, which no other process can bind while
/// the socket is open; a negative errno on failure.
int bound(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "millrace/interface/" + name;
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0) return socket;
  const int error = errno;
  ::close(socket);
  return -error;
}

}  // namespace

Result<void> InterfaceClaims::take(const std::set<std::string>& names,
                                   std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kPause{1};
  const auto until = std::chrono::steady_clock::now() + patience;
  for (const std::string& name : names) {
    if (sockets_.contains(name)) continue;
    int socket = bound(name);
    while (socket == -EADDRINUSE && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kPause);
      socket = bound(name);
    }
    if (socket == -EADDRINUSE)
      return std::unexpected(
          Error{"another millrace has " + name +
                ": stop that millrace first, or take over from it (--take-over)"});
    if (socket < 0)
      return std::unexpected(
          Error{"cannot claim " + name +
                ", so another millrace could use it, too: " + std::strerror(-socket)});
    sockets_.emplace(name, socket);
  }
  return {};
}

InterfaceClaims::~InterfaceClaims() {
  for (const auto& [name, socket] : sockets_) ::close(socket);
}

}  // namespace millrace
