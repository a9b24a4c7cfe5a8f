#include "shard/spread.h"

#include <array>

#include "shard/keyed.h"
#include "shard/toeplitz.h"

namespace millrace {
namespace {

constexpr std::array<SpreadKind, 3> kSpreads{{
    {"keyed", "keyed hash of the client's end; the default", true,
     [](const Secret& secret) -> std::unique_ptr<Spread> {
       return std::make_unique<KeyedSpread>(secret);
     }},
    {"toeplitz", "the hash of NICs, random key, client's end", true,
     [](const Secret& secret) -> std::unique_ptr<Spread> {
       return std::make_unique<ToeplitzSpread>(ToeplitzSpread::random_key(secret),
                                               ToeplitzSpread::Ends::client);
     }},
    {"toeplitz-symmetric", "the hash of NICs, well-known key, both ends: for comparison", false,
     [](const Secret&) -> std::unique_ptr<Spread> {
       return std::make_unique<ToeplitzSpread>(ToeplitzSpread::symmetric_key(),
                                               ToeplitzSpread::Ends::both);
     }},
}};

}  // namespace

std::span<const SpreadKind> spreads() { return kSpreads; }

std::vector<std::string> spread_names() {
  std::vector<std::string> names;
  for (const SpreadKind& kind : kSpreads) names.emplace_back(kind.name);
  return names;
}

const SpreadKind* spread_named(std::string_view name) {
  for (const SpreadKind& kind : kSpreads) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace millrace
