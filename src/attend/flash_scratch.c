/* SPDX-License-Identifier: MIT
 *
 * flash_scratch.c - divides one thread's memory.
 */
#include "attend/flash.h"

typedef struct pile {
    char *base;
    size_t used;
} pile;

/* `count` elements at the next multiple of 64 bytes. */
static void *take(pile *p, int64_t count, size_t size)
{
    void *at = p->base ? p->base + p->used : NULL;
    p->used += ((size_t)count * size + 63) / 64 * 64;
    return at;
}

static void take_queries(pile *p, const attn__flash *f, const attn__task *task, attn__flash_scratch *s)
{
    int64_t n = f->query_block;
    s->q = take(p, n * f->channels, sizeof(float));
    s->o = take(p, n * f->values, sizeof(float));
    s->q_pairs = take(p, f->pairs ? n * f->channel_pairs : 0, sizeof(uint32_t));
    s->m = take(p, n, sizeof(float));
    s->l = take(p, n, sizeof(float));
    s->shrink = take(p, n, sizeof(float));
    s->q_at = take(p, n, sizeof(int64_t));
    s->o_at = take(p, n, sizeof(int64_t));
    s->lse_at = take(p, n, sizeof(int64_t));
    s->bias_at = take(p, task->has_bias ? n : 0, sizeof(int64_t));
    s->mask_at = take(p, task->has_mask ? n : 0, sizeof(int64_t));
    s->row = take(p, task->has_dropout ? n : 0, sizeof(int64_t));
    s->key_low = take(p, task->has_dropout ? n : 0, sizeof(uint32_t));
    s->key_high = take(p, task->has_dropout ? n : 0, sizeof(uint32_t));
    s->span = take(p, f->subtiles, sizeof(attn__flash_span));
    for (int i = 0; i < f->nlimits; i++) {
        s->from[i] = take(p, n, sizeof(int32_t));
        s->to[i] = take(p, n, sizeof(int32_t));
    }
}

static void take_keys(pile *p, const attn__flash *f, const attn__task *task, attn__flash_scratch *s)
{
    int64_t n = f->key_block, square = n * f->tile->lanes * f->tile->vectors;
    s->s = take(p, square, sizeof(float));
    s->extra = take(p, task->has_bias || task->has_mask ? square : 0, sizeof(float));
    s->hidden = take(p, square, 1);
    s->k = take(p, f->pairs ? 0 : n * f->ldk, sizeof(float));
    s->k_pairs = take(p, f->pairs ? n * f->ld_pairs : 0, sizeof(uint32_t));
    s->v_pairs = take(p, f->pairs ? (n + 1) / 2 * f->ldv : 0, sizeof(uint32_t));
    s->p_pairs = take(p, f->pairs ? square : 0, sizeof(uint32_t));
    s->v = take(p, n * f->ldv, sizeof(float));
    s->k_at = take(p, n, sizeof(int64_t));
    s->v_at = take(p, n, sizeof(int64_t));
    s->key_bias_at = take(p, task->has_bias ? n : 0, sizeof(int64_t));
    s->key_mask_at = take(p, task->has_mask ? n : 0, sizeof(int64_t));
    s->column_at = take(p, task->has_dropout ? n : 0, sizeof(int64_t));
    s->column = take(p, task->has_dropout ? n : 0, sizeof(uint32_t));
    for (int i = 0; i < f->nlimits; i++)
        s->index[i] = take(p, n, sizeof(int32_t));
}

size_t attn__flash_divide(const attn__flash *flash, const attn__task *task, char *base, attn__flash_scratch *scratch)
{
    pile p = {base, 0};
    take_queries(&p, flash, task, scratch);
    take_keys(&p, flash, task, scratch);
    return p.used;
}
