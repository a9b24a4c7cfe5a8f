#include "settings_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <exception>
#include <iterator>

#include "command_line/output.h"
#include "control/offer_json.h"
#include "core/json.h"
#include "port/write_error.h"

namespace millrace::cli {
namespace {

/// Returns the text of a regular file that belongs to this user, at most about 1 MiB; empty if
/// there is none.
std::string own_text(const std::string& path) {
  std::string text;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return text;
  struct stat is{};
  if (::fstat(file, &is) == 0 && S_ISREG(is.st_mode) && is.st_uid == ::geteuid()) {
    constexpr std::size_t kMost = std::size_t{1} << 20;
    std::array<char, 4096> block{};
    ssize_t n = 0;
    while (text.size() < kMost && (n = ::read(file, block.data(), block.size())) > 0)
      text.append(block.data(), static_cast<std::size_t>(n));
  }
  ::close(file);
  return text;
}

}  // namespace

SettingsFile::~SettingsFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

InterfaceSettings SettingsFile::read() const try {
  return interface_settings_from(Json::parse(own_text(path_)));
} catch (const std::exception&) {
  return {};
}

/// Writes a new file and renames it. Symbolic links are not followed, as another user may have
/// placed one.
Result<void> SettingsFile::write(const InterfaceSettings& settings) const {
  const std::string text = to_text(to_json(settings));
  const std::string beside = path_ + ".new";
  ::unlink(beside.c_str());
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                          S_IRUSR | S_IWUSR);
  if (file < 0) return std::unexpected(write_error(path_, errno));
  errno = EIO;
  const bool is_whole = ::write(file, text.data(), text.size()) == std::ssize(text);
  const int error = errno;
  ::close(file);
  if (!is_whole) ::unlink(beside.c_str());
  if (!is_whole) return std::unexpected(write_error(path_, error));
  if (::rename(beside.c_str(), path_.c_str()) == 0) return {};
  return std::unexpected(write_error(path_, errno));
}

}  // namespace millrace::cli
