#include "function/balance/maglev.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace millrace {
namespace {

/// A backend's walk through its permutation of the table.
struct Walker {
  std::uint64_t at;
  std::uint64_t skip;
  std::uint32_t weight;
  std::uint16_t index;
  std::uint64_t due =
      0;  ///< the next turn comes in the first round with number * `weight` >= `due`
};

std::vector<Walker> walkers(std::span<const Maglev::Member> members, std::uint32_t size) {
  std::vector<std::uint16_t> order;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].weight > 0) order.push_back(static_cast<std::uint16_t>(i));
  }
  // The order of turns must not depend on the order of the list.
  std::ranges::sort(
      order, {}, [&](std::uint16_t i) { return std::tuple(members[i].offset, members[i].skip); });
  std::vector<Walker> result;
  result.reserve(order.size());
  for (const std::uint16_t i : order) {
    result.push_back({.at = members[i].offset % size,
                      .skip = members[i].skip % (size - 1) + 1,
                      .weight = members[i].weight,
                      .index = i});
  }
  return result;
}

}  // namespace

Hasher balance_hasher(const BalanceKey& key) {
  std::uint64_t seed = 0;
  std::memcpy(&seed, key.data(), sizeof(seed));
  const Hasher expand(Secret::from_seed(seed));
  KeyV6 block;
  block.source.bytes = key;
  Secret secret;
  for (std::size_t i = 0; i < secret.bytes.size(); i += sizeof(Hash)) {
    block.source_port = static_cast<std::uint16_t>(i);
    const Hash word = expand(block);
    std::memcpy(&secret.bytes[i], &word, sizeof(word));
  }
  return Hasher(secret);
}

Maglev Maglev::build(std::span<const Member> members, std::uint32_t size) {
  auto turns = walkers(members, size);
  Maglev maglev;
  if (turns.empty()) return maglev;
  const std::uint32_t heaviest = std::ranges::max_element(turns, {}, &Walker::weight)->weight;
  std::vector<std::uint16_t> entries(size);
  std::vector<bool> taken(size);
  // A backend of the greatest weight takes a turn in every round, each other backend in proportion
  // to its weight. The paper leaves weights to "the relative frequency of the backends' turns".
  std::uint32_t left = size;
  for (std::uint64_t round = 1; left > 0; ++round) {
    for (auto turn = turns.begin(); turn != turns.end() && left > 0; ++turn) {
      if (round * turn->weight < turn->due) continue;
      turn->due += heaviest;
      const auto advance = [&] {
        turn->at += turn->skip;
        if (turn->at >= size) turn->at -= size;
      };
      while (taken[turn->at]) advance();
      taken[turn->at] = true;
      entries[turn->at] = turn->index;
      advance();
      --left;
    }
  }
  maglev.entries_ = std::move(entries);
  return maglev;
}

bool is_prime(std::uint64_t n) {
  if (n < 2) return false;
  for (std::uint64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

}  // namespace millrace
