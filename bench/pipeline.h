// The question: is one thread that reads for several workers faster than workers that do everything
// themselves, and does a calculation from a single core's times predict the result?
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/pipeline_model.h"
#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

struct PipelineOptions : Settings {
  /// Numbers of workers, for both models; threads may be more than processors. Empty: every number
  /// with a processor for each thread, up to `kMostWorkersUnasked`.
  std::vector<unsigned> workers;
  std::string table = "race";
  std::uint64_t live = 200'000;  ///< connections of campus traffic
  unsigned burst = 32;           ///< packets a burst
};
inline constexpr unsigned kMostWorkersUnasked = 8;

inline constexpr std::string_view kRunToCompletion = "run-to-completion";
inline constexpr std::string_view kPipeline = "pipeline";
/// The model of a reader that also spreads packets among workers, as DHash's does. The measured
/// reader does not: the capture has been divided among the workers before, as by a NIC. This model
/// is predicted only.
inline constexpr std::string_view kSpreadingPipeline = "pipeline+spread";

/// A part of a packet's way on one core, with the cost of reading the clock.
struct PipelinePart {
  std::string_view name;
  Spread ns;
  /// Ticks of the time-stamp counter, not the core's cycles; without such a counter, nanoseconds.
  Spread cycles;
};

/// Results of one model with one number of workers.
struct PipelineResult {
  std::string_view model;
  unsigned workers = 0;
  unsigned threads = 0;             ///< workers and the reader
  double predicted_mpps = 0;        ///< from the parts' medians, as if each thread had a processor
  std::optional<Spread> mpps;       ///< none: not measured
  std::optional<Spread> reader_ns;  ///< the reader's time for a packet, without waiting
  std::optional<Spread> worker_ns;  ///< a worker's time for a packet, without waiting
};

struct PipelineSummary {
  std::string_view model;
  StageTimes ns;
};

struct PipelineReport {
  std::vector<PipelinePart> parts;
  std::vector<PipelineResult> results;
  std::vector<PipelineSummary> summaries;  ///< `pipeline` and `pipeline+spread`
  std::uint64_t packets = 0;               ///< in a pass
  Pages pages = Pages::huge;
};

/// Measures the parts and every contender, in turn. Returns none if `progress` ended the
/// measurement. Errors (failed): no memory, or contenders that do not open the same connections or
/// do not serve every packet.
Result<std::optional<PipelineReport>> run_pipeline(const PipelineOptions& options,
                                                   const Progress& progress);

}  // namespace millrace::bench
