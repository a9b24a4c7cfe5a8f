#include "port/memif_socket.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "port/unix_address.h"

namespace millrace {
namespace {

constexpr std::string_view kBefore = ".new";

bool listens(const DeviceName& name) {
  return name.kind == DeviceKind::memif && !name.arguments.contains("role=client") &&
         !name.arguments.contains("socket-abstract=yes");
}

}  // namespace

std::string memif_socket_before(const DeviceName& name) {
  return listens(name) ? name.target + std::string(kBefore) : name.target;
}

Result<void> check_memif_socket(const DeviceName& name) {
  if (!listens(name)) return {};
  const auto address = unix_address(name.target, kBefore.size());
  if (!address) return std::unexpected(address.error());
  const int error = who_listens(*address).error;
  // Who listens for packets, and not for a stream, is of another type.
  if (error != 0 && error != EPROTOTYPE) {
    ::unlink(memif_socket_before(name).c_str());
    return {};
  }
  return std::unexpected(Error{to_string(name) +
                               ": another program listens there: stop it, give another socket, or "
                               ",role=client to connect to it"});
}

Result<void> show_memif_socket(const DeviceName& name) {
  if (!listens(name)) return {};
  if (std::rename(memif_socket_before(name).c_str(), name.target.c_str()) == 0) return {};
  return std::unexpected(Error{to_string(name) + ": " + std::strerror(errno)});
}

void remove_memif_socket(const DeviceName& name) {
  if (!listens(name)) return;
  ::unlink(memif_socket_before(name).c_str());
  ::unlink(name.target.c_str());
}

}  // namespace millrace
