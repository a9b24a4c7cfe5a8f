// One of a shard's two copies, at the worker that has it: what it tells the other copy, what it
// takes from it, and which of its grants of ports it may use. After Krononat (ATC 2018), section
// 3.5, with numbers of assignments that make late messages harmless.
//
// Both copies have a stream to the other one. The master tells all connections of the shard; the
// slave tells those that it has opened by itself, when packets came to it. Both tell their grants.
// A stream begins with all that there is (unless the copies have just changed their roles and know
// that they agree), and goes on with what changes.
//
// Rules, whatever is lost, doubled, late or cut off:
//
// 1. A grant is in one hand: the store gives it to one member. A copy opens connections with a
//    grant only once the other copy has the grant on record.
// 2. A message of another epoch than the copy's own changes nothing. A copy that has seen a newer
//    epoch tells nothing more (`is_deposed`).
// 3. A record is acknowledged when it is applied, not before.
// 4. A port that a connection used goes to another customer only once the other copy knows of the
//    connection's end (`is_known`), and while no member of an earlier assignment may still have the
//    connection (`is_settled`). The caller sees to that.
// 5. A copy that gets a grant knows the connections that use it: a master hands the grant back once
//    the slave has applied all of them (`handed_back`).
// 6. The master is in sync once the slave has applied all that there was when the stream began,
//    and unless the slave has been silent since for `kStalled`.
//
// There is no clock, socket or thread here. One thread, the worker's, uses a copy.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/types.h"
#include "replicate/message.h"
#include "replicate/stream.h"

namespace millrace {

enum class CopyRole : std::uint8_t { none, master, slave };
/// Returns the role's name in statistics.
constexpr std::string_view to_string(CopyRole role) {
  return role == CopyRole::master ? "master" : role == CopyRole::slave ? "slave" : "none";
}

/// The store's word on a shard's copies.
struct Assignment {
  Epoch epoch = 0;
  CopyRole role = CopyRole::none;  ///< this copy's role
  Member other = Member::none;     ///< the other copy's member; none: there is no other copy
  /// True if each member that had a role in an earlier assignment follows this one or is known to
  /// be gone. Until then it may go on as before, if it is cut off.
  bool is_settled = false;
};

class ShardCopy {
 public:
  /// Ticks of silence after which the other copy is out of sync, and is told everything anew once
  /// it answers.
  static constexpr std::int32_t kStalled = 1000;

  /// The worker's connections of the shard.
  class Records {
   public:
    virtual ~Records() = default;
    /// Tells the other copy (`ShardCopy::tell`) what has changed and what `tell_all` has left to
    /// be told, as long as `has_room`. A slave tells only the connections that it has opened by
    /// itself since it was told everything. Returns true if nothing is left.
    virtual bool tell(ShardCopy& copy, Tick now) = 0;
    /// All connections are to be told, also those that were told before.
    virtual void tell_all() = 0;
    /// Connections that are not worth telling yet are to be told, too: those that there are now.
    virtual void tell_unproved() = 0;
    /// The other copy goes on from what this one had told as the master: both have the same.
    virtual void goes_on() = 0;
    /// The other copy begins to tell all its connections, ...
    virtual void begin_all() = 0;
    /// ... and has told all: those that it had told earlier, and has not told again, are gone.
    virtual void end_all() = 0;
    enum class Applied : std::uint8_t {
      done,
      no_place,   ///< there is no room here, or the function refuses the connection
      malformed,  ///< the record means nothing
    };
    /// Takes a record of the other copy over. If it is `malformed`, nothing has changed; if it had
    /// `no_place`, the connection is not here.
    virtual Applied apply(std::span<const std::byte> record) = 0;
  };

  /// Takes the messages that leave.
  class Outbox {
   public:
    virtual ~Outbox() = default;
    virtual void send(Member to, const MessageHead& head, std::span<const std::byte> payload) = 0;
  };

  struct Counters {
    std::uint64_t applied = 0;    ///< records of connections that have changed something here
    std::uint64_t old_epoch = 0;  ///< messages of an older epoch
    std::uint64_t new_epoch = 0;  ///< messages of a newer epoch than the copy has been told of
    std::uint64_t stranger = 0;   ///< messages of a member that is not the other copy
    std::uint64_t malformed = 0;
    std::uint64_t no_place = 0;  ///< connections of the other copy that found no place here
    std::uint64_t anew = 0;  ///< times that everything was told anew: the other copy was silent, or
                             ///< too far behind
    std::uint64_t agreed = 0;  ///< new assignments after which a master need not tell everything
  };

  /// `records` must outlive the copy.
  ShardCopy(std::uint32_t shard, Records& records) : shard_(shard), records_(&records) {}

  /// Takes an assignment of the store over. Returns false, and changes nothing, unless its epoch is
  /// newer than that of the latest one.
  bool assign(const Assignment& to, Tick now);

  /// Ends this copy: it has no role and no grants until an assignment of a newer epoch gives it
  /// one.
  void give_up(Tick now);
  /// The store says that the assignment of that epoch is settled by now.
  void settle(Epoch epoch) { now_.is_settled |= epoch == now_.epoch; }

