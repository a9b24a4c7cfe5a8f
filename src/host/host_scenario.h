// Tests a host by readable scenarios, the same for both families. Each step is a line. Below it
// stand the frames that the host sends and the packet's verdict, each after "- ".
//
//   begin               the host begins
//   +1000               1000 milliseconds pass
//   0 gw asks out       on link 0, the station `gw` asks for the MAC of the address `out`
//   0 gw answers        `gw` answers a question for its MAC; `0 gw tells`: states it unasked
//                       `tagged` at the end of the line: with a priority tag of VLAN 0
//   0 c > b1            a packet from c to b1 arrives on link 0; further words: `hops=1`,
//                       `bytes=1600`, `served` (to the virtual address, rewritten to b1),
//                       `by=b1` (the next hop that a function chose), `dropped`
//   0 c pings vip       an echo request
//   0 c refuses b1      an ICMP error "port unreachable" about a packet from b1 to c
//   0 n tells-only b1   IPv6: an advertisement to an address on another link
//
// Frames that the host sends: `1 to b1: c > b1`, `0 to all: out asks gw`, `0 to gw: out answers
// gw`, or to itself: `comes in: out > vip ...`; frames that the kernel gets: `0 to kernel`.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/address.h"
#include "host/host.h"
#include "host/test_steering.h"
#include "parse/parse.h"
#include "parse/rewrite.h"
#include "parse/test_packets.h"

