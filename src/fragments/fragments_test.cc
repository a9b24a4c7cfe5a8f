// Tests the stage on whole bursts: which packets it leaves, in which order, and with which keys.
#include "fragments/fragments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/protocol.h"
#include "core/test_seed.h"
#include "parse/parse.h"
#include "parse/test_packets.h"

namespace millrace {
namespace {

using test::be;
using test::Bytes;
using test::bytes;
using test::operator+;

/// Sends packets in bursts through a stage.
class FragmentsTest : public testing::Test, protected Port {
 protected:
  /// A fragment of the datagram `id` of 8 * `end` bytes of UDP, in IPv4 or, for odd numbers, in
  /// IPv6.
  static Bytes part(unsigned id, unsigned begin, unsigned end, bool more) {
    const unsigned size = 8 * (end - begin);
    const Bytes payload = begin == 0
                              ? be(1000 + id) + be(53) + be(0) + be(0) + test::zeros(size - 8)
                              : test::zeros(size);
    if (id % 2 == 0) {
      Bytes ip = test::ipv4({.protocol = 17, .fragment = begin | (more ? 0x2000U : 0U)}, payload);
      ip[4] = static_cast<std::byte>(id >> 8);
      ip[5] = static_cast<std::byte>(id);
      return ip;
    }
    Bytes header = test::fragment6(17, begin, more);
    header[6] = static_cast<std::byte>(id >> 8);
    header[7] = static_cast<std::byte>(id);
    return test::ipv6({.next = 44}, header + payload);
  }
  static Bytes whole() { return test::ipv4({.protocol = 17}, test::udp()); }

  /// Sends a burst of packets, and returns what the line would see of it and of those behind it:
  /// for each packet its number, and its key's source port, or its verdict. Bursts end with "|".
  std::string send(const std::vector<Bytes>& packets) {
    auto burst = std::make_unique<Burst>();
    burst->now = now_;
    for (const Bytes& packet : packets) {
      packets_.push_back(packet);
      place(*burst, burst->size++, packets_.size() - 1);
    }
    parse(*burst, link_type());
    return see(burst);
  }
  std::string see(std::unique_ptr<Burst>& burst) {
    std::string all;
    for (bool more = true; more;) {
      if (stage_.concerns(*burst)) stage_.follow(*burst, *this);
      all += seen(*burst);
      more = stage_.has_waiting();
      burst->clear();
      if (more) stage_.next(burst, *this);
      if (more) all += "|";
    }
    return all;
  }
  std::string seen(Burst& burst) const {
    std::map<unsigned, std::string> ports;
    const auto add = [&](const auto& lane) {
      for (unsigned i = 0; i < lane.size; ++i) {
        EXPECT_TRUE(i == 0 || lane.packet[i - 1] < lane.packet[i]);
        EXPECT_EQ(burst.verdict[lane.packet[i]], Verdict::tracked);
        EXPECT_EQ(lane.key[i].protocol, 17);
        ports[lane.packet[i]] = std::to_string(lane.key[i].source_port);
        const bool is_later = burst.headers[lane.packet[i]].protocol == kProtocolFragment;
        EXPECT_EQ(burst.signal[lane.packet[i]], is_later ? Signal::fragment : Signal::packet);
      }
    };
    add(burst.v4);
    add(burst.v6);
    std::string all;
    for (unsigned i = 0; i < burst.size; ++i) {
      EXPECT_EQ(burst.data[i], packets_[burst.handle[i]].data());
      all += " " + std::to_string(burst.handle[i]) + ":" +
             (ports.contains(i) ? ports[i] : std::string(to_string(burst.verdict[i])));
    }
    return all;
  }

  LinkType link_type() const override { return LinkType::raw_ip; }
  bool receive(Burst&) override { return false; }
  void send(const Burst&, std::uint64_t) override {}
  unsigned known() const override { return known_; }
  bool can_place() const override { return can_place_; }
  void place(Burst& burst, unsigned at, Handle handle) override {
    burst.data[at] = packets_[handle].data();
    burst.length[at] = static_cast<std::uint16_t>(packets_[handle].size());
    burst.wire_length[at] = burst.length[at];
    burst.handle[at] = handle;
  }

