// The Universal Scalability Law (Gunther, "Guerrilla Capacity Planning", 2007), fitted to measured
// points: throughput(N) = one * N / (1 + contention * (N - 1) + coherence * N * (N - 1)), with N
// workers.
#pragma once

#include <optional>
#include <span>
#include <utility>

namespace millrace::bench {

struct ScalabilityLaw {
  double one = 0;         ///< throughput of one worker
  double contention = 0;  ///< share of the work that only one worker may do at a time
  double coherence = 0;   ///< cost that each pair of workers adds

  double at(double workers) const {
    return one * workers / (1 + contention * (workers - 1) + coherence * workers * (workers - 1));
  }
};

/// Fits the law by least squares over N / throughput, which is linear in the law's coefficients. No
/// coefficient is below 0. `points` are pairs of workers and throughput, both above 0. Returns none
/// if the points do not determine the law: three different numbers of workers are needed.
std::optional<ScalabilityLaw> fit_scalability_law(
    std::span<const std::pair<double, double>> points);

}  // namespace millrace::bench
