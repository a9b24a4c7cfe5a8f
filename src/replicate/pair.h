// Two servers without a store: which of them is the master, and of what epoch.
//
// Each server is told from outside (VRRP) whether it is *active*: whether packets come to it. It
// says so to the other server in each hello, with its role and epoch. All shards have the same
// assignment. The rules:
//
// 1. A server that is active becomes the master, but while it hears the other one only once its own
//    copy is in sync: a process that has just started has nothing, and must not be copied.
// 2. Epochs of the two servers differ: one has odd numbers, the other even ones. Of two masters
//    (both were active, and could not hear each other) the one of the older epoch becomes the
//    slave.
// 3. Neither the store's word nor a clock decides what a server may give its customers: each has
//    half of all ports for good, by its number.
//
// What a process cannot know, whether another one still has connections, it assumes: `is_settled`
// is false until the other server follows, or the operator has said that it is gone.
//
// There is no clock, socket or thread here. The caller sees to it that one thread at a time calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replicate/copy.h"

namespace millrace {

/// The words of a server to the other one, the beginning of the payload of a message of the kind
/// `hello`, whose head has the epoch. New members come last: a longer hello, of a newer version, is
/// read by the bytes that this version knows, and what a shorter one lacks is 0. At the payload's
/// end stands the layout of the server's records: `parts` times `kPartBytes`.
struct Hello {
  std::uint16_t version = 0;  ///< version of the records (line/carried.h)
  std::uint8_t number = 0;    ///< the server's, 1 or 2
  std::uint8_t is_active = 0;
  CopyRole role = CopyRole::none;
  std::uint8_t is_in_sync = 0;
  std::uint8_t is_fresh = 0;  ///< it has not been settled since its process began
  std::uint8_t parts = 0;
  std::uint32_t shards = 0;
  std::uint32_t agreement = 0;  ///< digest of what both must have in common: `PairSettings`
  std::uint32_t layout = 0;     ///< digest of the layout of its records
};
static_assert(sizeof(Hello) == 20 && std::is_trivially_copyable_v<Hello>);
/// Size of the shortest hello that there ever was.
inline constexpr std::size_t kLeastHello = 20;
/// Size of a part of the layout (`CarriedPart` of line/carried.h).
inline constexpr std::size_t kPartBytes = 32;

/// Returns why nothing can be copied between a server and another one, as their hellos show; empty:
/// it can. `unreadable`: the reason why the other one's records cannot be read; empty: they can.
std::string difference(const Hello& own, const Hello& other, std::string_view unreadable);

struct ToldHello {
  Hello hello;
  std::span<const std::byte> parts;  ///< the layout of the sender's records
};
/// Reads the payload of a hello. Returns none if it is malformed.
inline std::optional<ToldHello> read_hello(std::span<const std::byte> payload) {
  ToldHello told;
  if (payload.size() < kLeastHello) return std::nullopt;
  const std::size_t parts =
      kPartBytes * std::to_integer<std::size_t>(payload[offsetof(Hello, parts)]);
  if (payload.size() - kLeastHello < parts) return std::nullopt;
  const std::size_t own = payload.size() - parts;
  std::memcpy(&told.hello, payload.data(), std::min(own, sizeof(told.hello)));
  told.parts = payload.subspan(own);
  return told;
}

struct PairSettings {
  unsigned number = 1;  ///< this server's, 1 or 2
  Member self = Member::none;
  std::uint16_t version = 0;
  std::uint32_t shards = 0;
  /// Digest of what the records' meaning depends on besides their layout: the numbers of customers.
  std::uint32_t agreement = 0;
  bool has_settled = false;  ///< at first: this process has taken over from one that had
  /// At first: that process was sure besides what the other server may have, and gave customers
  /// something.
  bool is_sure = false;
};

class Pair {
 public:
  /// A time of a clock that does not wrap: servers are up for longer than ticks can be compared.
  using Ms = std::int64_t;
  /// Milliseconds without a hello after which the other server counts as silent.
  static constexpr Ms kSilent = 1000;
  /// Milliseconds for which a process that has begun waits for the other server before it goes on
  /// alone.
  static constexpr Ms kPatience = 2000;
  /// Milliseconds between two hellos.
  static constexpr Ms kHello = 100;

  explicit Pair(const PairSettings& settings)
      : settings_(settings), has_settled_(settings.has_settled), both_are_new_(settings.is_sure) {}

  /// This server is active, or no longer.
  void set_active(bool is_active, Ms now);
  /// The copies of all shards here are in sync, or not all.
  void set_in_sync(bool is_in_sync, Ms now);
  /// The operator says that the other server's process is gone for good. False, and nothing
  /// changes, while it is heard.
  bool set_gone(Ms now);
  /// Takes a hello, which must have been authenticated, and sealed for this process. `unreadable`:
  /// the reason why this process cannot read records of the sender's layout; empty: it can.
  void hear(Member from, Epoch epoch, const Hello& hello, std::string_view unreadable, Ms now);
  /// Changes `PairSettings::agreement`.
  void set_agreement(std::uint32_t agreement) {
    settings_.agreement = agreement;
    if (other_) disagreement_ = difference(hello(), other_->hello, unreadable_);
  }
  /// True if records may be taken from the other server, as its last hello shows.
  bool agrees() const { return disagreement_.empty(); }
  /// Lets time pass.
  void tick(Ms now);

  /// Returns what holds for all shards. The epoch grows with every change but that of `is_settled`.
  const Assignment& assignment() const { return now_; }
  Hello hello() const;

  bool is_active() const { return is_active_; }
  bool is_in_sync() const { return is_in_sync_; }
  /// True once no process that was there before this one can have connections that this one does
  /// not know: until then it gives its customers nothing.
  bool has_settled() const { return has_settled_; }
  /// True if neither process has had connections of the other server's, so that nobody has what
  /// this server may give; or if this process has taken over from one that was sure.
  bool both_are_new() const { return both_are_new_; }
  /// Returns the other server's process, as it was last heard; none: it never was.
  Member other() const { return other_ ? other_->member : Member::none; }
  bool hears_other(Ms now) const { return other_ && now - other_->heard < kSilent; }
  /// Returns the other server's latest hello; none: there was none.
  std::optional<Hello> hello_of_other() const {
    return other_ ? std::optional(other_->hello) : std::nullopt;
  }
  /// Returns the reason why nothing is told between the servers, as the last hellos show; empty:
  /// there is none.
  std::string disagreement(Ms now) const {
    return now - disagreed_ < kSilent ? disagreement_ : std::string();
  }

 private:
  struct Other {
    Member member = Member::none;
    Epoch epoch = 0;
    Hello hello;
    Ms heard = 0;
  };

  void decide(Ms now);
  void promote();
  void follow();
  void note_settled();
  bool precedes() const;

  PairSettings settings_;
  Assignment now_;
  std::optional<Other> other_;
  std::vector<Member> former_;  // earlier processes of the other server: stored hellos of theirs
                                // change nothing
  std::optional<Ms> begun_;
  bool is_active_ = false;
  bool is_in_sync_ = false;
  bool has_settled_ = false;
  bool both_are_new_ = false;
  std::string unreadable_;  // by the latest hello
  std::string disagreement_;
  Ms disagreed_ = 0;  // when a hello last showed it
};

}  // namespace millrace
