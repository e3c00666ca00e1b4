/* Compiles a function for several register widths; the widest that the machine has is chosen when the module is loaded.
   This needs GCC, Linux and x86-64; elsewhere only the version for any machine is built. No version contracts or
   reorders a sum, so all of them round alike. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define ON_WIDE_REGISTERS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ON_WIDE_REGISTERS
#endif

/* Before a loop whose rounds write to other places than they read: the compiler need not check that. */
#if defined(__GNUC__) && !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif
