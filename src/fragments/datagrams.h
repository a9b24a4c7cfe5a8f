// The datagrams of one address family that arrive in fragments: for each, the parts that have come,
// the key of its first fragment, and the fragments that came before that one.
//
// Nothing is put together: a first fragment goes on at once, and so does each later one that
// follows it (virtual reassembly). What is kept is bounded in four ways:
//
// 1. There is memory for `kDatagrams` datagrams, `kMostKept` kept fragments and `kBlocks` blocks of
//    parts. A new datagram takes the place of the oldest complete one, else of the oldest.
// 2. A source (in IPv6, a /64) has at most `kMostOfSource` incomplete datagrams,
//    `kMostKeptOfSource` kept fragments and `kMostBlocksOfSource` blocks of parts. Sources are
//    counted by a keyed hash, so two sources may share a count.
// 3. A datagram has at most `kMostParts` parts.
// 4. Everything about a datagram is forgotten after `kLastsMs`, and its kept fragments are dropped.
//    The parts of a complete datagram are forgotten at once.
//
// One call does a bounded amount of work: it compares a fragment with the parts of its datagram,
// and gives back the fragments kept for at most two datagrams.
//
// A complete datagram is remembered so that duplicates of its fragments pass: all later fragments
// that lie within it. A first fragment begins it anew, as a sender may have used its identification
// again (RFC 4963).
//
// Not thread-safe: `FragmentTable` locks. A port's packets are known by their handles alone; the
// port owns their memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/address.h"
#include "core/burst.h"
#include "core/verdict.h"
#include "millrace/hash.h"
#include "millrace/types.h"
#include "parse/fragment.h"

namespace millrace {

/// A fragment that is kept until its datagram's first one comes.
struct KeptFragment {
  Handle handle = 0;
  Headers headers;
};

/// A fragment that is kept no longer.
struct ReleasedFragment {
  KeptFragment packet;
  /// `tracked`: the packet goes on with the key `key`. `fragment`: it goes on without a key. Else
  /// it is dropped.
  Verdict verdict = Verdict::fragment;
  AnyKey key;
};

template <class K>
class Datagrams {
 public:
  using A = typename K::Address;

  static constexpr std::uint32_t kLastsMs = 2000;
  static constexpr std::uint32_t kDatagrams = 8192;
  static constexpr std::uint32_t kMostOfSource = kDatagrams / 16;
  static constexpr std::uint32_t kMostKept = 1024;
  static constexpr std::uint32_t kMostKeptOfSource = kMostKept / 8;
  static constexpr std::uint32_t kBlocks = 4096;
  static constexpr std::uint32_t kMostBlocksOfSource = kBlocks / 8;
  /// A datagram of 65,535 bytes over a link with an MTU of 576 has 119 parts.
  static constexpr unsigned kMostParts = 128;

  explicit Datagrams(const Secret& secret);

  /// A fragment that arrives.
  struct Arrival {
    Fragment<A> fragment;
    /// The key of a first fragment; null if it has none. Of a later one, null.
    const K* key = nullptr;
    KeptFragment packet;
    bool may_be_kept = true;
  };
  /// The decision about a fragment.
  struct Answer {
    /// `tracked`: the fragment goes on with `key`. `fragment`: it goes on without a key. `held`: it
    /// is kept. Else it is dropped.
    Verdict verdict;
    /// With `fragment_overlap`, the key of the first fragment if that has come; else its protocol
    /// is 0.
    K key;
  };
  /// Decides about a fragment, which the parser has found, and appends to `released` the fragments
  /// that are kept no longer, in the order in which they came.
  Answer take(const Arrival& arrival, Tick now, std::vector<ReleasedFragment>& released);
  /// Returns the decision about a later fragment that another worker has let pass, whatever its
  /// age: `tracked`, `fragment` or `fragment_overlap` if its datagram is known, else
  /// `fragment_limit`.
  Answer find(const Datagram<A>& datagram) const;

  /// Forgets datagrams that are older than `kLastsMs`, `most` at most.
  void expire(Tick now, unsigned most, std::vector<ReleasedFragment>& released);
  /// Forgets all kept fragments.
  void give_up(std::vector<ReleasedFragment>& released);

