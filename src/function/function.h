// The contract of a function on packets: what it is told about a burst, and what it answers.
//
// A worker owns its function; each call handles a whole burst, so the indirection costs once a
// burst, but for connections that begin or end. In the order of the line:
//
//   steer    which worker has a packet's connection, where workers share nothing
//   (find)   the tracker finds entries; the record says which side's it is
//   screen   packets without an entry: whether they concern it, and may begin a connection
//   open     a new connection: the function chooses, and names the reply's key
//   (link)   the tracker inserts the reply's entry; a collision asks `open` again
//   event    something has proved a connection, or it has ended
//   serve    every packet: says what becomes of it, counts, gives the verdict
//   (apply)  the line rewrites packets, and ICMP errors about them (errors.h)
//   write    what another worker or process is to know of a connection, which `open` reads there
//
// A function must say its `part` of records, `open` and `serve`; the rest has defaults that suit
// one that tracks everything and changes nothing. Numbered, what must hold:
//
// 1. Only its worker calls it, and only after `FunctionDeployment::make`. Nothing here blocks,
//    throws or allocates: millions of packets a second wait for it.
// 2. `open` writes every byte of both states that is read later: what stands there is another
//    connection's, unless the attempt before wrote it.
// 3. An accepted opening counts from its answer on, a resumed one from `Event::adopted`. It ends
//    once, by `closed` or `abandoned`; an attempt that follows takes the one before back itself.
// 4. A connection that the function answered by `unconcerned` stays unconcerned: `serve` leaves its
//    packets alone, `event` does nothing, `target` returns the key that it was given. Its `fate`
//    may be to begin anew, where the function would answer otherwise by now.
// 5. Where workers share tables, several may call `serve` for the same connection at once, and
//    states are read and written by `std::atomic_ref` or are constant after `open`. The
//    originator's entry may be gone when a reply is served (`States::originator`).
// 6. What `serve` and `fate` answer depends on states, settings and packet alone: a connection may
//    go on at another worker, or in another process, after any burst.
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
#include "millrace/record.h"

namespace millrace {

/// A function's part of the entries of a connection.
struct Part {
  /// Bytes of all parts of an entry together, at most; and of all their images.
  static constexpr std::size_t kMost = 64;

  std::string_view name;               ///< the function's
  std::uint16_t version = 1;           ///< to be raised where what an image says changes
  std::uint16_t originator_bytes = 0;  ///< in the originator's entry
  std::uint16_t reply_bytes = 0;       ///< in the reply's
  std::uint16_t alignment = 2;         ///< of both: 1, 2, 4 or 8
  /// Bytes of what `write` writes, and `open` reads in another process; not aligned. A process
  /// without this function takes over only connections whose image has no byte but 0.
  std::uint16_t image_bytes = 0;
  bool replies = true;  ///< false: no connection has a reply's entry, so none is looked up
};

/// A connection in the making. The function fills what stands under *answer*.
template <class K>
struct Opening {
  std::uint8_t packet = 0;    ///< its first packet's place in the burst
  std::uint32_t attempt = 0;  ///< how many answers collided with another connection's reply
  K key;                      ///< the originator's
  /// Its packet is a reply, to what was served without an entry. It is not asked again; abandoned
  /// if the answer has another key than that packet.
  bool by_reply = false;
  std::byte* state = nullptr;        ///< the function's part of the originator's entry
  std::byte* reply_state = nullptr;  ///< and of the reply's
  /// Another worker, or process, had the connection. Then there is no packet, the burst is empty,
  /// `attempt` is 0, and no limit forbids it; refused where it can go on no more as it was.
  /// `Event::adopted` follows where it found a place, else nothing.
  bool is_resumed = false;
  /// What `write` told there; null where no function of that name had a part in the connection.
  const std::byte* image = nullptr;
  std::span<const std::byte* const> images;  ///< and of each function of a chain

  enum class Answer : std::uint8_t {
    one_way,  ///< open it; there is no reply's entry
    two_way,  ///< open it; link `reply_key`
    refused,  ///< do not open it; `refusal` says why
    /// Others in the chain may open it. Its state says so: whatever the function is told of that
    /// connection from then on, it passes over. Where there is no other, refused: `refusal` is to
    /// say why, too.
    unconcerned,
  };
  // answer:
  Answer answer = Answer::one_way;
  Verdict refusal = Verdict::no_backend;  ///< not one that serves
  K reply_key;

  bool is_accepted() const { return answer == Answer::one_way || answer == Answer::two_way; }
  void refuse(Verdict why) {
    answer = Answer::refused;
    refusal = why;
  }
  void accept_two_way(const K& key_of_reply) {
    answer = Answer::two_way;
    reply_key = key_of_reply;
  }
};

/// What happens to a connection.
enum class Event : std::uint8_t {
  /// Something is about to prove it: `tracked`, and it counts as proved from now on; or the limit
  /// that forbids it (`is_limit`).
  proved,
  unproved,   ///< it counts as proved no more, although it lives on
  closed,     ///< it has ended, or goes on at another worker
  abandoned,  ///< the opening was accepted, and given up: it is to count as if it had not been
  adopted,    ///< opened at another worker, or in another process, it goes on here
};

/// What is to be done with a connection.
enum class Fate : std::uint8_t {
  stays,
  begins_anew,  ///< its entries go: its next packet opens it again
  reset,        ///< it ends, and both sides are told
};

/// For which connections a change asks for the `fate`.
enum class Review : std::uint8_t {
  none,
  /// Those that the function has no part in, if others in its chain have (`Answer::unconcerned`).
  unconcerned,
  all,
};

/// What a function does for one address family.
template <class K>
class FunctionFor {
 public:
  virtual ~FunctionFor() = default;

