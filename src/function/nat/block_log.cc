#include "function/nat/block_log.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "core/json.h"
#include "function/event_log.h"

namespace millrace {
namespace {

/// How often the thread looks for records: workers, which may make no system call, do not wake it.
constexpr std::chrono::milliseconds kPause{50};
constexpr std::chrono::seconds kRetry{1};
/// Events that wait at most for a target that fails. With `on_failure = "refuse"` there are never
/// more: those that were under way when the target began to fail.
constexpr std::size_t kMostWaiting = 2 * BlockEvents::kRoom;

}  // namespace

Result<std::unique_ptr<BlockLog>> BlockLog::open(std::shared_ptr<const NatSettings> settings,
                                                 std::shared_ptr<PortBlocks> blocks,
                                                 std::uint64_t capture_ms, bool takes_over) {
  const NatLog& is = settings->log;
  const bool is_replay = capture_ms != 0;
  const BlockEvents::Policy policy{.refuses = is.refuses, .capture_ms = capture_ms};
  std::unique_ptr<BlockLog> log(new BlockLog(settings, std::move(blocks), policy, takes_over));
  const auto add = [&log](std::unique_ptr<LogTarget> to) {
    Target& target = log->targets_.emplace_back();
    target.name = to->name();
    target.to = std::move(to);
  };
  if (!is.file.empty()) add(log_file(is.file, is_replay, settings));
  if (is.ipfix && !is_replay) add(ipfix_collector(*is.ipfix, settings));
  for (Target& target : log->targets_) {
    if (auto ok = target.to->begin(takes_over); !ok) return std::unexpected(ok.error());
  }
  try {
    log->thread_ = std::jthread([at = log.get()](const std::stop_token& stop) { at->work(stop); });
  } catch (const std::system_error& error) {
    return std::unexpected(
        Error{std::string("cannot start the thread that writes the log of NAT: ") + error.what()});
  }
  return log;
}

BlockLog::~BlockLog() {
  if (thread_.joinable() && !thread_.get_stop_token().stop_requested()) finish(false);
}

std::uint64_t BlockLog::now_ms() const {
  return policy_.waits() ? std::max(latest_ms_, policy_.capture_ms) : wall_time_ns() / 1'000'000;
}

void BlockLog::start() {
  look_again();
  for (Target& target : targets_)
    append_list(target, takes_over_ ? LogRecord::Kind::take_over : LogRecord::Kind::start);
  blocks_->events().open(policy_);
  const std::lock_guard guard(mutex_);
  has_begun_ = true;
  changed_.notify_all();
}

void BlockLog::finish(bool hands_over) {
  if (!thread_.joinable()) return;
  hands_over_ = hands_over;
  thread_.request_stop();
  if (!hands_over) return thread_.join();
  std::unique_lock guard(mutex_);
  changed_.wait_for(guard, kPatience, [this] { return has_ended_; });
}

void BlockLog::change_settings(std::shared_ptr<const NatSettings> settings) {
  const std::lock_guard guard(mutex_);
  has_other_ends_ |= !settings_->gives_same_ends(*settings);
  settings_ = std::move(settings);
}

// --- the log's thread

void BlockLog::work(const std::stop_token& stop) {
  std::unique_lock guard(mutex_);
  const bool has_begun = changed_.wait(guard, stop, [this] { return has_begun_; });
  while (!stop.stop_requested()) {
    guard.unlock();
    step(false);
    guard.lock();
    changed_.wait_for(guard, stop, kPause, [] { return false; });
  }
  guard.unlock();
  if (has_begun) step(true);
  for (Target& target : targets_) target.to.reset();  // the next process may have the file
  guard.lock();
  has_ended_ = true;
  changed_.notify_all();
}

/// Takes the workers' records, and writes them to each target.
void BlockLog::step(bool is_last) {
  std::vector<LogRecord> records = take_events();
  const std::uint64_t lost = std::exchange(lost_, blocks_->events().lost());
  const bool is_sure = lost == lost_;
  if (!is_sure) look_again();
  if (is_last && !hands_over_) {
    for (std::uint32_t block = 0; block < held_.size(); ++block) {
      const std::uint32_t customer = std::exchange(held_[block], 0);
      if (customer != 0)
        records.push_back(record_of(LogRecord::Kind::released, now_ms(), block, customer));
    }
  }
  if (take_on_settings()) {
    for (Target& target : targets_) target.list = LogRecord::Kind::reload;
  }
  bool fails = false;
  for (Target& target : targets_) {
    if (!is_sure) lose(target, lost_ - lost);
    target.waiting.insert(target.waiting.end(), records.begin(), records.end());
    write_to(target, is_sure, is_last);
    fails |= !target.is_ready;
  }
  blocks_->events().set_failing(fails);
}

/// Gives the targets the present settings. True: customers may have other ends than before.
bool BlockLog::take_on_settings() {
  const std::lock_guard guard(mutex_);
  for (Target& target : targets_) target.to->know(settings_);
  return std::exchange(has_other_ends_, false);
}

std::vector<LogRecord> BlockLog::take_events() {
  std::vector<LogRecord> records;
  BlockEvent event;
  const std::lock_guard guard(blocks_->naming());
  while (records.size() < BlockEvents::kRoom && blocks_->events().take(event)) {
    if (event.block >= held_.size()) held_.resize(blocks_->end());
    held_[event.block] = event.is_allocated ? event.customer : 0;
    latest_ms_ = std::max(latest_ms_, event.time_ms);
    records.push_back(
        record_of(event.is_allocated ? LogRecord::Kind::allocated : LogRecord::Kind::released,
                  event.time_ms, event.block, event.customer));
  }
  return records;
}

/// Names the ports of a block that has a customer, as the records say.
LogRecord BlockLog::record_of(LogRecord::Kind kind, std::uint64_t time_ms, std::uint32_t block,
                              CustomerNumber customer) const {
  return LogRecord::of(kind, time_ms, blocks_->block(block).value_or(HeldBlock()), customer);
}

/// Reads the customer of each block from the blocks. Records that are taken later may be older than
/// the answer; applied in their order they lead to the same state.
void BlockLog::look_again() {
  held_.resize(blocks_->end());
  for (std::uint32_t block = 0; block < held_.size(); ++block)
    held_[block] = blocks_->customer_of(block);
}

void BlockLog::lose(Target& target, std::uint64_t events) {
  target.lost.fetch_add(events, std::memory_order_relaxed);
  target.missing += events;
  target.list = LogRecord::Kind::gap;
}

/// `is_sure`: nothing was lost since the last step, so that `held_` is what the records say.
void BlockLog::write_to(Target& target, bool is_sure, bool is_last) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= target.retry_at || is_last) {
    const auto ok = deliver(target, is_sure);
    target.is_ready = ok.has_value();
    if (!ok) target.retry_at = now + kRetry;
    const std::lock_guard guard(target.mutex);
    if (ok) {
      target.failing_since_ms = 0;
    } else {
      target.error = ok.error().message;
      if (target.failing_since_ms == 0) {
        target.failing_since_ms = wall_time_ns() / 1'000'000;
        target.first_error = target.error;
      }
    }
  }
  if (target.waiting.size() <= kMostWaiting) return;
  const auto events = std::ranges::count_if(target.waiting, &LogRecord::is_event);
  if (static_cast<std::size_t>(events) <= kMostWaiting) return;
  for (const LogRecord& record : target.waiting) target.missing += record.lost;
  lose(target, static_cast<std::uint64_t>(events));
  target.waiting.clear();
}

