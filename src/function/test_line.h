// For tests: a line around one function, one packet at a time, with a map for a table. A test sends
// packets through the line and looks at what comes out; forward/forward_test.cc is a short example.
//
// The line calls the function as a real line does (line/family.h), in the same order, and fails the
// test if a result breaks the contract of function.h. The test decides some things that a real line
// finds out by itself:
//
// - the room in the table: `full`, `replies_full`, `over_budget`;
// - the proof and the end of connections: `prove`, `close`. States are not followed, so a SYN or a
//   RST ends nothing. Only a connection that a reply opens is proved at once, as on a real line.
//
// A test itself makes the calls that no packet causes, through `function()`: `steer`,
// `Event::unproved`, and connections that move between workers (`continue_from`, `Event::adopted`).
//
// The caller owns the function, which must outlive the line. Only one thread may use the line and
// the function.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/protocol.h"
#include "function/errors.h"
#include "function/function.h"
#include "parse/parse.h"
#include "parse/rewrite.h"
#include "parse/signal.h"
#include "parse/test_checksums.h"
#include "parse/test_packets.h"

namespace millrace {

template <class K>
class TestLine {
 public:
  using Address = typename K::Address;
  static constexpr bool kV4 = Address::kBytes == 4;
  static constexpr std::uint8_t kTcp = kProtocolTcp;
  static constexpr std::uint8_t kUdp = kProtocolUdp;
  static constexpr std::uint8_t kFin = 0x01;
  static constexpr std::uint8_t kSyn = 0x02;
  static constexpr std::uint8_t kRst = 0x04;
  static constexpr std::uint8_t kAck = 0x10;

  struct Packet {
    std::string from, to;  ///< "a:1": a host's name (`host`) and a port
    std::uint8_t protocol = kTcp;
    std::uint8_t flags = kSyn;
    std::size_t data = 0;  ///< bytes behind the TCP header
  };
  struct Sent {
    Verdict verdict = Verdict::not_ip;
    std::string from, to;
    std::string by{};  ///< the next hop that the function has chosen; "" if none
  };

  explicit TestLine(Function& function) : function_(&function), part_(function.family<K>().part()) {
    const std::size_t state_bytes = std::max(part_.originator_bytes, part_.reply_bytes);
    EXPECT_LE(std::max<std::size_t>(state_bytes, part_.image_bytes), Part::kMost);
    if (!function.stateful()) return;
    records_ = *Records<K>::create(kEntries, state_bytes, Pages::small);
    for (std::uint32_t n = kEntries; n > 0; --n) free_.push_back(ConnId{n - 1});
  }

  /// Returns the address of a host: 'a' to 'z' are 10.0.0.1 to 10.0.0.26, or fd00::1 to fd00::1a.
  static Address host(char name) {
    Address address;
    address.bytes.front() = kV4 ? 10 : 0xfd;
    address.bytes.back() = static_cast<std::uint8_t>(name - 'a' + 1);
    return address;
  }

  /// Sends one packet down the line. Returns the packet as it left, with its verdict.
  Sent send(const Packet& packet) {
    const K key = key_of(packet);
    enter(bytes_of(packet, key));
    burst_->headers[0] = {.l3 = 0,
                          .l4 = kL4,
                          .l4_end = burst_->length[0],
                          .family = kV4 ? 4 : 6,
                          .protocol = key.protocol};
    burst_->signal[0] = read_signal(burst_->data[0], burst_->headers[0]);
    burst_->verdict[0] = Verdict::tracked;
    Lane<K>& lane = burst_->lane<K>();
    lane.size = 1;
    lane.packet[0] = 0;
    lane.key[0] = key;
    run();
    if (burst_->again != 0 && is_served(burst_->verdict[0])) come_again();
    return {burst_->verdict[0], name(0), name(1), next_hop()};
  }
  /// Sends an ICMP error down the line, given its bytes from the IP header on. Returns its verdict;
  /// `bytes` returns the error as it left.
  Verdict send_error(const test::Bytes& error) {
    enter(error);
    parse(*burst_, LinkType::raw_ip);
    run();
    if (burst_->again != 0) come_again();
    return burst_->verdict[0];
  }
  /// Returns the next hop that the function chose for the last packet; "" if it chose none.
  std::string next_hop() const {
    if (burst_->has_next_hop == 0) return {};
    return {name_of(burst_->template next_hops<Address>()[0].bytes.back())};
  }
  /// Returns the last packet as it left.
  const test::Bytes& bytes() const { return bytes_; }

