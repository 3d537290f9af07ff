/* SPDX-License-Identifier: MIT
 * Gathers and scatters along a group: an odometer over the outer axes, a plain loop along the last. */
#include "attend/canonical/element.h"

typedef struct odometer {
    const attn__group *group;
    const attn__strides *strides;
    int64_t index[ATTN_MAX_DIMS];
    int64_t offset, inner, runs;
} odometer;

static odometer start(const attn__group *group, const attn__strides *strides, int64_t offset)
{
    odometer o = {.group = group, .strides = strides, .offset = offset};
    o.inner = group->axis[group->n - 1].dim.n;
    o.runs = group->size && o.inner ? group->size / o.inner : 0;
    return o;
}

static void advance(odometer *o)
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
    odometer o = start(group, strides, offset);
    int64_t step = strides->at[group->n - 1];
    for (int64_t run = 0; run < o.runs; run++, advance(&o), out += o.inner)
        for (int64_t e = 0; e < o.inner; e++)
            out[e] = attn__load(dtype, base, o.offset + e * step);
}

void attn__scatter(const attn__group *group, const attn__strides *strides, attn_dtype dtype, void *base, int64_t offset,
                   const double *in)
{
    odometer o = start(group, strides, offset);
    int64_t step = strides->at[group->n - 1];
    for (int64_t run = 0; run < o.runs; run++, advance(&o), in += o.inner)
        for (int64_t e = 0; e < o.inner; e++)
            attn__store(dtype, base, o.offset + e * step, in[e]);
}

void attn__scatter_add(const attn__group *group, const attn__strides *strides, double *sums, int64_t offset,
                       const double *in)
{
    odometer o = start(group, strides, offset);
    int64_t step = strides->at[group->n - 1];
    for (int64_t run = 0; run < o.runs; run++, advance(&o), in += o.inner)
        for (int64_t e = 0; e < o.inner; e++)
            sums[o.offset + e * step] += in[e];
}

void attn__accumulate(const attn__group *group, const attn__strides *strides, attn_dtype dtype, void *base,
                      int64_t offset, const double *in)
{
    odometer o = start(group, strides, offset);
    int64_t step = strides->at[group->n - 1];
    for (int64_t run = 0; run < o.runs; run++, advance(&o), in += o.inner)
        for (int64_t e = 0; e < o.inner; e++) {
            int64_t at = o.offset + e * step;
            attn__store(dtype, base, at, attn__load(dtype, base, at) + in[e]);
        }
}
