// Tests fragments in a host with a virtual address: some pass, some are answered, some are dropped.
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
#include "host/test_steering.h"
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
  static constexpr const char* kPrefix = "10.0.0.0";
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
  static constexpr const char* kPrefix = "fd00::";
  static constexpr unsigned kBits = 64;
  static constexpr std::uint8_t kIcmp = kProtocolIcmpV6;
};

enum class Lane : std::uint8_t { none, originator, reply };

template <class A>
class FragmentsTest : public testing::Test, protected Wire {
 protected:
  static constexpr bool kV4 = A::kBytes == 4;

  FragmentsTest() { make(false); }

  static A address(const char* text) { return *parse_address<A>(text); }

  /// `prefix`: a service takes packets to the whole inner network, too. `kernel`: the kernel has an
  /// interface on link 0, and a service takes packets to that link's own address, too.
  void make(bool prefix, bool kernel = false) {
    HostConfig config{.links = {{.mac = {{2, 0, 0, 0, 0, 1}}}, {.mac = {{2, 0, 0, 0, 0, 2}}}},
                      .announces = false};
    HostAddresses<A> all{.own = {{address(Place<A>::kOwn), Place<A>::kBits, 0},
                                 {address(Place<A>::kInside), Place<A>::kBits, 1}},
                         .virtual_addresses = {address(Place<A>::kVirtual)}};
    all.backends = {{.address = address(Place<A>::kBackend), .port = 53, .protocol = kProtocolUdp}};
    all.neighbours = {{address(Place<A>::kClient), 0, {{2, 0, 0, 0, 0, 9}}},
                      {address(Place<A>::kBackend), 1, {{2, 0, 0, 0, 0, 9}}},
                      {address(Place<A>::kOther), 1, {{2, 0, 0, 0, 0, 9}}}};
    if (prefix) all.served = {{address(Place<A>::kPrefix), Place<A>::kBits}};
    if (kernel) all.virtual_addresses.push_back(address(Place<A>::kOwn));
    config.links[0].has_kernel = kernel;
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

  /// Returns the packet's verdict, and the links on which frames left. `lane`: the side from which
  /// the balancer takes the packet to come; `none`: the balancer does not handle the packet.
  /// `verdict`: the balancer's verdict on a packet that it handles. `keeps_all`: as for
  /// `Host::filed`.
  std::string come(const Bytes& ip, unsigned link, Lane lane = Lane::reply,
                   Verdict verdict = Verdict::no_service, bool keeps_all = true) {
    const Handle handle = ++handles_;
    frames_[handle] =
        bytes({2, 0, 0, 0, 0, link + 1, 2, 0, 0, 0, 0, 9}) + be(kV4 ? 0x0800 : 0x86dd) + ip;
    link_of_[handle] = link;
    auto burst = std::make_unique<Burst>();
    burst->size = 1;
    burst->now = now_;
    burst->data[0] = frames_[handle].data();
    burst->length[0] = static_cast<std::uint16_t>(frames_[handle].size());
    burst->wire_length[0] = burst->length[0];
    burst->handle[0] = handle;
    parse(*burst, LinkType::ethernet);
    const Arrival arrival{0, 1, link};
    host_->admit(*burst, {&arrival, 1});
    const bool has_key = burst->lane<Key<A>>().size == 1;
    if (lane == Lane::none && has_key) burst->verdict[0] = Verdict::no_service;
    host_->filed(
        *burst,
        SteersAll({.by_source = lane == Lane::originator, .by_destination = lane == Lane::reply}),
        keeps_all);
    if (auto& keyed = burst->lane<Key<A>>(); lane != Lane::none && keyed.size == 1) {
      burst->verdict[0] = verdict;
      if (is_served(verdict)) keyed.set_source(0, {}, 1);
    }
    std::array<Outgoing, Burst::kMax> out;
    sent_.clear();
    const Host::Routed routed = host_->route(*burst, ~std::uint64_t{0}, out, *this);
    if (routed.sent != 0) send(out[0]);
    std::string text(to_string(burst->verdict[0]));
    for (const unsigned to : sent_) text += " " + std::to_string(to);
    return text;
  }

  Outgoing make(unsigned size) override {
    frames_[++handles_].assign(size, std::byte{});
    return {.handle = handles_, .data = frames_[handles_].data()};
  }
  void send(const Outgoing& frame) override {
    sent_.push_back(frame.link);
    last_.assign(frame.data, frame.data + frame.length);
  }
  void drop(Handle) override {}
  bool give_to_kernel(Handle, unsigned) override { return true; }
  unsigned link_of(Handle handle) const override { return link_of_.at(handle); }

  std::unique_ptr<Host> host_;
  Tick now_{1000};
  Handle handles_ = 0;
  std::map<Handle, Bytes> frames_;
  std::map<Handle, unsigned> link_of_;
  std::vector<unsigned> sent_;
  Bytes last_;
};

using Families = testing::Types<AddressV4, AddressV6>;
TYPED_TEST_SUITE(FragmentsTest, Families, );

TYPED_TEST(FragmentsTest, RoutedOnesPass) {
  using P = Place<TypeParam>;
  for (const bool keeps_all : {true, false}) {
    EXPECT_EQ(this->come(this->first(P::kClient, P::kOther, 6000, 80), 0, Lane::reply,
                         Verdict::no_service, keeps_all),
              "no_service 1");
    EXPECT_EQ(this->come(this->later(P::kClient, P::kOther), 0), "fragment 1");
    // Fragments of a connection that a backend opens pass, too, also out of order.
    EXPECT_EQ(this->come(this->later(P::kBackend, P::kClient, 9), 1), "fragment 0");
    EXPECT_EQ(this->come(this->first(P::kBackend, P::kClient, 6000, 80, 9), 1, Lane::reply,
                         Verdict::no_service, keeps_all),
              "no_service 0");
  }
}

TYPED_TEST(FragmentsTest, NonePassesToAService) {
  using P = Place<TypeParam>;
  EXPECT_EQ(this->come(this->later(P::kClient, P::kVirtual), 0), "service_fragment");
  EXPECT_EQ(this->come(this->first(P::kClient, P::kVirtual, 6000, 53), 0, Lane::originator,
                       Verdict::tracked),
            "service_fragment");
  EXPECT_EQ(this->come(this->later(P::kClient, P::kVirtual), 0), "service_fragment");
  // A fragment to a port that no service has is dropped silently, too.
  EXPECT_EQ(this->come(this->first(P::kClient, P::kVirtual, 6000, 54), 0), "service_fragment");
  EXPECT_EQ(this->come(this->first(P::kClient, P::kVirtual, 6000, 54), 0, Lane::none),
            "service_fragment");
}

TYPED_TEST(FragmentsTest, NonePassesFromAService) {
  using P = Place<TypeParam>;
  EXPECT_EQ(
      this->come(this->first(P::kBackend, P::kClient, 53, 6000), 1, Lane::reply, Verdict::tracked),
      "service_fragment");
  EXPECT_EQ(this->come(this->later(P::kBackend, P::kClient), 1), "service_fragment");
  EXPECT_EQ(this->come(this->later(P::kBackend, P::kClient, 8), 1), "fragment 0");
  this->now_ = this->now_ + 30'001;
  EXPECT_EQ(this->come(this->later(P::kBackend, P::kClient), 1), "fragment 0");
  // A backend that has left the configuration may still have connections: the balancer's verdict
  // shows them.
  EXPECT_EQ(
      this->come(this->first(P::kOther, P::kClient, 53, 6000, 5), 1, Lane::reply, Verdict::tracked),
      "service_fragment");
  EXPECT_EQ(this->come(this->later(P::kOther, P::kClient, 5), 1), "service_fragment");
}

TYPED_TEST(FragmentsTest, AServiceWithAPrefixTakesWhatItTakes) {
  using P = Place<TypeParam>;
  this->make(true);
  EXPECT_EQ(this->come(this->later(P::kClient, P::kOther), 0), "service_fragment");
  EXPECT_EQ(this->come(this->first(P::kClient, P::kOther, 6000, 80), 0, Lane::originator,
                       Verdict::tracked),
            "service_fragment");
  EXPECT_EQ(this->come(this->later(P::kClient, P::kOther), 0), "service_fragment");
  for (const auto lane : {Lane::none, Lane::reply}) {
    EXPECT_EQ(this->come(this->first(P::kClient, P::kOther, 6000, 81, 8), 0, lane), "no_service 1");
    EXPECT_EQ(this->come(this->later(P::kClient, P::kOther, 8), 0), "fragment 1");
  }
}

TYPED_TEST(FragmentsTest, TheKernelGetsThoseOfWhatItGets) {
  using P = Place<TypeParam>;
  this->make(false, true);
  EXPECT_EQ(this->come(this->later(P::kClient, P::kOwn), 0), "service_fragment");
  EXPECT_EQ(this->come(this->first(P::kClient, P::kOwn, 6000, 54), 0, Lane::none), "consumed");
  EXPECT_EQ(this->come(this->later(P::kClient, P::kOwn), 0), "consumed");
  EXPECT_EQ(this->come(this->first(P::kClient, P::kOwn, 6000, 53, 8), 0, Lane::originator,
                       Verdict::tracked),
            "service_fragment");
  EXPECT_EQ(this->come(this->later(P::kClient, P::kOwn, 8), 0), "service_fragment");
}

TYPED_TEST(FragmentsTest, PingsAreAnsweredPartByPart) {
  using P = Place<TypeParam>;
  const bool v4 = P::kBits == 24;
  const auto ping = bytes({v4 ? 8U : 128U, 0, 0x12, 0x34, 0, 7, 0, 1}) + test::zeros(8);
  unsigned id = 10;
  for (const char* to : {P::kOwn, P::kVirtual, P::kInside}) {
    for (const bool keeps_all : {true, false}) {
      ++id;
      const std::string is_early = to == P::kVirtual ? "service_fragment" : "not_ours";
      EXPECT_EQ(this->come(this->later(P::kClient, to, id), 0), is_early);
      ASSERT_EQ(this->come(this->part(P::kClient, to, P::kIcmp, ping, 0, true, id), 0, Lane::reply,
                           Verdict::tracked, keeps_all),
                "consumed 0");
      // The type becomes that of an echo reply, and the checksum of the whole datagram is updated
      // for it: by +8 (IPv4) or -1 (IPv6) in its first byte.
      const Bytes is = test::Bytes(this->last_.end() - 16, this->last_.end());
      EXPECT_EQ(is[0], std::byte{v4 ? std::uint8_t{0} : std::uint8_t{129}});
      EXPECT_EQ(is[2], std::byte{v4 ? std::uint8_t{0x1a} : std::uint8_t{0x11}});
      const Bytes rest = this->part(P::kClient, to, P::kIcmp, test::zeros(16), 2, false, id);
      EXPECT_EQ(this->come(rest, 0), "consumed 0");
      const Bytes back = this->part(to, P::kClient, P::kIcmp, test::zeros(16), 2, false, id);
      EXPECT_TRUE(std::ranges::equal(std::span(this->last_).last(16), std::span(back).last(16)));
      EXPECT_EQ(
          this->come(this->part(P::kClient, to, P::kIcmp, test::zeros(16), 2, false, id + 100), 0),
          is_early);
    }
  }
}

}  // namespace
}  // namespace millrace