  /// Is always the same.
  virtual Part part() const = 0;
  /// Returns the parts of the functions that it is made of.
  virtual std::vector<Part> parts() const { return {part()}; }

  /// Returns, of packets with these keys, which end says who has their connection, where the
  /// function rewrites the other one. By default neither: nothing is rewritten.
  virtual Steered steer(std::span<const K> /*keys*/) const { return {}; }

  /// The lane's packets whose bit in `unknown` is set have no entry. Returns those that may begin a
  /// connection. Of each other one, sets the bit in the lane's `replies` where it may be a reply to
  /// what was served without an entry, or else gives it a verdict: `no_service` where it does not
  /// concern the function, another where that refuses it.
  virtual std::uint64_t screen(Burst&, Lane<K>&, std::uint64_t unknown) { return unknown; }

  /// Answers the opening. Called again, with `attempt` one higher, where its reply's key is
  /// another entry's, or its own: then it takes back what it counted for the attempt before, and
  /// answers with a reply key not tried yet, or refuses. After an accepted attempt the opening may
  /// be given up, by a later refusal or a full table: `Event::abandoned`.
  virtual void open(const Burst& burst, Opening<K>& opening) = 0;

  /// Is told what happens to the connection with this originator's state, which any worker may have
  /// opened. `is_proved`: it counts as that. The answer counts for `Event::proved` only.
  virtual Verdict event(Event, const std::byte* /*state*/, bool /*is_proved*/) {
    return Verdict::tracked;
  }

  /// Serves the lane's packets whose bit in `places` is set: gives each its verdict
  /// (`burst.verdict[lane.packet[i]]`), and says what it becomes to the lane (`set_source`, ...)
  /// and the burst (`send_by`, `limit_mss`). With an entry (`lane.connection[i]`, of the side
  /// `lane.side(i)`) it is `tracked`, or a verdict that drops it. Without one, an originator's
  /// packet has the verdict by which it got none: one of `table_full`, `over_budget` and
  /// `no_connection` may become `stateless` where the function serves such; every other stays. A
  /// reply becomes `stateless`, too, or `no_service`, unless its verdict drops it.
  virtual void serve(Burst& burst, std::uint64_t places, const States<K>& states) = 0;

  /// How packets leave.
  struct Target {
    K key;
    std::optional<typename K::Address> next_hop;  ///< whatever their destination
  };
  /// Returns how packets with that key leave, of a connection with that originator's state that has
  /// no reply's entry; where it has one, that tells.
  virtual Target target(const K& key, const std::byte* /*state*/) const {
    return {key, std::nullopt};
  }

  /// Writes the image of the connection with this originator's key and state for another worker, or
  /// process, in so many bytes as `part` says. All 0 is the image of a connection that goes on the
  /// same without this function.
  virtual void write(const K&, const std::byte* /*state*/, std::byte* /*image*/) const {}

  /// Returns what is to be done with the connection with this originator's key and state, which any
  /// worker may have opened. `is_answered`: the other side has sent something, or may have.
  virtual Fate fate(const K&, const std::byte* /*state*/, bool /*is_answered*/) const {
    return Fate::stays;
  }

  /// @name What is served without an entry
  /// @{
  /// `tracked` where a reply without a connection answers what was, or would have been, served
  /// without an entry: then `originator` becomes the key of what it answers. `no_service` where it
  /// does not; or a limit that forbids such a connection, and the reply with it.
  virtual Verdict answers(const Burst&, unsigned /*packet*/, const K& /*reply_key*/,
                          K& /*originator*/) {
    return Verdict::no_service;
  }
  /// Returns how packets with that key leave that have no connection; nothing where such are not
  /// served, or where it cannot be told now. `packet` is an error about one.
  virtual std::optional<Target> target_without_entry(const Burst&, unsigned /*packet*/, const K&) {
    return std::nullopt;
  }
  /// What holds for packets without entries of `other`, which is configured alike and some of whose
  /// connections become this one's, holds here from now on. `other` may be at work.
  virtual void follow(const FunctionFor& /*other*/) {}
  /// @}
};

class Function : public Steering {
 public:
  /// False: nothing is tracked and `open` is never called; every packet reaches `serve` as one
  /// whose connection found no place.
  virtual bool stateful() const { return true; }
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

  Steered steer(std::span<const KeyV4> keys) const override { return family<KeyV4>().steer(keys); }
  Steered steer(std::span<const KeyV6> keys) const override { return family<KeyV6>().steer(keys); }
};

}  // namespace millrace