  /// Returns how many connections have entries.
  std::size_t live() const {
    return static_cast<std::size_t>(std::ranges::count_if(entries_, is_originator));
  }
  /// Ends the connection with this first packet.
  void close(const Packet& packet) {
    const ConnId id = id_of(packet);
    const bool is_proved = proved_.erase(id) != 0;
    erase(id);
    function().event(Event::closed, records_.header(id).key, records_.state(id), is_proved);
  }
  /// Proves the connection with this first packet. Returns the function's answer.
  Verdict prove(const Packet& packet) { return prove(id_of(packet)); }
  /// Proves every connection that is not proved yet.
  void prove_all() {
    for (const auto& [key, entry] : entries_) {
      if (entry.side == Side::reply || proved_.contains(entry.id)) continue;
      EXPECT_EQ(prove(entry.id), Verdict::tracked);
    }
  }
  /// Returns the fate of the connection with this first packet.
  Fate fate(const Packet& packet, bool is_answered) {
    return function().fate(key_of(packet), nullptr, state(packet), is_answered);
  }
  static K key_of(const Packet& packet) {
    K key;
    std::tie(key.source, key.source_port) = endpoint(packet.from);
    std::tie(key.destination, key.destination_port) = endpoint(packet.to);
    key.protocol = packet.protocol;
    return key;
  }
  /// Returns the originator's state of the connection with this first packet.
  const std::byte* state(const Packet& packet) const { return records_.state(id_of(packet)); }

  /// Opens here the connections of `from`, the line of a process that this line's process replaces.
  /// Both lines must have the same kind of function. Returns how many connections go on.
  std::size_t take_over(TestLine& from) {
    std::size_t taken = 0;
    for (const auto& at : from.entries_) taken += is_originator(at) && resume(from, at.second.id);
    return taken;
  }

  FunctionFor<K>& function() { return function_->template family<K>(); }
  void at(std::uint32_t ms) { burst_->now = {ms}; }
  Burst& burst() { return *burst_; }

  bool full = false;          ///< the table has no place for new connections
  bool replies_full = false;  ///< the table has no place for the entries of replies
  bool over_budget = false;   ///< there are too many half-open connections for one more

 private:
  using Decision = typename Opening<K>::Decision;
  using Target = typename FunctionFor<K>::Target;
  struct Entry {
    ConnId id;
    Side side;
  };
  enum class Linked : std::uint8_t { yes, collides, full };

  static constexpr std::uint32_t kEntries = 4096;
  static constexpr std::uint16_t kL4 = kV4 ? 20 : 40;
  static constexpr std::size_t kSource = kV4 ? 12 : 8;
  static constexpr int kGarbage = 0xa5;  // fills entries before a function writes them

  // --- packets

