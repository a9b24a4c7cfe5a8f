// What a run reports, for people as a table and for programs as JSON (docs/stats.schema.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/json.h"
#include "live/live.h"
#include "worker/workers.h"

namespace millrace::cli {

struct RunReport {
  std::string input;
  const Workers* workers = nullptr;     ///< at rest
  const Live* live = nullptr;           ///< none: of a capture
  std::vector<std::string> ports;       ///< their names, of a live run
  std::vector<SilentNeighbour> silent;  ///< as `Host::silent`
  std::vector<Rival> rivals;            ///< as `Host::rivals`
  LineConfig config;
  Config::Spread spread;
  std::vector<Workers::Time> times;  ///< each worker's on the packets' way, output left out
  std::optional<std::uint64_t> seed;
  bool is_configured = true;  ///< false: the function takes all traffic, whatever the direction
  bool interrupted = false;
  std::string loss;  ///< what could not be read of the capture, among `warnings`; empty: nothing
  std::vector<std::string> warnings;
};

/// The object of `--stats`.
Json to_json(const RunReport& report);

/// A table for people, many lines.
std::string to_table(const RunReport& report);

}  // namespace millrace::cli
