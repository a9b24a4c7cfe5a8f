#include "replicate/pair.h"

#include <algorithm>

namespace millrace {
namespace {

/// No server has changed its role so often: what says so is wrong.
constexpr Epoch kMostEpoch = Epoch{1} << 62;
/// Earlier processes that are known as such.
constexpr std::size_t kMostFormer = 1024;

}  // namespace

std::string difference(const Hello& own, const Hello& other, std::string_view unreadable) {
  if (other.version != own.version)
    return "the other server's millrace tells connections in another format";
  if (other.shards != own.shards)
    return "the other server has another number of shards (spread.entries)";
  if (other.agreement != own.agreement)
    return "the other server's customers, or the functions by which packets are spread, differ";
  return std::string(unreadable);
}

void Pair::set_active(bool is_active, Ms now) {
  is_active_ = is_active;
  decide(now);
}

void Pair::set_in_sync(bool is_in_sync, Ms now) {
  if (is_in_sync_ == is_in_sync) return;
  is_in_sync_ = is_in_sync;
  decide(now);
}

bool Pair::set_gone(Ms now) {
  if (hears_other(now)) return false;
  other_.reset();
  now_.other = Member::none;
  now_.is_settled = true;
  both_are_new_ |= !has_settled_;
  has_settled_ = true;
  promote();
  now_.is_settled = true;
  return true;
}

void Pair::hear(Member from, Epoch epoch, const Hello& hello, std::string_view unreadable, Ms now) {
  if (epoch > kMostEpoch || std::ranges::find(former_, from) != former_.end()) return;
  const bool did_agree = agrees();
  unreadable_ = unreadable;
  disagreement_ = hello.number == settings_.number
                      ? "both servers have the same number: one must be 1, the other 2"
                      : difference(this->hello(), hello, unreadable);
  if (!agrees()) {
    disagreed_ = now;
    return;
  }
  const bool is_other_process = !other_ || other_->member != from;
  if (is_other_process && !has_settled_) both_are_new_ = hello.is_fresh != 0;
  if (is_other_process && other_) {
    former_.push_back(other_->member);
    if (former_.size() > kMostFormer) former_.erase(former_.begin());
  }
  other_ = {from, epoch, hello, now};
  if (is_other_process && now_.role != CopyRole::none) {
    // The process of before is gone, and with it its copy. This server has the only one left.
    now_.other = Member::none;
    now_.role = CopyRole::none;
    is_in_sync_ = false;
  }
  // Records told before the two noticed that they differed may be wrong: all are told anew.
  if (!did_agree && now_.role == CopyRole::master) promote();
  decide(now);
}

void Pair::tick(Ms now) { decide(now); }

Hello Pair::hello() const {
  return {.version = settings_.version,
          .number = static_cast<std::uint8_t>(settings_.number),
          .is_active = is_active_,
          .role = now_.role,
          .is_in_sync = is_in_sync_,
          .is_fresh = !has_settled_,
          .shards = settings_.shards,
          .agreement = settings_.agreement};
}

void Pair::decide(Ms now) {
  if (!begun_) begun_ = now;
  const bool is_master = now_.role == CopyRole::master;
  if (!hears_other(now)) {
    // A process that has just begun waits for the other one to say what there is.
    if (is_active_ && !is_master && now - *begun_ >= kPatience) promote();
    return;
  }
  note_settled();
  const bool other_is_master = other_->hello.role == CopyRole::master;
  const bool is_new = other_->epoch > now_.epoch;
  const bool is_slave = now_.role == CopyRole::slave && other_->epoch == now_.epoch;
  if (other_is_master && is_slave && is_in_sync_ && is_active_ && other_->hello.is_active == 0) {
    promote();
  } else if (precedes()) {
    const bool is_rival = other_is_master && other_->epoch == now_.epoch;
    // It had a role in this epoch, and has none any more.
    const bool is_lost = other_->hello.role == CopyRole::none && other_->epoch == now_.epoch;
    if (!is_master || now_.other != other_->member || is_new || is_rival || is_lost) promote();
  } else if (other_is_master && is_new) {
    follow();
  }
  note_settled();
}

/// This server is settled once the other one follows it and has all, or it has all of the other.
void Pair::note_settled() {
  const bool is_followed = now_.role == CopyRole::master && now_.other == other_->member &&
                           other_->hello.role == CopyRole::slave && other_->epoch == now_.epoch;
  const bool follows = now_.role == CopyRole::slave && other_->epoch == now_.epoch;
  now_.is_settled = is_followed || follows;
  if (now_.is_settled && is_in_sync_) has_settled_ = true;
}

/// Becomes the master, with an epoch that only this server gives.
void Pair::promote() {
  Epoch next = std::max(now_.epoch, other_ ? other_->epoch : 0) + 1;
  if (next % 2 != settings_.number % 2) ++next;
  now_ = {.epoch = next,
          .role = CopyRole::master,
          .other = other_ ? other_->member : Member::none,
          .is_settled = false};
  is_in_sync_ = false;
}

void Pair::follow() {
  now_ = {.epoch = other_->epoch,
          .role = CopyRole::slave,
          .other = other_->member,
          .is_settled = false};
  is_in_sync_ = false;
}

/// True if this server is to be the master, and not the other one: it has a copy and the other one
/// may have none; or it is the master already; or its copy is newer; or packets come to it; or it
/// has the lower number.
bool Pair::precedes() const {
  const Hello& other = other_->hello;
  const bool is_master = now_.role == CopyRole::master;
  const bool agree = now_.epoch == other_->epoch && now_.other == other_->member &&
                     is_master != (other.role == CopyRole::master);
  if (!agree && has_settled_ != (other.is_fresh == 0)) return has_settled_;
  if (is_master != (other.role == CopyRole::master)) return is_master;
  if (now_.epoch != other_->epoch) return now_.epoch > other_->epoch;
  if (is_active_ != (other.is_active != 0)) return is_active_;
  return settings_.number < other.number;
}

}  // namespace millrace
