#include "bench/rule_mix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <set>
#include <utility>

#include "bench/rule_mix_shares.h"
#include "traffic/random.h"

namespace millrace {
namespace {

using rule_mix::Lengths;
using rule_mix::Shares;

constexpr std::array<std::string_view, 3> kMixNames{"acl", "firewall", "ipc"};
constexpr std::uint8_t kIcmpV6 = 58;
constexpr std::uint16_t kLastPort = 65'535;

template <class A>
constexpr unsigned kBits = A::kBytes * 8;
template <class A>
constexpr bool kIsV6 = A::kBytes == 16;

template <class A>
bool bit(const A& address, unsigned i) {
  return (address.bytes[i / 8] >> (7 - i % 8) & 1) != 0;
}
template <class A>
void set_bit(A& address, unsigned i) {
  address.bytes[i / 8] |= static_cast<std::uint8_t>(0x80 >> i % 8);
}

/// Sets the bits from number `bits` on at random. They must be 0.
template <class A>
void fill(A& address, unsigned bits, Random& random) {
  for (unsigned i = bits / 8; i < A::kBytes; ++i) {
    const unsigned kept = i == bits / 8 ? bits % 8 : 0;
    address.bytes[i] |= static_cast<std::uint8_t>(random.below(0x100u >> kept));
  }
}

/// Clears the bits from number `bits` on.
template <class A>
void truncate(A& address, unsigned bits) {
  for (unsigned i = bits / 8; i < A::kBytes; ++i) {
    const unsigned kept = i == bits / 8 ? bits % 8 : 0;
    address.bytes[i] &= static_cast<std::uint8_t>(0xff00u >> kept);
  }
}

template <class A>
bool contains(const typename MixRule<A>::Prefix& prefix, const A& address) {
  A network = address;
  truncate(network, prefix.bits);
  return network == prefix.address;
}

template <class T>
const T& draw(std::span<const T> choices, Random& random) {
  unsigned total = 0;
  for (const T& one : choices) total += one.share;
  std::uint64_t drawn = random.below(total);
  const T* at = choices.data();
  for (; drawn >= at->share; ++at) drawn -= at->share;
  return *at;
}

/// A binary trie that is never stored: a hash of a node's path tells whether the node has one child
/// or two, and how much more weight the heavier of two has.
template <class A>
class Trie {
 public:
  /// Makes a trie with about 2^(forks_q32 / 2^32) addresses.
  Trie(std::uint64_t forks_q32, std::uint64_t seed) : seed_(seed) {
    std::uint64_t total = 0;
    for (unsigned i = 0; i < kBits<A>; ++i) total += weight(i);
    for (unsigned i = 0; i < kBits<A>; ++i) {
      const Uint128 probability = Uint128{forks_q32} * weight(i) / total;
      fork_q32_[i] = static_cast<std::uint64_t>(std::min(probability, Uint128{1} << 32));
    }
  }

  /// Returns a random prefix of this length. Its first bits are the first `given` of `start`.
  A walk(unsigned bits, const A& start, unsigned given, Random& random) const {
    A address{};
    std::uint64_t node = seed_;
    for (unsigned i = 0; i < bits; ++i) {
      const bool one = i < given ? bit(start, i) : next(node, i, random);
      if (one) set_bit(address, i);
      node = child(node, one);
    }
    return address;
  }

 private:
  /// Returns the relative frequency of forks at this depth: most in the first bits of IPv4, fewest
  /// in the host part of IPv6, whose first bits are those of 2000::/3.
  static unsigned weight(unsigned depth) {
    if (!kIsV6<A>) return depth < 8 ? 4 : depth < 16 ? 2 : 3;
    if (depth < 3) return 0;
    return depth < 32 ? 4 : depth < 64 ? 6 : 1;
  }
  static std::uint64_t child(std::uint64_t node, bool one) {
    return Random(node + (one ? 0x6f6e65 : 0))();
  }
  bool next(std::uint64_t node, unsigned depth, Random& random) const {
    if (kIsV6<A> && depth < 3) return depth == 2;
    const bool heavier = (node & 1) != 0;
    if (node >> 32 >= fork_q32_[depth]) return heavier;
    const auto heavier_percent = static_cast<unsigned>(50 + (node >> 1 & 0xff) * 40 / 255);
    return random.percent(heavier_percent) == heavier;
  }