Result<void> BlockLog::deliver(Target& target, bool is_sure) {
  // Records from before a file was renamed belong into that file.
  if (target.is_ready) {
    if (auto ok = write_waiting(target); !ok) return ok;
  }
  const auto is_new = target.to->ready();
  if (!is_new) return std::unexpected(is_new.error());
  if (*is_new && !target.list) target.list = LogRecord::Kind::new_place;
  if (auto ok = write_waiting(target); !ok) return ok;
  if (!target.list || !is_sure) return {};
  append_list(target, *std::exchange(target.list, std::nullopt));
  return write_waiting(target);
}

Result<void> BlockLog::write_waiting(Target& target) {
  constexpr std::size_t kAtOnce = 1024;
  std::size_t done = 0;
  Result<void> ok;
  while (ok && done < target.waiting.size()) {
    const std::size_t some = std::min(kAtOnce, target.waiting.size() - done);
    ok = target.to->write(std::span(target.waiting).subspan(done, some));
    if (ok) done += some;
  }
  target.waiting.erase(target.waiting.begin(),
                       target.waiting.begin() + static_cast<std::ptrdiff_t>(done));
  target.written.fetch_add(done, std::memory_order_relaxed);
  return ok;
}

void BlockLog::append_list(Target& target, LogRecord::Kind why) {
  const std::uint64_t now = now_ms();
  const std::size_t head = target.waiting.size();
  target.waiting.push_back({.kind = why, .time_ms = now, .lost = std::exchange(target.missing, 0)});
  std::shared_ptr<const NatSettings> settings;
  {
    const std::lock_guard guard(mutex_);
    settings = settings_;
  }
  for (const NatForward& is : settings->forwards.all()) {
    target.waiting.push_back({.kind = LogRecord::Kind::forward,
                              .protocol = is.protocol,
                              .first_port = is.port,
                              .last_port = is.is_whole() ? std::uint16_t{65535} : is.port,
                              .address = is.address,
                              .time_ms = now,
                              .customer = is.customer});
  }
  for (const NatPool& pool : settings->pools) {
    if (pool.is_deterministic)
      target.waiting.push_back({.kind = LogRecord::Kind::deterministic,
                                .time_ms = now,
                                .by_place = std::shared_ptr<const NatPool>(settings, &pool)});
  }
  for (std::uint32_t block = 0; block < held_.size(); ++block) {
    if (held_[block] != 0)
      target.waiting.push_back(record_of(LogRecord::Kind::held, now, block, held_[block]));
  }
  target.waiting[head].held = static_cast<std::uint32_t>(target.waiting.size() - head - 1);
}

// --- statistics

std::vector<std::string> BlockLog::alarms() const {
  std::vector<std::string> all;
  for (const Target& target : targets_) {
    const std::lock_guard guard(target.mutex);
    if (target.failing_since_ms == 0) continue;
    all.push_back(target.first_error +
                  (policy_.refuses
                       ? "; sessions that need another port block are refused (on_failure)"
                       : "; records wait, and are lost if this goes on"));
  }
  return all;
}

Json BlockLog::statistics() const {
  Json all = Json::array();
  for (const Target& target : targets_) {
    const std::lock_guard guard(target.mutex);
    const bool fails = target.failing_since_ms != 0;
    all.push_back({{"to", target.name},
                   {"written", target.written.load(std::memory_order_relaxed)},
                   {"lost", target.lost.load(std::memory_order_relaxed)},
                   {"failing_since",
                    fails ? Json(time_text(target.failing_since_ms * 1'000'000)) : Json(nullptr)},
                   {"error", fails ? Json(target.error) : Json(nullptr)}});
  }
  return all;
}

}  // namespace millrace
