// Tests a host that has customers in VLANs on link 0, and the rest of the world on link 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/test_seed.h"
#include "host/host.h"
#include "host/test_steering.h"
#include "parse/checksum.h"
#include "parse/parse.h"
#include "parse/rewrite.h"
#include "parse/test_packets.h"

namespace millrace {
namespace {

using test::be;
using test::Bytes;
using test::bytes;
using test::operator+;

constexpr Mac kUs{{2, 0, 0, 0, 0, 1}};
constexpr Mac kAll{{255, 255, 255, 255, 255, 255}};
constexpr Mac kHome{{2, 0, 0, 0, 0, 5}};
constexpr Mac kOther{{2, 0, 0, 0, 0, 6}};

AddressV4 at(const char* text) { return *parse_address<AddressV4>(text); }
Bytes raw(const auto& given) {
  Bytes all;
  for (const std::uint8_t byte : given.bytes) all.push_back(std::byte{byte});
  return all;
}
Bytes raw(const char* address) { return raw(at(address)); }

std::vector<Bytes> only(const Bytes& frame) { return {frame}; }

/// Returns what follows the MACs, with the tag of a VLAN; 0: without.
Bytes tagged(unsigned vlan, const Bytes& rest) {
  return vlan == 0 ? rest : be(0x8100) + be(vlan) + rest;
}
Bytes arp(unsigned operation, const Mac& sender, const char* address, const Mac& target,
          const char* its) {
  return be(0x0806) + bytes({0, 1, 8, 0, 6, 4}) + be(operation) + raw(sender) + raw(address) +
         raw(target) + raw(its) + test::zeros(18);
}
Bytes packet(const char* source, const char* destination, unsigned protocol, const Bytes& payload,
             unsigned hops = 64, unsigned fragment = 0) {
  Bytes ip = bytes({0x45, 0}) + be(static_cast<unsigned>(20 + payload.size())) + be(0) +
             be(fragment) + bytes({hops, protocol}) + be(0) + raw(source) + raw(destination);
  detail::store(&ip[10], internet_checksum(ip));
  return be(0x0800) + ip + payload;
}
Bytes datagram(const char* source, const char* destination, unsigned hops = 64,
               unsigned size = 20) {
  return packet(source, destination, 17,
                be(4000) + be(53) + be(size + 8) + be(0) + test::zeros(size), hops);
}
Bytes ping(unsigned type) {
  Bytes icmp = bytes({type, 0, 0, 0, 0, 7, 0, 1}) + test::zeros(8);
  detail::store(&icmp[2], internet_checksum(icmp));
  return icmp;
}

std::shared_ptr<const Customers> customers(std::uint16_t last) {
  return std::make_shared<const Customers>(std::vector<CustomerGroup>{
      {.link = 0, .ends = {}, .key = {}, .name = {}, .vlans = {100, last}, .port = "access"}});
}

HostConfig config(std::uint16_t last = 101) {
  HostConfig is{.links = {{.mac = kUs, .has_customer_vlans = true}, {.mac = kUs}},
                .v4 = {},
                .v6 = {},
                .customers = customers(last),
                .announces = false};
  is.v4.of_customers.own = {{at("10.9.0.1"), 17, 0}};
  is.v4.of_customers.routes = {{at("10.9.128.0"), 17, 0, at("10.9.0.9")}};
  is.v4.own = {{at("198.51.100.2"), 24, 1}};
  return is;
}

class CustomerVlansTest : public testing::Test, protected Wire {
 protected:
  /// A frame arrives, from its MACs on. `to`: a function sends the packet to this customer.
  std::string arrive(unsigned link, const Bytes& frame, Zone to = 0) {
    const Handle handle = ++handles_;
    Bytes& memory = frames_[handle];
    memory = test::zeros(kRoom) + frame;
    memory.shrink_to_fit();
    burst_->clear();
    burst_->size = 1;
    burst_->now = now_;
    burst_->link[0] = static_cast<std::uint8_t>(link);
    burst_->data[0] = memory.data() + kRoom;
    burst_->length[0] = static_cast<std::uint16_t>(frame.size());
    burst_->wire_length[0] = burst_->length[0];
    burst_->handle[0] = handle;
    const Arrival arrival{0, 1, link};
    host_.unwrap(*burst_, {&arrival, 1});
    parse(*burst_, LinkType::ethernet);
    host_.admit(*burst_, {&arrival, 1});
    host_.filed(*burst_, SteersAll());
    begin_serving<KeyV4>(*burst_);
    begin_serving<KeyV6>(*burst_);
    for (unsigned i = 0; i < burst_->v4.size; ++i) burst_->v4.connection[i] = ConnId::none;
    for (unsigned i = 0; i < burst_->v6.size; ++i) burst_->v6.connection[i] = ConnId::none;
    kept_ = host_.looked_up(*burst_, SteersAll());
    if (burst_->verdict[0] == Verdict::tracked && to == 0) burst_->verdict[0] = Verdict::no_service;
    if (to != 0) burst_->send_to(0, to);
    zone_ = burst_->v4.size == 0 ? 0 : burst_->v4.key[0].number_of_zone();
    std::array<Outgoing, Burst::kMax> out;
    const Host::Routed routed = host_.route(*burst_, ~std::uint64_t{0}, out, *this);
    if (routed.sent != 0) {
      send(out[0]);
    } else if (routed.taken == 0) {
      frames_.erase(handle);
    }
    return std::string(to_string(burst_->verdict[0]));
  }
  /// A frame arrives on link 0 in a VLAN; 0: without a tag.
  std::string arrive_in(unsigned vlan, const Bytes& rest, const Mac& to = kUs,
                        const Mac& from = kHome) {
    return arrive(0, raw(to) + raw(from) + tagged(vlan, rest));
  }
  /// A datagram arrives on link 1, and a function sends it to a customer.
  std::string arrive_for(Zone customer, const char* destination, unsigned size = 20) {
    return arrive(1, raw(kUs) + raw(kOther) + datagram("198.51.100.7", destination, 64, size),
                  customer);
  }
  void pass(std::uint32_t ms) {
    for (; ms >= 50; ms -= 50) {
      now_ = now_ + 50;
      host_.tick(now_, *this);
    }
  }
  /// Returns the frames sent so far, and forgets them.
  std::vector<Bytes> sent() { return std::exchange(sent_, {}); }
  static std::vector<Bytes> asked_in(unsigned vlan, const char* address) {
    return {raw(kAll) + raw(kUs) + tagged(vlan, arp(1, kUs, "10.9.0.1", Mac{}, address))};
  }
  /// Tells the host where a station is, by its question in that VLAN.
  void introduce(unsigned vlan, const char* address, const Mac& mac) {
    EXPECT_EQ(arrive_in(vlan, arp(1, mac, address, Mac{}, "10.9.0.1"), kAll, mac), "consumed");
    sent();
  }

