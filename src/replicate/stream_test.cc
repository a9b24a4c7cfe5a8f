#include "replicate/stream.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/test_seed.h"

namespace millrace {
namespace {

struct Datagram {
  MessageHead head;
  std::vector<std::byte> payload;
  Message message() const { return {head, payload}; }
};

/// Both halves of a stream, and the messages between them.
class Pair {
 public:
  void send(Tick now) {
    sending.send(now, 0, {}, [this](const MessageHead& head, std::span<const std::byte> payload) {
      sent.push_back({head, {payload.begin(), payload.end()}});
    });
  }
  ReceivingStream::Taken take(const Datagram& one) {
    return receiving.take(one.message(), [this](RecordKind kind, std::span<const std::byte> body) {
      if (kind != RecordKind::change) return;
      std::uint32_t value = 0;
      std::memcpy(&value, body.data(), sizeof(value));
      applied.push_back(value);
    });
  }
  bool acknowledge(Tick now, std::uint8_t flags = 0) {
    return sending.acknowledge({.kind = MessageHead::Kind::acknowledged,
                                .flags = flags,
                                .stream = receiving.stream(),
                                .number = receiving.next()},
                               now);
  }
  void append(std::uint32_t value, Tick now, std::size_t bytes = sizeof(value)) {
    std::vector<std::byte> body(bytes);
    std::memcpy(body.data(), &value, sizeof(value));
    sending.append(RecordKind::change, body, now);
  }
  void open(Tick now) {
    sending.open(now);
    send(now);
    EXPECT_EQ(take(sent.front()), ReceivingStream::Taken::began);
    EXPECT_TRUE(acknowledge(now));
    sent.clear();
  }

