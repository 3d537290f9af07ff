/* SPDX-License-Identifier: MIT
 *
 * flash_backward_plan.c - tile sizes, loop order and scratch memory of the fused backward solver.
 */
#include "attend/solve/flash_backward.h"
#include "base/integers.h"
#include "base/rng.h"
#include "base/constants.h"

#include <stdio.h>
#include <string.h>

enum {
    TILE_Q = 64,           /* or a quarter more; with a strip, S and dS: 48 KiB, read once while the rest streams */
    STRIP = 96,            /* a multiple of the widest register tile of every kernel */
    RESIDENT = 256 * 1024, /* bytes of dQ kept in scratch memory; twice as much beside AMX, ... */
    RESIDENT_BF16 = 2 * 1024 * 1024, /* ... and enough of bf16 that lengths of several thousand do without two passes */
    CELLS = 64,                      /* enough pieces for any number of threads */
    FEW_CELLS = 32,
    MANY_ITEMS = 8 /* batch items that keep most machines busy by themselves */
};

/* True if no axis of the group stands still for this operand: each element has a place of its own. */
static bool moves(const attn__group *group, size_t stride)
{
    for (int a = 0; a < group->n; a++) {
        int64_t step;
        memcpy(&step, (const char *)&group->axis[a] + stride, sizeof step);
        if (group->axis[a].dim.n > 1 && step == 0 && !group->axis[a].packed)
            return false;
    }
    return true;
}

typedef struct freedom {
    bool q, k;          /* chunks of queries (keys) never write the same element of any gradient */
    bool own_q, own_kv; /* each element of dq (of dk and dv) belongs to one batch item, row and channel */
} freedom;

static freedom find_freedom(const attn__canonical *canonical, unsigned want)
{
    bool q = !(want & ATTN__FLASH_BACKWARD_Q) || moves(&canonical->query, ATTN__STRIDE(dim.dq));
    bool k = !(want & ATTN__FLASH_BACKWARD_K) || moves(&canonical->key, ATTN__STRIDE(dim.dk));
    bool v = !(want & ATTN__FLASH_BACKWARD_V) || moves(&canonical->key, ATTN__STRIDE(dim.dv));
    freedom f = {.q = q, .k = k && v};
    f.own_q = q && (!(want & ATTN__FLASH_BACKWARD_Q) || (moves(&canonical->batch, ATTN__STRIDE(dim.dq)) &&
                                                         moves(&canonical->contract, ATTN__STRIDE(dim.dq))));
    f.own_kv = k && v &&
               (!(want & ATTN__FLASH_BACKWARD_K) ||
                (moves(&canonical->batch, ATTN__STRIDE(dim.dk)) && moves(&canonical->contract, ATTN__STRIDE(dim.dk))));
    f.own_kv = f.own_kv && (!(want & ATTN__FLASH_BACKWARD_V) || (moves(&canonical->batch, ATTN__STRIDE(dim.dv)) &&
                                                                 moves(&canonical->value, ATTN__STRIDE(dim.dv))));
    return f;
}

static void count_items(const attn__canonical *canonical, attn__flash_backward_plan *p)
{
    p->items = p->shared = 1;
    for (int a = 0; a < canonical->batch.n; a++)
        *(attn__flash_backward_is_shared(canonical, &canonical->batch.axis[a]) ? &p->shared : &p->items) *=
            canonical->batch.axis[a].dim.n;
}

/* The size of each of `parts` even parts of n, a multiple of `to`: a short last tile passes over the sums as often as a
 * whole one. */
static int64_t share(int64_t n, int64_t parts, int64_t to)
{
    return parts > 1 ? attn__round_up((n + parts - 1) / parts, to) : attn__round_up(n, to);
}

/* Where tiles and waves may not depend on lengths: of packed sequences none depends on the others'. */
static bool fixed_order(const attn__canonical *canonical)
{
    return canonical->extras & (ATTN__BATCH_INVARIANT | ATTN__PACKED);
}

/* The largest part of a block, or number of whole blocks, up to `most`; 0: there is none of the kind `step` wants. */
static int64_t fit(int64_t block, int64_t most, int64_t step)
{
    enum { LEAST = 32 };
    int64_t parts = (block + most - 1) / most, size = block % parts == 0 ? block / parts : 0;
    if (block < LEAST)
        size = attn__round_up(LEAST, block);
    return size <= most && size % step == 0 ? size : 0;
}

