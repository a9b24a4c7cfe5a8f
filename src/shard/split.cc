#include "shard/split.h"

#include <array>
#include <memory>

#include "fragments/fragments.h"
#include "parse/fragment.h"
#include "parse/parse.h"

namespace millrace {
namespace {

using Shards = std::array<std::uint16_t, Burst::kMax>;

template <class K>
void note(const Spread& spread, const Indirection& indirection, const Steering& steering,
          const Lane<K>& lane, Shards& shards) {
  std::array<std::uint32_t, Burst::kMax> hashes;
  spread.hash(steering.steer(lane.keys()), lane.keys(), std::span(hashes).first(lane.size));
  for (unsigned i = 0; i < lane.size; ++i)
    shards[lane.packet[i]] = static_cast<std::uint16_t>(indirection.shard_of(hashes[i]));
}

/// Notes the shard of dropped fragments that overlap others, so that those of one datagram are all
/// seen by the worker that must drop them. Without a first fragment they have shard 0, like the
/// first one if it follows.
template <class K>
void note_overlaps(const Spread& spread, const Indirection& indirection, const Steering& steering,
                   const Datagrams<K>& datagrams, const Burst& burst, Shards& shards) {
  constexpr unsigned kFamily = K::Address::kBytes == 4 ? 4 : 6;
  for (unsigned i = 0; i < burst.size; ++i) {
    if (burst.verdict[i] != Verdict::fragment_overlap || burst.headers[i].family != kFamily)
      continue;
    const auto fragment = read_fragment<typename K::Address>(burst.data[i], burst.headers[i]);
    if (!fragment) continue;
    const K key = datagrams.find(fragment->datagram).key;
    if (key.protocol == 0) continue;
    std::uint32_t hash = 0;
    spread.hash(steering.steer({&key, 1}), {&key, 1}, {&hash, 1});
    shards[i] = static_cast<std::uint16_t>(indirection.shard_of(hash));
  }
}

}  // namespace

Result<std::vector<std::uint16_t>> shards_of(const Capture& capture, const Spread& spread,
                                             const Indirection& indirection,
                                             const Steering& steering) {
  auto port = ReplayPort::create(capture, {.burst = Burst::kMax});
  if (!port) return std::unexpected(port.error());
  std::vector<std::uint16_t> all(capture.size());
  Fragments fragments(std::make_shared<FragmentTable>(Secret{}));
  auto burst = std::make_unique<Burst>();
  // Each fragment has the key here that a line gives it.
  for (bool more = true; more || fragments.has_waiting();) {
    burst->clear();
    if (fragments.has_waiting()) {
      fragments.next(burst, *port);
    } else {
      more = port->receive(*burst);
      parse(*burst, port->link_type());
    }
    if (fragments.concerns(*burst)) fragments.follow(*burst, *port);
    if (!more) fragments.give_up();
    Shards shards{};
    note(spread, indirection, steering, burst->v4, shards);
    note(spread, indirection, steering, burst->v6, shards);
    note(spread, indirection, steering, burst->quoted_v4, shards);
    note(spread, indirection, steering, burst->quoted_v6, shards);
    const FragmentTable& table = fragments.table();
    note_overlaps(spread, indirection, steering, table.datagrams<KeyV4>(), *burst, shards);
    note_overlaps(spread, indirection, steering, table.datagrams<KeyV6>(), *burst, shards);
    for (unsigned i = 0; i < burst->size; ++i) all[burst->handle[i]] = shards[i];
  }
  return all;
}

std::vector<CapturePart> split(std::span<const std::uint16_t> shards,
                               const Indirection& indirection, unsigned workers) {
  std::vector<CapturePart> parts(workers);
  for (unsigned worker = 0; worker < workers; ++worker) parts[worker].number = worker;
  for (std::uint32_t position = 0; position < shards.size(); ++position)
    parts[indirection.worker_of(shards[position])].positions.push_back(position);
  return parts;
}

}  // namespace millrace
