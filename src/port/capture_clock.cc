#include "port/capture_clock.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

std::uint64_t CaptureClock::shifted(std::uint64_t timestamp_ns, std::int64_t by) {
  const std::uint64_t size =
      by < 0 ? -static_cast<std::uint64_t>(by) : static_cast<std::uint64_t>(by);
  if (by < 0) return timestamp_ns - std::min(timestamp_ns, size);
  return std::min(timestamp_ns + size, kLatest);  // no overflow: both summands are below 2^63
}

const CaptureClock::Shift& CaptureClock::shift_at(std::size_t i) const {
  return *std::ranges::upper_bound(shifts_, i, {}, &Shift::end);
}

std::uint64_t CaptureClock::unshifted(std::uint64_t time_ns, std::int64_t by) {
  if (by >= 0) return time_ns - std::min(time_ns, static_cast<std::uint64_t>(by));
  const std::uint64_t more = -static_cast<std::uint64_t>(by);
  return time_ns > UINT64_MAX - more ? UINT64_MAX : time_ns + more;
}

void CaptureClock::add_step(std::uint64_t timestamp_ns) {
  if (packets_ == 0) {
    first_ = latest_ = previous_ = timestamp_ns;
    packets_ = 1;
    steady_ = true;
    return;
  }
  count_step(timestamp_ns);
  if (jump_ && is_taken_back(*jump_, timestamp_ns)) {
    undo_jump();
  } else if (jump_ && timestamp_ns > jump_->timestamp_ns + kSecond) {
    jump_.reset();
  }
  const std::uint64_t at = shifted(timestamp_ns, shift_);
  if (at >= latest_) {
    behind_since_.reset();
    if (at - latest_ >= kStepAhead) jump_ = {packets_, timestamp_ns, latest_, at};
    latest_ = at;
  } else if (latest_ - at >= kSecond) {
    behind_since_ = std::min(behind_since_.value_or(timestamp_ns), timestamp_ns);
    if (timestamp_ns - *behind_since_ >= kSecond) {
      shift_from(packets_, static_cast<std::int64_t>(latest_ - timestamp_ns));
      behind_since_.reset();
      jump_.reset();
    }
  }
  previous_ = timestamp_ns;
  ++packets_;
  steady_ = shift_ == 0 && !jump_ && !behind_since_;
}

bool CaptureClock::is_taken_back(const Jump& jump, std::uint64_t timestamp_ns) {
  const std::uint64_t half = (jump.latest_after - jump.latest_before) / 2;
  return timestamp_ns < jump.timestamp_ns && jump.timestamp_ns - timestamp_ns > half;
}

/// Shifts the packets since the jump back, so that they go on from the time before the jump.
void CaptureClock::undo_jump() {
  const std::int64_t before = shift_;
  shift_from(jump_->at, static_cast<std::int64_t>(jump_->latest_before - jump_->timestamp_ns));
  shift_from(packets_, before);
  latest_ = jump_->latest_before + (latest_ - jump_->latest_after);
  jump_.reset();
}

void CaptureClock::shift_from(std::size_t packet, std::int64_t ns) {
  if (shifts_.empty()) shifts_.push_back({SIZE_MAX, shift_});
  shifts_.back().end = packet;
  shifts_.push_back({SIZE_MAX, ns});
  shift_ = ns;
}

void CaptureClock::count_step(std::uint64_t timestamp_ns) {
  const bool back = timestamp_ns < previous_;
  const std::uint64_t step = back ? previous_ - timestamp_ns : timestamp_ns - previous_;
  if (step < (back ? kStepBack : kStepAhead)) return;
  if (steps_back_ + steps_ahead_ == 0) {
    first_step_ = packets_ + 1;
    first_step_ns_ = step;
    first_is_back_ = back;
  }
  ++(back ? steps_back_ : steps_ahead_);
}

std::string CaptureClock::steps() const {
  const std::size_t steps = steps_back_ + steps_ahead_;
  if (steps == 0) return {};
  std::string line =
      fmt::format("the clock steps {} by {:.6f} s at packet {}", first_is_back_ ? "back" : "ahead",
                  static_cast<double>(first_step_ns_) * 1e-9, first_step_);
  if (steps > 1)
    line += fmt::format(", the first of {} steps ({} back, {} ahead)", steps, steps_back_,
                        steps_ahead_);
  return line;
}

}  // namespace millrace
