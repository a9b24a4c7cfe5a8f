// The servers that have the copies of all shards, as one server knows it (copies.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/address.h"
#include "function/copies.h"
#include "function/grants.h"
#include "line/carried_layout.h"
#include "millrace/key.h"
#include "replicate/copy.h"

namespace millrace {

/// A process of millrace at another server.
struct Peer {
  Member member = Member::none;  ///< none: the process is not known yet
  unsigned server = 0;           ///< its server's number; 0: not known
  AnyKey ends;                   ///< ends of datagrams to it

  /// State that goes on when the placement changes. Any thread.
  struct State {
    std::atomic<std::uint64_t> heard_ms = 0;  ///< when it said hello last; 0: never
    std::atomic<std::uint64_t> hello = 0;     ///< number of the latest one; 0: there was none
    std::atomic<bool> spreads_alike = false;  ///< packets are in the same shards there
    std::atomic<bool> agrees = false;         ///< besides, each can read the other's records
    /// The layout of its records, if that is not this process's: set once, before it agrees, since
    /// the layout of a process does not change.
    std::atomic<const CarriedLayouts*> layouts = nullptr;
    /// @name For `Copies`, with its lock
    /// @{
    std::unique_ptr<const CarriedLayouts> kept;  ///< `layouts`
    std::optional<std::uint32_t> layout;         ///< `Hello::layout`; none: it was never heard
    std::string unreadable;    ///< why such records cannot be read; empty: they can
    std::string disagreement;  ///< `difference` by its latest hello
    /// @}
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

/// Never changes once workers have it.
struct Placement {
  static constexpr unsigned kMostPeers = 62;
  /// Places in `peers` that stand for this process, and for none that can be reached.
  static constexpr std::uint8_t kHere = 0xff;
  static constexpr std::uint8_t kNowhere = 0xfe;

  struct OfShard {
    Assignment assignment;    ///< this process's copy
    Grants::Bits grants = 0;  ///< grants that this process has
    std::uint8_t master = kHere;
    std::uint8_t slave = kHere;
  };
  std::vector<Peer> peers;
  std::vector<OfShard> shards;
  /// Packets go to the servers of their shards. False: each is served where it comes.
  bool hops = false;
  /// Facts about connections at other servers, which workers tell their functions.
  CopiesState state{.has_settled = false, .both_are_new = false, .is_sure = false};
};

}  // namespace millrace
