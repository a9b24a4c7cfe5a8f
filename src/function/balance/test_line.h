// For tests: the line around a function, one packet at a time, with maps for tables. It keeps to
// the contract of function.h as the tracker does.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/address.h"
#include "function/balance/balance.h"
#include "function/errors.h"
#include "parse/parse.h"
#include "parse/rewrite.h"
#include "parse/tcp.h"
#include "parse/test_packets.h"

namespace millrace {

/// The fixture of a suite that tells the balancer its services.
template <class K>
class TestServices : public testing::Test {
 public:
  using Address = typename K::Address;
  using Spec = ServiceSpec<Address>;

  static Services only(std::vector<Spec> specs) {
    Services services;
    services.family<Address>() = std::move(specs);
    return services;
  }
  static BalanceConfig config(std::vector<Spec> specs) {
    BalanceConfig config;
    config.services = only(std::move(specs));
    return config;
  }
};

template <class K>
class TestLine {
 public:
  using Address = typename K::Address;
  static constexpr bool kV4 = Address::kBytes == 4;
  static constexpr std::uint8_t kTcp = 6;
  static constexpr std::uint8_t kUdp = 17;
  static constexpr std::uint8_t kSyn = 0x02;
  static constexpr std::uint8_t kAck = 0x10;

  struct Packet {
    std::string from, to;  ///< "a:1", of the hosts that `host` names
    std::uint8_t protocol = kTcp;
    std::uint8_t flags = kSyn;
  };
  struct Sent {
    Verdict verdict = Verdict::not_ip;
    std::string from, to;
    std::string by{};  ///< the next hop, where one was chosen
  };

  explicit TestLine(const BalanceConfig& config) : TestLine(made(Balance::create(config))) {}
  explicit TestLine(std::unique_ptr<Balance> balance)
      : burst_(std::make_unique<Burst>()), balance_(std::move(balance)) {
    const Part part = function().part();
    records_ = *Records<K>::create(kRecords, std::max(part.originator_bytes, part.reply_bytes),
                                   Pages::small);
  }
  ~TestLine() {
    const auto ok = balance_->check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }

  /// "a" to "z" are 10.0.0.1 to 10.0.0.26, or fd00::1 to fd00::1a.
  static Address host(char name) {
    Address address;
    address.bytes.front() = kV4 ? 10 : 0xfd;
    address.bytes.back() = static_cast<std::uint8_t>(name - 'a' + 1);
    return address;
  }

  /// Sends one packet down the line, and says what came out.
  Sent send(const Packet& packet) {
    const K key = key_of(packet);
    write(key, packet.flags);
    auto& lane = burst_->lane<K>();
    lane.size = 1;
    lane.packet[0] = 0;
    lane.key[0] = key;
    serve();
    return {burst_->verdict[0], name(0), name(2), next_hop()};
  }

  /// Sends an ICMP error down the line: its bytes, from the IP header on. What came out is in
  /// `bytes`.
  Verdict send_error(const test::Bytes& error) {
    bytes_.resize(error.size());
    std::memcpy(bytes_.data(), error.data(), error.size());
    burst_->clear();
    burst_->size = 1;
    burst_->data[0] = reinterpret_cast<std::byte*>(bytes_.data());
    burst_->length[0] = static_cast<std::uint16_t>(bytes_.size());
    burst_->wire_length[0] = burst_->length[0];
    parse(*burst_, LinkType::raw_ip);
    look_up(burst_->quoted<K>());
    serve_filed();
    return burst_->verdict[0];
  }
  /// The next hop of the last packet; "" where it goes where its destination says.
  std::string next_hop() const {
    if (burst_->has_next_hop == 0) return {};
    return std::string(1, name_of(burst_->template next_hops<Address>()[0].bytes.back()));
  }
  /// Of the last packet.
  test::Bytes bytes() const {
    const auto* begin = reinterpret_cast<const std::byte*>(bytes_.data());
    return {begin, begin + bytes_.size()};
  }

