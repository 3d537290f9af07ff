/* SPDX-License-Identifier: MIT
 *
 * two_ranks.h - ranks without MPI: two processes, of which the other always has what this one has, so that sums are
 * doubled, and answers only after some polls.
 */
#ifndef ATTN_TESTS_TWO_RANKS_H
#define ATTN_TESTS_TWO_RANKS_H

#include "dist/ranks.h"

/* The behaviour of the other one, and counts of events. */
extern struct two_ranks {
    int pending;        /* questions until the sums under way are done */
    int begun;          /* sums */
    int finished;       /* partings in peace */
    int told;           /* notices to it */
    int32_t told_first; /* the status of the first */
    int pieces;         /* of texts */
    int64_t largest;    /* of those */
    attn_status fails;  /* the status that it sends next; ATTN_OK: nothing */
    bool mute;          /* the other rank has died: no sum completes */
    bool differs;       /* in a max, its number is the larger */
    uint64_t writes;    /* bytes of its text */
    double more;        /* difference of its f64 numbers from this rank's */
} other;

extern const attn__ranks_ops two_ranks;
/* A context that is rank 0 of them, and another one that begins anew. */
attn_context *two_ranks_joined(void);
/* For attn_ranks_set_stop: true when *(int *)user, which it counts up, is past 5. */
bool two_ranks_stop(void *user);

#endif
