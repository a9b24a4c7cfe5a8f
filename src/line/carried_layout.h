// Finds in the records of another process (carried.h) what this process's functions know: the other
// process may have more functions, or fewer, and be of an older or a newer version. Used where a
// process takes over in place of another one, and by copies at two servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

#include "function/function.h"
#include "line/carried.h"

namespace millrace {

/// The reason why this process cannot read the records of another one.
struct Unreadable {
  std::string function;  ///< both have it, in different versions; empty: the layout means nothing
  unsigned theirs = 0;   ///< these versions
  unsigned ours = 0;
};

/// The layout of one family's records. Constant once it is made.
class CarriedLayout {
 public:
  /// The most bytes of a head, and of all images of a record.
  static constexpr std::size_t kMostBytes = 4096;

  /// `theirs`, `ours`: the parts of both families, as `Line::carried_parts` of the two processes
  /// returns them. A function that both have in different versions is an error if one of them needs
  /// it; else it counts as one that the other process does not have.
  static std::expected<CarriedLayout, Unreadable> of(std::uint32_t family,
                                                     std::span<const CarriedPart> theirs,
                                                     std::span<const CarriedPart> ours);

  /// Returns the number of this process's parts of the family.
  std::size_t parts() const { return own_.size(); }
  /// Returns the bytes of a record's head, of its images, and of both.
  std::size_t head_bytes() const { return head_bytes_; }
  std::size_t image_bytes() const { return image_bytes_; }
  std::size_t record_bytes() const { return head_bytes_ + image_bytes_; }

  /// Writes this process's images of a connection to `bytes`, one behind the other in the order of
  /// its own parts, and their addresses to `to`, `parts()` of them: null for a function of which
  /// the other process sends none. `images`: `image_bytes()` of them. Returns false, and writes
  /// nothing, if a function that this process does not have serves the connection, which would
  /// break.
  bool map(std::span<const std::byte> images, std::span<std::byte, Part::kMost> bytes,
           std::span<const std::byte*> to) const;

  /// True if two connections' images, as `map` writes them, agree in all that the other process
  /// knows of them.
  bool has_same(std::span<const std::byte, Part::kMost> one,
                std::span<const std::byte, Part::kMost> other) const;

 private:
  /// An image of this process.
  struct Own {
    std::size_t at = 0;
    std::size_t bytes = 0;
    bool is_there = false;    // the other process sends one
    std::size_t told_at = 0;  // among the images of a record
    std::size_t known = 0;    // bytes that both know
  };
  struct Range {
    std::size_t at = 0;
    std::size_t bytes = 0;
  };

  CarriedLayout() = default;

  std::size_t head_bytes_ = 0;
  std::size_t image_bytes_ = 0;
  std::vector<Own> own_;
  /// Images of functions that this process does not have, and without which connections would
  /// break.
  std::vector<Range> strangers_;
};

struct CarriedLayouts {
  CarriedLayout v4;
  CarriedLayout v6;

  /// Makes the layouts of both families; errors: those of `CarriedLayout::of`.
  static std::expected<CarriedLayouts, Unreadable> of(std::span<const CarriedPart> theirs,
                                                      std::span<const CarriedPart> ours);
};

}  // namespace millrace
