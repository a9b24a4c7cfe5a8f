#include "port/fanout.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace millrace {
namespace {

// Flags as they stand in the value of PACKET_FANOUT.
constexpr unsigned kJoins = unsigned{PACKET_FANOUT_FLAG_DEFRAG} << 16;
constexpr unsigned kRollsOver = unsigned{PACKET_FANOUT_FLAG_ROLLOVER} << 16;

/// Returns the socket's fanout value; 0 if the file is not a packet socket of the interface, or is
/// in no fanout group.
unsigned fanout_of(int file, unsigned interface) {
  sockaddr_ll address{};
  socklen_t size = sizeof(address);
  if (::getsockname(file, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sll_family != AF_PACKET || address.sll_ifindex != static_cast<int>(interface))
    return 0;
  unsigned fanout = 0;
  size = sizeof(fanout);
  return ::getsockopt(file, SOL_PACKET, PACKET_FANOUT, &fanout, &size) == 0 ? fanout : 0;
}

}  // namespace

bool joins_fragments(const std::string& interface) {
  const unsigned number = ::if_nametoindex(interface.c_str());
  if (number == 0) return false;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error); at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    int file = -1;
    std::from_chars(name.data(), name.data() + name.size(), file);
    if ((fanout_of(file, number) & kJoins) != 0) return true;
  }
  return false;
}

}  // namespace millrace

extern "C" __attribute__((visibility("default"))) int setsockopt(int file, int level, int name,
                                                                 const void* value,
                                                                 socklen_t size) noexcept {
  unsigned fanout = 0;
  if (level == SOL_PACKET && name == PACKET_FANOUT && size == sizeof(fanout)) {
    std::memcpy(&fanout, value, sizeof(fanout));
    fanout &= ~(millrace::kJoins | millrace::kRollsOver);
    value = &fanout;
  }
  return static_cast<int>(::syscall(SYS_setsockopt, file, level, name, value, size));
}
