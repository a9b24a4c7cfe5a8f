// A worker's line: takes packets from a port in bursts, finds or opens their connections, lets a
// function serve the packets, and returns them to the port.
//
// The schemes (table, sharing, ageing) are chosen once, by name, when lines are made. From then on
// no call for a single packet is indirect, except for ICMP errors. The function, the port and the
// ageing scheme are called through pointers: once a burst, and for connections that begin, are
// proved or end.
//
// Which thread may call what:
//
// - `run`: the worker's thread; one thread at a time.
// - `counters`, `mailbox().post` and `wait`: other threads, at any time (mailbox.h says how).
// - The functions under *Shards that move*: the worker's thread, in `Between`; or any one thread
//   while the line is at rest.
// - The rest: the worker's thread, in a task of the mailbox; or any one thread while the line is at
//   rest. *At rest* means that neither this line nor another line over the same tables is in `run`.
//
// Invariants:
//
// 1. The function, the port and `Between` must outlive each run. During a run no other thread may
//    use the function and the port, except in a task of the mailbox or as their headers allow.
// 2. Every packet that is served gets one verdict, and goes back to the port once. Bursts, and the
//    packets in them, keep their order.
// 3. Between two bursts the line holds no guard and no id. Two bursts have been received by then
//    and have not been looked up, so packets may still be taken out of them, and connections may be
//    opened, ended or moved. Where tables are shared, no worker can reuse the ids of erased entries
//    meanwhile, so a task must be short.
// 4. Where tables are shared, only the line that opened a connection lists, carries, reviews and
//    ends it.
// 5. The line's time is the latest tick of a burst. It begins at 0 and does not go back.
//
// Errors: `make_lines` and the functions beside it return errors. Nothing on a packet's way
// throws. Tasks, `Between` and the port may throw std::bad_alloc, which leaves `run`.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "conntrack/source_counts.h"
#include "conntrack/tracker.h"
#include "core/address.h"
#include "fragments/fragment_table.h"
#include "function/function.h"
#include "line/carried.h"
#include "line/mailbox.h"
#include "measure/worker_counters.h"
#include "millrace/types.h"
#include "port/port.h"
#include "replicate/copy.h"

namespace millrace {

struct CarriedLayouts;  // carried_layout.h

/// The settings of a line, the same for all lines over the same tables.
struct LineConfig {
  std::string table = "race";
  std::string sharing = "sharded";
  std::string ageing = "wheel";
  std::size_t capacity = 1'000'000;  ///< IPv4 connections
  std::size_t capacity_v6 = 125'000;
  Timeouts timeouts;
  std::uint32_t interval_ms = 10;
  Pages pages = Pages::huge;
  Secret secret;
  /// Most half-open connections of each family, in percent of its capacity; 100: no limit. A
  /// connection is half open until a packet proves that it is real.
  unsigned half_open_percent = 100;
  /// True: in a full table, a connection that a reply proves, or that comes proved from another
  /// worker, evicts one that is worth less. Without effect where tables are shared.
  bool evicts = false;
  SourceLimit source_limit;
  /// Counts connections for `source_limit`, for all lines that share the limit. Null: `make_lines`
  /// makes the counts, if there is a limit.
  std::shared_ptr<SourceCounts> sources;
  /// The fragments of all lines that share them. Null: each line has its own, as it must if lines'
  /// times differ.
  std::shared_ptr<FragmentTable> fragments;
  bool pass_unmatched = true;  ///< unmatched packets (verdict.h) leave unchanged; false: dropped
  /// True: each burst expires all connections that are due. For simulated time, where minutes may
  /// lie between two bursts. False: a bounded number for each burst.
  bool catch_up = false;
  /// Entries of the indirection table by which connections move from worker to worker, or have a
  /// copy at another server; 0: they do neither. Without effect where tables are shared.
  unsigned shards_that_move = 0;
  bool copies = false;  ///< shards may have a copy at another server
};

/// Capacity, fill and memory of one family's tables; all numbers are 0 if nothing is tracked.
struct TableReport {
  std::size_t capacity = 0;  ///< connections promised
  std::size_t slots = 0;
  std::size_t live = 0;          ///< connections that the tables hold, of all workers
  std::size_t memory_bytes = 0;  ///< index, records, ageing, and lists of shards' connections
  Pages pages = Pages::huge;     ///< the worst kind of pages that is used
};

/// A live connection, for lists.
struct ListedConnection {
  AnyKey key;  ///< the originator's key
  /// Key of the originator's packets as they leave. If a balancer serves them, the destination is
  /// the backend, also with dsr.
  AnyKey translated;
  bool has_reply = false;  ///< there is a reply's entry, so that replies are tracked
  ConnectionState state = ConnectionState::none;
  std::uint32_t idle_ms = 0;
  std::optional<std::uint32_t> expires_ms;  ///< time until expiry if no packet arrives; none: never
  std::array<std::byte, Part::kMost> image{};  ///< written by `FunctionFor::write`
  bool is_others = false;                      ///< another server is its master, and ends it
};
/// The place of a visit among a line's connections. A visit begins at a default cursor.
struct LineCursor {
  enum class At : std::uint8_t { v4, v6, end };
  At at = At::v4;
  std::size_t id = 0;
  std::size_t ended = 0;  ///< connections that `review` has ended so far
};
/// The visitor's decision about a connection.
enum class Visit : std::uint8_t {
  leave,
  end,
  /// End the connection. During a run, if it is TCP and has a reply's entry, also send each side a
  /// RST, as far as the sequence number that this side expects next is known.
  reset,
};
using VisitConnection = std::function<Visit(const ListedConnection&)>;

class Line {
 public:
  virtual ~Line() = default;
  /// Serves the port on the calling thread until the port is at its end.
  virtual void run(Port& port) = 0;

