// Moves of shards between simulated workers: rings with much and with little room, bursts of 0 to 6
// packets, workers that work in random order and stop for a while. Every packet must be served in
// order at the worker that has its connection, unless a ring is full.
#include "shard/moving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/test_seed.h"

namespace millrace {
namespace {

/// A mistake that is planted in the simulation.
enum class Mistake : std::uint8_t {
  none,
  holds_nothing,     // the taker serves packets that arrived too early
  serves_unknown,    // the giver opens connections that it has packed
  marks_at_once,     // a marker overtakes packets of the burst that it came with
  leaves_in_flight,  // the giver serves packets that it had received when the shard changed hands
};

constexpr unsigned kShards = 128;
/// Bytes of a connection in a parcel: a few connections fill a parcel.
constexpr std::size_t kRecord = ShardMoves::kFull / 4;

struct Packet {
  std::uint32_t flow = 0;  // a direction of a connection
  std::uint32_t number = 0;
};

struct Item {  // an element of a ring
  Packet packet;
  MoveMessage* message = nullptr;
};

class World;

class Worker final : public MovingWorker {
 public:
  Worker(World& world, ShardMoves& moves, unsigned number);

  void step();
  bool is_empty() const;

  bool send(unsigned to, MoveMessage& message) override;
  bool pack(unsigned shard, std::vector<std::byte>& parcel) override;
  void unpack(unsigned shard, unsigned from, std::span<const std::byte> parcel) override;
  std::uint64_t without_connection(unsigned shard) const override;
  void pass_on(std::uint64_t packets, unsigned to) override;
  void drop(std::uint64_t packets) override;
  void pass_on_all(unsigned shard, unsigned to) override;

 private:
  struct Came {
    Packet packet;
    unsigned from;
    bool is_released;
  };
  void receive();
  void file();
  void serve(std::vector<Packet>& burst);
  bool has_room(unsigned to) const;
  void push(const Packet& packet, unsigned to);
  template <class With>
  void withdraw(std::uint64_t packets, With&& with);

  World& world_;
  unsigned number_;
  ShardsOfWorker shards_;
  std::vector<Came> come_;
  std::vector<MoveMessage*> messages_;
  std::array<std::vector<Packet>, 3> bursts_;
};

/// Connections with the workers that have them, and the rings between workers.
class World {
 public:
  World(std::uint64_t seed, unsigned workers, unsigned connections, std::size_t ring,
        Mistake planted = Mistake::none)
      : random(seed),
        mistake(planted),
        ring_most(ring),
        moves(Indirection(kShards, workers), workers) {
    rings.resize(std::size_t{workers} * workers);
    is_stopped.resize(workers);
    connection_.assign(connections, kNowhere);
    flow_.resize(std::size_t{2} * connections);
    for (Flow& flow : flow_) flow.queue = below(workers);
    of_shard.resize(kShards);
    for (unsigned n = 0; n < workers; ++n)
      all_.push_back(std::make_unique<Worker>(*this, moves, n));
  }

  unsigned below(unsigned most) { return static_cast<unsigned>(random() % most); }
  unsigned shard_of(std::uint32_t connection) const { return connection % shards_used(); }
  unsigned shards_used() const {
    return std::min<unsigned>(kShards, static_cast<unsigned>(connection_.size() + 3) / 4);
  }
  std::deque<Item>& ring(unsigned from, unsigned to) { return rings[from * all_.size() + to]; }
  std::size_t room(unsigned from, unsigned to) { return ring_most - ring(from, to).size(); }