  std::uint64_t seed_;
  std::array<std::uint64_t, kBits<A>> fork_q32_{};
};

/// Draws one side's prefixes from a trie, so that they seldom nest deeper than ClassBench's files
/// say.
template <class A>
class PrefixSource {
 public:
  using Prefix = typename MixRule<A>::Prefix;

  PrefixSource(std::uint64_t forks_q32, std::uint64_t seed) : trie_(forks_q32, seed) {}

  /// Returns a random prefix of this length. Its first bits are the first `given` of `start`.
  Prefix draw(unsigned bits, const A& start, unsigned given, Random& random) {
    constexpr std::size_t kDeepest = 4;
    constexpr int kTries = 16;
    Prefix prefix{trie_.walk(bits, start, given, random), bits};
    for (int i = 1; i < kTries && wider(prefix) >= kDeepest; ++i) {
      prefix.address = trie_.walk(bits, start, given, random);
    }
    drawn_.insert(prefix);
    lengths_[bits] = true;
    return prefix;
  }

 private:
  /// Returns how many prefixes were drawn that contain this one, itself left out.
  std::size_t wider(const Prefix& prefix) const {
    std::size_t count = 0;
    A address = prefix.address;
    for (unsigned bits = prefix.bits; bits-- > 0;) {
      if (!lengths_[bits]) continue;
      truncate(address, bits);
      count += drawn_.contains({address, bits}) ? 1 : 0;
    }
    return count;
  }