  /// The mailbox for requests of other threads. The caller of `run` opens and closes it.
  Mailbox& mailbox() { return mailbox_; }

  /// @name Shards that move while packets flow
  /// Called by the worker's thread, in `Between::between_bursts`, or at rest. Tables must not be
  /// shared, and shards must be below `LineConfig::shards_that_move`.
  /// @{
  /// Additional work of a worker between two bursts.
  class Between {
   public:
    virtual ~Between() = default;
    /// Does that work; may take packets out of `next` and `after` (`take_out`). Called after each
    /// burst until the port is at its end. `next` is looked up next, then `after`.
    virtual void between_bursts(Burst& next, Burst& after) = 0;
  };
  /// Adds an object whose `between_bursts` `run` calls. At rest.
  void add_between(Between& between) { between_.push_back(&between); }

  /// Removes connections of a shard, at most `most` of each family, and appends those that have not
  /// expired to `parcel` (carried.h). Returns true if the shard has no connection any more.
  virtual bool pack(unsigned shard, std::size_t most, std::vector<std::byte>& parcel) = 0;
  /// Opens the connections of a shard that `from`, a line of the same combination of schemes, has
  /// packed. `from` may be in `run` meanwhile. From now on packets without an entry are served here
  /// as `from` serves them (`FunctionFor::continue_from`).
  virtual void unpack(unsigned shard, const Line& from, std::span<const std::byte> parcel) = 0;
  /// Returns those of `packets` that have no connection in this line's tables; for an ICMP error,
  /// the connection is that of the quoted packet. `packets` and the result are bits by place in the
  /// burst, which must have been parsed but not looked up.
  virtual std::uint64_t without_connection(const Burst& burst, std::uint64_t packets) const = 0;
  /// @}
  /// @name Shards that have a copy at another server, with `LineConfig::copies`
  /// Called by the worker's thread, in `Between::between_bursts` or in the port's `filed`, or at
  /// rest. Tables must not be shared, and shards do not move.
  /// @{
  /// Returns a shard's connections, for its `ShardCopy`. Valid as long as the line.
  virtual ShardCopy::Records& copied(unsigned shard) = 0;
  /// Notes the role of this server's copy of a shard. A slave's connections do not age; once it is
  /// the master, they count as seen then.
  virtual void assign(unsigned shard, CopyRole role) = 0;
  /// Sets the layout of the records that the other copy of a shard tells; null: the same as that of
  /// this line's. `theirs` must outlive the line, or the next call for the shard.
  virtual void set_layouts(unsigned shard, const CarriedLayouts* theirs) = 0;
  /// Ends connections of a shard that has no copy here any more, `most` of each family at most. No
  /// RST is sent. True if none is left.
  virtual bool give_up(unsigned shard, std::size_t most) = 0;
  /// Sets how many connections `ShardCopy::Records::tell` may look at until the next call, to tell
  /// all or to end what the other copy does not have, in all shards together.
  virtual void allow_copying(std::size_t most) = 0;
  /// From now on, or no longer, packets of connections of the shard that the other copy does not
  /// have yet are in `Burst::deferred`.
  virtual void set_deferring(unsigned shard, bool defers) = 0;
  /// Tells the function what is known of the other server.
  virtual void note_copies(const CopiesState& state) = 0;
  /// @}

