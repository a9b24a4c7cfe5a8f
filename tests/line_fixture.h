// A fixture with a whole line, for every table and ageing scheme, and a port in memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conntrack/schemes.h"
#include "conntrack/test_support.h"
#include "endpoint.h"
#include "function/balance/balance.h"
#include "line/line.h"

namespace millrace::test {

inline constexpr Endpoint kVirtual{{203, 0, 113, 10}, 80};
inline constexpr Endpoint kVirtual2{{203, 0, 113, 11}, 80};

inline Endpoint client(unsigned n) {
  return {{192, 0, static_cast<std::uint8_t>(2 + (n >> 8 & 1)), static_cast<std::uint8_t>(n)},
          static_cast<std::uint16_t>(1024 + n % 60000)};
}

/// A port that receives the added packets, one each burst, and collects the packets that are sent.
class TestPort final : public Port {
 public:
  LinkType link_type() const override { return LinkType::ethernet; }
  void add(const Bytes& p, std::uint32_t at_ms) { input_.push_back({p, at_ms}); }
  bool receive(Burst& burst) override {
    if (next_ == input_.size()) return false;
    auto& [data, at_ms] = input_[next_];
    burst.size = 1;
    burst.now = Tick{at_ms};
    burst.data[0] = data.data();
    burst.length[0] = static_cast<std::uint16_t>(data.size());
    burst.wire_length[0] = burst.length[0];
    burst.handle[0] = next_++;
    return true;
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    for (unsigned i = 0; i < burst.size; ++i) {
      if (forward >> i & 1) sent.push_back(input_[burst.handle[i]].first);
    }
  }
  std::vector<Bytes> sent;

 private:
  std::vector<std::pair<Bytes, std::uint32_t>> input_;
  std::size_t next_ = 0;
};

inline Endpoint source_of(const Bytes& p) { return source_of(p.data()); }
inline Endpoint destination_of(const Bytes& p) { return destination_of(p.data()); }

inline ServiceSpec<AddressV4> service(const Endpoint& address, std::vector<std::uint8_t> backends) {
  ServiceSpec<AddressV4> spec{.address = {address.address},
                              .port = address.port,
                              .protocol = 6,
                              .scheduler = "round-robin"};
  for (const std::uint8_t last : backends) spec.backends.push_back({{{10, 0, 0, last}}, 8080});
  return spec;
}

struct Scheme {
  std::string table;
  std::string ageing;
};

class LineTest : public testing::TestWithParam<Scheme> {
 protected:
  struct Made {
    std::unique_ptr<Balance> balance;
    std::unique_ptr<Line> line;
  };
  static Made make(const BalanceConfig& balance_config, LineConfig config) {
    auto balance = Balance::create(balance_config);
    EXPECT_TRUE(balance.has_value());
    config.table = GetParam().table;
    config.ageing = GetParam().ageing;
    config.pages = Pages::small;
    config.catch_up = true;
    auto line = make_line(config, **balance);
    EXPECT_TRUE(line.has_value());
    return {std::move(*balance), std::move(*line)};
  }
  static LineConfig small(std::size_t capacity = 100) {
    return {.capacity = capacity, .capacity_v6 = 20, .timeouts = Timeouts::all(1000)};
  }
  static void check(const Made& made) {
    const WorkerCounters& c = made.line->counters();
    std::uint64_t verdicts = 0;
    std::uint64_t dropped = 0;
    for (std::size_t v = 0; v < kVerdicts; ++v) {
      verdicts += c.verdict[v].value();
      if (is_drop(static_cast<Verdict>(v))) dropped += c.verdict[v].value();
    }
    EXPECT_EQ(c.in.value(), verdicts);
    EXPECT_EQ(c.in.value(), c.out.value() + dropped);
    EXPECT_EQ(c.opened.value() - c.ended(),
              made.line->report_v4().live + made.line->report_v6().live);
    std::uint64_t live = 0;
    for (const auto& s : made.balance->statistics()) {
      for (const auto& backend : s.backends) live += backend.live;
    }
    EXPECT_EQ(live, made.line->report_v4().live + made.line->report_v6().live);
    for (const auto& ok : {made.line->check_invariants(), made.balance->check_invariants()}) {
      EXPECT_TRUE(ok.has_value()) << ok.error().message;
    }
  }
  static std::uint64_t count(const Made& made, Verdict verdict) {
    return made.line->counters().verdict[static_cast<std::size_t>(verdict)].value();
  }
};

/// Returns every table with every ageing scheme; if few combinations are compiled
/// (MILLRACE_COVERING), every table with one ageing scheme, by turns.
inline std::vector<Scheme> all_schemes() {
  std::vector<Scheme> all;
  for (const auto& table : TableSchemes::names()) {
    for (const auto& ageing : AgeingSchemes::names()) all.push_back({table, ageing});
  }
  return in_turn(std::move(all), AgeingSchemes::kSize);
}
inline std::string name_of(const testing::TestParamInfo<Scheme>& info) {
  std::string name = info.param.table + "_" + info.param.ageing;
  std::ranges::replace_if(name, [](char c) { return c == '-' || c == '+'; }, '_');
  return name;
}

}  // namespace millrace::test
