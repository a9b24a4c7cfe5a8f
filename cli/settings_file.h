// A file beside the control socket with the settings that interfaces had before millrace changed
// them. If the process is killed, the next millrace with the same control socket restores these
// settings when it ends.
#pragma once

#include <string>
#include <utility>

#include "port/kernel_interface.h"

namespace millrace::cli {

/// Used by one thread.
class SettingsFile {
 public:
  /// Names the file, which is removed when this object is destroyed, unless `leave` was called.
  explicit SettingsFile(std::string path) : path_(std::move(path)) {}
  ~SettingsFile();
  SettingsFile(const SettingsFile&) = delete;
  SettingsFile& operator=(const SettingsFile&) = delete;

  /// Returns the settings in the file; none if the file does not exist, belongs to another user, or
  /// has other contents.
  InterfaceSettings read() const;
  /// Replaces the file by one with these settings. Errors: it cannot be written.
  Result<void> write(const InterfaceSettings& settings) const;
  /// Keeps the file when this object is destroyed, for the process that has taken over.
  void leave() { path_.clear(); }

 private:
  std::string path_;
};

}  // namespace millrace::cli
