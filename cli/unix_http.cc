#include "unix_http.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace millrace::cli {
namespace {

/// Whether somebody has that socket.
bool is_served(const sockaddr_un& address) {
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return true;  // nobody knows
  const int result = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = result == 0 ? 0 : errno;
  ::close(probe);
  return error != ECONNREFUSED && error != ENOENT;  // else it is busy, or of another kind
}

/// Makes way for a socket at `path`: what a killed process left there goes.
Result<void> make_way(const std::string& path) {
  const auto cannot = [&path](const std::string& why) {
    return std::unexpected(Error{"cannot listen at " + path + ": " + why, Error::Kind::unreadable});
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return cannot("the path is longer than " + std::to_string(sizeof(address.sun_path) - 1) +
                  " bytes: give a shorter one (--control)");
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat is{};
  if (::lstat(path.c_str(), &is) != 0) {
    if (errno == ENOENT) return {};
    return cannot(std::string(std::strerror(errno)) + ": give another path (--control)");
  }
  if (!S_ISSOCK(is.st_mode))
    return cannot("something else is there: give another path (--control)");
  if (is_served(address)) {
    return std::unexpected(Error{"another millrace, or another program, has the control socket " +
                                 path + ": end it, or give another path (--control)"});
  }
  if (::unlink(path.c_str()) != 0)
    return cannot(std::string(std::strerror(errno)) + ": give another path (--control)");
  return {};
}

/// Which file that is: device and number.
std::optional<std::pair<dev_t, ino_t>> id_of(const std::string& path) {
  struct stat is{};
  if (::lstat(path.c_str(), &is) != 0) return std::nullopt;
  return std::pair(is.st_dev, is.st_ino);
}

/// Ends what clients of the socket at `path` still say or hear, however slow they are.
void hang_up(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    sockaddr_un address{};
    socklen_t size = sizeof(address);
    int listens = 0;
    socklen_t int_size = sizeof(listens);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        address.sun_family != AF_UNIX || path != address.sun_path ||
        ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_size) != 0 || listens != 0)
      continue;
    ::shutdown(fd, SHUT_RDWR);
  }
}

}  // namespace

UnixHttp::UnixHttp() {
  new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  set_address_family(AF_UNIX);
  set_keep_alive_timeout(1);
}

bool UnixHttp::bind() {
  constexpr int kAnyPort = 1;  // Unix sockets have none, and 0 asks for one
  const mode_t before = ::umask(0177);
  const bool bound = bind_to_port(bound_, kAnyPort);
  ::umask(before);
  return bound && ::listen(svr_sock_, kWaiting) == 0;  // the library lets five wait
}

Result<void> UnixHttp::start(const std::string& path, bool replaces) {
  path_ = path;
  bound_ = replaces ? path + "." + std::to_string(::getpid()) : path;
  if (auto ok = make_way(bound_); !ok) return ok;
  if (!bind() || (replaces && ::rename(bound_.c_str(), path.c_str()) != 0)) {
    return std::unexpected(Error{"cannot listen at " + path + ": " + std::strerror(errno) +
                                     ": give another path (--control)",
                                 Error::Kind::unreadable});
  }
  file_ = id_of(path);
  thread_ = std::jthread([this] {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // for the threads that it starts
    listen_after_bind();
    has_ended_ = true;
  });
  while (!is_running() && !has_ended_) std::this_thread::yield();
  return {};
}

UnixHttp::~UnixHttp() {
  if (!thread_.joinable()) return;
  is_ending_ = true;
  stop();
  while (!has_ended_) {
    hang_up(bound_);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  thread_.join();
  if (id_of(path_) == file_) ::unlink(path_.c_str());
}

}  // namespace millrace::cli
