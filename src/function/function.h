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
//   answers  of a reply without an entry: whether it belongs to what was served without one
//   proved   something has shown that a connection is real; `unproved` where it is no more
//   serve    every packet: says what becomes of it, counts, gives the verdict
//   (write)  the line rewrites packets, and ICMP errors about them (errors.h)
//   closed   a connection ended; or `abandoned`: it never began
//   fate     what is to be done with a connection, after the function's own settings have changed
//   adopted  another worker's connection is this one's; over there it is closed
//   resume   another process had a connection: what its entries hold
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/burst.h"
#include "core/of_family.h"
#include "core/steering.h"
#include "millrace/record.h"

namespace millrace {

/// A connection in the making. The function fills what stands under *answer*.
template <class K>
struct Opening {
  static constexpr std::size_t kReplyStateMax = 64;

  std::uint8_t packet = 0;           ///< its first packet's place in the burst
  std::uint32_t attempt = 0;         ///< how many answers collided with another connection's reply
  ConnId connection = ConnId::none;  ///< the originator's entry
  K key;                             ///< the originator's key
  bool by_reply = false;             ///< its packet is a reply, to what was served without an entry
  std::byte* state =
      nullptr;  ///< the originator's state, to be written; it keeps what an earlier attempt wrote

  enum class Answer : std::uint8_t {
    one_way,  ///< open it; there is no reply entry
    two_way,  ///< open it; link `reply_key` and `reply_state`
    refused,  ///< do not open it; `refusal` says why
  };
  // answer:
  Answer answer = Answer::one_way;
  Verdict refusal = Verdict::no_backend;
  K reply_key;
  alignas(8) std::array<std::byte, kReplyStateMax> reply_state;
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

  struct StateBytes {
    std::size_t originator = 0;
    std::size_t reply = 0;
    bool replies = true;  ///< false: no connection has a reply entry, so none need be looked up
  };
  virtual StateBytes state_bytes() const = 0;

  /// Returns, of packets with these keys, which end says who has their connection.
  virtual Steered steer(std::span<const K> keys) const = 0;

  /// The lane's packets whose bit in `unknown` is set have no entry. Returns those that may begin a
  /// connection. Of the others: gives those that concern it not the verdict `no_service`, those
  /// that it refuses another one; and sets the bit in the lane's `replies` of those that may be
  /// replies to what was served without an entry.
  virtual std::uint64_t screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) = 0;

  /// Answers the opening. Called again, with `attempt` one higher, where its reply's key belongs to
  /// another connection; each attempt must answer with a reply key not tried before, or refuse. An
  /// opening that is refused, or that the tracker gives up (table full), gets `abandoned` if an
  /// attempt was accepted.
  virtual void open(const Burst& burst, Opening<K>& opening) = 0;

  /// `tracked` where a reply without a connection answers what was, or would have been, served
  /// without an entry: then `originator` becomes the key of what it answers. `no_service` where it
  /// does not; or a limit that forbids such a connection, and the reply with it.
  virtual Verdict answers(const Burst& burst, unsigned packet, const K& reply_key,
                          K& originator) = 0;

  /// Something is about to prove the connection with this originator's state, which any worker may
  /// have opened: `tracked`, and it counts as proved from now on; or the limit that forbids it.
  virtual Verdict proved(const std::byte* state) = 0;
  /// It counts as proved no more, although it lives on.
  virtual void unproved(const std::byte* state) = 0;

  /// Serves the lane's packets. Where `connection` is none, an originator's packet may be served
  /// without state if its verdict is `table_full`, `over_budget` or `no_connection`, and is left
  /// alone if another drops it; a reply may be served, too, or gets `no_service`, and is left alone
  /// if its verdict drops it. Everything served gets `tracked` or `stateless`, and what becomes of
  /// it is told to the lane (`set_source`, ...) and the burst (`send_by`, `limit_mss`).
  virtual void serve(Burst& burst, const States<K>& states) = 0;

  /// How packets leave.
  struct Target {
    K key;
    std::optional<typename K::Address> next_hop;  ///< whatever their destination
  };
  /// Returns how packets with that key leave which meet that side's entry of a connection; any
  /// worker may have opened it.
  virtual Target target(Side side, const K& key, ConnId id, const States<K>& states) const = 0;
  /// Returns how packets with that key leave that have no connection; nothing where such are not
  /// served, or where it cannot be told now. `packet` is an error about one.
  virtual std::optional<Target> target_without_entry(const Burst& burst, unsigned packet,
                                                     const K& key) = 0;

  /// The connection with this originator's state has ended; its entries are gone. `proved`: it
  /// counted as that.
  virtual void closed(const std::byte* state, bool proved) = 0;

  /// Returns what is to be done with the connection with this originator's key and state, which any
  /// worker may have opened. `is_answered`: the other side has sent something, or may have.
  virtual Fate fate(const K& key, const std::byte* state, bool is_answered) const = 0;

  /// The connection with this originator's state, opened by another function that is configured
  /// alike, is this one's from now on. What held for that function's connections has been told by
  /// `follow`.
  virtual void adopted(const std::byte* state, bool proved) = 0;
  virtual void follow(const FunctionFor& other) = 0;

  /// Answers the opening of a connection that another process had, whose packets leave as
  /// `translated`: as `open` does, but that no limit forbids it; refused where they can leave like
  /// that no more. `adopted` is called once it is open.
  virtual void resume(const K& translated, Opening<K>& opening) = 0;

  /// The opening with this originator's state, accepted before, was given up: it is to count as if
  /// it had never been accepted.
  virtual void abandoned(const std::byte* state) = 0;
};

class Function : public Steering {
 public:
  /// False: nothing is tracked and `open` is never called; every packet reaches `serve` as one
  /// whose connection found no place.
  virtual bool stateful() const = 0;
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