  SendingStream sending;
  ReceivingStream receiving;
  std::deque<Datagram> sent;
  std::vector<std::uint32_t> applied;
};

TEST(Stream, RepeatsItsBeginningMoreAndMoreSlowly) {
  Pair pair;
  pair.sending.open(Tick{0});
  EXPECT_FALSE(pair.sending.has_room()) << "nothing may be told before the beginning has arrived";
  std::vector<std::uint32_t> times;
  for (std::uint32_t ms = 0; ms < 700; ++ms) {
    const std::size_t before = pair.sent.size();
    pair.send(Tick{ms});
    if (pair.sent.size() > before) times.push_back(ms);
  }
  EXPECT_EQ(times, (std::vector<std::uint32_t>{0, 20, 60, 140, 300, 620}));
}

TEST(Stream, PacksRecordsAndAppliesThemOnce) {
  Pair pair;
  pair.open(Tick{0});
  for (std::uint32_t n = 0; n < 100; ++n) pair.append(n, Tick{1}, 40);
  pair.send(Tick{1});
  EXPECT_EQ(pair.sent.size(), 4U) << "1,200 bytes hold 27 records of 44 bytes";
  for (const Datagram& one : pair.sent) {
    EXPECT_EQ(pair.take(one), ReceivingStream::Taken::applied);
    EXPECT_EQ(pair.take(one), ReceivingStream::Taken::known);
  }
  EXPECT_FALSE(pair.acknowledge(Tick{2}));
  EXPECT_TRUE(pair.sending.is_empty());
  EXPECT_EQ(pair.applied.size(), 100U);
}

TEST(Stream, SendsAgainFromAGapOnOnceForEachGap) {
  Pair pair;
  pair.open(Tick{0});
  for (std::uint32_t n = 0; n < 3; ++n) {
    pair.append(n, Tick{1});
    pair.send(Tick{1});
  }
  ASSERT_EQ(pair.sent.size(), 3U);
  EXPECT_EQ(pair.take(pair.sent[0]), ReceivingStream::Taken::applied);
  EXPECT_EQ(pair.take(pair.sent[2]), ReceivingStream::Taken::gap);
  pair.sent.clear();
  for (unsigned times = 0; times < 3; ++times) {
    pair.acknowledge(Tick{2}, MessageHead::kGap);
    pair.send(Tick{2});
  }
  ASSERT_EQ(pair.sent.size(), 2U) << "the missing message and the one behind it, once";
  for (const Datagram& one : pair.sent) pair.take(one);
  EXPECT_EQ(pair.applied, (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(Stream, KeepsNoMoreThanItsMessages) {
  Pair pair;
  pair.open(Tick{0});
  std::uint32_t told = 0;
  for (; pair.sending.has_room(); ++told) pair.append(told, Tick{1}, kMostRecord);
  EXPECT_EQ(told, 2 * SendingStream::kMessages);
  std::vector<std::size_t> rounds;
  for (std::uint32_t ms = 1; !pair.sending.is_empty() && ms < 10; ++ms) {
    pair.send(Tick{ms});
    rounds.push_back(pair.sent.size());
    for (const Datagram& one : pair.sent) pair.take(one);
    pair.sent.clear();
    pair.acknowledge(Tick{ms});
  }
  constexpr std::size_t kAll = SendingStream::kMessages;
  EXPECT_EQ(rounds, (std::vector<std::size_t>{kAll / 4, kAll / 2, kAll / 4}))
      << "twice as many where all arrive";
  EXPECT_TRUE(pair.sending.has_room());
  EXPECT_EQ(pair.applied.size(), told);
}

TEST(Stream, SaysHowLongTheReceiverIsSilent) {
  Pair pair;
  pair.open(Tick{0});
  EXPECT_EQ(pair.sending.silent_for(Tick{5000}), 0) << "nothing is to be acknowledged";
  pair.append(1, Tick{5000});
  pair.send(Tick{5000});
  EXPECT_EQ(pair.sending.silent_for(Tick{5300}), 300);
  pair.take(pair.sent.back());
  pair.acknowledge(Tick{5300});
  EXPECT_EQ(pair.sending.silent_for(Tick{9000}), 0);
}

TEST(Stream, ANewStreamForgetsTheOldOne) {
  Pair pair;
  pair.open(Tick{0});
  pair.append(1, Tick{1});
  pair.send(Tick{1});
  const Datagram late = pair.sent.front();
  pair.sent.clear();
  pair.open(Tick{2});
  EXPECT_EQ(pair.take(late), ReceivingStream::Taken::old);
  pair.append(2, Tick{3});
  pair.send(Tick{3});
  EXPECT_EQ(pair.take(pair.sent.front()), ReceivingStream::Taken::applied);
  EXPECT_EQ(pair.applied, std::vector<std::uint32_t>{2});
}

TEST(Stream, RefusesMalformedMessagesWhole) {
  Pair pair;
  pair.open(Tick{0});
  pair.append(1, Tick{1});
  pair.append(2, Tick{1});
  pair.send(Tick{1});
  const Datagram right = pair.sent.front();
  for (const auto& change : std::vector<void (*)(Datagram&)>{
           [](Datagram& one) { one.payload.pop_back(); },
           [](Datagram& one) { one.payload.push_back({}); },
           [](Datagram& one) { one.head.count += 1; }, [](Datagram& one) { one.head.count -= 1; },
           [](Datagram& one) { one.payload[8] = std::byte{200}; },   // size of the second record
           [](Datagram& one) { one.payload[10] = std::byte{100}; },  // its kind
           [](Datagram& one) {  // an unknown record reaches beyond the payload
             one.payload[8] = std::byte{200};
             one.payload[10] = std::byte{kMayBeSkipped};
           },
           [](Datagram& one) { one.payload[10] = std::byte{1}; },  // `told_all` has no body
       }) {
    Datagram wrong = right;
    change(wrong);
    EXPECT_EQ(pair.take(wrong), ReceivingStream::Taken::malformed);
  }
  EXPECT_TRUE(pair.applied.empty());
  EXPECT_EQ(pair.take(right), ReceivingStream::Taken::applied);
}

TEST(Stream, SkipsRecordsThatANewerVersionMaySend) {
  for (const unsigned kind : {kMayBeSkipped, 255U}) {
    Pair pair;
    pair.open(Tick{0});
    for (std::uint32_t n = 0; n < 3; ++n) pair.append(n, Tick{1});
    pair.send(Tick{1});
    Datagram one = pair.sent.front();
    one.payload[10] = std::byte{static_cast<std::uint8_t>(kind)};
    EXPECT_EQ(pair.take(one), ReceivingStream::Taken::applied);
    EXPECT_EQ(pair.applied, (std::vector<std::uint32_t>{0, 2}));
    pair.acknowledge(Tick{2});
    EXPECT_TRUE(pair.sending.is_empty()) << "the stream goes on";
  }
}

std::vector<std::byte> message_of(unsigned kind, std::size_t bytes) {
  const MessageHead head{.kind = static_cast<MessageHead::Kind>(kind),
                         .bytes = static_cast<std::uint32_t>(bytes)};
  std::vector<std::byte> all(sizeof(head) + bytes);
  std::memcpy(all.data(), &head, sizeof(head));
  return all;
}

TEST(Stream, SkipsMessagesOfANewerVersion) {
  constexpr auto kHello = static_cast<unsigned>(MessageHead::Kind::hello);
  std::vector<std::byte> all;
  for (const unsigned kind : {100U, kHello, 7U, 255U, kHello, 8U}) {
    const auto one = message_of(kind, kind == kHello ? 20 : kMostPayload);
    all.insert(all.end(), one.begin(), one.end());
  }
  std::span<const std::byte> left = all;
  for (unsigned n = 0; n < 2; ++n) {
    const auto message = take_message(left);
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->head.kind, MessageHead::Kind::hello);
    EXPECT_EQ(message->payload.size(), 20U);
  }
  EXPECT_FALSE(take_message(left).has_value());
  EXPECT_TRUE(left.empty());

  const auto refused = [](std::span<const std::byte> datagram) {
    return !take_message(datagram) && !datagram.empty();
  };
  EXPECT_TRUE(refused(message_of(7, kMostPayload + 1)));
  EXPECT_TRUE(refused(std::span(all).first(kMostPayload))) << "cut off";
  all = message_of(0, 0);
  left = all;
  EXPECT_TRUE(take_message(left).has_value()) << "of a kind that there never is: to be counted";
}

TEST(Stream, IgnoresAcknowledgementsOfWhatWasNeverTold) {
  Pair pair;
  pair.open(Tick{0});
  pair.append(1, Tick{1});
  pair.send(Tick{1});
  const std::uint64_t before = pair.sending.acknowledged();
  pair.sending.acknowledge({.stream = 1, .number = before + 2}, Tick{2});
  pair.sending.acknowledge({.stream = 7, .number = before + 1}, Tick{2});
  EXPECT_EQ(pair.sending.acknowledged(), before);
}

/// Loss, doubling and reordering of both directions.
TEST(Stream, ArrivesInOrderWhateverTheNetworkDoes) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  Pair pair;
  std::deque<std::pair<std::uint8_t, MessageHead>> answers;
  std::uint32_t told = 0;
  pair.sending.open(Tick{0});
  std::uint32_t ms = 0;
  for (; ms < 60'000 && (told < 5000 || !pair.sending.is_empty()); ++ms) {
    for (auto n = random() % 4; n > 0 && told < 5000 && pair.sending.has_room(); --n)
      pair.append(told++, Tick{ms}, 4 + random() % 500);
    pair.send(Tick{ms});
    for (auto n = random() % 6; n > 0 && !pair.sent.empty(); --n) {
      const std::size_t which = random() % std::min<std::size_t>(pair.sent.size(), 3);
      const Datagram one = pair.sent[which];
      if (random() % 20 != 0) pair.sent.erase(pair.sent.begin() + static_cast<int>(which));
      if (random() % 10 == 0) continue;
      const auto taken = pair.take(one);
      ASSERT_NE(taken, ReceivingStream::Taken::malformed);
      const bool is_gap = taken == ReceivingStream::Taken::gap;
      answers.push_back({is_gap ? MessageHead::kGap : std::uint8_t{0},
                         {.stream = pair.receiving.stream(), .number = pair.receiving.next()}});
    }
    while (!answers.empty() && random() % 3 != 0) {
      auto [flags, head] = answers.front();
      answers.pop_front();
      head.flags = flags;
      if (random() % 10 != 0) pair.sending.acknowledge(head, Tick{ms});
    }
  }
  EXPECT_LT(ms, 60'000U) << "not everything was acknowledged";
  ASSERT_EQ(pair.applied.size(), 5000U);
  for (std::uint32_t n = 0; n < 5000; ++n) ASSERT_EQ(pair.applied[n], n);
}

}  // namespace
}  // namespace millrace
