#include "live/live_port.h"

#include <sys/prctl.h>

#include <algorithm>
#include <span>
#include <thread>
#include <utility>
#include <variant>

#include "core/protocol.h"
#include "host/datagram.h"
#include "parse/complete.h"
#include "parse/parse.h"

namespace millrace {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Empty bursts in a row after which no packet is in flight.
constexpr unsigned kDrained = kBurstsInFlight + 1;
/// Empty bursts in a row after which a worker that may sleep does so.
constexpr unsigned kPatience = 64;
/// Largest number of the kernel's frames that a worker sends between two bursts.
constexpr unsigned kOfKernelABurst = Burst::kMax / 2;
constexpr std::chrono::microseconds kShortestNap{20};
constexpr std::chrono::microseconds kLongestNap{200};

}  // namespace

Result<std::unique_ptr<LiveHub>> LiveHub::create(Devices& devices, KernelSide* kernel,
                                                 unsigned workers, std::shared_ptr<Owners> owners) {
  auto exchange = Exchange::create(workers, std::move(owners));
  if (!exchange) return std::unexpected(exchange.error());
  return std::unique_ptr<LiveHub>(new LiveHub(devices, kernel, std::move(*exchange)));
}

LivePort::LivePort(LiveHub& hub, unsigned worker, const HostConfig& host, const Options& options)
    : hub_(&hub),
      worker_(worker),
      options_(options),
      host_(host),
      exchange_(hub.exchange(), worker, *this) {
  for (unsigned link = 0; link < hub.devices().links(); ++link)
    completes_checksums_ |= is_of_kernel(hub.devices().name(link).kind);
  again_.reserve(kMostAgain);
}

void LivePort::set_lines(const std::vector<Line*>& lines) {
  exchange_.set_lines(lines);
  if (options_.copies == nullptr) return;
  WorkersCopies::Way& way = *this;  // a private base: `emplace` could not convert
  copies_.emplace(*options_.copies, worker_, *lines[worker_], way);
  lines[worker_]->add_between(*copies_);
}

/// Prepares the calling thread, which is the worker's.
void LivePort::join() {
  joined_ = true;
  looked_ = start_ = SteadyClock::now();
  Devices::join();
  ::prctl(PR_SET_TIMERSLACK, 1);  // otherwise a short sleep takes 50 us more
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
  if (copies_ && options_.copies->is_active() != is_active_) [[unlikely]] {
    is_active_ = !is_active_;
    host_.set_active(is_active_, now_, *this);
  }
  exchange_.receive(burst);
  // Before others, so that the machine's own sessions outlive an overload.
  if (hub_->kernel() != nullptr)
    options_.guards_host ? receive_from_kernel(burst) : send_for_kernel();
  receive_again(burst);
  arrived_ = 0;
  if (backlog_ > 0) [[likely]]
    poll(burst);
  host_.unwrap(burst, std::span(arrivals_).first(arrived_));
  for_each_bit(burst.from_customer & ~burst.hopped,
               [&](unsigned i) { Devices::mark_of_customer(burst, i); });
  parse(burst, link_type());
  host_.admit(burst, std::span(arrivals_).first(arrived_));
  flush();  // sends packets that waited for their next hop before newer ones
  empty_ = burst.size == 0 ? empty_ + 1 : 0;
  if (hub_->is_ending()) return false;
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) return false;
  if (empty_ > kDrained) wait();
  return true;
}

/// Updates the queues by which this worker receives. While one of its queues has to pass to another
/// worker, this worker polls no queue until the other workers have received all packets that it
/// handed over, so that no later packet overtakes them.
void LivePort::choose_queues() {
  const std::uint32_t changes = hub_->changes();
  const bool may_pass = exchange_.has_sent_all();
  bool is_passing = false;
  queues_.clear();
  for (unsigned queue = 0; queue < hub_->devices().receive_queues(); ++queue) {
    if (hub_->receiver_of(queue) != worker_) continue;
    const unsigned to = hub_->meant_for(queue);
    if (to == worker_) {
      queues_.push_back(queue);
    } else if (may_pass) {
      hub_->pass(queue, to);
    } else {
      is_passing = true;
    }
  }
  if (is_passing) {
    queues_.clear();
  } else {
    changes_ = changes;
  }
}

