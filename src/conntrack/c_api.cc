#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "millrace/detail/check.h"
#include "millrace/millrace.h"
#include "millrace/tracker.h"

using namespace millrace;

static_assert(sizeof(millrace_key_v4) == sizeof(KeyV4) && sizeof(millrace_key_v6) == sizeof(KeyV6));
static_assert(alignof(millrace_key_v4) == alignof(KeyV4) &&
              alignof(millrace_key_v6) == alignof(KeyV6));
static_assert(offsetof(millrace_key_v6, protocol) == offsetof(KeyV6, protocol));

struct millrace_tracker {
  std::variant<ConnectionTracker<KeyV4>, ConnectionTracker<KeyV6>> of;
};

namespace {

template <class T>
struct KeyOf;
template <class K>
struct KeyOf<ConnectionTracker<K>> {
  using Type = K;
};

/// Returns the tracker behind the pointer, which must not be null.
auto& of([[maybe_unused]] const char* call, auto* tracker) {
  MILLRACE_CHECK(tracker != nullptr, call, "tracker must not be NULL");
  return tracker->of;
}

/// Calls `use(tracker, keys, ids)` with the types of the tracker's family.
template <class Use>
auto with_keys(const char* call, millrace_tracker* tracker, const void* keys, std::size_t count,
               std::uint32_t* ids, Use&& use) {
  MILLRACE_CHECK(count == 0 || (keys != nullptr && ids != nullptr), call,
                 "keys and ids must not be NULL");
  return std::visit(
      [&](auto& typed) {
        using K = typename KeyOf<std::remove_cvref_t<decltype(typed)>>::Type;
        return use(typed, std::span(static_cast<const K*>(keys), count),
                   std::span(reinterpret_cast<ConnId*>(ids), count));
      },
      of(call, tracker));
}

template <class K>
Result<millrace_tracker*> create(const TrackerOptions& options) {
  auto tracker = ConnectionTracker<K>::create(options);
  if (!tracker) return std::unexpected(tracker.error());
  return new millrace_tracker{std::move(*tracker)};
}

void say(std::string_view message, char* error, std::size_t size) {
  if (error == nullptr || size == 0) return;
  const std::size_t length = std::min(message.size(), size - 1);
  std::memcpy(error, message.data(), length);
  error[length] = '\0';
}

}  // namespace

