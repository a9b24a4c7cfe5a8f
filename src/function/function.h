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
//   write    what another process is to know of a connection, which `open` reads there
//
// A function must say its `part` of records, `open` and `serve`; the rest has defaults that suit
// one that tracks everything and changes nothing.
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
  /// Bytes of all parts of an entry together, at most; and of an image.
  static constexpr std::size_t kMost = 64;

  std::string_view name;               ///< the function's
  std::uint16_t version = 1;           ///< to be raised where what an image says changes
  std::uint16_t originator_bytes = 0;  ///< in the originator's entry
  std::uint16_t reply_bytes = 0;       ///< in the reply's
  /// Of both: 1, 2, 4 or 8. What workers that share tables write at once is accessed by
  /// `std::atomic_ref`, and needs the alignment of its type.
  std::uint16_t alignment = 2;
  std::uint16_t image_bytes = 0;  ///< that `write` writes
  bool replies = true;  ///< false: no connection has a reply's entry, so none is looked up
};

/// A connection in the making. The function fills what stands under *answer*.
template <class K>
struct Opening {
  std::uint8_t packet = 0;    ///< its first packet's place in the burst
  std::uint32_t attempt = 0;  ///< how many answers collided with another connection's reply
  K key;                      ///< the originator's
  bool by_reply = false;      ///< its packet is a reply, to what was served without an entry
  /// The function's part of the originator's entry, to be written; it keeps what an earlier attempt
  /// wrote. And of the reply's.
  std::byte* state = nullptr;
  std::byte* reply_state = nullptr;
  /// Another process had the connection. Then there is no packet and no burst, and no limit forbids
  /// it; refused where it can go on no more as it was. `Event::adopted` follows once it is open.
  bool is_resumed = false;
  /// What `write` told there; null where no function of that name had a part in the connection.
  const std::byte* image = nullptr;
  std::span<const std::byte* const> images;  ///< and of each function of a chain

  enum class Answer : std::uint8_t {
    one_way,  ///< open it; there is no reply's entry
    two_way,  ///< open it; link `reply_key`
    refused,  ///< do not open it; `refusal` says why
    /// Only in a chain: others may open it. Its state says so: whatever the function is told of
    /// that connection from then on, it passes over.
    unconcerned,
  };
  // answer:
  Answer answer = Answer::one_way;
  Verdict refusal = Verdict::no_backend;
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
  /// that forbids it.
  proved,
  unproved,   ///< it counts as proved no more, although it lives on
  closed,     ///< it has ended; its entries are gone
  abandoned,  ///< the opening was accepted, and given up: it is to count as if it had not been
  adopted,    ///< another worker opened it, or another process; it is this one's from now on
};

/// What is to be done with a connection.
enum class Fate : std::uint8_t {
  stays,
  begins_anew,  ///< its entries go: its next packet opens it again
  reset,        ///< it ends, and both sides are told
};

/// What a function does for one address family.
template <class K>
class FunctionFor {
 public:
  virtual ~FunctionFor() = default;

  virtual Part part() const = 0;
  /// Returns the parts of the functions that it is made of.
  virtual std::vector<Part> parts() const { return {part()}; }

  /// Returns, of packets with these keys, which end says who has their connection, where the
  /// function rewrites the other one. By default neither: nothing is rewritten.
  virtual Steered steer(std::span<const K> /*keys*/) const { return {}; }

  /// The lane's packets whose bit in `unknown` is set have no entry. Returns those that may begin a
  /// connection. Of the others: gives those that concern it not the verdict `no_service`, those
  /// that it refuses another one; and sets the bit in the lane's `replies` of those that may be
  /// replies to what was served without an entry.
  virtual std::uint64_t screen(Burst&, Lane<K>&, std::uint64_t unknown) { return unknown; }

  /// Answers the opening. Called again, with `attempt` one higher, where its reply's key belongs to
  /// another connection; each attempt must answer with a reply key not tried before, or refuse. An
  /// opening that is refused, or that the tracker gives up (table full), gets `Event::abandoned` if
  /// an attempt was accepted.
  virtual void open(const Burst& burst, Opening<K>& opening) = 0;

  /// Is told what happens to the connection with this originator's state, which any worker may have
  /// opened. `is_proved`: it counts as that. The answer counts for `Event::proved` only.
  virtual Verdict event(Event, const std::byte* /*state*/, bool /*is_proved*/) {
    return Verdict::tracked;
  }

  /// Serves the lane's packets whose bit in `places` is set. Where `connection` is none, an
  /// originator's packet may be served without an entry if its verdict is `table_full`,
  /// `over_budget` or `no_connection`, and is left alone if another drops it; a reply may be
  /// served, too, or gets `no_service`, and is left alone if its verdict drops it. Everything
  /// served gets `tracked` or `stateless`, and what becomes of it is told to the lane
  /// (`set_source`, ...) and the burst (`send_by`, `limit_mss`).
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

  /// Writes the image of the connection with this originator's key and state for another process,
  /// in so many bytes as `part` says.
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
  /// What holds for packets without entries of `other`, which is configured alike and whose
  /// connections become this one's, holds here from now on.
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