namespace millrace::test {

/// Returns the ones' complement sum (RFC 1071), computed byte by byte, not by the code under test.
inline unsigned sum_of(const std::byte* at, std::size_t size) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < size; ++i)
    sum += std::to_integer<unsigned>(at[i]) << (i % 2 == 0 ? 8 : 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

template <class A>
struct Names;
template <>
struct Names<AddressV4> {
  static inline const std::map<std::string, std::string> all{
      {"out", "198.51.100.2"}, {"in", "10.0.0.254"},  {"vip", "203.0.113.10"},
      {"gw", "198.51.100.1"},  {"n", "198.51.100.9"}, {"c", "192.0.2.7"},
      {"b1", "10.0.0.1"},      {"b2", "10.0.0.2"},    {"none", "0.0.0.0"},
      {"group", "224.0.0.5"},  {"far", "172.16.0.1"}};
};
template <>
struct Names<AddressV6> {
  static inline const std::map<std::string, std::string> all{
      {"out", "2001:db8::2"}, {"in", "fd00::fe"},   {"vip", "2001:db8:1::10"},
      {"gw", "2001:db8::1"},  {"n", "2001:db8::9"}, {"c", "2001:db8:7::7"},
      {"b1", "fd00::1"},      {"b2", "fd00::2"},    {"none", "::"},
      {"group", "ff02::5"},   {"far", "3fff::1"}};
};

template <class A>
class HostScenario : public testing::Test, protected Wire {
 protected:
  static constexpr bool kV4 = A::kBytes == 4;

  std::string virtual_ = "vip";  ///< the virtual address; takes effect with the next `make`

  static A address(const std::string& name) { return *parse_address<A>(Names<A>::all.at(name)); }
  static std::string name_of(const A& address) {
    for (const auto& [name, text] : Names<A>::all) {
      if (to_string(address) == text) return name;
    }
    return to_string(address);
  }
  static Mac mac_of(const std::string& name) {
    if (name == "out" || name == "in")
      return {{2, 0, 0, 0, 0, name == "in" ? std::uint8_t{1} : std::uint8_t{0}}};
    std::uint8_t sum = 0;
    for (const char c : name)
      sum = static_cast<std::uint8_t>(sum * 7 + static_cast<unsigned char>(c));
    return {{2, 0xaa, 0, 0, 0, sum}};
  }
  static std::string name_of(const Mac& mac) {
    if (mac == kBroadcast) return "all";
    if (mac.bytes[0] == 0x33) return "all";
    for (const auto& [name, text] : Names<A>::all) {
      if (mac == mac_of(name)) return name;
    }
    return mac == Mac{} ? "nobody" : "?";
  }

  /// Makes a host. `permanent` is a neighbour with the configured MAC of "far".
  void make(HostConfig config = {.announces = false}, const std::string& permanent = {}) {
    config.links = {{.mac = mac_of("out"), .has_kernel = has_kernel_}, {.mac = mac_of("in")}};
    HostAddresses<A> addresses{
        .own = {{address("out"), kV4 ? 24U : 64U, 0}, {address("in"), kV4 ? 24U : 64U, 1}},
        .virtual_addresses = {address(virtual_)},
        .routes = {},
        .destinations = {},
        .neighbours = {}};
    addresses.routes = {{prefix_of(address("c"), 24), 24, 0, address("gw")}};
    addresses.destinations = {address("b1")};
    if (!permanent.empty()) addresses.neighbours = {{address(permanent), 1, mac_of("far")}};
    if constexpr (kV4) {
      config.v4 = addresses;
    } else {
      config.v6 = addresses;
    }
    host_ = std::make_unique<Host>(config);
  }

  const Host& host() const { return *host_; }

  /// Gives the kernel an interface on link 0, with room for `room` frames.
  void have_kernel(unsigned room) {
    has_kernel_ = true;
    kernel_room_ = room;
    make();
  }

  /// Sends the host random frames on both links, of the kinds that scenarios have; some have
  /// changed bytes, some are cut short. Expects that all memory is sent or freed.
  void attack(std::uint64_t seed, unsigned frames) {
    if (!host_) make();
    is_attacked_ = true;
    std::mt19937_64 random(seed);
    const std::vector<std::string> names{"out", "in", "vip",  "gw",    "n",  "c",
                                         "b1",  "b2", "none", "group", "far"};
    const auto name = [&] { return names[random() % names.size()]; };
    for (unsigned i = 0; i < frames; ++i) {
      const auto link = static_cast<unsigned>(random() % 2);
      Bytes frame = random() % 4 == 0   ? question(name(), name())
                    : random() % 3 == 0 ? answer(link, name(), random() % 2 == 0)
                                        : packet(name(), name(), random() % 2 == 0,
                                                 static_cast<unsigned>(random() % 3 + 1), 100);
      for (std::uint64_t changes = random() % 4; changes > 0; --changes)
        frame[random() % frame.size()] = static_cast<std::byte>(random());
      if (random() % 2 == 0)
        std::ranges::copy(raw(mac_of(link == 0 ? "out" : "in")), frame.begin());
      if (random() % 4 == 0) frame.resize(random() % frame.size() + 1);
      arrive(link, frame, random(), random() % 4 == 0 ? "b1" : "");
      if (random() % 8 == 0) {
        now_ = now_ + static_cast<std::uint32_t>(random() % 2000);
        host_->tick(now_, *this);
      }
      said_.clear();
    }
    host_->end(*this);
    EXPECT_TRUE(frames_.empty()) << frames_.size() << " frames were neither sent nor given back";
  }

  void play(const std::string& scenario) {
    if (!host_) make();
    std::istringstream lines(scenario);
    std::string got;
    std::string wanted;
    for (std::string line; std::getline(lines, line);) {
      const auto begin = line.find_first_not_of(' ');
      if (begin == line.npos) continue;
      line.erase(0, begin);
      if (line.starts_with("- ")) {
        wanted += line + "\n";
        continue;
      }
      wanted += line + "\n";
      got += line + "\n";
      step(line);
      for (const auto& said : said_) got += "- " + said + "\n";
      said_.clear();
    }
    EXPECT_EQ(got, wanted);
    for (const auto& [handle, frame] : frames_) {
      EXPECT_TRUE(held(handle)) << "a frame was neither sent nor dropped";
    }
  }

 private:
  void step(const std::string& line) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "begin") return host_->begin(now_, *this);
    if (first[0] == '+') {
      // In small steps, as a port does.
      for (unsigned left = static_cast<unsigned>(std::stoul(first.substr(1))); left > 0;) {
        const unsigned ms = std::min(left, 50U);
        left -= ms;
        now_ = now_ + ms;
        host_->tick(now_, *this);
      }
      return;
    }
    const auto link = static_cast<unsigned>(std::stoul(first));
    is_tagged_ = line.ends_with(" tagged");
    std::string who;
    std::string what;
    std::string whom;
    words >> who >> what;
    if (what == "answers" || what == "tells") {
      arrive(link, answer(link, who, what == "answers"), ~0ULL);
      return;
    }
    words >> whom;
    if (what == "tells-only") {  // IPv6: an advertisement to an address on another link
      const Bytes icmp = bytes({136, 0, 0, 0, 0x60, 0, 0, 0}) + raw(address(who));
      arrive(link,
             frame(mac_of("out"), mac_of(who), 0x86dd) +
                 ip(address(who), address(whom), 58, 255, icmp, 2),
             ~0ULL);
      return;
    }
    if (what == "asks") return arrive(link, question(who, whom), ~0ULL);
    unsigned hops = 64;
    unsigned size = 100;
    bool served = false;
    next_hop_.clear();
    std::uint64_t forward = ~0ULL;
    for (std::string word; words >> word;) {
      if (word.starts_with("hops=")) hops = static_cast<unsigned>(std::stoul(word.substr(5)));
      if (word.starts_with("bytes=")) size = static_cast<unsigned>(std::stoul(word.substr(6)));
      served |= word == "served";
      if (word.starts_with("by=")) next_hop_ = word.substr(3);
      if (word == "dropped") forward = 0;
    }
    const Bytes frame = what == "refuses" ? refusal(who, whom, hops)
                                          : packet(who, whom, what == "pings", hops, size);
    arrive(link, frame, forward, served ? whom : std::string());
  }

  static Bytes raw(const A& address) {
    Bytes b;
    for (const auto byte : address.bytes) b.push_back(std::byte{byte});
    return b;
  }
  static Bytes raw(const Mac& mac) {
    Bytes b;
    for (const auto byte : mac.bytes) b.push_back(std::byte{byte});
    return b;
  }
  static Bytes frame(const Mac& to, const Mac& from, unsigned type) {
    return raw(to) + raw(from) + be(type);
  }
  static Bytes ip(const A& from, const A& to, unsigned protocol, unsigned hops, Bytes payload,
                  unsigned checksum_at) {
    const auto length = static_cast<unsigned>(payload.size());
    const Bytes pseudo = raw(from) + raw(to) + be(0) + be(length) + be(protocol);
    const unsigned add = kV4 && protocol == 1 ? 0 : sum_of(pseudo.data(), pseudo.size());
    const unsigned sum = sum_of(payload.data(), payload.size()) + add;
    const unsigned checksum = 0xffff - ((sum & 0xffff) + (sum >> 16));
    payload[checksum_at] = static_cast<std::byte>(checksum >> 8);
    payload[checksum_at + 1] = static_cast<std::byte>(checksum);
    if (!kV4)
      return bytes({0x60, 0, 0, 0}) + be(length) + bytes({protocol, hops}) + raw(from) + raw(to) +
             payload;
    Bytes header = bytes({0x45, 0}) + be(20 + length) + be(7) + be(0x4000) +
                   bytes({hops, protocol, 0, 0}) + raw(from) + raw(to);
    const unsigned its = 0xffff - sum_of(header.data(), header.size());
    header[10] = static_cast<std::byte>(its >> 8);
    header[11] = static_cast<std::byte>(its);
    return header + payload;
  }
  static Bytes packet(const std::string& from, const std::string& to, bool pings, unsigned hops,
                      unsigned size) {
    const unsigned rest = size - (kV4 ? 28 : 48);
    const Bytes l4 = pings ? bytes({kV4 ? 8U : 128U, 0, 0, 0}) + be(77) + be(1) + zeros(rest)
                           : be(1000) + be(80) + be(rest + 8) + be(0) + zeros(rest);
    const unsigned protocol = pings ? (kV4 ? 1 : 58) : 17;
    return frame({{2, 9, 9, 9, 9, 9}}, mac_of(from), kV4 ? 0x0800 : 0x86dd) +
           ip(address(from), address(to), protocol, hops, l4, pings ? 2 : 6);
  }
  /// Returns a frame with an ICMP error about a packet that `from` received.
  static Bytes refusal(const std::string& from, const std::string& to, unsigned hops) {
    const Bytes about =
        ip(address(to), address(from), 17, 60, be(80) + be(1000) + be(8) + be(0), 6);
    return frame({{2, 9, 9, 9, 9, 9}}, mac_of(from), kV4 ? 0x0800 : 0x86dd) +
           ip(address(from), address(to), kV4 ? 1 : 58, hops,
              bytes({kV4 ? 3U : 1U, kV4 ? 3U : 4U}) + zeros(6) + about, 2);
  }
  static Bytes question(const std::string& from, const std::string& whom) {
    if (kV4)
      return frame(kBroadcast, mac_of(from), 0x0806) + bytes({0, 1, 8, 0, 6, 4, 0, 1}) +
             raw(mac_of(from)) + raw(address(from)) + zeros(6) + raw(address(whom));
    Bytes icmp = bytes({135, 0, 0, 0, 0, 0, 0, 0}) + raw(address(whom));
    if (from != "none") icmp = icmp + bytes({1, 1}) + raw(mac_of(from));
    return frame({{0x33, 0x33, 0xff, 0, 0, 0}}, mac_of(from), 0x86dd) +
           ip(address(from), address("group"), 58, 255, icmp, 2);
  }
  static Bytes answer(unsigned link, const std::string& from, bool solicited) {
    const std::string own = link == 0 ? "out" : "in";
    const Mac to = solicited ? mac_of(own) : kBroadcast;
    if (kV4)
      return frame(to, mac_of(from), 0x0806) + bytes({0, 1, 8, 0, 6, 4, 0, 2}) + raw(mac_of(from)) +
             raw(address(from)) + raw(to) + raw(address(own));
    const Bytes icmp = bytes({136, 0, 0, 0, solicited ? 0x60U : 0x20U, 0, 0, 0}) +
                       raw(address(from)) + bytes({2, 1}) + raw(mac_of(from));
    return frame(to, mac_of(from), 0x86dd) +
           ip(address(from), solicited ? address(own) : address("group"), 58, 255, icmp, 2);
  }

  /// True: frames that the host sends are only freed, not described.
  bool is_attacked_ = false;
  bool is_tagged_ = false;
  bool has_kernel_ = false;
  unsigned kernel_room_ = 0;
  std::string next_hop_;  // next hop of the next packet that arrives; empty: none

  /// Passes one packet through the host, as a worker's line does. `served`: the address to which
  /// the packet was rewritten from the virtual address; empty: not rewritten.
  void arrive(unsigned link, const Bytes& packet, std::uint64_t forward,
              const std::string& served = {}) {
    const Handle handle = ++handles_;
    Bytes& memory = frames_[handle];
    memory = packet;
    if (is_tagged_) {
      const Bytes tag = be(0x8100) + be(0xa000);
      memory.insert(memory.begin() + 12, tag.begin(), tag.end());
    }
    auto burst = std::make_unique<Burst>();
    burst->link[0] = static_cast<std::uint8_t>(link);
    burst->size = 1;
    burst->now = now_;
    burst->data[0] = memory.data();
    burst->length[0] = static_cast<std::uint16_t>(memory.size());
    burst->wire_length[0] = burst->length[0];
    burst->handle[0] = handle;
    parse(*burst, LinkType::ethernet);
    if (is_attacked_) {
      const Arrival arrival{0, 1, link};
      host_->admit(*burst, {&arrival, 1});
      host_->filed(*burst, SteersAll());
    }
    auto& lane = burst->lane<Key<A>>();
    begin_serving<Key<A>>(*burst);
    if (burst->verdict[0] == Verdict::tracked) burst->verdict[0] = Verdict::no_service;
    if (!served.empty() && burst->verdict[0] == Verdict::icmp_error) {
      burst->verdict[0] = Verdict::related;
    } else if (served.empty() || lane.size == 0) {
      lane.size = 0;
    } else {
      burst->verdict[0] = Verdict::tracked;
      lane.set_destination(0, lane.key[0].destination, lane.key[0].destination_port);
      lane.key[0].destination = address("vip");
    }
    if (!next_hop_.empty()) {
      burst->verdict[0] = Verdict::tracked;
      burst->send_by(0, address(next_hop_));
    }
    std::array<Outgoing, Burst::kMax> out;
    const Host::Routed routed = host_->route(*burst, forward, out, *this);
    if (routed.sent != 0) {
      send(out[0]);
    } else if (routed.taken == 0) {
      frames_.erase(handle);
    }
    said_.emplace_back(to_string(burst->verdict[0]));
  }

 protected:
  bool held(Handle handle) const { return host_->held() > 0 && frames_.contains(handle); }

  // --- the wire

  Outgoing make(unsigned size) override {
    const Handle handle = ++handles_;
    frames_[handle].assign(size, std::byte{0xee});
    return {.handle = handle, .data = frames_[handle].data()};
  }
  void send(const Outgoing& sent) override {
    const std::span<const std::byte> frame(sent.data, sent.length);
    if (is_attacked_) {
      EXPECT_EQ(frames_.erase(sent.handle), 1U);
      return;
    }
    std::ostringstream text;
    text << unsigned{sent.link} << " to " << name_of(mac_at(frame, 0)) << ": " << describe(frame);
    EXPECT_EQ(mac_at(frame, 6), mac_of(sent.link == 0 ? "out" : "in"));
    said_.push_back(text.str());
    EXPECT_EQ(frames_.erase(sent.handle), 1U);
  }
  void take_in(const Outgoing& in) override {
    if (!is_attacked_) said_.push_back("comes in: " + describe({in.data, in.length}));
    EXPECT_EQ(frames_.erase(in.handle), 1U);
  }
  void drop(Handle handle) override {
    EXPECT_EQ(frames_.erase(handle), 1U);
    said_.emplace_back("dropped");
  }
  bool give_to_kernel(Handle handle, unsigned link) override {
    if (kernel_room_ == 0) return false;
    --kernel_room_;
    show_to_kernel(handle, link);
    frames_.erase(handle);
    return true;
  }
  void show_to_kernel(Handle handle, unsigned link) override {
    EXPECT_EQ(link, 0U);
    EXPECT_TRUE(frames_.contains(handle));
    said_.emplace_back("0 to kernel");
  }

 private:
  static Mac mac_at(std::span<const std::byte> frame, std::size_t at) {
    Mac mac;
    for (std::size_t i = 0; i < 6; ++i) mac.bytes[i] = std::to_integer<std::uint8_t>(frame[at + i]);
    return mac;
  }
  static A address_in(std::span<const std::byte> frame, std::size_t at) {
    A address;
    for (std::size_t i = 0; i < A::kBytes; ++i)
      address.bytes[i] = std::to_integer<std::uint8_t>(frame[at + i]);
    return address;
  }
  static unsigned u8(std::span<const std::byte> frame, std::size_t at) {
    return std::to_integer<unsigned>(frame[at]);
  }
  static unsigned u16(std::span<const std::byte> frame, std::size_t at) {
    return u8(frame, at) << 8 | u8(frame, at + 1);
  }

  static std::string describe(std::span<const std::byte> frame) {
    const unsigned type = u16(frame, 12);
    if (type == 0x0806) return describe_arp(frame);
    EXPECT_EQ(type, kV4 ? 0x0800U : 0x86ddU);
    return describe_ip(frame.subspan(14));
  }
  static std::string describe_arp(std::span<const std::byte> frame) {
    EXPECT_EQ(frame.size(), 60U);
    EXPECT_EQ(mac_at(frame, 22), mac_at(frame, 6));
    const A sender = address_in(frame, 28);
    const A target = address_in(frame, 38);
    if (u16(frame, 20) == 2) return name_of(sender) + " answers " + name_of(target);
    if (sender == target) return name_of(sender) + " tells";
    return name_of(sender) + " asks " + name_of(target);
  }
  static std::string describe_ip(std::span<const std::byte> ip) {
    const unsigned header = kV4 ? 20 : 40;
    const A source = address_in(ip, kV4 ? 12 : 8);
    const A destination = address_in(ip, (kV4 ? 12 : 8) + A::kBytes);
    const unsigned protocol = u8(ip, kV4 ? 9 : 6);
    const unsigned hops = u8(ip, kV4 ? 8 : 7);
    const unsigned total = u16(ip, kV4 ? 2 : 4) + (kV4 ? 0 : 40);
    EXPECT_EQ(total, ip.size());
    if (kV4) {
      EXPECT_EQ(sum_of(ip.data(), 20), 0xffffU) << "the header's checksum";
    }
    const auto l4 = ip.subspan(header);
    std::string text = name_of(source) + " > " + name_of(destination);
    if (protocol == 17) return text + " hops=" + std::to_string(hops);
    EXPECT_EQ(protocol, kV4 ? 1U : 58U);
    Bytes pseudo =
        raw(source) + raw(destination) + be(0) + be(static_cast<unsigned>(l4.size())) + be(58);
    const unsigned add = kV4 ? 0 : sum_of(pseudo.data(), pseudo.size());
    const unsigned sum = sum_of(l4.data(), l4.size()) + add;
    EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffU) << "ICMP's checksum";
    const unsigned type = u8(l4, 0);
    if (type == 135) {
      EXPECT_EQ(hops, 255U);
      return name_of(source) + " asks " + name_of(address_in(l4, 8));
    }
    if (type == 136) {
      EXPECT_EQ(hops, 255U);
      const bool solicited = (u8(l4, 4) & 0x40) != 0;
      return name_of(address_in(l4, 8)) +
             (solicited ? " answers " + name_of(destination) : " tells");
    }
    if (type == (kV4 ? 0U : 129U)) return text + " echo";
    return text + " " + error_of(type, u8(l4, 1), u16(l4, 6)) + " (" + quoted(l4.subspan(8)) + ")";
  }
  static std::string error_of(unsigned type, unsigned code, unsigned mtu) {
    const std::map<std::pair<unsigned, unsigned>, std::string> names{
        {{11, 0}, "hop limit"}, {{3, 4}, "too big"}, {{3, 0}, kV4 ? "no route" : "hop limit"},
        {{3, 1}, "no host"},    {{3, 3}, "no port"}, {{2, 0}, "too big"},
        {{1, 0}, "no route"},   {{1, 3}, "no host"}, {{1, 4}, "no port"}};
    const std::string name = names.at({type, code});
    return name == "too big" ? name + " " + std::to_string(mtu) : name;
  }
  static std::string quoted(std::span<const std::byte> ip) {
    if (kV4) {
      EXPECT_EQ(sum_of(ip.data(), 20), 0xffffU) << "the quoted header's checksum";
    }
    return name_of(address_in(ip, kV4 ? 12 : 8)) + " > " +
           name_of(address_in(ip, (kV4 ? 12 : 8) + A::kBytes));
  }

  std::unique_ptr<Host> host_;
  Tick now_{1000};
  Handle handles_ = 0;
  std::map<Handle, Bytes> frames_;
  std::vector<std::string> said_;
};

}  // namespace millrace::test
