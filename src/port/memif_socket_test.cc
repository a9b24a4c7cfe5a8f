#include "port/memif_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "port/test_files.h"
#include "port/unix_address.h"

namespace millrace {
namespace {

bool is_there(const std::string& path) {
  struct stat is{};
  return ::lstat(path.c_str(), &is) == 0;
}

/// Listens as DPDK's driver does, and returns the open socket.
int listening(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const auto address = *unix_address(path);
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(socket, 1), 0);
  return socket;
}

class MemifSocketsTest : public testing::Test {
 protected:
  std::string path() const { return directory_ / "memif"; }
  DeviceName name() const { return *parse_device("memif:" + path()); }

 private:
  test::Directory directory_;
};

TEST_F(MemifSocketsTest, AreThereWhileTheyAreShown) {
  {
    MemifSockets sockets;
    ASSERT_TRUE(sockets.take(name()).has_value());
    ASSERT_TRUE(sockets.take(*parse_device("memif:" + path() + ",id=1")).has_value());
    const int drivers = listening(memif_socket_before(name()));
    EXPECT_FALSE(is_there(path()));
    ASSERT_TRUE(sockets.show().has_value());
    EXPECT_TRUE(is_there(path()));
    EXPECT_FALSE(is_there(memif_socket_before(name())));
    EXPECT_FALSE(MemifSockets().take(name()).has_value());
    ::close(drivers);
  }
  EXPECT_FALSE(is_there(path()));
}

TEST_F(MemifSocketsTest, ReplaceWhatAKilledProcessLeft) {
  ::close(listening(path()));
  ::close(listening(memif_socket_before(name())));
  MemifSockets sockets;
  ASSERT_TRUE(sockets.take(name()).has_value());
  const int drivers = listening(memif_socket_before(name()));
  EXPECT_TRUE(sockets.show().has_value());
  ::close(drivers);
}

TEST_F(MemifSocketsTest, KeepWhatIsNoSocket) {
  test::write_file(path(), "a capture");
  const auto taken = MemifSockets().take(name());
  ASSERT_FALSE(taken.has_value());
  EXPECT_NE(taken.error().message.find("is not a socket"), std::string::npos)
      << taken.error().message;
  EXPECT_TRUE(is_there(path()));
}

TEST_F(MemifSocketsTest, KeepWhatSomebodyElseShows) {
  int other = -1;
  {
    MemifSockets sockets;
    ASSERT_TRUE(sockets.take(name()).has_value());
    other = listening(path());
  }
  EXPECT_TRUE(is_there(path()));
  ::close(other);
}

TEST_F(MemifSocketsTest, AreRefusedWhereNothingCanBe) {
  for (const std::string& at : {std::string("/nowhere/memif"), std::string(101, 'm')}) {
    const auto taken = MemifSockets().take(*parse_device("memif:" + at));
    ASSERT_FALSE(taken.has_value());
    EXPECT_EQ(taken.error().kind, Error::Kind::unreadable) << taken.error().message;
  }
}

TEST_F(MemifSocketsTest, AreNoneWhereTheOtherEndListens) {
  test::write_file(path(), "whatever");
  EXPECT_TRUE(MemifSockets().take(*parse_device("memif:" + path() + ",role=client")).has_value());
  EXPECT_TRUE(MemifSockets().take(*parse_device("null")).has_value());
}

}  // namespace
}  // namespace millrace
