// A worker's line: the way of a packet, from port to port, on one core.
//
// A line is made once, from names; from then on nothing is chosen for a packet. Its function, port
// and ageing scheme are called once a burst, and for connections that begin or end.
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
#include "function/function.h"
#include "line/carried.h"
#include "line/mailbox.h"
#include "measure/worker_counters.h"
#include "millrace/types.h"
#include "port/port.h"

namespace millrace {

/// What lines over the same tables are told.
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
  /// Connections that nothing has proved to be real yet, of each family, as a share of its
  /// capacity.
  unsigned half_open_percent = 100;
  /// A connection that a reply proves finds room in a full table at the cost of one that would be
  /// missed less.
  bool evicts = false;
  SourceLimit source_limit;
  /// What counts for that limit, for all lines that it holds for together. None: made with the
  /// line, where there is a limit.
  std::shared_ptr<SourceCounts> sources;
  bool pass_unmatched = true;  ///< packets that concern no service go out untouched
  /// Housekeeping catches up before every burst, whatever it takes: for simulated time, where a
  /// burst may follow minutes after the last one.
  bool catch_up = false;
  /// Entries of the indirection table by which connections move from worker to worker. 0: they
  /// never move.
  unsigned shards_that_move = 0;
};

/// What one family's tables hold and cost; all 0 where nothing is tracked.
struct TableReport {
  std::size_t capacity = 0;  ///< connections promised
  std::size_t slots = 0;
  std::size_t live = 0;
  std::size_t memory_bytes = 0;  ///< both directions' entries, index, records and ageing
  Pages pages = Pages::huge;     ///< the worst kind among them
};

/// A live connection, for lists.
struct ListedConnection {
  AnyKey key;              ///< the originator's
  AnyKey translated;       ///< as its packets leave; its destination is the backend, also with dsr
  bool has_reply = false;  ///< an entry, so that replies are translated
  ConnectionState state = ConnectionState::none;
  std::uint32_t idle_ms = 0;
  std::optional<std::uint32_t> expires_ms;     ///< from now on, without packets; none: never
  std::array<std::byte, Part::kMost> image{};  ///< what `FunctionFor::write` says about it
};
/// Where a look at a line's connections stands.
struct LineCursor {
  enum class At : std::uint8_t { v4, v6, end };
  At at = At::v4;
  std::size_t id = 0;
};
/// What to do with a connection that is looked at.
enum class Look : std::uint8_t {
  leave,
  end,
  reset,  ///< end it, and send both ends a RST, if it is TCP whose replies come this way
};
using LookAtConnection = std::function<Look(const ListedConnection&)>;

class Line {
 public:
  virtual ~Line() = default;
  /// Runs on the calling thread until the port is at its end. `function` and `port` are the line's
  /// alone meanwhile.
  virtual void run(Port& port) = 0;

  /// By which other threads ask; the worker opens and closes it.
  Mailbox& mailbox() { return mailbox_; }

  /// @name Shards that move while packets flow
  /// @{
  /// What else a worker does between two bursts.
  class Between {
   public:
    virtual ~Between() = default;
    /// `next` is looked up next, and `after` behind it; packets may be taken out of both.
    virtual void between_bursts(Burst& next, Burst& after) = 0;
  };
  /// To be called at rest; `between` outlives each run. Null: nothing.
  void set_between(Between* between) { between_ = between; }