void LivePort::poll(Burst& burst) {
  if (changes_ != hub_->changes()) [[unlikely]]
    choose_queues();
  const unsigned before = burst.size;
  for (const unsigned queue : queues_) {
    if (burst.size == Burst::kMax) break;
    const unsigned begin = burst.size;
    Devices& devices = hub_->devices();
    if (devices.receive(queue, burst, Burst::kMax) == 0) continue;
    if (!devices.has_vlans(queue)) [[likely]] {
      arrivals_[arrived_++] = {begin, burst.size, burst.link[begin]};
    } else {
      add_arrivals(burst, begin, devices.first_link(queue));
    }
  }
  std::ranges::rotate(queues_, queues_.begin() + (queues_.empty() ? 0 : 1));
  if (backlog_ == kGoesOn) [[likely]]
    return;
  backlog_ = burst.size == before ? 0 : backlog_ - 1;
}

/// Adds an arrival for each row of packets of one link, from `begin` to the burst's end. Frames of
/// no link get the number of `first_link`, under which a trace shows them.
void LivePort::add_arrivals(Burst& burst, unsigned begin, unsigned first_link) {
  while (begin < burst.size) {
    const std::uint8_t link = burst.link[begin];
    unsigned end = begin + 1;
    while (end < burst.size && burst.link[end] == link) ++end;
    const bool is_foreign = link == kNoLink;
    if (is_foreign)
      std::fill(burst.link.begin() + begin, burst.link.begin() + end,
                static_cast<std::uint8_t>(first_link));
    arrivals_[arrived_++] = {begin, end, is_foreign ? first_link : link, is_foreign};
    begin = end;
  }
}

/// Sends frames of the kernel unchanged.
void LivePort::send_for_kernel() {
  std::array<Outgoing, kOfKernelABurst> frames;
  const unsigned count = hub_->kernel()->take(worker_, frames);
  for (unsigned i = 0; i < count; ++i) host_.send(frames[i], *this);
  if (count > 0) flush();
}

/// Adds frames of the kernel to the burst. While the port is paused, they wait in their ring.
void LivePort::receive_from_kernel(Burst& burst) {
  if (backlog_ == 0) return;
  std::array<Outgoing, kOfKernelABurst> frames;
  const unsigned room = std::min(kOfKernelABurst, Burst::kMax - burst.size);
  const unsigned count = hub_->kernel()->take(worker_, std::span(frames).first(room));
  for (const Outgoing& frame : std::span(frames).first(count)) {
    Devices::mark_of_kernel(frame.handle, frame.link);
    place(burst, burst.size++, frame.handle);
  }
}

/// Adds packets that come in again, before those of the queues.
void LivePort::receive_again(Burst& burst) {
  const auto count =
      static_cast<std::ptrdiff_t>(std::min<std::size_t>(again_.size(), Burst::kMax - burst.size));
  for (const Handle packet : std::span(again_).first(static_cast<std::size_t>(count)))
    place(burst, burst.size++, packet);
  again_.erase(again_.begin(), again_.begin() + count);
}

bool LivePort::give_to_kernel(Handle handle, unsigned link) {
  return hub_->kernel()->give(worker_, handle, link);
}

void LivePort::show_to_kernel(Handle handle, unsigned link) {
  Devices::share(handle, 1);
  if (!give_to_kernel(handle, link)) drop(handle);
}

bool LivePort::is_drained() const {
  return backlog_ == 0 && empty_ > kDrained && !hub_->devices().has_waiting(worker_) &&
         exchange_.is_at_rest();
}

void LivePort::hear(Handle packet) {
  host_.hear(Devices::bytes(packet), {link_of(packet), Devices::customer_of(packet)}, now_, *this);
}

