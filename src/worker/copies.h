// Copies of all connections at another server: each worker tells the other server what its
// connections do, and takes over what that one tells (src/replicate).
//
// A message is for a shard, and each shard belongs to a worker. A datagram carries messages of
// several shards. The worker that receives it gives its own shards their messages, and passes it
// on to the workers that have the others: each of them opens the datagram for itself. Messages that
// find no worker, or come too late, come again.
//
// `Copies` may be used by any thread, `WorkersCopies` by its worker's alone.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/counter.h"
#include "line/line.h"
#include "millrace/types.h"
#include "replicate/copy.h"
#include "replicate/pair.h"
#include "replicate/seal.h"
#include "shard/owners.h"

namespace millrace {

/// Counters of copies. Each worker has its own.
struct alignas(64) CopiesCounters {
  Counter datagrams_in;  ///< from the other server, opened
  Counter datagrams_out;
  Counter applied;    ///< records of the other server
  Counter old_epoch;  ///< messages of an older assignment
  Counter no_place;   ///< connections of the other server that found no place here
  Counter malformed;  ///< messages or records that mean nothing
  Counter stranger;   ///< messages of a process that has no copy
  Counter anew;       ///< times that a shard was told anew, as the other server was too far behind
  Counter foreign;    ///< datagrams that no server with the same key has sealed
  Counter misled;     ///< datagrams that were sealed for another process
  Counter replayed;   ///< datagrams that came before
  Counter version;    ///< datagrams of another version
};

/// Names of the counters in statistics.
struct CopiesCounterKind {
  const char* name;
  Counter CopiesCounters::* counter;
};
inline constexpr std::array kCopiesCounterKinds{
    CopiesCounterKind{"datagrams_in", &CopiesCounters::datagrams_in},
    CopiesCounterKind{"datagrams_out", &CopiesCounters::datagrams_out},
    CopiesCounterKind{"applied", &CopiesCounters::applied},
    CopiesCounterKind{"no_place", &CopiesCounters::no_place},
    CopiesCounterKind{"anew", &CopiesCounters::anew},
    CopiesCounterKind{"old_epoch", &CopiesCounters::old_epoch},
    CopiesCounterKind{"stranger", &CopiesCounters::stranger},
    CopiesCounterKind{"malformed", &CopiesCounters::malformed},
    CopiesCounterKind{"foreign", &CopiesCounters::foreign},
    CopiesCounterKind{"misled", &CopiesCounters::misled},
    CopiesCounterKind{"replayed", &CopiesCounters::replayed},
    CopiesCounterKind{"version", &CopiesCounters::version}};

/// The state that all workers of a server have in common.
class Copies {
 public:
  /// Returns the secret by which connections are spread over shards, which both servers must share.
  /// Errors (failed): the library for encryption does not work.
  static Result<Secret> spread_secret(const ClusterKey& key);
  /// Returns the digest of what both servers must have in common: the parts of connections, and
  /// what the function says of its settings (`FunctionSettings::agreement`).
  static std::uint32_t agreement(std::span<const CarriedPart> parts, std::string_view function);

  struct Settings {
    unsigned number = 1;  ///< this server's, 1 or 2
    ClusterKey key{};
    std::uint32_t agreement = 0;  ///< `PairSettings::agreement`
    bool is_active = false;       ///< at first
    bool has_settled = false;     ///< the process from which this one takes over had
  };
  Copies(const Settings& settings, unsigned workers, std::shared_ptr<const Owners> owners);

  /// @name For requests
  /// @{
  void set_active(bool is_active);
  bool is_active() const { return is_active_.load(std::memory_order_acquire); }
  /// Does what `Pair::set_gone` does.
  bool set_gone();
  void set_agreement(std::uint32_t agreement);
  struct Status {
    Assignment assignment;
    bool is_active = false;
    bool is_in_sync = false;
    bool has_settled = false;
    bool hears_other = false;
    std::optional<Hello> other;  ///< its latest hello
    std::string disagreement;    ///< why nothing is copied; empty: nothing differs
    unsigned shards = 0;
    unsigned shards_in_sync = 0;
  };
  Status status() const;
  /// Returns the sums over all workers so far of the counter.
  std::uint64_t count(Counter CopiesCounters::* counter) const;
  /// @}

