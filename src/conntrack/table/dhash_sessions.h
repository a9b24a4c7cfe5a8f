// The comparison of `dhash`'s four signature algorithms on sessions like a site's: Table IV of the
// paper. Tests and benchmarks call these functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "conntrack/table/dhash.h"

namespace millrace {

/// Returns distinct TCP sessions from clients to servers, as a site's gateway sees them: the
/// clients' addresses lie close together in a few networks, each client opens 30 connections from
/// consecutive ephemeral ports, and all connections go to a few servers with few ports.
/// Deterministic for a seed.
template <class K>
std::vector<K> site_sessions(std::size_t count, std::uint64_t seed) {
  constexpr std::array<std::array<std::uint8_t, 2>, 6> kNetworks{
      {{10, 1}, {10, 2}, {172, 16}, {192, 168}, {114, 214}, {202, 38}}};
  constexpr std::array<std::uint16_t, 5> kPorts{443, 443, 80, 80, 8080};
  constexpr std::size_t kServers = 48;
  constexpr std::size_t kSessionsAClient = 30;
  constexpr std::uint32_t kEphemeral = 28'232;  // 32768 to 60999, Linux's range
  std::mt19937_64 random(seed);
  std::vector<K> sessions;
  sessions.reserve(count);
  K key;
  key.protocol = 6;
  const auto place = [](auto& address, std::array<std::uint8_t, 2> network, std::size_t host) {
    address.bytes[0] = network[0];
    address.bytes[1] = network[1];
    address.bytes[address.kBytes - 2] = static_cast<std::uint8_t>(host >> 8);
    address.bytes[address.kBytes - 1] = static_cast<std::uint8_t>(host);
  };
  for (std::uint32_t first_port = 0; sessions.size() < count;) {
    const std::size_t nth = sessions.size() % kSessionsAClient;
    const std::size_t client = sessions.size() / kSessionsAClient;
    if (nth == 0) first_port = static_cast<std::uint32_t>(random() % kEphemeral);
    place(key.source, kNetworks[client % kNetworks.size()], 256 + client / kNetworks.size());
    place(key.destination, {203, 0}, 0x7100 + random() % kServers);
    key.source_port = static_cast<std::uint16_t>(32'768 + (first_port + nth) % kEphemeral);
    key.destination_port = kPorts[random() % kPorts.size()];
    sessions.push_back(key);
  }
  return sessions;
}

/// Makes a table as published, with one entry for both directions, of that many buckets. Errors: as
/// `BasicDHash::create`.
template <class K, class Signature, bool kMajorLocation>
Result<BasicDHash<K, Signature, kMajorLocation, true>> published_dhash(std::size_t buckets,
                                                                       const Secret& secret) {
  using Table = BasicDHash<K, Signature, kMajorLocation, true>;
  const auto capacity =
      static_cast<std::size_t>(static_cast<double>(buckets * Table::kSlots) * Table::kMaxLoad);
  return Table::create({.capacity = capacity, .pages = Pages::transparent, .secret = secret});
}

/// The counts of one algorithm.
struct SignatureStatistics {
  std::string_view name;  ///< name of the table with this algorithm
  DHashStatistics statistics;
};

/// Fills a table of that many buckets with the sessions, for each algorithm, and looks up each
/// session once in each direction. Returns the counts in the order of the paper: algorithms 1 to 4.
/// Errors: as `BasicDHash::create`.
template <class K, bool kMajorLocation = true>
Result<std::vector<SignatureStatistics>> compare_signatures(std::span<const K> sessions,
                                                            std::size_t buckets,
                                                            const Secret& secret) {
  std::vector<K> both(sessions.begin(), sessions.end());
  for (const K& key : sessions) both.push_back(reversed(key));
  std::vector<SignatureStatistics> all;
  Result<void> made;
  const auto add = [&]<class Signature>(Signature) {
    if (!made) return;
    auto table = published_dhash<K, Signature, kMajorLocation>(buckets, secret);
    if (!table) {
      made = std::unexpected(table.error());
      return;
    }
    for (const K& key : sessions) table->insert(key, table->hash_of(key), KeepAll{});
    all.push_back({std::decay_t<decltype(*table)>::kName, table->statistics(both)});
  };
  add(XorSignature{});
  add(CrcOfXorSignature{});
  add(XorOfCrcSignature{});
  add(CrcPairSignature{});
  if (!made) return std::unexpected(made.error());
  return all;
}

}  // namespace millrace
