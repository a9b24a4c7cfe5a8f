// Tests fragments in a host with a virtual address. Later fragments have the key of the first one
// when they reach the host (src/fragments).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/protocol.h"
#include "host/host.h"
#include "parse/parse.h"
#include "parse/test_checksums.h"
#include "parse/test_packets.h"

namespace millrace {
namespace {

using test::be;
using test::Bytes;
using test::bytes;
using test::operator+;

template <class A>
struct Place;
template <>
struct Place<AddressV4> {
  static constexpr const char* kOwn = "198.51.100.2";
  static constexpr const char* kVirtual = "203.0.113.10";
  static constexpr const char* kClient = "198.51.100.7";
  static constexpr const char* kBackend = "10.0.0.1";
  static constexpr const char* kOther = "10.0.0.7";
  static constexpr const char* kInside = "10.0.0.254";
  static constexpr unsigned kBits = 24;
  static constexpr std::uint8_t kIcmp = kProtocolIcmp;
};
template <>
struct Place<AddressV6> {
  static constexpr const char* kOwn = "2001:db8::2";
  static constexpr const char* kVirtual = "2001:db8:1::10";
  static constexpr const char* kClient = "2001:db8::7";
  static constexpr const char* kBackend = "fd00::1";
  static constexpr const char* kOther = "fd00::7";
  static constexpr const char* kInside = "fd00::fe";
  static constexpr unsigned kBits = 64;
  static constexpr std::uint8_t kIcmp = kProtocolIcmpV6;
};

template <class A>
class FragmentsTest : public testing::Test, protected Wire {
 protected:
  static constexpr bool kV4 = A::kBytes == 4;
  static constexpr unsigned kMtu = 1280;

  FragmentsTest() { make(false); }

  static A address(const char* text) { return *parse_address<A>(text); }

  /// `kernel`: the kernel has an interface on link 0.
  void make(bool kernel) {
    HostConfig config{.links = {{.mac = {{2, 0, 0, 0, 0, 1}}}, {.mac = {{2, 0, 0, 0, 0, 2}}}},
                      .announces = false};
    HostAddresses<A> all{.own = {{address(Place<A>::kOwn), Place<A>::kBits, 0},
                                 {address(Place<A>::kInside), Place<A>::kBits, 1}},
                         .virtual_addresses = {address(Place<A>::kVirtual)}};
    all.neighbours = {{address(Place<A>::kClient), 0, {{2, 0, 0, 0, 0, 9}}},
                      {address(Place<A>::kBackend), 1, {{2, 0, 0, 0, 0, 9}}},
                      {address(Place<A>::kOther), 1, {{2, 0, 0, 0, 0, 9}}}};
    config.links[0].has_kernel = kernel;
    config.links[1].mtu = kMtu;
    if constexpr (kV4) {
      config.v4 = all;
    } else {
      config.v6 = all;
    }
    host_ = std::make_unique<Host>(config);
    host_->begin(now_, *this);
    sent_.clear();
  }

  static Bytes raw(const A& address) {
    Bytes all;
    for (const auto byte : address.bytes) all.push_back(std::byte{byte});
    return all;
  }
  /// Returns a fragment of a datagram, from byte 8 * `at` on.
  static Bytes part(const char* from, const char* to, std::uint8_t protocol, const Bytes& payload,
                    unsigned at, bool more, unsigned id = 7) {
    const Bytes ends = raw(address(from)) + raw(address(to));
    const unsigned bits = at | (more ? 0x2000U : 0U);
    if (kV4)
      return test::summed(bytes({0x45, 0}) + be(static_cast<unsigned>(20 + payload.size())) +
                          be(id) + be(bits) + bytes({64, protocol, 0, 0}) + ends) +
             payload;
    return bytes({0x60, 0, 0, 0}) + be(static_cast<unsigned>(8 + payload.size())) +
           bytes({kProtocolFragment, 64}) + ends + bytes({protocol, 0}) +
           be(at << 3 | (more ? 1U : 0U)) + be(0) + be(id) + payload;
  }
  static Bytes first(const char* from, const char* to, unsigned source_port, unsigned port,
                     unsigned id = 7) {
    return part(from, to, kProtocolUdp,
                be(source_port) + be(port) + be(16) + be(0) + test::zeros(8), 0, true, id);
  }
  static Bytes later(const char* from, const char* to, unsigned id = 7) {
    return part(from, to, kProtocolUdp, test::zeros(16), 2, false, id);
  }

  /// Returns the packet's verdict, and the links on which frames left. No function handles packets
  /// with a key.
  std::string come(const Bytes& ip, unsigned link) {
    const Handle handle = ++handles_;
    frames_[handle] =
        bytes({2, 0, 0, 0, 0, link + 1, 2, 0, 0, 0, 0, 9}) + be(kV4 ? 0x0800 : 0x86dd) + ip;
    auto burst = std::make_unique<Burst>();
    burst->size = 1;
    burst->now = now_;
    burst->data[0] = frames_[handle].data();
    burst->length[0] = static_cast<std::uint16_t>(frames_[handle].size());
    burst->wire_length[0] = burst->length[0];
    burst->handle[0] = handle;
    parse(*burst, LinkType::ethernet);
    burst->link[0] = static_cast<std::uint8_t>(link);
    const Arrival arrival{0, 1, link};
    host_->admit(*burst, {&arrival, 1});
    if (burst->verdict[0] == Verdict::fragment || burst->verdict[0] == Verdict::tracked)
      burst->verdict[0] = Verdict::no_service;
    std::array<Outgoing, Burst::kMax> out;
    sent_.clear();
    const Host::Routed routed = host_->route(*burst, ~std::uint64_t{0}, out, *this);
    if (routed.sent != 0) send(out[0]);
    std::string text(to_string(burst->verdict[0]));
    for (const unsigned to : sent_) text += " " + std::to_string(to);
    return text;
  }