/* Tiles that see whole blocks of the mask or nothing, where sizes allow it. */
static void fit_blocks(attn__flash_backward_plan *p, const attn_blocks *blocks)
{
    int64_t rows = fit(blocks->queries, TILE_Q + TILE_Q / 4, 1), keys = fit(blocks->keys, STRIP, p->tile->lanes);
    p->tile_q = rows > 0 ? rows : p->tile_q;
    p->strip = keys > 0 ? keys : p->strip;
}

static void choose_tiles(const attn__canonical *canonical, attn__flash_backward_plan *p)
{
    int64_t lanes = p->tile->lanes;
    p->dp = attn__round_up(p->d, lanes);
    p->dvp = attn__round_up(p->dv, lanes);
    int64_t rows = share(p->nq, (p->nq + TILE_Q - TILE_Q / 4 - 1) / TILE_Q, p->tile->rows);
    p->tile_q = attn__most(1, attn__least(p->nq, rows));
    p->strip = attn__most(lanes, share(p->nk, (p->nk + STRIP - 1) / STRIP, lanes));
    if (fixed_order(canonical)) {
        p->tile_q = attn__round_up(TILE_Q, p->tile->rows);
        p->strip = STRIP;
    }
    if (canonical->has_blocks)
        fit_blocks(p, &canonical->problem.blocks);
    int64_t bytes = (int64_t)sizeof(float) * (3 * p->dp + 2 * p->dvp), room = (int64_t)canonical->caches.l2 / 2;
    p->block_k = attn__most(1, room / (bytes * p->strip)) * p->strip;
    p->block_k = attn__least(p->block_k, attn__most(1, (p->nk + p->strip - 1) / p->strip) * p->strip);
}

/* Whether different queries, and different keys, may add to the same number of the bias's gradient. */
static bool bias_meets(const attn__canonical *canonical, const attn__flash_backward_plan *p)
{
    return (p->want & ATTN__FLASH_BACKWARD_BIAS) && (canonical->extras & ATTN__BIAS_MEETS);
}

static int64_t resident(const attn__flash_backward_plan *p)
{
    return p->amx ? 2 * RESIDENT : RESIDENT;
}

/* Two passes over chunks of keys and chunks of queries: dQ of a chunk of queries fits the scratch memory. */
static void choose_passes(const attn__canonical *canonical, attn__flash_backward_plan *p, freedom f)
{
    bool bias = bias_meets(canonical, p) ||
                ((p->want & ATTN__FLASH_BACKWARD_BIAS) && !moves(&canonical->key, ATTN__STRIDE(dim.dbias)));
    int64_t room = attn__most(1, resident(p) / ((int64_t)sizeof(float) * p->dp * p->tile_q)) * p->tile_q;
    int64_t share = attn__round_up(p->items * p->nq / CELLS, p->tile_q);
    p->waves = 1;
    p->chunk_k = f.k && !bias ? p->block_k : attn__most(1, attn__round_up(p->nk, p->strip));
    p->chunk_q = f.q ? attn__least(room, attn__most(share, 4 * p->tile_q)) : attn__most(1, p->nq);
    p->resident_q = p->chunk_q <= room;
    p->chunks_q = attn__most(1, (p->nq + p->chunk_q - 1) / p->chunk_q);
    p->chunks_k = attn__most(1, (p->nk + p->chunk_k - 1) / p->chunk_k);
}

/* Each wave reads all operands and adds to all gradients once: as few as keep the machine busy. */
static int64_t count_waves(const attn__flash_backward_plan *p)
{
    int64_t n = attn__least(p->nq, p->nk), items = attn__most(1, p->items);
    return attn__most(n / 1024, items >= MANY_ITEMS ? 1 : attn__least(attn__pieces(FEW_CELLS, items), n / 256));
}

static void choose_waves(const attn__canonical *canonical, attn__flash_backward_plan *p, freedom f)
{
    bool bias = bias_meets(canonical, p) ||
                ((p->want & ATTN__FLASH_BACKWARD_BIAS) && !moves(&canonical->query, ATTN__STRIDE(dim.dbias)) &&
                 !moves(&canonical->key, ATTN__STRIDE(dim.dbias)));
    int64_t waves = count_waves(p);
    if (waves < 2 || p->bf16 || bias || !f.q || !f.k || fixed_order(canonical) ||
        (p->want & ATTN__FLASH_BACKWARD_TABLES)) /* one thread sums them over an item */
        waves = 1;
    p->chunk_q = attn__most(1, attn__round_up((p->nq + waves - 1) / waves, p->tile_q));
    p->chunk_k = attn__most(1, attn__round_up((p->nk + waves - 1) / waves, p->strip));
    p->waves = attn__most(1, attn__most((p->nq + p->chunk_q - 1) / p->chunk_q, (p->nk + p->chunk_k - 1) / p->chunk_k));
    int64_t room = p->bf16 ? RESIDENT_BF16 : resident(p);
    p->resident_q = p->chunk_q * p->dp * (int64_t)sizeof(float) <= room;
}

