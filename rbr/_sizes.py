"""Sizes on which Python and the compiled kernels must agree.

The kernels, and the reference where it needs them, have their own copies, since neither imports the rest of rbr.
`rbr._backend` compares them all when the kernels are first imported.
"""

# Sums over rows are added up from the sums of blocks of this many rows. BLAS does not split dot products this short
# over its own threads, so a sum is always added in the same order.
ROWS_PER_SUM = 8192

# How many sums per block the kernels log_loss_sums and squared_distances write.
LOG_LOSS_SUMS = 6
DISTANCE_SUMS = 2

# The losses that the kernel loss_of_rows knows, by number.
LOSSES = ("squared_error", "log_loss", "poisson", "gamma", "tweedie", "huber", "quantile")

# The number that stands for the loss of several classes where that of one of LOSSES is expected.
SOFTMAX = -1

# The kernel rmatvec goes over the rows with this many features at a time.
TOGETHER = 4

# The largest code of a bin that the kernels can read: codes have 8 or 16 bits.
MAX_CODE = 65535

# The label of a bin that belongs to no piece.
NO_PIECE = -1

# The most characters that a double has as text, in the kernel write_numbers.
NUMBER_WIDTH = 24
