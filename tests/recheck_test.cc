// Tests what a reload of the firewall's rules does to a million live connections: exactly those
// that the new rules deny end, a few between two bursts. Prints how long bursts take meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "line_fixture.h"

namespace millrace::test {
namespace {

constexpr unsigned kConnections = 1'000'000;
constexpr std::uint8_t kBits = 3;  // the denied prefix has an eighth of the clients

/// Client `n`, in 10.0.0.0/12; one in eight is in 10.0.0.0/15.
AddressV4 client_address(unsigned n) {
  return {{10, static_cast<std::uint8_t>(n >> 16), static_cast<std::uint8_t>(n >> 8),
           static_cast<std::uint8_t>(n)}};
}
bool is_denied(unsigned n) { return n >> (20 - kBits) == 0; }
KeyV4 key_of(unsigned n) {
  return {.source = client_address(n),
          .destination = {{192, 0, 2, 1}},
          .source_port = 4000,
          .destination_port = 53,
          .protocol = 17};
}

/// A port that receives full bursts of datagrams, each from another client.
class ClientPort final : public Port {
 public:
  ClientPort() {
    for (Bytes& one : frames_) {
      one = ethernet(0x0800) + bytes({0x45, 0}) + be(28) + be(0) + be(0x4000) +
            bytes({64, 17, 0, 0}) + zeros(4) + bytes({192, 0, 2, 1}) + be(4000) + be(53) + be(8) +
            zeros(2);
    }
  }
  LinkType link_type() const override { return LinkType::ethernet; }
  /// The next `bursts` bursts come from the clients `step` apart, from client `first` on.
  void add(unsigned first, unsigned step, unsigned bursts) {
    next_ = first;
    step_ = step;
    left_ = bursts;
  }
  bool receive(Burst& burst) override {
    if (left_ == 0) return false;
    --left_;
    burst.size = Burst::kMax;
    burst.now = Tick{1};
    for (unsigned i = 0; i < Burst::kMax; ++i, next_ += step_) {
      const AddressV4 from = client_address(next_ % kConnections);
      Bytes& frame = frames_[i];
      std::ranges::copy(std::as_bytes(std::span(from.bytes)), frame.begin() + 26);
      burst.data[i] = frame.data();
      burst.length[i] = static_cast<std::uint16_t>(frame.size());
      burst.wire_length[i] = burst.length[i];
      burst.handle[i] = i;
    }
    return true;
  }
  void send(const Burst&, std::uint64_t) override {}

 private:
  std::array<Bytes, Burst::kMax> frames_;
  unsigned next_ = 0;
  unsigned step_ = 1;
  unsigned left_ = 0;
};

std::shared_ptr<const FunctionSettings> rules(const std::string& denied) {
  const auto config =
      parse_config("chain = [\"firewall\"]\n[firewall]\ndefault = \"accept\"\n" +
                       (denied.empty() ? ""
                                       : "[[firewall.rule]]\nname = \"denied\"\nsource = \"" +
                                             denied + "\"\naction = \"drop\"\n"),
                   "f.toml", {{"race"}, {"sharded"}, {"wheel"}});
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config->function;
}

std::uint64_t thread_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

void print(const char* what, std::vector<std::uint64_t> ns) {
  std::ranges::sort(ns);
  const auto at = [&](double part) {
    return static_cast<double>(
               ns[static_cast<std::size_t>(part * static_cast<double>(ns.size() - 1))]) /
           1000;
  };
  std::printf("%s: %zu, us of the thread's time: median %.1f, 90 %% %.1f, 99 %% %.1f, most %.1f\n",
              what, ns.size(), at(0.5), at(0.9), at(0.99), at(1));
}

TEST(Recheck, EndsExactlyTheDeniedOfAMillion) {
  const auto settings = rules("");
  const auto deployment = std::move(*settings->kind().deploy(settings, {}));
  const auto line = std::move(*make_line({.table = "race",
                                          .ageing = "wheel",
                                          .capacity = kConnections * 5 / 4,
                                          .capacity_v6 = 20,
                                          .timeouts = Timeouts::all(1'000'000),
                                          .pages = Pages::small},
                                         deployment->make(0)));
  ClientPort port;
  port.add(0, 1, kConnections / Burst::kMax);
  line->run(port);
  ASSERT_EQ(line->report_v4().live, kConnections);

  const auto burst = [&](unsigned n) {
    port.add(n % 4096 * 64 + (kConnections >> 1), 1, 1);
    const std::uint64_t begin = thread_ns();
    line->run(port);
    return thread_ns() - begin;
  };
  std::vector<std::uint64_t> before;
  for (unsigned n = 0; n < 1000; ++n) before.push_back(burst(n));

  const auto review = deployment->update(rules("10.0.0.0/15"), {}, [](const auto& step) {
    step(0);
    return true;
  });
  ASSERT_TRUE(review.has_value());
  ASSERT_EQ(*review, Review::all);
  std::vector<std::uint64_t> meanwhile;
  std::vector<std::uint64_t> pieces;
  std::size_t most_ended = 0;
  std::size_t most_ids = 0;
  LineCursor at;
  for (unsigned n = 0; at.at != LineCursor::At::end; ++n) {
    const LineCursor from = at;
    const std::size_t live = line->report_v4().live;
    const std::uint64_t begin = thread_ns();
    at = line->review(from);
    pieces.push_back(thread_ns() - begin);
    most_ended = std::max(most_ended, live - line->report_v4().live);
    if (at.at == from.at) most_ids = std::max(most_ids, at.id - from.id);
    meanwhile.push_back(burst(n));
  }
  EXPECT_LE(most_ids, Line::kMostAtOnce);
  EXPECT_LE(most_ended, Line::kEndMost);
  EXPECT_GT(most_ended, 0U);
  unsigned wrong = 0;
  for (unsigned n = 0; n < kConnections; ++n)
    wrong += line->find(AnyKey(key_of(n))).has_value() == is_denied(n);
  EXPECT_EQ(wrong, 0U);
  print("bursts before", before);
  print("bursts meanwhile", meanwhile);
  print("pieces of the recheck", pieces);
}

}  // namespace
}  // namespace millrace::test