static void choose_order(const attn__canonical *canonical, attn__flash_backward_plan *p)
{
    freedom f = find_freedom(canonical, p->want);
    bool accumulate = canonical->problem.accumulate;
    choose_waves(canonical, p, f);
    bool only_q = p->want == ATTN__FLASH_BACKWARD_Q, only_others = !(p->want & ATTN__FLASH_BACKWARD_Q);
    bool small = p->resident_q && (p->items >= MANY_ITEMS || p->nq * p->nk < 128 * 128);
    p->two_pass = (only_q || only_others || (p->bf16 && !small)) && p->waves * p->items < CELLS;
    p->two_pass = p->two_pass || (p->bf16 && !small);
    if (p->two_pass)
        choose_passes(canonical, p, f);
    p->block_k = share(p->chunk_k, attn__pieces(p->chunk_k, p->block_k), p->strip);
    p->store_q = f.own_q && !accumulate && p->resident_q;
    p->store_kv = f.own_kv && !accumulate;
    p->clears =
        !accumulate && (((p->want & ATTN__FLASH_BACKWARD_Q) && !p->store_q) || (p->want & ATTN__FLASH_BACKWARD_BIAS) ||
                        ((p->want & (ATTN__FLASH_BACKWARD_K | ATTN__FLASH_BACKWARD_V)) && !p->store_kv));
}

/* ------------------------------------------------------------------------------------- scratch memory */

/* Points `m` into `memory` (NULL: only measures); returns the bytes used. */
static float *floats(attn__arena *arena, int64_t n)
{
    return attn__arena_take(arena, n, sizeof(float));
}

static int64_t *offsets(attn__arena *arena, int64_t n)
{
    return attn__arena_take(arena, n, sizeof(int64_t));
}

static void place_keys(const attn__flash_backward_plan *p, attn__arena *arena, attn__flash_backward_keys *m)
{
    bool apart = p->amx || p->pairs; /* f32 copies are for tiles with infinity or NaN alone */
    int64_t packed = apart ? p->strip : p->block_k, summed = p->amx ? p->ld_keys : p->block_k;
    m->kt = floats(arena, packed * p->ldk);
    m->vt = floats(arena, packed * p->ldv);
    m->k = floats(arena, p->block_k * p->ldk);
    m->dk = floats(arena, summed * p->ldk);
    m->dv = floats(arena, summed * p->ldv);
    m->v = apart ? floats(arena, p->block_k * p->ldv) : m->dv; /* needed as rows only until they are transposed */
    m->dk_rows = p->amx ? m->k : m->dk;                        /* keys and values are, until their block is done */
    m->dv_rows = p->amx ? m->v : m->dv;
}

static void place_offsets(const attn__flash_backward_plan *p, attn__arena *arena, attn__flash_backward_scratch *m)
{
    attn__flash_backward_query_at *q = &m->query_at;
    attn__flash_backward_key_at *k = &m->key_at;
    int64_t **const rows[] = {&q->q,    &q->dq,    &q->o,    &q->dout, &q->lse,
                              &q->bias, &q->dbias, &q->mask, &q->lens, &q->block};
    int64_t **const keys[] = {&k->k, &k->dk, &k->v, &k->dv, &k->bias, &k->dbias, &k->mask, &k->block};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = offsets(arena, p->tile_q);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        *keys[i] = offsets(arena, p->block_k);
    m->q_index = offsets(arena, ATTN_MAX_BANDS * p->tile_q);
    m->k_index = offsets(arena, (ATTN_MAX_BANDS + 1) * p->block_k);
    for (int i = 0; i < ATTN__FLASH_BACKWARD_STREAMS; i++) {
        m->prefetch_at[ATTN__FLASH_BACKWARD_TILES][i] = offsets(arena, p->tile_q);
        m->prefetch_at[ATTN__FLASH_BACKWARD_BLOCKS][i] = offsets(arena, p->block_k);
    }
}

