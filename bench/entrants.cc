#include <utility>

#include "bench/entrant_at.h"

namespace millrace::bench {

const std::vector<Entrant>& entrants() {
  static const std::vector<Entrant> all = []<std::size_t... i>(std::index_sequence<i...>) {
    return std::vector<Entrant>{entrant_at<i>()...};
  }(std::make_index_sequence<MILLRACE_CONTENDERS>{});
  return all;
}

}  // namespace millrace::bench
