// The contract of a function: code that decides what becomes of packets, such as a load balancer.
// The line (line/line.h) calls it, and rewrites packets as the function has said.
//
// `steer`, `screen` and `serve` handle a whole burst, so that the indirect call costs once a burst;
// each other call handles one connection or packet. In the order of the line:
//
//   steer    which end of a packet's connection no function rewrites; that end chooses the worker
//   (find)   the tracker finds the packets' entries, and the side that has sent each packet
//   screen   for packets without an entry: which of them may begin a connection
//   open     for a new connection: the function accepts or refuses it, and names the reply's key
//   (link)   the tracker inserts the reply's entry; if its key is taken, `open` may be called again
//   event    a connection is about to be proved, has ended, goes on here, ... (`Event`)
//   serve    for every packet in the lane: the function says how the packet leaves, and its verdict
//   (apply)  the line rewrites packets, and ICMP errors about them (errors.h)
//   write    an image, from which `open` opens the connection at another worker or process
//
// A function must define `part`, `open` and `serve`. The defaults of the rest suit a function that
// tracks everything and changes nothing.
//
// Threads: each worker has a function of its own (`FunctionDeployment::make`), which only the
// worker's thread calls; before workers run and while they are at rest, any one thread at a time
// may. Exceptions: the thread that calls the deployment may call `parts` at any time, and another
// worker's function may read from this one in `continue_from`.
//
// Invariants:
//
// 1. In a live run no call but `parts` blocks, throws or allocates: millions of packets a second
//    wait for the calls.
// 2. `open` writes every byte of both states that is read later. Before the call, the states hold
//    bytes of another connection, or of the previous attempt.
// 3. The function counts a connection when it accepts the connection, but a resumed connection at
//    `Event::adopted`. It uncounts the connection once: at `closed`, at `abandoned`, or when it
//    accepts the next attempt in place of the previous one.
// 4. A connection stays `unconcerned` once the function has decided so: `serve` leaves its packets
//    as they are, `event` does nothing, `target` returns the key that it was given. The exception
//    is `fate`: it may return `begins_anew`, if by now the function would take such a connection.
// 5. Where workers share tables, several workers' functions may serve the same connection at once:
//    states are constant after `open`, or read and written by `std::atomic_ref`. The originator's
//    entry may be gone when a reply is served (`States::originator`).
// 6. For a connection with an entry, the results of `serve` and `fate` depend on states, settings
//    and arguments alone: after any burst the connection may go on at another worker or in another
//    process.
//
// Errors: nothing returns an error. A function refuses a connection by `Opening::refuse`, and a
// packet by a verdict that drops it. The line refuses a function with a `part` that is too large
// (`make_lines`).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/burst.h"
#include "core/of_family.h"
#include "core/steering.h"
#include "function/copies.h"
#include "millrace/record.h"

namespace millrace {

/// The layout of the bytes that a function keeps in the entries of a connection, and of their
/// image.
struct Part {
  /// Largest size of all parts of an entry together, and of all images of a connection together.
  static constexpr std::size_t kMost = 64;

