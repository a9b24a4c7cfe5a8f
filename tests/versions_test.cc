// Tests that processes of different versions, or with different functions, take connections from
// each other: two copies of a shard, and a process that takes over in place of another one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "balance_workers.h"
#include "control/taking_over.h"
#include "function/chain.h"
#include "function/forward/forward.h"
#include "line/carried_layout.h"
#include "line_fixture.h"
#include "replicate/copy.h"
#include "serving.h"

namespace millrace::test {
namespace {

constexpr Endpoint kServer{{198, 51, 100, 1}, 80};
constexpr std::uint16_t kWord = sizeof(std::uint32_t);

/// The words that `Memo` keeps of a connection.
using Words = std::array<std::uint32_t, 2>;
/// Returns the words of a connection that has begun at a memo of two words.
Words words_of(unsigned n) { return {1 + n, 1001 + n}; }

/// A function of which there are versions: each keeps one or two words of a connection, which are 0
/// for clients with odd numbers.
template <class K>
class MemoFor final : public FunctionFor<K> {
 public:
  explicit MemoFor(const Part& part) : part_(part) {}

  Part part() const override { return part_; }
  void open(const Burst&, Opening<K>& opening) override {
    Words words{};
    if (opening.image != nullptr) std::memcpy(words.data(), opening.image, part_.image_bytes);
    const unsigned client = opening.key.source_port - 1024U;
    if (!opening.is_resumed && client % 2 == 0)
      std::memcpy(words.data(), words_of(client).data(), part_.image_bytes);
    std::memcpy(opening.state, words.data(), sizeof(words));
    opening.accept_two_way(reversed(opening.key));
  }
  void serve(Burst& burst, std::uint64_t places, const States<K>&) override {
    const Lane<K>& lane = burst.lane<K>();
    for_each_bit(places, [&](unsigned i) {
      if (lane.connection[i] != ConnId::none) burst.verdict[lane.packet[i]] = Verdict::tracked;
    });
  }
  void write(const K&, const std::byte* state, std::byte* image) const override {
    std::memcpy(image, state, part_.image_bytes);
  }

 private:
  Part part_;
};

class Memo final : public Function {
 public:
  explicit Memo(const Part& part) : v4_(part), v6_(part) {}
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

 private:
  MemoFor<KeyV4> v4_;
  MemoFor<KeyV6> v6_;
};

Part memo(unsigned words, bool is_needed = false, std::uint16_t version = 1) {
  return {.name = "memo",
          .version = version,
          .originator_bytes = sizeof(Words),
          .alignment = alignof(Words),
          .image_bytes = static_cast<std::uint16_t>(words * kWord),
          .is_needed = is_needed};
}

/// A server with a copy of one shard. Its functions are `forward` and, if there is one, a memo
/// before or behind it.
struct Server final : ShardCopy::Outbox {
  enum class Order : std::uint8_t { first, last };