  /// Removes some connections of a shard, at most `most` of each family, and appends them to
  /// `parcel` (carried.h). True: none is left. Between two bursts.
  virtual bool pack(unsigned shard, std::size_t most, std::vector<std::byte>& parcel) = 0;
  /// Opens the connections of a shard that `from`, a line of the same combination, has packed. What
  /// `from` served without an entry goes on here. Between two bursts.
  virtual void unpack(unsigned shard, const Line& from, std::span<const std::byte> parcel) = 0;
  /// Returns which of those packets have no connection here, or are errors about one that is not
  /// here; a bit each. The burst has not been looked up.
  virtual std::uint64_t without_connection(const Burst& burst, std::uint64_t packets) const = 0;
  /// @}
  /// @name For a task in the mailbox, or at rest
  /// @{
  /// Places that one look has eyes for; and connections that it ends, at most.
  static constexpr std::size_t kLookMost = 4096;
  static constexpr std::size_t kEndMost = 256;
  /// Shows some connections that this line opened, and still has, from there on, and ends those
  /// for which `look` says so. One that lives throughout is shown once.
  virtual LineCursor look(const LineCursor& from, const LookAtConnection& look) = 0;
  /// Asks the function for the `Fate` of some connections that this line opened, from there on, and
  /// ends them accordingly. `At::end` is where there are no more.
  virtual LineCursor review(const LineCursor& from) = 0;
  /// The connection that has that key, in either direction.
  virtual std::optional<ListedConnection> find(const AnyKey& key) const = 0;
  virtual void set_timeouts(const Timeouts& timeouts) = 0;
  /// Which parts the images have that `carry` writes, in their order.
  virtual std::vector<CarriedPart> carried_parts() const = 0;
  /// Tells what has changed in `most` more places, from there on, since they were last told.
  virtual LineCursor carry(const LineCursor& from, std::size_t most, Carrying& carrying) = 0;
  /// @}

  /// @name Taking connections over from another process, before the first run
  /// @{
  /// For an image of each of the line's own parts, in the order of `carried_parts`; null where
  /// there is none.
  using Images = std::span<const std::byte* const>;
  /// Opens one; its entry, none where it has no place, or the function does not serve it. Ticks
  /// begin at 0: it is idle no longer than it was there.
  virtual ConnId resume(const CarriedConnection<KeyV4>& carried, Images images, unsigned shard) = 0;
  virtual ConnId resume(const CarriedConnection<KeyV6>& carried, Images images, unsigned shard) = 0;
  /// As if it had not been opened.
  virtual void forget(std::type_identity<KeyV4> family, ConnId id) = 0;
  virtual void forget(std::type_identity<KeyV6> family, ConnId id) = 0;
  /// @}

  virtual const WorkerCounters& counters() const = 0;
  /// @name At rest
  /// @{
  virtual TableReport report_v4() const = 0;
  virtual TableReport report_v6() const = 0;
  /// Live connections that this line opened.
  struct Live {
    std::size_t v4 = 0;
    std::size_t v6 = 0;
  };
  virtual Live live() const = 0;
  /// Reads every structure whole; for tests.
  virtual Result<void> check_invariants() const = 0;
  /// @}

 protected:
  void do_between(Burst& next, Burst& after) {
    if (between_ != nullptr) between_->between_bursts(next, after);
  }

 private:
  Mailbox mailbox_;
  Between* between_ = nullptr;
};

using Lines = std::vector<std::unique_ptr<Line>>;

/// The lines of that combination, one for each function, over the same tables: one alone where the
/// sharing scheme shares nothing. Errors: as `check_schemes`; no memory (failed).
Result<Lines> make_lines(const LineConfig& config, std::span<Function* const> functions);
Result<std::unique_ptr<Line>> make_line(const LineConfig& config, Function& function);

/// What all lines of such a configuration count sources in; none where they have no limit. Errors
/// (failed): no memory.
Result<std::shared_ptr<SourceCounts>> make_source_counts(const LineConfig& config);

/// The error names the scheme that is not there, and what is; or a table and a sharing scheme that
/// do not go together, and what does.
Result<void> check_schemes(const LineConfig& config);

/// Whether all workers use the same tables under the sharing scheme of that name.
bool shares_tables(std::string_view sharing);
/// The tables that it goes with, by name.
std::vector<std::string> tables_for(std::string_view sharing);

}  // namespace millrace