  std::string_view name;  ///< name of the function
  /// Raised when the meaning of the image's bytes changes. An image may grow at its end without
  /// that (line/carried.h): a longer one is read by its known bytes, and what is missing is 0.
  std::uint16_t version = 1;
  std::uint16_t originator_bytes = 0;  ///< size of the part in the originator's entry
  std::uint16_t reply_bytes = 0;       ///< size of the part in the reply's entry
  std::uint16_t alignment = 2;         ///< alignment of both parts: 1, 2, 4 or 8
  /// Size of the image that `write` writes and `open` reads at another worker or process; the image
  /// is not aligned.
  std::uint16_t image_bytes = 0;
  /// True: a process without this function takes a connection over only if this image is all 0, as
  /// the connection would break. False: it takes every connection over.
  bool is_needed = true;
  bool replies = true;  ///< false: no connection has a reply's entry, so none is looked up
};

/// The way of an originator's packets through a whole chain.
template <class K>
struct Traversal {
  K arrives;  ///< key with which they arrive
  K leaves;   ///< key with which they leave
  /// The next hop that a function has chosen, else `leaves`'s destination.
  typename K::Address sent_to;
  bool comes_again = false;  ///< they leave only to come again (`FunctionFor::receives`)
};

/// A connection that is to be opened. The function fills the members under *answer*, and the
/// states.
template <class K>
struct Opening {
  std::uint8_t packet = 0;    ///< place in the burst of the packet that opens it
  std::uint32_t attempt = 0;  ///< number of earlier attempts, whose reply keys were taken
  K key;                      ///< the originator's key
  /// True: the packet is a reply to a packet that was served without an entry. The function is
  /// asked once only. If it accepts the connection with another reply key than the packet's key, or
  /// with none, or if the reply's entry cannot be inserted, the opening is given up
  /// (`Event::abandoned`).
  bool by_reply = false;
  /// For a function that judges, in a chain (`judges`); else null: functions rewrite nothing.
  const Traversal<K>* traversal = nullptr;
  std::byte* state = nullptr;        ///< the function's part of the originator's entry
  std::byte* reply_state = nullptr;  ///< the function's part of the reply's entry
  /// True: another worker or process had the connection. There is no packet, the burst is empty,
  /// `attempt` is 0, and limits are not checked. The function refuses if the connection cannot go
  /// on as it was. If the connection is opened, `Event::adopted` follows, else no event does.
  bool is_resumed = false;
  /// The image of a resumed connection, which `write` wrote at the previous worker or process; null
  /// if that process had no function of that name.
  const std::byte* image = nullptr;
  std::span<const std::byte* const> images;  ///< an image for each part of `parts`, in that order

  enum class Decision : std::uint8_t {
    one_way,  ///< open it; there is no reply's entry
    two_way,  ///< open it; link `reply_key`
    refused,  ///< do not open it; `refusal` says why
    /// This function has no part in the connection, but another function of a chain may open it.
    /// The function marks that in its state (invariant 4), and sets `refusal`, too: outside of a
    /// chain the connection is refused with that verdict.
    unconcerned,
  };
  // answer:
  Decision decision = Decision::one_way;
  Verdict refusal = Verdict::no_backend;  ///< a verdict for which `is_served` is false
  K reply_key;

  bool is_accepted() const {
    return decision == Decision::one_way || decision == Decision::two_way;
  }
  void refuse(Verdict why) {
    decision = Decision::refused;
    refusal = why;
  }
  void accept_two_way(const K& key_of_reply) {
    decision = Decision::two_way;
    reply_key = key_of_reply;
  }
};

/// An event in the life of a connection.
enum class Event : std::uint8_t {
  /// A packet is about to prove the connection. The function returns `tracked`, and counts the
  /// connection as proved; or it returns the limit that forbids the connection (`is_limit`).
  proved,
  unproved,   ///< the connection no longer counts as proved, but goes on
  closed,     ///< the connection has ended, or goes on at another worker
  abandoned,  ///< the function accepted the new connection, but it is not opened
  adopted,    ///< the connection was opened at another worker or process, and goes on here
};

/// The decision about a connection after a change of settings. The order is that of severity.
enum class Fate : std::uint8_t {
  stays,
  begins_anew,  ///< the connection's entries are removed; its next packet counts as a first one
  /// The TCP connection ends. In a live run, if it has a reply's entry, each side gets a RST as far
  /// as the sequence number that this side expects next is known.
  reset,
};

/// The connections to review after a change: the line asks the function for the `fate` of each.
enum class Review : std::uint8_t {
  none,
  /// Connections in which the function has no part (`Decision::unconcerned`). Only chains have such
  /// connections, and a chain's deployment turns this value into `all`.
  unconcerned,
  all,
};

/// A function for one address family.
template <class K>
class FunctionFor {
 public:
  virtual ~FunctionFor() = default;

  /// Returns the layout of the function's part of entries, the same at each call.
  virtual Part part() const = 0;
  /// Returns the parts of a chain's functions; a function that is no chain returns its own part.
  virtual std::vector<Part> parts() const { return {part()}; }

