#include "bench/usl.h"

#include <array>
#include <cmath>
#include <cstddef>

namespace millrace::bench {
namespace {

using Row = std::array<double, 4>;  // three unknowns and the right-hand side

/// Solves the equations by Gauss-Jordan elimination with pivoting. Returns false if the equations
/// do not determine the unknowns.
bool solve(std::array<Row, 3>& rows) {
  for (std::size_t column = 0; column < 3; ++column) {
    std::size_t pivot = column;
    for (std::size_t r = column + 1; r < 3; ++r) {
      if (std::abs(rows[r][column]) > std::abs(rows[pivot][column])) pivot = r;
    }
    if (std::abs(rows[pivot][column]) < 1e-9) return false;
    std::swap(rows[pivot], rows[column]);
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == column) continue;
      const double factor = rows[r][column] / rows[column][column];
      for (std::size_t c = column; c < 4; ++c) rows[r][c] -= factor * rows[column][c];
    }
  }
  return true;
}

}  // namespace

std::optional<ScalabilityLaw> fit_scalability_law(
    std::span<const std::pair<double, double>> points) {
  std::array<Row, 3> normal{};
  for (const auto& [workers, throughput] : points) {
    const std::array<double, 3> x{1, workers - 1, workers * (workers - 1)};
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) normal[i][j] += x[i] * x[j];
      normal[i][3] += x[i] * workers / throughput;
    }
  }
  // Fits the law with contention, coherence, both or neither set to 0. Of the fits without a
  // coefficient below 0 the closest counts.
  std::optional<ScalabilityLaw> best;
  double least = 0;
  for (unsigned left_out = 0; left_out < 4; ++left_out) {
    auto rows = normal;
    for (std::size_t i = 1; i < 3; ++i) {
      if ((left_out >> (i - 1) & 1) == 0) continue;
      rows[i] = {};
      rows[i][i] = 1;
    }
    if (!solve(rows)) return std::nullopt;
    const auto solution = [&rows](std::size_t i) { return rows[i][3] / rows[i][i]; };
    if (solution(0) <= 0 || solution(1) < 0 || solution(2) < 0) continue;
    const ScalabilityLaw law{1 / solution(0), solution(1) / solution(0), solution(2) / solution(0)};
    double distance = 0;
    for (const auto& [workers, throughput] : points) {
      const double off = workers / throughput - workers / law.at(workers);
      distance += off * off;
    }
    if (!best || distance < least) {
      best = law;
      least = distance;
    }
  }
  return best;
}

}  // namespace millrace::bench
