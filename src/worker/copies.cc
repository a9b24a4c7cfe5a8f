#include "worker/copies.h"

#include <algorithm>
#include <random>
#include <utility>

#include "line/carried.h"

namespace millrace {
namespace {

/// Ticks after which each shard has been looked at: streams wait longer before they send again.
constexpr std::int32_t kRound = 5;
/// Connections that are looked at between two bursts, to tell all of them, while no packets wait;
/// while packets wait it is some every `kBusyBursts` bursts.
constexpr std::size_t kWhileIdle = 64;
constexpr std::size_t kWhileBusy = 8;
constexpr unsigned kBusyBursts = 16;
/// Datagrams of unknown processes that a worker opens in a second, as each takes some microseconds.
constexpr unsigned kMostTries = 100;

/// Draws the number of this process; that it is random is the reason why no old datagram is of use.
Member new_member() {
  std::random_device device;
  const std::uint64_t number = std::uint64_t{device()} << 32 | device();
  return process_of(Member{std::max(number, kWorkersOfMember)});
}

}  // namespace

Result<Secret> Copies::spread_secret(const ClusterKey& key) {
  Secret secret;
  if (auto ok = derive(key, "spread", std::as_writable_bytes(std::span(secret.bytes))); !ok)
    return std::unexpected(ok.error());
  return secret;
}

std::uint32_t Copies::agreement(std::span<const CarriedPart> parts, std::string_view function) {
  std::string all(function);
  for (const CarriedPart& part : parts) {
    for (const std::uint32_t number : {part.family, std::uint32_t{part.version}, part.image_bytes})
      all.append(1, ' ').append(std::to_string(number));
    all.append(1, ' ').append(part.name());
  }
  return digest_of(all);
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
             .agreement = settings.agreement,
             .has_settled = settings.has_settled}),
      is_active_(settings.is_active),
      workers_(workers) {
  pair_.set_active(settings.is_active, now());
}

Tick Copies::now() const {
  const auto passed = std::chrono::steady_clock::now() - start_;
  return Tick::from_ms(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(passed).count()));
}

template <class Act>
auto Copies::with_pair(Act&& act) {
  const std::scoped_lock lock(mutex_);
  const Assignment before = pair_.assignment();
  const bool had_settled = pair_.has_settled();
  struct Note {
    Copies& copies;
    Assignment before;
    bool had_settled;
    ~Note() {
      const Assignment& is = copies.pair_.assignment();
      if (is.epoch != before.epoch || is.role != before.role || is.other != before.other ||
          is.is_settled != before.is_settled || copies.pair_.has_settled() != had_settled)
        copies.changes_.fetch_add(1, std::memory_order_release);
    }
  } const note{*this, before, had_settled};
  return act(pair_);
}

void Copies::set_active(bool is_active) {
  with_pair([&](Pair& pair) { pair.set_active(is_active, now()); });
  is_active_.store(is_active, std::memory_order_release);
}

bool Copies::set_gone() {
  return with_pair([&](Pair& pair) { return pair.set_gone(now()); });
}

void Copies::set_agreement(std::uint32_t agreement) {
  with_pair([&](Pair& pair) { pair.set_agreement(agreement); });
}

