#include "port/memif_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "port/unix_address.h"

namespace millrace {
namespace {

constexpr std::size_t kSuffix = 8;  // a dot and Linux's longest process id

std::string before(const std::string& path) { return path + "." + std::to_string(::getpid()); }

bool listens(const DeviceName& name) {
  return name.kind == DeviceKind::memif && !name.arguments.contains("role=client") &&
         !name.arguments.contains("socket-abstract=yes");
}

}  // namespace

std::string memif_socket_before(const DeviceName& name) {
  return listens(name) ? before(name.target) : name.target;
}

Result<void> MemifSockets::check(const DeviceName& name) {
  if (!listens(name)) return {};
  const auto address = unix_address(name.target, kSuffix);
  if (!address) return std::unexpected(address.error());
  struct stat is{};
  if (::lstat(name.target.c_str(), &is) == 0 && !S_ISSOCK(is.st_mode))
    return std::unexpected(Error{to_string(name) + ": the file at that path is not a socket: " +
                                 "give another path, or delete the file"});
  const auto folder = std::filesystem::absolute(name.target).parent_path();
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return std::unexpected(Error{to_string(name) + ": no socket can be made in " + folder.string() +
                                     ": " + std::strerror(errno),
                                 Error::Kind::unreadable});
  return {};
}

Result<void> MemifSockets::take(const DeviceName& name) {
  if (!listens(name) || shown_.contains(name.target)) return {};
  if (auto ok = check(name); !ok) return ok;
  const auto address = unix_address(name.target, kSuffix);
  const Listening listening = who_listens(*address);
  // A listening socket of another type than stream gives EPROTOTYPE.
  if (listening.error == 0 || listening.error == EPROTOTYPE || listening.error == EAGAIN)
    return std::unexpected(Error{to_string(name) +
                                 ": another program listens there: stop that program, give another "
                                 "socket, or add ,role=client to connect to it"});
  if (!listening.is_nobody())
    return std::unexpected(Error{to_string(name) + ": " + std::strerror(listening.error)});
  ::unlink(before(name.target).c_str());  // left by a killed process that had this process's id
  shown_.emplace(name.target, false);
  return {};
}

Result<void> MemifSockets::show() {
  for (auto& [path, is_shown] : shown_) {
    if (std::rename(before(path).c_str(), path.c_str()) != 0)
      return std::unexpected(Error{"memif:" + path + ": " + std::strerror(errno)});
    is_shown = true;
  }
  return {};
}

MemifSockets::~MemifSockets() {
  for (const auto& [path, is_shown] : shown_) ::unlink((is_shown ? path : before(path)).c_str());
}

}  // namespace millrace
