// Addresses of Unix sockets.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "millrace/types.h"

namespace millrace::cli {

/// Error (unreadable): the path, with `more` bytes behind it, is too long for one.
inline Result<sockaddr_un> unix_address(const std::string& path, std::size_t more = 0) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() + more >= sizeof(address.sun_path)) {
    return std::unexpected(Error{"the control socket's path " + path + " is longer than " +
                                     std::to_string(sizeof(address.sun_path) - 1 - more) +
                                     " bytes: give a shorter one (--control)",
                                 Error::Kind::unreadable});
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace millrace::cli
