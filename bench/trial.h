// One trial: a table is made, filled, checked and measured once. `tables.cc` repeats trials and
// reports their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/contender.h"
#include "bench/progress.h"
#include "bench/workload.h"

namespace millrace::bench {

/// A size and a load: the same load for all tables, or the highest load that each table promises.
struct Case {
  unsigned bits = 0;
  std::optional<double> load;  ///< live entries a slot, 0 to 1; none: what each table promises

  std::size_t slots() const { return std::size_t{1} << bits; }
  double load_of(const Entrant& entrant) const { return load.value_or(entrant.max_load); }
  std::size_t promised(const Entrant& entrant) const {
    return static_cast<std::size_t>(entrant.max_load * static_cast<double>(slots()));
  }
  std::size_t live(const Entrant& entrant) const {
    return static_cast<std::size_t>(load_of(entrant) * static_cast<double>(slots()));
  }
  bool suits(const Entrant& entrant) const { return load_of(entrant) <= entrant.max_load; }
};

/// Results of all trials of one table: nanoseconds an operation, one value for each trial.
struct Samples {
  std::map<std::pair<std::string_view, unsigned>, std::vector<double>> ns;  ///< operation, burst
  std::vector<float> insertion_ns;
  std::vector<double> beyond_ns;
  std::size_t refused_below = 0;   ///< insertions refused up to the promised load
  std::size_t refused_beyond = 0;  ///< insertions refused beyond the promised load
  std::size_t index_bytes = 0;
  std::size_t record_bytes = 0;
  Pages pages = Pages::huge;  ///< the worst kind of all trials
};

struct TrialOptions {
  std::vector<unsigned> bursts;  ///< keys a burst, 1 to 64
  Pages pages = Pages::huge;
  std::uint64_t seed = 1;
};

/// `K` is KeyV4 or KeyV6.
template <class K>
class Trial {
 public:
  /// All arguments must outlive the trial.
  Trial(const Entrant& entrant, const TrialOptions& options, const Case& at,
        const Workload<K>& workload, Samples& samples)
      : entrant_(entrant), options_(options), case_(at), work_(workload), samples_(samples) {}

  /// Runs the trial, and adds to `samples`. Returns false if `progress` ended the trial. Errors
  /// (failed): no memory, or a table with results other than the reference's.
  Result<bool> run(const Progress& progress);

 private:
  /// Makes the table. `headroom`: records beyond the promised capacity, as a share of that
  /// capacity.
  Result<void> make(double headroom);
  Result<void> fill();
  Result<void> check_answers();
  Result<void> time_lookups();
  Result<void> time_changes();
  Result<void> time_mix();
  Result<void> time_single_insertions();
  Result<void> look_inside();
  Result<void> time_past_the_promise();
  std::unexpected<Error> wrong(std::string_view what, std::size_t got, std::size_t expected) const;
  std::size_t refused() const { return work_.second.size() - table_->size(); }

  const Entrant& entrant_;
  const TrialOptions& options_;
  const Case& case_;
  const Workload<K>& work_;
  Samples& samples_;
  std::unique_ptr<Contender<K>> table_;
  std::vector<bool> present_;  // by place in work_.second
};

}  // namespace millrace::bench
