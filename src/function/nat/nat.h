// A worker's NAT (RFC 4787, RFC 5382, RFC 5508): gives sessions from inside a public end, and
// rewrites their packets. Addresses of pools are never forwarded: a packet to one that no session
// and no mapping takes is dropped, unless the address is also the host's own.
//
// A session is a connection with two entries. It has one customer, and one public end: that of its
// source if it began inside, else that of its destination. A customer's packet to a public address
// (hairpinning, RFC 4787, REQ-9) gets its public source, and comes again (`Burst::again`), as if it
// came back from outside: there it belongs to another session, or to none. So whatever holds for
// packets from outside, filtering for one, holds for such packets by itself.
//
// Packets of IPv6 pass untranslated.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/counter.h"
#include "function/function.h"
#include "function/nat/port_blocks.h"
#include "function/nat/settings.h"

namespace millrace {

/// Counters of one worker.
struct NatCounters {
  Counter sessions;      ///< opened from inside
  Counter from_outside;  ///< opened from outside, to a mapping
  Counter live;          ///< may wrap around, as sessions may end at another worker
  Counter out_packets;   ///< with a public source
  Counter in_packets;    ///< to a public destination
};

/// The IPv4 part.
class NatV4 final : public FunctionFor<KeyV4> {
 public:
  NatV4(std::shared_ptr<const NatSettings> settings, std::shared_ptr<PortBlocks> blocks)
      : settings_(std::move(settings)), blocks_(std::move(blocks)) {}

  Part part() const override;
  /// A session lives by what customers send (RFC 4787, REQ-6): an inbound flood keeps none alive.
  bool has_idle_packets() const override { return true; }
  Steered steer(std::span<const KeyV4> keys, const Steered& before) const override;
  std::uint64_t screen(Burst& burst, Lane<KeyV4>& lane, std::uint64_t unknown) override;
  void open(const Burst& burst, Opening<KeyV4>& opening) override;
  Verdict event(Event event, const KeyV4& key, const std::byte* state, bool is_proved) override;
  void serve(Burst& burst, std::uint64_t places, const States<KeyV4>& states) override;
  bool receives(const KeyV4& leaving) const override {
    return is_public(leaving.destination) && is_public(leaving.source);
  }
  Target target(const KeyV4& key, const std::byte* state) const override;
  void write(const KeyV4& key, const std::byte* state, std::byte* image) const override;
  Fate fate(const KeyV4& key, const Traversal<KeyV4>* traversal, const std::byte* state,
            bool is_answered) const override;

  /// True if a customer's packet to an address that is also the host's own is for another customer,
  /// not for the host. The host answers all pings.
  static bool is_taken(const NatSettings& settings, const PortBlocks& blocks, const KeyV4& key);
  /// True if the session with that image is translated.
  static bool is_translated(const std::byte* image);

  void note_time(Tick now) { now_ = now; }
  void note_copies(const CopiesState& state, Tick now) const { blocks_->note_copies(state, now); }
  Tick take_on(std::shared_ptr<const NatSettings>& settings, std::shared_ptr<PortBlocks>& blocks) {
    settings_.swap(settings);
    blocks_.swap(blocks);
    return now_;
  }
  /// From now on no session of a port's customer with a greater number is resumed.
  void resume_up_to(Zone customer) { resumed_up_to_ = customer; }
  const NatCounters& counters() const { return counters_; }

 private:
  /// How the packets of one side leave, in the entry of that side: with another source, or with
  /// another destination.
  struct Ends {
    AddressV4 address;
    std::uint16_t port = 0;
    /// `Lane::kSource` or `kDestination`, and further bits of `Lane::Changed`, and `kAgain`; 0: the
    /// session is not translated.
    std::uint8_t changed = 0;
    std::array<std::uint8_t, 3> zone{};  ///< in the form of a key's: the customer they leave to

    /// Returns a key with the new parts in all places where they may belong.
    KeyV4 target() const { return {address, address, port, port, 0, zone}; }
    /// Returns how packets with that key leave.
    KeyV4 leaving(const KeyV4& key) const { return Lane<KeyV4>::leaving(key, target(), changed); }
  };
  static constexpr std::uint8_t kAgain = 0x80;  ///< in `Ends::changed`: the packets come again
  /// The originator's entry.
  struct State {
    Ends ends;
    PortRef port;  ///< the public port; none: the public end is a forward's
  };
  static_assert(sizeof(State) == 16 && alignof(State) == 2);
  /// The image of a session; all 0 if it is not translated.
  struct Image {
    AddressV4 address;
    std::uint16_t port = 0;
    std::uint8_t changed = 0;
    std::array<std::uint8_t, 3> zone{};
    std::uint8_t is_forwards = 0;  ///< 1: the public end is a forward's
    std::uint8_t unused = 0;
    /// If it began outside: the remote end of its mapping, as far as that depends on one.
    AddressV4 mapped;
    std::uint16_t mapped_port = 0;
  };
  static_assert(sizeof(Image) == 18);

