#include "replicate/copy.h"

#include <algorithm>
#include <cassert>

namespace millrace {

namespace {

constexpr std::uint32_t kGrants = 64;  // numbers of grants are below

std::array<std::byte, sizeof(std::uint32_t)> bytes_of(std::uint32_t number) {
  return std::bit_cast<std::array<std::byte, sizeof(number)>>(number);
}

std::uint32_t number_in(std::span<const std::byte> body) {
  std::uint32_t number = 0;
  assert(body.size() == sizeof(number));
  std::memcpy(&number, body.data(), sizeof(number));
  return number;
}

}  // namespace

bool ShardCopy::assign(const Assignment& to, Tick now) {
  if (to.epoch <= now_.epoch) return false;
  // If there is something left to tell, the number that comes of telling it differs from what the
  // other copy has applied, and the copies do not agree.
  const bool has_told = is_in_sync_ && sending_.has_room() && records_->tell(*this, now);
  const bool may_agree = has_told && to.epoch == now_.epoch + 1 && to.other == now_.other;
  was_master_.reset();
  going_on_.reset();
  if (may_agree && now_.role == CopyRole::master && to.role == CopyRole::slave)
    was_master_ = GoingOn{now_.epoch, sending_.next()};
  if (may_agree && now_.role == CopyRole::slave && to.role == CopyRole::master &&
      sending_.is_empty())
    going_on_ = GoingOn{now_.epoch, receiving_.next()};
  now_ = to;
  lacks_connections_ &= to.role == CopyRole::slave;
  newest_ = std::max(newest_, to.epoch);
  receiving_.reset();
  grants_of_other_.clear();
  owes_answer_ = needs_all_ = false;
  leaving_.clear();
  ++changes_of_use_;
  begin_stream(now);
  return true;
}

void ShardCopy::give_up(Tick now) {
  if (now_.role == CopyRole::none) return;
  now_ = {.epoch = now_.epoch};
  was_master_.reset();
  going_on_.reset();
  receiving_.reset();
  grants_.clear();
  grants_of_other_.clear();
  owes_answer_ = needs_all_ = false;
  leaving_.clear();
  ++changes_of_use_;
  begin_stream(now);
}

void ShardCopy::begin_stream(Tick now) {
  is_in_sync_ = false;
  told_all_at_.reset();
  has_lost_ = false;
  withdrawn_.clear();
  for (auto& [number, grant] : grants_) grant.told.reset();
  tells_all_ = !going_on_;
  if (now_.role == CopyRole::none || now_.other == Member::none) return sending_.close();
  if (tells_all_) records_->tell_all();
  sending_.open(now);
  tell_left();
}

void ShardCopy::grant(std::uint32_t number) {
  if (leaves(number) || !grants_.try_emplace(number).second) return;
  withdrawn_.erase(number);
  ++changes_of_use_;
}

void ShardCopy::withdraw(std::uint32_t number) {
  std::erase(leaving_, number);
  stop_using(number);
}

void ShardCopy::stop_using(std::uint32_t number) {
  const auto was = grants_.find(number);
  if (was == grants_.end()) return;
  if (was->second.told) withdrawn_.insert(number);
  grants_.erase(was);
  ++changes_of_use_;
}

void ShardCopy::hand_back(std::uint32_t number) {
  if (!grants_.contains(number)) return;
  stop_using(number);
  leaving_.push_back(number);
  tell_left();
}

/// Begins to tell the connections that use the grants that leave.
void ShardCopy::tell_left() {
  if (leaving_.empty()) return;
  left_ = Left::telling;
  records_->tell_unproved();
}

/// Looks whether the other copy knows them by now. `is_all`: nothing is left to be told.
void ShardCopy::note_left(bool is_all) {
  if (left_ == Left::telling && is_all && !tells_all_) {
    left_ = Left::told;
    left_at_ = sending_.next();
  }
  if (left_ == Left::told && is_in_sync_ && sending_.acknowledged() >= left_at_)
    left_ = Left::known;
}

bool ShardCopy::may_use(std::uint32_t number) const {
  if (now_.role == CopyRole::none) return false;
  const auto is = grants_.find(number);
  if (is == grants_.end()) return false;
  return is->second.is_on_record || now_.other == Member::none;
}

void ShardCopy::receive(Member from, const Message& message, Tick now) {
  const MessageHead& head = message.head;
  if (head.epoch > now_.epoch) {
    newest_ = std::max(newest_, head.epoch);
    ++counters_.new_epoch;
    return;
  }
  if (head.epoch < now_.epoch) {
    ++counters_.old_epoch;
    if (head.kind != MessageHead::Kind::newer_epoch) refused_ = from;
    return;
  }
  if (from != now_.other || now_.role == CopyRole::none) {
    ++counters_.stranger;
    return;
  }
  switch (head.kind) {
    case MessageHead::Kind::open:
    case MessageHead::Kind::records:
      return take(message);
    case MessageHead::Kind::acknowledged:
      return acknowledged(head, now);
    case MessageHead::Kind::newer_epoch:
      return;
    case MessageHead::Kind::hello:
    case MessageHead::Kind::packet:
      break;
  }
  ++counters_.malformed;
}

void ShardCopy::take(const Message& message) {
  using Taken = ReceivingStream::Taken;
  const Taken taken = receiving_.take(
      message, [this](RecordKind kind, std::span<const std::byte> body) { apply(kind, body); });
  if (taken == Taken::malformed) ++counters_.malformed;
  if (taken == Taken::malformed || taken == Taken::old) return;
  if (taken == Taken::began) began(message);
  answer_ = taken == Taken::gap ? MessageHead::kGap : std::uint8_t{0};
  owes_answer_ = true;
}

/// The other copy has begun a stream.
void ShardCopy::began(const Message& message) {
  grants_of_other_.clear();
  if (now_.role == CopyRole::master) return;
  const bool goes_on = (message.head.flags & MessageHead::kGoesOn) != 0;
  GoingOn from;
  const bool agrees = goes_on && was_master_ && message.payload.size() >= sizeof(from) &&
                      std::memcmp(&*was_master_, message.payload.data(), sizeof(from)) == 0;
  was_master_.reset();
  is_in_sync_ = agrees;
  needs_all_ = goes_on && !agrees;
  lacks_connections_ &= agrees;
  agrees ? records_->goes_on() : records_->begin_all();
}

void ShardCopy::apply(RecordKind kind, std::span<const std::byte> body) {
  switch (kind) {
    case RecordKind::change:
      switch (records_->apply(body)) {
        case Records::Applied::no_place:
          ++counters_.no_place;
          lacks_connections_ = true;
          return;
        case Records::Applied::malformed:
          ++counters_.malformed;
          return;
        case Records::Applied::done:
          ++counters_.applied;
          return;
      }
      return;
    case RecordKind::told_all:
      if (now_.role == CopyRole::master) return;
      records_->end_all();
      is_in_sync_ = true;
      return;
    case RecordKind::granted:
      if (number_in(body) < kGrants) {
        grants_of_other_.insert(number_in(body));
      } else {
        ++counters_.malformed;
      }
      return;
    case RecordKind::withdrawn:
      grants_of_other_.erase(number_in(body));
      return;
  }
}

void ShardCopy::acknowledged(const MessageHead& head, Tick now) {
  const bool is_first = sending_.acknowledge(head, now);
  if (is_first && going_on_) {
    going_on_.reset();
    if ((head.flags & MessageHead::kNeedsAll) != 0) {
      tells_all_ = true;
      records_->tell_all();
    } else {
      is_in_sync_ = true;
      ++counters_.agreed;
    }
  }
  const std::uint64_t until = sending_.acknowledged();
  if (told_all_at_ && until > *told_all_at_) {
    told_all_at_.reset();
    if (now_.role == CopyRole::master) is_in_sync_ = true;
  }
  for (auto& [number, grant] : grants_) {
    if (grant.is_on_record || !grant.told || *grant.told >= until) continue;
    grant.is_on_record = true;
    ++changes_of_use_;
  }
}

void ShardCopy::tell_grants(Tick now) {
  for (auto& [number, grant] : grants_) {
    if (grant.told) continue;
    if (!sending_.has_room()) return;
    grant.told = sending_.next();
    sending_.append(RecordKind::granted, bytes_of(number), now);
  }
  while (!withdrawn_.empty() && sending_.has_room()) {
    sending_.append(RecordKind::withdrawn, bytes_of(*withdrawn_.begin()), now);
    withdrawn_.erase(withdrawn_.begin());
  }
}

void ShardCopy::tell(Tick now) {
  has_told_all_ = false;
  if (!sending_.is_open()) return;
  tell_grants(now);
  const bool is_all = records_->tell(*this, now);
  has_told_all_ = is_all;
  if (tells_all_ && is_all && sending_.has_room()) {
    tells_all_ = false;
    told_all_at_ = sending_.next();
    sending_.append(RecordKind::told_all, {}, now);
  }
  note_left(is_all);
}

void ShardCopy::send(Outbox& out, Tick now) {
  const auto complete = [this](MessageHead head) {
    head.shard = shard_;
    head.epoch = now_.epoch;
    return head;
  };
  if (refused_ != Member::none) {
    out.send(refused_, complete({.kind = MessageHead::Kind::newer_epoch}), {});
    refused_ = Member::none;
  }
  if (is_deposed()) return;
  if (owes_answer_) {
    const std::uint8_t needs = needs_all_ ? MessageHead::kNeedsAll : std::uint8_t{0};
    out.send(now_.other,
             complete({.kind = MessageHead::Kind::acknowledged,
                       .flags = static_cast<std::uint8_t>(answer_ | needs),
                       .stream = receiving_.stream(),
                       .number = receiving_.next()}),
             {});
    owes_answer_ = false;
  }
  if (sending_.is_open() && (has_lost_ || sending_.silent_for(now) >= kStalled)) {
    ++counters_.anew;
    going_on_.reset();
    // A slave has what the master has told it, whatever became of its own stream.
    const bool has_all = is_in_sync_ && now_.role == CopyRole::slave;
    begin_stream(now);
    is_in_sync_ = has_all;
  }
  tell(now);
  const std::uint8_t flags = going_on_ ? MessageHead::kGoesOn : std::uint8_t{0};
  const auto payload =
      going_on_ ? std::as_bytes(std::span(&*going_on_, 1)) : std::span<const std::byte>{};
  sending_.send(now, flags, payload,
                [&](const MessageHead& head, std::span<const std::byte> bytes) {
                  out.send(now_.other, complete(head), bytes);
                });
}

}  // namespace millrace
