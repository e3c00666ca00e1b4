/* Numbers worked on side by side, in blocks. The size of a block is the same on every machine, and so is the order of
   every sum. */
#ifndef RBR_BLOCKS_H
#define RBR_BLOCKS_H

#define SIDE_BY_SIDE 8
#define IN_BLOCKS(n) (((n) + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE * SIDE_BY_SIDE)

static inline double added(double *sums) {
    for (int half = SIDE_BY_SIDE / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

#endif
