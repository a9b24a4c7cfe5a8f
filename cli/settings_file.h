// The settings that interfaces had before millrace changed them, in a file beside its control
// socket: if the process is killed, the next one puts them back when it ends.
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
  /// Another process has taken over: the file is that one's, and stays.
  void leave() { path_.clear(); }

 private:
  std::string path_;
};

}  // namespace millrace::cli
