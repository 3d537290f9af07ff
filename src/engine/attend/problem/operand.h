/* SPDX-License-Identifier: MIT
 *
 * operand.h - a table of the operands of a problem, with the name, the stride field and the roles along which an
 * operand may have strides.  Code that handles all operands alike loops over it.
 */
#ifndef ATTN_ATTEND_OPERAND_H
#define ATTN_ATTEND_OPERAND_H

#include "attn/attn.h"

enum {
    ATTN__IN_BATCH = 1 << ATTN_ROLE_BATCH,
    ATTN__IN_QUERY = 1 << ATTN_ROLE_QUERY,
    ATTN__IN_KEY = 1 << ATTN_ROLE_KEY,
    ATTN__IN_CONTRACT = 1 << ATTN_ROLE_CONTRACT,
    ATTN__IN_VALUE = 1 << ATTN_ROLE_VALUE
};

/* X(NAME, field of attn_dim, roles in addition to BATCH, whether a window's KEY stride is per position) */
#define ATTN__OPERAND_MAP(X)                                                                                           \
    X(Q, q, ATTN__IN_QUERY | ATTN__IN_CONTRACT, false)                                                                 \
    X(K, k, ATTN__IN_KEY | ATTN__IN_CONTRACT, true)                                                                    \
    X(V, v, ATTN__IN_KEY | ATTN__IN_VALUE, true)                                                                       \
    X(O, o, ATTN__IN_QUERY | ATTN__IN_VALUE, false)                                                                    \
    X(BIAS, bias, ATTN__IN_QUERY | ATTN__IN_KEY, false)                                                                \
    X(MASK, mask, ATTN__IN_QUERY | ATTN__IN_KEY, true)                                                                 \
    X(LENS, lens, ATTN__IN_QUERY, false)                                                                               \
    X(LSE, lse, ATTN__IN_QUERY, false)                                                                                 \
    X(WEIGHTS, weights, ATTN__IN_QUERY | ATTN__IN_KEY, false)                                                          \
    X(W, w, ATTN__IN_CONTRACT, false)                                                                                  \
    X(SINKS, sinks, ATTN__IN_QUERY, false)                                                                             \
    X(BLOCKS, blocks, ATTN__IN_QUERY | ATTN__IN_KEY, false)                                                            \
    X(DQ, dq, ATTN__IN_QUERY | ATTN__IN_CONTRACT, false)                                                               \
    X(DK, dk, ATTN__IN_KEY | ATTN__IN_CONTRACT, true)                                                                  \
    X(DV, dv, ATTN__IN_KEY | ATTN__IN_VALUE, true)                                                                     \
    X(DOUT, dout, ATTN__IN_QUERY | ATTN__IN_VALUE, false)                                                              \
    X(DBIAS, dbias, ATTN__IN_QUERY | ATTN__IN_KEY, false)

typedef enum attn__operand {
#define ATTN_X(NAME, field, roles, positional) ATTN__OP_##NAME,
    ATTN__OPERAND_MAP(ATTN_X)
#undef ATTN_X
        ATTN__OPERANDS
} attn__operand;

typedef struct attn__operand_info {
    const char *name;
    size_t offset; /* offset of the stride in attn_dim */
    int roles;
    bool positional;
} attn__operand_info;

extern const attn__operand_info attn__operand_table[ATTN__OPERANDS];

static inline int64_t *attn__stride_at(attn_dim *dim, attn__operand op)
{
    return (int64_t *)(void *)((char *)dim + attn__operand_table[op].offset);
}

static inline int64_t attn__stride(const attn_dim *dim, attn__operand op)
{
    return *(const int64_t *)(const void *)((const char *)dim + attn__operand_table[op].offset);
}

static inline const char *attn__role_name(attn_role role)
{
    static const char *const names[] = {"no role", "BATCH", "QUERY", "KEY", "CONTRACT", "VALUE"};
    return (unsigned)role <= ATTN_ROLE_VALUE ? names[role] : "unknown";
}

/* Reports whether the problem reads or writes the operand in its direction. */
bool attn__operand_used(const attn_problem *problem, attn__operand op);

static inline const attn_window *attn__window_of(const attn_problem *problem, int key_dim)
{
    for (int i = 0; i < problem->nwindows; i++)
        if (problem->windows[i].key_dim == key_dim)
            return &problem->windows[i];
    return NULL;
}

/* Returns the operand's number of indices along a dim: the dim's length, the number of positions of a window, or the
 * number of picks. `number` is the dim's index in the problem, or in its group if the problem is canonical. */
int64_t attn__operand_length(const attn_problem *problem, const attn_dim *dim, int number, attn__operand op);

/* Returns the number of blocks of `size` that cover n. The problem check refuses a size below 1. */
static inline int64_t attn__blocks_count(int64_t n, int64_t size)
{
    return size < 1 ? n : n / size + (n % size != 0);
}

/* Reports whether rows of the operand along the role's dim (QUERY or KEY) are packed sequences. */
bool attn__operand_packed(attn__operand op, attn_role role);

static inline attn_role attn__table_role(const attn_relative *relative)
{
    return relative->kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT;
}

/* Returns the last dim of a role, or -1 if there is none. */
static inline int attn__last_dim(const attn_problem *problem, attn_role role)
{
    int dim = problem->ndims - 1;
    while (dim >= 0 && problem->dims[dim].role != role)
        dim--;
    return dim;
}

/* Lens and mask have fixed types. */
attn_dtype attn__operand_dtype(const attn_problem *problem, attn__operand op);

#endif
