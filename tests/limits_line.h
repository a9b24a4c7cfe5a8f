// Plays scenarios of connections, given as text, on a line. Each line of text is a packet and its
// expected verdict: `END [<] PACKET VERDICT`.
//
// END is a client's end: "a1" is port 1001 of host a, to the service v; "a1w" to the service w.
// "A1" is another address in the network of a. With `<` the packet comes from the connection's
// backend. PACKET names TCP flags, or is UDP; `guess` is an ACK, and `guessed-FIN` a FIN, from a
// sender that has not seen the packets which it would have to acknowledge. DATA is an ACK with one
// byte of data, `cut` the beginning of a TCP header. A line with `+1000` alone lets 1000 ms pass.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/timeout_settings.h"
#include "function/balance/balance.h"
#include "line/line.h"
#include "parse/test_packets.h"

namespace millrace::test {

inline Bytes be32(std::uint32_t value) { return be(value >> 16) + be(value & 0xffff); }

/// A port that receives one burst, which may be empty so that only time passes.
class OneBurst final : public Port {
 public:
  OneBurst(std::vector<Bytes> all, Tick now) : packets(std::move(all)), now_(now) {}
  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override {
    burst.size = static_cast<unsigned>(packets.size());
    burst.now = now_;
    for (unsigned i = 0; i < burst.size; ++i) {
      burst.data[i] = packets[i].data();
      burst.length[i] = static_cast<std::uint16_t>(packets[i].size());
      burst.wire_length[i] = burst.length[i];
    }
    return false;
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    for (unsigned i = 0; i < burst.size; ++i) {
      verdicts.push_back(burst.verdict[i]);
      EXPECT_EQ((forward >> i & 1) == 0, is_drop(burst.verdict[i]));
    }
  }

  std::vector<Bytes> packets;
  std::vector<Verdict> verdicts;

 private:
  Tick now_;
};

/// A line with a balancer, and the connections of the clients that send through it.
class LimitsLine {
 public:
  struct Plan {
    std::uint32_t per_source = 0;
    std::uint32_t per_service = 0;  ///< limit of the service v
    std::size_t capacity = 200;
    unsigned half_open_percent = 100;
    bool evicts = false;
    bool one_way = false;
    unsigned prefix_v4 = 32;
    unsigned prefix_v6 = 64;
  };

  /// Makes the line with the table `table` and the ageing scheme `ageing`.
  void make(const std::string& table, const std::string& ageing, bool is_v4, const Plan& plan) {
    if (is_v4) {
      make<KeyV4>(table, ageing, plan);
    } else {
      make<KeyV6>(table, ageing, plan);
    }
  }

  void play(std::string_view scenario) {
    SCOPED_TRACE(scenario);
    std::istringstream lines{std::string(scenario)};
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string who;
      std::string what;
      std::string verdict;
      if (!(words >> who)) continue;
      if (who[0] == '+') {
        pass(static_cast<std::uint32_t>(std::stoul(who.substr(1))));
        continue;
      }
      words >> what;
      const bool is_reply = what == "<";
      if (is_reply) words >> what;
      words >> verdict;
      EXPECT_EQ(send(who, is_reply, what), verdict) << line;
    }
  }

  /// Sends a packet, and returns its verdict.
  std::string send(const std::string& who, bool is_reply, const std::string& what) {
    Connection& c = connections_[who];
    OneBurst port({packet(who, c, is_reply, what)}, now_);
    line_->run(port);
    const Verdict verdict = port.verdicts.at(0);
    if (!is_drop(verdict)) {
      if (!is_reply) c.backend = port.packets[0][address_at() + 2 * bytes_ - 1];
      if (what.find("SYN") != what.npos || what.find("FIN") != what.npos || what == "DATA")
        ++(is_reply ? c.server : c.client);
    }
    return std::string(to_string(verdict));
  }
  /// Sends a burst: a DATA packet from the backend of each connection in `all`. Returns the
  /// verdicts.
  std::vector<Verdict> answer(const std::vector<std::string>& all) {
    std::vector<Bytes> packets;
    for (const auto& who : all) packets.push_back(packet(who, connections_[who], true, "DATA"));
    OneBurst port(std::move(packets), now_);
    line_->run(port);
    return port.verdicts;
  }
  void pass(std::uint32_t ms) {
    now_ = now_ + ms;
    OneBurst nothing({}, now_);
    line_->run(nothing);
  }
  /// Sends a handshake: SYN, SYN-ACK and ACK. Returns the verdict of the ACK, or of the SYN if the
  /// SYN is not tracked.
  std::string open(const std::string& who) {
    if (const std::string begun = send(who, false, "SYN"); begun != "tracked") return begun;
    send(who, true, "SYN-ACK");
    return send(who, false, "ACK");
  }

  std::uint64_t established(std::size_t service = 0) const {
    return balance_->statistics()[service].established;
  }
  std::uint64_t count(Verdict verdict) const {
    return line_->counters().verdict[static_cast<std::size_t>(verdict)].value();
  }
  /// Checks that the counts for the limits agree with each other and with the live connections, and
  /// that each packet has a verdict.
  void check() const {
    const WorkerCounters& c = line_->counters();
    std::uint64_t all = 0;
    std::uint64_t dropped = 0;
    for (std::size_t v = 0; v < kVerdicts; ++v) {
      all += c.verdict[v].value();
      if (is_drop(static_cast<Verdict>(v))) dropped += c.verdict[v].value();
    }
    EXPECT_EQ(c.in.value(), all);
    EXPECT_EQ(c.in.value(), c.out.value() + dropped);
    if (sources_ != nullptr) {
      EXPECT_EQ(sources_->total(), established(0) + established(1));
    }
    for (const auto& ok : {line_->check_invariants(), balance_->check_invariants()})
      EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }

