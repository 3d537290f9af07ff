/* SPDX-License-Identifier: MIT
 *
 * two_ranks.h - two ranks without MPI. The other rank is simulated. It always has the same numbers as this rank, so
 * that sums are doubled. An operation completes only after some polls.
 */
#ifndef ATTN_TESTS_TWO_RANKS_H
#define ATTN_TESTS_TWO_RANKS_H

#include "dist/ranks.h"

extern struct two_ranks {
    int pending; /* number of polls until the running sums complete */
    int begun;   /* number of sums */
    int finished;
    int told; /* number of notices sent to the other rank */
    int32_t told_first;
    int pieces; /* number of pieces in which texts were sent */
    int64_t largest;
    attn_status fails; /* status that the other rank sends next; ATTN_OK: none */
    bool mute;         /* true if the other rank has died, so that no sum completes */
    bool differs;      /* true if the other rank has the larger number when the maximum is computed */
    uint64_t writes;   /* length of the other rank's text in bytes */
    double more;       /* difference of f64 numbers: those of the other rank minus those of this rank */
} other;

extern const attn__ranks_ops two_ranks;
/* Creates a context that is rank 0 of the two ranks, and resets `other`. */
attn_context *two_ranks_joined(void);
/* A stop function for attn_ranks_set_stop. Increments *(int *)user, and returns true once it is above 5. */
bool two_ranks_stop(void *user);

#endif