  /// Ends the connection of that first packet.
  void close(const Packet& packet) {
    const auto at = by_key_.find(text(key_of(packet)));
    ASSERT_NE(at, by_key_.end());
    function().event(Event::closed, records_.state(at->second), proved_.erase(at->second) != 0);
    by_key_.erase(at);
  }

  /// What the function says to its proof.
  Verdict prove(const Packet& packet) {
    const ConnId id = by_key_.at(text(key_of(packet)));
    const Verdict verdict = function().event(Event::proved, records_.state(id), false);
    if (verdict == Verdict::tracked) proved_.insert(id);
    return verdict;
  }
  /// Proves every connection that has been opened.
  void prove_all() {
    for (const auto& [key, id] : by_key_) {
      if (!proved_.insert(id).second) continue;
      EXPECT_EQ(function().event(Event::proved, records_.state(id), false), Verdict::tracked);
    }
  }
  /// Returns the fate of the connection of that first packet.
  Fate fate(const Packet& packet, bool is_answered) {
    return function().fate(key_of(packet), state(packet), is_answered);
  }
  /// The originator's state of the connection of that first packet.
  const std::byte* state(const Packet& packet) const {
    return records_.state(by_key_.at(text(key_of(packet))));
  }

  void update(const Services& services) {
    const auto ok = try_update(services);
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
  }
  Result<bool> try_update(const Services& services) {
    Balance* const all = balance_.get();
    return millrace::update({&all, 1}, services, [this](const auto& step) {
      step(*balance_);
      return true;
    });
  }

  FunctionFor<K>& function() { return balance_->template family<K>(); }
  Balance& balance() { return *balance_; }
  void at(std::uint32_t ms) { burst_->now = {ms}; }
  Burst& burst() { return *burst_; }

  bool full = false;          ///< no place for new connections
  bool replies_full = false;  ///< nor for their replies

 private:
  static std::unique_ptr<Balance> made(Result<std::unique_ptr<Balance>> balance) {
    EXPECT_TRUE(balance.has_value()) << balance.error().message;
    return std::move(*balance);
  }

  static constexpr std::size_t kRecords = 4096;
  static constexpr std::uint16_t kL4 = kV4 ? 20 : 40;

  static std::pair<Address, std::uint16_t> endpoint(const std::string& text) {
    return {host(text[0]), static_cast<std::uint16_t>(std::stoi(text.substr(2)))};
  }
  static K key_of(const Packet& packet) {
    K key;
    std::tie(key.source, key.source_port) = endpoint(packet.from);
    std::tie(key.destination, key.destination_port) = endpoint(packet.to);
    key.protocol = packet.protocol;
    return key;
  }
  static std::string text(const K& key) {
    return {reinterpret_cast<const char*>(&key), sizeof(key)};
  }

  void write(const K& key, std::uint8_t flags) {
    bytes_.assign(kL4 + 20, 0);
    bytes_[0] = kV4 ? 0x45 : 0x60;
    std::memcpy(&bytes_[kAddresses], key.source.bytes.data(), Address::kBytes);
    std::memcpy(&bytes_[kAddresses + Address::kBytes], key.destination.bytes.data(),
                Address::kBytes);
    const std::array<std::uint16_t, 2> ports{key.source_port, key.destination_port};
    for (std::size_t i = 0; i < 2; ++i) {
      bytes_[kL4 + 2 * i] = static_cast<std::uint8_t>(ports[i] >> 8);
      bytes_[kL4 + 2 * i + 1] = static_cast<std::uint8_t>(ports[i]);
    }
    bytes_[kL4 + 13] = flags;
    burst_->size = 1;
    burst_->has_next_hop = 0;
    burst_->data[0] = reinterpret_cast<std::byte*>(bytes_.data());
    burst_->length[0] = static_cast<std::uint16_t>(bytes_.size());
    burst_->wire_length[0] = burst_->length[0];
    burst_->headers[0] = {.l3 = 0,
                          .l4 = kL4,
                          .l4_end = burst_->length[0],
                          .family = kV4 ? 4 : 6,
                          .protocol = key.protocol};
    burst_->signal[0] = read_signal(burst_->data[0], burst_->headers[0]);
    burst_->verdict[0] = Verdict::tracked;
  }