  /// Runs until `moves_wanted` moves are done. Returns what went wrong; empty if nothing did.
  std::string run(std::uint64_t moves_wanted) {
    while (wrong.empty() && (done < moves_wanted || moves.is_under_way())) {
      if (!moves.is_under_way()) {
        const unsigned shard = below(shards_used());
        unsigned to = below(workers());
        if (to == moves.worker_of(shard)) to = (to + 1) % workers();
        moves.begin(shard, to);
        ++done;
      }
      step();
    }
    is_ending_ = true;
    for (unsigned n = 0; wrong.empty() && n < 100'000; ++n) step();
    if (wrong.empty() && served + dropped != sent)
      wrong = "all " + std::to_string(sent) +
              " packets must be served or dropped: " + std::to_string(served) + " were served, " +
              std::to_string(dropped) + " dropped";
    return wrong;
  }

  /// Begins a move between the two workers, and ends both in the midst of it. Returns the number of
  /// connections in parcels at that time, and their number after `ShardMoves::end`.
  std::pair<std::ptrdiff_t, std::ptrdiff_t> end_while_moving() {
    const auto on_their_way = [this] { return std::ranges::count(connection_, kInParcel); };
    moves.begin(0, 1 - moves.worker_of(0));
    for (unsigned n = 0; on_their_way() == 0 && n < 100'000; ++n) step();
    const auto before = on_their_way();
    moves.end([this](unsigned shard, unsigned from, unsigned to,
                     std::span<const std::byte> parcel) { all_[to]->unpack(shard, from, parcel); });
    return {before, on_their_way()};
  }

  unsigned workers() const { return static_cast<unsigned>(all_.size()); }

  /// Returns a packet that a device delivers to this worker; none: no packet is there.
  std::optional<Packet> arrive(unsigned worker) {
    if (is_ending_) return std::nullopt;
    const unsigned flow = below(static_cast<unsigned>(flow_.size()));
    if (flow_[flow].queue != worker) return std::nullopt;
    ++sent;
    return Packet{flow, ++flow_[flow].sent};
  }
  void drop() { ++dropped; }
  bool has(unsigned worker, std::uint32_t flow) const { return connection_[flow / 2] == worker; }

  void serve(unsigned worker, const Packet& packet) {
    const std::uint32_t connection = packet.flow / 2;
    std::uint32_t& at = connection_[connection];
    if (at == kNowhere) {
      at = worker;
      of_shard[shard_of(connection)].push_back(connection);
    }
    if (at != worker) {
      fail("connection " + std::to_string(connection) + " is not at worker " +
           std::to_string(worker) + ", which serves its packet, but at " + std::to_string(at));
    }
    Flow& flow = flow_[packet.flow];
    if (packet.number <= flow.served) {
      fail("packet " + std::to_string(packet.number) + " of flow " + std::to_string(packet.flow) +
           " is served after packet " + std::to_string(flow.served));
    }
    flow.served = packet.number;
    ++served;
    if (below(64) == 0) {  // the connection ends
      at = kNowhere;
      std::erase(of_shard[shard_of(connection)], connection);
    }
  }

  /// Moves a connection from `from` to `to`. Fails the test if the connection is not at `from`.
  void carry(std::uint32_t connection, std::uint32_t from, std::uint32_t to) {
    if (connection_[connection] != from)
      fail("connection " + std::to_string(connection) +
           " is to be moved, and is not where it should be");
    connection_[connection] = to;
  }
  void fail(const std::string& what) {
    if (wrong.empty()) wrong = what;
  }

  static constexpr std::uint32_t kNowhere = UINT32_MAX;
  static constexpr std::uint32_t kInParcel = UINT32_MAX - 1;

  std::mt19937_64 random;
  Mistake mistake;
  std::size_t ring_most;
  ShardMoves moves;
  std::vector<std::vector<std::uint32_t>> of_shard;  // by shard: its connections, wherever they are
  std::uint64_t done = 0;
  std::uint64_t served = 0;
  std::uint64_t dropped = 0;
  std::uint64_t sent = 0;
  std::string wrong;

 private:
  struct Flow {
    unsigned queue = 0;  // the worker that receives the flow's packets
    std::uint32_t sent = 0;
    std::uint32_t served = 0;  // number of the latest packet served
  };

  void step() {
    const unsigned n = below(workers());
    if (is_stopped[n] > 0) {
      --is_stopped[n];
      return;
    }
    if (!is_ending_ && below(200) == 0) is_stopped[n] = below(60);
    all_[n]->step();
  }

  std::vector<std::deque<Item>> rings;
  std::vector<unsigned> is_stopped;  // by worker: steps in which it does nothing
  std::vector<std::uint32_t> connection_;
  std::vector<Flow> flow_;
  std::vector<std::unique_ptr<Worker>> all_;
  bool is_ending_ = false;
};

Worker::Worker(World& world, ShardMoves& moves, unsigned number)
    : world_(world), number_(number), shards_(moves, *this, number) {}

bool Worker::has_room(unsigned to) const { return world_.room(number_, to) > 0; }

bool Worker::send(unsigned to, MoveMessage& message) {
  if (!has_room(to)) return false;
  world_.ring(number_, to).push_back({{}, &message});
  return true;
}

bool Worker::pack(unsigned shard, std::vector<std::byte>& parcel) {
  const auto& there = world_.of_shard[shard];
  unsigned left = world_.below(4);
  for (const std::uint32_t connection : there) {
    if (!world_.has(number_, 2 * connection)) continue;
    if (left == 0) return false;
    --left;
    world_.carry(connection, number_, World::kInParcel);
    parcel.resize(parcel.size() + kRecord);
    std::memcpy(&parcel[parcel.size() - kRecord], &connection, sizeof(connection));
  }
  return true;
}

void Worker::unpack(unsigned, unsigned, std::span<const std::byte> parcel) {
  for (; !parcel.empty(); parcel = parcel.subspan(kRecord)) {
    std::uint32_t connection = 0;
    std::memcpy(&connection, parcel.data(), sizeof(connection));
    world_.carry(connection, World::kInParcel, number_);
  }
}

void Worker::push(const Packet& packet, unsigned to) {
  if (has_room(to)) {
    world_.ring(number_, to).push_back({packet, nullptr});
  } else {
    world_.drop();
  }
}

std::uint64_t Worker::without_connection(unsigned shard) const {
  std::uint64_t without = 0;
  if (world_.mistake == Mistake::serves_unknown) return without;
  for (std::size_t i = 0; i < bursts_[2].size(); ++i) {
    const std::uint32_t flow = bursts_[2][i].flow;
    if (world_.shard_of(flow / 2) == shard && !world_.has(number_, flow))
      without |= std::uint64_t{1} << i;
  }
  return without;
}

template <class With>
void Worker::withdraw(std::uint64_t packets, With&& with) {
  std::vector<Packet> left;
  for (std::size_t i = 0; i < bursts_[2].size(); ++i) {
    if ((packets >> i & 1) != 0) {
      with(bursts_[2][i]);
    } else {
      left.push_back(bursts_[2][i]);
    }
  }
  bursts_[2] = left;
}

void Worker::pass_on(std::uint64_t packets, unsigned to) {
  withdraw(packets, [&](const Packet& packet) { push(packet, to); });
}

void Worker::drop(std::uint64_t packets) {
  withdraw(packets, [&](const Packet&) { world_.drop(); });
}

void Worker::pass_on_all(unsigned shard, unsigned to) {
  if (world_.mistake == Mistake::leaves_in_flight) return;
  for (auto* const burst : {&bursts_[2], &bursts_[1]}) {
    std::erase_if(*burst, [&](const Packet& packet) {
      const bool goes = world_.shard_of(packet.flow / 2) == shard;
      if (goes) push(packet, to);
      return goes;
    });
  }
}

void Worker::receive() {
  come_.clear();
  constexpr unsigned kMost = 6;
  while (shards_.has_released() && come_.size() < kMost) {
    const Handle handle = shards_.release();
    come_.push_back({{static_cast<std::uint32_t>(handle >> 32), static_cast<std::uint32_t>(handle)},
                     number_,
                     true});
  }
  const unsigned first = world_.below(world_.workers());
  for (unsigned n = 0; n < world_.workers(); ++n) {
    const unsigned from = (first + n) % world_.workers();
    auto& ring = world_.ring(from, number_);
    for (unsigned left = world_.below(4); left > 0 && !ring.empty() && come_.size() < kMost;
         --left) {
      const Item item = ring.front();
      ring.pop_front();
      if (item.message == nullptr) {
        come_.push_back({item.packet, from, false});
      } else if (world_.mistake == Mistake::marks_at_once) {
        shards_.begin_burst();
        shards_.receive(*item.message);
        shards_.between_bursts();
      } else {
        shards_.receive(*item.message);
      }
    }
  }
  for (unsigned left = world_.below(4); left > 0 && come_.size() < kMost; --left) {
    if (const auto packet = world_.arrive(number_)) come_.push_back({*packet, number_, false});
  }
}

void Worker::file() {
  bursts_[0].clear();
  shards_.begin_burst();
  for (const Came& one : come_) {
    ShardsOfWorker::Way way{number_, false};
    if (!one.is_released) way = shards_.way_of(world_.shard_of(one.packet.flow / 2), one.from);
    if (world_.mistake == Mistake::holds_nothing) way.holds = false;
    if (way.worker != number_) {
      push(one.packet, way.worker);
    } else if (!way.holds) {
      bursts_[0].push_back(one.packet);
    } else if (!shards_.hold(Handle{one.packet.flow} << 32 | one.packet.number, one.from)) {
      world_.drop();
    }
  }
}

void Worker::serve(std::vector<Packet>& burst) {
  for (const Packet& packet : burst) world_.serve(number_, packet);
  burst.clear();
}

void Worker::step() {
  receive();
  file();
  serve(bursts_[2]);
  std::ranges::rotate(bursts_, bursts_.end() - 1);
  shards_.between_bursts();
}

constexpr std::size_t kRoomyRing = 100'000;
constexpr std::size_t kTightRing = 24;

TEST(Moving, NothingIsLostDoubledOrOutOfOrder) {
  SCOPED_TRACE(test::repeat());
  for (unsigned workers = 2; workers <= 5; ++workers) {
    for (const unsigned connections : {1U, 8U, 100U}) {
      World world(test::seed() + workers, workers, connections, kRoomyRing);
      EXPECT_EQ(world.run(3'000), "") << workers << " workers, " << connections << " connections";
      EXPECT_EQ(world.dropped, 0U) << workers << " workers, " << connections << " connections";
    }
  }
}

TEST(Moving, WhereRingsAreFullOnlyPacketsAreLost) {
  SCOPED_TRACE(test::repeat());
  std::uint64_t dropped = 0;  // with some numbers of workers, rings need never be full
  for (unsigned workers = 2; workers <= 5; ++workers) {
    World world(test::seed() + workers, workers, 20, kTightRing);
    EXPECT_EQ(world.run(3'000), "") << workers << " workers";
    dropped += world.dropped;
  }
  EXPECT_GT(dropped, 0U);
}

TEST(Moving, NoConnectionIsLostWhereWorkersEnd) {
  SCOPED_TRACE(test::repeat());
  World world(test::seed(), 2, 100, kRoomyRing);
  ASSERT_EQ(world.run(100), "");
  const auto [before, after] = world.end_while_moving();
  EXPECT_GT(before, 0);
  EXPECT_EQ(after, 0);
  EXPECT_EQ(world.wrong, "");
}

TEST(Moving, MistakesAreFound) {
  SCOPED_TRACE(test::repeat());
  for (const Mistake mistake : {Mistake::holds_nothing, Mistake::serves_unknown,
                                Mistake::marks_at_once, Mistake::leaves_in_flight}) {
    World world(test::seed(), 3, 20, kRoomyRing, mistake);
    EXPECT_NE(world.run(20'000), "") << "mistake " << static_cast<unsigned>(mistake);
  }
}

}  // namespace
}  // namespace millrace
