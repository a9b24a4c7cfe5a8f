#include "port/fanout.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

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

TEST(Fanout, LeavesOutOnlyTheFlagsThatJoinFragmentsAndLetPacketsOvertake) {
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

TEST(Fanout, IsWhatLibrariesCall) {
  // A library that is loaded later, such as DPDK's driver, finds this `setsockopt`.
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "setsockopt"), reinterpret_cast<void*>(&::setsockopt));
  Dl_info info{};
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "setsockopt"), &info), 0);
  EXPECT_EQ(std::string(info.dli_fname).find("libc.so"), std::string::npos) << info.dli_fname;
}

TEST(Fanout, SaysWhereItWasNotCalled) {
  const int file = packet_socket();
  // Opening a packet socket needs CAP_NET_RAW (packet(7)).
  if (file < 0) GTEST_SKIP() << "this user may not open a packet socket";
  const unsigned asked = ((static_cast<unsigned>(::getpid()) + 1) & 0xffff) | kJoins;
  ASSERT_EQ(::syscall(SYS_setsockopt, file, SOL_PACKET, PACKET_FANOUT, &asked, sizeof(asked)), 0);
  EXPECT_TRUE(joins_fragments("lo"));
  EXPECT_FALSE(joins_fragments("no-such-interface"));
  ::close(file);
}

TEST(Fanout, SetsOtherOptionsAsTheyAre) {
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
