#include "line/carried_layout.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace millrace {
namespace {

const CarriedPart* find(std::span<const CarriedPart> parts, std::uint32_t family,
                        std::string_view name) {
  const auto is = std::ranges::find_if(
      parts, [&](const CarriedPart& one) { return one.family == family && one.name() == name; });
  return is == parts.end() ? nullptr : &*is;
}

}  // namespace

std::expected<CarriedLayout, Unreadable> CarriedLayout::of(std::uint32_t family,
                                                           std::span<const CarriedPart> theirs,
                                                           std::span<const CarriedPart> ours) {
  CarriedLayout is;
  std::size_t end = 0;
  for (const CarriedPart& own : ours) {
    if (own.family != family) continue;
    is.own_.push_back({.at = end, .bytes = own.image_bytes});
    end += own.image_bytes;
  }
  const CarriedPart* const head = find(theirs, kCarriedHead + family, {});
  is.head_bytes_ = head == nullptr ? least_head(family) : head->image_bytes;
  if (theirs.empty() || end > Part::kMost || is.head_bytes_ < least_head(family) ||
      is.head_bytes_ > kMostBytes)
    return std::unexpected(Unreadable{});
  for (const CarriedPart& told : theirs) {
    if (told.family != family) continue;
    const std::size_t at = is.image_bytes_;
    if (told.image_bytes > kMostBytes - at) return std::unexpected(Unreadable{});
    is.image_bytes_ += told.image_bytes;
    std::size_t place = 0;
    const CarriedPart* own = nullptr;
    for (const CarriedPart& one : ours) {
      if (one.family != family) continue;
      if (one.name() == told.name()) own = &one;
      if (own != nullptr) break;
      ++place;
    }
    if (own == nullptr) {
      if (told.is_needed != 0) is.strangers_.push_back({at, told.image_bytes});
    } else if (own->version == told.version) {
      Own& to = is.own_[place];
      to.is_there = true;
      to.told_at = at;
      to.known = std::min<std::size_t>(to.bytes, told.image_bytes);
    } else if (own->is_needed != 0 || told.is_needed != 0) {
      return std::unexpected(Unreadable{
          .function = std::string(own->name()), .theirs = told.version, .ours = own->version});
    }
  }
  return is;
}

bool CarriedLayout::map(std::span<const std::byte> images, std::span<std::byte, Part::kMost> bytes,
                        std::span<const std::byte*> to) const {
  const auto is_used = [&](const Range& range) {
    return std::ranges::any_of(images.subspan(range.at, range.bytes),
                               [](std::byte one) { return one != std::byte{0}; });
  };
  if (std::ranges::any_of(strangers_, is_used)) return false;
  std::ranges::fill(bytes, std::byte{0});
  for (std::size_t n = 0; n < own_.size(); ++n) {
    const Own& own = own_[n];
    to[n] = own.is_there ? bytes.data() + own.at : nullptr;
    if (own.known > 0) std::memcpy(&bytes[own.at], &images[own.told_at], own.known);
  }
  return true;
}

bool CarriedLayout::has_same(std::span<const std::byte, Part::kMost> one,
                             std::span<const std::byte, Part::kMost> other) const {
  return std::ranges::all_of(own_, [&](const Own& own) {
    return std::ranges::equal(one.subspan(own.at, own.known), other.subspan(own.at, own.known));
  });
}

std::expected<CarriedLayouts, Unreadable> CarriedLayouts::of(std::span<const CarriedPart> theirs,
                                                             std::span<const CarriedPart> ours) {
  auto v4 = CarriedLayout::of(4, theirs, ours);
  if (!v4) return std::unexpected(std::move(v4.error()));
  auto v6 = CarriedLayout::of(6, theirs, ours);
  if (!v6) return std::unexpected(std::move(v6.error()));
  return CarriedLayouts{std::move(*v4), std::move(*v6)};
}

}  // namespace millrace
