// Addresses of Unix sockets, and the processes that listen there.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "millrace/types.h"

namespace millrace {

/// Returns the address of a socket. Errors: unreadable (the path, with `more` bytes behind it, is
/// too long).
inline Result<sockaddr_un> unix_address(const std::string& path, std::size_t more = 0) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() + more >= sizeof(address.sun_path)) {
    return std::unexpected(Error{"the socket's path " + path + " is longer than " +
                                     std::to_string(sizeof(address.sun_path) - 1 - more) +
                                     " bytes: give a shorter path",
                                 Error::Kind::unreadable});
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

/// The process that listens at a socket, or the `errno` for which it cannot be reached.
struct Listening {
  ucred who{};
  int error = 0;

  bool is_nobody() const { return error == ECONNREFUSED || error == ENOENT; }
};

/// Returns the process that listens at a socket. Does not wait: EAGAIN means that a process listens
/// but is too busy to accept.
inline Listening who_listens(const sockaddr_un& at) {
  Listening is;
  socklen_t size = sizeof(is.who);
  const int asking = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (asking < 0 || ::connect(asking, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 ||
      ::getsockopt(asking, SOL_SOCKET, SO_PEERCRED, &is.who, &size) != 0)
    is.error = errno;
  if (asking >= 0) ::close(asking);
  return is;
}

}  // namespace millrace
