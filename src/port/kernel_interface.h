// An existing interface of the kernel that packets come through: its properties, and how to keep
// the kernel's own network stack from its packets. Linux only.
//
// One thread makes, uses and destroys a `KernelInterface`, in the interface's network namespace. At
// the same time, one other thread may call `refuse_large_packets`, and any thread `is_running`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/mac.h"
#include "millrace/types.h"

namespace millrace {

/// The former value of a setting that millrace changed: an offload that was on, named by its
/// ethtool command; a feature that was on (`command` is 0, `file` is empty, `value` is its name,
/// ethtool_features.h); or a file below /proc/sys with its value.
struct InterfaceSetting {
  std::uint32_t command = 0;
  std::string file;
  std::string value;
};

/// Former settings by interface name.
using InterfaceSettings = std::map<std::string, std::vector<InterfaceSetting>>;

class KernelInterface {
 public:
  /// Opens the interface. The destructor restores the settings of `to_restore()`. Errors:
  /// unreadable (no such interface, or this process may not use it), failed (it is down, is the
  /// loopback, or has addresses that the kernel answers for). The message says what to do.
  static Result<KernelInterface> take(const std::string& name);
  /// Checks whether this process may make a tap of that name, or open an existing one. Errors:
  /// unreadable (it may not), failed (an interface of that name is not a tap). The message says
  /// what to do.
  static Result<void> check_tap(const std::string& name);

  /// Returns the kernel's addresses on the interface `name`, without IPv6 link-local ones; empty if
  /// there is no such interface.
  static std::vector<std::string> addresses_of(const std::string& name);
  /// Returns the MAC of the interface `name`; none if there is no such interface.
  static std::optional<Mac> mac_of(const std::string& name);

  KernelInterface(KernelInterface&& other) noexcept;
  KernelInterface& operator=(KernelInterface&&) = delete;
  /// Restores the former settings.
  ~KernelInterface();

  const std::string& name() const { return name_; }
  const Mac& mac() const { return mac_; }
  unsigned mtu() const { return mtu_; }
  /// Returns the number of the interface's receive queues.
  unsigned queues() const { return queues_; }
  /// True if the interface currently exists, is up and has a carrier. Any thread.
  bool is_running() const;

  /// Turns off the interface's offloads, so that the kernel neither joins nor splits packets nor
  /// leaves checksums to hardware, and keeps the kernel's own stack from packets that come in here.
  /// An offload that the interface cannot change is not an error. Returns one line about what this
  /// process may not do and the permission that it lacks; empty if it may do all of this.
  std::string fence();
  /// Makes the interface leave the tags of VLANs in frames, for drivers that do not get the tags
  /// beside the frames. Returns a warning of one line if this cannot be; else an empty text.
  std::string keep_tags();
  /// Makes the interface receive the frames of all VLANs. Returns as `keep_tags`.
  std::string receive_all_vlans();
  /// Makes the other end of a veth pair, possibly in another namespace, send no packets larger than
  /// the MTU; does nothing for other interfaces. The kernel enforces that limit once an XDP program
  /// is attached at this end; the program attached here passes every packet. False: the kernel
  /// accepts no program now, but may later.
  bool refuse_large_packets();

  /// Returns the settings that the destructor restores. If another process takes over the
  /// interface, that process restores these and its own.
  const std::vector<InterfaceSetting>& to_restore() const { return was_; }
  void restore(std::vector<InterfaceSetting> settings);
  void restore_none() { was_.clear(); }
  /// Writes such settings to an interface, as the destructor does.
  static void set(const std::string& name, const std::vector<InterfaceSetting>& settings);

 private:
  explicit KernelInterface(std::string name) : name_(std::move(name)) {}
  bool turn_off(std::uint32_t get, std::uint32_t set);
  bool turn_off(std::string_view feature);
  bool write_setting(const std::string& file, const std::string& value);

  std::string name_;
  Mac mac_;
  unsigned mtu_ = 0;
  unsigned queues_ = 1;
  int program_ = -1;  // keeps the XDP program attached; -1: there is none
  std::vector<InterfaceSetting> was_;
};

}  // namespace millrace