  Outgoing make(unsigned size) override {
    const Handle handle = ++handles_;
    frames_[handle].assign(kRoom + size, std::byte{0xee});
    return {.handle = handle, .data = frames_[handle].data() + kRoom};
  }
  void send(const Outgoing& frame) override {
    EXPECT_GE(frame.data, frames_[frame.handle].data());
    EXPECT_LE(frame.data + frame.length,
              frames_[frame.handle].data() + frames_[frame.handle].size());
    links_.push_back(frame.link);
    sent_.emplace_back(frame.data, frame.data + frame.length);
    EXPECT_EQ(frames_.erase(frame.handle), 1U);
  }
  void drop(Handle handle) override { EXPECT_EQ(frames_.erase(handle), 1U); }

  static constexpr unsigned kRoom = 4;  ///< for one tag
  std::unique_ptr<Burst> burst_ = std::make_unique<Burst>();
  Host host_{config()};
  Tick now_{1000};
  std::uint64_t kept_ = 0;
  Zone zone_ = 0;
  std::vector<unsigned> links_;

 private:
  Handle handles_ = 0;
  std::map<Handle, Bytes> frames_;
  std::vector<Bytes> sent_;
};

TEST_F(CustomerVlansTest, QuestionsAreAnsweredInTheirVlan) {
  for (const unsigned vlan : {100U, 101U, 0xe000U + 101U}) {
    EXPECT_EQ(arrive_in(vlan, arp(1, kHome, "10.9.0.5", Mac{}, "10.9.0.1"), kAll), "consumed");
    EXPECT_EQ(sent(), only(raw(kHome) + raw(kUs) +
                           tagged(vlan & 0xfff, arp(2, kUs, "10.9.0.1", kHome, "10.9.0.5"))));
  }
  EXPECT_EQ(arrive_in(100, arp(1, kHome, "10.9.0.5", Mac{}, "198.51.100.2"), kAll), "consumed");
  EXPECT_TRUE(sent().empty()) << "an address of another link";
  for (const unsigned vlan : {0U, 99U, 102U, 0xfffU}) {
    EXPECT_EQ(arrive_in(vlan, arp(1, kHome, "10.9.0.5", Mac{}, "10.9.0.1"), kAll), "foreign_vlan");
    EXPECT_EQ(arrive_in(vlan, datagram("10.9.0.5", "192.0.2.7")), "foreign_vlan");
  }
  EXPECT_TRUE(sent().empty());
}

TEST_F(CustomerVlansTest, EqualAddressesAreTwoNeighbours) {
  EXPECT_EQ(arrive_for(1, "10.9.0.5"), "held");
  EXPECT_EQ(sent(), asked_in(100, "10.9.0.5"));
  EXPECT_EQ(arrive_for(2, "10.9.0.5"), "held");
  EXPECT_EQ(sent(), asked_in(101, "10.9.0.5"));
  EXPECT_EQ(arrive_in(101, arp(2, kOther, "10.9.0.5", kUs, "10.9.0.1"), kUs, kOther), "consumed");
  const Bytes is = datagram("198.51.100.7", "10.9.0.5", 63);
  EXPECT_EQ(sent(), only(raw(kOther) + raw(kUs) + tagged(101, is)));
  EXPECT_EQ(arrive_in(100, arp(2, kHome, "10.9.0.5", kUs, "10.9.0.1")), "consumed");
  EXPECT_EQ(sent(), only(raw(kHome) + raw(kUs) + tagged(100, is)));
  links_.clear();
  arrive_for(2, "10.9.0.5");
  arrive_for(1, "10.9.0.5");
  EXPECT_EQ(sent(), (std::vector{raw(kOther) + raw(kUs) + tagged(101, is),
                                 raw(kHome) + raw(kUs) + tagged(100, is)}));
  EXPECT_EQ(links_, (std::vector{0U, 0U}));
  EXPECT_EQ(arrive_for(3, "10.9.0.5"), "no_customer");
}

TEST_F(CustomerVlansTest, OtherWorkersLearnOfTheirNeighboursAndProcessesTakeThemOver) {
  arrive_for(2, "10.9.0.5");
  sent();
  const Bytes answer = raw(kUs) + raw(kOther) + arp(2, kOther, "10.9.0.5", kUs, "10.9.0.1");
  host_.hear(answer, {0, 2}, now_, *this);
  EXPECT_EQ(sent().size(), 1U);
  const std::vector<KnownNeighbour> known = host_.known();
  ASSERT_EQ(known.size(), 1U);
  EXPECT_EQ(known[0].customer, 2U);
  host_.know({0, at("10.9.0.6"), kHome, 1}, now_, *this);
  arrive_for(1, "10.9.0.6");
  EXPECT_EQ(sent(),
            only(raw(kHome) + raw(kUs) + tagged(100, datagram("198.51.100.7", "10.9.0.6", 63))));
}

TEST_F(CustomerVlansTest, PacketsHaveTheCustomersNumber) {
  EXPECT_EQ(arrive_in(101, datagram("10.9.0.5", "192.0.2.7")), "untranslated");
  EXPECT_EQ(zone_, 2U);
  EXPECT_EQ(kept_, 0U);
  EXPECT_EQ(arrive_in(100, datagram("10.9.0.5", "10.9.0.1")), "not_ours");
  EXPECT_EQ(zone_, 1U);
  EXPECT_EQ(kept_, 1U) << "functions must not see it";
}

TEST_F(CustomerVlansTest, PingsAndErrorsGoIntoTheVlan) {
  introduce(101, "10.9.0.5", kHome);
  EXPECT_EQ(arrive_in(101, packet("10.9.0.5", "10.9.0.1", 1, ping(8))), "consumed");
  EXPECT_EQ(sent(),
            only(raw(kHome) + raw(kUs) + tagged(101, packet("10.9.0.1", "10.9.0.5", 1, ping(0)))));
  EXPECT_EQ(arrive_in(101, packet("10.9.0.5", "198.51.100.2", 1, ping(8))), "consumed");
  EXPECT_EQ(sent(), only(raw(kHome) + raw(kUs) +
                         tagged(101, packet("198.51.100.2", "10.9.0.5", 1, ping(0)))));
  EXPECT_EQ(arrive_in(101, datagram("10.9.0.5", "10.9.0.1")), "not_ours");
  const std::vector<Bytes> errors = sent();
  ASSERT_EQ(errors.size(), 1U);
  const Bytes begin = raw(kHome) + raw(kUs) + tagged(101, be(0x0800));
  EXPECT_EQ(Bytes(errors[0].begin(), errors[0].begin() + 18), begin);
  EXPECT_EQ(Bytes(errors[0].begin() + 30, errors[0].begin() + 38),
            raw("10.9.0.1") + raw("10.9.0.5"));
}

TEST_F(CustomerVlansTest, TheirAddressesAndRoutesAreForNobodyElse) {
  EXPECT_EQ(arrive(1, raw(kUs) + raw(kOther) + datagram("198.51.100.7", "10.9.0.5")), "no_route");
  EXPECT_EQ(arrive(1, raw(kUs) + raw(kOther) + datagram("198.51.100.7", "10.9.0.1")), "no_route");
  EXPECT_EQ(kept_, 0U);
  sent();
  EXPECT_EQ(arrive_for(1, "10.9.200.1"), "held");
  EXPECT_EQ(sent(), asked_in(100, "10.9.0.9")) << "the route's next hop, in the customer's VLAN";
  EXPECT_EQ(arrive_for(1, "203.0.113.9"), "no_route");
  EXPECT_EQ(arrive_for(1, "198.51.100.9"), "no_route") << "a network of another link";
  EXPECT_EQ(arrive_for(1, "10.9.0.1"), "unroutable");
}

TEST_F(CustomerVlansTest, SourcesAreCheckedByTheirLink) {
  EXPECT_EQ(arrive_in(100, datagram("10.9.0.1", "192.0.2.7")), "martian_source");
  EXPECT_EQ(arrive_in(100, datagram("10.9.127.255", "192.0.2.7")), "martian_source");
  EXPECT_EQ(arrive_in(100, datagram("198.51.100.2", "192.0.2.7")), "martian_source");
  EXPECT_EQ(arrive_in(100, datagram("10.9.127.254", "192.0.2.7")), "untranslated");
  EXPECT_EQ(arrive(1, raw(kUs) + raw(kOther) + datagram("10.9.0.1", "198.51.100.9")), "held")
      << "there the address may be a station's";
}

TEST_F(CustomerVlansTest, OtherFramesAreDropped) {
  const Bytes v6 = be(0x86dd) + bytes({0x60, 0, 0, 0, 0, 8, 17, 64}) + bytes({0xfd}) +
                   test::zeros(15) + bytes({0xfd}) + test::zeros(15) + test::zeros(8);
  EXPECT_EQ(arrive_in(100, v6), "untranslated");
  EXPECT_EQ(burst_->v6.size, 0U) << "no function sees it";
  EXPECT_EQ(arrive_in(100, be(0x8100) + be(7) + datagram("10.9.0.5", "192.0.2.7")), "foreign_vlan");
  EXPECT_EQ(arrive_in(100, be(0x8100) + be(0) + datagram("10.9.0.5", "192.0.2.7")), "untranslated");
  EXPECT_EQ(arrive_in(100, datagram("10.9.0.5", "192.0.2.7"), kOther), "other_station");
  EXPECT_EQ(arrive_in(100, be(0x88cc) + test::zeros(46)), "not_ip");
}

TEST_F(CustomerVlansTest, NothingLeavesWithoutATag) {
  HostConfig is = config();
  is.announces = true;
  is.v6.own = {{*parse_address<AddressV6>("2001:db8::2"), 64, 1}};
  Host host(is);
  links_.clear();
  host.begin(now_, *this);
  EXPECT_FALSE(links_.empty());
  EXPECT_EQ(std::ranges::count(links_, 0U), 0) << "an address was announced";
}

TEST_F(CustomerVlansTest, EachFragmentHasTheTag) {
  introduce(100, "10.9.0.5", kHome);
  arrive_for(1, "10.9.0.5", 2000);
  const std::vector<Bytes> parts = sent();
  ASSERT_EQ(parts.size(), 2U);
  const Bytes begin = raw(kHome) + raw(kUs) + tagged(100, be(0x0800));
  for (const Bytes& part : parts) EXPECT_EQ(Bytes(part.begin(), part.begin() + 18), begin);
  EXPECT_EQ(parts[0].size() + parts[1].size(), 2 * (18 + 20) + 2008U);
  EXPECT_LE(std::max(parts[0].size(), parts[1].size()), 18U + 1500);
  // They also wait together.
  arrive_for(2, "10.9.0.5", 2000);
  sent();
  arrive_in(101, arp(2, kOther, "10.9.0.5", kUs, "10.9.0.1"), kUs, kOther);
  const std::vector<Bytes> waited = sent();
  ASSERT_EQ(waited.size(), 2U);
  for (const Bytes& part : waited)
    EXPECT_EQ(Bytes(part.begin(), part.begin() + 18),
              raw(kOther) + raw(kUs) + tagged(101, be(0x0800)));
}

TEST_F(CustomerVlansTest, OnesPacketsLeaveThoseOfOthersRoomToWait) {
  for (unsigned n = 0; n < HostCommon::kMaxHeldOfCustomer; ++n)
    EXPECT_EQ(arrive_for(1, n % 2 == 0 ? "10.9.0.5" : "10.9.0.6"), "held");
  EXPECT_EQ(arrive_for(1, "10.9.0.5"), "unresolved");
  EXPECT_EQ(arrive_for(1, "10.9.0.7"), "unresolved");
  EXPECT_EQ(arrive_for(2, "10.9.0.5"), "held");
  pass(10'000);
  EXPECT_EQ(host_.held(), 0U);
}

TEST_F(CustomerVlansTest, MoreMayBeAdded) {
  const Bytes question = arp(1, kHome, "10.9.0.5", Mac{}, "10.9.0.1");
  EXPECT_EQ(arrive_in(102, question, kAll), "foreign_vlan");
  auto plan = std::make_shared<const HostPlan>(config(102));
  host_.update(plan, now_, *this);
  sent();
  EXPECT_EQ(arrive_in(102, question, kAll), "consumed");
  EXPECT_EQ(sent().size(), 1U);
}

TEST_F(CustomerVlansTest, RandomFramesHarmNobody) {
  const std::uint64_t seed = test::seed();
  std::mt19937_64 random(seed);
  const std::vector<Bytes> kinds{
      arp(1, kHome, "10.9.0.5", Mac{}, "10.9.0.1"), arp(2, kHome, "10.9.0.5", kUs, "10.9.0.1"),
      datagram("10.9.0.5", "10.9.0.1"), datagram("198.51.100.7", "10.9.0.5", 2, 1600),
      packet("10.9.0.5", "10.9.0.1", 1, ping(8))};
  for (unsigned n = 0; n < 50'000; ++n) {
    const auto vlan = static_cast<unsigned>(99 + random() % 4);
    Bytes frame =
        raw(kUs) + raw(kHome) + tagged(vlan == 99 ? 0 : vlan, kinds[random() % kinds.size()]);
    for (std::uint64_t changes = random() % 3; changes > 0; --changes)
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    if (random() % 2 == 0) frame.resize(random() % frame.size() + 1);
    arrive(static_cast<unsigned>(random() % 2), frame, static_cast<Zone>(random() % 4));
    if (random() % 8 == 0) pass(100);
    sent();
  }
  host_.end(*this);
  EXPECT_EQ(host_.held(), 0U) << "seed " << seed;
}

}  // namespace
}  // namespace millrace
