// Static forwards: public ends that belong to an inside endpoint for good, or a whole public
// address that belongs to one customer. Never changes once it is made; any thread may read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/address_numbers.h"
#include "core/flat_hash_map.h"
#include "core/protocol.h"
#include "function/nat/customer_number.h"

namespace millrace {

struct NatForward {
  AddressV4 address;  ///< public
  AddressV4 inside;
  CustomerNumber customer = 0;  ///< at `inside`
  std::uint16_t port = 0;       ///< public
  std::uint16_t inside_port = 0;
  std::uint8_t protocol = 0;  ///< 0: the whole address, with all ports of all protocols unchanged

  bool is_whole() const { return protocol == 0; }
  /// Returns the inside port of a packet to that public port.
  std::uint16_t in(std::uint16_t to) const { return is_whole() ? to : inside_port; }
  /// Returns the public port of a packet from that inside port.
  std::uint16_t out(std::uint16_t from) const { return is_whole() ? from : port; }

  /// Returns the public end as the configuration has it: "198.51.100.1:8443/tcp", "198.51.100.1".
  std::string public_text() const {
    const std::string text = with_port(address, port);
    return is_whole() ? text : text + "/" + protocol_name(protocol);
  }
  friend bool operator==(const NatForward&, const NatForward&) = default;
};

class NatForwards {
 public:
  NatForwards() = default;
  /// The public ends are distinct, and no whole address has another forward. Of several forwards
  /// to an inside endpoint its sessions use the first; but a whole address only if there is none.
  explicit NatForwards(std::vector<NatForward> all) : all_(std::move(all)) {
    for (std::uint32_t n = 0; n < all_.size(); ++n) {
      const NatForward& is = all_[n];
      to_.emplace(key_of(is.address, is.port, is.protocol), n);
      from_[zone_of(is.customer)].emplace(key_of(is.inside, is.inside_port, is.protocol), n);
      addresses_.push_back(is.address);
    }
    std::ranges::sort(addresses_);
    const auto again = std::ranges::unique(addresses_);
    addresses_.erase(again.begin(), again.end());
  }

  std::span<const NatForward> all() const { return all_; }
  /// Returns the public addresses, sorted, each once.
  std::span<const AddressV4> addresses() const { return addresses_; }
  bool has(const AddressV4& address) const {
    return std::ranges::binary_search(addresses_, address);
  }

  /// Returns the forward of a public end; null: there is none.
  const NatForward* to(const AddressV4& address, std::uint16_t port, std::uint8_t protocol) const {
    return find(to_, address, port, protocol);
  }
  /// Returns the forward by whose public end sessions of an inside endpoint leave, of a port's
  /// customer (0: of none); null: there is none.
  const NatForward* from(Zone customer, const AddressV4& inside, std::uint16_t port,
                         std::uint8_t protocol) const {
    if (all_.empty()) return nullptr;
    const auto at = from_.find(customer);
    return at == from_.end() ? nullptr : find(at->second, inside, port, protocol);
  }

  friend bool operator==(const NatForwards& a, const NatForwards& b) { return a.all_ == b.all_; }

 private:
  using Places = absl::flat_hash_map<std::uint64_t, std::uint32_t>;

  static std::uint64_t key_of(const AddressV4& address, std::uint16_t port, std::uint8_t protocol) {
    return std::uint64_t{number_of(address)} << 32 | std::uint64_t{port} << 8 | protocol;
  }
  const NatForward* find(const Places& places, const AddressV4& address, std::uint16_t port,
                         std::uint8_t protocol) const {
    if (all_.empty()) return nullptr;
    auto at = places.find(key_of(address, port, protocol));
    if (at == places.end()) at = places.find(key_of(address, 0, 0));
    return at == places.end() ? nullptr : &all_[at->second];
  }

  std::vector<NatForward> all_;
  std::vector<AddressV4> addresses_;
  Places to_;
  absl::flat_hash_map<Zone, Places> from_;
};

}  // namespace millrace
