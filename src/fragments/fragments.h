// A worker's stage for fragments, behind the parser: it gives later fragments the key of their
// datagram's first one, so that all that follows (spreading, lookup, functions) sees packets of a
// connection. It keeps fragments that come before the first, and drops impossible ones.
//
// A first fragment goes on as it is. Directly behind it go those that were kept, in bursts of their
// own; the rest of the burst follows them.
//
// Used by the worker's thread. The table is shared with other workers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/burst.h"
#include "fragments/fragment_table.h"
#include "port/port.h"

namespace millrace {

class Fragments {
 public:
  explicit Fragments(std::shared_ptr<FragmentTable> table);

  /// True if `next` has packets, which must be served before others are received.
  bool has_waiting() const { return at_ != released_.size() || rest_->size != 0; }
  /// Exchanges an empty burst for one with packets that wait. `port` is the one that received them.
  void next(std::unique_ptr<Burst>& burst, Port& port);

  /// True if `follow` has something to do.
  bool concerns(const Burst& burst) const {
    return burst.fragments != 0 || (table_->is_keeping() && burst.now != looked_);
  }
  /// Gives the burst's fragments keys or verdicts, and takes out those that are kept. To be called
  /// for a parsed burst, before the port has filed it. May leave packets to `next`.
  void follow(Burst& burst, const Port& port);
  /// Ends the waiting of all fragments, so that `next` returns them. To be called at the end.
  void give_up();

  const FragmentTable& table() const { return *table_; }

 private:
  /// The outcome for a packet in its burst.
  enum class After : std::uint8_t {
    stays,
    taken,     ///< kept, in the table
    releases,  ///< stays, and fragments that were kept go on behind it
  };
  template <class K>
  After follow_one(Burst& burst, unsigned i, bool may_be_kept, bool is_known);

  std::shared_ptr<FragmentTable> table_;
  std::vector<ReleasedFragment> released_;  // those from `at_` on wait
  std::size_t at_ = 0;
  std::unique_ptr<Burst> rest_;  // the packets behind the first fragment that released others
  Tick now_;
  Tick looked_;  // when `expire` was last called
};

}  // namespace millrace
