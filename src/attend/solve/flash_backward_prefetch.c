/* SPDX-License-Identifier: MIT
 *
 * flash_backward_prefetch.c - prefetches the next rows into the second cache, a few lines between tile products: the
 * rows of one head may lie pages apart, where the hardware prefetcher does not follow.
 */
#include "attend/solve/flash_backward.h"

#include "base/integers.h"

enum { MATRIX = 4 }; /* smallest number of portions of a strip on AMX */

/* Register tiles of the products of `tiles` tiles of queries with the whole block. */
static int64_t portions(const attn__flash_backward_run *run, int64_t tiles)
{
    const attn__flash_backward_plan *p = run->plan;
    if (p->amx)
        return attn__most(1, tiles * MATRIX * ((run->block_n + p->strip - 1) / p->strip));
    int64_t rows = run->tile_n, products = run->want & ATTN__FLASH_BACKWARD_V ? p->dv : 0;
    products += rows + (run->want & ~(unsigned)ATTN__FLASH_BACKWARD_V ? rows : 0);
    products += run->want & ATTN__FLASH_BACKWARD_K ? p->d : 0;
    int64_t sums = run->block_n * products;
    sums += run->want & ATTN__FLASH_BACKWARD_Q ? rows * p->d * ((run->block_n + p->strip - 1) / p->strip) : 0;
    return attn__most(1, tiles * sums / (p->tile->rows * p->tile->vectors * p->tile->lanes));
}

typedef struct rows {
    const void *base;
    const attn__group *group;
    size_t stride;
    int64_t offset, begin, n;
    const int64_t *scattered; /* channels that are not neighbours are left to the machine */
    int64_t channels;
} rows;

static void want(attn__flash_backward_run *run, int which, const rows r[ATTN__FLASH_BACKWARD_STREAMS],
                 int64_t portion_count)
{
    int64_t size = run->plan->bf16 ? 2 : 4;
    attn__prefetch *prefetch = &run->prefetch[which];
    attn__prefetch_clear(prefetch);
    for (int i = 0; i < ATTN__FLASH_BACKWARD_STREAMS; i++) {
        if (r[i].scattered || r[i].n <= 0)
            continue;
        attn__flash_backward_walk(r[i].group, r[i].stride, r[i].begin, r[i].n, r[i].offset,
                                  run->m.prefetch_at[which][i]);
        attn__prefetch_add(prefetch, r[i].base, size, run->m.prefetch_at[which][i], r[i].n, r[i].channels * size);
    }
    attn__prefetch_divide(prefetch, portion_count);
}

/* The tile after this one, or the first one again for the next block of keys, or the next cell's first; and where its
 * dQ goes. */
void attn__flash_backward_next_tile(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_channels *c = &plan->channels;
    const attn_arrays *x = run->arrays;
    const attn__group *query = &run->canonical->query;
    const attn_dim *at = &run->item.at, *next = at;
    bool last = run->tile + run->tile_n >= run->q_end, end = run->block + plan->block_k >= run->k_end;
    bool writes = (run->want & ATTN__FLASH_BACKWARD_Q) && (end || !plan->resident_q);
    int64_t begin = last ? run->q_begin : run->tile + run->tile_n;
    int64_t n = (last && end) || begin == run->tile ? 0 : attn__least(plan->tile_q, run->q_end - begin);
    if (last && end && run->has_next) {
        next = &run->next.at;
        begin = run->next_q;
        n = attn__least(plan->tile_q, plan->nq - begin);
    }
    const rows wanted[] = {
        {x->dq, query, ATTN__STRIDE(dim.dq), at->dq, run->tile, writes ? run->tile_n : 0, c->dq, plan->d},
        {x->q, query, ATTN__STRIDE(dim.q), next->q, begin, n, c->q, plan->d},
        {x->dout, query, ATTN__STRIDE(dim.dout), next->dout, begin, n, c->dout, plan->dv},
        {x->o, query, ATTN__STRIDE(dim.o), next->o, begin, n, c->o, plan->dv},
    };
    want(run, ATTN__FLASH_BACKWARD_TILES, wanted, portions(run, 1));
}

/* The keys and values of the next block, or of the next cell's first one, and where this one's gradients go. */
void attn__flash_backward_next_block(attn__flash_backward_run *run)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_channels *c = &plan->channels;
    const attn_arrays *x = run->arrays;
    const attn__group *key = &run->canonical->key;
    const attn_dim *at = &run->item.at, *next = at;
    int64_t begin = run->block + plan->block_k, n = attn__least(plan->block_k, run->k_end - begin);
    int64_t dk_n = run->want & ATTN__FLASH_BACKWARD_K ? run->block_n : 0,
            dv_n = run->want & ATTN__FLASH_BACKWARD_V ? run->block_n : 0;
    if (n <= 0 && run->has_next) {
        next = &run->next.at;
        begin = run->next_k;
        n = attn__least(plan->block_k, plan->nk - begin);
    }
    const rows wanted[] = {
        {x->dk, key, ATTN__STRIDE(dim.dk), at->dk, run->block, dk_n, c->dk, plan->d},
        {x->dv, key, ATTN__STRIDE(dim.dv), at->dv, run->block, dv_n, c->dv, plan->dv},
        {x->k, key, ATTN__STRIDE(dim.k), next->k, begin, n, c->k, plan->d},
        {x->v, key, ATTN__STRIDE(dim.v), next->v, begin, n, c->v, plan->dv},
    };
    want(run, ATTN__FLASH_BACKWARD_BLOCKS, wanted,
         portions(run, (run->q_end - run->tile + plan->tile_q - 1) / plan->tile_q));
}

void attn__flash_backward_prefetch_portion(void *with)
{
    attn__flash_backward_run *run = with;
    for (int i = 0; i < ATTN__FLASH_BACKWARD_PREFETCHES; i++)
        attn__prefetch_portion(&run->prefetch[i]);
}
