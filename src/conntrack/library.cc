// The library's tracker: race, sharded, wheel.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "conntrack/ageing/wheel.h"
#include "conntrack/sharing/alone.h"
#include "conntrack/tracker.h"
#include "millrace/race.h"
#include "millrace/tracker.h"

namespace millrace {

template <class K>
struct ConnectionTracker<K>::Impl {
  Tracker<Race, Alone, K> tracker;
  std::size_t state_bytes;
  std::size_t reply_state_bytes;
  std::array<Hash, kBurstMax> hash;

  std::span<const Hash> hashed(std::span<const K> keys) {
    tracker.hasher()(keys, std::span(hash));
    return std::span(hash).first(keys.size());
  }
};

namespace {

/// Only `sweep` ends connections here, so nobody is to be told by others.
constexpr auto kNobody = [](ConnId) {};

std::string problems_of(const TrackerOptions& options) {
  std::string problems;
  const auto require = [&problems](bool right, std::string_view what) {
    if (right) return;
    if (!problems.empty()) problems += "; ";
    problems += what;
  };
  require(options.capacity > 0, "capacity must be 1 or more");
  require(options.state_bytes <= 200 && options.reply_state_bytes.value_or(0) <= 200,
          "a state may have 200 bytes at most");
  require(options.timeout_ms > 0 && options.timeout_ms < 0x80000000,
          "timeout_ms must be from 1 to 2147483647");
  require(options.interval_ms > 0 && options.interval_ms <= 1000,
          "interval_ms must be from 1 to 1000");
  return problems;
}

}  // namespace

template <class K>
auto ConnectionTracker<K>::create(const TrackerOptions& options) -> Result<ConnectionTracker> {
  if (std::string problems = problems_of(options); !problems.empty()) {
    return std::unexpected(Error{std::move(problems), Error::Kind::usage});
  }
  auto tracker = Tracker<Race, Alone, K>::create(
      {.capacity = options.capacity,
       .state_bytes = options.state_bytes,
       .reply_state_bytes = options.reply_state_bytes,
       .timeouts = Timeouts::all(options.timeout_ms),
       .ageing = &Wheel::create,
       .interval_ms = options.interval_ms,
       .pages = options.pages,
       .secret = options.seed ? Secret::from_seed(*options.seed) : Secret::random()});
  if (!tracker) return std::unexpected(tracker.error());
  return ConnectionTracker(std::unique_ptr<Impl>(new Impl{
      std::move(*tracker), options.state_bytes, options.reply_state_bytes.value_or(0), {}}));
}

template <class K>
ConnectionTracker<K>::ConnectionTracker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
template <class K>
ConnectionTracker<K>::ConnectionTracker(ConnectionTracker&&) noexcept = default;
template <class K>
ConnectionTracker<K>& ConnectionTracker<K>::operator=(ConnectionTracker&&) noexcept = default;
template <class K>
ConnectionTracker<K>::~ConnectionTracker() = default;

template <class K>
std::uint64_t ConnectionTracker<K>::track(std::span<const K> keys, Tick now,
                                          std::span<ConnId> ids) {
  find(Side::originator, keys, now, ids);
  auto& tracker = impl_->tracker;
  std::uint64_t fresh = 0;
  for (std::size_t i = 0; i < std::min(keys.size(), kBurstMax); ++i) {
    if (ids[i] != ConnId::none) continue;
    const Insertion in = tracker.open(keys[i], impl_->hash[i], now, kNobody);
    ids[i] = in.id;
    if (in.outcome != Insertion::Outcome::inserted) continue;
    std::memset(tracker.originators().state(in.id), 0, impl_->state_bytes);
    tracker.confirm(in.id);
    fresh |= std::uint64_t{1} << i;
  }
  return fresh;
}

template <class K>
void ConnectionTracker<K>::find(Side side, std::span<const K> keys, Tick now,
                                std::span<ConnId> ids) {
  keys = keys.first(std::min(keys.size(), kBurstMax));
  const auto hashes = impl_->hashed(keys);
  impl_->tracker.prefetch(side, hashes);
  const Stragglers stragglers = impl_->tracker.prefetch_records(side, keys, hashes);
  impl_->tracker.prefetch_stragglers(side, keys, hashes, stragglers);
  impl_->tracker.find(side, keys, hashes, now, ids, stragglers);
}

template <class K>
bool ConnectionTracker<K>::link(ConnId id, const K& reply_key, Tick now) {
  auto& tracker = impl_->tracker;
  if (!tracker.has_replies() || tracker.originators().header(id).peer != ConnId::none) return false;
  const std::array<std::byte, Records<K>::kMaxStride> zero{};
  const Insertion in =
      tracker.link(reply_key, now, std::span(zero).first(impl_->reply_state_bytes), kNobody);
  if (in.outcome != Insertion::Outcome::inserted) return false;
  tracker.join(id, in.id);
  return true;
}

template <class K>
void ConnectionTracker<K>::close(ConnId id) {
  impl_->tracker.close(id);
  impl_->tracker.settle();
}

template <class K>
bool ConnectionTracker<K>::sweep(Tick now, unsigned budget,
                                 const std::function<void(ConnId)>& closed) {
  const bool done = impl_->tracker.sweep(now, std::min(budget, kSweepMax), [&closed](ConnId id) {
    if (closed) closed(id);
  });
  impl_->tracker.settle();
  return done;
}

template <class K>
const K& ConnectionTracker<K>::key(ConnId id) const {
  return impl_->tracker.originators().header(id).key;
}
template <class K>
std::byte* ConnectionTracker<K>::state(ConnId id) const {
  return impl_->tracker.originators().state(id);
}
template <class K>
std::byte* ConnectionTracker<K>::reply_state(ConnId reply) const {
  return impl_->tracker.replies().state(reply);
}
template <class K>
ConnId ConnectionTracker<K>::originator(ConnId reply) const {
  return impl_->tracker.replies().header(reply).peer;
}
template <class K>
std::size_t ConnectionTracker<K>::size() const {
  return impl_->tracker.live();
}
template <class K>
std::size_t ConnectionTracker<K>::memory_bytes() const {
  return impl_->tracker.memory_bytes();
}
template <class K>
Pages ConnectionTracker<K>::pages() const {
  return impl_->tracker.pages();
}

template class ConnectionTracker<KeyV4>;
template class ConnectionTracker<KeyV6>;

}  // namespace millrace