  Fragments stage_{std::make_shared<FragmentTable>(Secret::from_seed(1))};
  Tick now_{1};
  unsigned known_ = 0;
  bool can_place_ = true;
  std::vector<Bytes> packets_;
};

TEST_F(FragmentsTest, LaterOnesHaveTheKeyOfTheFirst) {
  EXPECT_EQ(send({whole(), part(2, 0, 2, true), part(3, 0, 2, true), part(3, 2, 4, false), whole(),
                  part(2, 2, 4, false)}),
            " 0:1024 1:1002 2:1003 3:1003 4:1024 5:1002");
}

TEST_F(FragmentsTest, EarlierOnesFollowTheFirst) {
  EXPECT_EQ(send({part(2, 2, 4, false), whole()}), " 1:1024");
  EXPECT_EQ(send({part(3, 2, 4, true), whole(), part(3, 4, 6, false)}), " 3:1024");
  EXPECT_EQ(send({whole(), part(2, 0, 2, true), whole(), part(3, 0, 2, true), part(3, 2, 4, true)}),
            " 5:1024 6:1002| 0:1002| 7:1024 8:1003| 2:1003 4:1003| 9:1003");
  EXPECT_EQ(send({whole()}), " 10:1024");
}

TEST_F(FragmentsTest, MoreThanABurst) {
  std::string right;
  for (unsigned n = 1; n <= 100; ++n) {
    EXPECT_EQ(send({part(2, 2 * n, 2 * n + 2, true)}), "");
    right += " " + std::to_string(n - 1) + ":1002";
    if (n == 64) right += "|";
  }
  EXPECT_EQ(send({part(2, 0, 2, true)}), " 100:1002|" + right);
}

TEST_F(FragmentsTest, DroppedOnesAreSeenWithTheirReason) {
  EXPECT_EQ(send({part(2, 2, 4, true)}), "");
  EXPECT_EQ(send({part(2, 3, 5, true), whole()}),
            " 1:fragment_overlap| 0:fragment_overlap| 2:1024");
  EXPECT_EQ(send({part(2, 0, 2, true)}), " 3:fragment_overlap");
  EXPECT_EQ(send({part(4, 2, 4, true)}), "");
  now_.ms += 2001;
  EXPECT_EQ(send({whole()}), " 5:1024| 4:fragment_timeout");
  EXPECT_EQ(send({part(4, 2, 4, true)}), "");
  stage_.give_up();
  auto burst = std::make_unique<Burst>();
  burst->now = now_;
  EXPECT_EQ(see(burst), "| 6:fragment_timeout");
  can_place_ = false;
  EXPECT_EQ(send({part(4, 4, 6, true)}), " 7:fragment_limit");
}

// Fragments that another worker has seen are not kept again, nor are those that it has kept
// released.
TEST_F(FragmentsTest, KnownOnesAreLookedUpOnly) {
  EXPECT_EQ(send({part(2, 0, 2, true)}), " 0:1002");
  EXPECT_EQ(send({part(4, 2, 4, true)}), "");
  known_ = 3;
  EXPECT_EQ(send({part(2, 2, 4, true), part(4, 0, 2, true), part(5, 2, 4, true)}),
            " 2:1002 3:1004 4:fragment_limit");
}

TEST_F(FragmentsTest, FirstOnesWithoutAKey) {
  const Bytes error =
      test::ipv4({.protocol = 1, .fragment = 0x2000}, bytes({5, 0, 0, 0}) + test::zeros(4));
  const Bytes rest = test::ipv4({.protocol = 1, .fragment = 1}, test::zeros(8));
  EXPECT_EQ(send({rest}), "");
  EXPECT_EQ(send({error, rest}), " 1:icmp_control| 0:fragment| 2:fragment");
}

// All fragments come out once, with the key of their datagram, and behind its first one.
TEST_F(FragmentsTest, RandomBursts) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  std::vector<std::pair<unsigned, Bytes>> all;  // with the source port
  for (unsigned id = 2; id < 200; ++id) {
    const unsigned count = 2 + static_cast<unsigned>(random() % 4);
    for (unsigned n = 0; n < count; ++n)
      all.emplace_back(1000 + id, part(id, 2 * n, 2 * n + 2, n + 1 < count));
  }
  for (unsigned n = 0; n < 300; ++n) all.emplace_back(1024, whole());
  std::ranges::shuffle(all, random);
  std::map<unsigned, unsigned> seen;
  std::map<unsigned, bool> has_first;
  for (std::size_t at = 0; at < all.size();) {
    std::vector<Bytes> burst;
    for (std::size_t n = 1 + random() % 64; n > 0 && at < all.size(); --n)
      burst.push_back(all[at++].second);
    std::string text = send(burst);
    std::ranges::replace(text, '|', ' ');
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      const auto colon = word.find(':');
      const auto number = static_cast<unsigned>(std::stoul(word));
      EXPECT_EQ(word.substr(colon + 1), std::to_string(all[number].first));
      EXPECT_EQ(++seen[number], 1U);
      const auto parsed = test::parse(LinkType::raw_ip, all[number].second);
      has_first[all[number].first] |= parsed.headers.protocol == 17;
      EXPECT_TRUE(has_first[all[number].first]);
    }
  }
  EXPECT_EQ(seen.size(), all.size());
}

}  // namespace
}  // namespace millrace
