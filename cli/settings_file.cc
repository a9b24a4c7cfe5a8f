#include "settings_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <string_view>

#include "json.h"
#include "offer_json.h"
#include "output.h"

namespace millrace::cli {
namespace {

/// Returns the text of a file of this user's; nothing where there is none.
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

Result<void> SettingsFile::write(const InterfaceSettings& settings) const {
  ::unlink(path_.c_str());  // a link there might lead elsewhere
  return write_whole(path_, to_text(to_json(settings)));
}

}  // namespace millrace::cli
