/* SPDX-License-Identifier: MIT
 *
 * small_head.c - attention with heads of at most 16 channels, and its gradients.
 *
 * Several such heads share a cache line.  Along a strided axis, lines are pages apart and compete for one set of the L2
 * cache. A line should therefore be read only once.  A work item is a group of heads that are adjacent in memory. Whole
 * rows of the group are copied to a staging buffer, and each head is packed from there. Outputs are written through the
 * buffer too.  Forward, an item has a block of queries, and queries are the lanes.  Backward, an item has all queries
 * and keys, and keys are the lanes. If these do not fit in a thread's memory, flash_backward is used.  Each head's
 * gradients are complete at the end of its item, so two items never write the same element.
 *
 * Forward, the products of an item prefetch the rows of the next item. Without prefetching, waiting for memory would
 * take a quarter of the time, because each element is used in few products.  If rows are a multiple of a page apart,
 * the L2 cache only holds about thirty of them. Prefetched rows are then copied to staging buffers at once.
 *
 * If nothing masks or changes scores, a single kernel computes both products.  Otherwise each product has a kernel, and
 * a tile of scores or a square of weights is changed in between. All heads of the group have the same masks.
 */
#include "attend/block/dropout.h"
#include "attend/block/finite.h"
#include "attend/block/items.h"
#include "attend/block/prefetch.h"
#include "attend/block/rows.h"
#include "attend/block/scores.h"
#include "attend/block/tile.h"
#include "attend/plan/solver.h"
#include "attend/block/gradient_sums.h"
#include "base/arena.h"
#include "base/constants.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "kernels/online_softmax/online_softmax.h"
#include "kernels/small_head/small_head.h"
#include "kernels/softmax_backward/softmax_backward.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limit of queries and of keys in the backward pass. */
enum { MOST_ROWS = 1024, STEP = ATTN__SMALL_HEAD_STEP };