  unsigned number() const { return settings_.number; }

 private:
  friend class WorkersCopies;
  struct alignas(64) OfWorker {
    std::atomic<std::uint32_t> in_sync = 0;  ///< shards
    CopiesCounters counters;
  };

  Tick now() const;
  /// Does something with the pair, and notes what has changed.
  template <class Act>
  auto with_pair(Act&& act);
  void hear(Member from, Epoch epoch, const Hello& hello);
  void note_in_sync();

  Settings settings_;
  Member self_;
  std::shared_ptr<const Owners> owners_;
  std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;
  Pair pair_;
  std::atomic<bool> is_active_;
  std::atomic<std::uint64_t> changes_ = 1;  // of the pair's assignment, and of what has settled
  std::atomic<std::uint64_t> greeted_ = 0;  // the process of a server that has asked who is there
  std::vector<OfWorker> workers_;
};

/// One worker's part.
class WorkersCopies final : public Line::Between, private ShardCopy::Outbox {
 public:
  /// The way of datagrams to the other server.
  class Way {
   public:
    virtual ~Way() = default;
    /// Sends a datagram of `kMostDatagram` bytes at most.
    virtual void send_to_other(std::span<const std::byte> datagram) = 0;
  };
  static constexpr std::size_t kMostDatagram = 1400;
  static constexpr unsigned kMostWorkers = 128;
  using OtherWorkers = std::bitset<kMostWorkers>;

  /// `copies`, `line` and `way` must outlive the object.
  WorkersCopies(Copies& copies, unsigned worker, Line& line, Way& way);

  /// Takes a datagram from the other server's address, between two bursts. Returns the workers to
  /// pass it to; `is_passed`: another worker has passed it here.
  OtherWorkers take(std::span<const std::byte> datagram, bool is_passed, Tick now);

  void between_bursts(Burst& next, Burst& after) override;

 private:
  void send(Member to, const MessageHead& head, std::span<const std::byte> payload) override;
  void flush();
  void adopt(Tick now);
  void greet(Tick now);
  void say_hello(Member to);
  std::optional<std::span<const std::byte>> open(std::span<const std::byte> datagram,
                                                 const SealedFor& ends, Tick now);
  void hear(const SealedFor& ends, const Message& message);
  void look_through(Tick now);
  void tell_all(Tick now);
  void send_of(unsigned shard, Tick now);
  void count();

  Copies* copies_;
  unsigned worker_;
  Line* line_;
  Way* way_;
  CopiesCounters* counters_;
  std::vector<std::unique_ptr<ShardCopy>> shards_;  // by shard; null: another worker's
  std::vector<std::uint16_t> own_;                  // this worker's shards
  std::vector<std::uint16_t> due_;  // shards with something to send; may name one twice
  std::optional<Sealer> sealer_;
  Opener opener_;
  Opener open_to_all_;  // for hellos to any process
  Member other_ = Member::none;
  std::uint64_t seen_ = 0;  // `changes_` of the assignment that the copies have
  bool is_settled_ = false;
  CopiesState state_{.has_settled = false, .both_are_new = false, .is_sure = false};
  std::vector<std::byte> batch_;  // messages that wait for a datagram
  Member batch_to_ = Member::none;
  std::vector<std::byte> sealed_;
  std::size_t telling_ = 0;    // place in `own_` of the shard all of which is told next
  std::size_t looked_at_ = 0;  // place in `own_` from which the next shards are looked at
  std::uint32_t in_sync_ = 0;  // shards in sync, of those below `looked_at_`
  unsigned busy_bursts_ = 0;
  Tick last_{};
  Tick hello_at_{};
  Tick tried_at_{};  // when a datagram of an unknown process was last opened
  unsigned tries_ = 0;
  CopiesCounters told_{};  // what `count` has counted of the copies and the opener
};

}  // namespace millrace
