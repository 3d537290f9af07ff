/* SPDX-License-Identifier: MIT
 *
 * attend_ref_walk.h - indices and array offsets for the float64 evaluation. A walk has one index for each dim, in the
 * caller's order, and loops over the dims of chosen roles.
 */
#ifndef ATTN_TESTS_ATTEND_REF_WALK_H
#define ATTN_TESTS_ATTEND_REF_WALK_H

#include "attn/attn.h"

enum {
    ROLE_B = 1 << ATTN_ROLE_BATCH,
    ROLE_Q = 1 << ATTN_ROLE_QUERY,
    ROLE_K = 1 << ATTN_ROLE_KEY,
    ROLE_C = 1 << ATTN_ROLE_CONTRACT,
    ROLE_V = 1 << ATTN_ROLE_VALUE
};

typedef struct walk {
    const attn_problem *p;
    int64_t at[ATTN_MAX_DIMS];
    /* position along each dim, which is the index unless the dim is a KEY dim with a window */
    int64_t pos[ATTN_MAX_DIMS];
    const int32_t *q_offsets, *k_offsets; /* NULL: no packed sequences */
    /* true if all positions are inside of their axes; if false, k and v count as 0 */
    bool inside;
} walk;

/* Sets the indices of the roles' dims to 0. Returns false if one of the dims is empty. */
bool walk_start(walk *w, int roles);
/* Advances to the next index; the last dim changes fastest. Returns false after the last index. */
bool walk_next(walk *w, int roles);
int64_t walk_count(const attn_problem *p, int roles);

/* Returns the sum over the dims of index * stride, or of position * stride if `positions` is true. `field` is the
 * offset of the stride in attn_dim. */
int64_t walk_offset(const walk *w, size_t field, bool positions);
#define OFFSET(w, field)          walk_offset(w, offsetof(attn_dim, field), false)
#define POSITION_OFFSET(w, field) walk_offset(w, offsetof(attn_dim, field), true)

/* Returns the differences of an array's offsets between channel c of the roles and channel 0, in the order of walk_next.
 * The caller frees them. */
int64_t *walk_channels(const attn_problem *p, size_t field, int roles);

/* Returns true if `field` is the stride of a packed axis of the role. */
bool walk_is_token(size_t field, attn_role role);
bool walk_row_exists(const walk *w);

double walk_load(attn_dtype dtype, const void *array, int64_t i);
/* Returns the offset of the pair's element in bias. If `field` is a stride of dbias, returns the offset in the
 * gradient of bias. */
int64_t walk_bias_offset(const walk *w, const attn_arrays *a, size_t field);

attn_dtype walk_keys(const attn_problem *p);
attn_dtype walk_side(const attn_problem *p);

typedef enum walk_state { WALK_ABSENT, WALK_MASKED, WALK_PRESENT } walk_state;
/* Computes the positions from the indices of the KEY dims. Returns whether this key is absent, masked or present for
 * the current query. */
walk_state walk_place(walk *w, const attn_arrays *a);
/* Sets *offset to the offset of the element of table r for the current indices. Returns false if the table does not
 * cover the channel. */
bool walk_table(const walk *w, int r, int64_t *offset);
/* The same offset in two parts: that of the row of the current indices, and those of the channels, in the order of
 * walk_next; WALK_NO_CHANNEL is not covered. The caller frees the channels. */
#define WALK_NO_CHANNEL INT64_MIN
int64_t walk_table_row(const walk *w, int r);
int64_t *walk_table_channels(const attn_problem *p, int r);
/* Returns the factor of dropout: 0 if the weight is dropped, otherwise 1/(1-p). */
double walk_keep(const walk *w, uint64_t seed_offset);

#endif
