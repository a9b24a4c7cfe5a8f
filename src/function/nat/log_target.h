// Places to which the log of port blocks is written. The log's thread calls these (block_log.h);
// `begin` is called before the thread starts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "function/nat/port_blocks.h"
#include "function/nat/settings.h"
#include "millrace/types.h"

namespace millrace {

/// A record of the log.
struct LogRecord {
  enum class Kind : std::uint8_t {
    allocated,      ///< the customer gets the block
    released,       ///< the customer loses the block
    held,           ///< the customer has the block
    forward,        ///< the customer has a forward
    deterministic,  ///< the pool gives its customers ports by their places
    // A list begins: of all blocks and forwards, customers have those, and only those, that the
    // next records name. Why it is written:
    start,      ///< millrace has started
    take_over,  ///< millrace goes on in place of another process
    new_place,  ///< the records before this one are in another file
    gap,        ///< records are missing before this one
    reload,     ///< a reload has changed pools, customers or forwards
  };
  Kind kind = Kind::held;
  std::uint8_t protocol = 0;  ///< for a forward: that of its port; 0: the whole address
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  AddressV4 address;          ///< public
  std::uint64_t time_ms = 0;  ///< since 1970
  std::uint32_t customer = 0;
  std::uint32_t held = 0;                   ///< in the head of a list: records that follow
  std::uint64_t lost = 0;                   ///< there: records that are missing before it
  std::shared_ptr<const std::string> pool;  ///< the name; null: of a forward
  std::shared_ptr<const NatPool> by_place;  ///< a deterministic pool

  static LogRecord of(Kind kind, std::uint64_t time_ms, const HeldBlock& block,
                      CustomerNumber customer) {
    return {.kind = kind,
            .first_port = block.first_port,
            .last_port = block.last_port,
            .address = block.address,
            .time_ms = time_ms,
            .customer = customer,
            .pool = block.pool};
  }

  bool is_head() const { return kind >= Kind::start; }
  bool is_event() const { return kind < Kind::held; }
};

class LogTarget {
 public:
  virtual ~LogTarget() = default;
  /// Returns the name for users: a path, or address and port.
  virtual std::string name() const = 0;

  /// Takes on the settings of a reload, which may have more customers. No number of a customer
  /// changes its meaning.
  virtual void know(std::shared_ptr<const NatSettings> settings) = 0;

  /// Looks whether records can be written. With `later`, another process may still write: the place
  /// is left to it until `ready`. Errors (unreadable): why not, and what would be right.
  virtual Result<void> begin(bool later) = 0;
  /// Prepares for the next records, and repairs what has failed. True: since the last call the
  /// place to which they go has changed, and may lack earlier records. Error: why nothing can be
  /// written.
  virtual Result<bool> ready() = 0;
  /// Writes the records. After an error none of them is written in a file, but some may have been
  /// sent.
  virtual Result<void> write(std::span<const LogRecord> records) = 0;
};

/// Returns a file of JSON lines, written by `write(2)`: each line is in the file, but not
/// necessarily on the disk, when `write` returns. If the file was renamed, removed or truncated,
/// `ready` makes a new one. `is_new`: the file must be empty or absent at first.
std::unique_ptr<LogTarget> log_file(const std::string& path, bool is_new,
                                    std::shared_ptr<const NatSettings> settings);

/// Returns a collector of IPFIX over UDP (RFC 7011, RFC 8158).
std::unique_ptr<LogTarget> ipfix_collector(const NatLog::Collector& collector,
                                           std::shared_ptr<const NatSettings> settings);

}  // namespace millrace
