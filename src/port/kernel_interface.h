// An interface of the kernel's that packets come through: what it is like, and keeping the kernel's
// own stack from it meanwhile. Linux only.
//
// Made, asked and destroyed by one thread, in the network namespace of the interface. Beside it,
// one other at a time may call `refuse_large_packets`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/mac.h"
#include "millrace/types.h"

namespace millrace {

/// What was set otherwise: an offload, by its ethtool command, or a file of sysctl's.
struct InterfaceSetting {
  std::uint32_t command = 0;
  std::string file;
  std::string value;
};

/// By interface.
using InterfaceSettings = std::map<std::string, std::vector<InterfaceSetting>>;

class KernelInterface {
 public:
  /// What this process changes of it is put back when it is destroyed. Errors say what is wrong
  /// with it and what to do: it is not there (unreadable), this process may not use it
  /// (unreadable), it is down, carries addresses that the kernel would answer for (failed).
  static Result<KernelInterface> take(const std::string& name);
  /// Whether this process may make a tap, or open one that is there. Errors say what to do: it may
  /// not (unreadable); an interface of that name is no tap (failed).
  static Result<void> check_tap(const std::string& name);

  /// Returns addresses of any interface that the kernel answers for; none where it is not there.
  static std::vector<std::string> addresses_of(const std::string& name);
  /// Of any interface, if it is there.
  static std::optional<Mac> mac_of(const std::string& name);

  KernelInterface(KernelInterface&& other) noexcept;
  KernelInterface& operator=(KernelInterface&&) = delete;
  /// Gives it back as it was.
  ~KernelInterface();

  const std::string& name() const { return name_; }
  const Mac& mac() const { return mac_; }
  unsigned mtu() const { return mtu_; }
  /// Receive queues that it has.
  unsigned queues() const { return queues_; }
  /// It is there, up, and has a carrier: now. Any thread.
  bool is_running() const;

  /// Has the kernel neither join nor split packets on their way to us, nor leave their checksums to
  /// hardware, as far as it can; and keeps its own stack from what comes in here. What this process
  /// may not do of that, and what it lacks; empty: nothing.
  std::string fence();
  /// Has the other end of a pair of virtual interfaces (veth), which may be in another namespace,
  /// send no packets larger than its MTU: it must not, once a program for XDP is attached at this
  /// end. Ours lets everything pass. False: it may still, as the kernel takes no program now; later
  /// it may.
  bool refuse_large_packets();

  /// What is to be restored when this process gives the interface back. Where another one goes on
  /// with it, that one does, with what it changed itself.
  const std::vector<InterfaceSetting>& to_restore() const { return was_; }
  void restore(std::vector<InterfaceSetting> settings);
  void restore_none() { was_.clear(); }
  /// What the destructor does with them; of an interface that no object stands for.
  static void set(const std::string& name, const std::vector<InterfaceSetting>& settings);

 private:
  explicit KernelInterface(std::string name) : name_(std::move(name)) {}
  bool turn_off(std::uint32_t get, std::uint32_t set);
  bool write_setting(const std::string& file, const std::string& value);

  std::string name_;
  Mac mac_;
  unsigned mtu_ = 0;
  unsigned queues_ = 1;
  int program_ = -1;  // its attachment
  std::vector<InterfaceSetting> was_;
};

}  // namespace millrace
