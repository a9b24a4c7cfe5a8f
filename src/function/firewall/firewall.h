// A worker's firewall: rules decide which connections may begin. All later packets of a connection,
// in both directions, pass by its entry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/counter.h"
#include "function/firewall/log.h"
#include "function/firewall/plan.h"
#include "function/function.h"

namespace millrace {

struct Traffic {
  Counter packets;
  Counter bytes;  ///< length on the wire
};

/// One worker's counters of a rule.
struct RuleCounters {
  Traffic forth;  ///< the originators' packets
  Traffic back;
  Counter connections;  ///< opened
  Counter live;         ///< may wrap around, as connections may end at another worker
  Traffic refused;      ///< packets that began no connection
  Counter limited;      ///< packets above the rule's limit
  Counter logged;       ///< events in the log
  Counter not_logged;   ///< events above the log's rate
};

/// The data that both families' parts share.
struct FirewallShared {
  std::shared_ptr<const FirewallPlan> plan;
  std::shared_ptr<FirewallLog> log;  ///< all workers'
  EventRing<FirewallEvent>* ring;    ///< this worker's
  std::vector<RuleCounters> counters =
      std::vector<RuleCounters>(kRuleIds);  ///< indexed by `RuleId`
  bool others_rewrite = false;              ///< `FunctionRun::others_rewrite`

  /// True if the log takes one more event of that rule; else counts the event.
  bool log_has_room(RuleId rule, Tick now);
  /// Writes an event for which there is room.
  void write(FirewallEvent event);
};

template <class K>
class FirewallFor final : public FunctionFor<K> {
 public:
  using Address = typename K::Address;

  explicit FirewallFor(FirewallShared& shared) : shared_(shared) {}

  Part part() const override;
  bool judges() const override { return true; }
  std::uint64_t screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) override;
  void open(const Burst& burst, Opening<K>& opening) override;
  Verdict event(Event event, const K& key, const std::byte* state, bool is_proved) override;
  void serve(Burst& burst, std::uint64_t places, const States<K>& states) override;
  void write(const K& key, const std::byte* state, std::byte* image) const override;
  Fate fate(const K& key, const Traversal<K>* traversal, const std::byte* state,
            bool is_answered) const override;

  /// Do what `Function::guard` and `guard_errors` do, for the packet at place `packet` of the
  /// burst.
  void guard(Burst& burst, unsigned packet);
  void guard_error(Burst& burst, unsigned packet);

 private:
  /// The bytes that an entry keeps of its connection: four, so that an IPv6 record takes 64.
  struct State {
    RuleId rule = 0;  ///< the rule that has accepted it
    /// The link on which the originator's packets arrive, `kNoLink` or `kHostLink`.
    std::uint8_t link = kNoLink;
    /// From the highest bit: | to the host 1 | ICMP type, by its place in `kQueries`, 3 | code 4 |
    std::uint8_t bits = 0;

    State() = default;
    /// `message`: type and code of an ICMP query, else 0. A code above 15 is kept as 15.
    State(RuleId by, std::uint8_t on, std::uint16_t message, bool to_host);
    std::uint16_t message() const;
    bool is_to_host() const { return bits >> 7 != 0; }
    /// True if that side's packets are for the host itself.
    bool goes_to_host(Side side) const {
      return side == Side::originator ? is_to_host() : link == kHostLink;
    }
  };
  static_assert(sizeof(State) == 4);
  /// The image of a connection.
  struct Image {
    std::uint64_t rule = 0;  ///< hash of the rule's name
    std::uint32_t port = 0;  ///< hash of the name of the port at which it began
    std::uint8_t icmp_type = 0;
    std::uint8_t of_host = 0;  ///< 1: the host itself has begun it; 2: it began at `kAgainLink`
    std::uint8_t to_host = 0;
    std::uint8_t icmp_code = 0;
  };

  Ruling ruling(const K& key, const Traversal<K>* traversal, std::uint8_t link,
                std::uint16_t message) const;
  void count_refused(const Burst& burst, unsigned packet, const Ruling& by);
  FirewallEvent event_of(const Burst& burst, unsigned packet, const Ruling& by, const K& arrives,
                         const K& leaves) const;
  void log_refused(const Burst& burst, unsigned packet, const Ruling& by, const K& arrives,
                   const K& leaves);
  void log_accepted(Tick now);
  bool has_room(const Ruling& by, const K& key, Tick now, bool takes) const {
    return by.limit == nullptr || shared_.plan->limits->allows(by.rule, *by.limit, key.source, now,
                                                               takes, key.number_of_zone());
  }
  void resume(Opening<K>& opening);
  static void accept(Opening<K>& opening, const State& state);
  static State state_at(const std::byte* at);

  FirewallShared& shared_;
  std::array<Ruling, Burst::kMax> rulings_;  ///< on the burst's first packets, by place
  /// Keys with which these packets would leave; valid where others rewrite and the ruling logs.
  std::array<K, Burst::kMax> leaves_;
  /// The last connection that was accepted, which the line may yet abandon, if its rule logs.
  std::optional<FirewallEvent> accepted_;
  /// The part of its rule's limit that this connection has taken.
  struct Taken {
    Ruling by;
    Address source;
    Zone customer = 0;
    Tick at;
  } taken_;
};

class Firewall final : public Function {
 public:
  Firewall(std::shared_ptr<const FirewallPlan> plan, std::shared_ptr<FirewallLog> log,
           unsigned worker, bool others_rewrite)
      : shared_{.plan = std::move(plan),
                .log = log,
                .ring = &log->ring(worker),
                .others_rewrite = others_rewrite},
        v4_(shared_),
        v6_(shared_) {}
  Firewall(const Firewall&) = delete;
  Firewall& operator=(const Firewall&) = delete;

  bool checks_packets() const override { return true; }
  bool needs_entries() const override { return true; }
  bool guards_host() const override { return true; }
  void guard(Burst& burst) override;
  void guard_errors(Burst& burst) override;
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

  /// Changes to another plan, and puts the previous one into `plan`. Called by the worker, between
  /// two bursts.
  void take_on(std::shared_ptr<const FirewallPlan>& plan) { shared_.plan.swap(plan); }
  const RuleCounters& counters(RuleId rule) const { return shared_.counters[rule]; }
  /// Makes the counters 0 of a rule that no plan and no connection has any more. Any thread may
  /// call it.
  void forget(RuleId rule) { shared_.counters[rule] = {}; }

 private:
  FirewallShared shared_;
  FirewallFor<KeyV4> v4_;
  FirewallFor<KeyV6> v6_;
};

}  // namespace millrace