/// Sleeps if the worker may. The sleep grows with the idle time; it stays short while a shard is
/// moving, since the move waits for this worker. A paused worker sleeps to leave its processor to
/// the thread that sends its connections.
void LivePort::wait() {
  flush();
  if (backlog_ == 0) {
    std::this_thread::sleep_for(kShortestNap);
    return;
  }
  const bool is_in_use = worker_ < hub_->in_use();
  if ((is_in_use && !options_.sleeps) || empty_ < kPatience || exchange_.is_packing()) return;
  const unsigned doublings =
      exchange_.is_moving() ? 0 : std::min((empty_ - kPatience) / kPatience, 4U);
  std::this_thread::sleep_for(std::min(kShortestNap * (1U << doublings), kLongestNap));
}

void LivePort::filed(Burst& burst, const Steering& steering) {
  if (copies_ && burst.size > 0) take_copies(burst);
  host_.filed(burst, steering);
  if (completes_checksums_) complete_checksums(burst);
  if (exchange_.workers() > 1 && burst.size > 0) tell_others(burst);
  if (numbers_all()) exchange_.number_shards(burst, steering);
  if (copies_ && copies_->hops() && burst.size > 0)
    unfile(burst, copies_->hop(burst, host_.own(burst)));
  if (exchange_.hands_over()) exchange_.hand_over(burst);
  if (tracer_ != nullptr) [[unlikely]]
    tracer_->received(burst);
}

/// Numbers the host's own connections behind all shards: they have no copies.
void LivePort::number_shards(Burst& burst, const Steering& steering) {
  if (!numbers_all()) exchange_.number_shards(burst, steering);
  const auto own = static_cast<std::uint16_t>(hub_->exchange().owners().shards());
  for_each_bit(host_.own(burst), [&](unsigned i) { burst.shard[i] = own; });
}

/// Takes what other servers say out of the lanes.
void LivePort::take_copies(Burst& burst) {
  const std::uint64_t taken = take_copies(burst, burst.v4) | take_copies(burst, burst.v6);
  if (taken == 0) [[likely]]
    return;
  for_each_bit(taken, [&](unsigned i) { burst.verdict[i] = Verdict::consumed; });
  unfile(burst, taken);
}

/// Returns the packets that other servers have sent, bits by place in the burst.
template <class K>
std::uint64_t LivePort::take_copies(Burst& burst, Lane<K>& lane) {
  std::uint64_t taken = 0;
  for (unsigned n = 0; n < lane.size; ++n) {
    if (!copies_->is_from_other(lane.key[n])) [[likely]]
      continue;
    const unsigned i = lane.packet[n];
    const auto datagram = payload_of({burst.data[i], burst.length[i]}, burst.headers[i]);
    if (!datagram || burst.verdict[i] != Verdict::tracked) continue;
    taken |= std::uint64_t{1} << i;
    const auto others = copies_->take(*datagram, false, now_);
    for (unsigned worker = 0; others.any() && worker < exchange_.workers(); ++worker) {
      if (!others.test(worker)) continue;
      Devices::share(burst.handle[i], 1);
      exchange_.pass_copies(worker, burst.handle[i]);
    }
  }
  return taken;
}

/// The packet comes in one of the next bursts. The host has checked it where it came first.
bool LivePort::take_hop(std::span<const std::byte> frame, unsigned link, Zone customer) {
  if (link >= hub_->devices().links() || again_.size() == kMostAgain) return false;
  const Outgoing made = make(static_cast<unsigned>(frame.size()));
  if (made.data == nullptr) return false;
  std::ranges::copy(frame, made.data);
  Devices::set_length(made.handle, static_cast<std::uint16_t>(frame.size()));
  Devices::mark_as_hopped(made.handle, link, customer);
  again_.push_back(made.handle);
  return true;
}

/// Takes a datagram of another server that another worker has passed on.
void LivePort::copy(Handle packet) {
  const std::span<std::byte> frame = Devices::bytes(packet);
  const auto headers = headers_of_datagram(frame);
  const auto datagram = headers ? payload_of(frame, *headers) : std::nullopt;
  if (copies_ && datagram) copies_->take(*datagram, true, now_);
}

std::uint64_t LivePort::looked_up(Burst& burst, const Steering& steering) {
  return host_.looked_up(burst, steering);
}

/// Passes ARP replies and neighbour advertisements to all other workers' hosts.
void LivePort::tell_others(const Burst& burst) {
  for (unsigned i = 0; i < burst.size; ++i) {
    const Verdict verdict = burst.verdict[i];
    if (verdict != Verdict::not_ip && verdict != Verdict::icmp_control) [[likely]]
      continue;
    if ((burst.of_host >> i & 1) != 0) continue;
    if (!Host::concerns_all({burst.data[i], burst.length[i]}, burst.headers[i])) continue;
    Devices::share(burst.handle[i], exchange_.workers() - 1);
    for (unsigned n = 0; n < exchange_.workers(); ++n) {
      if (n != worker_) exchange_.tell(n, burst.handle[i]);
    }
  }
}

bool LivePort::take_again(Burst& burst, std::uint64_t packets) {
  for_each_bit(packets, [&](unsigned i) {
    out_[i] = {burst.handle[i], burst.data[i], burst.length[i], burst.link[i]};
  });
  if (tracer_ != nullptr) [[unlikely]]
    tracer_->served(burst, packets, packets, out_);
  for_each_bit(packets, [&](unsigned i) { take_in(out_[i]); });
  return true;
}

std::uint64_t LivePort::route(Burst& burst, std::uint64_t forward) {
  const Host::Routed routed = host_.route(burst, forward, out_, *this);
  taken_ = routed.taken;
  return routed.sent;
}

void LivePort::send(const Burst& burst, std::uint64_t forward) {
  if (tracer_ != nullptr) [[unlikely]]
    tracer_->served(burst, all_of(burst), forward, out_);
  std::array<Outgoing, Burst::kMax> frames;
  std::array<Handle, Burst::kMax> over;
  std::size_t sent = 0;
  std::size_t dropped = 0;
  for (unsigned i = 0; i < burst.size; ++i) {
    if ((forward >> i & 1) != 0) {
      const bool is_held =
          (burst.deferred >> i & 1) != 0 && copies_->hold(burst.shard[i], out_[i], now_);
      if (!is_held) frames[sent++] = out_[i];
    } else if ((taken_ >> i & 1) == 0) {
      over[dropped++] = burst.handle[i];
    } else if ((burst.deferred >> i & 1) != 0) {
      copies_->skip_hold();
    }
  }
  Devices::free(std::span(over).first(dropped));
  flush(released_);
  counters_.not_sent.add(hub_->devices().transmit(worker_, std::span(frames).first(sent)));
  taken_ = 0;
  flush(own_);
}

void LivePort::send(const Outgoing& frame) { own_.push_back(frame); }

void LivePort::release(const Outgoing& frame) { released_.push_back(frame); }

void LivePort::take_in(const Outgoing& frame) {
  if (again_.size() == kMostAgain) {
    counters_.not_sent.add(1);
    return drop(frame.handle);
  }
  Devices::mark_as_again(frame);
  again_.push_back(frame.handle);
}

void LivePort::flush() {
  flush(released_);
  flush(own_);
}

void LivePort::flush(std::vector<Outgoing>& frames) {
  if (frames.empty()) return;
  counters_.not_sent.add(hub_->devices().transmit(worker_, frames));
  frames.clear();
}

void LivePort::finish() {
  hub_->end();  // first, as the calls below may fail if this worker has failed
  host_.end(*this);
  Devices::free(again_);
  again_.clear();
  if (copies_) copies_->release_all();
  flush();
  counters_.not_sent.add(hub_->devices().drain(worker_));
  Devices::leave();
}

}  // namespace millrace
