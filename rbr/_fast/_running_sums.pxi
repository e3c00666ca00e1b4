# Part of _projections.pyx: what a piece costs.
#
# A start that may still begin the last piece has a slot in the vectors of Scratch, with the sums of that piece. Each
# new bin updates the sums of all starts (Welford's updates, recursive least squares), in loops that the compiler
# vectorises.


# The loops over starts, several at a time. Seven vectors are too many for the compiler to test for overlap at run time,
# so `restrict` promises that there is none.
cdef extern from *:
    """
    #include "wide.h"

    typedef double *CYTHON_RESTRICT rbr_vector;

    /* One more bin for the constant pieces in the first n slots. */
    ON_WIDE_REGISTERS
    static void extend_constants(
        Py_ssize_t n, double u, double w, rbr_vector weight, rbr_vector mean, rbr_vector cost
    ) {
        for (Py_ssize_t j = 0; j < n; j++) {
            double share = w / (weight[j] + w), du = u - mean[j];
            mean[j] += share * du;
            cost[j] += 0.5 * (share * weight[j]) * (du * du);
            weight[j] += w;
        }
    }

    /* One more bin for the lines in the first n slots: recursive least squares around the means. mean_x is exactly x
       until there is a second position, so spread > 0 says that there are two; it is not a threshold. */
    ON_WIDE_REGISTERS
    static void extend_lines(
        Py_ssize_t n, double u, double w, double x, rbr_vector weight, rbr_vector mean_u, rbr_vector mean_x,
        rbr_vector spread, rbr_vector slope, rbr_vector around_mean, rbr_vector around_line
    ) {
        /* Makes spread / wider 1 while there is one position, and 0 at the second, without a branch. */
        const double tiny = 1e-300;
        for (Py_ssize_t j = 0; j < n; j++) {
            double share = w / (weight[j] + w), f = share * weight[j];
            double du = u - mean_u[j], dx = x - mean_x[j], miss = du - slope[j] * dx;
            double wider = spread[j] + f * (dx * dx), narrower = 1.0 / (wider + tiny);
            around_mean[j] += f * (du * du);
            around_line[j] += f * (miss * miss) * ((spread[j] + tiny) * narrower);
            slope[j] += f * dx * miss * narrower;
            spread[j] = wider;
            mean_u[j] += share * du;
            mean_x[j] += share * dx;
            weight[j] += w;
        }
    }

    /* cost = before + the cost of the last piece as a line, or as the better of line and constant. */
    ON_WIDE_REGISTERS
    static void costs_of_lines(Py_ssize_t n, double line, rbr_vector before, rbr_vector around_line, rbr_vector cost) {
        for (Py_ssize_t j = 0; j < n; j++)
            cost[j] = before[j] + (0.5 * around_line[j] + line);
    }

    ON_WIDE_REGISTERS
    static void costs_of_either(
        Py_ssize_t n, double constant, double line, rbr_vector before, rbr_vector around_mean, rbr_vector around_line,
        rbr_vector cost
    ) {
        for (Py_ssize_t j = 0; j < n; j++) {
            double a = 0.5 * around_mean[j] + constant, b = 0.5 * around_line[j] + line;
            cost[j] = before[j] + (b < a ? b : a);
        }
    }

    #define LANES 8

    /* Whether no start costs more than the bound, if its last piece were a line without a price. */
    ON_WIDE_REGISTERS
    static int none_is_beaten(Py_ssize_t n, double bound, rbr_vector before, rbr_vector around_line) {
        Py_ssize_t n_beaten = 0;
        for (Py_ssize_t j = 0; j < n; j++)
            n_beaten += before[j] + 0.5 * around_line[j] > bound;
        return n_beaten == 0;
    }

    /* The same after an earlier mark: marks the starts without one that cost more than the bound; returns how many. */
    ON_WIDE_REGISTERS
    static Py_ssize_t mark_beaten(
        Py_ssize_t n, double bound, rbr_vector before, rbr_vector around_line, int32_t *CYTHON_RESTRICT mark,
        int32_t none, int32_t e
    ) {
        Py_ssize_t n_marked = 0;
        for (Py_ssize_t j = 0; j < n; j++) {
            int is_new = (mark[j] == none) & (before[j] + 0.5 * around_line[j] > bound);
            mark[j] = is_new ? e : mark[j];
            n_marked += is_new;
        }
        return n_marked;
    }

    /* cost = that of the last piece, to which a block of more bins is joined, up to what all starts have in common. */
    ON_WIDE_REGISTERS
    static void costs_with_block(
        Py_ssize_t n, double block_weight, double block_mean, rbr_vector weight, rbr_vector mean, rbr_vector cost,
        rbr_vector out
    ) {
        for (Py_ssize_t j = 0; j < n; j++) {
            double du = block_mean - mean[j];
            out[j] = cost[j] + 0.5 * (weight[j] * (block_weight / (weight[j] + block_weight))) * (du * du);
        }
    }

    /* The first index of the least of n > 0 costs, none of which is NaN. */
    ON_WIDE_REGISTERS
    static Py_ssize_t leftmost_least(const double *cost, Py_ssize_t n) {
        double lanes[LANES], least = cost[0];
        Py_ssize_t j = 0;
        if (n >= LANES) {
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] = cost[lane];
            for (j = LANES; j + LANES <= n; j += LANES)
                for (int lane = 0; lane < LANES; lane++)
                    lanes[lane] = cost[j + lane] < lanes[lane] ? cost[j + lane] : lanes[lane];
            for (int lane = 0; lane < LANES; lane++)
                least = lanes[lane] < least ? lanes[lane] : least;
        }
        for (; j < n; j++)
            least = cost[j] < least ? cost[j] : least;
        for (j = 0; cost[j] != least; j++)
            ;
        return j;
    }
    """
    ctypedef double *vector "rbr_vector"
    void _extend_constants "extend_constants"(
        Py_ssize_t n, double u, double w, vector weight, vector mean, vector cost
    ) noexcept nogil
    void _extend_lines "extend_lines"(
        Py_ssize_t n, double u, double w, double x, vector weight, vector mean_u, vector mean_x,
        vector spread, vector slope, vector around_mean, vector around_line
    ) noexcept nogil
    void costs_of_lines(Py_ssize_t n, double line, vector before, vector around_line, vector cost) noexcept nogil
    void costs_of_either(
        Py_ssize_t n, double constant, double line, vector before, vector around_mean, vector around_line, vector cost
    ) noexcept nogil
    Py_ssize_t mark_beaten(
        Py_ssize_t n, double bound, vector before, vector around_line, int32_t *mark, int32_t none, int32_t e
    ) noexcept nogil
    void costs_with_block(
        Py_ssize_t n, double block_weight, double block_mean, vector weight, vector mean, vector cost, vector out
    ) noexcept nogil
    bint none_is_beaten(Py_ssize_t n, double bound, vector before, vector around_line) noexcept nogil
    Py_ssize_t _leftmost_least "leftmost_least"(const double *cost, Py_ssize_t n) noexcept nogil


