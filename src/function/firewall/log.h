// The firewall's log: the connections whose first packets met a rule with `log`.
//
// Workers write events; the thread that calls the deployment changes names; any thread reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/burst.h"
#include "core/customers.h"
#include "core/token_bucket.h"
#include "core/verdict.h"
#include "function/event_log.h"
#include "function/firewall/settings.h"

namespace millrace {

/// A decision of a rule about the first packet of a connection.
struct FirewallEvent {
  std::uint64_t time_ns = 0;  ///< since 1970
  AnyKey key;                 ///< key with which the packet arrived
  AnyAddress destination;     ///< destination that the rules saw: that with which the packet leaves
  std::uint16_t destination_port = 0;
  std::uint16_t message = 0;  ///< type and code of an ICMP query
  std::uint32_t length = 0;   ///< bytes on the wire
  Zone to_customer = 0;       ///< behind a tunnel; the one it comes from is in the key
  std::uint32_t names = 0;    ///< `FirewallLog::rename` has returned this number
  RuleId rule = 0;
  Action action = Action::drop;
  Verdict verdict = Verdict::denied;
  std::uint8_t from = 0;  ///< zones
  std::uint8_t to = 0;
  std::uint8_t link = kNoLink;
};

static_assert(sizeof(FirewallEvent) == 104);

class FirewallLog {
 public:
  /// The names behind the numbers in events: JSON strings, but for customers.
  struct Names {
    std::vector<std::string> rules;  ///< indexed by `RuleId`
    std::vector<std::string> zones;  ///< from the zone `kHostZone` + 1 on
    std::vector<std::string> ports;  ///< indexed by link
    std::shared_ptr<const Customers> customers;
  };

  explicit FirewallLog(unsigned workers)
      : workers_(workers),
        events_(std::make_shared<EventLog<FirewallEvent>>(workers)),
        buckets_(kRuleIds) {}

  /// Sets the names for later events, and returns their number. Names of the latest `kMostNames`
  /// calls are kept; readers miss the events of earlier ones.
  std::uint32_t rename(Names names);

  EventRing<FirewallEvent>& ring(unsigned worker) { return events_->ring(worker); }
  /// Returns the bucket that limits how many events of a rule are written.
  TokenBucket& bucket(RuleId rule) { return buckets_[rule]; }

  /// Returns a reader of the log `of`, which may outlive all but the reader.
  static std::unique_ptr<LogReader> reader(std::shared_ptr<FirewallLog> of, bool only_new);

 private:
  class Reader;
  static constexpr std::size_t kMostNames = 8;

  std::shared_ptr<const Names> names(std::uint32_t number);

  unsigned workers_;
  std::shared_ptr<EventLog<FirewallEvent>> events_;
  std::vector<TokenBucket> buckets_;                // all workers share them
  std::mutex mutex_;                                // protects the members below
  std::uint32_t renamed_ = 0;                       // calls of `rename`
  std::deque<std::shared_ptr<const Names>> names_;  // of the latest calls, the last behind
};

}  // namespace millrace