  Trie<A> trie_;
  std::set<Prefix> drawn_;
  std::array<bool, kBits<A> + 1> lengths_{};
};

struct Ports {
  std::uint16_t first, last;
};

/// Draws port ranges.
class PortSource {
 public:
  PortSource(unsigned ranges, Random& random) {
    for (unsigned i = 0; i < ranges; ++i) {
      constexpr std::array<unsigned, 5> kWidths{2, 4, 10, 50, 100};
      const auto first = static_cast<std::uint16_t>(random.log_uniform(20, 65'000));
      const unsigned width = kWidths[random.below(kWidths.size())];
      ranges_.push_back({first, static_cast<std::uint16_t>(first + width - 1)});
    }
  }

  Ports draw(PortClass port_class, Random& random) const {
    if (port_class == PortClass::high) return {1024, kLastPort};
    if (port_class == PortClass::low) return {0, 1023};
    if (port_class == PortClass::range) return ranges_[skewed(ranges_.size(), random)];
    if (port_class == PortClass::any) return {0, kLastPort};
    const std::uint16_t port = random.percent(1)
                                   ? static_cast<std::uint16_t>(random.between(1024, kLastPort))
                                   : kPorts[skewed(kPorts.size(), random)];
    return {port, port};
  }

 private:
  static constexpr std::array<std::uint16_t, 64> kPorts{
      443,  80,  53,  22,  25,  1521, 123,  161,  3389, 445,   389,  1433, 88,   8080, 21,    514,
      3306, 139, 135, 137, 110, 143,  5432, 23,   69,   162,   500,  1812, 636,  993,  8443,  5060,
      67,   119, 179, 873, 995, 2049, 111,  1526, 5631, 6000,  5900, 9100, 1645, 1646, 1813,  4500,
      5432, 587, 465, 113, 138, 1723, 1194, 6379, 9200, 27017, 2181, 9092, 5672, 3268, 10050, 4789};

  static std::size_t skewed(std::size_t n, Random& random) { return random.log_uniform(1, n) - 1; }

  std::vector<Ports> ranges_;
};

/// Returns the IPv6 prefix length that stands for one of IPv4.
unsigned bits_v6(unsigned bits_v4, Random& random) {
  if (bits_v4 == 0) return 0;
  if (bits_v4 <= 12) return 32;
  if (bits_v4 <= 20) return 48;
  if (bits_v4 <= 23) return random.percent(70) ? 48 : 56;
  if (bits_v4 <= 27) return random.percent(50) ? 56 : 64;
  if (bits_v4 < 32) return 64;
  return random.percent(80) ? 128 : 64;
}

template <class A>
class RuleSource {
 public:
  RuleSource(RuleMix mix, std::size_t rules, std::uint64_t seed)
      : shares_(rule_mix::kShares[static_cast<std::size_t>(mix)]),
        random_(seed),
        sources_(log2_q32(rules), random_()),
        destinations_(log2_q32(rules), random_()),
        ports_(shares_.ranges, random_) {}

  MixRule<A> draw() {
    const auto& [protocol, source, destination, share] = millrace::draw(shares_.services, random_);
    MixRule<A> rule;
    rule.protocol = kIsV6<A> && protocol == rule_mix::kIcmp ? kIcmpV6 : protocol;
    const Ports from = ports_.draw(source, random_);
    const Ports to = ports_.draw(destination, random_);
    rule.first_source_port = from.first;
    rule.last_source_port = from.last;
    rule.first_destination_port = to.first;
    rule.last_destination_port = to.last;
    draw_prefixes(rule, source, destination);
    rule.accepts = random_.percent(70);
    return rule;
  }

  /// Returns a rule that this one covers.
  MixRule<A> narrowed(MixRule<A> rule) {
    for (auto* prefix : {&rule.source, &rule.destination}) {
      if (prefix->bits == 0) continue;  // else every prefix of /1 to /8 would soon be there
      const auto more = static_cast<unsigned>(random_.below(9));
      A address = prefix->address;
      fill(address, prefix->bits, random_);
      prefix->bits = std::min(prefix->bits + more, kBits<A>);
      truncate(address, prefix->bits);
      prefix->address = address;
    }
    if (rule.protocol == rule_mix::kAny && random_.percent(50)) rule.protocol = rule_mix::kTcp;
    const bool has_ports = rule.protocol == rule_mix::kTcp || rule.protocol == rule_mix::kUdp;
    if (has_ports && random_.percent(50)) {
      const auto port = static_cast<std::uint16_t>(
          random_.between(rule.first_destination_port, rule.last_destination_port));
      rule.first_destination_port = rule.last_destination_port = port;
    }
    rule.accepts = random_.percent(70);
    return rule;
  }

  Random& random() { return random_; }

 private:
  static constexpr unsigned kSiteBits = kIsV6<A> ? 48 : 20;

  void draw_prefixes(MixRule<A>& rule, PortClass source, PortClass destination) {
    const Lengths lengths =
        millrace::draw(rule_mix::lengths_of(shares_, source, destination), random_);
    const unsigned from = kIsV6<A> ? bits_v6(lengths.source, random_) : lengths.source;
    const unsigned to = kIsV6<A> ? bits_v6(lengths.destination, random_) : lengths.destination;
    rule.source = sources_.draw(from, {}, 0, random_);
    const bool one_site =
        std::min(from, to) >= kSiteBits && random_.percent(shares_.one_site_percent);
    rule.destination =
        destinations_.draw(to, rule.source.address, one_site ? kSiteBits : 0, random_);
  }

  Shares shares_;
  Random random_;
  PrefixSource<A> sources_;
  PrefixSource<A> destinations_;
  PortSource ports_;
};

/// Adds a rule, unless the set has one that matches the same packets.
template <class A>
bool is_new(MixRule<A> rule, std::set<MixRule<A>>& rules) {
  rule.accepts = false;
  return rules.insert(rule).second;
}

/// Returns how narrow a rule is: approximately -log2 of the share of packets that match it, where
/// the addresses of both families count 32.
template <class A>
std::uint64_t narrowness(const MixRule<A>& rule) {
  const auto bits = [](unsigned first, unsigned last) { return 16 - std::bit_width(last - first); };
  return (rule.source.bits + rule.destination.bits) * 32 / kBits<A> +
         static_cast<unsigned>(bits(rule.first_source_port, rule.last_source_port)) +
         static_cast<unsigned>(bits(rule.first_destination_port, rule.last_destination_port)) +
         (rule.protocol == rule_mix::kAny ? 0 : 8);
}

/// Returns the protocol of a packet for a rule that leaves it open. Such a rule has no ports.
template <class A>
std::uint8_t draw_protocol(Random& random) {
  const std::uint64_t percent = random.below(100);
  if (percent < 70) return rule_mix::kTcp;
  if (percent < 95) return rule_mix::kUdp;
  return kIsV6<A> ? kIcmpV6 : rule_mix::kIcmp;
}

template <class A>
void draw_ports(Key<A>& key, const MixRule<A>& rule, Random& random) {
  const auto draw = [&random](std::uint16_t first, std::uint16_t last) {
    return static_cast<std::uint16_t>(random.between(first, last));
  };
  const bool has_ports = key.protocol == rule_mix::kTcp || key.protocol == rule_mix::kUdp;
  const bool is_icmp = key.protocol == rule_mix::kIcmp || key.protocol == kIcmpV6;
  if (!has_ports && !is_icmp) return;
  key.source_port = draw(rule.first_source_port, rule.last_source_port);
  key.destination_port =
      is_icmp ? key.source_port : draw(rule.first_destination_port, rule.last_destination_port);
}

template <class A>
Key<A> packet_in(const MixRule<A>& rule, Random& random) {
  Key<A> key;
  key.source = rule.source.address;
  key.destination = rule.destination.address;
  fill(key.source, rule.source.bits, random);
  fill(key.destination, rule.destination.bits, random);
  key.protocol = rule.protocol != rule_mix::kAny ? rule.protocol : draw_protocol<A>(random);
  draw_ports(key, rule, random);
  return key;
}

}  // namespace

std::optional<RuleMix> rule_mix_named(std::string_view name) {
  const auto* const at = std::ranges::find(kMixNames, name);
  if (at == kMixNames.end()) return std::nullopt;
  return static_cast<RuleMix>(at - kMixNames.begin());
}

std::string_view to_string(RuleMix mix) { return kMixNames[static_cast<std::size_t>(mix)]; }

PortClass port_class(std::uint16_t first, std::uint16_t last) {
  if (first == last) return PortClass::exact;
  if (first == 0 && last == kLastPort) return PortClass::any;
  if (first == 1024 && last == kLastPort) return PortClass::high;
  if (first == 0 && last == 1023) return PortClass::low;
  return PortClass::range;
}

template <class A>
std::vector<MixRule<A>> make_rules(RuleMix mix, std::size_t count, std::uint64_t seed) {
  constexpr std::size_t kMostDraws = 64;  // for each rule
  constexpr std::size_t kCoveredPercent = 2;
  constexpr std::uint64_t kDisorder = 12;  // in units of `narrowness`
  constexpr std::uint64_t kNarrowest = 104;
  RuleSource<A> source(mix, count, seed);
  Random& random = source.random();
  struct Placed {
    std::uint64_t place;  // unique, so that every library sorts alike
    MixRule<A> rule;
  };
  std::vector<Placed> placed;
  std::set<MixRule<A>> present;
  const std::size_t covered = count * kCoveredPercent / 100;
  std::size_t draws = count * kMostDraws;
  while (placed.size() < count - covered && draws-- > 0) {
    const MixRule<A> rule = source.draw();
    if (!is_new(rule, present)) continue;
    const std::uint64_t width = kNarrowest - narrowness(rule) + random.below(kDisorder);
    placed.push_back({width << 32 | placed.size(), rule});
  }
  std::ranges::sort(placed, {}, &Placed::place);
  for (std::size_t i = 0; i < placed.size(); ++i) placed[i].place = i << 32;
  const std::size_t ordered = placed.size();
  draws = count * kMostDraws;
  while (placed.size() < ordered + covered && draws-- > 0) {
    const auto& [place, outer] = placed[random.below(ordered)];
    const MixRule<A> rule = source.narrowed(outer);
    if (!is_new(rule, present)) continue;
    placed.push_back({random.between(place + 1, ordered << 32), rule});
  }
  std::ranges::sort(placed, {}, &Placed::place);
  std::vector<MixRule<A>> rules;
  rules.reserve(placed.size());
  for (const Placed& one : placed) rules.push_back(one.rule);
  return rules;
}

template <class A>
bool matches(const MixRule<A>& rule, const Key<A>& key) {
  return (rule.protocol == rule_mix::kAny || rule.protocol == key.protocol) &&
         key.source_port >= rule.first_source_port && key.source_port <= rule.last_source_port &&
         key.destination_port >= rule.first_destination_port &&
         key.destination_port <= rule.last_destination_port &&
         contains<A>(rule.source, key.source) && contains<A>(rule.destination, key.destination);
}

template <class A>
bool covers(const MixRule<A>& outer, const MixRule<A>& inner) {
  const auto prefix_covers = [](const auto& wide, const auto& narrow) {
    return wide.bits <= narrow.bits && contains<A>(wide, narrow.address);
  };
  return (outer.protocol == rule_mix::kAny || outer.protocol == inner.protocol) &&
         outer.first_source_port <= inner.first_source_port &&
         outer.last_source_port >= inner.last_source_port &&
         outer.first_destination_port <= inner.first_destination_port &&
         outer.last_destination_port >= inner.last_destination_port &&
         prefix_covers(outer.source, inner.source) &&
         prefix_covers(outer.destination, inner.destination);
}

template <class A>
std::vector<Key<A>> uniform_packets(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  const MixRule<A> everything{};
  std::vector<Key<A>> keys;
  keys.reserve(count);
  while (keys.size() < count) keys.push_back(packet_in(everything, random));
  return keys;
}

template <class A>
std::vector<MixPacket<A>> packets_of(std::span<const MixRule<A>> rules, std::size_t count,
                                     std::uint64_t seed) {
  Random random(seed);
  const Permutation order(rules.size(), seed);
  std::vector<MixPacket<A>> packets;
  packets.reserve(count);
  while (packets.size() < count) {
    const std::size_t rule = order(random.log_uniform(1, rules.size()) - 1);
    packets.push_back({packet_in(rules[rule], random), rule});
  }
  return packets;
}

template std::vector<MixRule<AddressV4>> make_rules(RuleMix, std::size_t, std::uint64_t);
template std::vector<MixRule<AddressV6>> make_rules(RuleMix, std::size_t, std::uint64_t);
template bool matches(const MixRule<AddressV4>&, const Key<AddressV4>&);
template bool matches(const MixRule<AddressV6>&, const Key<AddressV6>&);
template bool covers(const MixRule<AddressV4>&, const MixRule<AddressV4>&);
template bool covers(const MixRule<AddressV6>&, const MixRule<AddressV6>&);
template std::vector<Key<AddressV4>> uniform_packets(std::size_t, std::uint64_t);
template std::vector<Key<AddressV6>> uniform_packets(std::size_t, std::uint64_t);
template std::vector<MixPacket<AddressV4>> packets_of(std::span<const MixRule<AddressV4>>,
                                                      std::size_t, std::uint64_t);
template std::vector<MixPacket<AddressV6>> packets_of(std::span<const MixRule<AddressV6>>,
                                                      std::size_t, std::uint64_t);

}  // namespace millrace