  std::uint32_t kept() const { return kept_count_; }
  /// Returns the number of datagrams that are remembered.
  std::uint32_t size() const { return open_.size + complete_.size; }
  std::size_t memory_bytes() const;
  /// Checks lists, counts and parts, for tests. Errors: the first rule that is broken.
  Result<void> check_invariants() const;

 private:
  using Index = std::uint32_t;
  static constexpr Index kNone = UINT32_MAX;
  static constexpr unsigned kCounts = 4096;
  static constexpr unsigned kFirstParts = 6;

  enum class State : std::uint8_t {
    free,
    waits,     ///< the first fragment has not come
    known,     ///< it has come, and has a key
    keyless,   ///< it has come without a key
    overlaps,  ///< fragments contradict each other: all are dropped
  };
  struct Part {
    std::uint16_t begin8 = 0;  ///< in units of 8 bytes
    std::uint16_t bytes = 0;
  };
  static constexpr unsigned kPartsABlock = 15;
  struct MoreParts {
    std::array<Part, kPartsABlock> part;
    Index next = kNone;
  };
  struct Kept {
    KeptFragment packet;
    Index next = kNone;
  };
  struct Entry {
    Datagram<A> datagram;
    Tick since;
    State state = State::free;
    bool is_complete = false;
    std::uint8_t key_protocol = 0;
    std::uint8_t parts = 0;
    std::uint16_t source_port = 0;
    std::uint16_t destination_port = 0;
    std::uint32_t bytes = 0;  ///< sum of all parts that have come
    std::uint32_t total = 0;  ///< the datagram's bytes; 0: its last fragment has not come
    Index more_parts = kNone;
    Index first_kept = kNone;
    Index last_kept = kNone;
    Index next = kNone;  ///< with the same hash; or the next free one
    Index older = kNone;
    Index newer = kNone;
    std::array<Part, kFirstParts> part;
  };
  struct List {
    Index oldest = kNone;
    Index newest = kNone;
    std::uint32_t size = 0;
  };
  enum class Fit : std::uint8_t { fits, repeats, contradicts };

  static bool is_possible(const Fragment<A>& fragment);
  Hash hash_of(const Datagram<A>& datagram) const;
  unsigned count_of(const Datagram<A>& datagram) const;
  Index find_entry(const Datagram<A>& datagram) const;
  Index make(const Datagram<A>& datagram, Tick now, std::vector<ReleasedFragment>& released);
  void begin(Entry& entry, Tick now);
  void forget(Index index, Verdict why, std::vector<ReleasedFragment>& released);
  void keep(Entry& entry, const KeptFragment& packet);
  void release(Entry& entry, Verdict verdict, std::vector<ReleasedFragment>& released);
  Fit fit(const Entry& entry, const Fragment<A>& fragment) const;
  bool add_part(Entry& entry, const Fragment<A>& fragment);
  void free_parts(Entry& entry);
  void set_state(Index index, const Arrival& arrival, std::vector<ReleasedFragment>& released);
  void complete_if_whole(Index index);
  Answer answer(const Entry& entry) const;
  K key_of(const Entry& entry) const;
  List& list_of(const Entry& entry) { return entry.is_complete ? complete_ : open_; }
  void append(List& list, Index index);
  void remove(List& list, Index index);
  template <class Each>
  bool each_part(const Entry& entry, Each&& each) const;

  Hasher hasher_;
  std::vector<Entry> entries_;
  std::vector<Index> buckets_;
  std::vector<MoreParts> more_parts_;
  std::vector<Kept> kept_;
  std::vector<std::uint16_t> open_of_source_;    // incomplete datagrams, by `count_of`
  std::vector<std::uint16_t> kept_of_source_;    // kept fragments, by `count_of`
  std::vector<std::uint16_t> blocks_of_source_;  // blocks of parts, by `count_of`
  Index free_entry_ = kNone;
  Index free_parts_ = kNone;
  Index free_kept_ = kNone;
  std::uint32_t kept_count_ = 0;
  List open_;
  List complete_;
};

}  // namespace millrace
