#include "port/kernel_side.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

namespace millrace {
namespace {

/// Largest number of frames moved from one ring or interface before the next one is served.
constexpr std::size_t kTurn = 32;
/// Nice value: leaves the thread about a tenth of a processor that a worker uses, too.
constexpr int kNiceness = 10;
constexpr unsigned kLinkHeader = 18;             // bytes of an Ethernet header with a VLAN tag
constexpr std::chrono::milliseconds kLook{500};  // time between two checks of link states

}  // namespace

Result<std::unique_ptr<KernelSide>> KernelSide::open(
    Devices& devices, unsigned workers, std::span<const std::optional<TapSettings>> links) {
  std::unique_ptr<KernelSide> side(new KernelSide(devices, workers));
  for (const auto& settings : links) {
    auto& link = side->links_.emplace_back();
    if (!settings) continue;
    auto tap = KernelTap::open(*settings);
    if (!tap) return std::unexpected(tap.error());
    auto ring = PointerRing::create(kRing);
    if (!ring) return std::unexpected(ring.error());
    link = std::make_unique<Link>(std::move(*tap), std::move(*ring), settings->mtu + kLinkHeader);
  }
  for (unsigned n = 0; n < workers; ++n) {
    auto ring = PointerRing::create(kRing);
    if (!ring) return std::unexpected(ring.error());
    side->given_.push_back(std::move(*ring));
  }
  side->alarm_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (side->alarm_ < 0)
    return std::unexpected(Error{std::string("eventfd: ") + std::strerror(errno)});
  return side;
}

Result<void> KernelSide::start() try {
  for (const auto& link : links_) {
    if (link == nullptr) continue;
    if (auto ok = link->tap.start(); !ok) return ok;
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  return {};
} catch (const std::system_error& error) {
  return std::unexpected(Error{std::string("no thread for the kernel's frames: ") + error.what()});
}

void KernelSide::stop() {
  thread_.request_stop();
  if (alarm_ >= 0) wake();
  if (thread_.joinable()) thread_.join();
}

void KernelSide::leave() {
  constexpr std::chrono::milliseconds kMost{50};
  constexpr std::chrono::microseconds kPause{100};
  stop();
  const auto until = std::chrono::steady_clock::now() + kMost;
  const auto has_time = [until] { return std::chrono::steady_clock::now() < until; };
  const auto waits = [](const auto& link) {
    return link != nullptr && (link->must_wait || !link->taken.is_empty());
  };
  while (has_time() && move()) {
  }
  for (const auto& link : links_) {
    if (link != nullptr) link->tap.stop();
  }
  // Move the frames that workers still give, and wait until workers have taken the rest.
  while (has_time() && (move() || std::ranges::any_of(links_, waits)))
    std::this_thread::sleep_for(kPause);
}

std::vector<std::string> KernelSide::doubts() const {
  std::vector<std::string> all;
  for (const auto& link : links_) {
    if (link == nullptr) continue;
    const auto its = link->tap.doubts();
    all.insert(all.end(), its.begin(), its.end());
  }
  return all;
}

KernelSide::~KernelSide() {
  stop();
  if (alarm_ >= 0) ::close(alarm_);
  std::array<void*, kTurn> left{};
  const auto let_go = [&left](PointerRing& ring) {
    while (const std::size_t count = ring.pop(left)) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto handle = std::bit_cast<Handle>(left[i]);
        Devices::free({&handle, 1});
      }
    }
  };
  for (PointerRing& ring : given_) let_go(ring);
  for (const auto& link : links_) {
    if (link == nullptr) continue;
    let_go(link->taken);
    if (link->frame.handle != 0) Devices::free({&link->frame.handle, 1});
  }
}

KernelSideStatistics KernelSide::statistics(unsigned link) const {
  const Link& is = *links_[link];
  return {.given = is.given.value(),
          .taken = is.of_kernel.value(),
          .full = is.full_there.value() + is.full_here.load(std::memory_order_relaxed),
          .too_long = is.too_long.value(),
          .is_gone = is.is_gone};
}

