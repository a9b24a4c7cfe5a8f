// Finds the first rule that matches a packet, by bit vectors: Lakshman and Stiliadis, "High-Speed
// Policy-based Packet Forwarding Using Efficient Multi-dimensional Range Matching", SIGCOMM 1998;
// aggregated as in Baboescu and Varghese, "Scalable Packet Classification", SIGCOMM 2001.
//
// For each field of a packet a search returns the rules whose condition on that field holds, as a
// set of bits. The rules that are in the sets of all fields match. Sets are sparse: only words that
// are not 0 are kept, and a summary has a bit for each word.
//
// - The rules for an address are the union of those that name one of the prefixes around it. So
//   memory grows with the number of prefixes in rules, however prefixes nest.
// - Rules are in groups by the fields on which they have a condition, and a group's rules have
//   neighbouring bits. So the sets of those fields are small, and few words have to be looked at:
//   rules for any address would otherwise have bits in all words.
//
// Any thread makes a classifier; then any thread may search it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/intervals.h"
#include "core/prefix_table.h"
#include "function/firewall/matching.h"

namespace millrace {

/// Sets of bits, each of which stands for a rule.
class RuleSets {
 public:
  explicit RuleSets(std::size_t bits) : summaries_((bits + kBlock - 1) / kBlock) {}

  using Id = std::uint32_t;
  /// Adds a set; returns the id of an equal one if there is one.
  Id add(std::vector<std::uint32_t> bits);

  /// A part of a set: of `kBlock` bits, the words that are not 0.
  struct Part {
    std::uint64_t summary = 0;  ///< the words that are not 0, a bit each
    std::uint32_t first = 0;    ///< place of the first of these words
  };
  /// Bits that a part covers: a summary's times a word's.
  static constexpr std::size_t kBlock = std::size_t{64} * 64;

  /// Returns the number of parts of each set.
  std::size_t parts() const { return summaries_; }
  const Part* parts_of(Id id) const { return &parts_[id * summaries_]; }
  /// Returns the word of a part for one of its bits in the summary, given as a mask; 0 if the word
  /// is not kept.
  std::uint64_t word(const Part& part, std::uint64_t bit) const {
    if ((part.summary & bit) == 0) return 0;
    return words_[part.first + static_cast<unsigned>(std::popcount(part.summary & (bit - 1)))];
  }
  std::size_t memory_bytes() const {
    return parts_.capacity() * sizeof(Part) + words_.capacity() * sizeof(std::uint64_t);
  }
  /// Forgets what `add` compares with: no set can be added any more.
  void finish() { known_.clear(); }

 private:
  std::size_t summaries_;
  std::vector<Part> parts_;
  std::vector<std::uint64_t> words_;
  std::map<std::vector<std::uint32_t>, Id> known_;
};

/// Named sets of prefixes, as far as one family is concerned.
template <class A>
class AddressSets {
 public:
  AddressSets() = default;
  /// `sets[i]` has the prefixes of set `i`.
  explicit AddressSets(std::span<const std::vector<Prefix<A>>> sets);

  /// Calls `each(set)` for each set that contains the address, once for each prefix of the set that
  /// does.
  template <class Each>
  void for_each(const A& address, Each&& each) const {
    prefixes_.for_each_around(address, [&](std::uint32_t prefix) {
      for (std::uint32_t i = first_[prefix]; i < first_[prefix + 1]; ++i) each(of_[i]);
    });
  }
  std::size_t memory_bytes() const {
    return prefixes_.memory_bytes() + first_.capacity() * sizeof(first_[0]) +
           of_.capacity() * sizeof(of_[0]);
  }

 private:
  PrefixTable<A> prefixes_;
  std::vector<std::uint32_t> first_;  // by prefix: its first place in `of_`; one entry more
  std::vector<std::uint16_t> of_;     // sets that have the prefix
};

template <class A>
class Classifier {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// Most rules.
  static constexpr std::size_t kMost = 65'000;

  explicit Classifier(std::span<const RuleMatch<A>> rules = {});

  /// Returns the number of the first rule that matches; `kNone` if none does.
  std::uint32_t find(const PacketFields<A>& packet, const AddressSets<A>& sets) const;
  std::size_t memory_bytes() const;

 private:
  using Parts = const RuleSets::Part*;
  using Rules = std::span<const RuleMatch<A>>;
  /// The fields on which a rule may have a condition; zones and protocols apart.
  enum Field : std::uint8_t {
    kSource = 1,
    kDestination = 2,
    kSourcePort = 4,
    kDestinationPort = 8
  };
  /// Rules with conditions on the same fields. Their bits are neighbours, in the rules' order.
  struct Group {
    unsigned fields = 0;           ///< `Field`s
    std::uint32_t first_rule = 0;  ///< the first in the order of all rules
    std::uint32_t begin = 0;       ///< first word of the group's bits
    std::uint32_t end = 0;         ///< end of the words
  };
  class Union;
  /// The rules with a condition on the addresses of one end.
  struct End {
    PrefixTable<A> prefixes;
    std::vector<RuleSets::Id> by_prefix;
    std::vector<RuleSets::Id> by_set;
  };
  /// The sets for the ports of one end, by port.
  using Ports = Intervals<std::uint16_t>;
  struct Found;

  std::vector<std::uint32_t> make_groups(Rules rules);
  template <class Member>
  End end_of(Rules rules, Member member);
  template <class Member>
  Ports ports_of(Rules rules, Member member);
  template <class Test>
  RuleSets::Id those(Rules rules, Test&& test);
  void gather(const End& end, const A& address, const AddressSets<A>& sets, Union& all) const;
  std::uint32_t find_in(const Group& group, const Found& found) const;

  std::vector<Group> groups_;           // the one with the first rule first
  std::vector<std::uint32_t> rule_of_;  // by bit
  std::vector<std::uint32_t> bit_of_;   // by rule
  RuleSets sets_;
  End source_;
  End destination_;
  Ports source_ports_;
  Ports destination_ports_;
  std::array<RuleSets::Id, 256> protocols_{};
  std::array<RuleSets::Id, kMostZones> from_{};
  std::array<RuleSets::Id, kMostZones> to_{};
};

}  // namespace millrace
