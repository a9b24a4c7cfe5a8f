// Guards of tables that only one worker uses: they do nothing. Removed ids are reclaimed at the end
// of the burst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "conntrack/sharing/sharing.h"

namespace millrace {

/// Reclaims removed ids at the end of the burst. Only one worker may use an instance.
class ReclaimAtOnce {
 public:
  static std::size_t more_ids(unsigned) { return 0; }
  static Result<std::vector<ReclaimAtOnce>> create(unsigned workers) {
    return std::vector<ReclaimAtOnce>(workers);
  }

  static void begin() {}
  static void end() {}
  void add(Side side, ConnId id) { draining_.add(side, id); }
  bool has_room() const { return draining_.has_room(); }
  bool is_empty() const { return draining_.empty(); }
  template <class Table, class Writing>
  void end_burst(TablePair<Table>& pair, Writing&&) {
    draining_.release(pair);
  }

 private:
  DrainingIds draining_;
};

/// Guards that do nothing.
struct Alone {
  static constexpr bool kShared = false;
  static constexpr bool kConcurrent = false;
  using Reclaiming = ReclaimAtOnce;

  struct Guard {};
  static Guard reading() { return {}; }
  static Guard writing() { return {}; }
};

static_assert(Guards<Alone> && Reclaims<ReclaimAtOnce>);

}  // namespace millrace
