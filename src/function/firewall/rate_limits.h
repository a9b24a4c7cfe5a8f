// Limits of how many connections may begin by a rule, in all or of each source: token buckets,
// which all workers share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/address.h"
#include "core/token_bucket.h"
#include "function/firewall/matching.h"
#include "millrace/hash.h"
#include "millrace/key.h"
#include "millrace/types.h"

namespace millrace {

/// A limit of new connections.
struct RateLimit {
  enum class Per : std::uint8_t {
    rule,    ///< all connections of the rule together
    source,  ///< each source by itself: an IPv4 address, or the first 64 bits of an IPv6 address
  };
  std::uint64_t interval_ns = 0;  ///< time in which one more connection may begin
  std::uint32_t burst = 1;        ///< connections that may begin at once; at least 1
  Per per = Per::rule;

  friend bool operator==(const RateLimit&, const RateLimit&) = default;
};

class RateLimits {
 public:
  /// Buckets of sources that are kept. A source that is not kept has a full bucket.
  static constexpr std::size_t kSources = std::size_t{1} << 16;

  RateLimits() : of_rule_(kRuleIds), of_source_(kSources) {}

  /// True if one more connection may begin. With `takes`, that connection counts.
  template <class A>
  bool allows(RuleId rule, const RateLimit& limit, const A& source, Tick now, bool takes,
              Zone customer = 0) {
    TokenBucket* const bucket = bucket_of(rule, limit, source, customer, now, takes);
    return bucket == nullptr || bucket->allows(limit.interval_ns, limit.burst, now, takes);
  }
  /// Undoes an `allows` with `takes` that returned true in this burst.
  template <class A>
  void give_back(RuleId rule, const RateLimit& limit, const A& source, Tick now,
                 Zone customer = 0) {
    TokenBucket* const bucket = bucket_of(rule, limit, source, customer, now, false);
    if (bucket != nullptr) bucket->give_back(limit.interval_ns, now);
  }
  /// Makes the bucket of a rule full. (Those of its sources fill by themselves.)
  void fill(RuleId rule) { of_rule_[rule].fill(); }

 private:
  static constexpr std::size_t kWays = 4;
  static constexpr unsigned kSourceBits = 64;  ///< bits by which sources differ

  struct Bucket {
    std::atomic<Hash> hash = 0;
    TokenBucket tokens;
  };

  /// Returns the bucket of a limit, for a source. If there is none, makes one in place of the
  /// fullest in its set if `makes`, else returns null.
  template <class A>
  TokenBucket* bucket_of(RuleId rule, const RateLimit& limit, const A& source, Zone customer,
                         Tick now, bool makes) {
    if (limit.per == RateLimit::Per::rule) return &of_rule_[rule];
    // A bucket is known by its hash alone, whose lowest bit is set: no bucket has the hash 0.
    Key<A> key{.source = prefix_of(source, kSourceBits), .source_port = rule};
    key.set_zone(customer);
    const Hash hash = hasher_(key) | 1;
    Bucket* const set = &of_source_[(hash >> 20) % (kSources / kWays) * kWays];
    Bucket* fullest = set;
    for (Bucket* one = set; one != set + kWays; ++one) {
      if (one->hash.load(std::memory_order_relaxed) == hash) return &one->tokens;
      if (one->tokens.left_ns(now) < fullest->tokens.left_ns(now)) fullest = one;
    }
    if (!makes) return nullptr;
    fullest->tokens.fill();
    fullest->hash.store(hash, std::memory_order_relaxed);
    return &fullest->tokens;
  }

  Hasher hasher_{Secret::random()};
  std::vector<TokenBucket> of_rule_;
  std::vector<Bucket> of_source_;
};

}  // namespace millrace
