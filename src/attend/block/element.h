/* SPDX-License-Identifier: MIT
 *
 * element.h - one element of any storage type, as a double; and gathers of a role's elements into a row.
 */
#ifndef ATTN_ATTEND_ELEMENT_H
#define ATTN_ATTEND_ELEMENT_H

#include "attend/problem/operand.h"
#include "attend/problem/canonical.h"
#include "base/bf16.h"

static inline double attn__load(attn_dtype dtype, const void *base, int64_t i)
{
    if (dtype == ATTN_F32)
        return (double)((const float *)base)[i];
    if (dtype == ATTN_F64)
        return ((const double *)base)[i];
    return (double)attn__from_bf16(((const uint16_t *)base)[i]);
}

static inline void attn__store(attn_dtype dtype, void *base, int64_t i, double x)
{
    if (dtype == ATTN_F32)
        ((float *)base)[i] = (float)x;
    else if (dtype == ATTN_F64)
        ((double *)base)[i] = x;
    else
        ((uint16_t *)base)[i] = attn__to_bf16((float)x);
}

/* The strides of one operand, or table, along the axes of a group. */
typedef struct attn__strides {
    int64_t at[ATTN_MAX_DIMS];
} attn__strides;

static inline attn__strides attn__operand_strides(const attn__group *group, attn__operand op)
{
    attn__strides s = {{0}};
    for (int i = 0; i < group->n; i++)
        s.at[i] = attn__stride(&group->axis[i].dim, op);
    return s;
}

/* Splits a linear index of a group into one for each axis, the last fastest. */
static inline void attn__split(const attn__group *group, int64_t linear, int64_t *index)
{
    for (int i = group->n - 1; i > 0; i--) {
        index[i] = linear % group->axis[i].dim.n;
        linear /= group->axis[i].dim.n;
    }
    index[0] = linear;
}

/* out[e] = base[offset + element e of the group], all of them in order. */
void attn__gather(const attn__group *group, const attn__strides *strides, attn_dtype dtype, const void *base,
                  int64_t offset, double *out);
/* The reverse: base[offset + e] = in[e]. */
void attn__scatter(const attn__group *group, const attn__strides *strides, attn_dtype dtype, void *base, int64_t offset,
                   const double *in);
/* base[offset + e] += in[e], one after the other: elements may be the same. */
void attn__accumulate(const attn__group *group, const attn__strides *strides, attn_dtype dtype, void *base,
                      int64_t offset, const double *in);
/* sums[offset + e] += in[e]. */
void attn__scatter_add(const attn__group *group, const attn__strides *strides, double *sums, int64_t offset,
                       const double *in);

#endif
