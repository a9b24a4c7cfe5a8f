#include "control/unix_http.h"
#include "port/unix_address.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace millrace {
namespace {

/// Makes room for a socket at `path`: removes a socket that a killed process left there. Errors:
/// failed (another process has the socket), unreadable (the path cannot be used).
Result<void> make_way(const std::string& path) {
  const auto cannot = [&path](const std::string& why) {
    return std::unexpected(Error{"cannot listen at " + path + ": " + why, Error::Kind::unreadable});
  };
  const auto address = unix_address(path);
  if (!address) return std::unexpected(address.error());
  struct stat is{};
  if (::lstat(path.c_str(), &is) != 0) {
    if (errno == ENOENT) return {};
    return cannot(std::string(std::strerror(errno)) + ": give another path (--control)");
  }
  if (!S_ISSOCK(is.st_mode))
    return cannot("the file there is no socket: give another path (--control)");
  if (const Listening who = who_listens(*address); !who.is_nobody()) {
    if (who.error == EMFILE || who.error == ENFILE) return cannot(std::strerror(who.error));
    return std::unexpected(Error{"another millrace, or another program, has the control socket " +
                                 path + ": end it, or give another path (--control)"});
  }
  if (::unlink(path.c_str()) != 0)
    return cannot(std::string(std::strerror(errno)) + ": give another path (--control)");
  return {};
}

/// Returns the file's device and inode.
std::optional<std::pair<dev_t, ino_t>> id_of(const std::string& path) {
  struct stat is{};
  if (::lstat(path.c_str(), &is) != 0) return std::nullopt;
  return std::pair(is.st_dev, is.st_ino);
}

/// Shuts down all connections of clients at the socket `path`.
void hang_up(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
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

/// A thread pool in place of the library's `ThreadPool`, because `ThreadPool` ends the process if a
/// thread cannot be started.
class Threads final : public httplib::TaskQueue {
 public:
  /// Starts the threads. Throws std::system_error if there are too many.
  explicit Threads(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  /// The type that `enqueue` returns: void in older versions of the library; bool in newer ones,
  /// where true means that the job was taken.
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));
  Enqueued enqueue(std::function<void()> job) override {
    {
      const std::lock_guard guard(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return static_cast<Enqueued>(true);
  }
  void shutdown() override { threads_.clear(); }

 private:
  /// Runs jobs; jobs that wait are done before the thread ends.
  void work(const std::stop_token& stop) {
    std::unique_lock guard(mutex_);
    for (;;) {
      changed_.wait(guard, stop, [this] { return !jobs_.empty(); });
      if (jobs_.empty()) return;
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      guard.unlock();
      job();
      guard.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;  // signals changes of `jobs_`
  std::deque<std::function<void()>> jobs_;
  std::vector<std::jthread> threads_;
};

}  // namespace

UnixHttp::UnixHttp() {
  set_address_family(AF_UNIX);
  constexpr int kSeconds = 3;  // a client without processor time may send late
  set_keep_alive_timeout(kSeconds);
  set_read_timeout(kSeconds);
  set_payload_max_length(kMostBytes);
}

bool UnixHttp::bind_and_listen() {
  constexpr int kAnyPort = 1;  // Unix sockets have no port, and 0 would make the library choose one
  const mode_t before = ::umask(0177);
  const bool bound = bind_to_port(bound_, kAnyPort);
  ::umask(before);
  return bound && ::listen(svr_sock_, kWaiting) == 0;  // the library itself lets five wait
}

std::unexpected<Error> UnixHttp::cannot_listen() const {
  return std::unexpected(Error{
      "cannot listen at " + path_ + ": " + std::strerror(errno) + ": give another path (--control)",
      Error::Kind::unreadable});
}

Result<void> UnixHttp::bind(const std::string& path, bool replaces) {
  const std::string beside = replaces ? ".new" : "";
  if (auto address = unix_address(path, beside.size()); !address)
    return std::unexpected(address.error());
  path_ = path;
  struct stat is{};
  if (replaces && ::lstat(path.c_str(), &is) == 0 && !S_ISSOCK(is.st_mode))
    return std::unexpected(
        Error{path + " is no socket: give another path (--control)", Error::Kind::unreadable});
  if (auto ok = make_way(path + beside); !ok) {
    if (!replaces || ok.error().kind != Error::Kind::failed) return ok;
    return std::unexpected(Error{"another process is taking over from the one at " + path +
                                 ": wait until it runs, then take over from it"});
  }
  bound_ = path + beside;
  if (!bind_and_listen()) return cannot_listen();
  is_there_ = bound_;
  file_ = id_of(is_there_);
  return {};
}

Result<void> UnixHttp::start() try {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);  // inherited by the threads started here
  const std::unique_ptr<sigset_t, void (*)(sigset_t*)> again(
      &before, [](sigset_t* mask) { ::pthread_sigmask(SIG_SETMASK, mask, nullptr); });
  const auto threads = std::make_shared<std::unique_ptr<Threads>>(new Threads(kThreads));
  new_task_queue = [threads] { return threads->release(); };
  thread_ = std::jthread([this] {
    listen_after_bind();
    has_ended_ = true;
  });
  while (!is_running() && !has_ended_) std::this_thread::yield();
  return {};
} catch (const std::system_error& error) {
  return std::unexpected(Error{"no thread to answer at " + path_ + ": " + error.code().message() +
                               ": allow more processes (ulimit -u) or memory (ulimit -v)"});
}

Result<void> UnixHttp::take_place() {
  if (bound_ != path_ && ::rename(bound_.c_str(), path_.c_str()) != 0) return cannot_listen();
  is_there_ = path_;
  return {};
}

UnixHttp::~UnixHttp() {
  is_ending_ = true;
  stop();
  // Short pauses, as a restart may wait for this, and no packet is forwarded meanwhile.
  while (thread_.joinable() && !has_ended_) {
    hang_up(bound_);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (thread_.joinable()) thread_.join();
  if (file_ && id_of(is_there_) == file_) ::unlink(is_there_.c_str());
}

}  // namespace millrace
