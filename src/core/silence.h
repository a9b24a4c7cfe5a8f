// Libraries that print: DPDK's environment prints what it refuses, libbpf and libxdp what they do.
// glibc lets a program put other streams in the places of `stdout` and `stderr`.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace millrace {

/// While it lives, nothing that is printed appears, whoever prints it on whichever thread. One at a
/// time.
class Silence {
 public:
  Silence() { exchange(); }
  ~Silence() { end(); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

  /// What was printed.
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
