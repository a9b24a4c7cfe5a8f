// Embeds millrace's connection tracker: counts the packets of each connection, in both directions.
// Build: see CMakeLists.txt beside this file, or
//   c++ -std=c++23 embed.cc $(pkg-config --cflags --libs millrace)
#include <millrace/tracker.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

using namespace millrace;

namespace {

struct Counts {
  std::uint32_t sent = 0;
  std::uint32_t answered = 0;
};

KeyV4 key_of(std::uint8_t client, std::uint16_t port) {
  KeyV4 key;
  key.source.bytes = {192, 0, 2, client};
  key.destination.bytes = {198, 51, 100, 1};
  key.source_port = port;
  key.destination_port = 443;
  key.protocol = 6;  // TCP
  return key;
}

Counts& counts_of(const ConnectionTracker<KeyV4>& tracker, ConnId id) {
  return *reinterpret_cast<Counts*>(tracker.state(id));
}

}  // namespace

int main() {
  auto tracker = ConnectionTracker<KeyV4>::create({.capacity = 10'000,
                                                   .state_bytes = sizeof(Counts),
                                                   .reply_state_bytes = 0,
                                                   .timeout_ms = 5000});
  if (!tracker) {
    std::fprintf(stderr, "%s\n", tracker.error().message.c_str());
    return 1;
  }

  // A burst of four packets of three connections, at time 0.
  const std::array<KeyV4, 4> burst{key_of(1, 4000), key_of(2, 4000), key_of(1, 4001),
                                   key_of(1, 4000)};
  std::array<ConnId, 4> ids;
  const std::uint64_t fresh = tracker->track(burst, Tick{0}, ids);
  for (std::size_t i = 0; i < burst.size(); ++i) {
    if (fresh >> i & 1) tracker->link(ids[i], reversed(burst[i]), Tick{0});
    ++counts_of(*tracker, ids[i]).sent;
  }

  // A reply of the first connection. The reply's key has an entry of its own, which leads to the
  // connection.
  const KeyV4 answer = reversed(burst[0]);
  ConnId reply{};
  tracker->find(Side::reply, {&answer, 1}, Tick{20}, {&reply, 1});
  if (reply == ConnId::none) return 1;
  ++counts_of(*tracker, tracker->originator(reply)).answered;

  const Counts first = counts_of(*tracker, ids[0]);
  std::printf("%zu connections; the first sent %u packets and got %u replies\n", tracker->size(),
              first.sent, first.answered);

  // Lists the live connections, a piece at a time: bursts may be tracked between the pieces.
  std::size_t listed = 0;
  for (ConnId from{0}; from != ConnId::none;) {
    from = tracker->walk(from, 1024, [&](ConnId id) {
      const KeyV4& key = tracker->key(id);
      std::printf("  client %u, port %u: %u packets, the last at %u ms\n", key.source.bytes[3],
                  key.source_port, counts_of(*tracker, id).sent, tracker->last_seen(id).ms);
      ++listed;
    });
  }

  // Six seconds without packets, over the timeout of five, end all connections.
  std::size_t ended = 0;
  while (!tracker->sweep(Tick{6000}, 64, [&](ConnId) { ++ended; })) {
  }
  std::printf("%zu ended, %zu left\n", ended, tracker->size());
  return ended == 3 && listed == 3 && first.sent == 2 && first.answered == 1 && tracker->size() == 0
             ? 0
             : 1;
}
