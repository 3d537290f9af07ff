/* SPDX-License-Identifier: MIT
 * Gathers and scatters along a group: an odometer over the outer axes, a plain loop along the last. */
#include "attend/block/element.h"

#include <string.h>

typedef struct odometer {
    const attn__group *group;
    const attn__strides *strides;
    int64_t index[ATTN_MAX_DIMS];
    int64_t offset;
} odometer;

static inline void start(odometer *o, const attn__group *group, const attn__strides *strides, int64_t offset)
{
    o->group = group;
    o->strides = strides;
    o->offset = offset;
    for (int i = 0; i < group->n - 1; i++)
        o->index[i] = 0;
}

static inline void advance(odometer *o)
{
    for (int i = o->group->n - 2; i >= 0; i--) {
        o->offset += o->strides->at[i];
        if (++o->index[i] < o->group->axis[i].dim.n)
            return;
        o->offset -= o->strides->at[i] * o->group->axis[i].dim.n;
        o->index[i] = 0;
    }
}

void attn__gather(const attn__group *group, const attn__strides *strides, attn_dtype dtype, const void *base,
                  int64_t offset, double *out)
{
    odometer o;
    start(&o, group, strides, offset);
    int64_t step = strides->at[group->n - 1], inner = group->axis[group->n - 1].dim.n;
    for (int64_t done = 0; done < group->size; done += inner, advance(&o), out += inner) {
        if (dtype == ATTN_F64 && step == 1)
            memcpy(out, (const double *)base + o.offset, (size_t)inner * sizeof *out);
        else
            for (int64_t e = 0; e < inner; e++)
                out[e] = attn__load(dtype, base, o.offset + e * step);
    }
}

void attn__scatter(const attn__group *group, const attn__strides *strides, attn_dtype dtype, void *base, int64_t offset,
                   const double *in)
{
    odometer o;
    start(&o, group, strides, offset);
    int64_t step = strides->at[group->n - 1], inner = group->axis[group->n - 1].dim.n;
    for (int64_t done = 0; done < group->size; done += inner, advance(&o), in += inner) {
        if (dtype == ATTN_F64 && step == 1)
            memcpy((double *)base + o.offset, in, (size_t)inner * sizeof *in);
        else
            for (int64_t e = 0; e < inner; e++)
                attn__store(dtype, base, o.offset + e * step, in[e]);
    }
}

void attn__scatter_add(const attn__group *group, const attn__strides *strides, double *sums, int64_t offset,
                       const double *in)
{
    odometer o;
    start(&o, group, strides, offset);
    int64_t step = strides->at[group->n - 1], inner = group->axis[group->n - 1].dim.n;
    for (int64_t done = 0; done < group->size; done += inner, advance(&o), in += inner)
        for (int64_t e = 0; e < inner; e++)
            sums[o.offset + e * step] += in[e];
}

void attn__accumulate(const attn__group *group, const attn__strides *strides, attn_dtype dtype, void *base,
                      int64_t offset, const double *in)
{
    odometer o;
    start(&o, group, strides, offset);
    int64_t step = strides->at[group->n - 1], inner = group->axis[group->n - 1].dim.n;
    for (int64_t done = 0; done < group->size; done += inner, advance(&o), in += inner)
        for (int64_t e = 0; e < inner; e++) {
            int64_t at = o.offset + e * step;
            attn__store(dtype, base, at, attn__load(dtype, base, at) + in[e]);
        }
}
