#include "worker/workers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "function/command_done.h"
#include "millrace/detail/waiting.h"
#include "worker/threads.h"

namespace millrace {
namespace {

/// Longest time for which a review of connections keeps a worker from its packets, but for the
/// last piece.
constexpr std::chrono::microseconds kReviewAtOnce{100};

using SteadyClock = std::chrono::steady_clock;

}  // namespace

std::size_t capacity_of_one(std::size_t capacity, unsigned workers, unsigned entries) {
  const double share = std::ceil(static_cast<double>(entries) / workers) / entries;
  const double mean = static_cast<double>(capacity) * share;
  const double deviation = std::sqrt(mean * (1 - share));
  return std::min(capacity, static_cast<std::size_t>(std::ceil(mean + 6 * deviation)));
}

Result<Workers> Workers::create(unsigned count, const LineConfig& config,
                                std::shared_ptr<const FunctionSettings> function, FunctionRun run,
                                unsigned entries) {
  LineConfig line = config;
  auto sources = make_source_counts(config);
  if (!sources) return std::unexpected(sources.error());
  line.sources = std::move(*sources);
  // In simulated time each worker has a time of its own.
  if (!line.catch_up) line.fragments = std::make_shared<FragmentTable>(line.secret);
  const bool shared = shares_tables(line.sharing);
  run.workers = count;
  run.shares_tables = shared;
  const FunctionKind& kind = function->kind();
  auto deployment = kind.deploy(std::move(function), run);
  if (!deployment) return std::unexpected(deployment.error());
  LineConfig of_one = line;
  const auto share = [&](std::size_t capacity) {
    const std::size_t even = capacity_of_one(capacity, count, entries);
    return line.shards_that_move == 0 || line.copies ? even
                                                     : std::min(capacity, kMostShares * even);
  };
  of_one.capacity = share(line.capacity);
  of_one.capacity_v6 = share(line.capacity_v6);
  std::vector<Worker> all(count);
  std::vector<std::optional<Error>> errors(count);
  const auto make = [&](unsigned n) {
    all[n].function = &(*deployment)->make(n);
    if (shared) return;
    auto its_line = make_line(of_one, *all[n].function);
    if (its_line) {
      all[n].line = std::move(*its_line);
    } else {
      errors[n] = its_line.error();
    }
  };
  if (auto ok = on_threads(count, make); !ok) return std::unexpected(ok.error());
  for (const auto& error : errors) {
    if (error) return std::unexpected(*error);
  }
  if (shared) {
    std::vector<Function*> functions;
    for (const Worker& worker : all) functions.push_back(worker.function);
    auto lines = make_lines(line, functions);
    if (!lines) return std::unexpected(lines.error());
    for (unsigned n = 0; n < count; ++n) all[n].line = std::move((*lines)[n]);
  }
  return Workers(std::move(*deployment), std::move(all), line, shared);
}

TableReport Workers::report(TableReport (Line::*of)() const, std::size_t capacity) const {
  const auto report_of = [&](unsigned n) {
    TableReport one;
    const auto task = [&] { one = (*all_[n].line.*of)(); };
    if (!ask(n, task)) task();
    return one;
  };
  TableReport sum = report_of(0);
  for (unsigned n = 1; n < count() && !shared_; ++n) {
    const TableReport one = report_of(n);
    sum.slots += one.slots;
    sum.live += one.live;
    sum.memory_bytes += one.memory_bytes;
    sum.pages = std::max(sum.pages, one.pages);
  }
  if (sum.capacity != 0) sum.capacity = capacity;
  return sum;
}

FragmentReport Workers::report_fragments() const {
  FragmentReport sum;
  const FragmentTable* before = nullptr;
  for (const Worker& worker : all_) {
    const FragmentTable& table = worker.line->fragments();
    if (&table == before) continue;  // all share one, or none does
    before = &table;
    const FragmentReport one = table.report();
    sum.datagrams += one.datagrams;
    sum.kept += one.kept;
    sum.memory_bytes += one.memory_bytes;
  }
  return sum;
}

WorkerCounters Workers::counters() const {
  WorkerCounters sum;
  for (const Worker& worker : all_) sum.add(worker.line->counters());
  // A connection that has moved may count in several workers' peaks.
  const std::uint64_t begun = sum.opened.value() + sum.taken_over.value();
  if (sum.peak.value() > begun) sum.peak.subtract(sum.peak.value() - begun);
  return sum;
}

void Workers::list(const std::function<void(const WorkersConnection&)>& each) const {
  for (unsigned n = 0; n < count(); ++n) {
    const auto show = [&each, n](const ListedConnection& connection) {
      each({n, connection});
      return Visit::leave;
    };
    for (LineCursor at; at.at != LineCursor::At::end;) at = all_[n].line->visit(at, show);
  }
}

void Workers::Timer::begin() {
  start = SteadyClock::now();
  waited_before = detail::Waiting::sum_ns();
}

Workers::Time Workers::Timer::so_far() const {
  const std::chrono::nanoseconds passed = SteadyClock::now() - start;
  return {static_cast<std::uint64_t>(passed.count()), detail::Waiting::sum_ns() - waited_before};
}

Workers::Time Workers::time(unsigned worker) const {
  const Timer& timer = all_[worker].timer;
  Time time;
  if (ask(worker, [&] { time = timer.so_far(); })) return time;
  return timer.time;
}

bool Workers::ask(unsigned worker, const Mailbox::Task& task) const {
  Mailbox& mailbox = all_[worker].line->mailbox();
  if (!mailbox.post(task)) return false;
  mailbox.wait(task);
  return true;
}

bool Workers::wait_until_they_serve(std::chrono::milliseconds most) const {
  const auto until = SteadyClock::now() + most;
  const auto is_new = [](const Worker& one) { return one.line->mailbox().is_new(); };
  while (std::ranges::any_of(all_, is_new)) {
    if (SteadyClock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool Workers::ask_all(const std::function<void(unsigned)>& task) {
  std::vector<Mailbox::Task> tasks(count());
  std::vector<Mailbox*> asked(count());
  for (unsigned n = 0; n < count(); ++n) {
    tasks[n] = [&task, n] { task(n); };
    Mailbox& mailbox = all_[n].line->mailbox();
    if (mailbox.post(tasks[n])) asked[n] = &mailbox;
  }
  for (unsigned n = 0; n < count(); ++n) {
    if (asked[n] != nullptr) asked[n]->wait(tasks[n]);
  }
  return std::ranges::find(asked, nullptr) == asked.end();
}

Result<void> Workers::prepare(std::shared_ptr<const FunctionSettings> settings,
                              const FunctionRun& run) {
  const auto whose = deployment_->update(std::move(settings), run, [this](const auto& step) {
    for (unsigned n = 0; n < count(); ++n) step(n);
    return true;
  });
  if (!whose) return std::unexpected(whose.error());
  if (*whose == Review::all) {
    review([](unsigned, const auto& task) {
      task();
      return true;
    });
  }
  return {};
}

Result<std::size_t> Workers::update(std::shared_ptr<const FunctionSettings> settings,
                                    const FunctionRun& run) {
  const auto whose = deployment_->update(std::move(settings), run, on_each());
  if (!whose) return std::unexpected(whose.error());
  return *whose == Review::all ? review_while_serving() : 0;
}

CommandResult<Json> Workers::command(std::string_view path, Parameters given) {
  auto done = deployment_->command(path, given, on_each());
  if (!done) return std::unexpected(done.error());
  if (done->review == Review::all) done->result["ended"] = review_while_serving();
  return std::move(done->result);
}

std::size_t Workers::review_while_serving() {
  return review([this](unsigned n, const auto& task) { return ask(n, task); });
}

template <class Do>
std::size_t Workers::review(Do&& do_it) {
  std::size_t ended = 0;
  for (unsigned n = 0; n < count(); ++n) {
    LineCursor at;
    // A worker that sleeps, or waits for its processor, comes to its mailbox late, so one task
    // looks at more than one piece: but not for long, and not beyond connections that end.
    const Mailbox::Task some = [&] {
      const auto until = std::chrono::steady_clock::now() + kReviewAtOnce;
      const std::size_t before = at.ended;
      do {
        at = all_[n].line->review(at);
      } while (at.at != LineCursor::At::end && at.ended == before &&
               std::chrono::steady_clock::now() < until);
    };
    while (at.at != LineCursor::At::end && do_it(n, some)) {
    }
    ended += at.ended;
  }
  return ended;
}

Result<void> Workers::run(std::span<Port* const> ports) {
  return on_threads(count(), [&](unsigned n) { serve(n, *ports[n]); });
}

void Workers::serve(unsigned worker, Port& port) {
  struct Open {
    Mailbox& mailbox;
    explicit Open(Mailbox& of) : mailbox(of) { mailbox.open(); }
    ~Open() { mailbox.close(); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
  };
  Worker& one = all_[worker];
  one.timer.begin();
  // Tasks may read the timer (`time`): the mailbox opens after it begins, and closes after it ends.
  const Open open(one.line->mailbox());
  try {
    one.line->run(port);
  } catch (...) {
    port.finish();  // so that other workers do not wait for packets from this one
    throw;
  }
  one.timer.end();
}

}  // namespace millrace
