#include "port/packet_sockets.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {
namespace {

constexpr unsigned kJoins = unsigned{PACKET_FANOUT_FLAG_DEFRAG} << 16;

/// Returns a packet socket on the loopback interface; -1 if this user may not open one.
int packet_socket() {
  const int file = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(::if_nametoindex("lo"));
  if (file >= 0) {
    EXPECT_EQ(::bind(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  return file;
}

using Frame = std::vector<std::uint8_t>;

Frame operator+(Frame first, const Frame& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Frame ethernet(std::uint16_t type) {
  return Frame(12, 2) +
         Frame{static_cast<std::uint8_t>(type >> 8), static_cast<std::uint8_t>(type)};
}

Frame in_vlan(Frame frame) {
  const Frame tag{0x81, 0, 0, 7};
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  return frame;
}

/// `words`: 32-bit words of the header; `fragment`: its field of flags and offset.
Frame ipv4(std::uint8_t protocol, std::uint8_t words = 5, std::uint16_t fragment = 0) {
  Frame header(words * std::size_t{4}, 0);
  header[0] = static_cast<std::uint8_t>(0x40 | words);
  header[6] = static_cast<std::uint8_t>(fragment >> 8);
  header[7] = static_cast<std::uint8_t>(fragment);
  header[8] = 255;
  header[9] = protocol;
  return ethernet(ETH_P_IP) + header;
}

Frame ipv6(std::uint8_t protocol) {
  Frame header(40, 0);
  header[0] = 0x60;
  header[6] = protocol;
  header[7] = 255;
  return ethernet(ETH_P_IPV6) + header;
}

/// Changes the TTL, or hop limit, of a frame without a tag.
Frame with_ttl(Frame frame, std::uint8_t ttl) {
  frame[14 + ((frame[14] >> 4) == 4 ? 8 : 7)] = ttl;
  return frame;
}

Frame ports(std::uint16_t source, std::uint16_t destination) {
  Frame header(20, 0);
  header[0] = static_cast<std::uint8_t>(source >> 8);
  header[1] = static_cast<std::uint8_t>(source);
  header[2] = static_cast<std::uint8_t>(destination >> 8);
  header[3] = static_cast<std::uint8_t>(destination);
  return header;
}

/// Returns whether a socket that the driver opens for those packets gets the frame: the kernel
/// applies filters of sockets to local sockets, too, which any user may open.
bool gets(PacketsOf packets, const Frame& frame) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  {
    const OpeningPacketSockets opening(packets);
    const int version = TPACKET_V2;
    EXPECT_EQ(::setsockopt(ends[1], SOL_PACKET, PACKET_VERSION, &version, sizeof(version)), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  std::array<std::uint8_t, 256> got{};
  EXPECT_EQ(::send(ends[0], frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  const bool gets_it = ::recv(ends[1], got.data(), got.size(), 0) >= 0;
  for (const int end : ends) ::close(end);
  return gets_it;
}

TEST(PacketSockets, AreForNetworkControlOrForTheRest) {
  constexpr std::uint8_t kTcp = 6;
  constexpr std::uint8_t kUdp = 17;
  constexpr std::uint8_t kIcmp6 = 58;
  const std::vector<Frame> control{
      ethernet(ETH_P_ARP) + Frame(28, 0),
      ipv6(kIcmp6) + Frame{133, 0, 0, 0, 0, 0, 0, 0},  // router solicitation
      ipv6(kIcmp6) + Frame{136, 0, 0, 0, 0, 0, 0, 0},  // neighbour advertisement
      ipv4(89) + Frame(24, 0),                         // OSPF
      ipv6(89) + Frame(16, 0),                         //
      ipv4(112) + Frame(8, 0),                         // VRRP
      ipv4(kTcp) + ports(179, 40000),                  // BGP
      ipv6(kTcp) + ports(40000, 179),                  //
      ipv4(kUdp) + ports(49152, 3784),                 // BFD
      ipv6(kUdp) + ports(49152, 3785),                 // BFD echo
      ipv4(kUdp) + ports(49152, 4784),                 // BFD over several hops
      in_vlan(ipv4(kUdp) + ports(1, 3784)),            //
      in_vlan(ethernet(ETH_P_ARP) + Frame(28, 0)),
      with_ttl(ipv4(89) + Frame(24, 0), 1),
      with_ttl(ipv4(kTcp) + ports(179, 40000), 1),
      with_ttl(ipv4(kUdp) + ports(49152, 4784), 60),
      with_ttl(ipv4(kUdp) + ports(49152, 3785), 254),
      with_ttl(ipv6(kUdp) + ports(49152, 3785), 254),
  };
  const std::vector<Frame> rest{
      {},
      Frame(13, 0xff),
      ethernet(ETH_P_ARP + 1) + Frame(28, 0),
      ipv4(kTcp) + ports(1790, 40000),
      ipv4(kUdp) + ports(3784, 49152),  // no BFD packet is sent from that port alone
      ipv4(kUdp) + ports(53, 179),
      ipv4(kUdp, 6) + ports(49152, 3784),  // with an option
      ipv4(kUdp, 5, 1) + ports(0, 3784),   // a later fragment, which has no ports
      ipv4(kUdp),                          // cut off
      ipv6(kIcmp6) + Frame{128},           // an echo request
      ipv6(kIcmp6) + Frame{2},             // packet too big
      ipv6(kIcmp6) + Frame{138},
      ipv4(47) + ports(179, 179),
      in_vlan(ipv4(kTcp) + ports(80, 40000)),
      // Sent by somebody on another link:
      with_ttl(ipv4(kUdp) + ports(49152, 3784), 254),
      with_ttl(ipv6(kUdp) + ports(49152, 3784), 254),
      with_ttl(ipv4(kUdp) + ports(49152, 3785), 253),
      with_ttl(ipv4(112) + Frame(8, 0), 254),
      with_ttl(ipv6(112) + Frame(8, 0), 254),
      with_ttl(ipv6(kIcmp6) + Frame{136, 0, 0, 0, 0, 0, 0, 0}, 254),
  };
  for (const Frame& frame : control) {
    SCOPED_TRACE(testing::PrintToString(frame));
    EXPECT_TRUE(gets(PacketsOf::control, frame));
    EXPECT_FALSE(gets(PacketsOf::rest, frame));
  }
  for (const Frame& frame : rest) {
    SCOPED_TRACE(testing::PrintToString(frame));
    EXPECT_FALSE(gets(PacketsOf::control, frame));
    EXPECT_TRUE(gets(PacketsOf::rest, frame));
  }
}

TEST(PacketSockets, OneGetsAFrameThatIsCutOff) {
  const std::vector<Frame> whole{
      ethernet(ETH_P_ARP) + Frame(28, 0), ipv4(6) + ports(40000, 179),
      ipv4(17, 15) + ports(49152, 3784),  ipv6(17) + ports(49152, 3784),
      ipv6(58) + Frame(8, 134),           in_vlan(ipv6(6) + ports(40000, 179)),
  };
  for (const Frame& frame : whole) {
    for (std::size_t length = 0; length <= frame.size(); ++length) {
      const Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_NE(gets(PacketsOf::control, cut), gets(PacketsOf::rest, cut))
          << testing::PrintToString(frame) << " cut to " << length << " bytes";
    }
  }
}

TEST(PacketSockets, LeavesOutOnlyTheFlagsThatJoinFragmentsAndLetPacketsOvertake) {
  const int file = packet_socket();
  // Opening a packet socket needs CAP_NET_RAW (packet(7)).
  if (file < 0) GTEST_SKIP() << "this user may not open a packet socket";
  const unsigned id = static_cast<unsigned>(::getpid()) & 0xffff;
  const unsigned kept = id | (PACKET_FANOUT_RND << 16);
  const unsigned asked = kept | (PACKET_FANOUT_FLAG_ROLLOVER << 16) | kJoins;
  ASSERT_EQ(::setsockopt(file, SOL_PACKET, PACKET_FANOUT, &asked, sizeof(asked)), 0);
  unsigned is = 0;
  socklen_t size = sizeof(is);
  ASSERT_EQ(::getsockopt(file, SOL_PACKET, PACKET_FANOUT, &is, &size), 0);
  EXPECT_EQ(is, kept);
  EXPECT_FALSE(joins_fragments("lo"));
  ::close(file);
}

TEST(PacketSockets, IsWhatLibrariesCall) {
  // A library that is loaded later, such as DPDK's driver, finds this `setsockopt`.
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "setsockopt"), reinterpret_cast<void*>(&::setsockopt));
  Dl_info info{};
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "setsockopt"), &info), 0);
  EXPECT_EQ(std::string(info.dli_fname).find("libc.so"), std::string::npos) << info.dli_fname;
}

TEST(PacketSockets, SaysWhereItWasNotCalled) {
  const int file = packet_socket();
  // Opening a packet socket needs CAP_NET_RAW (packet(7)).
  if (file < 0) GTEST_SKIP() << "this user may not open a packet socket";
  const unsigned asked = ((static_cast<unsigned>(::getpid()) + 1) & 0xffff) | kJoins;
  ASSERT_EQ(::syscall(SYS_setsockopt, file, SOL_PACKET, PACKET_FANOUT, &asked, sizeof(asked)), 0);
  EXPECT_TRUE(joins_fragments("lo"));
  EXPECT_FALSE(joins_fragments("no-such-interface"));
  ::close(file);
}

TEST(PacketSockets, SetsOtherOptionsAsTheyAre) {
  const int file = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  EXPECT_EQ(::setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  int is = 0;
  socklen_t size = sizeof(is);
  EXPECT_EQ(::getsockopt(file, SOL_SOCKET, SO_REUSEADDR, &is, &size), 0);
  EXPECT_EQ(is, 1);
  EXPECT_EQ(::setsockopt(-1, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), -1);
  EXPECT_EQ(errno, EBADF);
  ::close(file);
}

}  // namespace
}  // namespace millrace