size_t attn__flash_backward_scratch_place(const attn__flash_backward_plan *p, void *memory,
                                          attn__flash_backward_scratch *m)
{
    attn__arena arena = {memory, 0};
    m->s = floats(&arena, p->tile_q * p->strip);
    m->ds = floats(&arena, p->tile_q * p->strip);
    m->q = floats(&arena, p->tile_q * p->ldk);
    m->dout = floats(&arena, p->tile_q * p->ldv);
    place_keys(p, &arena, &m->keys);
    m->dq = floats(&arena, attn__round_up(p->resident_q ? p->chunk_q : p->tile_q, ATTN__BF16X3_DEPTH) * p->ldk);
    m->row = floats(&arena, p->dvp);
    m->bias = floats(&arena, p->has_bias ? p->tile_q * p->strip : 0);
    m->dbias = p->softcap != 0.0f && p->has_bias ? floats(&arena, p->tile_q * p->strip) : m->ds;
    m->lse = floats(&arena, p->tile_q);
    m->delta = floats(&arena, p->tile_q);
    m->fill = floats(&arena, p->tile_q);
    m->kept = floats(&arena, p->resident_q ? p->chunk_q : 0);
    m->known = attn__arena_take(&arena, p->resident_q ? attn__pieces(p->chunk_q, p->tile_q) : 0, 1);
    m->mask = attn__arena_take(&arena, p->tile_q * p->strip, 1);
    m->alive = attn__arena_take(&arena, p->tile_q * p->strip, 1);
    m->from = attn__arena_take(&arena, p->tile_q, sizeof(int32_t));
    m->to = attn__arena_take(&arena, p->tile_q, sizeof(int32_t));
    m->drop_key = attn__arena_take(&arena, p->tile_q, sizeof(uint64_t));
    m->drop_column = attn__arena_take(&arena, p->block_k, sizeof(int32_t));
    place_offsets(p, &arena, m);
    attn__flash_backward_tables_place(p, &arena, m);
    if (p->pairs)
        attn__flash_backward_pairs_place(p, &arena, &m->pairs);
    if (p->amx)
        arena.used += attn__flash_backward_amx_place(p, memory ? (char *)memory + arena.used : NULL, &m->parts);
    return arena.used;
}

/* The offsets of an operand's channels, written to *room, or NULL where they are neighbours. */
static const int64_t *channels(const attn__group *group, size_t stride, int64_t **room)
{
    int64_t *at = *room;
    if (attn__offsets_adjacent(group, stride))
        return NULL;
    attn__offsets_fill(group, stride, 0, group->size, at);
    *room += group->size;
    return at;
}

static void find_channels(const attn__canonical *canonical, attn__flash_backward_plan *p)
{
    int64_t *room = (int64_t *)(void *)(p + 1);
    p->channels.q = channels(&canonical->contract, ATTN__STRIDE(dim.q), &room);
    p->channels.k = channels(&canonical->contract, ATTN__STRIDE(dim.k), &room);
    p->channels.dq = channels(&canonical->contract, ATTN__STRIDE(dim.dq), &room);
    p->channels.dk = channels(&canonical->contract, ATTN__STRIDE(dim.dk), &room);
    p->channels.v = channels(&canonical->value, ATTN__STRIDE(dim.v), &room);
    p->channels.o = channels(&canonical->value, ATTN__STRIDE(dim.o), &room);
    p->channels.dv = channels(&canonical->value, ATTN__STRIDE(dim.dv), &room);
    p->channels.dout = channels(&canonical->value, ATTN__STRIDE(dim.dout), &room);
    attn__flash_backward_tables_channels(p, canonical, room);
}

static unsigned wanted(unsigned with)
{
    return (with & ATTN_WANT_DQ ? ATTN__FLASH_BACKWARD_Q : 0u) | (with & ATTN_WANT_DK ? ATTN__FLASH_BACKWARD_K : 0u) |
           (with & ATTN_WANT_DV ? ATTN__FLASH_BACKWARD_V : 0u) |
           (with & ATTN_WANT_DBIAS ? ATTN__FLASH_BACKWARD_BIAS : 0u) |
           (with & ATTN_WANT_DTABLES ? ATTN__FLASH_BACKWARD_TABLES : 0u);
}

