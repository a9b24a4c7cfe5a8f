// The instruction set that a translation unit is compiled for, as the name of an inline namespace.
// Code with a layout or inlining that depends on the instruction set stands in this namespace, so
// that an installed header and a library built with other flags never share a symbol. Results are
// the same with every instruction set.
#pragma once

#if defined(__AVX512BW__) && defined(__AES__)
#define MILLRACE_ISA isa_avx512_aes
#elif defined(__AVX512BW__)
#define MILLRACE_ISA isa_avx512
#elif defined(__AVX2__) && defined(__AES__)
#define MILLRACE_ISA isa_avx2_aes
#elif defined(__AVX2__)
#define MILLRACE_ISA isa_avx2
#elif defined(__SSE2__) && defined(__AES__)
#define MILLRACE_ISA isa_sse2_aes
#elif defined(__SSE2__)
#define MILLRACE_ISA isa_sse2
#else
#define MILLRACE_ISA isa_portable
#endif

#if defined(__SSE2__)
#include <immintrin.h>
#endif
