#include "bench/conversations.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "parse/parse.h"
#include "parse/rewrite.h"

namespace millrace::bench {
namespace {

/// Stands in for a line with NAT: each client's address begins with 100, in both directions.
class Translator {
 public:
  using Spoil = std::function<void(std::byte* frame, bool is_reply)>;

  void run(BatchPort& port, const Spoil& spoil) {
    for (bool more = true; more;) {
      burst_.clear();
      more = port.receive(burst_);
      parse(burst_, port.link_type());
      EXPECT_EQ(burst_.v4.size, burst_.size);
      for (unsigned i = 0; i < burst_.v4.size; ++i) {
        const KeyV4& was = burst_.v4.key[i];
        KeyV4 is = was;
        const bool is_reply = was.destination.bytes[0] == 100;
        AddressV4& client = is_reply ? is.destination : is.source;
        client.bytes[0] = is_reply ? 198 : 100;
        rewrite(burst_.data[i], burst_.headers[i], was, is);
        if (spoil) spoil(burst_.data[i], is_reply);
      }
      port.send(burst_, all_of(burst_) & forward);
    }
  }

  std::uint64_t forward = ~std::uint64_t{0};

 private:
  Burst burst_;
};

class ConversationsTest : public ::testing::TestWithParam<Talk> {
 protected:
  /// Passes batches until that many rounds are over, and returns the first error.
  std::string pass(std::uint64_t rounds, const Translator::Spoil& spoil = {}) {
    std::vector<std::uint32_t> left;
    while (talk_.rounds() < rounds) {
      talk_.next(batch_);
      left.clear();
      for (const auto* places : {&batch_.from_clients, &batch_.from_servers}) {
        port_.offer(batch_, *places, left);
        translator_.run(port_, spoil);
      }
      if (auto ok = talk_.check(batch_, left); !ok) return ok.error().message;
    }
    return "";
  }

  Conversations talk_{GetParam(), 3000, {.source = true}, 5};
  BatchPort port_{32};
  Translator translator_;
  Batch batch_;
};

INSTANTIATE_TEST_SUITE_P(Both, ConversationsTest, ::testing::Values(Talk::http, Talk::campus),
                         [](const auto& of) { return std::string(to_string(of.param)); });

TEST_P(ConversationsTest, EndAndBeginAgain) {
  EXPECT_EQ(pass(100), "");
  EXPECT_GT(talk_.begun(), 3000U * 5);
}

TEST_P(ConversationsTest, ABatchHasAPacketOfAConversation) {
  for (int n = 0; n < 200; ++n) {
    std::set<std::uint32_t> seen;
    std::vector<std::uint32_t> left;
    talk_.next(batch_);
    for (const BatchPacket& packet : batch_.packets)
      EXPECT_TRUE(seen.insert(packet.conversation).second);
    for (const auto* places : {&batch_.from_clients, &batch_.from_servers}) {
      port_.offer(batch_, *places, left);
      translator_.run(port_, {});
    }
    ASSERT_TRUE(talk_.check(batch_, left));
  }
}

TEST_P(ConversationsTest, WrongPacketsAreFound) {
  const auto wrong = "a packet did not leave as it must";
  // The addresses, the ports, and both checksums.
  for (const std::size_t at : {26U, 30U, 34U, 36U, 24U}) {
    for (const bool of_replies : {false, true}) {
      Conversations fresh(GetParam(), 3000, {.source = true}, 5);
      std::swap(talk_, fresh);
      EXPECT_EQ(pass(5), "");
      EXPECT_EQ(pass(30,
                     [&](std::byte* frame, bool is_reply) {
                       if (is_reply == of_replies) frame[at] ^= std::byte{1};
                     }),
                wrong)
          << at;
    }
  }
}

TEST_P(ConversationsTest, LostPacketsAreFound) {
  EXPECT_EQ(pass(5), "");
  translator_.forward = ~std::uint64_t{1};
  EXPECT_NE(pass(6).find("all must"), std::string::npos);
}

TEST(Conversations, UnchangedPacketsAreFoundWhereTheyMustChange) {
  Conversations talk(Talk::http, 3000, {.source = true}, 5);
  Batch batch;
  BatchPort port(32);
  std::vector<std::uint32_t> left;
  talk.next(batch);
  for (std::uint32_t n = 0; n < batch.packets.size(); ++n) left.push_back(n);
  EXPECT_FALSE(talk.check(batch, left));
}

}  // namespace
}  // namespace millrace::bench
