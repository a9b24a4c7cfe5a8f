#include "port/replay_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "core/available_memory.h"

// clang-tidy's compiler has no sanitizer headers: without them the macros do nothing.
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes)
#endif

namespace millrace {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::uint64_t kNsPerMs = 1'000'000;
/// Largest number of bytes that are gathered without a check of the available memory.
constexpr std::size_t kMostGatheredUnasked = std::size_t{64} << 20;

/// Makes the address sanitizer catch reads past the packet within its slot.
void fence([[maybe_unused]] std::byte* packet, [[maybe_unused]] std::size_t length) {
  ASAN_UNPOISON_MEMORY_REGION(packet, length);
  ASAN_POISON_MEMORY_REGION(packet + length, ReplayPort::kOffered - length);
}

void unfence([[maybe_unused]] std::byte* packet) {
  ASAN_UNPOISON_MEMORY_REGION(packet, ReplayPort::kOffered);
}

/// Copies whole cache lines. `to` has room for kOffered bytes; Capture::kSlack more bytes than
/// `length` may be read at `from`.
void copy_lines(std::byte* to, const std::byte* from, std::size_t length) {
  static_assert(Capture::kSlack >= 64 && ReplayPort::kOffered % 64 == 0);
  for (std::size_t i = 0; i < length; i += 64) std::memcpy(to + i, from + i, 64);
}

std::uint32_t offered(const Capture::Packet& packet) {
  return std::min(packet.captured, std::uint32_t{ReplayPort::kOffered});
}

std::uint32_t offered_wire(const Capture::Packet& packet) {
  return std::max(packet.wire_length, offered(packet));
}

/// Returns the nanoseconds by which one loop advances time: the span and one average gap.
std::uint64_t period_of(const Capture& capture) {
  const std::uint64_t gaps = std::max<std::uint64_t>(capture.size(), 2) - 1;
  return capture.span_ns() + std::max<std::uint64_t>(capture.span_ns() / gaps, 1);
}

/// Returns how many loops may follow the first while all packets' times fit into 64 bits.
std::uint64_t further_loops(const Capture& capture) {
  if (capture.size() == 0) return UINT64_MAX;
  const std::uint64_t latest = capture.clock().latest_ns();
  return (UINT64_MAX - latest) / period_of(capture);
}

std::uint64_t nanoseconds_since(SteadyClock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - start).count());
}

std::string what_is_wrong(const Capture& capture, const ReplayOptions& options, bool output) {
  std::string wrong;
  if (options.burst < 1 || options.burst > Burst::kMax) {
    wrong += fmt::format("; a burst of {} packets: choose 1 to {}", options.burst, Burst::kMax);
  }
  if (options.loops < 1) wrong += "; 0 loops: choose 1 or more";
  if (options.in_flight < kBurstsInFlight)
    wrong +=
        fmt::format("; {} bursts in flight: choose {} or more", options.in_flight, kBurstsInFlight);
  if (options.step_ms < 1) wrong += "; steps of 0 ms: choose 1 or more";
  const bool times_matter = options.clock == Clock::capture || output;
  if (const auto further = further_loops(capture);
      times_matter && options.loops > 1 && options.loops - 1 > further) {
    wrong += fmt::format(
        "; {} loops of a capture of {} s are more time than fits in 64 bits of ns: "
        "choose {} or fewer",
        options.loops, capture.span_ns() / 1'000'000'000, further + 1);
  }
  return wrong.empty() ? wrong : wrong.substr(2);
}

/// Returns a packet's position in the output. Placed packets, which come late, get the odd position
/// behind the packet that was sent last.
std::uint64_t order_of(Handle handle) { return 2 * handle; }

}  // namespace

std::uint64_t latest_timestamp_ns(const Capture& capture, std::uint32_t loops) {
  if (loops - 1 > further_loops(capture)) return UINT64_MAX;
  return capture.clock().latest_ns() + (loops - 1) * period_of(capture);
}

Result<ReplayPort> ReplayPort::create(const Capture& capture, const ReplayOptions& options,
                                      CaptureOutput* output, std::optional<CapturePart> part) {
  if (std::string wrong = what_is_wrong(capture, options, output != nullptr); !wrong.empty()) {
    return std::unexpected(Error{std::move(wrong), Error::Kind::usage});
  }
  return ReplayPort(capture, options, output, std::move(part));
}

