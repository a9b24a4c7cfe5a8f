// The new process's side of a take-over. Through the control socket of the running millrace, here
// called the old process, it asks for the connections, and goes on in the old process's place.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "control/offer.h"
#include "control/taking_over.h"
#include "live/live.h"

namespace millrace::cli {

/// Used by one thread, which calls the steps in their order: `begin`, `start`, `stop_the_other`,
/// `let_the_other_end`, `wait_for_its_end`. From `start` on each step fails once this process is
/// `interrupted`, as long as the old process has not ended.
class TakeOver {
 public:
  /// Asks the process that listens at `socket` to hand over. Returns null if no process listens
  /// there, or it ends meanwhile. Errors: that process refuses, does not answer, or may not be
  /// asked by this user.
  static Result<std::unique_ptr<TakeOver>> begin(const std::string& socket);
  /// Gives the take-over up if the old process has not ended: the old process then goes on at once.
  /// If it has ended, restores its interfaces' settings unless `inherit_settings` was called.
  ~TakeOver();
  TakeOver(const TakeOver&) = delete;
  TakeOver& operator=(const TakeOver&) = delete;

  const Offer& offer() const { return offer_; }

  /// Opens the old process's connections in `workers`, which must have been made with `offer()` and
  /// must not run yet. The old process forwards meanwhile. If the old process ends, the connections
  /// that have come so far are all (`was_cut_off`). Errors: the old process refuses, does not
  /// answer, or its records cannot be read.
  Result<void> start(Workers& workers, std::shared_ptr<Owners> owners);
  /// Makes the old process stop forwarding, and takes over the connections that have changed since
  /// `start`. Errors: those of `start`.
  Result<void> stop_the_other();
  /// Makes the old process end. Errors: the old process does not end, and goes on.
  Result<void> let_the_other_end();
  /// Waits until the old process is gone, and so has closed its devices; for a minute at most, and
  /// not at all if the old process cannot be seen from here.
  /// Errors: this process was interrupted meanwhile.
  Result<void> wait_for_its_end() const;
  /// Waits for the end of the old process, for `within` at most; returns true if it is gone. False
  /// also if the old process cannot be seen from here, because it is in another PID namespace.
  bool is_gone(std::chrono::milliseconds within) const;

  /// Passes the neighbours that the old process knew to `live`, whose customers are `customers`.
  void inherit_neighbours(Live& live, const Customers& customers) const;
  /// Passes the settings of interfaces that the old process would have restored to `live`, which
  /// restores them at its end. To be called once the old process has ended.
  void inherit_settings(Live& live);

  /// True if the old process had ended before it had sent all of its connections.
  bool was_cut_off() const { return was_cut_off_; }
  std::uint64_t connections() const { return taking_over_->connections(); }
  std::uint64_t left_behind() const { return taking_over_->left_behind(); }

 private:
  TakeOver(std::string socket, int process) : socket_(std::move(socket)), process_(process) {}

  using Receive = std::function<bool(std::span<const std::byte>)>;
  Result<std::string> ask(const std::string& path, const Receive& receive = {});
  Result<void> take_all(bool last);
  bool is_ending() const;

  std::string socket_;
  int process_;  // pidfd of the old process, readable once that has ended; -1: it cannot be seen
  Offer offer_;
  Workers* workers_ = nullptr;  // from `start` on
  std::unique_ptr<TakingOver> taking_over_;
  bool has_answered_ = false;  // true: the last request got an answer, or a refusal
  bool was_cut_off_ = false;
  bool has_ended_ = false;  // true: the old process has ended
};

}  // namespace millrace::cli
