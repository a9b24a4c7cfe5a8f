// The report of a run: a table for people, JSON for programs (docs/stats.schema.json).
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
  const Workers* workers = nullptr;     ///< may run meanwhile: counters are then not of one moment
  const Live* live = nullptr;           ///< null: a capture is replayed
  std::vector<std::string> ports;       ///< names of a live run's ports
  std::vector<SilentNeighbour> silent;  ///< the result of `Host::silent`
  std::vector<Rival> rivals;            ///< the result of `Host::rivals`
  LineConfig config;
  Config::Spread spread;
  std::vector<Workers::Time> times;  ///< time of each worker; a replay leaves out writing
  std::optional<std::uint64_t> seed;
  bool is_configured = true;  ///< false: no services, so that each direction is a connection
  bool interrupted = false;
  std::string loss;  ///< the part of the capture that was not read, also in `warnings`; empty: none
  std::vector<std::string> warnings;
};

/// Returns the object that `--stats` writes.
Json to_json(const RunReport& report);

/// Returns the table for people, many lines.
std::string to_table(const RunReport& report);

}  // namespace millrace::cli