void attn__flash_backward_plan_start(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    p->tile = attn__gemm_tile_for(canonical->isa);
    p->backward = attn__softmax_backward_for(p->tile->isa);
    p->lanes = attn__online_softmax_for(p->tile->isa);
    p->score_scale = (float)(canonical->problem.scale * ATTN__LOG2E);
    p->softcap = (float)(canonical->problem.softcap * ATTN__LOG2E);
    p->nq = canonical->query.size;
    p->nk = canonical->key.size;
    p->d = canonical->contract.size;
    p->dv = canonical->value.size;
    p->want = wanted(canonical->problem.flags);
    p->bf16 = canonical->problem.dtype == ATTN_BF16;
    p->row_step = 1;
    p->has_bias = canonical->has_bias;
    p->drop_below = attn__dropout_threshold(canonical->problem.dropout);
    p->drop_scale = (float)(1.0 / (1.0 - canonical->problem.dropout));
    count_items(canonical, p);
}

/* Packed sequences that one cell does not run one after another. */
static int64_t independent_sequences(const attn__canonical *canonical)
{
    int64_t n = 1;
    for (int a = 0; a < canonical->batch.n; a++) {
        const attn__axis *axis = &canonical->batch.axis[a];
        if (axis->packed && axis->dim.n > 1 && !attn__flash_backward_is_shared(canonical, axis))
            n = axis->dim.n;
    }
    return n;
}

/* Floats from one row of an operand to the next.  A register tile reads few columns of 64 to 96 rows; at strides of
 * 256 bytes or a multiple of them these would share few sets of the first cache. */
static int64_t row_length(const attn__flash_backward_plan *p, int64_t channels)
{
    enum { STRIDE = 64, LINE = 16 };
    return !p->amx && channels % STRIDE == 0 ? channels + LINE : channels;
}

/* The order for a packed sequence is the one that it has alone, and so are its bits. */
static void choose(attn__flash_backward_plan *p, const attn__canonical *canonical)
{
    int64_t sequences = independent_sequences(canonical);
    attn__flash_backward_plan_start(p, canonical);
    p->items /= sequences;
    choose_tiles(canonical, p);
    if (canonical->problem.nrelatives == 0) { /* their products are in f32, on vectors */
        attn__flash_backward_amx_choose(p, canonical);
        attn__flash_backward_pairs_choose(p, canonical);
    }
    p->row_step = p->amx ? ATTN__BF16X3_DEPTH : p->pairs ? 2 : p->row_step;
    p->ldk = row_length(p, p->dp);
    p->ldv = row_length(p, p->dvp);
    choose_order(canonical, p);
    p->items *= sequences;
    p->ld_keys = attn__round_up(p->block_k, ATTN__BF16X3_DEPTH) + ATTN__BF16X3_SIDE; /* rows apart in the first cache */
    attn__flash_backward_tables_choose(p, canonical);
}

/* Waves add to every gradient once a step, and dQ that does not stay in scratch memory once a block of keys. */
unsigned attn__flash_backward_adds_often(const attn__canonical *canonical)
{
    attn__flash_backward_plan p = {0};
    choose(&p, canonical);
    if (p.waves > 1)
        return ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    return p.resident_q || p.nk <= p.block_k ? 0u : ATTN_WANT_DQ;
}

attn_status attn__flash_backward_plan_make(attn_context *context, const attn__canonical *canonical,
                                           attn__recipe *recipe)
{
    int64_t channels_held = (4 + canonical->problem.nrelatives) * (canonical->contract.size + canonical->value.size);
    attn__flash_backward_plan *p = attn__alloc_zero(context, sizeof *p + (size_t)channels_held * sizeof(int64_t));
    if (!p)
        return ATTN_ERROR_MEMORY;
    choose(p, canonical);
    find_channels(canonical, p);
    attn__flash_backward_scratch unused;
    p->thread_bytes = attn__flash_backward_scratch_place(p, NULL, &unused);
    recipe->workspace = attn__size_mul(p->thread_bytes, (size_t)canonical->threads);
    if (p->want & ATTN__FLASH_BACKWARD_TABLES)
        recipe->workspace = attn__size_add(recipe->workspace, attn__slots_size(canonical));
    recipe->data = p;
    snprintf(recipe->text, sizeof recipe->text, "%s, %lld queries x %lld keys in blocks of %lld, %s %lld",
             attn__isa_text(p->amx ? p->amx->isa : p->tile->isa), (long long)p->tile_q, (long long)p->strip,
             (long long)p->block_k, p->two_pass ? "chunks" : "waves",
             (long long)(p->two_pass ? p->chunks_q * p->chunks_k : p->waves));
    return ATTN_OK;
}