  std::unique_ptr<Balance> balance_;
  std::unique_ptr<Line> line_;
  std::shared_ptr<SourceCounts> sources_;
  Tick now_{1000};

 private:
  struct Connection {
    std::uint32_t client = 1000;     ///< the client's next sequence number
    std::uint32_t server = 900'000;  ///< the server's next sequence number
    std::byte backend{1};
  };

  template <class K>
  void make(const std::string& table, const std::string& ageing, const Plan& plan) {
    using Address = typename K::Address;
    bytes_ = Address::kBytes;
    BalanceConfig config;
    config.services = {};
    for (const char name : {'v', 'w'}) {
      ServiceSpec<Address> spec{.protocol = 0, .backends = {}};
      const Bytes at = host(name);
      std::memcpy(spec.address.bytes.data(), at.data(), at.size());
      spec.port = 80;
      if (plan.one_way) spec.prefix_bits = 8 * Address::kBytes - 1;
      if (name == 'v') spec.max_connections = plan.per_service;
      for (const std::uint8_t last : std::array<std::uint8_t, 3>{1, 2, 3}) {
        Address backend;
        backend.bytes.front() = bytes_ == 4 ? 10 : 0xfd;
        backend.bytes.back() = static_cast<std::uint8_t>(last + (name == 'w' ? 3 : 0));
        spec.backends.push_back({.address = backend, .port = 8080});
      }
      config.services.template family<Address>().push_back(spec);
    }
    balance_ = std::move(*Balance::create(config));
    LineConfig line{.table = table,
                    .ageing = ageing,
                    .capacity = plan.capacity,
                    .capacity_v6 = plan.capacity,
                    .timeouts = TimeoutSeconds().timeouts(),
                    .pages = Pages::small,
                    .secret = Secret::from_seed(7),
                    .half_open_percent = plan.half_open_percent,
                    .evicts = plan.evicts,
                    .source_limit = {plan.per_source, plan.prefix_v4, plan.prefix_v6},
                    .catch_up = true};
    sources_ = *make_source_counts(line);
    line.sources = sources_;
    auto made = make_line(line, *balance_);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    line_ = std::move(*made);
  }

  /// Returns 10.1.x.1 or 2001:db8:0:x::1, where x is the code of the lower-case letter. The last
  /// byte is 2 for an upper-case letter, and for the services v and w.
  Bytes host(char name) const {
    const auto net = static_cast<unsigned>(std::tolower(name));
    const unsigned last =
        name == 'v' || name == 'w' ? 2U : 1U + (std::isupper(name) != 0 ? 1U : 0U);
    if (bytes_ == 4) return bytes({10, 1, net, last});
    return bytes({0x20, 1, 0xd, 0xb8, 0, 0, 0, net}) + zeros(7) + bytes({last});
  }
  std::size_t address_at() const { return bytes_ == 4 ? 26 : 22; }

  Bytes packet(const std::string& who, const Connection& c, bool is_reply,
               const std::string& what) const {
    const bool to_w = who.back() == 'w';
    const auto port = static_cast<unsigned>(1000 + std::stoi(who.substr(1)));
    Bytes backend = bytes_ == 4 ? bytes({10}) + zeros(2) : bytes({0xfd}) + zeros(14);
    backend.push_back(c.backend);
    const Bytes client = host(who[0]);
    const Bytes server = is_reply ? backend : host(to_w ? 'w' : 'v');
    const unsigned server_port = is_reply ? 8080 : 80;
    const bool is_udp = what == "UDP";
    unsigned flags = what == "ACK" || what == "DATA" ? 16 : 0;
    for (const auto& [name, flag] : {std::pair{"FIN", 17U}, {"SYN", 2U}, {"RST", 4U}})
      if (what.find(name) != what.npos) flags |= flag;
    if (what == "SYN-ACK") flags |= 16;
    const std::uint32_t sequence = is_reply ? c.server : c.client;
    const std::uint32_t acknowledged = what == "guess" ? 77 : is_reply ? c.client : c.server;
    if (what == "guess" || what == "guessed-FIN") flags |= 16;
    Bytes l4 = is_reply ? be(server_port) + be(port) : be(port) + be(server_port);
    if (is_udp) {
      l4 = l4 + be(8) + be(0);
    } else if (what == "cut") {
      l4 = l4 + zeros(4);
    } else {
      l4 = l4 + be32(sequence) + be32(what == "guessed-FIN" ? 77 : acknowledged) +
           bytes({0x50, flags}) + be(65535) + zeros(what == "DATA" ? 5 : 4);
    }
    const auto length = static_cast<unsigned>(l4.size());
    const unsigned protocol = is_udp ? 17 : 6;
    const Bytes ends = is_reply ? server + client : client + server;
    if (bytes_ == 4)
      return ethernet(0x0800) + bytes({0x45, 0}) + be(20 + length) + be(0) + be(0x4000) +
             bytes({64, protocol, 0, 0}) + ends + l4;
    return ethernet(0x86dd) + bytes({0x60, 0, 0, 0}) + be(length) + bytes({protocol, 64}) + ends +
           l4;
  }

  std::size_t bytes_ = 4;
  std::map<std::string, Connection> connections_;
};

}  // namespace millrace::test