bool KernelSide::give(unsigned worker, Handle frame, unsigned link) {
  void* const pointer = std::bit_cast<void*>(frame);
  if (given_[worker].push({&pointer, 1}) != 1) {
    links_[link]->full_here.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  // Pairs with the fence in `sleep`: either the thread sees this frame, or this worker sees that
  // the thread sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleeps_.load(std::memory_order_relaxed) && sleeps_.exchange(false)) wake();
  return true;
}

unsigned KernelSide::take(unsigned worker, std::span<Outgoing> frames) {
  std::size_t count = 0;
  std::array<void*, kTurn> come{};
  for (unsigned number = worker; number < links_.size(); number += workers_) {
    if (links_[number] == nullptr) continue;
    const std::size_t most = std::min(come.size(), frames.size() - count);
    const std::size_t got = links_[number]->taken.pop(std::span(come).first(most));
    for (std::size_t i = 0; i < got; ++i) {
      const auto handle = std::bit_cast<Handle>(come[i]);
      const auto bytes = Devices::bytes(handle);
      frames[count++] = {.handle = handle,
                         .data = bytes.data(),
                         .length = static_cast<std::uint16_t>(bytes.size()),
                         .link = static_cast<std::uint8_t>(number)};
    }
  }
  return static_cast<unsigned>(count);
}

// --- the thread

void KernelSide::wake() {
  const std::uint64_t once = 1;
  static_cast<void>(::write(alarm_, &once, sizeof(once)) > 0);
}

void KernelSide::run(const std::stop_token& stop) {
  ::setpriority(PRIO_PROCESS, 0, kNiceness);  // on Linux this affects the calling thread alone
  auto looked = std::chrono::steady_clock::time_point();
  while (!stop.stop_requested()) {
    if (const auto now = std::chrono::steady_clock::now(); now - looked >= kLook) {
      looked = now;
      for (unsigned n = 0; n < links_.size(); ++n) {
        if (links_[n] != nullptr) links_[n]->tap.set_carrier(devices_->statistics(n).link_is_up);
      }
    }
    if (!move()) sleep();
  }
}

/// Moves frames of each ring and interface once. False: nothing moved.
bool KernelSide::move() {
  std::array<void*, kTurn> come{};
  bool moved = false;
  for (PointerRing& ring : given_) {
    const std::size_t count = ring.pop(come);
    moved = moved || count > 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto handle = std::bit_cast<Handle>(come[i]);
      Link& link = *links_[devices_->link_of(handle)];
      (link.tap.write(Devices::bytes(handle)) ? link.given : link.full_there).add(1);
      Devices::free({&handle, 1});
    }
  }
  for (const auto& link : links_) {
    if (link != nullptr) moved = take_from(*link) || moved;
  }
  return moved;
}

/// Moves frames of the kernel to the worker's ring. If the ring is full or memory is short, frames
/// stay in the kernel's queue.
bool KernelSide::take_from(Link& link) {
  bool moved = false;
  link.must_wait = false;
  for (std::size_t turn = 0; turn < kTurn && !link.must_wait; ++turn) {
    if (link.frame.handle == 0) link.frame = devices_->make(link.bytes);
    if (link.frame.handle == 0) {
      link.must_wait = true;
      break;
    }
    if (link.frame.length == 0) {
      const std::size_t bytes = link.tap.read({link.frame.data, link.bytes});
      if (bytes == 0) break;
      if (bytes > link.bytes) {
        link.too_long.add(1);
        moved = true;
        continue;
      }
      link.frame.length = static_cast<std::uint16_t>(bytes);
      Devices::set_length(link.frame.handle, link.frame.length);
    }
    void* const pointer = std::bit_cast<void*>(link.frame.handle);
    link.must_wait = link.taken.push({&pointer, 1}) != 1;
    if (link.must_wait) break;
    link.frame = {};
    link.of_kernel.add(1);
    moved = true;
  }
  return moved;
}

/// Sleeps until there may be something to move.
void KernelSide::sleep() {
  constexpr int kSoon = 1;  // ms
  sleeps_.store(true);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!std::ranges::all_of(given_, &PointerRing::is_empty)) {
    sleeps_.store(false);
    return;
  }
  std::vector<pollfd> waits{{.fd = alarm_, .events = POLLIN, .revents = 0}};
  int most = static_cast<int>(kLook.count());
  for (const auto& link : links_) {
    if (link == nullptr || link->is_gone) continue;
    if (link->must_wait) {
      most = kSoon;
    } else {
      waits.push_back({.fd = link->tap.fd(), .events = POLLIN, .revents = 0});
    }
  }
  ::poll(waits.data(), waits.size(), most);
  sleeps_.store(false);
  for (const pollfd& one : waits) {
    if ((one.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0) continue;
    for (const auto& link : links_) {
      if (link != nullptr && link->tap.fd() == one.fd) link->is_gone = true;
    }
  }
  std::uint64_t alarms = 0;
  static_cast<void>(::read(alarm_, &alarms, sizeof(alarms)) > 0);
}

}  // namespace millrace
