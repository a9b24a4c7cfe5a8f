// A worker's NAT (RFC 4787, RFC 5382, RFC 5508): gives sessions from inside a public end, and
// rewrites their packets. Addresses of pools are never forwarded: a packet to one that no session
// and no mapping takes is dropped, unless the address is also the host's own.
//
// A session is a connection with two entries. Packets of IPv6 pass untranslated.
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
  Target target(const KeyV4& key, const std::byte* state) const override;
  void write(const KeyV4& key, const std::byte* state, std::byte* image) const override;
  Fate fate(const KeyV4& key, const Traversal<KeyV4>* traversal, const std::byte* state,
            bool is_answered) const override;

  /// True if the session with that image is translated.
  static bool is_translated(const std::byte* image);

  void note_time(Tick now) { now_ = now; }
  Tick take_on(std::shared_ptr<const NatSettings>& settings, std::shared_ptr<PortBlocks>& blocks) {
    settings_.swap(settings);
    blocks_.swap(blocks);
    return now_;
  }
  /// From now on no session of a port's customer with a greater number is resumed.
  void resume_up_to(Zone customer) { resumed_up_to_ = customer; }
  const NatCounters& counters() const { return counters_; }

 private:
  /// How the packets of one side leave, in the entry of that side.
  struct Ends {
    AddressV4 source, destination;
    std::uint16_t source_port = 0, destination_port = 0;
    std::uint8_t changed = 0;  ///< bits of `Lane::Changed`; 0: the session is not translated
    std::array<std::uint8_t, 3> zone{};  ///< in the form of a key's: the customer they leave to

    /// Returns how packets with that key leave.
    KeyV4 leaving(const KeyV4& key) const {
      return Lane<KeyV4>::leaving(
          key, {source, destination, source_port, destination_port, key.protocol, zone}, changed);
    }
  };
  /// The originator's entry. An end that is changed without a port is a forward's.
  struct State {
    Ends ends;
    PortRef source;       ///< the originator's public port
    PortRef destination;  ///< the public port that the originator sends to
  };
  static_assert(sizeof(State) == 28 && alignof(State) == 2);
  /// The image of a session; all 0 if it is not translated.
  struct Image {
    AddressV4 source, destination;
    std::uint16_t source_port = 0, destination_port = 0;
    std::uint8_t changed = 0;
    std::array<std::uint8_t, 3> zone{};
    std::uint8_t forwarded = 0;  ///< bits of `changed`: ends of forwards
    std::uint8_t unused = 0;
    /// The remote end of the mapping that the originator sends to, as far as it depends on one.
    std::uint16_t mapped_port = 0;
    AddressV4 mapped;
  };
  static_assert(sizeof(Image) == 24);

  /// The translation that a packet needs.
  struct Need {
    const NatRule* rule = nullptr;  ///< rule of its source; null: its source stays
    bool is_in = false;             ///< its destination is a pool's
    bool is_hosts = false;          ///< its destination is also the host's own

    /// True if the packet may not leave without a translation.
    bool is_there() const { return rule != nullptr || (is_in && !is_hosts); }
  };
  Need need_of(const KeyV4& key) const;
  std::optional<CustomerNumber> customer_of(Zone zone, const EndpointV4& end,
                                            std::uint8_t protocol) const;
  std::optional<CustomerNumber> whole_customer_of(Zone zone, const AddressV4& address) const;
  static std::uint8_t forwarded(const State& state);
  bool has_forwards(const KeyV4& key, const Ends& ends, std::uint8_t forwarded) const;
  bool keeps_ports(const KeyV4& key, const State& state) const;
  void accept(Opening<KeyV4>& opening, const State& state);
  void pass_over(Opening<KeyV4>& opening);
  void resume(Opening<KeyV4>& opening);
  void release(const KeyV4& key, const State& state, bool is_proved = false);
  void release_resumed();
  std::expected<PortBlocks::Taken, Verdict> take(const Opening<KeyV4>& opening,
                                                 const NatRule& rule);
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
