#include "live/live_port.h"

#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <span>
#include <thread>
#include <utility>

#include "core/protocol.h"
#include "parse/complete.h"
#include "parse/parse.h"

namespace millrace {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Bursts without a packet after which nothing is in flight.
constexpr unsigned kDrained = kBurstsInFlight + 1;
static_assert(HostFor<AddressV4>::kInFlight > kBurstsInFlight);
/// And after which a worker that may sleep does.
constexpr unsigned kPatience = 64;
/// Frames of the kernel's that a worker sends between two bursts, at most.
constexpr unsigned kOfKernelABurst = Burst::kMax / 2;
constexpr std::chrono::microseconds kShortestNap{20};
constexpr std::chrono::microseconds kLongestNap{200};

// What a ring carries: a packet, or with the lowest bit set what a neighbour told another worker.
void* tagged(Handle handle, bool is_news) { return std::bit_cast<void*>(handle | Handle{is_news}); }

}  // namespace

Result<std::unique_ptr<LiveHub>> LiveHub::create(Devices& devices, KernelSide* kernel,
                                                 unsigned workers,
                                                 std::shared_ptr<const Owners> owners) {
  std::unique_ptr<LiveHub> hub(new LiveHub(devices, kernel, workers, std::move(owners)));
  for (unsigned n = 0; n < workers * workers; ++n) {
    auto ring = PointerRing::create(kRing);
    if (!ring) return std::unexpected(ring.error());
    hub->rings_.push_back(std::move(*ring));
  }
  return hub;
}

LivePort::LivePort(LiveHub& hub, unsigned worker, const HostConfig& host, const Options& options)
    : hub_(&hub), worker_(worker), options_(options), host_(host) {
  for (unsigned q = worker; q < hub.devices().receive_queues(); q += hub.workers())
    queues_.push_back(q);
  for (std::size_t d = 0; d < hub.devices().count(); ++d)
    completes_checksums_ |= is_of_kernel(hub.devices().name(d).kind);
}

LivePort::~LivePort() {
  std::array<void*, Burst::kMax> left{};
  for (unsigned from = 0; from < hub_->workers(); ++from) {
    while (const std::size_t count = hub_->ring(from, worker_).pop(left)) {
      for (std::size_t i = 0; i < count; ++i) drop(std::bit_cast<Handle>(left[i]) & ~Handle{1});
    }
  }
}

/// On the worker's own thread.
void LivePort::join() {
  joined_ = true;
  looked_ = start_ = SteadyClock::now();
  Devices::join();
  ::prctl(PR_SET_TIMERSLACK, 1);  // else a short sleep takes 50 us more
  host_.begin(now_, *this);
}

bool LivePort::receive(Burst& burst) {
  if (!joined_) join();
  const auto now = SteadyClock::now();
  if (empty_ > kDrained) counters_.idle_ns.add(static_cast<std::uint64_t>((now - looked_).count()));
  looked_ = now;
  const auto passed = now - start_;
  now_.ms = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(passed).count());
  burst.now = now_;
  host_.tick(now_, *this);
  take_in(burst);
  arrived_ = 0;
  if (backlog_ > 0) [[likely]]
    poll(burst);
  if (hub_->kernel() != nullptr) send_for_kernel();
  parse(burst, link_type());
  host_.admit(burst, std::span(arrivals_).first(arrived_));
  empty_ = burst.size == 0 ? empty_ + 1 : 0;
  if (hub_->is_ending()) return false;
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) return false;
  if (empty_ > kDrained) wait();
  return true;
}

void LivePort::poll(Burst& burst) {
  const unsigned before = burst.size;
  for (const unsigned queue : queues_) {
    if (burst.size == Burst::kMax) break;
    const unsigned begin = burst.size;
    if (hub_->devices().receive(queue, burst, Burst::kMax) != 0)
      arrivals_[arrived_++] = {begin, burst.size, link_of(burst.handle[begin])};
  }
  std::ranges::rotate(queues_, queues_.begin() + (queues_.empty() ? 0 : 1));
  if (backlog_ == kGoesOn) [[likely]]
    return;
  backlog_ = burst.size == before ? 0 : backlog_ - 1;
}

/// Sends the kernel's frames, unchanged.
void LivePort::send_for_kernel() {
  std::array<Outgoing, kOfKernelABurst> frames;
  const unsigned count = hub_->kernel()->take(worker_, frames);
  for (unsigned i = 0; i < count; ++i) host_.send(frames[i], *this);
  if (count > 0) flush();
}

bool LivePort::give_to_kernel(Handle handle, unsigned link) {
  return hub_->kernel()->give(worker_, handle, link);
}

void LivePort::show_to_kernel(Handle handle, unsigned link) {
  Devices::share(handle, 1);
  if (!give_to_kernel(handle, link)) drop(handle);
}

bool LivePort::is_drained() const {
  if (backlog_ > 0 || empty_ <= kDrained || hub_->devices().has_waiting(worker_)) return false;
  for (unsigned from = 0; from < hub_->workers(); ++from) {
    if (!hub_->ring(from, worker_).is_empty()) return false;
  }
  return true;
}

/// From other workers: half a burst at most, so that the worker's own queues have their turn.
void LivePort::take_in(Burst& burst) {
  constexpr std::size_t kMost = Burst::kMax / 2;
  std::array<void*, kMost> come{};
  for (unsigned n = 0; n < hub_->workers() && burst.size < kMost; ++n) {
    const unsigned from = (first_ + n) % hub_->workers();
    const std::size_t count =
        hub_->ring(from, worker_).pop(std::span(come).first(kMost - burst.size));
    for (std::size_t i = 0; i < count; ++i) take_in(burst, std::bit_cast<Handle>(come[i]));
  }
  if (++first_ == hub_->workers()) first_ = 0;
}