  static std::pair<Address, std::uint16_t> endpoint(const std::string& text) {
    return {host(text[0]), static_cast<std::uint16_t>(std::stoi(text.substr(2)))};
  }
  static test::Bytes bytes_of(const Packet& packet, const K& key) {
    test::Bytes l4 = test::zeros(20 + packet.data);
    test::put(l4, 0, key.source_port);
    test::put(l4, 2, key.destination_port);
    if (key.protocol == kProtocolSctp) {  // an INIT with the tag 1
      l4.resize(32);
      test::put(l4, 12, 0x100);
      test::put(l4, 14, 20);
      test::put(l4, 18, 1);
    } else {
      l4[12] = std::byte{0x50};
      l4[13] = std::byte{packet.flags};
    }
    test::Bytes bytes =
        kV4 ? test::ipv4({.protocol = key.protocol}, l4) : test::ipv6({.next = key.protocol}, l4);
    std::memcpy(&bytes[kSource], key.source.bytes.data(), Address::kBytes);
    std::memcpy(&bytes[kSource + Address::kBytes], key.destination.bytes.data(), Address::kBytes);
    return bytes;
  }
  static char name_of(std::uint8_t last) { return static_cast<char>('a' + last - 1); }
  /// Returns the source (0) or destination (1) of the last packet, as "a:1".
  std::string name(unsigned end) const {
    const std::byte last = bytes_[kSource + (end + 1) * Address::kBytes - 1];
    const unsigned port = test::get(bytes_, kL4 + 2 * end);
    return name_of(std::to_integer<std::uint8_t>(last)) + (":" + std::to_string(port));
  }
  void enter(test::Bytes packet) {
    bytes_ = std::move(packet);
    burst_->clear();
    burst_->size = 1;
    burst_->data[0] = bytes_.data();
    burst_->length[0] = static_cast<std::uint16_t>(bytes_.size());
    burst_->wire_length[0] = burst_->length[0];
  }

  // --- the table

  static bool is_originator(const std::pair<const std::string, Entry>& at) {
    return at.second.side == Side::originator;
  }
  static std::string text(const K& key) {
    return {reinterpret_cast<const char*>(&key), sizeof(key)};
  }
  bool has(const K& key) const { return entries_.contains(text(key)); }
  /// Returns the connection with this first packet. Throws if there is none.
  ConnId id_of(const Packet& first) const {
    const Entry& entry = entries_.at(text(key_of(first)));
    EXPECT_EQ(entry.side, Side::originator);
    return entry.id;
  }
  ConnId insert(const K& key, Side side, ConnId peer) {
    const ConnId id = free_.back();
    free_.pop_back();
    entries_[text(key)] = {id, side};
    records_.header(id).key = key;
    records_.header(id).peer = peer;
    std::memset(records_.state(id), kGarbage, part_.originator_bytes);
    return id;
  }
  /// Removes both entries of a connection.
  void erase(ConnId id) {
    for (const ConnId each : {id, records_.header(id).peer}) {
      if (each == ConnId::none) continue;
      entries_.erase(text(records_.header(each).key));
      free_.push_back(each);
    }
  }
  void look_up(Lane<K>& lane) const {
    lane.replies = 0;
    if (lane.size == 0) return;
    const auto at = entries_.find(text(lane.key[0]));
    lane.connection[0] = at != entries_.end() ? at->second.id : ConnId::none;
    lane.replies = at != entries_.end() && !is_originator(*at);
  }

  // --- the packet's way

  void run() {
    Lane<K>& lane = burst_->lane<K>();
    look_up(lane);
    const auto is_unknown = [&] { return lane.size != 0 && lane.connection[0] == ConnId::none; };
    if (is_unknown()) open(lane);
    if (is_unknown() && lane.replies != 0 && function_->stateful()) open_by_reply(lane);
    look_up(burst_->quoted<K>());
    begin_serving<K>(*burst_);
    serve(lane);
    rewrite<K>(*burst_);
    send_errors_on(*burst_, function(), [this](Side side, const K& key, ConnId id) {
      const ConnId peer = records_.header(id).peer;
      if (peer != ConnId::none) return Target{reversed(records_.header(peer).key), std::nullopt};
      return side == Side::originator ? function().target(key, records_.state(id))
                                      : Target{key, std::nullopt};
    });
    if (burst_->has_mss != 0) clamp_mss(*burst_);
  }

  /// Takes the packet in once more.
  void come_again() {
    auto again = std::make_unique<Burst>();
    bring_again(*burst_, burst_->again, *again);
    burst_.swap(again);
    run();
    EXPECT_EQ(burst_->again, 0U) << "a packet comes again once";
  }