  /// @name In a task of the mailbox, or at rest
  /// @{
  /// Most ids that one call of `visit` or `review` visits.
  static constexpr std::size_t kMostAtOnce = 1024;
  /// Most connections that one call of `visit` or `review` ends.
  static constexpr std::size_t kEndMost = 64;
  /// Visits some live connections that this line opened, from the cursor on: calls `visit` for
  /// each, and ends those for which `visit` says so. Returns the cursor to go on with, `At::end`
  /// after the last. A connection that lives at this line through the whole visit is shown once.
  virtual LineCursor visit(const LineCursor& from, const VisitConnection& visit) = 0;
  /// Asks the function for the `Fate` of some live connections that this line opened, from the
  /// cursor on, and ends those that do not stay. Returns the cursor as `visit` does.
  virtual LineCursor review(const LineCursor& from) = 0;
  /// Returns the live connection that has this key in one of its directions, if there is one. Where
  /// tables are shared, any worker may have opened it.
  virtual std::optional<ListedConnection> find(const AnyKey& key) const = 0;
  virtual void set_timeouts(const Timeouts& timeouts) = 0;
  /// Returns the layout of the line's records: the functions' parts, with the sizes of their
  /// images, in the order in which `carry` writes the images, IPv4's parts first; then the heads'.
  virtual std::vector<CarriedPart> carried_parts() const = 0;
  /// Looks at the next `most` ids from the cursor on, and appends to `carrying` a record for each
  /// connection that has begun, ended or changed (`Tracker::fingerprint`) since `carrying` last got
  /// its record. Returns the cursor as `visit` does.
  virtual LineCursor carry(const LineCursor& from, std::size_t most, Carrying& carrying) = 0;
  /// @}

  /// @name Taking connections over from another process, before the first run
  /// @{
  /// An image for each of the line's parts of a family, in the order of `carried_parts`; null for a
  /// part of which the other process has sent none.
  using Images = std::span<const std::byte* const>;
  /// Opens a connection of the other process in that shard. Returns its entry; none if there is no
  /// place for the connection, another connection has one of its keys, or the function refuses it.
  /// The connection's idle time is that of the record.
  virtual ConnId resume(const CarriedConnection<KeyV4>& carried, Images images, unsigned shard) = 0;
  virtual ConnId resume(const CarriedConnection<KeyV6>& carried, Images images, unsigned shard) = 0;
  /// Removes a connection that `resume` has opened, and no longer counts it as taken over.
  virtual void forget(std::type_identity<KeyV4> family, ConnId id) = 0;
  virtual void forget(std::type_identity<KeyV6> family, ConnId id) = 0;
  /// @}

  /// Returns the line's counters. Any thread may read each counter at any time; only at rest do
  /// their sums agree.
  virtual const WorkerCounters& counters() const = 0;
  /// @name In a task of the mailbox, or at rest
  /// @{
  virtual TableReport report_v4() const = 0;
  virtual TableReport report_v6() const = 0;
  /// Returns the line's fragments, which it may share with other lines.
  virtual const FragmentTable& fragments() const = 0;
  /// Numbers of live connections that this line opened.
  struct Live {
    std::size_t v4 = 0;
    std::size_t v6 = 0;
  };
  virtual Live live() const = 0;
  /// Checks all entries of the tables, for tests; at rest. Errors: the first rule that is broken.
  virtual Result<void> check_invariants() const = 0;
  /// @}

 protected:
  void do_between(Burst& next, Burst& after) {
    for (Between* const between : between_) between->between_bursts(next, after);
  }

 private:
  Mailbox mailbox_;
  std::vector<Between*> between_;
};

using Lines = std::vector<std::unique_ptr<Line>>;

/// Makes a line for each function, all over the same tables. `functions` must be alike and outlive
/// the lines; there may be several only if the sharing scheme shares tables. Errors: as
/// `check_schemes`; several functions without shared tables, or functions that keep more than
/// `Part::kMost` bytes (usage); no memory (failed).
Result<Lines> make_lines(const LineConfig& config, std::span<Function* const> functions);
/// Makes one line over tables of its own. Errors: as `make_lines`.
Result<std::unique_ptr<Line>> make_line(const LineConfig& config, Function& function);

/// Makes the counts of connections by source that all lines with this configuration share; null if
/// the configuration has no such limit. Errors (failed): no memory.
Result<std::shared_ptr<SourceCounts>> make_source_counts(const LineConfig& config);

/// Checks the names of schemes. Errors (usage): a scheme that does not exist, or a table and a
/// sharing scheme that do not go together; the error names those that do.
Result<void> check_schemes(const LineConfig& config);

/// Returns true if all workers use the same tables under the sharing scheme of that name.
bool shares_tables(std::string_view sharing);
/// Returns the names of the tables that go with the sharing scheme of that name.
std::vector<std::string> tables_for(std::string_view sharing);

}  // namespace millrace