void LivePort::take_in(Burst& burst, Handle tag) {
  const Handle handle = tag & ~Handle{1};
  const unsigned at = burst.size;
  Devices::place(burst, at, handle);
  if ((tag & 1) == 0) {
    ++burst.size;
    return;
  }
  host_.hear({burst.data[at], burst.length[at]}, link_of(handle), now_, *this);
  drop(handle);
}

/// The longer nothing comes, the longer. Who has paused leaves its processor to those who tell what
/// it had.
void LivePort::wait() {
  flush();
  if (backlog_ == 0) {
    std::this_thread::sleep_for(kShortestNap);
    return;
  }
  if (!options_.sleeps || empty_ < kPatience) return;
  const unsigned doublings = std::min((empty_ - kPatience) / kPatience, 4U);
  std::this_thread::sleep_for(std::min(kShortestNap * (1U << doublings), kLongestNap));
}

template <class K>
void LivePort::find_owners(const Lane<K>& lane, const Steering& steering) {
  if (lane.size == 0) return;
  std::array<std::uint32_t, Burst::kMax> hashes;
  hub_->owners().spread()->hash(steering.steer(lane.keys()), lane.keys(),
                                std::span(hashes).first(lane.size));
  const Indirection& indirection = hub_->owners().indirection();
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned entry = indirection.entry_of(hashes[i]);
    owner_[lane.packet[i]] = static_cast<std::uint8_t>(indirection.worker_of(entry));
  }
}

void LivePort::filed(Burst& burst, const Steering& steering) {
  const bool hands_over = hub_->workers() > 1 && hub_->owners().spread() != nullptr;
  host_.filed(burst, steering, !hands_over);
  if (completes_checksums_) complete_checksums(burst);
  if (hub_->workers() > 1 && burst.size > 0) {
    tell_others(burst);
    if (hands_over) hand_over(burst, steering);
  }
  if (tracer_ != nullptr) [[unlikely]]
    tracer_->received(burst, [this](Handle handle) { return link_of(handle); });
}

std::uint64_t LivePort::looked_up(Burst& burst, const Steering& steering) {
  return host_.looked_up(burst, steering);
}

void LivePort::hand_over(Burst& burst, const Steering& steering) {
  std::fill_n(owner_.begin(), burst.size, static_cast<std::uint8_t>(worker_));
  find_owners(burst.v4, steering);
  find_owners(burst.v6, steering);
  find_owners(burst.quoted_v4, steering);
  find_owners(burst.quoted_v6, steering);
  std::uint64_t others = 0;
  for (unsigned i = 0; i < burst.size; ++i) {
    if (owner_[i] == worker_) continue;
    others |= std::uint64_t{1} << i;
    give(owner_[i], burst.handle[i], false);
  }
  take_out(burst, others);
}

/// What neighbours say, each worker's host must know.
void LivePort::tell_others(const Burst& burst) {
  for (unsigned i = 0; i < burst.size; ++i) {
    const Verdict verdict = burst.verdict[i];
    if (verdict != Verdict::not_ip && verdict != Verdict::icmp_control) [[likely]]
      continue;
    if (!Host::concerns_all({burst.data[i], burst.length[i]}, burst.headers[i])) continue;
    Devices::share(burst.handle[i], hub_->workers() - 1);
    for (unsigned n = 0; n < hub_->workers(); ++n) {
      if (n != worker_) give(n, burst.handle[i], true);
    }
  }
}

void LivePort::give(unsigned worker, Handle handle, bool is_news) {
  void* const pointer = tagged(handle, is_news);
  if (hub_->ring(worker_, worker).push({&pointer, 1}) == 1) {
    counters_.handed_over.add(is_news ? 0 : 1);
  } else {
    counters_.not_handed.add(is_news ? 0 : 1);
    drop(handle);
  }
}

std::uint64_t LivePort::route(Burst& burst, std::uint64_t forward) {
  const Host::Routed routed = host_.route(burst, forward, out_, *this);
  taken_ = routed.taken;
  return routed.sent;
}

void LivePort::send(const Burst& burst, std::uint64_t forward) {
  if (tracer_ != nullptr) [[unlikely]]
    tracer_->served(burst, forward, out_);
  std::array<Outgoing, Burst::kMax> frames;
  std::array<Handle, Burst::kMax> over;
  std::size_t sent = 0;
  std::size_t dropped = 0;
  for (unsigned i = 0; i < burst.size; ++i) {
    if ((forward >> i & 1) != 0) {
      frames[sent++] = out_[i];
    } else if ((taken_ >> i & 1) == 0) {
      over[dropped++] = burst.handle[i];
    }
  }
  Devices::free(std::span(over).first(dropped));
  counters_.not_sent.add(hub_->devices().transmit(worker_, std::span(frames).first(sent)));
  taken_ = 0;
  flush();
}

void LivePort::send(const Outgoing& frame) { own_.push_back(frame); }

void LivePort::flush() {
  if (own_.empty()) return;
  counters_.not_sent.add(hub_->devices().transmit(worker_, own_));
  own_.clear();
}

void LivePort::finish() {
  hub_->end();  // first: where this worker has failed, what follows may fail, too
  host_.end(*this);
  flush();
  counters_.not_sent.add(hub_->devices().drain(worker_));
  Devices::leave();
}

}  // namespace millrace