  void open(Lane<K>& lane) {
    Verdict& verdict = burst_->verdict[0];
    const std::uint64_t begin = function().screen(*burst_, lane, 1);
    EXPECT_EQ(begin & ~std::uint64_t{1}, 0U)
        << "screen: the bit of a packet that was not asked about is set";
    EXPECT_TRUE(begin != 0 || lane.replies != 0 || verdict != Verdict::tracked)
        << "screen: a packet that begins nothing needs a verdict, or a bit in `replies`";
    if (begin == 0) return;
    const bool has_room = !full && !free_.empty();  // never if nothing is tracked
    if (function_->stateful() && !begins(burst_->signal[0])) {
      verdict = Verdict::no_connection;
    } else if (!has_room) {
      verdict = Verdict::table_full;
    } else if (over_budget) {
      verdict = Verdict::over_budget;
    } else {
      lane.connection[0] = open(lane.key[0]);
    }
  }
  ConnId open(const K& key) {
    const ConnId id = insert(key, Side::originator, ConnId::none);
    Opening<K> opening = prepare(key, records_.state(id));
    for (std::set<std::string> tried;; ++opening.attempt) {
      function().open(*burst_, opening);
      if (!opening.is_accepted()) {
        EXPECT_FALSE(is_served(opening.refusal))
            << "open: the refusal must be a verdict that does not serve the packet";
        if (opening.attempt > 0)
          function().event(Event::abandoned, opening.key, opening.state, false);
        return give_up(id, opening.refusal);
      }
      const Linked linked = link(id, opening);
      if (linked == Linked::yes) return id;
      const bool is_new = tried.insert(text(opening.reply_key)).second;
      EXPECT_TRUE(is_new) << "open: the reply key must be one that has not collided before";
      if (linked == Linked::collides && is_new) continue;
      function().event(Event::abandoned, opening.key, opening.state, false);
      return give_up(id, Verdict::table_full);
    }
  }
  Opening<K> prepare(const K& key, std::byte* state) {
    reply_state_.fill(std::byte{kGarbage});
    Opening<K> opening;
    opening.key = key;
    opening.state = state;
    opening.reply_state = reply_state_.data();
    return opening;
  }
  /// Inserts the reply's entry. Both sides' entries are in one table, so a reply's key collides,
  /// too, if it equals the key of its own originator.
  Linked link(ConnId id, const Opening<K>& opening) {
    if (opening.decision == Decision::one_way) return Linked::yes;
    EXPECT_TRUE(part_.replies) << "open: two-way, but `part().replies` is false";
    if (has(opening.reply_key)) return Linked::collides;
    if (replies_full || free_.empty()) return Linked::full;
    const ConnId reply = insert(opening.reply_key, Side::reply, id);
    std::memcpy(records_.state(reply), reply_state_.data(), part_.reply_bytes);
    records_.header(id).peer = reply;
    return Linked::yes;
  }
  ConnId give_up(ConnId id, Verdict why) {
    erase(id);
    burst_->verdict[0] = why;
    return ConnId::none;
  }
  /// If the packet, a reply, proves a connection that was served without an entry, opens that
  /// connection.
  void open_by_reply(Lane<K>& lane) {
    if (!shows_a_connection()) return;
    Verdict& verdict = burst_->verdict[0];
    K key;
    const Verdict answer = function().recognise_reply(*burst_, 0, lane.key[0], key);
    EXPECT_TRUE(answer == Verdict::tracked || answer == Verdict::no_service || is_limit(answer));
    if (is_limit(answer)) verdict = answer;
    if (answer != Verdict::tracked || full || free_.empty() || has(key)) return;
    const ConnId id = insert(key, Side::originator, ConnId::none);
    Opening<K> opening = prepare(key, records_.state(id));
    opening.by_reply = true;
    function().open(*burst_, opening);
    const bool is_its = opening.decision == Decision::two_way && opening.reply_key == lane.key[0];
    if (!is_its || link(id, opening) != Linked::yes) {
      if (opening.is_accepted())
        function().event(Event::abandoned, opening.key, opening.state, false);
      erase(id);
      return;
    }
    if (const Verdict proved = prove(id); proved != Verdict::tracked) {
      verdict = proved;
    } else {
      lane.connection[0] = records_.header(id).peer;
    }
  }
  Verdict prove(ConnId id) {
    const Verdict verdict =
        function().event(Event::proved, records_.header(id).key, records_.state(id), false);
    EXPECT_TRUE(verdict == Verdict::tracked || is_limit(verdict))
        << "event: the verdict must be `tracked` or that of a limit";
    if (verdict == Verdict::tracked) proved_.insert(id);
    return verdict;
  }

