#include "output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/json.h"
#include "port/write_error.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

bool is_direct(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none) && !fs::is_regular_file(path, none);
}

/// Returns the path that `path` leads to through symbolic links, whether a file is there or not.
std::string target_of(const std::string& path) {
  constexpr int kMostLinks = 40;
  fs::path at = path;
  std::error_code none;
  for (int i = 0; i < kMostLinks && fs::is_symlink(at, none); ++i) {
    const fs::path to = fs::read_symlink(at, none);
    at = to.is_absolute() ? to : at.parent_path() / to;
  }
  return at.string();
}

std::string beside(const std::string& target) {
  return fmt::format("{}.{}.partial", target, ::getpid());
}

Result<void> write_file(const std::string& file, const std::string& named, std::string_view text) {
  File out(std::fopen(file.c_str(), "wb"));
  if (!out) return std::unexpected(write_error(named, errno));
  const bool whole = std::fwrite(text.data(), 1, text.size(), out.get()) == text.size();
  if (!whole || std::fclose(out.release()) != 0) return std::unexpected(write_error(named, errno));
  return {};
}

Result<void> check_replaceable(const std::string& path) {
  std::error_code none;
  if (fs::is_directory(path, none)) return std::unexpected(write_error(path, EISDIR));
  if (::access(path.c_str(), W_OK) == 0 || errno == ENOENT) return {};
  return std::unexpected(write_error(path, errno));
}

std::optional<struct stat> status_of(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) return std::nullopt;
  return s;
}

bool same(const struct stat& a, const struct stat& b) {
  return !S_ISCHR(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

void say(const std::string& text) { static_cast<void>(std::fputs(text.c_str(), stderr)); }

Result<void> check_writable(const std::string& path) {
  if (path == "-") return {};
  if (auto ok = check_replaceable(path); !ok || is_direct(path)) return ok;
  const std::string temporary = beside(target_of(path));
  auto ok = write_file(temporary, path, "");
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return ok;
}

double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> write_whole(const std::string& path, std::string_view text) {
  if (path == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size())
      return flush_standard_output();
    return std::unexpected(write_error("standard output", errno));
  }
  if (auto ok = check_replaceable(path); !ok) return ok;
  if (is_direct(path)) return write_file(path, path, text);
  const std::string target = target_of(path);
  const std::string temporary = beside(target);
  std::error_code error;
  auto ok = write_file(temporary, path, text);
  if (ok) fs::rename(temporary, target, error);
  if (ok && error) ok = std::unexpected(write_error(path, error.value()));
  if (!ok) fs::remove(temporary, error);
  return ok;
}

bool same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty() || a == "-" || b == "-") return false;
  const auto status_a = status_of(a);
  const auto status_b = status_of(b);
  // One socket may be standard input and standard output.
  if (status_a && status_b) return same(*status_a, *status_b) && !S_ISSOCK(status_a->st_mode);
  if (status_a || status_b) return false;
  std::error_code none;
  const auto whole = [&none](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(target_of(path), none), none);
  };
  return whole(a) == whole(b);
}

bool is_standard_output(const std::string& path) {
  if (path == "-") return true;
  const auto status = status_of(path);
  struct stat output{};
  return status && ::fstat(STDOUT_FILENO, &output) == 0 && same(*status, output);
}

Result<void> check_no_terminal(std::string_view option, const std::string& path) {
  const auto status = status_of(path);
  const bool device = status && S_ISCHR(status->st_mode);
  if (path != "-" && !device) return {};
  const int fd = path == "-" ? ::dup(STDOUT_FILENO)
                             : ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return {};  // opening it for writing reports why
  const bool terminal = ::isatty(fd) == 1;
  ::close(fd);
  if (!terminal) return {};
  return std::unexpected(
      Error{fmt::format("{}: {} is a terminal, and a capture is no text: give a file or a pipe",
                        option, path == "-" ? "standard output" : path),
            Error::Kind::usage});
}

Result<void> flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return std::unexpected(
      Error{write_error("standard output", errno == 0 ? EIO : errno).message, Error::Kind::failed});
}

}  // namespace millrace::cli