/* Operands with rows. The forward pass has the first four, and the backward pass has all. */
static const attn__operand operands[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                         ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
enum { FORWARD = 4, ALL = 8 };

static int64_t most_channels(const attn__canonical *canonical)
{
    return attn__max(canonical->contract.size, canonical->value.size);
}

/* Returns an index i of kernels. 4 << i is the number of channels to which q, k, v and o are padded. */
static int size_of(const attn__canonical *canonical)
{
    int64_t most = most_channels(canonical);
    return most <= 4 ? 0 : most <= 8 ? 1 : 2;
}

static const char *refuse_both(const attn__canonical *canonical)
{
    if (most_channels(canonical) > ATTN__SMALL_HEAD_MOST)
        return "supports heads of at most 16 channels";
    const char *unusual = attn__refuse_unusual(canonical, ATTN__SOFTMAX_ONLY);
    if (unusual)
        return unusual;
    return canonical->problem.nrelatives ? "does not support relative tables" : NULL;
}

static bool is_plain(const attn__canonical *canonical, const attn__visible *visible)
{
    return !attn__visible_masks(visible) && !canonical->has_bias && !canonical->has_dropout &&
           canonical->problem.softcap == 0 && !(canonical->extras & ATTN__SINKS);
}

/* Reports whether neighbours along the last batch axis are adjacent in these operands and share their masks. */
static bool joins(const attn__canonical *canonical, size_t n)
{
    const attn__axis *head = &canonical->batch.axis[canonical->batch.n - 1];
    if (canonical->batch.n == 0 || head->packed || (canonical->has_mask && head->dim.mask != 0) ||
        (canonical->has_blocks && head->dim.blocks != 0) || (canonical->has_lens && head->dim.lens != 0))
        return false;
    for (size_t i = 0; i < n; i++)
        if (attn__stride(&head->dim, operands[i]) != attn__channels_of(canonical, operands[i])->size)
            return false;
    return attn__channels_adjacent(canonical, operands, n);
}

/* Returns the largest divisor of the last batch axis whose heads fit in `columns` channels and give at least `items`
 * items. */
static int64_t heads_together(const attn__canonical *canonical, size_t n_operands, int64_t columns, int64_t items)
{
    if (!joins(canonical, n_operands))
        return 1;
    int64_t n = canonical->batch.axis[canonical->batch.n - 1].dim.n, heads = 1;
    for (int64_t i = 2; i <= n && i * most_channels(canonical) <= columns; i++)
        if (n % i == 0 && canonical->batch.size / i >= items)
            heads = i;
    return heads;
}

/* ----------------------------------------------------------------------------- the plan, the memory of a thread */

typedef struct small_plan {
    const attn__small_head_kernel *kernel;
    attn__tile_plan tiles;
    const attn__softmax_backward_kernel *backward; /* NULL in the forward pass */
    int size;                                      /* index in the kernel's tables, see size_of */
    int64_t channels;                              /* channels of q, k, v and o with padding */
    int64_t width;                                 /* forward: queries of one call; backward: keys of a square */
    int64_t heads;                                 /* heads of a group, adjacent along the last batch axis */
    int64_t stage_ld;
    bool plain;                                   /* nothing changes the scores or weights, see is_plain */
    int64_t query_block, query_blocks, key_block; /* backward: one block has all rows, with padding */
    int64_t step;                                 /* forward: keys of a tile of scores; backward: queries of a square */
    bool keeps;                                   /* rows are copied when they are prefetched, see keeps_rows */
    const int64_t *column[ATTN__OPERANDS];        /* forward: offsets of the elements of a staged row; NULL: adjacent */
    int64_t tables[];
} small_plan;

enum { ROWS_OF_Q, ROWS_OF_K, ROWS_OF_V, KEPT };

/* Identifies the rows that were prefetched and copied: the item's number, or -1 if there are none, and the first
 * key. */
typedef struct kept_rows {
    int64_t index, at;
} kept_rows;

typedef struct scratch {
    float *stage; /* [rows][heads * channels] */
    float *q;     /* [heads][channels][query_block]; backward [heads][query_block][channels] */
    float *k;     /* [heads][key_block][channels] */
    float *p;     /* [step][width]: scores, then weights */
    float *factor;
    int64_t *at, *stage_at;
    attn__tile_rows rows;
    /* The following fields are for the forward pass. */
    kept_rows *kept;        /* queries are valid only if `at` is 0 */
    float *kept_rows[KEPT]; /* shaped like `stage` */
    float *o;               /* [heads][channels][query_block] */
    float *v;               /* shaped like `k` */
    float *reach;           /* [heads][channels]: max |k| over the keys of the block */
    /* The following fields are for the backward pass. */
    float *o_stage;           /* shaped like `stage` */
    float *dout;              /* shaped like `q` */
    float *kt, *vt, *dk, *dv; /* [heads][channels][key_block] */
    float *dq;                /* [heads][channels][query_block] */
    float *ds, *transposed;   /* shaped like `p` */
    /* The following fields are for problems that are not plain, and backward also for numbers that are not finite. */
    attn__visible_rows see;
    attn__tile_keys keys;
    float *bias;                   /* bias of a tile, shaped like `p` */
    uint8_t *fades;                /* forward, [heads][query_block]: see attn__finite_fades */
    uint8_t *alive;                /* 1 for pairs whose weight is used, shaped like `p` */
    float *flags;                  /* forward: 0 for masked pairs, shaped like `p`; NULL if there is no mask of bytes */
    int64_t *bad, *nbad, *bad_now; /* forward: keys with values that are not finite; their number; those of a tile */
    uint8_t *mask;                 /* backward: visible pairs, shaped like `p` */
    float *dbias;                  /* backward: gradients of the bias after a softcap, shaped like `p`; or NULL */
} scratch;

static const char *refuse(const attn__canonical *canonical)
{
    return canonical->backward ? "supports forward only" : refuse_both(canonical);
}

/* Estimates the time. Padded channels take time, but empty lanes take no more than in a tile of flash.  With 16
 * channels and long rows, flash is a few percent faster, because it loads less. */
static double cost(const attn__canonical *canonical)
{
    int64_t padded = 4 << size_of(canonical);
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    bool long_rows = padded == 16 && canonical->key.size >= 192;
    return pairs * (long_rows ? 1.03 * (double)(canonical->contract.size + canonical->value.size) : (double)padded);
}

/* Reports whether prefetched rows are copied: they have whole cache lines and are a multiple of a page apart. */
static bool keeps_rows(const small_plan *t, const attn__canonical *canonical)
{
    enum { LINE = 16, PAGE = 1024 }; /* in floats */
    const attn_dim *query = &canonical->query.axis[0].dim, *key = &canonical->key.axis[0].dim;
    bool whole = t->heads * canonical->contract.size % LINE == 0 && t->heads * canonical->value.size % LINE == 0;
    return canonical->problem.dtype == ATTN_F32 && whole && canonical->query.n == 1 && canonical->key.n == 1 &&
           query->q != 0 && query->q % PAGE == 0 && key->k % PAGE == 0 && key->v % PAGE == 0 &&
           !t->column[ATTN__OP_Q] && !t->column[ATTN__OP_K] && !t->column[ATTN__OP_V] && !attn__is_packed(canonical);
}

/* At these sizes, a thread's memory stays in the L2 cache, and a tile of scores in the L1 cache. */
enum { COLUMNS = 64, ROWS = 256, TILE = 2048 };

static void fill_forward(small_plan *t, const attn__canonical *canonical)
{
    int64_t queries = canonical->query.size;
    t->heads = heads_together(canonical, FORWARD, COLUMNS, 1);
    t->key_block = attn__min(canonical->key.size, ROWS);
    t->query_blocks = attn__ceil_div(queries, ROWS);
    t->query_block = attn__round_up(attn__ceil_div(queries, t->query_blocks), t->width);
    t->query_blocks = attn__ceil_div(queries, t->query_block);
    attn__channels_find(canonical, operands, FORWARD, t->column, t->tables);
    t->keeps = keeps_rows(t, canonical);
    t->step = t->plain ? STEP : attn__min(ROWS, attn__max(STEP, TILE / t->width));
}

static void fill_backward(small_plan *t, const attn__canonical *canonical)
{
    enum { COLUMNS_BACKWARD = 128, ITEMS = 32 }; /* ITEMS: number of items that gives work to all threads */
    t->backward = attn__softmax_backward_for(canonical->isa);
    t->heads = heads_together(canonical, ALL, COLUMNS_BACKWARD, ITEMS);
    t->query_blocks = 1;
    t->query_block = attn__round_up(canonical->query.size, STEP);
    t->key_block = attn__round_up(canonical->key.size, t->width);
    t->step = STEP;
}

static void take_forward(const small_plan *t, attn__arena *p, scratch *s)
{
    int64_t rows = attn__max(t->query_block, t->key_block), queries = t->heads * t->query_block,
            keys = t->heads * t->key_block, tile = t->plain ? 0 : t->step * t->width;
    bool flags = t->tiles.visible.mask || t->tiles.visible.blocks;
    s->kept = attn__arena_take(p, 1, sizeof *s->kept);
    for (int i = 0; i < KEPT; i++)
        s->kept_rows[i] = attn__arena_floats(p, t->keeps ? rows * t->stage_ld : 0);
    s->o = attn__arena_floats(p, queries * t->channels);
    attn__tile_lanes_take(&s->rows, &t->tiles, p, t->heads, t->query_block);
    s->v = attn__arena_floats(p, keys * t->channels);
    s->reach = attn__arena_floats(p, t->heads * t->channels);
    s->flags = flags ? attn__arena_floats(p, tile) : NULL;
    s->bad = attn__arena_offsets(p, t->plain ? 0 : keys);
    s->nbad = attn__arena_offsets(p, t->heads);
    s->bad_now = attn__arena_offsets(p, t->step);
}

static void take_backward(const small_plan *t, attn__arena *p, scratch *s)
{
    int64_t queries = t->heads * t->query_block, keys = t->heads * t->key_block, square = t->step * t->width;
    float **const by_query[] = {&s->dout, &s->dq}, **const by_key[] = {&s->kt, &s->vt, &s->dk, &s->dv};
    s->o_stage = attn__arena_floats(p, t->query_block * t->stage_ld);
    for (int i = 0; i < 2; i++)
        *by_query[i] = attn__arena_floats(p, queries * t->channels);
    for (int i = 0; i < 4; i++)
        *by_key[i] = attn__arena_floats(p, keys * t->channels);
    attn__tile_rows_take(&s->rows, &t->tiles, p, t->heads, t->query_block);
    s->ds = attn__arena_floats(p, square);
    s->transposed = attn__arena_floats(p, square);
    s->mask = attn__arena_take(p, square, 1);
    s->dbias = t->tiles.wants_dbias && t->tiles.softcap != 0.0f ? attn__arena_floats(p, square) : NULL;
}

/* Divides `base` into arrays and returns the bytes used. If `base` is NULL, it only counts bytes. */
static size_t divide(const small_plan *t, const attn__canonical *canonical, char *base, scratch *s)
{
    attn__arena p = {base, 0};
    int64_t rows = attn__max(t->query_block, t->key_block), tile = t->step * t->width;
    s->stage = attn__arena_floats(&p, rows * t->stage_ld);
    s->q = attn__arena_floats(&p, t->heads * t->query_block * t->channels);
    s->k = attn__arena_floats(&p, t->heads * t->key_block * t->channels);
    s->p = attn__arena_floats(&p, tile);
    s->factor = attn__arena_floats(&p, rows);
    s->at = attn__arena_offsets(&p, rows);
    s->stage_at = attn__arena_offsets(&p, rows);
    (t->backward ? take_backward : take_forward)(t, &p, s);
    if (t->plain && !t->backward)
        return p.used;
    attn__visible_rows_take(&s->see, &t->tiles.visible, &p, t->tiles.masks ? t->query_block : 0, ATTN__VISIBLE_ANY);
    attn__tile_keys_take(&s->keys, &t->tiles, &p, t->key_block);
    s->bias = attn__arena_floats(&p, canonical->has_bias ? tile : 0);
    s->alive = attn__arena_take(&p, tile, 1);
    s->fades = attn__arena_take(&p, t->tiles.visible.fills ? t->heads * t->query_block : 0, 1);
    return p.used;
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    size_t columns = 2 * (size_t)(canonical->contract.size + canonical->value.size);
    small_plan *t = attn__alloc_zero(context, sizeof *t + columns * sizeof(int64_t));
    if (!t)
        return ATTN_ERROR_MEMORY;
    t->kernel = attn__small_head_for(canonical->isa);
    t->tiles = attn__tile_plan_of(canonical, canonical->isa);
    t->size = size_of(canonical);
    t->channels = 4 << t->size;
    t->width = t->kernel->width[t->size];
    t->plain = is_plain(canonical, &t->tiles.visible);
    (canonical->backward ? fill_backward : fill_forward)(t, canonical);
    t->stage_ld = attn__round_up(t->heads * most_channels(canonical), 16);
    recipe->data = t;
    scratch unused;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, divide(t, canonical, NULL, &unused));
    int written = snprintf(recipe->text, sizeof recipe->text, "%s heads of %d, %d together",
                           attn__isa_text(t->kernel->isa), (int)t->channels, (int)t->heads);
    if (!canonical->backward)
        snprintf(recipe->text + written, sizeof recipe->text - (size_t)written, ", blocks of %d queries x %d keys",
                 (int)t->query_block, (int)t->key_block);
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------------------------- an item, its rows */

typedef struct item {
    const attn__canonical *canonical; /* problem and arrays of the item or of its packed sequence */
    const small_plan *plan;
    const attn__execution *arrays;
    scratch s;
    int64_t batch; /* batch index of the group's first head */
    int64_t index;
    int64_t first, count, padded; /* first query; number of queries, exact and padded */
    int64_t keys;                 /* number of keys with padding */
    const float *stage;           /* the staged rows, which are s.stage or kept rows */
    bool finite;                  /* backward: all inputs are finite */
    bool careful;                 /* forward: some value of the block is not finite, and its key may be masked */
    bool fills_nonfinite;         /* forward: such a value may have been added with the weight of a mask_fill */
    bool fades;                   /* forward: s.fades is known, and some query fades */
    attn__tile tile;              /* of scores that change, see see_changed_keys and run_squares */
    attn__prefetch prefetch;
} item;

/* Copies rows [from, from + rows) of all heads of the group, as f32. Returns false if a number is not finite. */
static bool stage_rows(const item *t, attn__operand op, int64_t from, int64_t rows, float *stage)
{
    const small_plan *n = t->plan;
    attn__operand_offsets(t->canonical, op, t->batch, from, rows, t->s.at);
    return n->tiles.lanes->copy(attn__operand_array(t->arrays, op), t->canonical->problem.dtype, t->s.at, n->column[op],
                                rows, n->heads * attn__channels_of(t->canonical, op)->size, stage, n->stage_ld);
}

/* Clears the panels if they have padding, because padding must be 0. */
static void begin_panels(const small_plan *n, int64_t rows, int64_t padded, int64_t channels, float *panel)
{
    if (rows < padded || channels < n->channels)
        memset(panel, 0, (size_t)(n->heads * padded * n->channels) * sizeof *panel);
}

/* Multiplies rows of a head by `factor`. Inlining lets the compiler vectorize it for a constant number of channels. */
static inline __attribute__((always_inline)) void scale_head(const float *restrict in, int64_t ld, int64_t rows,
                                                             int64_t channels, float factor, float *restrict out,
                                                             int64_t out_ld)
{
    for (int64_t i = 0; i < rows; i++, in += ld, out += out_ld)
        for (int64_t c = 0; c < channels; c++)
            out[c] = factor * in[c];
}

/* Packs each head's part of the staged rows times `factor`. A panel has `padded` rows, and padding is 0. */
static void pack_rows(const item *t, int64_t rows, int64_t padded, int64_t channels, float factor, float *panel)
{
    const small_plan *n = t->plan;
    begin_panels(n, rows, padded, channels, panel);
    for (int64_t h = 0; h < n->heads; h++, panel += padded * n->channels) {
        const float *in = t->stage + h * channels;
        if (channels == 8 && n->channels == 8) /* the most frequent case */
            scale_head(in, n->stage_ld, rows, 8, factor, panel, 8);
        else if (factor != 1.0f)
            scale_head(in, n->stage_ld, rows, channels, factor, panel, n->channels);
        else
            for (int64_t i = 0; i < rows; i++)
                memcpy(panel + i * n->channels, in + i * n->stage_ld, (size_t)channels * sizeof *panel);
    }
}

/* Packs each head's part of the staged rows so that rows are the lanes. */
static void pack_lanes(const item *t, int64_t rows, int64_t padded, int64_t channels, float factor, float *panel)
{
    const small_plan *n = t->plan;
    begin_panels(n, padded, padded, channels, panel);
    for (int64_t h = 0; h < n->heads; h++) {
        attn__lane_view view = {
            (void *)(uintptr_t)(t->stage + h * channels), ATTN_F32, t->s.stage_at, NULL, channels, rows};
        n->tiles.lanes->gather(&view, panel + h * padded * n->channels, padded, factor);
    }
}

/* -------------------------------------------------------------------------------------------------------- forward */

/* Sets t->stage to kept rows or the staging buffer. Returns true if rows of `which` from number `at` on are kept. */
static bool take_kept(item *t, int which, int64_t at)
{
    const kept_rows *kept = t->s.kept;
    bool there = t->plan->keeps && kept->index == t->index && kept->at == at;
    t->stage = there ? t->s.kept_rows[which] : t->s.stage;
    return there;
}

/* Returns false if a number is not finite. With a plain problem, values need no check. */
static bool stage_keys(item *t, attn__operand op, int64_t at, int64_t keys)
{
    const small_plan *n = t->plan;
    bool values = op == ATTN__OP_V;
    if (!take_kept(t, values ? ROWS_OF_V : ROWS_OF_K, at))
        return stage_rows(t, op, at, keys, t->s.stage);
    float *rows = t->s.kept_rows[values ? ROWS_OF_V : ROWS_OF_K]; /* rows are copied to themselves to check them */
    return (values && n->plain) ||
           n->tiles.lanes->copy(rows, ATTN_F32, t->s.stage_at, NULL, keys,
                                n->heads * attn__channels_of(t->canonical, op)->size, rows, n->stage_ld);
}

static void pack_queries(item *t)
{
    if (!take_kept(t, ROWS_OF_Q, 0))
        stage_rows(t, ATTN__OP_Q, t->first, t->count, t->s.stage);
    pack_lanes(t, t->count, t->plan->query_block, t->canonical->contract.size, attn__score_factor(t->canonical),
               t->s.q);
}

/* Finds max |k| of each channel. The result is infinity if the block has NaN or infinity. */
static void find_reach(const small_plan *n, const float *k, int64_t keys, bool finite, float *reach)
{
    float most[ATTN__SMALL_HEAD_MOST];
    n->kernel->reach(k, keys * n->channels, most);
    for (int64_t c = 0; c < n->channels; c++) {
        reach[c] = finite ? most[c] : INFINITY;
        for (int64_t i = c + n->channels; i < ATTN__SMALL_HEAD_MOST; i += n->channels)
            reach[c] = most[i] > reach[c] ? most[i] : reach[c];
    }
}

static void pack_keys(item *t, int64_t at, int64_t keys)
{
    const small_plan *n = t->plan;
    int64_t size = n->key_block * n->channels, values = t->canonical->value.size;
    bool finite = stage_keys(t, ATTN__OP_K, at, keys);
    pack_rows(t, keys, n->key_block, t->canonical->contract.size, 1.0f, t->s.k);
    for (int64_t h = 0; h < n->heads && n->plain; h++)
        find_reach(n, t->s.k + h * size, keys, finite, t->s.reach + h * n->channels);
    t->careful = !stage_keys(t, ATTN__OP_V, at, keys) && !n->plain;
    pack_rows(t, keys, n->key_block, values, 1.0f, t->s.v);
    for (int64_t h = 0; h < n->heads && t->careful; h++)
        t->s.nbad[h] = attn__finite_clean(t->stage + h * values, n->stage_ld, keys, values, t->s.v + h * size,
                                          n->channels, t->s.bad + h * n->key_block);
}

/* Returns the kernel's arguments for one head, keys [key, key + keys) of the block, and the queries from i on. */
static attn__small_head_args tile_args(item *t, int64_t head, int64_t i, int64_t key, int64_t keys)
{
    const small_plan *n = t->plan;
    int64_t at = head * n->query_block, tile = at * n->channels + i;
    int64_t from = (head * n->key_block + key) * n->channels;
    return (attn__small_head_args){.q = t->s.q + tile,
                                   .o = t->s.o + tile,
                                   .m = t->s.rows.m + at + i,
                                   .l = t->s.rows.l + at + i,
                                   .ld = n->query_block,
                                   .k = t->s.k + from,
                                   .v = t->s.v + from,
                                   .reach = t->s.reach + head * n->channels,
                                   .keys = keys,
                                   .p = t->s.p,
                                   .hook = {attn__prefetch_portion, &t->prefetch}};
}

static void see_keys(item *t, int64_t keys)
{
    const small_plan *n = t->plan;
    for (int64_t h = 0; h < n->heads; h++) {
        for (int64_t i = 0; i < t->count; i += n->width) {
            attn__small_head_args args = tile_args(t, h, i, 0, keys);
            n->kernel->see[n->size](&args);
        }
    }
}

/* ------------------------------------------------------------------------------------ scores that change in between */

static attn__tile_place place_of(const item *t, int64_t head)
{
    return (attn__tile_place){t->canonical, t->arrays, head, t->batch + head, t->first, t->count};
}

/* Prepares the tile for masks, bias and dropout of the item's queries. Pads the limits to a multiple of `lanes`. */
static void start_tile(item *t, int64_t lanes)
{
    const small_plan *n = t->plan;
    scratch *s = &t->s;
    attn__tile_place place = place_of(t, 0);
    t->tile = (attn__tile){.plan = &n->tiles,
                           .canonical = t->canonical,
                           .arrays = t->arrays,
                           .see = &s->see,
                           .rows = &s->rows,
                           .keys = &s->keys,
                           .ld = n->width,
                           .s = s->p,
                           .bias = s->bias};
    if (n->tiles.masks)
        attn__visible_rows_start(&s->see, t->canonical, t->arrays, t->batch, t->first, t->count, lanes);
    attn__tile_rows_start(&s->rows, &n->tiles, &place);
    for (; place.head < n->heads; place.head++, place.batch++)
        attn__tile_rows_head(&s->rows, &n->tiles, &place);
}

/* Adds values with NaN or infinity for the queries that attend their keys. */
static void repair(item *t, int64_t head, const attn__small_head_args *args, int64_t key)
{
    const small_plan *n = t->plan;
    const int64_t *bad = t->s.bad + head * n->key_block;
    int64_t count = 0;
    for (int64_t i = 0; i < t->s.nbad[head]; i++)
        if (bad[i] >= key && bad[i] < key + args->keys)
            t->s.bad_now[count++] = bad[i] - key;
    attn__finite_sums sums = {.outs = n->width,
                              .channels = t->canonical->value.size,
                              .w = t->s.p,
                              .alive = t->s.alive,
                              .bit = 1,
                              .w_out = 1,
                              .w_row = n->width,
                              .factor = 1.0f,
                              .x = t->stage + head * t->canonical->value.size + key * n->stage_ld,
                              .x_row = n->stage_ld,
                              .out = args->o,
                              .out_row = 1,
                              .out_channel = n->query_block};
    attn__finite_repair(&sums, t->s.bad_now, count);
}

static void change_tile(item *t, int64_t head)
{
    const small_plan *n = t->plan;
    attn__tile *tile = &t->tile;
    attn__small_head_args args = tile_args(t, head, tile->row, tile->key, tile->nkeys);
    tile->head = head;
    n->kernel->score[n->size](&args);
    attn__tile_scores(tile);
    args.shrink = attn__tile_softmax(tile, NULL) ? t->s.rows.shrink + tile->row : NULL;
    n->kernel->add[n->size](&args);
    if (t->careful)
        repair(t, head, &args, tile->key);
    else
        attn__prefetch_portion(&t->prefetch);
}

static attn__visible_span span_of(const item *t)
{
    attn__visible_span all = {.last = t->canonical->key.size};
    return t->plan->tiles.masks ? attn__visible_span_of(&t->s.see, t->tile.row, t->tile.nrows) : all;
}

/* Does the same as see_keys for problems that are not plain. Tiles of scores are in memory. All heads share the masks.
 * Tiles begin at multiples of four keys, so that the order of sums does not depend on the first visible key. */
static void see_changed_keys(item *t, int64_t at, int64_t keys)
{
    const small_plan *n = t->plan;
    attn__tile *tile = &t->tile;
    attn__tile_keys_start(&t->s.keys, &n->tiles, t->canonical, at, keys);
    tile->flags = t->s.flags;
    tile->alive = t->careful ? t->s.alive : NULL;
    tile->fades = t->fades ? t->s.fades : NULL;
    for (tile->row = 0; tile->row < t->count; tile->row += n->width) {
        tile->nrows = attn__min(n->width, t->count - tile->row);
        attn__visible_span span = span_of(t);
        int64_t begin = attn__max(span.first - at, 0) / 4 * 4, end = attn__min(span.last - at, keys);
        for (tile->key = begin; tile->key < end; tile->key += n->step) {
            tile->nkeys = attn__min(n->step, end - tile->key);
            tile->bias_there = NULL;
            bool seen = attn__tile_sees(tile, &span);
            for (int64_t h = 0; seen && h < n->heads; h++)
                change_tile(t, h);
        }
    }
}

/* --------------------------------------------------------------------------------------- outputs, and all items */

/* Writes o / l of each head. Rows of contiguous floats of all heads are written at once, via the staging buffer. */
static void write_outputs(const item *t)
{
    const small_plan *n = t->plan;
    int64_t values = t->canonical->value.size;
    bool staged = t->canonical->problem.dtype == ATTN_F32 && !n->column[ATTN__OP_O];
    attn__operand_offsets(t->canonical, ATTN__OP_O, t->batch, t->first, t->count, t->s.at);
    for (int64_t h = 0; h < n->heads; h++) {
        const float *l = t->s.rows.l + h * n->query_block, *o = t->s.o + h * n->channels * n->query_block;
        float kept = (float)attn__dropout_factor(t->canonical);
        for (int64_t i = 0; i < t->padded; i++)
            t->s.factor[i] = l[i] == 0.0f ? 0.0f : kept / l[i];
        attn__lane_view view = {staged ? t->s.stage + h * values : t->arrays->at.o,
                                t->canonical->problem.dtype,
                                staged ? t->s.stage_at : t->s.at,
                                n->column[ATTN__OP_O],
                                values,
                                t->count};
        if (!staged && h > 0)
            for (int64_t i = 0; i < t->count; i++)
                t->s.at[i] += values;
        n->tiles.lanes->scatter(&view, o, n->query_block, t->s.factor);
    }
    float *out = t->arrays->at.o;
    for (int64_t i = 0; staged && i < t->count; i++)
        memcpy(out + t->s.at[i], t->s.stage + i * n->stage_ld, (size_t)(n->heads * values) * sizeof *out);
}

/* Adds the next rows of an operand to the prefetch list. If the plan keeps rows, they are also copied to a buffer. */
static void want(item *t, int which, attn__operand op, int64_t batch, int64_t from, int64_t rows)
{
    const small_plan *n = t->plan;
    int64_t to = attn__min(from + rows, attn__rows_of(t->canonical, op)->size);
    if (!n->column[op] &&
        attn__rows_plan_prefetch(&t->prefetch, t->canonical, t->arrays, op, batch, n->heads, from, to) && from < to &&
        which < KEPT && n->keeps)
        attn__prefetch_copy(&t->prefetch, t->s.kept_rows[which], n->stage_ld * (int64_t)sizeof(float));
}

/* Plans the prefetches during the `keys` keys before key `at`. They cover the next block or, after the last block, the
 * output rows and the first rows of the item that this thread will probably run next. */
static void prefetch_next(item *t, int64_t at, int64_t keys)
{
    const attn__canonical *canonical = t->canonical;
    const small_plan *n = t->plan;
    bool ends = at >= canonical->key.size;
    int64_t next = ends ? t->index + 1 : t->index, from = ends ? 0 : at;
    int64_t first = next % n->query_blocks * n->query_block, b = next / n->query_blocks * n->heads;
    bool any = b < canonical->batch.size && (!ends || !attn__is_packed(canonical));
    attn__prefetch_clear(&t->prefetch);
    if (ends && any)
        want(t, ROWS_OF_Q, ATTN__OP_Q, b, first, n->query_block);
    if (any) {
        want(t, ROWS_OF_K, ATTN__OP_K, b, from, n->key_block);
        want(t, ROWS_OF_V, ATTN__OP_V, b, from, n->key_block);
    }
    if (ends)
        want(t, KEPT, ATTN__OP_O, t->batch, t->first, t->count);
    *t->s.kept = (kept_rows){any ? next : -1, from};
    attn__prefetch_divide(&t->prefetch, n->heads * (t->padded / n->width) * attn__ceil_div(keys, n->step));
}

static void run_keys(item *t)
{
    const small_plan *n = t->plan;
    memset(t->s.o, 0, (size_t)(n->heads * n->query_block * n->channels) * sizeof *t->s.o);
    for (int64_t h = 0; h < n->heads; h++)
        attn__running_begin(t->canonical, t->arrays, t->batch + h, t->first, t->count, n->query_block,
                            t->s.rows.m + h * n->query_block, t->s.rows.l + h * n->query_block);
    for (int64_t at = 0; at < t->canonical->key.size; at += n->key_block) {
        int64_t keys = attn__min(t->canonical->key.size - at, n->key_block);
        pack_keys(t, at, keys);
        prefetch_next(t, at + keys, keys);
        if (n->plain)
            see_keys(t, keys);
        else
            see_changed_keys(t, at, keys);
        attn__prefetch_finish(&t->prefetch);
        t->fills_nonfinite |= t->careful && n->tiles.visible.fills;
    }
}

static void run_block(item *t)
{
    const small_plan *n = t->plan;
    pack_queries(t);
    if (!n->plain)
        start_tile(t, n->width);
    run_keys(t);
    if (t->fills_nonfinite && t->canonical->key.size > n->key_block)
        t->fades = attn__finite_fades(t->s.rows.m, n->heads * n->query_block, n->tiles.fill, t->s.fades);
    if (t->fades) /* the weight of a mask_fill may have become 0 relative to later keys */
        run_keys(t);
    write_outputs(t);
    for (int64_t h = 0; h < n->heads && (t->canonical->problem.flags & ATTN_WANT_LSE); h++)
        attn__running_store(t->canonical, t->arrays, t->batch + h, t->first, t->count, t->s.rows.m + h * n->query_block,
                            t->s.rows.l + h * n->query_block);
}

/* ---------------------------------------------------------------------------------- what the backward pass accepts */

/* Reports whether each pair of each head has its own element in the gradient of the bias. */
static bool pairs_apart(const attn__canonical *canonical)
{
    return attn__group_moves(&canonical->batch, ATTN__OP_DBIAS) &&
           attn__group_moves(&canonical->query, ATTN__OP_DBIAS) && attn__group_moves(&canonical->key, ATTN__OP_DBIAS);
}

static const char *refuse_backward(const attn__canonical *canonical)
{
    const char *why = canonical->backward ? refuse_both(canonical) : "supports backward only";
    if (why)
        return why;
    if (canonical->query.size > MOST_ROWS || canonical->key.size > MOST_ROWS)
        return "supports at most 1024 queries and keys";
    if (canonical->problem.mask_fill != 0.0)
        return "does not support mask_fill";
    if ((canonical->problem.flags & ATTN_WANT_DBIAS) && (attn__is_packed(canonical) || !pairs_apart(canonical)))
        return "does not support pairs that share an element of the bias gradient";
    if (attn__sums_broadcast(canonical) & ATTN__WANT_ROWS)
        return "does not support gradients summed over broadcast dims";
    return attn__channels_adjacent(canonical, operands, ALL) ? NULL : "needs adjacent channels";
}

/* Estimates the time. Squares of 32 queries and keys are always computed whole, and padded channels take time. With 16
 * channels, tiles of flash_backward are at least as fast.  Squares that are not plain take nearly twice as long.
 * `small_sequence_backward` is then faster for short sequences, and `flash_backward` for any mask of blocks. */
static double cost_backward(const attn__canonical *canonical)
{
    double queries = (double)attn__round_up(canonical->query.size, STEP),
           keys = (double)attn__round_up(canonical->key.size, STEP);
    int size = size_of(canonical);
    double each = size == 2 ? 1.03 * (double)(canonical->contract.size + canonical->value.size) : (double)(4 << size);
    attn__visible visible;
    attn__visible_make(&visible, canonical);
    double changed = is_plain(canonical, &visible) ? 1.0 : visible.blocks ? 2.2 : 1.75;
    return changed * (double)canonical->batch.size * queries * keys * each;
}

/* ------------------------------------------------------------------------------------------------- backward, rows */

static void stage_all(item *t, attn__operand op, float *stage)
{
    t->finite = stage_rows(t, op, 0, attn__rows_of(t->canonical, op)->size, stage) && t->finite;
}

static void pack_all_keys(item *t)
{
    int64_t keys = t->canonical->key.size, channels = t->canonical->contract.size;
    stage_all(t, ATTN__OP_K, t->s.stage);
    pack_rows(t, keys, t->keys, channels, 1.0f, t->s.k);
    pack_lanes(t, keys, t->keys, channels, 1.0f, t->s.kt);
    stage_all(t, ATTN__OP_V, t->s.stage);
    pack_lanes(t, keys, t->keys, t->canonical->value.size, 1.0f, t->s.vt);
}

/* Computes delta, the sum over channels of staged dout * o minus the gradient of the log-sum-exp. Loads the
 * log-sum-exp. Padding rows get +infinity as log-sum-exp, so that their weights are 0. */
static void find_row_numbers(const item *t)
{
    const small_plan *n = t->plan;
    int64_t queries = t->canonical->query.size;
    n->kernel->delta(&(attn__small_head_delta_args){.dout = t->s.stage,
                                                    .o = t->s.o_stage,
                                                    .ld = n->stage_ld,
                                                    .rows = queries,
                                                    .heads = n->heads,
                                                    .values = t->canonical->value.size,
                                                    .delta = t->s.rows.delta,
                                                    .delta_ld = t->padded});
    for (int64_t h = 0; h < n->heads; h++) {
        float *lse = t->s.rows.lse + h * t->padded, *delta = t->s.rows.delta + h * t->padded;
        attn__lse_load(t->canonical, t->arrays, t->batch + h, 0, queries, lse, delta);
        for (int64_t i = queries; i < t->padded; i++) {
            lse[i] = INFINITY;
            delta[i] = 0.0f;
        }
    }
}

static void pack_all_queries(item *t)
{
    int64_t queries = t->canonical->query.size;
    stage_all(t, ATTN__OP_Q, t->s.stage);
    pack_rows(t, queries, t->padded, t->canonical->contract.size, attn__score_factor(t->canonical), t->s.q);
    stage_all(t, ATTN__OP_DOUT, t->s.stage);
    pack_rows(t, queries, t->padded, t->canonical->value.size, 1.0f, t->s.dout);
    stage_all(t, ATTN__OP_O, t->s.o_stage);
    find_row_numbers(t);
}

static attn__small_head_backward_args head_args(const item *t, int64_t head)
{
    const scratch *s = &t->s;
    int64_t q = head * t->padded * t->plan->channels, k = head * t->keys * t->plan->channels;
    return (attn__small_head_backward_args){.q = s->q + q,
                                            .dout = s->dout + q,
                                            .lse = s->rows.lse + head * t->padded,
                                            .delta = s->rows.delta + head * t->padded,
                                            .k = s->k + k,
                                            .kt = s->kt + k,
                                            .vt = s->vt + k,
                                            .dq = s->dq + q,
                                            .dk = s->dk + k,
                                            .dv = s->dv + k,
                                            .queries = t->padded,
                                            .query_ld = t->padded,
                                            .keys = t->canonical->key.size,
                                            .key_ld = t->keys,
                                            .p = s->p,
                                            .ds = s->ds,
                                            .transposed = s->transposed};
}

/* ------------------------------------------------------------------ squares whose scores or weights are changed */

/* Adds the gradients of a square pair by pair, only for pairs that are not masked, since other pairs may read NaN. */
static void add_alive(const item *t, const attn__small_head_backward_args *a, int64_t nrows, int64_t nkeys)
{
    int64_t channels = t->plan->channels, values = t->canonical->value.size;
    for (int64_t r = 0; r < nrows; r++)
        for (int64_t c = 0; c < nkeys; c++) {
            int64_t pair = r * t->plan->width + c, i = a->query + r, j = a->key + c;
            for (int64_t v = 0; (t->s.alive[pair] & 2) && v < values; v++)
                a->dv[v * a->key_ld + j] += a->p[pair] * a->dout[i * channels + v];
            for (int64_t d = 0; (t->s.alive[pair] & 1) && d < t->canonical->contract.size; d++) {
                a->dk[d * a->key_ld + j] += a->ds[pair] * a->q[i * channels + d];
                a->dq[d * a->query_ld + i] += a->ds[pair] * a->kt[d * a->key_ld + j];
            }
        }
}

static void clear_padding(const item *t)
{
    const attn__tile *tile = &t->tile;
    int64_t width = t->plan->width, columns = attn__round_up(tile->nkeys, t->plan->backward->lanes);
    size_t rest = (size_t)((STEP - tile->nrows) * width) * sizeof(float);
    memset(t->s.p + tile->nrows * width, 0, rest);
    memset(t->s.ds + tile->nrows * width, 0, rest);
    for (int64_t r = 0; r < tile->nrows && columns < width; r++) {
        memset(t->s.p + r * width + columns, 0, (size_t)(width - columns) * sizeof(float));
        memset(t->s.ds + r * width + columns, 0, (size_t)(width - columns) * sizeof(float));
    }
}

static void run_square(item *t, int64_t head)
{
    const small_plan *n = t->plan;
    attn__tile *tile = &t->tile;
    attn__small_head_backward_args a = head_args(t, head);
    a.query = tile->row;
    a.key = tile->key;
    tile->head = head;
    n->kernel->back_score[n->size](&a);
    attn__tile_weights(tile);
    clear_padding(t);
    if (n->tiles.wants_dbias)
        attn__tile_dbias(tile, t->canonical->problem.accumulate);
    if (t->finite)
        n->kernel->back_add[n->size](&a);
    else
        add_alive(t, &a, tile->nrows, tile->nkeys);
}

/* Reports whether the gradients of a square are needed. Pairs that are all masked have a gradient of the bias, 0. */
static bool needs_square(item *t, const attn__visible_span *span)
{
    attn__tile *tile = &t->tile;
    if (attn__tile_sees(tile, span))
        return true;
    if (!t->plan->tiles.wants_dbias)
        return false;
    memset(tile->mask, 0, (size_t)(tile->nrows * tile->ld));
    tile->full = false;
    return true;
}

/* Runs each square for all heads, because they share the masks. */
static void run_squares(item *t)
{
    const small_plan *n = t->plan;
    attn__tile *tile = &t->tile;
    int64_t queries = t->canonical->query.size, keys = t->canonical->key.size;
    start_tile(t, 1);
    attn__tile_keys_start(&t->s.keys, &n->tiles, t->canonical, 0, keys);
    tile->ds = t->s.ds;
    tile->dbias = t->s.dbias;
    tile->mask = t->s.mask;
    tile->alive = t->finite ? NULL : t->s.alive;
    for (tile->row = 0; tile->row < queries; tile->row += STEP) {
        tile->nrows = attn__min(STEP, queries - tile->row);
        attn__visible_span span = span_of(t);
        for (tile->key = 0; tile->key < keys; tile->key += n->width) {
            tile->nkeys = attn__min(n->width, keys - tile->key);
            tile->bias_there = NULL;
            bool needed = needs_square(t, &span);
            for (int64_t h = 0; needed && h < n->heads; h++)
                run_square(t, h);
        }
    }
}

static void run_heads(item *t)
{
    const small_plan *n = t->plan;
    memset(t->s.dq, 0, (size_t)(n->heads * t->padded * n->channels) * sizeof(float));
    memset(t->s.dk, 0, (size_t)(n->heads * t->keys * n->channels) * sizeof(float));
    memset(t->s.dv, 0, (size_t)(n->heads * t->keys * n->channels) * sizeof(float));
    if (!n->plain || !t->finite) {
        run_squares(t);
        return;
    }
    for (int64_t h = 0; h < n->heads; h++) {
        attn__small_head_backward_args args = head_args(t, h);
        n->kernel->back[n->size](&args);
    }
}

/* Writes factor * panels to a gradient. The staging buffer is used, so that rows are written for all heads at once. */
static void write_rows(const item *t, attn__operand op, const float *panel, int64_t padded, double factor)
{
    const small_plan *n = t->plan;
    int64_t rows = attn__rows_of(t->canonical, op)->size, channels = attn__channels_of(t->canonical, op)->size;
    int64_t columns = n->heads * channels;
    void *out = attn__operand_array(t->arrays, op);
    bool add = t->canonical->problem.accumulate;
    for (int64_t i = 0; i < padded; i++)
        t->s.factor[i] = (float)factor;
    for (int64_t h = 0; h < n->heads; h++) {
        attn__lane_view view = {t->s.stage + h * channels, ATTN_F32, t->s.stage_at, NULL, channels, rows};
        n->tiles.lanes->scatter(&view, panel + h * padded * n->channels, padded, t->s.factor);
    }
    attn__operand_offsets(t->canonical, op, t->batch, 0, rows, t->s.at);
    for (int64_t i = 0; i < rows; i++) {
        const float *row = t->s.stage + i * n->stage_ld;
        float *to = (float *)out + t->s.at[i];
        if (t->canonical->problem.dtype == ATTN_BF16)
            n->backward->store_bf16((uint16_t *)out + t->s.at[i], row, columns, 1.0f, add);
        else if (!add)
            memcpy(to, row, (size_t)columns * sizeof *to);
        else
            for (int64_t c = 0; c < columns; c++)
                to[c] += row[c];
    }
}

static void run_backward(item *t)
{
    pack_all_keys(t);
    pack_all_queries(t);
    run_heads(t);
    unsigned flags = t->canonical->problem.flags;
    double scale = t->canonical->problem.scale;
    double half = t->plan->plain && t->finite ? 2.0 : 1.0; /* the plain kernel computes half of a score's gradient */
    if (flags & ATTN_WANT_DQ)
        write_rows(t, ATTN__OP_DQ, t->s.dq, t->padded, half * scale);
    if (flags & ATTN_WANT_DK) /* dK is divided by log2(e), because q includes scale * log2(e) */
        write_rows(t, ATTN__OP_DK, t->s.dk, t->keys, half / ATTN__LOG2E);
    if (flags & ATTN_WANT_DV)
        write_rows(t, ATTN__OP_DV, t->s.dv, t->keys, 1.0);
}

/* ------------------------------------------------------------------------------------------------------- all items */

typedef struct job {
    const attn__canonical *canonical;
    const small_plan *plan;
    const attn__execution *arrays;
    char *workspace;
    size_t each;
} job;

static void run_item(void *user, int64_t index, int thread)
{
    const job *j = user;
    const small_plan *n = j->plan;
    item t = {.canonical = j->canonical, .plan = n, .arrays = j->arrays, .index = index, .finite = true};
    attn__sequence one;
    t.batch = index / n->query_blocks * n->heads;
    t.first = index % n->query_blocks * n->query_block;
    attn__sequence_enter(&one, &t.canonical, &t.arrays, t.batch);
    t.count = attn__min(t.canonical->query.size - t.first, n->query_block);
    t.padded = attn__round_up(t.count, n->backward ? STEP : n->width);
    t.keys = attn__round_up(t.canonical->key.size, n->width);
    if (t.count < 1 && !n->backward)
        return;
    divide(n, j->canonical, j->workspace + (size_t)thread * j->each, &t.s);
    if (n->backward)
        t.s.rows.most = t.padded;
    t.stage = t.s.stage;
    for (int64_t i = 0; i < n->query_block || i < n->key_block; i++)
        t.s.stage_at[i] = i * n->stage_ld;
    (n->backward ? run_backward : run_block)(&t);
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    const small_plan *n = recipe->data;
    job j = {canonical, n, arrays, workspace, 0};
    scratch memory;
    j.each = divide(n, canonical, NULL, &memory);
    for (int i = 0; i < canonical->threads && !n->backward; i++) {
        divide(n, canonical, j.workspace + (size_t)i * j.each, &memory);
        memory.kept->index = -1;
    }
    attn__parallel_items(canonical->threads, canonical->batch.size / n->heads * n->query_blocks, run_item, &j);
}

extern const attn__solver attn__solver_small_head, attn__solver_small_head_backward;
const attn__solver attn__solver_small_head = {
    .name = "small_head",
    .refuse = refuse,
    .cost = cost,
    .plan = plan,
    .apply = apply,
    .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__BLOCKS,
};
const attn__solver attn__solver_small_head_backward = {
    .name = "small_head_backward",
    .refuse = refuse_backward,
    .cost = cost_backward,
    .plan = plan,
    .apply = apply,
    .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__DLSE | ATTN__BLOCKS,
};