  /// True: the function judges connections by the addresses with which packets arrive and leave,
  /// whatever other functions rewrite. A chain then opens connections in it after all others, and
  /// says their `Traversal`. Such a function rewrites nothing.
  virtual bool judges() const { return false; }

  /// True: `serve` may mark packets as idle (`Lane::idle`).
  virtual bool has_idle_packets() const { return false; }

  /// Returns for each of these packets' keys, at most 64, which end of the packet's
  /// connection is hashed to choose the worker: if the function rewrites one end, the other one. By
  /// default neither: nothing is rewritten. `before`: the result of the functions before it in a
  /// chain, which may rewrite the end that they do not name.
  virtual Steered steer(std::span<const K> /*keys*/, const Steered& /*before*/) const { return {}; }

  /// Returns those of the lane's packets in `unknown`, packets without an entry, that may begin a
  /// connection; `unknown` and the result are bits by place in the lane. For each other packet in
  /// `unknown`, sets the bit in the lane's `replies` if the packet may be a reply to one that was
  /// served without an entry; else gives the packet a verdict: `no_service` if the function does
  /// not handle it, another verdict to refuse it. The function may also say how it is likely to
  /// rewrite a packet that may begin a connection (`Lane::set_source`, ...). This is a hint: the
  /// line prefetches the place of the reply's entry, and then forgets it.
  virtual std::uint64_t screen(Burst&, Lane<K>&, std::uint64_t unknown) { return unknown; }

  /// Answers whether and how a connection is opened (`Opening`). If the reply's key is taken, by
  /// another connection's entry or by the originator's entry of this connection, `open` is called
  /// again with the next `attempt`, except for `by_reply` and `is_resumed`. The function then
  /// either uncounts the previous attempt and accepts with a reply key that it has not tried yet,
  /// or refuses and uncounts nothing. If a connection whose attempt was accepted is not opened
  /// after all, `Event::abandoned` follows, except for `is_resumed`.
  virtual void open(const Burst& burst, Opening<K>& opening) = 0;

  /// Takes note of an event of the connection with this originator's key and state. Any worker may
  /// have opened the connection. `is_proved`: the connection counts as proved. The return value
  /// matters for `Event::proved` only.
  virtual Verdict event(Event, const K& /*key*/, const std::byte* /*state*/, bool /*is_proved*/) {
    return Verdict::tracked;
  }

  /// Serves the lane's packets in `places` (bits by place in the lane): writes each packet's
  /// verdict (`burst.verdict[lane.packet[i]]`), and how the packet leaves, into the lane
  /// (`set_source`, ...) and the burst (`send_by`, `limit_mss`).
  ///
  /// - A packet with an entry (`lane.connection[i]`, of side `lane.side(i)`) gets the verdict
  ///   `tracked`, or one that drops the packet.
  /// - An originator's packet without an entry arrives with the verdict that says why it has none.
  ///   The function may turn `table_full`, `over_budget` and `no_connection` into `stateless`, or
  ///   into another reason; it leaves every other verdict.
  /// - A reply without an entry becomes `stateless`, `no_service` or dropped, unless its verdict
  ///   drops it already.
  /// - A packet that leaves for an address at which the function itself receives packets may come
  ///   again (`Burst::again`): the line takes it in once more, as if it had left and come from
  ///   outside. A packet comes again once.
  virtual void serve(Burst& burst, std::uint64_t places, const States<K>& states) = 0;

  /// True if packets that leave with that key, ICMP errors among them, are to come again. The line
  /// asks for errors alone.
  virtual bool receives(const K& /*leaving*/) const { return false; }

  /// The way in which packets leave.
  struct Target {
    K key;
    std::optional<typename K::Address> next_hop;  ///< if set, replaces the route's next hop
  };
  /// Returns how an originator's packets with that key leave; their connection has this
  /// originator's state. The line asks only if the connection has no reply's entry: otherwise the
  /// key of that entry says how the packets leave. A chain asks for every connection.
  virtual Target target(const K& key, const std::byte* /*state*/) const {
    return {key, std::nullopt};
  }

