// The connections of a shard that has a copy at another server, of both families.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "line/carried.h"
#include "line/carried_layout.h"
#include "line/family_copied.h"
#include "millrace/key.h"
#include "millrace/types.h"
#include "replicate/copy.h"

namespace millrace {

/// `v4` and `v6`: the line's families; `now`: its tick; `budget`: the number of connections that
/// it may walk over by now. All must outlive the object.
template <class FamilyV4, class FamilyV6>
class LineCopied final : public ShardCopy::Records {
 public:
  LineCopied(unsigned shard, FamilyV4& v4, FamilyV6& v6, const Tick& now, std::size_t& budget)
      : shard_(shard), v4_(v4), v6_(v6), now_(now), budget_(budget) {}

  /// Does what `Line::set_layouts` does.
  void set_layouts(const CarriedLayouts* theirs) { theirs_ = theirs; }

  bool tell(ShardCopy& copy, Tick at) override {
    const bool is_all = v4_.tell(shard_, copy, at, now_, budget_);
    return v6_.tell(shard_, copy, at, now_, budget_) && is_all;
  }
  void tell_all() override {
    in_both([this](auto& of) { of.tell_all(shard_); });
  }
  void tell_unproved() override {
    in_both([this](auto& of) { of.tell_unproved(shard_); });
  }
  void goes_on() override {
    in_both([this](auto& of) { of.goes_on(shard_); });
  }
  void begin_all() override {
    in_both([this](auto& of) { of.begin_all(shard_); });
  }
  void end_all() override {
    in_both([this](auto& of) { of.end_all(shard_); });
  }
  Applied apply(std::span<const std::byte> record) override {
    std::uint32_t family = 0;
    if (record.size() >= sizeof(family)) std::memcpy(&family, record.data(), sizeof(family));
    if (family == kCarriedFamily<KeyV4>)
      return v4_.apply(shard_, record, theirs_ != nullptr ? &theirs_->v4 : nullptr, now_);
    if (family == kCarriedFamily<KeyV6>)
      return v6_.apply(shard_, record, theirs_ != nullptr ? &theirs_->v6 : nullptr, now_);
    return Applied::malformed;
  }

 private:
  template <class Act>
  void in_both(Act&& act) {
    act(v4_);
    act(v6_);
  }

  unsigned shard_;
  FamilyV4& v4_;
  FamilyV6& v6_;
  const Tick& now_;
  std::size_t& budget_;
  const CarriedLayouts* theirs_ = nullptr;  // of the other copy's records; null: as of this line's
};

}  // namespace millrace