  Outgoing make(unsigned size) override {
    if (buffers_ == 0) return {};
    --buffers_;
    frames_[++handles_].assign(size, std::byte{});
    return {.handle = handles_, .data = frames_[handles_].data()};
  }
  void send(const Outgoing& frame) override {
    sent_.push_back(frame.link);
    last_.assign(frame.data, frame.data + frame.length);
  }
  void drop(Handle handle) override { dropped_.push_back(handle); }
  bool give_to_kernel(Handle, unsigned) override { return true; }

  std::unique_ptr<Host> host_;
  Tick now_{1000};
  unsigned buffers_ = 1000;
  std::vector<Handle> dropped_;
  Handle handles_ = 0;
  std::map<Handle, Bytes> frames_;
  std::vector<unsigned> sent_;
  Bytes last_;
};

using Families = testing::Types<AddressV4, AddressV6>;
TYPED_TEST_SUITE(FragmentsTest, Families, );

TYPED_TEST(FragmentsTest, RoutedOnesPass) {
  using P = Place<TypeParam>;
  EXPECT_EQ(this->come(this->first(P::kClient, P::kOther, 6000, 80), 0), "no_service 1");
  EXPECT_EQ(this->come(this->later(P::kClient, P::kOther), 0), "no_service 1");
  EXPECT_EQ(this->come(this->later(P::kBackend, P::kClient, 9), 1), "no_service 0");
}

TYPED_TEST(FragmentsTest, TheKernelGetsThoseOfWhatItGets) {
  using P = Place<TypeParam>;
  this->make(true);
  EXPECT_EQ(this->come(this->first(P::kClient, P::kOwn, 6000, 54), 0), "consumed");
  EXPECT_EQ(this->come(this->later(P::kClient, P::kOwn), 0), "consumed");
}

// division_test.cc tests the fragments themselves.
TYPED_TEST(FragmentsTest, TooLargeOnesAreDividedInIpv4) {
  using P = Place<TypeParam>;
  const auto part = [](const char* to, unsigned size, bool more) {
    return TestFixture::part(P::kClient, to, kProtocolUdp,
                             be(1000) + be(80) + be(0) + be(0) + test::zeros(size - 8), 0, more);
  };
  EXPECT_EQ(this->come(part(P::kOther, 1232, true), 0), "no_service 1");
  const char* const divided = TestFixture::kV4 ? "no_service 1 1 1" : "too_big 0";
  EXPECT_EQ(this->come(part(P::kOther, 2800, true), 0), divided);
  EXPECT_EQ(this->come(part(P::kOther, 2800, false), 0), divided);
  if (!TestFixture::kV4) return;
  EXPECT_EQ(this->last_.size(), 14 + 20 + 1256U);  // the first, which the port sends
  this->buffers_ = 1;
  EXPECT_EQ(this->come(part(P::kOther, 2800, true), 0), "no_buffer");
  EXPECT_EQ(this->dropped_.size(), 1U);
  this->buffers_ = 100;
  Bytes forbidden = part(P::kOther, 2800, true);
  forbidden[6] |= std::byte{0x40};
  forbidden[10] = forbidden[11] = std::byte{0};
  forbidden = test::summed(Bytes(forbidden.begin(), forbidden.begin() + 20)) +
              Bytes(forbidden.begin() + 20, forbidden.end());
  EXPECT_EQ(this->come(forbidden, 0), "too_big 0");
  // All wait for the next hop's MAC.
  EXPECT_EQ(this->come(part("10.0.0.99", 2800, true), 0), "held 1");  // asks for it
  EXPECT_EQ(this->host_->held(), 3U);
}

TYPED_TEST(FragmentsTest, PingsAreAnsweredPartByPart) {
  using P = Place<TypeParam>;
  const bool v4 = P::kBits == 24;
  const auto ping = bytes({v4 ? 8U : 128U, 0, 0x12, 0x34, 0, 7, 0, 1}) + test::zeros(8);
  unsigned id = 10;
  for (const char* to : {P::kOwn, P::kVirtual, P::kInside}) {
    ++id;
    EXPECT_EQ(this->come(this->later(P::kClient, to, id), 0), "not_ours");
    ASSERT_EQ(this->come(this->part(P::kClient, to, P::kIcmp, ping, 0, true, id), 0), "consumed 0");
    // The type becomes that of an echo reply, and the checksum of the whole datagram is updated
    // for it: by +8 (IPv4) or -1 (IPv6) in its first byte.
    const Bytes is = test::Bytes(this->last_.end() - 16, this->last_.end());
    EXPECT_EQ(is[0], std::byte{v4 ? std::uint8_t{0} : std::uint8_t{129}});
    EXPECT_EQ(is[2], std::byte{v4 ? std::uint8_t{0x1a} : std::uint8_t{0x11}});
    const Bytes rest = this->part(P::kClient, to, P::kIcmp, test::zeros(16), 2, false, id);
    EXPECT_EQ(this->come(rest, 0), "consumed 0");
    const Bytes back = this->part(to, P::kClient, P::kIcmp, test::zeros(16), 2, false, id);
    EXPECT_TRUE(std::ranges::equal(std::span(this->last_).last(back.size()), back));
    EXPECT_EQ(
        this->come(this->part(P::kClient, to, P::kIcmp, test::zeros(16), 2, false, id + 100), 0),
        "not_ours");
  }
}

}  // namespace
}  // namespace millrace
