#include "port/device_name.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "port/device_arguments.h"

namespace millrace {
namespace {

TEST(DeviceName, SaysWhatItIs) {
  for (const char* text : {"af_packet:eth0", "af_xdp:veth1", "tap:mr0", "memif:/run/m.sock",
                           "pcap:a.pcap", "null", "ring", "0000:3b:00.0", "af_packet:eth0.100",
                           "memif:/run/m.sock,role=client", "pcap:a.pcap,infinite_rx=1"}) {
    const auto name = parse_device(text);
    ASSERT_TRUE(name.has_value()) << text << ": " << name.error().message;
    EXPECT_EQ(to_string(*name), text);
  }
  EXPECT_TRUE(parse_device("af_packet:interface123456").has_value());
  EXPECT_EQ(parse_device("3b:00.0")->target, "0000:3b:00.0");
  EXPECT_EQ(parse_device("memif:/run/m.sock,role=client")->arguments, "role=client");
}

TEST(DeviceName, RefusesWhatIsNone) {
  for (const char* text : {"",
                           "eth0",
                           "af_packet",
                           "af_packet:",
                           "null:x",
                           "0000:3b:00.9",
                           "xdp:eth0",
                           ":",
                           "af_packet:interface1234567",
                           "tap:interface1234567",
                           "tap:..",
                           "tap:a/b",
                           "tap:a%d",
                           "tap:a=b",
                           "tap:a b",
                           "af_xdp:a[b",
                           "tap:a,iface=b",
                           "af_packet:a,qdisc_bypass=0,iface=b",
                           "memif:/m,role=slave",
                           "memif:/m,id=1,socket=/n"}) {
    const auto name = parse_device(text);
    ASSERT_FALSE(name.has_value()) << text;
    EXPECT_EQ(name.error().kind, Error::Kind::usage);
    EXPECT_NE(name.error().message.find("af_packet:INTERFACE"), std::string::npos);
  }
}

TEST(DeviceArguments, OneOfAfXdpAQueue) {
  const auto all =
      arguments_for(*parse_device("af_xdp:v0"), {.number = 1, .workers = 2, .queues = 3});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2].arguments, "iface=v0,start_queue=2,queue_count=1,busy_budget=0");
  EXPECT_NE(all[0].name, all[2].name);
}

TEST(DeviceArguments, NothingComesFromNull) {
  EXPECT_EQ(arguments_for(*parse_device("null"), {}).front().arguments, "no-rx=1");
}

TEST(DeviceArguments, AMemifListensElsewhereUntilItServes) {
  const auto of = [](const char* device) {
    return arguments_for(*parse_device(device), {}).front().arguments;
  };
  EXPECT_EQ(of("memif:/run/m"),
            "socket=/run/m." + std::to_string(::getpid()) + ",socket-abstract=no,id=0,role=server");
  EXPECT_EQ(of("memif:/run/m,role=client"), "socket=/run/m,socket-abstract=no,id=0,role=client");
}

TEST(DeviceArguments, ATapThatIsThereKeepsItsAddress) {
  const Mac mac{{2, 0, 0, 0, 0, 0x1a}};
  const auto of = [](const char* device, const DeviceNeeds& needs) {
    return arguments_for(*parse_device(device), needs).front().arguments;
  };
  EXPECT_EQ(of("tap:t0", {}), "iface=t0");
  EXPECT_EQ(of("tap:t0", {.mac = mac}), "iface=t0,mac=02:00:00:00:00:1a");
  EXPECT_EQ(of("tap:t0,mac=fixed", {.mac = mac}), "iface=t0,mac=fixed");
}

TEST(DeviceArguments, FramesHoldTheMtu) {
  const auto frame = [](unsigned mtu) {
    return arguments_for(*parse_device("af_packet:v0"), {.mtu = mtu, .workers = 2})
        .front()
        .arguments;
  };
  EXPECT_EQ(frame(1500),
            "iface=v0,qpairs=2,qdisc_bypass=1,framesz=2048,blocksz=65536,framecnt=4096");
  EXPECT_EQ(frame(9000),
            "iface=v0,qpairs=2,qdisc_bypass=1,framesz=16384,blocksz=65536,framecnt=512");
}

TEST(DeviceArguments, NetworkControlMayHaveADeviceOfItsOwn) {
  const auto both = arguments_for(*parse_device("af_packet:v0"), {.number = 3, .workers = 2});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].packets, PacketsOf::rest);
  EXPECT_EQ(both[1].packets, PacketsOf::control);
  EXPECT_NE(both[0].name, both[1].name);
  EXPECT_EQ(both[1].queues, 1U);
  const auto one = arguments_for(*parse_device("af_packet:v0"), {.has_control = false});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one.front().packets, std::nullopt);
}

}  // namespace
}  // namespace millrace