extern "C" {

millrace_options millrace_defaults(void) {
  const TrackerOptions options;
  return {MILLRACE_IPV4,       options.capacity, options.state_bytes, false, 0, options.timeout_ms,
          options.interval_ms, nullptr};
}

millrace_tracker* millrace_create(const millrace_options* options, char* error, size_t error_size) {
  MILLRACE_CHECK(options != nullptr, "millrace_create", "options must not be NULL");
  if (options->family != MILLRACE_IPV4 && options->family != MILLRACE_IPV6) {
    say("family must be MILLRACE_IPV4 or MILLRACE_IPV6", error, error_size);
    return nullptr;
  }
  TrackerOptions wanted{.capacity = options->capacity,
                        .state_bytes = options->state_bytes,
                        .timeout_ms = options->timeout_ms,
                        .interval_ms = options->interval_ms};
  if (options->replies) wanted.reply_state_bytes = options->reply_state_bytes;
  if (options->seed != nullptr) wanted.seed = *options->seed;
  try {
    auto tracker = options->family == MILLRACE_IPV6 ? create<KeyV6>(wanted) : create<KeyV4>(wanted);
    if (tracker) return *tracker;
    say(tracker.error().message, error, error_size);
  } catch (const std::exception& failure) {
    say(failure.what(), error, error_size);
  }
  return nullptr;
}

void millrace_destroy(millrace_tracker* tracker) { delete tracker; }

uint64_t millrace_track(millrace_tracker* tracker, const void* keys, size_t count, uint32_t now_ms,
                        uint32_t* ids) {
  return with_keys("millrace_track", tracker, keys, count, ids,
                   [now_ms](auto& t, auto k, auto i) { return t.track(k, Tick{now_ms}, i); });
}

void millrace_find(millrace_tracker* tracker, const void* keys, size_t count, uint32_t now_ms,
                   uint32_t* ids) {
  with_keys("millrace_find", tracker, keys, count, ids,
            [now_ms](auto& t, auto k, auto i) { t.find(Side::originator, k, Tick{now_ms}, i); });
}

bool millrace_link(millrace_tracker* tracker, uint32_t id, const void* reply_key, uint32_t now_ms) {
  return with_keys("millrace_link", tracker, reply_key, 1, &id,
                   [now_ms](auto& t, auto k, auto i) { return t.link(i[0], k[0], Tick{now_ms}); });
}

void millrace_find_replies(millrace_tracker* tracker, const void* keys, size_t count,
                           uint32_t now_ms, uint32_t* ids) {
  with_keys("millrace_find_replies", tracker, keys, count, ids,
            [now_ms](auto& t, auto k, auto i) { t.find(Side::reply, k, Tick{now_ms}, i); });
}

uint32_t millrace_originator(const millrace_tracker* tracker, uint32_t reply) {
  return std::visit([&](const auto& t) { return index(t.originator(ConnId{reply})); },
                    of("millrace_originator", tracker));
}

uint32_t millrace_reply(const millrace_tracker* tracker, uint32_t id) {
  return std::visit([&](const auto& t) { return index(t.reply(ConnId{id})); },
                    of("millrace_reply", tracker));
}

const void* millrace_key(const millrace_tracker* tracker, uint32_t id) {
  return std::visit([&](const auto& t) -> const void* { return &t.key(ConnId{id}); },
                    of("millrace_key", tracker));
}

uint32_t millrace_last_seen(const millrace_tracker* tracker, uint32_t id) {
  return std::visit([&](const auto& t) { return t.last_seen(ConnId{id}).ms; },
                    of("millrace_last_seen", tracker));
}

void* millrace_state(const millrace_tracker* tracker, uint32_t id) {
  return std::visit([&](const auto& t) -> void* { return t.state(ConnId{id}); },
                    of("millrace_state", tracker));
}

void* millrace_reply_state(const millrace_tracker* tracker, uint32_t reply) {
  return std::visit([&](const auto& t) -> void* { return t.reply_state(ConnId{reply}); },
                    of("millrace_reply_state", tracker));
}

void millrace_close(millrace_tracker* tracker, uint32_t id) {
  std::visit([&](auto& t) { t.close(ConnId{id}); }, of("millrace_close", tracker));
}

bool millrace_sweep(millrace_tracker* tracker, uint32_t now_ms, unsigned budget,
                    void (*closed)(uint32_t, void*), void* context) {
  std::function<void(ConnId)> tell;
  if (closed != nullptr) tell = [=](ConnId id) { closed(index(id), context); };
  return std::visit([&](auto& t) { return t.sweep(Tick{now_ms}, budget, tell); },
                    of("millrace_sweep", tracker));
}

uint32_t millrace_walk(const millrace_tracker* tracker, uint32_t from, size_t budget,
                       void (*visit)(uint32_t, void*), void* context) {
  MILLRACE_CHECK(visit != nullptr, "millrace_walk", "visit must not be NULL");
  const auto each = [=](ConnId id) { visit(index(id), context); };
  return std::visit([&](const auto& t) { return index(t.walk(ConnId{from}, budget, each)); },
                    of("millrace_walk", tracker));
}

size_t millrace_size(const millrace_tracker* tracker) {
  return std::visit([](const auto& t) { return t.size(); }, of("millrace_size", tracker));
}

size_t millrace_memory_bytes(const millrace_tracker* tracker) {
  return std::visit([](const auto& t) { return t.memory_bytes(); },
                    of("millrace_memory_bytes", tracker));
}

}  // extern "C"