ReplayPort::ReplayPort(const Capture& capture, const ReplayOptions& options, CaptureOutput* output,
                       std::optional<CapturePart> part)
    : capture_(&capture),
      options_(options),
      output_(output),
      part_(std::move(part)),
      slots_(std::make_unique<Slot[]>(std::size_t{2} * options.in_flight * Burst::kMax)),
      link_type_(capture.link_type(0)),
      period_ns_(period_of(capture)),
      loop_(size() == 0 ? options.loops : 0) {
  gather();
}

void ReplayPort::gather() {
  if (!part_) return;
  gathered_.reserve(size());
  std::size_t bytes = Capture::kSlack;
  for (const std::uint32_t at : part_->positions) {
    gathered_.push_back(capture_->packet(at));
    bytes += offered(gathered_.back());
  }
  if (bytes > kMostGatheredUnasked && bytes > available_memory_bytes() / 2) return;
  gathered_bytes_.resize(bytes);
  std::byte* to = gathered_bytes_.data();
  for (Capture::Packet& packet : gathered_) {
    packet.captured = offered(packet);
    std::memcpy(to, packet.data, packet.captured);
    packet.data = to;
    to += packet.captured;
  }
}

bool ReplayPort::receive(Burst& burst) {
  burst.size = 0;
  if (!start_ && options_.clock == Clock::wall) start_ = SteadyClock::now();
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) stopped_ = true;
  if (capture_->size() == 0 || stopped_ || (output_ != nullptr && output_->failed())) return false;
  if (is_at_end() && time_is_over()) return false;
  if (step_time(burst) && !is_at_end()) fill(burst, alike(options_.burst), step_end());
  return true;
}

bool ReplayPort::receive_up_to(Burst& burst, unsigned most) {
  burst.size = 0;
  if (is_at_end()) return false;
  fill(burst, alike(most), UINT64_MAX);
  return true;
}

/// Returns the milliseconds since the first packet, rounded down to whole steps.
std::uint64_t ReplayPort::ms_at(std::uint64_t time_ns, std::uint64_t loop) const {
  const std::uint64_t first = capture_->clock().first_ns();
  const std::uint64_t ms = (std::max(time_ns, first) - first + loop * period_ns_) / kNsPerMs;
  return ms - ms % options_.step_ms;
}

/// Returns the time of the whole capture's latest packet, in ms; this port's latest packet may be
/// earlier.
std::uint64_t ReplayPort::end_ms() const {
  return ms_at(capture_->clock().latest_ns(), options_.loops - 1);
}

bool ReplayPort::time_is_over() const {
  return options_.clock == Clock::wall || now_ms_ >= end_ms();
}

/// Advances time to that of the next packet, at the end to the end of the capture, or with the wall
/// clock to now: by `kLongestStepMs` at most. False: that was not far enough.
bool ReplayPort::step_time(Burst& burst) {
  std::uint64_t next_ms;
  if (options_.clock == Clock::wall) {
    next_ms = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - *start_)
            .count());
  } else {
    next_ms =
        is_at_end()
            ? end_ms()
            : ms_at(capture_->clock().time_ns(position(next_), packet(next_).timestamp_ns), loop_);
  }
  const bool arrived = next_ms <= now_ms_ + kLongestStepMs;
  now_ms_ = std::max(now_ms_, std::min(next_ms, now_ms_ + kLongestStepMs));
  burst.now = Tick{static_cast<std::uint32_t>(now_ms_)};
  return arrived;
}

/// Returns the timestamp at which the current step ends. Valid for packets that `alike` counts.
std::uint64_t ReplayPort::step_end() const {
  if (options_.clock == Clock::wall) return UINT64_MAX;
  const CaptureClock& clock = capture_->clock();
  return clock.timestamp_ns(position(next_), clock.first_ns() - loop_ * period_ns_ +
                                                 (now_ms_ + options_.step_ms) * kNsPerMs);
}