  void serve(Lane<K>& lane) {
    const Verdict was = burst_->verdict[0];
    const bool is_left_alone = lane.size != 0 && !may_be_served(lane, was);
    function().serve(*burst_, lane.all(), States<K>(records_));
    if (!is_left_alone) return;
    EXPECT_EQ(to_string(burst_->verdict[0]), to_string(was))
        << "serve: this packet must be left as it is";
    EXPECT_EQ(lane.changed[0], 0U) << "serve: this packet must be left as it is";
  }
  static bool may_be_served(const Lane<K>& lane, Verdict is) {
    if (lane.connection[0] != ConnId::none) return true;
    if (lane.replies != 0) return !is_drop(is);
    return is == Verdict::table_full || is == Verdict::over_budget || is == Verdict::no_connection;
  }

  /// Returns true if a packet may be the first that is seen of a connection, as `millrace::begins`
  /// does (conntrack/state.h, which a function's tests may not include).
  bool begins(Signal signal) const {
    const bool is_answer = signal == Signal::syn_ack && !part_.replies;
    return begins_loosely(signal) || is_answer;
  }
  /// Returns true if the packet, a reply, proves its sender's connection, as the function of this
  /// name in line/family_opening.h does.
  bool shows_a_connection() const {
    const Signal signal = burst_->signal[0];
    if (!is_tcp(signal)) return true;
    const bool goes_on = signal == Signal::ack || signal == Signal::fin;
    return goes_on && read_segment(burst_->data[0], burst_->headers[0]).length() > 0;
  }

  // --- taking over

  bool resume(TestLine& from, ConnId told) {
    const auto& was = from.records_.header(told);
    std::array<std::byte, Part::kMost> image;
    from.function().write(was.key, from.records_.state(told), image.data());
    std::vector<const std::byte*> images;
    const std::byte* next = image.data();
    for (const Part& part : function().parts())
      images.push_back(std::exchange(next, next + part.image_bytes));
    alignas(8) std::array<std::byte, Part::kMost> state;
    state.fill(std::byte{kGarbage});
    Opening<K> opening = prepare(was.key, state.data());
    opening.is_resumed = true;
    opening.image = images.front();
    opening.images = images;
    static const Burst nothing_came{};
    function().open(nothing_came, opening);
    const bool had_reply = was.peer != ConnId::none;
    if (!opening.is_accepted() || (opening.decision == Decision::two_way) != had_reply)
      return false;
    if (has(was.key) || full || free_.empty()) return false;
    const ConnId id = insert(was.key, Side::originator, ConnId::none);
    std::memcpy(records_.state(id), state.data(), part_.originator_bytes);
    if (link(id, opening) != Linked::yes) {
      erase(id);
      return false;
    }
    const bool is_proved = from.proved_.contains(told);
    if (is_proved) proved_.insert(id);
    function().event(Event::adopted, was.key, records_.state(id), is_proved);
    return true;
  }

  std::unique_ptr<Burst> burst_ = std::make_unique<Burst>();
  Function* function_;
  Part part_;
  Records<K> records_;  // none if the function tracks nothing
  std::vector<ConnId> free_;
  std::map<std::string, Entry> entries_;  // by key
  std::set<ConnId> proved_;
  alignas(8) std::array<std::byte, Part::kMost> reply_state_;  // of the connection being opened
  test::Bytes bytes_;
};

}  // namespace millrace
