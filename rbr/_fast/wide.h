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

/* Before a loop of as many rounds as a register holds numbers: once unrolled, it would not be put on a register. */
#if defined(__GNUC__) && !defined(__clang__)
#define ON_ONE_REGISTER _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#else
#define ON_ONE_REGISTER
#endif

/* Have a place of memory fetched that will be read soon; it need not be mapped. */
#if defined(__GNUC__) || defined(__clang__)
#define FETCH(place) __builtin_prefetch(place)
#else
#define FETCH(place) ((void)0)
#endif