cdef struct Pieces:
    # What a search sees of a table: its bins of positive weight, its isotonic blocks or its sorted values.
    Py_ssize_t n
    double *u
    double *w
    double *x
    bint ascending          # u does not decrease: the search may use it
    double unit             # price of one unit of piece code
    double constant_code    # 0 where constant pieces are not allowed
    double line_code        # 0 where lines are not allowed
    const double *count_codes     # code of k pieces at [k - 1], increasing, or NULL
    double count_price            # of one unit of it
    const int32_t *last_start     # at [end], the last start from which a piece holds enough rows, or -1; NULL: any


cdef inline void _begin(
    Scratch *s, Py_ssize_t slot, Py_ssize_t start, double before, double u, double x
) noexcept nogil:
    """Give a start a slot before its first bin (u, x) is added. Means begin at that bin: exact for ties."""
    s.start[slot] = <int32_t> start
    s.before[slot] = before
    s.cost[slot] = before
    s.weight[slot] = 0.0
    s.mean_u[slot] = u
    s.mean_x[slot] = x
    s.spread[slot] = 0.0
    s.slope[slot] = 0.0
    s.around_mean[slot] = 0.0
    s.around_line[slot] = 0.0


cdef void _line_costs(
    Py_ssize_t n, Pieces *p, vector before, vector around_mean, vector around_line, vector cost
) noexcept nogil:
    """cost = before + the cost of the last piece, as a line or as the better of the two."""
    cdef double constant = p.unit * p.constant_code, line = p.unit * p.line_code
    if p.constant_code == 0.0:
        costs_of_lines(n, line, before, around_line, cost)
    else:
        costs_of_either(n, constant, line, before, around_mean, around_line, cost)


cdef inline double _piece_cost(Pieces *p, double around_mean, double around_line) noexcept nogil:
    cdef double constant = 0.5 * around_mean + p.unit * p.constant_code
    cdef double line = 0.5 * around_line + p.unit * p.line_code
    if p.line_code == 0.0:
        return constant
    if p.constant_code == 0.0:
        return line
    return line if line < constant else constant


cdef inline double _mean(const double *u, const double *w, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0, moment = 0.0
    for i in range(first, last):
        total += w[i]
        moment += w[i] * (u[i] - u[first])
    return u[first] + moment / total
