// Which entries of the indirection table should move so that all workers have as much to do: after
// RSS++ (Barbette, Katsikas, Maguire, Kostic, CoNEXT 2019).
//
// The paper moves entries from cores above the mean to cores below it, as few as it can, by a
// greedy search that it repeats with different tolerances. Here each move takes the entry from the
// busiest to the idlest that brings these two closest together, so that one heavy entry moves
// rather than many light ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shard/indirection.h"

namespace millrace {

struct Move {
  unsigned entry;
  unsigned from;
  unsigned to;
};

/// How far above the mean a worker's load may be before anything moves.
inline constexpr double kUnlevel = 1.05;
/// And how far when no more moves.
inline constexpr double kLevel = 1.01;

/// The loads of `workers`, given that of each entry.
std::vector<double> loads_of(const Indirection& indirection, std::span<const double> load_of_entry,
                             unsigned workers);

/// Moves that lower the highest load, best first; none where all are level. A worker gives or
/// takes, never both.
std::vector<Move> level(const Indirection& indirection, std::span<const double> load_of_entry,
                        unsigned workers);

}  // namespace millrace