  /// Writes the image of the connection with this originator's key and state, for another worker or
  /// process and for views: `Part::image_bytes` bytes. An image that is all 0 means that the
  /// connection goes on just the same without this function.
  virtual void write(const K&, const std::byte* /*state*/, std::byte* /*image*/) const {}

  /// Returns the fate, under the present settings, of the connection with this originator's key and
  /// state. Any worker may have opened the connection. `traversal`: as in `Opening`. `is_answered`:
  /// the replying side has sent a packet, or may have.
  virtual Fate fate(const K&, const Traversal<K>* /*traversal*/, const std::byte* /*state*/,
                    bool /*is_answered*/) const {
    return Fate::stays;
  }

  /// @name Packets that are served without an entry
  /// @{
  /// Returns `tracked` if this packet, which has no entry, is a reply to packets that are served
  /// without an entry; then `originator` becomes the key of these packets. Returns the verdict of a
  /// limit if that limit forbids the connection, and so the reply; else `no_service`.
  virtual Verdict recognise_reply(const Burst&, unsigned /*packet*/, const K& /*reply_key*/,
                                  K& /*originator*/) {
    return Verdict::no_service;
  }
  /// Returns how packets with that key and without a connection leave; nothing if the function does
  /// not serve them, or cannot tell now how they leave. `packet` is the place in the burst of an
  /// ICMP error that goes the same way as these packets.
  virtual std::optional<Target> target_without_entry(const Burst&, unsigned /*packet*/, const K&) {
    return std::nullopt;
  }
  /// Notes that some connections of `other`, another worker's function with the same settings, go
  /// on here: from now on packets without an entry are served here as `other` serves them. Called
  /// by this function's worker; `other` may be serving meanwhile.
  virtual void continue_from(const FunctionFor& /*other*/) {}
  /// @}
};

/// A function for both address families.
class Function : public Steering {
 public:
  /// False: nothing is tracked, and `open` is never called. A packet that may begin a connection
  /// reaches `serve` with the verdict `table_full`.
  virtual bool stateful() const { return true; }
  /// True: packets that are wrong by themselves (`check_headers`, parse/check.h) get the verdict
  /// `malformed`, and those that cannot be of the connection whose key they have, `invalid`. No
  /// function of a chain sees such packets, if one of them checks.
  virtual bool checks_packets() const { return false; }
  /// True: packets without an entry are not served. So if too many connections are half open, a new
  /// one gets the place of one that has been idle long.
  virtual bool needs_entries() const { return false; }
  /// @name Packets to and from the host itself
  /// @{
  /// True: the function decides about these, too, and the line passes them to it like all others
  /// (`Burst::of_host`). The function leaves packets to the host with the verdict `no_service`. If
  /// false, no function sees packets to the host without a connection, nor any from its kernel.
  virtual bool guards_host() const { return false; }
  /// Gives a verdict that drops to those packets to the host that have no key in a lane and that
  /// the host must not get: packets to groups, ICMP messages that are no queries, and later
  /// fragments of such packets. Called only if the function guards the host, once a burst before
  /// connections are looked up.
  virtual void guard(Burst&) {}
  /// Gives a verdict that drops to ICMP errors to the host that are about no connection. Called
  /// only if the function guards the host, once a burst after `serve`.
  virtual void guard_errors(Burst&) {}
  /// @}
  /// Tells the time before connections end whose time is up, also if no packet comes: the time of
  /// the `Event::closed` that follow.
  virtual void note_time(Tick) {}
  /// Tells what is known of the other server, if there is one: once a millisecond or so.
  virtual void note_copies(const CopiesState&, Tick /*now*/) {}
  virtual FunctionFor<KeyV4>& v4() = 0;
  virtual FunctionFor<KeyV6>& v6() = 0;

  template <class K>
  FunctionFor<K>& family() {
    return of_family<K>(v4(), v6());
  }
  template <class K>
  const FunctionFor<K>& family() const {
    return const_cast<Function&>(*this).family<K>();
  }

  Steered steer(std::span<const KeyV4> keys) const override {
    return family<KeyV4>().steer(keys, {});
  }
  Steered steer(std::span<const KeyV6> keys) const override {
    return family<KeyV6>().steer(keys, {});
  }
};

}  // namespace millrace
