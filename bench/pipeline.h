// The question: does one thread that reads for several workers do more than workers that do
// everything, and does arithmetic over a single core's times say so beforehand?
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
  /// Under both models, whether or not each thread has a processor. Empty: every number for which
  /// each has, up to `kMostWorkersUnasked`.
  std::vector<unsigned> workers;
  std::string table = "race";
  std::uint64_t live = 200'000;  ///< connections of campus traffic
  unsigned burst = 32;
};
inline constexpr unsigned kMostWorkersUnasked = 8;

inline constexpr std::string_view kRunToCompletion = "run-to-completion";
inline constexpr std::string_view kPipeline = "pipeline";
/// A reader that spreads packets, too, as DHash's does; millrace's finds a capture spread when it
/// is loaded, as behind a NIC. Predicted only.
inline constexpr std::string_view kSpreadingPipeline = "pipeline+spread";

/// A part of a packet's way on one core, the clock's reads included.
struct PipelinePart {
  std::string_view name;
  Spread ns;
  Spread cycles;  ///< of the time-stamp counter, whose rate is not the core's; ns where there is
                  ///< none
};

/// So many workers under a model.
struct PipelineResult {
  std::string_view model;
  unsigned workers = 0;
  unsigned threads = 0;        ///< with the reader
  double predicted_mpps = 0;   ///< from the medians of the parts, each thread on its own processor
  std::optional<Spread> mpps;  ///< none: not measured
  std::optional<Spread> reader_ns;  ///< a packet, without waiting
  std::optional<Spread> worker_ns;  ///< a packet, of one core, without waiting
};

struct PipelineSummary {
  std::string_view model;
  StageTimes ns;
};

struct PipelineReport {
  std::vector<PipelinePart> parts;
  std::vector<PipelineResult> results;
  std::vector<PipelineSummary> summaries;  ///< of `pipeline`, and of the reader that spreads
  std::uint64_t packets = 0;               ///< of a pass
  Pages pages = Pages::huge;
};

/// Measures all of it, contenders in turn; none where `progress` ended it. Errors: no memory, or
/// contenders that do not do what the first one does.
Result<std::optional<PipelineReport>> run_pipeline(const PipelineOptions& options,
                                                   const Progress& progress);

}  // namespace millrace::bench
