#include "worker/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <variant>

namespace millrace {
namespace {

/// Milliseconds after which a worker that has not been between two bursts counts as hung.
constexpr std::uint64_t kHungMs = 100;
/// Parts that a hello may tell.
constexpr std::size_t kMostParts = 32;
static_assert(sizeof(CarriedPart) == kPartBytes);
static_assert(sizeof(Hello) + kMostParts * kPartBytes <= kMostPayload);

/// Draws the number of this process; that it is random is the reason why no old datagram is of use.
Member new_member() {
  std::random_device device;
  const std::uint64_t number = std::uint64_t{device()} << 32 | device();
  return process_of(Member{std::max(number, kWorkersOfMember)});
}

bool is_same(const Assignment& one, const Assignment& other) {
  return one.epoch == other.epoch && one.role == other.role && one.other == other.other &&
         one.is_settled == other.is_settled;
}

}  // namespace

template <class Act>
auto Copies::with_pair(Act&& act) {
  const std::scoped_lock lock(mutex_);
  struct State {
    Assignment assignment;
    Member other;
    bool has_settled;
    bool both_are_new;
    bool agrees;
  };
  const auto state = [this] {
    return State{pair_.assignment(), pair_.other(), pair_.has_settled(), pair_.both_are_new(),
                 pair_.agrees()};
  };
  struct Note {
    Copies& copies;
    decltype(state)& look;
    State before;
    ~Note() {
      const State is = look();
      if (copies.is_cluster() ||
          (is_same(is.assignment, before.assignment) && is.other == before.other &&
           is.has_settled == before.has_settled && is.both_are_new == before.both_are_new &&
           is.agrees == before.agrees))
        return;
      copies.place_pair();
    }
  } const note{*this, state, state()};
  return act(pair_);
}

Result<Secret> Copies::spread_secret(const ClusterKey& key) {
  Secret secret;
  if (auto ok = derive(key, "spread", std::as_writable_bytes(std::span(secret.bytes))); !ok)
    return std::unexpected(ok.error());
  return secret;
}

void Copies::set_layout(std::vector<CarriedPart> parts) {
  // More of them do not fit into a message, and no chain has them.
  parts.resize(std::min(parts.size(), kMostParts));
  parts_ = std::move(parts);
  const auto bytes = std::as_bytes(std::span(parts_));
  layout_ = digest_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Copies::Copies(const Settings& settings, unsigned workers, std::shared_ptr<const Owners> owners)
    : settings_(settings),
      self_(new_member()),
      owners_(std::move(owners)),
      start_(std::chrono::steady_clock::now()),
      pair_({.number = settings.number,
             .self = self_,
             .version = kCarriedVersion,
             .shards = owners_->shards(),
             .has_settled = settings.has_settled,
             .is_sure = settings.is_sure}),
      is_active_(settings.is_active),
      handed_back_(owners_->shards()),
      lacks_connections_(owners_->shards()),
      in_sync_(owners_->shards()),
      workers_(workers) {
  for (OfWorker& worker : workers_) worker.packets = std::vector<Counter>(owners_->shards());
  if (settings.is_cluster) {
    grants_ = std::make_shared<Grants>(owners_->shards(), settings.spread);
    const Placement::OfShard nobodys{.master = Placement::kNowhere, .slave = Placement::kNowhere};
    place({.shards = std::vector(owners_->shards(), nobodys), .hops = true});
  } else {
    place_pair();
    set_active(settings.is_active);
  }
}

std::uint64_t Copies::now_ms() const {
  const auto passed = std::chrono::steady_clock::now() - start_;
  return static_cast<std::uint64_t>(
             std::chrono::duration_cast<std::chrono::milliseconds>(passed).count()) +
         1;
}

std::shared_ptr<const Placement> Copies::placement() const {
  const std::scoped_lock lock(mutex_);
  return placement_;
}

/// With `mutex_`.
void Copies::place(Placement placement) {
  placement_ = std::make_shared<const Placement>(std::move(placement));
  changes_.fetch_add(1, std::memory_order_release);
}

bool Copies::is_followed() const {
  const std::uint64_t is = changes();
  return std::ranges::all_of(workers_, [is](const OfWorker& worker) {
    return worker.followed.load(std::memory_order_acquire) == is;
  });
}

bool Copies::has_heard(const Peer& peer) const {
  const std::uint64_t heard = peer.state->heard_ms.load(std::memory_order_relaxed);
  const std::uint64_t now = now_ms();
  const auto most = is_cluster() ? kSilentMs : static_cast<std::uint64_t>(Pair::kSilent);
  return heard != 0 && now - std::min(now, heard) <= most;
}

bool Copies::are_all_alive() const {
  const std::uint64_t now = now_ms();
  return std::ranges::all_of(workers_, [now](const OfWorker& worker) {
    return now - std::min(now, worker.alive_ms.load(std::memory_order_relaxed)) < kHungMs;
  });
}

void Copies::set_settings(std::string_view settings, bool needs_grants) {
  needs_grants_.store(needs_grants, std::memory_order_relaxed);
  const std::uint32_t digest = digest_of(settings);
  agreement_.store(digest, std::memory_order_relaxed);
  with_pair([&](Pair& pair) { pair.set_agreement(digest); });
}

std::uint64_t Copies::count(Counter CopiesCounters::* counter) const {
  std::uint64_t sum = 0;
  for (const OfWorker& worker : workers_) sum += (worker.counters.*counter).value();
  return sum;
}

std::uint64_t Copies::packets_of(unsigned shard) const {
  std::uint64_t sum = 0;
  for (const OfWorker& worker : workers_) sum += worker.packets[shard].value();
  return sum;
}

unsigned Copies::shards_in_sync() const {
  return static_cast<unsigned>(
      std::ranges::count_if(in_sync_, [](const auto& one) { return one.load() != 0; }));
}

bool Copies::is_sure() const {
  const auto placement = this->placement();
  for (unsigned shard = 0; shard < shards(); ++shard) {
    const Assignment& is = placement->shards[shard].assignment;
    const bool is_alone = is.other == Member::none;
    const bool is_known = is_alone || in_sync_[shard].load() == is.epoch;
    if (!is.is_settled || !is_known) return false;
  }
  return true;
}

void Copies::note_in_sync() {
  if (is_cluster()) return;
  with_pair([&](Pair& pair) {
    const Epoch epoch = pair.assignment().epoch;
    const bool are_all =
        std::ranges::all_of(in_sync_, [epoch](const auto& one) { return one.load() == epoch; });
    pair.set_in_sync(epoch != 0 && are_all, now());
  });
}

auto Copies::hello() const -> Greeting {
  const std::scoped_lock lock(mutex_);
  Hello hello = pair_.hello();
  hello.parts = static_cast<std::uint8_t>(parts_.size());
  hello.layout = layout_;
  Greeting greeting{.payload = {}, .epoch = pair_.assignment().epoch};
  const auto head = std::as_bytes(std::span(&hello, 1));
  const auto parts = std::as_bytes(std::span(parts_));
  greeting.payload.reserve(head.size() + parts.size());
  greeting.payload.assign(head.begin(), head.end());
  greeting.payload.insert(greeting.payload.end(), parts.begin(), parts.end());
  return greeting;
}

void Copies::hear(Member from, Epoch epoch, const ToldHello& told, const Peer* peer) {
  const Hello& hello = told.hello;
  if (!is_cluster()) {
    return with_pair([&](Pair& pair) {
      pair.hear(from, epoch, hello, unreadable(told, state_in_pair(from)), now());
    });
  }
  if (peer == nullptr) return;
  Peer::State& state = *peer->state;
  const std::scoped_lock lock(mutex_);
  const Hello own = pair_.hello();
  state.disagreement = difference(own, hello, unreadable(told, state));
  state.spreads_alike.store(own.shards == hello.shards && own.agreement == hello.agreement,
                            std::memory_order_relaxed);
  state.agrees.store(state.disagreement.empty(), std::memory_order_release);
}

/// Returns the state of that process of the other server, which may be new. With `mutex_`.
Peer::State& Copies::state_in_pair(Member of) {
  if (const Peer& known = placement_->peers.front(); known.member == of) return *known.state;
  if (newcomer_.member != of) newcomer_ = {.member = of, .ends = settings_.ends};
  return *newcomer_.state;
}

/// Returns why this process cannot read the records of a process that says so; empty: it can. With
/// `mutex_`.
const std::string& Copies::unreadable(const ToldHello& told, Peer::State& of) {
  static const std::string changed = "the layout of the other server's records has changed";
  if (of.layout == told.hello.layout) return of.unreadable;
  if (of.kept != nullptr) return changed;
  of.layout = told.hello.layout;
  of.unreadable.clear();
  if (told.hello.layout == layout_) return of.unreadable;
  std::vector<CarriedPart> parts(told.parts.size() / sizeof(CarriedPart));
  if (!parts.empty()) std::memcpy(parts.data(), told.parts.data(), told.parts.size());
  if (auto read = CarriedLayouts::of(parts, parts_)) {
    of.kept = std::make_unique<const CarriedLayouts>(std::move(*read));
    of.layouts.store(of.kept.get(), std::memory_order_release);
  } else if (const Unreadable& why = read.error(); why.function.empty()) {
    of.unreadable = "the layout of the other server's records has no meaning here";
  } else {
    of.unreadable = fmt::format("the other server's records of {} are of version {}, those here {}",
                                why.function, why.theirs, why.ours);
  }
  return of.unreadable;
}

// --- a pair

void Copies::tick() {
  with_pair([&](Pair& pair) { pair.tick(now()); });
}

/// Both servers have a copy of each shard, and serve what comes to them. With `mutex_`.
void Copies::place_pair() {
  Placement placement{.state = {.has_settled = pair_.has_settled(),
                                .both_are_new = pair_.both_are_new(),
                                .is_sure = false}};
  Peer other{.member = pair_.other(), .ends = settings_.ends};
  if (placement_ && placement_->peers.front().member == other.member) {
    other.state = placement_->peers.front().state;
  } else if (other.member != Member::none) {
    if (newcomer_.member == other.member) other.state = newcomer_.state;
    other.state->heard_ms.store(now_ms(), std::memory_order_relaxed);  // by its first hello
  }
  other.state->agrees.store(pair_.agrees(), std::memory_order_release);
  placement.peers.push_back(std::move(other));
  placement.shards.assign(owners_->shards(), {.assignment = pair_.assignment()});
  place(std::move(placement));
}

void Copies::set_active(bool is_active) {
  with_pair([&](Pair& pair) {
    pair.set_active(is_active, now());
    is_active_.store(is_active, std::memory_order_release);
  });
}

bool Copies::set_gone() {
  return with_pair([&](Pair& pair) { return pair.set_gone(now()); });
}

Copies::Status Copies::status() const {
  Status is;
  const std::scoped_lock lock(mutex_);
  is.assignment = pair_.assignment();
  is.is_active = pair_.is_active();
  is.is_in_sync = pair_.is_in_sync();
  is.has_settled = pair_.has_settled();
  is.hears_other = pair_.hears_other(now());
  is.other = pair_.hello_of_other();
  is.disagreement = pair_.disagreement(now());
  is.has_same_layout = placement_->peers.front().state->layout == layout_;
  return is;
}

// --- a cluster

Copies::Heard Copies::heard_of(const Peer& peer) const {
  const std::scoped_lock lock(mutex_);
  const Peer::State& is = *peer.state;
  Heard heard{.has_same_layout = std::nullopt, .disagreement = is.disagreement};
  if (is.layout) heard.has_same_layout = *is.layout == layout_;
  return heard;
}

std::optional<AnyKey> Copies::ends_to(const AnyAddress& address) const {
  return std::visit(
      [&](auto ends) -> std::optional<AnyKey> {
        const auto* const is = std::get_if<decltype(ends.destination)>(&address);
        if (is == nullptr) return std::nullopt;
        ends.destination = *is;
        return ends;
      },
      settings_.ends);
}

bool Copies::follow(Placement placement) {
  const std::scoped_lock lock(mutex_);
  for (std::size_t shard = 0; shard < placement.shards.size(); ++shard) {
    Placement::OfShard& of = placement.shards[shard];
    Assignment& is = of.assignment;
    const Assignment& was = placement_->shards[shard].assignment;
    if (is.epoch == 0) {
      is.epoch = was.epoch;
      continue;
    }
    if (is.epoch > was.epoch) continue;
    const bool is_same = is.role == was.role && is.other == was.other;
    if (is.epoch < was.epoch || (!is_same && was.role != CopyRole::none)) return false;
    if (is_same) continue;
    is = was;
    of.grants = 0;
    if (of.master == Placement::kHere) of.master = Placement::kNowhere;
    if (of.slave == Placement::kHere) of.slave = Placement::kNowhere;
  }
  for (Peer& peer : placement.peers) {
    const auto was = std::ranges::find(placement_->peers, peer.member, &Peer::member);
    if (was != placement_->peers.end()) peer.state = was->state;
  }
  place(std::move(placement));
  return true;
}

}  // namespace millrace
