#include "parse/sctp.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "parse/signal.h"
#include "parse/test_packets.h"

namespace millrace::test {
namespace {

constexpr unsigned kData = 0;
constexpr unsigned kInit = 1;
constexpr unsigned kInitAck = 2;
constexpr unsigned kSack = 3;
constexpr unsigned kHeartbeat = 4;
constexpr unsigned kAbort = 6;
constexpr unsigned kShutdown = 7;
constexpr unsigned kShutdownAck = 8;
constexpr unsigned kError = 9;
constexpr unsigned kCookieEcho = 10;
constexpr unsigned kCookieAck = 11;
constexpr unsigned kShutdownComplete = 14;

Bytes be32(unsigned value) { return be(value >> 16) + be(value & 0xffff); }
Bytes common(unsigned tag) { return be(1024) + be(443) + be32(tag) + zeros(4); }
/// Returns a chunk with `value` bytes behind its header, padded to a multiple of 4.
Bytes chunk(unsigned type, std::size_t value = 0, unsigned flags = 0) {
  return bytes({type, flags}) + be(static_cast<unsigned>(4 + value)) + zeros((value + 3) / 4 * 4);
}
Bytes init(unsigned type, unsigned tag) {
  return bytes({type, 0}) + be(20) + be32(tag) + zeros(12);
}

struct Read {
  Signal signal;
  Tags tags;
};
/// Reads an SCTP packet in both families, with the packet at the end of its heap block.
Read read(const Bytes& sctp, std::size_t missing = 0) {
  const Parsed v4 =
      parse(LinkType::raw_ip, cut(ipv4({.protocol = 132}, sctp), 20 + sctp.size() - missing));
  const Parsed v6 =
      parse(LinkType::raw_ip, cut(ipv6({.next = 132}, sctp), 40 + sctp.size() - missing));
  const Read one{read_signal(v4.memory.get(), v4.headers), read_tags(v4.memory.get(), v4.headers)};
  EXPECT_EQ(read_signal(v6.memory.get(), v6.headers), one.signal);
  EXPECT_EQ(read_tags(v6.memory.get(), v6.headers).is_whole, one.tags.is_whole);
  return one;
}
Signal signal_of(const Bytes& chunks, unsigned tag = 5) {
  return read(common(tag) + chunks).signal;
}

TEST(Sctp, EachChunkHasItsSignal) {
  EXPECT_EQ(signal_of(init(kInit, 9), 0), Signal::sctp_init);
  EXPECT_EQ(signal_of(init(kInitAck, 9)), Signal::sctp_init_ack);
  EXPECT_EQ(signal_of(chunk(kCookieEcho, 33)), Signal::sctp_cookie_echo);
  EXPECT_EQ(signal_of(chunk(kCookieAck)), Signal::sctp_cookie_ack);
  EXPECT_EQ(signal_of(chunk(kShutdown, 4)), Signal::sctp_shutdown);
  EXPECT_EQ(signal_of(chunk(kShutdownAck)), Signal::sctp_shutdown_ack);
  EXPECT_EQ(signal_of(chunk(kShutdownComplete)), Signal::sctp_shutdown_complete);
  EXPECT_EQ(signal_of(chunk(kAbort)), Signal::sctp_abort);
  EXPECT_EQ(signal_of(chunk(kHeartbeat, 8)), Signal::sctp_heartbeat);
  EXPECT_EQ(signal_of(chunk(kError, 4)), Signal::sctp_nothing);
  for (const unsigned type : {kData, kSack, 5U, 12U, 13U, 64U, 128U, 192U, 193U, 255U})
    EXPECT_EQ(signal_of(chunk(type, 12)), Signal::sctp_data) << type;
}

TEST(Sctp, TheMostTellingChunkOfAPacketCounts) {
  EXPECT_EQ(signal_of(chunk(kCookieEcho, 5) + chunk(kData, 13)), Signal::sctp_cookie_echo);
  EXPECT_EQ(signal_of(chunk(kCookieAck) + chunk(kSack, 12) + chunk(kData, 13)),
            Signal::sctp_cookie_ack);
  EXPECT_EQ(signal_of(chunk(kSack, 12) + chunk(kShutdown, 4)), Signal::sctp_shutdown);
  EXPECT_EQ(signal_of(chunk(kShutdown, 4) + chunk(kData, 13)), Signal::sctp_shutdown);
  EXPECT_EQ(signal_of(chunk(kSack, 12) + chunk(kError, 4) + chunk(kAbort)), Signal::sctp_abort);
  EXPECT_EQ(signal_of(chunk(kShutdown, 4) + chunk(kAbort)), Signal::sctp_abort);
  EXPECT_EQ(signal_of(chunk(kHeartbeat, 8) + chunk(kData, 13)), Signal::sctp_data);
  EXPECT_EQ(signal_of(chunk(kError, 4) + chunk(kHeartbeat, 8)), Signal::sctp_heartbeat);
  EXPECT_EQ(signal_of(chunk(kError, 4) + chunk(kSack, 12)), Signal::sctp_data);
}

TEST(Sctp, ChunksThatNoEndSendsSayNothing) {
  for (const unsigned type : {kInit, kInitAck}) {
    const unsigned tag = type == kInit ? 0 : 5;
    EXPECT_EQ(signal_of(init(type, 9) + chunk(kData, 4), tag), Signal::sctp_nothing);
    EXPECT_EQ(signal_of(chunk(kSack, 12) + init(type, 9), tag), Signal::sctp_nothing);
    EXPECT_EQ(signal_of(init(type, 0), tag), Signal::sctp_nothing) << "no initiate tag";
    EXPECT_EQ(signal_of(chunk(type, 12), tag), Signal::sctp_nothing) << "too short";
  }
  EXPECT_EQ(signal_of(chunk(kShutdownComplete) + chunk(kSack, 12)), Signal::sctp_nothing);
  EXPECT_EQ(signal_of(chunk(kSack, 12) + chunk(kShutdownComplete)), Signal::sctp_nothing);
  EXPECT_EQ(signal_of(init(kInit, 9), 5), Signal::sctp_nothing) << "an INIT has no tag";
  EXPECT_EQ(signal_of(chunk(kData, 4), 0), Signal::sctp_nothing) << "only an INIT has none";
  EXPECT_EQ(signal_of(bytes({kAbort, 0, 0, 3})), Signal::sctp_nothing) << "shorter than its header";
  // Behind other chunks a COOKIE ECHO or COOKIE ACK is not what it says.
  EXPECT_EQ(signal_of(chunk(kSack, 12) + chunk(kCookieEcho, 4)), Signal::sctp_data);
  EXPECT_EQ(signal_of(chunk(kSack, 12) + chunk(kCookieAck)), Signal::sctp_data);
  // An ABORT shares no packet with DATA, and nobody has to look for it behind many chunks.
  EXPECT_EQ(signal_of(chunk(kData, 13) + chunk(kAbort)), Signal::sctp_data);
  Bytes many;
  for (int n = 0; n < 16; ++n) many = many + chunk(kSack, 12);
  EXPECT_EQ(signal_of(many + chunk(kAbort)), Signal::sctp_data);
}

TEST(Sctp, TagsAreRead) {
  const Tags of_init = read(common(0) + init(kInit, 0x01020304)).tags;
  EXPECT_EQ(of_init.tag, 0U);
  EXPECT_EQ(of_init.initiate, 0x01020304U);
  const Tags of_answer = read(common(0x01020304) + init(kInitAck, 0xfffefdfc)).tags;
  EXPECT_EQ(of_answer.tag, 0x01020304U);
  EXPECT_EQ(of_answer.initiate, 0xfffefdfcU);
  for (const unsigned flags : {0U, 1U, 2U, 3U}) {
    const bool reflects = flags % 2 == 1;
    EXPECT_EQ(read(common(7) + chunk(kAbort, 0, flags)).tags.reflects, reflects);
    EXPECT_EQ(read(common(7) + chunk(kSack, 12) + chunk(kAbort, 0, flags)).tags.reflects, reflects);
    EXPECT_EQ(read(common(7) + chunk(kShutdownComplete, 0, flags)).tags.reflects, reflects);
    EXPECT_FALSE(read(common(7) + chunk(kData, 13, flags)).tags.reflects);
  }
  EXPECT_EQ(read(common(7) + chunk(kData, 13)).tags.tag, 7U);
}

TEST(Sctp, WhatWasNotCapturedIsNotRead) {
  const Bytes packet = common(0) + init(kInit, 9);
  for (std::size_t missing = 1; missing <= packet.size() - 4; ++missing) {
    const Read part = read(packet, missing);
    const std::size_t there = packet.size() - missing;
    EXPECT_EQ(part.signal, there >= 16 ? Signal::sctp_init : Signal::sctp_data) << there;
    EXPECT_EQ(part.tags.is_whole, there >= 20) << there;
  }
  EXPECT_TRUE(read(common(7) + chunk(kData, 13), 13).tags.is_whole);
}

TEST(Sctp, OtherProtocolsHaveNoSuchSignal) {
  for (const unsigned protocol : {17U, 33U, 47U, 136U}) {
    const Parsed p = parse(LinkType::raw_ip, ipv4({.protocol = protocol}, common(0) + init(1, 9)));
    EXPECT_EQ(read_signal(p.memory.get(), p.headers), Signal::packet);
  }
}

}  // namespace
}  // namespace millrace::test
