#include "port/write_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace millrace {
namespace {

std::string_view what_is_right(int why) {
  switch (why) {
    case ENOENT:
    case ENOTDIR:
      return "create the directory first";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a place where you may write";
    case EISDIR:
      return "give a file name";
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "free some space or write elsewhere";
    case EPIPE:
      return "let the reader of the pipe read to the end";
    default:
      return "write elsewhere";
  }
}

}  // namespace

Error write_error(const std::string& path, int error_number) {
  const bool space = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG ||
                     error_number == EIO;
  return {fmt::format("{}: cannot be written: {}: {}", path, std::strerror(error_number),
                      what_is_right(error_number)),
          space ? Error::Kind::failed : Error::Kind::unreadable};
}

}  // namespace millrace
