// The Universal Scalability Law (Gunther, "Guerrilla Capacity Planning", 2007), fitted to measured
// points: throughput(N) = one N / (1 + contention (N - 1) + coherence N (N - 1)).
#pragma once

#include <optional>
#include <span>
#include <utility>

namespace millrace::bench {

struct ScalabilityLaw {
  double one = 0;         ///< throughput of one worker
  double contention = 0;  ///< share of the work that only one may do at a time
  double coherence = 0;   ///< what each pair of workers costs both

  double at(double workers) const {
    return one * workers / (1 + contention * (workers - 1) + coherence * workers * (workers - 1));
  }
};

/// By least squares over N / throughput, which is linear in what is sought, and not below 0.
/// `points` are workers and throughput above 0. None where they do not determine it: three
/// different counts at least.
std::optional<ScalabilityLaw> fit_scalability_law(
    std::span<const std::pair<double, double>> points);

}  // namespace millrace::bench
