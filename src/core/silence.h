// Silence for libraries that print: DPDK's environment prints its errors, libbpf and libxdp their
// steps. glibc allows a program to assign `stdout` and `stderr`.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace millrace {

/// Collects what any thread prints to `stdout` and `stderr` while the object lives. There must be
/// only one object at a time.
class Silence {
 public:
  Silence() { exchange(); }
  ~Silence() { end(); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

  /// Ends the silence. Returns what was printed; empty at a second call.
  std::string end() {
    if (kept_ == nullptr) return {};
    exchange();
    std::fclose(std::exchange(kept_, nullptr));
    std::string printed(text_, size_);
    std::free(text_);
    return printed;
  }

 private:
  void exchange() {
    if (kept_ == nullptr) return;
    std::swap(stdout, out_);
    std::swap(stderr, err_);
  }

  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* kept_ = ::open_memstream(&text_, &size_);
  std::FILE* out_ = kept_;
  std::FILE* err_ = kept_;
};

}  // namespace millrace