  static char name_of(std::uint8_t last) { return static_cast<char>('a' + last - 1); }
  std::string name(std::size_t port) const {
    const std::size_t address = kAddresses + (port == 0 ? 0 : Address::kBytes);
    return std::string(1, name_of(bytes_[address + Address::kBytes - 1])) + ":" +
           std::to_string(bytes_[kL4 + port] << 8 | bytes_[kL4 + port + 1]);
  }

  using Index = std::map<std::string, ConnId>;
  void look_up(Lane<K>& lane) const {
    if (lane.size == 0) return;
    const auto at = by_key_.find(text(lane.key[0]));
    const auto reply = by_reply_.find(text(lane.key[0]));
    lane.replies = at == by_key_.end() && reply != by_reply_.end();
    lane.connection[0] = at != by_key_.end()        ? at->second
                         : reply != by_reply_.end() ? reply->second
                                                    : ConnId::none;
  }

  void serve() {
    auto& lane = burst_->lane<K>();
    look_up(lane);
    if (lane.connection[0] == ConnId::none && function().screen(*burst_, lane, 1) != 0)
      lane.connection[0] = open(lane.key[0]);
    serve_filed();
  }
  /// As a family of a line does.
  void serve_filed() {
    const States<K> states(records_);
    begin_serving<K>(*burst_);
    function().serve(*burst_, burst_->lane<K>().all(), states);
    rewrite<K>(*burst_);
    send_errors_on(*burst_, function(), [this](Side side, const K& key, ConnId id) {
      const ConnId peer = records_.header(id).peer;
      if (peer != ConnId::none)
        return typename FunctionFor<K>::Target{reversed(records_.header(peer).key), std::nullopt};
      return side == Side::originator ? function().target(key, records_.state(id))
                                      : typename FunctionFor<K>::Target{key, std::nullopt};
    });
  }

  ConnId open(const K& key) {
    burst_->verdict[0] = Verdict::table_full;
    if (full || !balance_->stateful()) return ConnId::none;
    using Answer = typename Opening<K>::Answer;
    const ConnId id{next_++};
    Opening<K> opening;
    opening.key = key;
    records_.header(id).peer = ConnId::none;
    opening.state = records_.state(id);
    std::array<std::byte, Part::kMost> reply_state{};
    opening.reply_state = reply_state.data();
    for (;; ++opening.attempt) {
      function().open(*burst_, opening);
      if (!opening.is_accepted()) {
        if (opening.attempt > 0) function().event(Event::abandoned, opening.state, false);
        burst_->verdict[0] = opening.refusal;
        return ConnId::none;
      }
      if (opening.answer == Answer::one_way) break;
      if (replies_full) {
        function().event(Event::abandoned, opening.state, false);
        return ConnId::none;
      }
      if (by_reply_.contains(text(opening.reply_key))) continue;
      const ConnId reply{next_++};
      by_reply_[text(opening.reply_key)] = reply;
      records_.header(reply).key = opening.reply_key;
      records_.header(reply).peer = id;
      records_.header(id).peer = reply;
      std::memcpy(records_.state(reply), reply_state.data(), function().part().reply_bytes);
      break;
    }
    records_.header(id).key = key;
    by_key_[text(key)] = id;
    return id;
  }

  static constexpr std::size_t kAddresses = kV4 ? 12 : 8;

  std::unique_ptr<Burst> burst_;
  std::unique_ptr<Balance> balance_;
  Records<K> records_;
  Index by_key_;
  Index by_reply_;
  std::set<ConnId> proved_;
  std::uint32_t next_ = 0;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace millrace
