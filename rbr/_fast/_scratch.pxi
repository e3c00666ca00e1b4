# Part of _projections.pyx: the memory of a search.
#
# A kernel allocates once, for the largest of its tables, and all searches work in these vectors. Two more grow on
# demand: their size depends on the number of pieces too.


cdef struct Scratch:
    # One allocation of doubles and one of ints, cut into vectors; two more grow when a search needs them.
    double *doubles
    int32_t *ints
    # the bins of positive weight
    double *u
    double *w
    double *x
    double *rows            # share of the rows
    int32_t *live
    int32_t *order
    int32_t *spare
    # blocks of an isotonic fit
    double *block_u
    double *block_w
    int32_t *block_start
    # running sums of the last piece, one entry per start that is alive
    int32_t *start
    double *before          # cost of what lies left of the start
    double *weight
    double *mean_u
    double *mean_x
    double *spread          # sum of w (x - mean_x)^2
    double *slope
    double *around_mean     # sum of w (u - mean_u)^2
    double *around_line
    double *cost            # of everything up to the end, this start taken
    # prefix sums of w and w u with the errors of their rounding; they share memory with the sums for lines
    double *weight_sum
    double *weight_rest
    double *moment_sum
    double *moment_rest
    # costs and splits by end
    double *best
    double *best_before
    int32_t *split
    int32_t *cut            # the starts of the chosen pieces
    # with a least number of rows: rows up to each end, and the last start from which a piece up to it holds enough
    double *row_sum
    int32_t *last_start
    # sums of the bins up to a middle one, by the first bin; they share memory with what is no longer needed then
    double *window_weight
    double *window_mean
    double *window_cost
    # values of the last piece, cut into intervals by the start that owns them: a list to read, one to write
    Py_ssize_t interval_capacity
    double *low[2]
    double *high[2]
    int32_t *owner[2]
    int32_t *last_seen
    int32_t *renamed
    # the heap of the greedy search
    double *heap_loss
    int32_t *heap_left
    int32_t *heap_stamp
    int32_t *heap_is_late   # both pieces of the pair hold enough rows
    int32_t *next_start
    int32_t *previous_start
    int32_t *stamp
    int32_t *removed_at
    # DCT
    double *cosines
    Py_ssize_t cosines_for
    # growing
    int32_t *splits
    Py_ssize_t splits_capacity
    double *by_count
    Py_ssize_t by_count_capacity
    int64_t n_compared      # starts compared so far, over all ends


cdef int _allocate(Scratch *s, Py_ssize_t n) noexcept nogil:
    """Vectors for tables of up to n bins; -1 if there is no memory."""
    cdef Py_ssize_t n_doubles = 0, n_ints = 0, m = n + 2, i
    cdef Py_ssize_t n_intervals = 4 * m + 16
    s.splits = NULL
    s.by_count = NULL
    s.splits_capacity = 0
    s.by_count_capacity = 0
    s.cosines_for = 0
    s.n_compared = 0
    s.interval_capacity = n_intervals
    s.doubles = <double *> malloc((18 * m + 4 * m + 4 * m + 4 * n_intervals) * sizeof(double))
    s.ints = <int32_t *> malloc((14 * m + 3 * m + 3 * m + 3 * m + 2 * n_intervals) * sizeof(int32_t))
    if s.doubles == NULL or s.ints == NULL:
        return -1
    cdef double **double_vectors[18]
    double_vectors[0] = &s.u
    double_vectors[1] = &s.w
    double_vectors[2] = &s.x
    double_vectors[3] = &s.block_u
    double_vectors[4] = &s.block_w
    double_vectors[5] = &s.before
    double_vectors[6] = &s.weight
    double_vectors[7] = &s.mean_u
    double_vectors[8] = &s.mean_x
    double_vectors[9] = &s.spread
    double_vectors[10] = &s.slope
    double_vectors[11] = &s.around_mean
    double_vectors[12] = &s.around_line
    double_vectors[13] = &s.cost
    double_vectors[14] = &s.best
    double_vectors[15] = &s.best_before
    double_vectors[16] = &s.rows
    double_vectors[17] = &s.row_sum
    for i in range(18):
        double_vectors[i][0] = s.doubles + n_doubles
        n_doubles += m
    s.window_weight = s.rows
    s.window_mean = s.row_sum
    s.window_cost = s.best_before
    s.weight_sum = s.mean_x
    s.weight_rest = s.spread
    s.moment_sum = s.slope
    s.moment_rest = s.around_mean
    # Each merge makes at most two new pairs.
    s.heap_loss = s.doubles + n_doubles
    n_doubles += 4 * m
    s.cosines = s.doubles + n_doubles
    n_doubles += 4 * m
    for i in range(2):
        s.low[i] = s.doubles + n_doubles
        s.high[i] = s.doubles + n_doubles + n_intervals
        n_doubles += 2 * n_intervals
    cdef int32_t **int_vectors[14]
    int_vectors[0] = &s.live
    int_vectors[1] = &s.order
    int_vectors[2] = &s.spare
    int_vectors[3] = &s.block_start
    int_vectors[4] = &s.start
    int_vectors[5] = &s.split
    int_vectors[6] = &s.cut
    int_vectors[7] = &s.last_seen
    int_vectors[8] = &s.next_start
    int_vectors[9] = &s.previous_start
    int_vectors[10] = &s.stamp
    int_vectors[11] = &s.removed_at
    int_vectors[12] = &s.renamed
    int_vectors[13] = &s.last_start
    for i in range(14):
        int_vectors[i][0] = s.ints + n_ints
        n_ints += m
    s.heap_left = s.ints + n_ints
    n_ints += 3 * m
    s.heap_stamp = s.ints + n_ints
    n_ints += 3 * m
    s.heap_is_late = s.ints + n_ints
    n_ints += 3 * m
    for i in range(2):
        s.owner[i] = s.ints + n_ints
        n_ints += n_intervals
    return 0


cdef void _release(Scratch *s) noexcept nogil:
    free(s.doubles)
    free(s.ints)
    free(s.splits)
    free(s.by_count)


cdef int _reserve_splits(Scratch *s, Py_ssize_t size) noexcept nogil:
    cdef int32_t *grown
    if size <= s.splits_capacity:
        return 0
    if size < 2 * s.splits_capacity:
        size = 2 * s.splits_capacity
    grown = <int32_t *> realloc(s.splits, size * sizeof(int32_t))
    if grown == NULL:
        return -1
    s.splits = grown
    s.splits_capacity = size
    return 0


cdef int _need_by_count(Scratch *s, Py_ssize_t size) noexcept nogil:
    cdef double *grown
    if size <= s.by_count_capacity:
        return 0
    grown = <double *> realloc(s.by_count, size * sizeof(double))
    if grown == NULL:
        return -1
    s.by_count = grown
    s.by_count_capacity = size
    return 0
