// The library's tracker: table `race`, sharing scheme `sharded`, ageing scheme `wheel`.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "conntrack/ageing/wheel.h"
#include "conntrack/sharing/alone.h"
#include "conntrack/tracker.h"
#include "millrace/detail/check.h"
#include "millrace/race.h"
#include "millrace/tracker.h"

namespace millrace {

template <class K>
struct ConnectionTracker<K>::Impl {
  Tracker<Race, Alone, K> tracker;
  std::size_t state_bytes;
  std::size_t reply_state_bytes;
  std::array<Hash, kBurstMax> hash;
  bool sweeping = false;  // set only if rules are checked

  std::span<const Hash> hashed(std::span<const K> keys) {
    tracker.hasher()(keys, std::span(hash));
    return std::span(hash).first(keys.size());
  }

  bool is_live(ConnId id) const { return index(id) < tracker.ids() && tracker.is_confirmed(id); }
  bool is_reply(ConnId id) const {
    return tracker.has_replies() && index(id) < tracker.replies().count() &&
           peer_of(tracker.replies().header(id)) != kUnconfirmed;
  }
};

namespace {

/// The callback for evicted connections, never called: the library's tracker evicts none.
constexpr auto kNobody = [](ConnId) {};

/// Checks rule 4 of millrace/tracker.h. The functions below check rules 1 to 3, too. All of these
/// functions do nothing in release builds.
template <class Impl>
void check_there([[maybe_unused]] const Impl* impl, [[maybe_unused]] const char* call) {
  MILLRACE_CHECK(impl != nullptr, call, "the tracker must not be one that was moved from");
}
template <class Impl>
void check_change(const Impl* impl, const char* call) {
  check_there(impl, call);
  MILLRACE_CHECK(!impl->sweeping, call, "the callback of a sweep must not call this function");
}
template <class Impl>
void check_burst(const Impl* impl, [[maybe_unused]] std::size_t keys,
                 [[maybe_unused]] std::size_t ids, const char* call) {
  check_there(impl, call);
  MILLRACE_CHECK(keys <= Stragglers::kMax, call, "a burst must have 64 keys at most");
  MILLRACE_CHECK(ids >= keys, call, "ids must be as long as keys or longer");
}
template <class Impl>
void check_live(const Impl* impl, [[maybe_unused]] ConnId id, const char* call) {
  check_there(impl, call);
  MILLRACE_CHECK(impl->is_live(id), call,
                 "the id must be that of a live connection, not none, "
                 "nor that of a connection that has ended");
}
template <class Impl>
void check_reply(const Impl* impl, [[maybe_unused]] ConnId id, const char* call) {
  check_there(impl, call);
  MILLRACE_CHECK(impl->is_reply(id), call,
                 "the id must be that of a live reply entry, not none, "
                 "nor that of an entry whose connection has ended");
}

std::string problems_of(const TrackerOptions& options) {
  std::string problems;
  const auto require = [&problems](bool right, std::string_view what) {
    if (right) return;
    if (!problems.empty()) problems += "; ";
    problems += what;
  };
  require(options.capacity > 0, "capacity must be 1 or more");
  require(options.state_bytes <= 200 && options.reply_state_bytes.value_or(0) <= 200,
          "state_bytes and reply_state_bytes must be from 0 to 200");
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
  check_burst(impl_.get(), keys.size(), ids.size(), "track");
  check_change(impl_.get(), "track");
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
  check_burst(impl_.get(), keys.size(), ids.size(), "find");
  keys = keys.first(std::min(keys.size(), kBurstMax));
  const auto hashes = impl_->hashed(keys);
  impl_->tracker.prefetch(hashes, side);
  const Stragglers stragglers = impl_->tracker.prefetch_records(keys, hashes, side);
  impl_->tracker.prefetch_stragglers(keys, hashes, stragglers, side);
  impl_->tracker.find(keys, hashes, now, ids, stragglers, side);
}

template <class K>
bool ConnectionTracker<K>::link(ConnId id, const K& reply_key, Tick now) {
  check_live(impl_.get(), id, "link");
  check_change(impl_.get(), "link");
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
  check_live(impl_.get(), id, "close");
  check_change(impl_.get(), "close");
  impl_->tracker.close(id);
  impl_->tracker.reclaim();
}

template <class K>
bool ConnectionTracker<K>::sweep(Tick now, unsigned budget,
                                 const std::function<void(ConnId)>& closed) {
  check_change(impl_.get(), "sweep");
  if constexpr (MILLRACE_CHECKS) impl_->sweeping = true;
  const bool done = impl_->tracker.sweep(now, std::min(budget, kSweepMax), [&closed](ConnId id) {
    if (closed) closed(id);
  });
  if constexpr (MILLRACE_CHECKS) impl_->sweeping = false;
  impl_->tracker.reclaim();
  return done;
}

template <class K>
ConnId ConnectionTracker<K>::walk(ConnId from, std::size_t budget,
                                  const std::function<void(ConnId)>& visit) const {
  check_there(impl_.get(), "walk");
  MILLRACE_CHECK(visit, "walk", "visit must not be empty");
  const std::size_t ids = impl_->tracker.ids();
  const std::size_t first = std::min<std::size_t>(index(from), ids);
  const std::size_t end = first + std::min(budget, ids - first);
  for (std::size_t at = first; at < end; ++at) {
    const ConnId id{static_cast<std::uint32_t>(at)};
    if (impl_->is_live(id)) visit(id);
  }
  return end == ids ? ConnId::none : ConnId{static_cast<std::uint32_t>(end)};
}

template <class K>
const K& ConnectionTracker<K>::key(ConnId id) const {
  check_live(impl_.get(), id, "key");
  return impl_->tracker.originators().header(id).key;
}
template <class K>
std::byte* ConnectionTracker<K>::state(ConnId id) const {
  check_live(impl_.get(), id, "state");
  return impl_->tracker.originators().state(id);
}
template <class K>
Tick ConnectionTracker<K>::last_seen(ConnId id) const {
  check_live(impl_.get(), id, "last_seen");
  return impl_->tracker.last_seen(id);
}
template <class K>
ConnId ConnectionTracker<K>::reply(ConnId id) const {
  check_live(impl_.get(), id, "reply");
  return impl_->tracker.originators().header(id).peer;
}
template <class K>
std::byte* ConnectionTracker<K>::reply_state(ConnId reply) const {
  check_reply(impl_.get(), reply, "reply_state");
  return impl_->tracker.replies().state(reply);
}
template <class K>
ConnId ConnectionTracker<K>::originator(ConnId reply) const {
  check_reply(impl_.get(), reply, "originator");
  return impl_->tracker.replies().header(reply).peer;
}
template <class K>
std::size_t ConnectionTracker<K>::size() const {
  check_there(impl_.get(), "size");
  return impl_->tracker.live();
}
template <class K>
std::size_t ConnectionTracker<K>::memory_bytes() const {
  check_there(impl_.get(), "memory_bytes");
  return impl_->tracker.memory_bytes();
}
template <class K>
Pages ConnectionTracker<K>::pages() const {
  check_there(impl_.get(), "pages");
  return impl_->tracker.pages();
}

template class ConnectionTracker<KeyV4>;
template class ConnectionTracker<KeyV6>;

}  // namespace millrace
