// What a process has changed of interfaces, in a file beside its control socket: where it is
// killed, the next one puts that back when it ends.
#pragma once

#include <string>
#include <utility>

#include "port/kernel_interface.h"

namespace millrace::cli {

/// One thread.
class SettingsFile {
 public:
  /// The file is taken away with this object.
  explicit SettingsFile(std::string path) : path_(std::move(path)) {}
  ~SettingsFile();
  SettingsFile(const SettingsFile&) = delete;
  SettingsFile& operator=(const SettingsFile&) = delete;

  /// Returns what it says; nothing where it is not there, is another user's, or makes no sense.
  InterfaceSettings read() const;
  /// Error (failed): it cannot be written.
  Result<void> write(const InterfaceSettings& settings) const;
  /// It is another process's now, and stays.
  void leave() { path_.clear(); }

 private:
  std::string path_;
};

}  // namespace millrace::cli
