// Checks of the rules that callers must keep, in debug builds. A broken rule prints one line that
// names it, and aborts. Other builds have no checks, and no cost.
//
// `MILLRACE_CHECKS` is 1 or 0; where it is not defined, checks are on unless NDEBUG is defined. The
// compiled part of the library has those that it was built with, inline functions of its headers
// those of the program that includes them.
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

/// Aborts with the rule of that call unless `holds`, an expression without side effects.
#if MILLRACE_CHECKS
#define MILLRACE_CHECK(holds, call, rule) \
  ((holds) ? static_cast<void>(0) : ::millrace::detail::broken(call, rule))
#else
#define MILLRACE_CHECK(holds, call, rule) \
  static_cast<void>(sizeof((holds) ? sizeof(call) : sizeof(rule)))
#endif