  /// The ends of a session that are its customer's.
  struct CustomersEnds {
    Zone zone = 0;
    EndpointV4 inside;
    EndpointV4 outside;
  };

  /// The translation that a packet needs: of its source by a rule, or else of its destination.
  struct Need {
    const NatRule* rule = nullptr;  ///< rule of its source; null: its source stays
    bool is_in = false;             ///< its destination is public
    bool is_hosts = false;          ///< its destination is also the host's own

    /// True if the packet may not leave without a translation.
    bool is_there() const { return rule != nullptr || (is_in && !is_hosts); }
  };
  Need need_of(const KeyV4& key) const;
  /// True if the address is a pool's or a forward's.
  bool is_public(const AddressV4& address) const {
    return blocks_->has(address) || settings_->forwards.has(address);
  }
  std::optional<CustomerNumber> customer_inside(Zone zone, const AddressV4& address) const;
  std::optional<CustomerNumber> customer_at(const EndpointV4& outside, std::uint8_t protocol) const;
  std::optional<unsigned> group_inside(Zone zone, const AddressV4& address) const;
  std::optional<unsigned> group_of(const KeyV4& key, bool looks_at_source,
                                   bool looks_at_destination) const;
  void steer(const KeyV4& key, unsigned i, bool looks_at_source, bool looks_at_destination,
             Steered& steered) const;
  static CustomersEnds ends_of(const KeyV4& key, const Ends& ends);
  bool keeps_end(const KeyV4& key, const State& state) const;
  bool has_same_remote(const KeyV4& key, const Ends& ends) const;
  void open_out(Opening<KeyV4>& opening, const NatRule& rule);
  void open_in(Opening<KeyV4>& opening, bool is_hosts);
  void accept(Opening<KeyV4>& opening, const State& state, Counter& opened);
  void link(Opening<KeyV4>& opening, State state) const;
  void pass_over(Opening<KeyV4>& opening);
  void resume(Opening<KeyV4>& opening);
  void release(const KeyV4& key, const State& state, bool is_proved = false);
  void release_resumed();
  PortBlocks::Wanted wanted_of(const KeyV4& key, const NatRule& rule) const;

  std::shared_ptr<const NatSettings> settings_;
  std::shared_ptr<PortBlocks> blocks_;
  NatCounters counters_;
  std::array<PortBlocks::Wanted, PortBlocks::kSoon> soon_;  // scratch of `screen`
  Tick now_;
  /// A resumed session whose `Event::adopted` has not come: without it, its ports are given back.
  struct Resumed {
    KeyV4 key;
    State state;
  };
  std::optional<Resumed> resumed_;
  Zone resumed_up_to_ = Customers::kMost;
};

/// The part of the other family: nothing is translated or tracked.
template <class K>
class Untranslated final : public FunctionFor<K> {
 public:
  Part part() const override { return {.name = "nat", .alignment = 1, .is_needed = false}; }
  std::uint64_t screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) override {
    for_each_bit(unknown, [&](unsigned i) { burst.verdict[lane.packet[i]] = Verdict::no_service; });
    return 0;
  }
  void open(const Burst&, Opening<K>& opening) override {
    opening.decision = Opening<K>::Decision::unconcerned;
    opening.refusal = Verdict::no_service;
  }
  void serve(Burst& burst, std::uint64_t places, const States<K>&) override {
    const Lane<K>& lane = burst.lane<K>();
    for_each_bit(places, [&](unsigned i) {
      Verdict& verdict = burst.verdict[lane.packet[i]];
      const bool has_entry = lane.connection[i] != ConnId::none;
      if (!has_entry && verdict == Verdict::tracked) verdict = Verdict::no_service;
    });
  }
};

class Nat final : public Function {
 public:
  Nat(std::shared_ptr<const NatSettings> settings, std::shared_ptr<PortBlocks> blocks)
      : v4_(std::move(settings), std::move(blocks)) {}

  bool needs_entries() const override { return true; }
  void note_time(Tick now) override { v4_.note_time(now); }
  void note_copies(const CopiesState& state, Tick now) override { v4_.note_copies(state, now); }
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

  /// Changes to other settings and the blocks of their pools, and puts the previous ones in their
  /// places. Returns the worker's tick. Called by the worker, between two bursts.
  Tick take_on(std::shared_ptr<const NatSettings>& settings, std::shared_ptr<PortBlocks>& blocks) {
    return v4_.take_on(settings, blocks);
  }
  void resume_up_to(Zone customer) { v4_.resume_up_to(customer); }
  const NatCounters& counters() const { return v4_.counters(); }

 private:
  NatV4 v4_;
  Untranslated<KeyV6> v6_;
};

}  // namespace millrace
