/* SPDX-License-Identifier: MIT
 * One number for everything about a problem that a solver's speed may depend on. */
#include "attend/plan/plan.h"

#include "attend/problem/operand.h"
#include "base/rng.h"

static void mix(uint64_t *hash, int64_t x)
{
    *hash = attn__mix64(*hash ^ (uint64_t)x);
}

static void mix_group(uint64_t *hash, const attn__group *group)
{
    mix(hash, group->n);
    for (int i = 0; i < group->n; i++) {
        mix(hash, group->axis[i].dim.n);
        for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
            mix(hash, attn__stride(&group->axis[i].dim, op));
    }
}

static void mix_features(uint64_t *hash, const attn_problem *p)
{
    const int64_t plain[] = {p->dtype,       p->direction,  p->score,       p->normalization, p->flags,
                             p->nbands,      p->nwindows,   p->npicks,      p->nrelatives,    p->mask_fill != 0,
                             p->dropout > 0, p->accumulate, p->softcap != 0};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        mix(hash, plain[i]);
    for (int i = 0; i < p->nbands; i++)
        mix(hash, p->bands[i].lo), mix(hash, p->bands[i].hi);
    for (int i = 0; i < p->nwindows; i++) {
        const attn_window *w = &p->windows[i];
        mix(hash, w->size), mix(hash, w->step), mix(hash, w->dilation);
        mix(hash, w->offset), mix(hash, w->border);
    }
    if (p->flags & ATTN_WITH_PACKED)
        mix(hash, p->packed.queries), mix(hash, p->packed.keys), mix(hash, p->packed.align_ends);
    if (p->flags & ATTN_WITH_BLOCKS)
        mix(hash, p->blocks.queries), mix(hash, p->blocks.keys);
    for (int i = 0; i < p->nrelatives; i++)
        mix(hash, p->relatives[i].kind), mix(hash, p->relatives[i].rows);
}

uint64_t attn__canonical_signature(const attn__canonical *canonical)
{
    uint64_t hash = 1;
    mix_features(&hash, &canonical->problem);
    mix_group(&hash, &canonical->batch);
    mix_group(&hash, &canonical->query);
    mix_group(&hash, &canonical->key);
    mix_group(&hash, &canonical->contract);
    mix_group(&hash, &canonical->value);
    mix(&hash, canonical->extras & ATTN__BATCH_INVARIANT);
    mix(&hash, canonical->threads);
    mix(&hash, (int64_t)canonical->isa);
    return hash;
}