Copies::Status Copies::status() const {
  Status is;
  for (const OfWorker& worker : workers_)
    is.shards_in_sync += worker.in_sync.load(std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  is.assignment = pair_.assignment();
  is.is_active = pair_.is_active();
  is.is_in_sync = pair_.is_in_sync();
  is.has_settled = pair_.has_settled();
  is.hears_other = pair_.hears_other(now());
  is.other = pair_.hello_of_other();
  is.disagreement = pair_.disagreement(now());
  is.shards = owners_->shards();
  return is;
}

std::uint64_t Copies::count(Counter CopiesCounters::* counter) const {
  std::uint64_t sum = 0;
  for (const OfWorker& worker : workers_) sum += (worker.counters.*counter).value();
  return sum;
}

void Copies::hear(Member from, Epoch epoch, const Hello& hello) {
  with_pair([&](Pair& pair) { pair.hear(from, epoch, hello, now()); });
}

void Copies::note_in_sync() {
  unsigned in_sync = 0;
  for (const OfWorker& worker : workers_) in_sync += worker.in_sync.load(std::memory_order_relaxed);
  with_pair([&](Pair& pair) { pair.set_in_sync(in_sync == owners_->shards(), now()); });
}

WorkersCopies::WorkersCopies(Copies& copies, unsigned worker, Line& line, Way& way)
    : copies_(&copies),
      worker_(worker),
      line_(&line),
      way_(&way),
      counters_(&copies.workers_[worker].counters),
      shards_(copies.owners_->shards()),
      opener_(copies.settings_.key, copies.self_),
      open_to_all_(copies.settings_.key, Member::none) {
  for (unsigned shard = 0; shard < shards_.size(); ++shard) {
    if (copies.owners_->worker_of(shard) != worker) continue;
    shards_[shard] = std::make_unique<ShardCopy>(shard, line.copied(shard));
    own_.push_back(static_cast<std::uint16_t>(shard));
  }
  if (auto sealer = Sealer::create(copies.settings_.key, sender_of(copies.self_, worker)))
    sealer_ = std::move(*sealer);
}

// --- what comes

auto WorkersCopies::take(std::span<const std::byte> datagram, bool is_passed, Tick now)
    -> OtherWorkers {
  OtherWorkers others;
  const auto ends = ends_of(datagram);
  auto content = ends ? open(datagram, *ends, now) : std::nullopt;
  if (!content) {
    if (!ends) counters_->foreign.add(1);
    count();
    return others;
  }
  if (!is_passed) counters_->datagrams_in.add(1);
  const Member from = process_of(ends->sender);
  while (const auto message = take_message(*content)) {
    if (message->head.kind == MessageHead::Kind::hello) {
      if (!is_passed) hear(*ends, *message);
      continue;
    }
    // A process that is not the other server yet says hello, and no more.
    if (from != other_ || message->head.shard >= shards_.size()) {
      counters_->malformed.add(from == other_ ? 1 : 0);
      continue;
    }
    const std::uint32_t shard = message->head.shard;
    if (shards_[shard] == nullptr) {
      if (!is_passed) others.set(copies_->owners_->worker_of(shard));
      continue;
    }
    shards_[shard]->receive(from, *message, now);
    due_.push_back(static_cast<std::uint16_t>(shard));
  }
  if (!content->empty()) counters_->malformed.add(1);
  return others;
}

/// Opens a datagram. That of an unknown sender is opened, too, now and then: it may be the other
/// server's, which has begun anew. If it is for this process, whose number nobody could know
/// before, it is no old one.
std::optional<std::span<const std::byte>> WorkersCopies::open(std::span<const std::byte> datagram,
                                                              const SealedFor& ends, Tick now) {
  const bool is_to_all = ends.receiver == Member::none;
  Opener& opener = is_to_all ? open_to_all_ : opener_;
  const bool is_admitted = opener.has_admitted(ends.sender);
  if (!is_admitted) {
    if (now - tried_at_ >= 1000) {
      tried_at_ = now;
      tries_ = 0;
      open_to_all_.forget_all();
    }
    if (++tries_ > kMostTries || process_of(ends.sender) == copies_->self_) {
      counters_->foreign.add(1);
      return std::nullopt;
    }
  }
  if (!is_admitted && !opener.admit(ends.sender)) return std::nullopt;
  const auto opened = opener.open(datagram);
  if (!opened) {
    if (!is_admitted) opener.forget(ends.sender);
    return std::nullopt;
  }
  return opened->content;
}

void WorkersCopies::hear(const SealedFor& ends, const Message& message) {
  Hello hello;
  if (message.payload.size() != sizeof(hello)) return counters_->malformed.add(1);
  std::memcpy(&hello, message.payload.data(), sizeof(hello));
  const Member from = process_of(ends.sender);
  if (ends.receiver == Member::none) {
    // It may be an old one. If not, the process answers a hello that is for it.
    copies_->greeted_.store(static_cast<std::uint64_t>(from), std::memory_order_release);
    return;
  }
  copies_->hear(from, message.head.epoch, hello);
}

// --- what goes

void WorkersCopies::send(Member to, const MessageHead& head, std::span<const std::byte> payload) {
  constexpr std::size_t kMostContent = kMostDatagram - kSealBytes;
  static_assert(sizeof(head) + kMostPayload <= kMostContent);
  const std::size_t bytes = sizeof(head) + payload.size();
  if (batch_to_ != to || batch_.size() + bytes > kMostContent) flush();
  batch_to_ = to;
  const std::size_t at = batch_.size();
  batch_.resize(at + bytes);
  std::memcpy(&batch_[at], &head, sizeof(head));
  if (!payload.empty()) std::memcpy(&batch_[at + sizeof(head)], payload.data(), payload.size());
}

void WorkersCopies::flush() {
  if (batch_.empty()) return;
  sealed_.clear();
  if (sealer_) sealer_->seal(batch_to_, batch_, sealed_);
  batch_.clear();
  if (sealed_.empty()) return;
  counters_->datagrams_out.add(1);
  way_->send_to_other(sealed_);
}

void WorkersCopies::say_hello(Member to) {
  Hello hello;
  Epoch epoch = 0;
  copies_->with_pair([&](const Pair& pair) {
    hello = pair.hello();
    epoch = pair.assignment().epoch;
  });
  send(to, {.kind = MessageHead::Kind::hello, .bytes = sizeof(hello), .epoch = epoch},
       std::as_bytes(std::span(&hello, 1)));
}

/// Says hello to the other server: to its process, and if that is silent, to any.
void WorkersCopies::greet(Tick now) {
  const std::uint64_t asked = copies_->greeted_.exchange(0, std::memory_order_acq_rel);
  if (asked != 0 && Member{asked} != other_) say_hello(Member{asked});
  if (now - hello_at_ < Pair::kHello) return;
  hello_at_ = now;
  copies_->with_pair([&](Pair& pair) { pair.tick(copies_->now()); });
  const bool hears = copies_->status().hears_other;
  if (other_ != Member::none) say_hello(other_);
  if (!hears) say_hello(Member::none);
}

void WorkersCopies::between_bursts(Burst& next, Burst& after) {
  const Tick now = after.now;
  if (copies_->changes_.load(std::memory_order_acquire) != seen_) [[unlikely]]
    adopt(now);
  const bool is_idle = next.size == 0 && after.size == 0;
  const bool may_walk = is_idle || ++busy_bursts_ >= kBusyBursts;
  if (may_walk) busy_bursts_ = 0;
  line_->allow_copying(is_idle ? kWhileIdle : may_walk ? kWhileBusy : 0);
  if (may_walk) tell_all(now);
  // Once a tick, so that messages carry several records, and acknowledgements are few.
  if (now != last_) {
    line_->take_changed(due_);
    std::ranges::sort(due_);
    const auto [again, end] = std::ranges::unique(due_);
    due_.erase(again, end);
    for (const std::uint16_t shard : due_) send_of(shard, now);
    due_.clear();
    look_through(now);
  }
  flush();
}

/// Goes on with the next shard that is not in sync.
void WorkersCopies::tell_all(Tick now) {
  constexpr unsigned kMost = 8;  // shards that are looked at
  for (unsigned n = 0; n < kMost && n < own_.size(); ++n) {
    if (telling_ >= own_.size()) telling_ = 0;
    const unsigned shard = own_[telling_];
    if (!shards_[shard]->is_in_sync()) return send_of(shard, now);
    ++telling_;
  }
}

void WorkersCopies::send_of(unsigned shard, Tick now) {
  if (shards_[shard] != nullptr) shards_[shard]->send(*this, now);
}

/// Takes the pair's assignment over.
void WorkersCopies::adopt(Tick now) {
  seen_ = copies_->changes_.load(std::memory_order_acquire);
  Assignment is;
  Member other = Member::none;
  copies_->with_pair([&](const Pair& pair) {
    is = pair.assignment();
    other = pair.other();
    state_.has_settled = pair.has_settled();
    state_.both_are_new = pair.both_are_new();
  });
  if (other != other_) {
    other_ = other;
    count();
    opener_.forget_all();
  }
  is_settled_ = is.is_settled;
  for (const unsigned shard : own_) {
    ShardCopy& copy = *shards_[shard];
    if (copy.assign(is, now)) line_->assign(shard, is.role);
    if (is.is_settled) copy.settle(is.epoch);
    due_.push_back(static_cast<std::uint16_t>(shard));
  }
  in_sync_ = 0;
  looked_at_ = 0;
  copies_->workers_[worker_].in_sync.store(0, std::memory_order_relaxed);
  state_.is_sure = false;
  line_->note_copies(state_);
}

/// Looks at some shards each tick, so that all have been looked at within `kRound` ticks: streams
/// notice that time has passed. Also what need not be done more often than once a tick.
void WorkersCopies::look_through(Tick now) {
  const auto passed = static_cast<std::size_t>(std::clamp(now - last_, 1, kRound));
  last_ = now;
  if (worker_ == 0) greet(now);
  const std::size_t some = (own_.size() * passed + kRound - 1) / kRound;
  for (std::size_t n = 0; n < some && n < own_.size(); ++n) {
    const unsigned shard = own_[looked_at_++];
    send_of(shard, now);
    in_sync_ += shards_[shard]->is_in_sync();
    if (looked_at_ < own_.size()) continue;
    auto& told = copies_->workers_[worker_].in_sync;
    if (told.load(std::memory_order_relaxed) != in_sync_) {
      told.store(in_sync_, std::memory_order_relaxed);
      copies_->note_in_sync();
    }
    const bool is_alone = shards_[shard]->other() == Member::none;
    state_.is_sure = is_settled_ && (is_alone || in_sync_ == own_.size());
    in_sync_ = 0;
    looked_at_ = 0;
    count();
  }
  line_->note_copies(state_);
}

/// Counts what the copies and the opener have counted since the last call.
void WorkersCopies::count() {
  CopiesCounters is;
  for (const unsigned shard : own_) {
    const ShardCopy::Counters& of = shards_[shard]->counters();
    is.applied.add(of.applied);
    is.old_epoch.add(of.old_epoch + of.new_epoch);
    is.no_place.add(of.no_place);
    is.malformed.add(of.malformed);
    is.stranger.add(of.stranger);
    is.anew.add(of.anew);
  }
  for (const Opener* const opener : {&opener_, &open_to_all_}) {
    const Opener::Counters& of = opener->counters();
    is.foreign.add(of.foreign);
    is.misled.add(of.misled);
    is.replayed.add(of.replayed);
    is.version.add(of.version);
  }
  for (const CopiesCounterKind& kind : kCopiesCounterKinds) {
    const std::uint64_t now = (is.*kind.counter).value();
    Counter& before = told_.*kind.counter;
    if (now > before.value()) (counters_->*kind.counter).add(now - before.value());
    if (now > before.value()) before.add(now - before.value());
  }
}

}  // namespace millrace
