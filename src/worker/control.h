// What may be asked of a running dataplane, by whatever protocol: what it does, and to do
// otherwise.
//
// Any thread may call; calls wait for one another, packets for none of them: each worker does its
// part between two of its bursts, a bounded piece at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/config.h"
#include "worker/filter.h"
#include "worker/live.h"
#include "worker/tracer.h"
#include "worker/workers.h"

namespace millrace {

/// Why something was not done.
struct Refusal {
  enum class Kind : std::uint8_t {
    wrong,          ///< the request
    absent,         ///< there is no such thing
    not_now,        ///< it cannot be at present
    configuration,  ///< the file is wrong, or changes what cannot change
  };
  Kind kind = Kind::wrong;
  std::string message;  ///< a line a problem
};
template <class T>
using Answer = std::expected<T, Refusal>;

class Control {
 public:
  /// `workers` and `live` run with what the file of that name says, `config`, and outlive this.
  Control(Workers& workers, Live& live, Config config, std::string path, SchemeNames schemes)
      : workers_(&workers),
        live_(&live),
        config_(std::move(config)),
        path_(std::move(path)),
        schemes_(std::move(schemes)) {}

  /// Whether workers have begun to serve; waits for that, not for long.
  bool wait_until_ready() const { return workers_->wait_until_they_serve(std::chrono::seconds(5)); }
  /// Calls `work` while nobody else asks for anything: for statistics.
  void alone(const std::function<void()>& work);

  /// Shows connections in pieces, until `take` says false. False: these were not all.
  bool connections(
      const ConnectionFilter& filter,
      const std::function<bool(std::span<const WorkersConnection>, const BalancePlan&)>& take);
  /// Ends connections; how many.
  Answer<std::uint64_t> kill(const ConnectionFilter& filter);

  /// Shows packets as they come and leave, until `take` says false; it is asked first, and now and
  /// again where there is none, with null. One at a time may look. A filter's state does not count.
  /// How many were lost, as they came faster than they were taken.
  Answer<std::uint64_t> trace(const ConnectionFilter& filter,
                              const std::function<bool(const TracedPacket*)>& take);
  /// Names of the ports, by link.
  std::vector<std::string> ports();

  /// What would become of a packet with that key.
  struct Explanation {
    std::optional<unsigned> worker;
    std::optional<Side> side;
    std::string service;  ///< empty: none
    std::string backend;
    std::optional<WorkersConnection> connection;
    std::shared_ptr<const BalancePlan> plan;  ///< by which this is
    Verdict verdict = Verdict::no_service;
    std::string why;  ///< a sentence
  };
  Answer<Explanation> explain(const AnyKey& key);

  struct Reloaded {
    std::size_t services = 0;
    std::size_t backends = 0;
    double took_ms = 0;  ///< from the file being read to the last worker having it
  };
  /// Reads the file again. All of it takes effect, or nothing where it is wrong or changes what
  /// cannot change. Connections stay where they are.
  Answer<Reloaded> reload();

  enum class Mark : std::uint8_t {
    drained,    ///< somebody wants it to get no new connections
    unhealthy,  ///< it does not answer
  };
  /// Marks a backend of all services, or of the one of that name, or takes the mark back; how many
  /// backends that are. One with a mark gets no new connections. What becomes unhealthy loses its
  /// UDP connections where its service says so.
  Answer<unsigned> mark(Mark mark, const std::string& backend, const std::string& service,
                        bool is_so);

  struct BackendState {
    std::string address;
    std::uint16_t port = 0;
    std::uint32_t weight = 0;
    bool drained = false;
    bool healthy = true;
  };
  struct ServiceState {
    std::string service;
    std::string address;
    unsigned prefix = 0;
    std::uint16_t port = 0;
    std::string protocol;
    std::optional<HealthCheck> health;
    std::vector<BackendState> backends;
  };
  /// As configured, with all marks.
  std::vector<ServiceState> services();

 private:
  using Marked = std::set<std::pair<std::string, std::string>>;  // service and backend
  bool has(Mark mark, const std::string& service, const std::string& backend) const {
    return marked_[static_cast<std::size_t>(mark)].contains({service, backend});
  }
  Services effective(const Config& config) const;
  void forget_health();
  Result<void> take_on(const Config& config);
  std::uint64_t end_all(const std::function<bool(const ListedConnection&)>& is_meant);

  std::mutex mutex_;
  std::mutex tracing_;
  std::mutex reloading_;
  Workers* workers_;
  Live* live_;
  Config config_;
  std::string path_;
  SchemeNames schemes_;
  std::array<Marked, 2> marked_;  // by `Mark`
};

/// What differs that a running dataplane cannot change, by key; empty where nothing does.
std::vector<std::string> unchangeable(const Config& was, const Config& is);

}  // namespace millrace
