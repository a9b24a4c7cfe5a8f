#include "pipeline_run.h"

#include <algorithm>
#include <chrono>

#include "parse/parse.h"
#include "worker/threads.h"

namespace millrace::bench {
namespace {

template <class K>
void copy_keys(const Lane<K>& from, Lane<K>& to) {
  to.size = from.size;
  std::copy_n(from.packet.begin(), from.size, to.packet.begin());
  std::copy_n(from.key.begin(), from.size, to.key.begin());
}

/// Copies everything that a port and the parser write.
void copy_parsed(const Burst& from, Burst& to) {
  to.size = from.size;
  to.now = from.now;
  const auto copy = [&from, &to](auto Burst::* column) {
    std::copy_n((from.*column).begin(), from.size, (to.*column).begin());
  };
  copy(&Burst::data);
  copy(&Burst::length);
  copy(&Burst::wire_length);
  copy(&Burst::handle);
  copy(&Burst::shard);
  copy(&Burst::headers);
  copy(&Burst::signal);
  copy(&Burst::verdict);
  copy_keys(from.v4, to.v4);
  copy_keys(from.v6, to.v6);
  copy_keys(from.quoted_v4, to.quoted_v4);
  copy_keys(from.quoted_v6, to.quoted_v6);
}

}  // namespace

Result<BurstRing> BurstRing::create(unsigned capacity) {
  auto ring = PointerRing::create(capacity);
  if (!ring) return std::unexpected(ring.error());
  return BurstRing(std::move(*ring));
}

ParsedPort::ParsedPort(Port& source, BurstRing parsed, BurstRing free)
    : source_(&source),
      bursts_(std::make_unique<Burst[]>(kBursts)),
      parsed_(std::move(parsed)),
      free_(std::move(free)) {
  for (unsigned i = 0; i < kBursts; ++i) free_.push(&bursts_[i]);
}

Result<std::unique_ptr<ParsedPort>> ParsedPort::create(Port& source) {
  auto parsed = BurstRing::create(kBursts);
  if (!parsed) return std::unexpected(parsed.error());
  auto free = BurstRing::create(kBursts);
  if (!free) return std::unexpected(free.error());
  return std::unique_ptr<ParsedPort>(new ParsedPort(source, std::move(*parsed), std::move(*free)));
}

bool ParsedPort::receive(Burst& burst) {
  const bool ended = ended_.load(std::memory_order_acquire);
  Burst* parsed = parsed_.pop();
  if (parsed == nullptr) {
    burst.now = now_;
    if (ended) return false;
    if (in_hand_ > 0) return true;
    if (!waiting_) waiting_.emplace();
    waiting_->wait();
    return true;
  }
  waiting_.reset();
  copy_parsed(*parsed, burst);
  now_ = burst.now;
  if (burst.size > 0) ++in_hand_;
  parsed->clear();
  free_.push(parsed);
  return true;
}

void ParsedPort::send(const Burst& burst, std::uint64_t forward) {
  if (burst.size > 0) --in_hand_;
  source_->send(burst, forward);
}

void ParsedPort::finish() {
  waiting_.reset();
  left_.store(true, std::memory_order_relaxed);
  source_->finish();
}

ParsedPort::Fed ParsedPort::feed(std::optional<detail::Backoff>& waiting) {
  if (left_.load(std::memory_order_relaxed)) return Fed::end;
  Burst* burst = free_.pop();
  if (burst == nullptr) return Fed::full;
  waiting.reset();
  if (!source_->receive(*burst)) return Fed::end;
  parse(*burst, source_->link_type());
  parsed_.push(burst);
  return Fed::burst;
}

Result<Pipeline> Pipeline::create(std::span<Port* const> sources) {
  Pipeline pipeline;
  for (Port* source : sources) {
    auto port = ParsedPort::create(*source);
    if (!port) return std::unexpected(port.error());
    pipeline.open_.push_back(port->get());
    pipeline.ports_.push_back(std::move(*port));
  }
  return pipeline;
}

Result<void> Pipeline::run(Workers& workers) {
  return on_threads(workers.count() + 1, [&](unsigned n) {
    if (n < workers.count()) return workers.serve(n, *ports_[n]);
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t waited_before = detail::Waiting::sum_ns();
    read();
    const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - start;
    reading_time_ = {.elapsed_ns = static_cast<std::uint64_t>(passed.count()),
                     .waited_ns = detail::Waiting::sum_ns() - waited_before};
  });
}

void Pipeline::read() {
  std::optional<detail::Backoff> waiting;
  while (!open_.empty()) {
    bool all_full = true;
    std::erase_if(open_, [&](ParsedPort* port) {
      const auto fed = port->feed(waiting);
      if (fed == ParsedPort::Fed::end) port->end();
      all_full = all_full && fed == ParsedPort::Fed::full;
      return fed == ParsedPort::Fed::end;
    });
    if (!all_full) {
      waiting.reset();
    } else {
      if (!waiting) waiting.emplace();
      waiting->wait();
    }
  }
}

}  // namespace millrace::bench
