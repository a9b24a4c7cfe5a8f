// Names the instruction set that a translation unit is compiled for. Code whose layout or inlining
// depends on it stands in this inline namespace, so that an installed header and a library built
// with other flags never share a symbol. Results are the same in all of them.
#pragma once

#if defined(__AVX512BW__) && defined(__AES__)
#define MILLRACE_ISA isa_avx512
#elif defined(__AVX2__) && defined(__AES__)
#define MILLRACE_ISA isa_avx2
#elif defined(__SSE2__)
#define MILLRACE_ISA isa_sse2
#elif defined(__ARM_NEON) && defined(__ARM_FEATURE_AES)
#define MILLRACE_ISA isa_neon_aes
#else
#define MILLRACE_ISA isa_portable
#endif

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif
