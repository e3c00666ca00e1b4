/* A function so marked is compiled for several widths of registers, and the widest that the machine has is chosen when
   the module is loaded: with GCC on Linux and x86-64, elsewhere there is the one that any machine has. No path contracts or
   reorders a sum, so all of them round alike. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define ON_WIDE_REGISTERS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ON_WIDE_REGISTERS
#endif
