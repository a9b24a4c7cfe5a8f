// Hands the connections of a running dataplane over to another process.
#include <atomic>
#include <limits>

#include "control/control.h"
#include "line/carried.h"

namespace millrace {
namespace {

Refusal not_now(const std::string& why) { return {Refusal::Kind::not_now, why}; }

}  // namespace

std::optional<Refusal> Control::refusal_while_handing_over() const {
  if (!handing_over_) return std::nullopt;
  return not_now("another process is taking over: ask it, once it runs");
}

CommandResult<Offer> Control::offer() {
  const std::unique_lock one_at_a_time(reloading_, kReloadPatience);
  if (!one_at_a_time) return std::unexpected(not_now("a reload is under way: ask again"));
  const std::lock_guard guard(mutex_);
  // A process that got an offer before, but has no request under way, may be dead: its hand-over
  // ends.
  if (handing_over_ && (handing_over_->is_busy || handing_over_->is_paused))
    return std::unexpected(not_now("another process is taking over already"));
  if (live_->owners().moves().is_under_way())
    return std::unexpected(not_now("a shard is on its way to another worker: ask again"));
  if (live_->copies() != nullptr && live_->copies()->is_cluster())
    return std::unexpected(not_now(
        "a server of a cluster hands nothing over to a process beside it: other servers have its "
        "connections; drain it and restart it (millctl cluster upgrade)"));
  Offer offer{.number = ++offers_};
  if (const Copies* const copies = live_->copies()) {
    const Copies::Status is = copies->status();
    offer.is_active = is.is_active;
    offer.has_settled = is.has_settled;
    offer.is_sure = copies->is_sure() && workers_->function().may_give();
  }
  if (!workers_->function().tell_first(offer.function, workers_->on_each()))
    return std::unexpected(not_now("millrace is ending"));
  const Devices& devices = live_->devices();
  for (unsigned n = 0; n < workers_->count(); ++n) {
    const bool asked = workers_->ask(n, [&] {
      for (const auto& [link, address, mac, customer] : live_->port(n).host().known()) {
        const auto access = config_.live.customers->access_of(customer);
        const unsigned vlan = access ? access->vlan : devices.vlan(link);
        offer.neighbours.insert({to_string(devices.name(link)), vlan, address, mac});
      }
    });
    if (!asked) return std::unexpected(not_now("millrace is ending"));
  }
  offer.to_restore = devices.to_restore();
  for (const std::string& name : interfaces_of(config_)) offer.to_restore.try_emplace(name);
  handing_over_.emplace(HandingOver{.number = offer.number,
                                    .carrying = std::vector<Carrying>(workers_->count()),
                                    .until = std::chrono::steady_clock::now() + kPatience});
  if (!watch_.joinable())
    watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  changed_.notify_all();
  return offer;
}

/// Gives up on a new process that has been silent too long, or that reads too slowly while packets
/// wait.
void Control::watch(const std::stop_token& stop) {
  std::unique_lock guard(mutex_);
  const auto is_waiting = [this] {
    return handing_over_ && !handing_over_->has_let_go &&
           (!handing_over_->is_busy || handing_over_->is_paused);
  };
  while (!stop.stop_requested()) {
    if (!is_waiting()) {
      changed_.wait(guard, stop, is_waiting);
      continue;
    }
    const auto until = handing_over_->until;
    if (std::chrono::steady_clock::now() >= until) {
      go_on_alone();
    } else {
      changed_.wait_until(guard, stop, until,
                          [&] { return !is_waiting() || handing_over_->until != until; });
    }
  }
}

/// Goes on as before, and restores the addresses of the kernel interfaces, which the new process
/// may have changed. To be called under the lock.
void Control::go_on_alone() {
  static_cast<void>(live_->update_kernel(config_));
  if (handing_over_->is_paused) workers_->ask_all([this](unsigned n) { live_->port(n).go_on(); });
  handing_over_->is_paused = false;
  handing_over_->is_given_up = true;
  if (!handing_over_->is_busy) handing_over_.reset();
}

void Control::give_up(unsigned number) {
  const std::lock_guard guard(mutex_);
  if (!handing_over_ || handing_over_->number != number || handing_over_->has_let_go) return;
  go_on_alone();
  changed_.notify_all();
}

/// Marks the hand-over with that number as busy, and returns it. Refused if there is none, or if it
/// is busy or paused already. To be called under the lock.
auto Control::busy_with(unsigned number) -> CommandResult<HandingOver*> {
  if (!handing_over_ || handing_over_->number != number || handing_over_->is_busy ||
      handing_over_->is_paused)
    return std::unexpected(
        not_now("no hand-over with this number can go on: the new process was silent too long, has "
                "received all, or is still receiving, or another process has asked since"));
  handing_over_->is_busy = true;
  changed_.notify_all();
  return &*handing_over_;
}

/// Ends the busy time of a hand-over. `goes_on`: false if the new process has given up, or if the
/// hand-over has failed. To be called under the lock.
CommandResult<void> Control::rest(HandingOver& handing_over, bool goes_on) {
  handing_over.is_busy = false;
  handing_over.until =
      std::chrono::steady_clock::now() + (handing_over.is_paused ? kShortPatience : kPatience);
  goes_on = goes_on && !handing_over.is_given_up;
  if (!goes_on) go_on_alone();
  changed_.notify_all();
  if (goes_on) return {};
  return std::unexpected(
      not_now("the hand-over was given up or too slow, or this process is ending"));
}

CommandResult<void> Control::tell(unsigned number, const TakeBytes& take) {
  // Ids that a worker looks at in one task. The task takes about 0.1 ms, and packets wait for it.
  constexpr std::size_t kPlaces = 1024;
  std::unique_lock guard(mutex_);
  const auto is = busy_with(number);
  if (!is) return std::unexpected(is.error());
  const auto parts = workers_->line(0).carried_parts();
  guard.unlock();  // a slow reader delays no other request
  bool goes_on = give_parts(parts, take);
  guard.lock();
  for (unsigned n = 0; n < workers_->count() && goes_on; ++n) {
    Carrying& carrying = (*is)->carrying[n];
    for (LineCursor at; at.at != LineCursor::At::end && goes_on;) {
      goes_on = workers_->ask(n, [&] { at = workers_->line(n).carry(at, kPlaces, carrying); });
      guard.unlock();
      goes_on = goes_on && give(n, carrying, take);
      guard.lock();
    }
  }
  guard.unlock();
  goes_on = goes_on && give_end(take);
  guard.lock();
  return rest(**is, goes_on);
}

/// Waits until no worker has a packet. False: this did not happen in time, or the run is ending. To
/// be called under the lock.
bool Control::drain(std::chrono::steady_clock::time_point until) {
  constexpr std::chrono::microseconds kPause{50};
  // A worker without packets may still receive some from a worker that has packets: all must be
  // found without packets twice in a row.
  for (unsigned times = 0; times < 2;) {
    std::atomic<bool> all = true;
    const bool asked = workers_->ask_all([&](unsigned n) {
      if (!live_->port(n).is_drained()) all = false;
    });
    times = all ? times + 1 : 0;
    if (!asked || std::chrono::steady_clock::now() >= until) return false;
    if (!all) std::this_thread::sleep_for(kPause);
  }
  return true;
}

/// Pauses all workers, and waits until they have no packets. False: they still have some after
/// `kShortPatience`, or the run is ending. To be called under the lock.
bool Control::pause() {
  const auto until = std::chrono::steady_clock::now() + kShortPatience;
  const auto pause_all = [this] {
    return workers_->ask_all([this](unsigned n) { live_->port(n).pause(); });
  };
  // A frame that the kernel is still copying into a ring hides the frames behind it, so all workers
  // poll a second time.
  return pause_all() && drain(until) && pause_all() && drain(until);
}

CommandResult<void> Control::tell_last(unsigned number, const TakeBytes& take) {
  constexpr std::size_t kAll = std::numeric_limits<std::uint32_t>::max();
  std::unique_lock guard(mutex_);
  const auto is = busy_with(number);
  if (!is) return std::unexpected(is.error());
  (*is)->is_paused = true;
  if (!pause()) {
    static_cast<void>(rest(**is, false));
    return std::unexpected(
        not_now("the workers of the running process still had packets after 2 s: try again"));
  }
  bool goes_on = workers_->ask_all([&](unsigned n) {
    Carrying& carrying = (*is)->carrying[n];
    for (LineCursor at; at.at != LineCursor::At::end;)
      at = workers_->line(n).carry(at, kAll, carrying);
  });
  (*is)->until = std::chrono::steady_clock::now() + kShortPatience;
  changed_.notify_all();
  const auto parts = workers_->line(0).carried_parts();
  guard.unlock();
  goes_on = goes_on && give_parts(parts, take);
  for (unsigned n = 0; n < workers_->count() && goes_on; ++n)
    goes_on = give(n, (*is)->carrying[n], take);
  goes_on = goes_on && give_end(take);
  guard.lock();
  return rest(**is, goes_on);
}

CommandResult<Json> Control::let_go(unsigned number) {
  const std::lock_guard guard(mutex_);
  if (!handing_over_ || handing_over_->number != number || handing_over_->is_busy ||
      !handing_over_->is_paused || std::chrono::steady_clock::now() >= handing_over_->until)
    return std::unexpected(not_now(
        "this process goes on: the new process has not received all connections, or took too "
        "long"));
  Json last = Json::object();
  workers_->function().tell_last(last, workers_->on_each());
  if (const Copies* const copies = live_->copies()) last["active"] = copies->is_active();
  handing_over_->has_let_go = true;
  live_->leave_kernel();
  end_();
  return last;
}

bool Control::is_handing_over() {
  const std::lock_guard guard(mutex_);
  return handing_over_.has_value();
}

bool Control::is_replaced() {
  const std::lock_guard guard(mutex_);
  return handing_over_ && handing_over_->is_paused && !handing_over_->is_busy;
}

Result<void> Control::resume() {
  const std::lock_guard guard(mutex_);
  return workers_->prepare(config_.function, function_run(config_));
}

}  // namespace millrace
