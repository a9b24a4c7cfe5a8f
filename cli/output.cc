#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

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

Error cannot(const std::string& path, int error) {
  return {fmt::format("{}: cannot be written: {}", path, std::strerror(error)),
          error == ENOSPC ? Error::Kind::failed : Error::Kind::unreadable};
}

std::string beside(const std::string& path) {
  return fmt::format("{}.{}.partial", path, ::getpid());
}

Result<void> write_file(const std::string& file, const std::string& named, std::string_view text) {
  File out(std::fopen(file.c_str(), "wb"));
  if (!out) return std::unexpected(cannot(named, errno));
  const bool whole = std::fwrite(text.data(), 1, text.size(), out.get()) == text.size();
  if (!whole || std::fclose(out.release()) != 0) return std::unexpected(cannot(named, errno));
  return {};
}

}  // namespace

Result<void> check_writable(const std::string& path) {
  if (path == "-" || (is_direct(path) && !fs::is_directory(path))) return {};
  if (fs::is_directory(path)) return std::unexpected(cannot(path, EISDIR));
  auto ok = write_file(beside(path), path, "");
  std::error_code ignored;
  fs::remove(beside(path), ignored);
  return ok;
}

Result<void> write_whole(const std::string& path, std::string_view text) {
  if (path == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
      return {};
    return std::unexpected(cannot("standard output", errno));
  }
  if (is_direct(path)) return write_file(path, path, text);
  std::error_code error;
  auto ok = write_file(beside(path), path, text);
  if (ok) fs::rename(beside(path), path, error);
  if (ok && error) ok = std::unexpected(cannot(path, error.value()));
  if (!ok) fs::remove(beside(path), error);
  return ok;
}

}  // namespace millrace::cli
