// Connections of another process become those of workers that do not run yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "shard/owners.h"
#include "worker/carried.h"
#include "worker/offer.h"
#include "worker/workers.h"

namespace millrace {

/// The services that workers are made for, so that they have a place for every connection: beside
/// their `own` those of the other process, which get nothing new.
Services with_those_of(const Offer& offer, Services own);

/// Used by one thread, before the workers run.
class TakingOver {
 public:
  /// `workers`, which outlive it, serve those services; `owners` are theirs.
  TakingOver(Workers& workers, std::shared_ptr<const Owners> owners, const Offer& offer);

  /// Bytes of the stream (carried.h), in pieces of any size. Error (failed): they mean nothing.
  Result<void> take(std::span<const std::byte> bytes);
  /// The stream has ended. Error (failed): in the middle.
  Result<void> end();

  std::uint64_t connections() const { return connections_; }
  /// Those that have no place here, or no backend.
  std::uint64_t left_behind() const { return pending_.v4.size() + pending_.v6.size(); }

 private:
  struct Placed {
    std::uint32_t line = kNowhere;
    ConnId id = ConnId::none;
  };
  static constexpr std::uint32_t kNowhere = 0xffffffff;
  /// Of a family: where connections are, by the other process's worker and entry.
  using Places = std::vector<std::vector<Placed>>;
  template <class K>
  using Pending = std::map<std::pair<std::uint32_t, std::uint32_t>, CarriedConnection<K>>;
  struct AllPending {
    Pending<KeyV4> v4;
    Pending<KeyV6> v6;
  };

  template <class K>
  std::size_t take_some(std::span<const std::byte> bytes);
  template <class K>
  bool apply(std::uint32_t worker, const CarriedConnection<K>& carried);
  template <class K>
  bool place(std::uint32_t worker, const CarriedConnection<K>& carried);
  template <class K>
  void place_pending();
  template <class K>
  Places& places() {
    return std::is_same_v<K, KeyV4> ? places_v4_ : places_v6_;
  }
  template <class K>
  Pending<K>& pending();

  Workers* workers_;
  std::shared_ptr<const Owners> owners_;
  CarriedBlock block_;                // that has begun
  std::vector<std::byte> beginning_;  // of something that has not come whole
  bool is_whole_ = false;
  bool is_wrong_ = false;
  Places places_v4_;
  Places places_v6_;
  AllPending pending_;
  std::uint64_t connections_ = 0;
};

}  // namespace millrace
