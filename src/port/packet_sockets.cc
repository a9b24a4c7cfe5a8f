#include "port/packet_sockets.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <pcap/pcap.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
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

/// Returns a program for SO_ATTACH_FILTER, which the caller frees; an empty one if there is no
/// memory, which the kernel refuses.
bpf_program filter_for(PacketsOf packets) {
  const std::string control(kNetworkControl);
  const std::string either = "(" + control + ") or (len >= 42 and vlan and " + control + ")";
  const std::string expression = packets == PacketsOf::control ? either : "not (" + either + ")";
  bpf_program filter{};
  pcap_t* const ethernet = pcap_open_dead(DLT_EN10MB, 65535);
  if (ethernet == nullptr) return filter;
  if (pcap_compile(ethernet, &filter, expression.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0)
    filter = {};
  pcap_close(ethernet);
  return filter;
}

struct Opening {
  PacketsOf packets;
  bpf_program filter;
};
thread_local std::optional<Opening> opening;

int set_option(int file, int level, int name, const void* value, socklen_t size) {
  return static_cast<int>(::syscall(SYS_setsockopt, file, level, name, value, size));
}

/// Gives a packet socket the filter of the sockets that the thread opens.
int attach_filter(int file) {
  // Linux's structure (linux/filter.h), which has the same instructions as libpcap's.
  const struct {
    unsigned short length;
    const bpf_insn* instructions;
  } program{static_cast<unsigned short>(opening->filter.bf_len), opening->filter.bf_insns};
  return set_option(file, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

}  // namespace

OpeningPacketSockets::OpeningPacketSockets(PacketsOf packets) {
  opening = Opening{packets, filter_for(packets)};
}

OpeningPacketSockets::~OpeningPacketSockets() {
  pcap_freecode(&opening->filter);
  opening.reset();
}

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
  using namespace millrace;
  if (level == SOL_PACKET && name == PACKET_VERSION && opening) {
    if (attach_filter(file) != 0) return -1;
  }
  unsigned fanout = 0;
  if (level == SOL_PACKET && name == PACKET_FANOUT && size == sizeof(fanout)) {
    if (opening && opening->packets == PacketsOf::control) return 0;
    std::memcpy(&fanout, value, sizeof(fanout));
    fanout &= ~(kJoins | kRollsOver);
    value = &fanout;
  }
  return set_option(file, level, name, value, size);
}