unsigned ReplayPort::alike_of(unsigned most) {
  const std::size_t first = position(next_);
  const std::size_t clock_until = capture_->clock().alike_until(first);
  const std::size_t end = std::min<std::size_t>(size(), next_ + most);
  link_type_ = capture_->link_type(first);
  std::size_t i = next_;
  while (i < end && position(i) < clock_until &&
         capture_->link(position(i)) == capture_->link(first))
    ++i;
  return static_cast<unsigned>(i - next_);
}

/// Copies the packet's first bytes into the slot, and writes the columns that describe them.
inline void ReplayPort::offer(Burst& burst, unsigned at, Slot& slot,
                              const Capture::Packet& packet) {
  std::byte* const to = slot.bytes.data() + kHeadroom;
  const std::uint32_t length = offered(packet);
  unfence(to);
  copy_lines(to, packet.data, length);
  fence(to, length);
  burst.data[at] = to;
  burst.length[at] = static_cast<std::uint16_t>(length);
  burst.wire_length[at] = std::max(packet.wire_length, length);
}

void ReplayPort::place(Burst& burst, unsigned at, Handle handle) {
  if (at == 0) placed_ring_ = (placed_ring_ + 1) % options_.in_flight;
  const std::size_t group = options_.in_flight + placed_ring_;
  offer(burst, at, slots_[group * Burst::kMax + at], capture_->packet(handle & UINT32_MAX));
  burst.handle[at] = handle;
}

void ReplayPort::fill(Burst& burst, unsigned most, std::uint64_t until) {
  // Number of packets to prefetch ahead. The hardware's prefetcher does as well on its own, but may
  // lose the stream among a table's random accesses.
  constexpr std::size_t kAhead = 16;
  const std::size_t count = size();
  const std::size_t end = std::min<std::size_t>(count, next_ + most);
  Slot* slots = &slots_[std::size_t{ring_} * Burst::kMax];
  unsigned n = 0;
  for (std::size_t i = next_; i < end; ++i, ++n) {
    const std::size_t at = position(i);
    const Capture::Packet& arriving = packet(i);
    if (i > next_ && arriving.timestamp_ns >= until) break;
    const Capture::Packet& later = packet(std::min(i + kAhead, count - 1));
    __builtin_prefetch(later.data);
    __builtin_prefetch(later.data + 64);
    offer(burst, n, slots[n], arriving);
    burst.handle[n] = std::uint64_t{loop_} << 32 | at;
  }
  burst.size = n;
  ring_ = (ring_ + 1) % options_.in_flight;
  next_ += n;
  if (next_ < count) return;
  next_ = 0;
  ++loop_;
}

void ReplayPort::send(const Burst& burst, std::uint64_t forward) {
  if (output_ == nullptr || burst.size == 0) return;
  const auto start = SteadyClock::now();
  std::array<CaptureOutput::Packet, Burst::kMax> packets;
  std::size_t count = 0;
  for (; forward != 0; forward &= forward - 1) {
    packets[count++] = leaving(burst, static_cast<unsigned>(std::countr_zero(forward)));
  }
  sent_up_to_ = std::max(sent_up_to_, order_of(burst.handle[burst.size - 1]) + 1);
  output_->write(number(), std::span(packets).first(count), sent_up_to_);
  output_ns_ += nanoseconds_since(start);
}

CaptureOutput::Packet ReplayPort::leaving(const Burst& burst, unsigned i) const {
  const Capture::Packet& packet = capture_->packet(burst.handle[i] & UINT32_MAX);
  const std::uint64_t loop = burst.handle[i] >> 32;
  return {.order = std::max(order_of(burst.handle[i]), sent_up_to_),
          .timestamp_ns = packet.timestamp_ns + loop * period_ns_,
          // A change of length by a function changes the length on the wire, too.
          .wire_length = packet.wire_length + (burst.wire_length[i] - offered_wire(packet)),
          .head = {burst.data[i], burst.length[i]},
          .tail = packet.bytes().subspan(offered(packet)),
          .link = capture_->link(burst.handle[i] & UINT32_MAX)};
}

void ReplayPort::finish() {
  if (output_ == nullptr) return;
  const auto start = SteadyClock::now();
  output_->end(number());
  output_ns_ += nanoseconds_since(start);
}

}  // namespace millrace