  Server(std::uint64_t number, const std::optional<Part>& part, Order order = Order::last)
      : self{number} {
    std::vector<Function*> functions{&forward};
    if (part) own_memo.emplace(*part);
    if (part) image_bytes = part->image_bytes;
    if (part)
      functions.insert(order == Order::first ? functions.begin() : functions.end(), &*own_memo);
    chain = std::make_unique<Chain>(functions);
    line = std::move(*make_line({.capacity = 200,
                                 .capacity_v6 = 20,
                                 .timeouts = Timeouts::all(10'000),
                                 .pages = Pages::small,
                                 .secret = Secret::from_seed(1),
                                 .catch_up = true,
                                 .shards_that_move = 16,
                                 .copies = true},
                                *chain));
    copy = std::make_unique<ShardCopy>(0, line->copied(0));
  }
  void send(Member to, const MessageHead& head, std::span<const std::byte> payload) override {
    sent.push_back({to, head, {payload.begin(), payload.end()}});
  }
  /// Learns the layout of the other one's records, as from a hello. True if this server reads it.
  bool hear(std::span<const CarriedPart> theirs) {
    auto read = CarriedLayouts::of(theirs, line->carried_parts());
    if (!read) return false;
    layouts = std::move(*read);
    line->set_layouts(0, &*layouts);
    return true;
  }
  void assign(Epoch epoch, CopyRole role, Member other) {
    copy->assign({epoch, role, other, true}, now);
    line->assign(0, role);
  }
  void serve(const Bytes& packet) {
    TestPort port;
    port.add(packet, static_cast<std::uint32_t>(now - Tick{}));
    line->run(port);
  }
  /// Lets a client's connection begin.
  void connect(unsigned n) {
    serve(packet(client(n), kServer));
    serve(packet(kServer, client(n), kSyn | kAck));
    serve(packet(client(n), kServer, kAck));
  }
  static KeyV4 key_of(unsigned n) {
    return {{client(n).address}, {kServer.address}, client(n).port, kServer.port, kProtocolTcp};
  }
  std::optional<ListedConnection> find(unsigned n) const { return line->find(AnyKey(key_of(n))); }
  bool has(unsigned n) const { return find(n).has_value(); }
  /// Returns the words of a connection.
  Words words(unsigned n) const {
    Words is{};
    const auto found = find(n);
    if (found && own_memo) std::memcpy(is.data(), found->image.data(), image_bytes);
    return is;
  }
  std::uint64_t no_place() const { return copy->counters().no_place; }

  struct Sent {
    Member to;
    MessageHead head;
    std::vector<std::byte> payload;
  };
  Forwarder forward{FunctionRun{}};
  std::optional<Memo> own_memo;
  std::size_t image_bytes = 0;  // of the memo
  std::unique_ptr<Chain> chain;
  std::unique_ptr<Line> line;
  std::unique_ptr<ShardCopy> copy;
  std::optional<CarriedLayouts> layouts;
  Member self;
  Tick now{1};
  std::vector<Sent> sent;
};

/// Two servers with copies of a shard, of which the first one is the master.
struct Two {
  Two(const std::optional<Part>& of_one, const std::optional<Part>& of_other)
      : one(1, of_one, Server::Order::first), other(2, of_other) {
    EXPECT_TRUE(one.hear(other.line->carried_parts()));
    EXPECT_TRUE(other.hear(one.line->carried_parts()));
    assign(one, other);
  }
  void assign(Server& master, Server& slave) {
    ++epoch;
    master.assign(epoch, CopyRole::master, slave.self);
    slave.assign(epoch, CopyRole::slave, master.self);
    exchange();
  }
  void exchange() {
    for (unsigned n = 0; n < 16; ++n) {
      for (Server* const from : {&one, &other}) {
        Server& to = from == &one ? other : one;
        from->now = from->now + 1;
        from->line->allow_copying(1000);
        from->copy->send(*from, from->now);
        for (const auto& message : std::exchange(from->sent, {}))
          to.copy->receive(from->self, {message.head, message.payload}, to.now);
      }
    }
  }
  void check() {
    for (Server* const of : {&one, &other}) {
      EXPECT_TRUE(of->copy->is_in_sync());
      EXPECT_EQ(of->copy->counters().malformed, 0U);
      const auto ok = of->line->check_invariants();
      EXPECT_TRUE(ok.has_value()) << ok.error().message;
    }
  }
  Server one;
  Server other;
  Epoch epoch = 0;
};

TEST(Versions, CopiesWithGrownImagesTakeConnectionsBothWays) {
  Two two(memo(1), memo(2));
  two.one.connect(0);
  two.exchange();
  EXPECT_EQ(two.other.words(0), (Words{words_of(0)[0], 0})) << "what is missing is 0";

  two.assign(two.other, two.one);
  two.other.connect(2);
  two.exchange();
  EXPECT_EQ(two.other.words(2), words_of(2));
  EXPECT_EQ(two.one.words(2), (Words{words_of(2)[0], 0})) << "the known bytes are read";

  // The older one tells that a connection has changed: the newer one keeps what it alone knows.
  two.assign(two.one, two.other);
  two.one.serve(packet(client(2), kServer, kAck | kFin));
  two.exchange();
  EXPECT_EQ(two.other.find(2)->state, two.one.find(2)->state);
  EXPECT_EQ(two.other.words(2), words_of(2));
  EXPECT_EQ(two.other.no_place() + two.one.no_place(), 0U);
  two.check();
}

TEST(Versions, CopiesTakeAllConnectionsWithoutAFunctionThatIsNotNeeded) {
  Two two(memo(2), std::nullopt);
  for (unsigned n = 0; n < 4; ++n) two.one.connect(n);
  two.exchange();
  two.assign(two.other, two.one);
  for (unsigned n = 4; n < 8; ++n) two.other.connect(n);
  two.other.serve(packet(client(2), kServer, kAck | kFin));
  two.exchange();
  for (unsigned n = 0; n < 8; ++n) {
    ASSERT_TRUE(two.one.has(n) && two.other.has(n)) << n;
    EXPECT_EQ(two.other.find(n)->state, two.one.find(n)->state);
    EXPECT_EQ(two.one.words(n), n < 4 && n % 2 == 0 ? words_of(n) : Words{}) << n;
  }
  EXPECT_EQ(two.other.no_place() + two.one.no_place(), 0U);
  two.check();
}

TEST(Versions, ACopyDoesNotTakeWhatAFunctionServesThatIsNeededAndMissing) {
  Two two(memo(2, true), std::nullopt);
  for (unsigned n = 0; n < 4; ++n) two.one.connect(n);
  two.exchange();
  for (unsigned n = 0; n < 4; ++n) EXPECT_EQ(two.other.has(n), n % 2 != 0) << n;
  EXPECT_EQ(two.other.no_place(), 2U);
  EXPECT_TRUE(two.other.copy->lacks_connections());
  two.assign(two.other, two.one);
  for (unsigned n = 4; n < 8; ++n) two.other.connect(n);
  two.exchange();
  for (unsigned n = 4; n < 8; ++n) EXPECT_TRUE(two.one.has(n)) << n;
  EXPECT_EQ(two.one.no_place(), 0U);
  EXPECT_FALSE(two.one.copy->lacks_connections());
  EXPECT_FALSE(two.other.copy->lacks_connections()) << "only a slave is asked";
  two.check();
}

TEST(Versions, ACopyReadsAGrownHead) {
  Server server(1, memo(1));
  auto parts = server.line->carried_parts();
  for (CarriedPart& part : parts)
    if (part.family >= kCarriedHead) part.image_bytes += 8;
  ASSERT_TRUE(server.hear(parts));
  server.assign(1, CopyRole::slave, Member{2});
  using Applied = ShardCopy::Records::Applied;
  const auto applied = [&](std::size_t more, std::size_t images, bool is_there) {
    const CarriedConnection<KeyV4> head{
        .entry = 4,
        .is_there = is_there ? std::uint16_t{1} : std::uint16_t{0},
        .has_reply = 1,
        .life = {.standing = Standing(ConnectionState::established, Proof::service)},
        .key = Server::key_of(6)};
    std::vector<std::byte> record(sizeof(head) + more + images, std::byte{7});
    std::memcpy(record.data(), &head, sizeof(head));
    return server.line->copied(0).apply(record);
  };
  EXPECT_EQ(applied(0, kWord, true), Applied::malformed) << "the head is too short";
  EXPECT_EQ(applied(8, 0, true), Applied::malformed);
  EXPECT_EQ(applied(8, kWord + 1, true), Applied::malformed);
  EXPECT_FALSE(server.has(6));
  EXPECT_EQ(applied(8, kWord, true), Applied::done);
  EXPECT_EQ(server.words(6), (Words{0x07070707, 0}));
  EXPECT_EQ(applied(8, kWord, false), Applied::malformed) << "what has ended has no image";
  EXPECT_EQ(applied(8, 0, false), Applied::done);
  EXPECT_FALSE(server.has(6));
}

/// Returns the layout of a process with these functions.
std::vector<CarriedPart> parts_of(std::initializer_list<Part> all) {
  std::vector<CarriedPart> parts;
  append(parts, 4, all);
  append(parts, 6, all);
  append_head<KeyV4>(parts);
  append_head<KeyV6>(parts);
  return parts;
}

TEST(Versions, OtherVersionsOfAnImageAreReadOnlyIfTheyNeedNotBe) {
  const auto own = parts_of({memo(1)});
  const auto needed = CarriedLayouts::of(parts_of({memo(1, true, 9)}), own);
  ASSERT_FALSE(needed.has_value());
  EXPECT_EQ(needed.error().function, "memo");
  EXPECT_EQ(needed.error().theirs, 9U);
  EXPECT_EQ(needed.error().ours, 1U);
  EXPECT_FALSE(CarriedLayouts::of(own, parts_of({memo(1, true, 9)})).has_value());
  const auto read = CarriedLayouts::of(parts_of({memo(1, false, 9)}), own);
  ASSERT_TRUE(read.has_value());
  std::array<std::byte, Part::kMost> bytes{};
  std::array<const std::byte*, 1> images{bytes.data()};
  const std::array<std::byte, kWord> told{std::byte{5}};
  EXPECT_TRUE(read->v4.map(told, bytes, images));
  EXPECT_EQ(images[0], nullptr) << "an image that cannot be read counts as none";
}

TEST(Versions, ImagesAreFoundByTheirNames) {
  const auto part = [](std::string_view name, std::uint16_t bytes, bool is_needed) {
    return Part{.name = name, .image_bytes = bytes, .is_needed = is_needed};
  };
  const auto ours = parts_of({part("a", 2, true), part("ours", 1, true), part("b", 3, true)});
  const auto theirs = parts_of(
      {part("b", 2, true), part("log", 1, false), part("needed", 1, true), part("a", 4, true)});
  const auto read = CarriedLayouts::of(theirs, ours);
  ASSERT_TRUE(read.has_value());
  for (const CarriedLayout& of : {read->v4, read->v6}) {
    EXPECT_EQ(of.image_bytes(), 8U);
    ASSERT_EQ(of.parts(), 3U);
    const auto mapped = [&](std::array<std::uint8_t, 8> told) {
      std::array<std::byte, Part::kMost> bytes{};
      std::array<const std::byte*, 3> images{};
      if (!of.map(std::as_bytes(std::span(told)), bytes, images)) return std::string("none");
      std::string is;
      for (std::size_t n = 0; n < 6; ++n)
        is += std::to_string(std::to_integer<int>(bytes[n])) + " ";
      EXPECT_EQ(images[0], bytes.data());
      EXPECT_EQ(images[1], nullptr);
      EXPECT_EQ(images[2], bytes.data() + 3);
      return is;
    };
    EXPECT_EQ(mapped({1, 2, 3, 0, 5, 6, 7, 8}), "5 6 0 1 2 0 ");
    EXPECT_EQ(mapped({1, 2, 3, 4, 5, 6, 7, 8}), "none");
  }
}

TEST(Versions, ALayoutThatMeansNothingIsRefused) {
  const auto own = parts_of({memo(1)});
  const auto is_nonsense = [&](const std::vector<CarriedPart>& theirs) {
    const auto read = CarriedLayouts::of(theirs, own);
    return !read && read.error().function.empty();
  };
  EXPECT_TRUE(is_nonsense({}));
  auto parts = own;
  parts[0].image_bytes = 5000;
  EXPECT_TRUE(is_nonsense(parts));
  parts.assign(3, CarriedPart{.family = 4, .image_bytes = UINT32_MAX});
  EXPECT_TRUE(is_nonsense(parts));
  for (const std::uint32_t size : {0U, 63U, 5000U, UINT32_MAX}) {
    parts = own;
    ASSERT_EQ(parts.back().family, kCarriedHead + 6);
    parts.back().image_bytes = size;
    EXPECT_TRUE(is_nonsense(parts)) << size;
  }
  parts = own;
  parts.resize(2);
  const auto first = CarriedLayouts::of(parts, own);
  ASSERT_TRUE(first.has_value()) << "the first version told no heads";
  EXPECT_EQ(first->v4.head_bytes(), 40U);
  EXPECT_EQ(first->v6.head_bytes(), 64U);
  parts.push_back({.family = 77, .image_bytes = 5000});
  EXPECT_TRUE(CarriedLayouts::of(parts, own).has_value()) << "of a family of a newer version";
}

/// Inserts bytes behind the head and behind the images of each record.
std::vector<std::byte> grown(std::span<const std::byte> records, std::size_t head,
                             std::size_t image, std::size_t more) {
  std::vector<std::byte> all;
  for (; !records.empty(); records = records.subspan(head + image)) {
    all.insert(all.end(), records.begin(), records.begin() + static_cast<std::ptrdiff_t>(head));
    all.insert(all.end(), more, std::byte{9});
    const auto images = records.subspan(head, image);
    all.insert(all.end(), images.begin(), images.end());
    all.insert(all.end(), more, std::byte{9});
  }
  return all;
}

TEST(Versions, AProcessTakesOverFromOneWithGrownImagesAndHeads) {
  const auto make = [] {
    return std::move(*make_workers(1,
                                   {.capacity = 1000,
                                    .capacity_v6 = 200,
                                    .timeouts = Timeouts::all(1'000'000),
                                    .pages = Pages::small},
                                   {.services = default_services()}, kServingEntries));
  };
  Workers from = make();
  const TrafficPlan plan{.connections = 300, .packets = 3000, .seed = 7, .midstream = true};
  millrace::serve(from, plan, [&] {
    EXPECT_TRUE(comes_true([&] { return from.line(0).counters().in.value() >= plan.packets; }));
  });
  for (const std::uint32_t more : {0U, 4U}) {
    Workers to = make();
    TakingOver taking_over(to,
                           std::make_shared<Owners>(spread_named("keyed")->create(serving_secret()),
                                                    Indirection(kServingEntries, 1), 1));
    Carrying carrying;
    for (LineCursor at; at.at != LineCursor::At::end;)
      at = from.line(0).carry(at, 10'000, carrying);
    auto parts = from.line(0).carried_parts();
    ASSERT_EQ(parts.size(), 4U);
    const auto grow = [&](auto& of, std::size_t head, std::size_t image) {
      of.changed = grown(of.changed, head, image, more);
    };
    grow(carrying.v4, sizeof(CarriedConnection<KeyV4>), parts[0].image_bytes);
    grow(carrying.v6, sizeof(CarriedConnection<KeyV6>), parts[1].image_bytes);
    for (CarriedPart& part : parts) part.image_bytes += more;
    const TakeBytes take = [&](std::span<const std::byte> bytes) {
      const auto ok = taking_over.take(bytes);
      EXPECT_TRUE(ok.has_value()) << ok.error().message;
      return ok.has_value();
    };
    EXPECT_TRUE(give_parts(parts, take) && give(0, carrying, take) && give_end(take));
    EXPECT_TRUE(taking_over.end().has_value());
    EXPECT_GT(taking_over.connections(), 200U);
    EXPECT_EQ(taking_over.connections(),
              from.line(0).report_v4().live + from.line(0).report_v6().live);
    EXPECT_EQ(taking_over.left_behind(), 0U);
  }
}

}  // namespace
}  // namespace millrace::test
