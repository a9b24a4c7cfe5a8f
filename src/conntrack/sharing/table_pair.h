// The tables of a tracker.
#pragma once

#include <cstddef>
#include <optional>

namespace millrace {

/// Two instances of the same table: originators' entries and replies' entries.
template <class Table>
struct TablePair {
  Table originators;
  std::optional<Table> replies;
};

}  // namespace millrace
