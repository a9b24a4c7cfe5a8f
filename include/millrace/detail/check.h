// Checks of the rules that callers must keep, in debug builds. A broken rule prints one line that
// names the rule, and aborts. Other builds check nothing, at no cost.
//
// `MILLRACE_CHECKS` is 1 or 0. If it is not defined, checks are on unless NDEBUG is defined. The
// compiled part of the library checks if it was built with checks; inline functions of its headers
// check if the program that includes them is built with checks.
#pragma once

#include <cstdio>
#include <cstdlib>

#ifndef MILLRACE_CHECKS
#ifdef NDEBUG
#define MILLRACE_CHECKS 0
#else
#define MILLRACE_CHECKS 1
#endif
#endif

namespace millrace::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void broken(const char* call,
                                                          const char* rule) noexcept {
  std::fprintf(stderr, "millrace: %s: %s\n", call, rule);
  std::abort();
}

}  // namespace millrace::detail

/// If checks are on, prints `call` and `rule` and aborts unless `holds`, an expression without side
/// effects, is true.
#if MILLRACE_CHECKS
#define MILLRACE_CHECK(holds, call, rule) \
  ((holds) ? static_cast<void>(0) : ::millrace::detail::broken(call, rule))
#else
#define MILLRACE_CHECK(holds, call, rule) \
  static_cast<void>(sizeof((holds) ? sizeof(call) : sizeof(rule)))
#endif