  /// The store has given this member a grant, or asks it back. A grant that is asked back is not
  /// used any more when `withdraw` returns.
  void grant(std::uint32_t number);
  void withdraw(std::uint32_t number);
  /// The store is to give the grant, which connections may use, to another member. It is not used
  /// any more when this returns, and is in `handed_back` once the other copy knows all those
  /// connections. It begins anew in the next assignment, or after `withdraw`.
  void hand_back(std::uint32_t number);
  /// Returns the grants that another member may have by now.
  std::span<const std::uint32_t> handed_back() const {
    return left_ == Left::known ? std::span<const std::uint32_t>(leaving_)
                                : std::span<const std::uint32_t>();
  }
  /// True if the grant was handed back, in this assignment.
  bool leaves(std::uint32_t number) const {
    return std::ranges::find(leaving_, number) != leaving_.end();
  }
  std::size_t grants() const { return grants_.size(); }
  bool has(std::uint32_t number) const { return grants_.contains(number); }
  /// True if connections may be opened with the grant.
  bool may_use(std::uint32_t number) const;
  /// Returns a number that changes whenever `may_use` may have.
  std::uint64_t changes_of_use() const { return changes_of_use_; }
  /// Returns the grants of the other copy, as far as it has told them.
  const std::set<std::uint32_t>& grants_of_other() const { return grants_of_other_; }

  /// Takes a message that this member has been sent by the member `from`, which must have been
  /// authenticated.
  void receive(Member from, const Message& message, Tick now);
  /// Sends what is to be sent. To be called between two bursts.
  void send(Outbox& out, Tick now);

  /// @name For `Records::tell`
  /// @{
  bool has_room() const { return sending_.has_room(); }
  /// Tells a record of at most `kMostRecord` bytes. There must be room.
  void tell(std::span<const std::byte> record, Tick now) {
    sending_.append(RecordKind::change, record, now);
  }
  /// The caller has lost changes, as too many waited: everything is told anew.
  void begin_anew() { has_lost_ = true; }
  /// @}

  CopyRole role() const { return now_.role; }
  Epoch epoch() const { return now_.epoch; }
  Member other() const { return now_.other; }
  /// True if there is a newer assignment than the copy has been told.
  bool is_deposed() const { return newest_ > now_.epoch; }
  /// True of a master if the other copy has all; of a slave if it has had all once, and all that
  /// the master has told it since.
  bool is_in_sync() const { return is_in_sync_; }
  /// True of a slave that has refused connections since it was told everything: it had no room for
  /// them, or not their function.
  bool lacks_connections() const { return now_.role == CopyRole::slave && lacks_connections_; }
  bool is_settled() const { return now_.is_settled; }
  /// True if nothing was left to be told when `send` was called last.
  bool has_told_all() const { return has_told_all_; }
  /// True of a master that tells the slave all that there is, and is heard by it.
  bool is_telling() const {
    return now_.role == CopyRole::master && sending_.is_open() && !is_in_sync_;
  }
  /// Number of the next record that is told.
  std::uint64_t next() const { return sending_.next(); }
  /// All records of this stream before that number are applied at the other copy.
  std::uint64_t acknowledged() const { return sending_.acknowledged(); }
  /// True if no copy lacks what was told with that record.
  bool is_known(std::uint64_t record) const {
    if (now_.other == Member::none) return true;
    return record < sending_.begin() ? !tells_all_ && !told_all_at_ && sending_.is_open()
                                     : record < sending_.acknowledged();
  }
  const Counters& counters() const { return counters_; }

 private:
  struct Grant {
    std::optional<std::uint64_t> told;  // number of the record that tells it, in this stream
    bool is_on_record = false;          // the other copy has had it on record
  };

  void begin_stream(Tick now);
  void take(const Message& message);
  void began(const Message& message);
  void apply(RecordKind kind, std::span<const std::byte> body);
  void acknowledged(const MessageHead& head, Tick now);
  void tell_grants(Tick now);
  void tell(Tick now);
  void stop_using(std::uint32_t number);
  void tell_left();
  void note_left(bool is_all);

  std::uint32_t shard_;
  Records* records_;
  Assignment now_;
  Epoch newest_ = 0;
  SendingStream sending_;
  ReceivingStream receiving_;
  bool is_in_sync_ = false;
  // Sending:
  bool has_told_all_ = false;
  bool tells_all_ = false;                    // `told_all` is still to be told
  bool has_lost_ = false;                     // all is to be told anew
  std::optional<std::uint64_t> told_all_at_;  // number of `told_all`
  std::optional<GoingOn> going_on_;           // what the other copy told when it was the master
  // Receiving:
  std::optional<GoingOn> was_master_;  // what this copy had told when it was the master
  bool owes_answer_ = false;
  std::uint8_t answer_ = 0;  // flags of the acknowledgement
  bool needs_all_ = false;   // this copy could not go on from what it had
  bool lacks_connections_ = false;
  Member refused_ = Member::none;  // sent a message of an older epoch
  std::map<std::uint32_t, Grant> grants_;
  std::set<std::uint32_t> withdrawn_;  // to be told
  std::set<std::uint32_t> grants_of_other_;
  std::uint64_t changes_of_use_ = 0;
  // Grants that were handed back: their connections are still to be told; are told, up to the
  // record `left_at_`; are known to the other copy.
  enum class Left : std::uint8_t { telling, told, known };
  std::vector<std::uint32_t> leaving_;
  Left left_ = Left::known;
  std::uint64_t left_at_ = 0;
  Counters counters_;
};

}  // namespace millrace
