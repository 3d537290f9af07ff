/* SPDX-License-Identifier: MIT
 *
 * small_sequence.c - attention with up to 96 queries and keys per head, and its gradients.
 *
 * A head takes about a microsecond.  Its scores are one tile, which stays in the L1 cache.  Rows are read and written
 * in place. Only two kinds of rows are copied: bf16 rows, and rows along several axes, such as a window of an image.
 * The lanes are queries in the forward pass and keys in the backward pass. Only the rows of the lanes are transposed.
 *
 * Heads that share a bias follow each other, so that a thread loads the bias once.  The gradient of a bias is summed
 * over at most 64 parts of the heads that share it, and then over the parts in order. The result does not depend on
 * threads.
 *
 * Each packed sequence has its own heads and lengths. The heads of one sequence follow each other.
 */
#include "attend/block/dropout.h"
#include "attend/block/finite.h"
#include "attend/block/items.h"
#include "attend/block/rows.h"
#include "attend/block/scores.h"
#include "attend/block/tile.h"
#include "attend/plan/solver.h"
#include "attend/problem/operand.h"
#include "attend/block/gradient_sums.h"
#include "base/arena.h"
#include "base/constants.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "kernels/small_sequence/small_sequence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limits of queries or keys (AMX is faster beyond) and of channels. ITEMS items give work to all threads. */
enum { MOST_ROWS = 96, MOST_CHANNELS = 256, ITEMS = 64 };

/* The part of the plan that depends on the number of queries and keys. */
typedef struct head_shape {
    int64_t queries, keys;
    int64_t width;                                /* row length of scores: queries or keys, rounded up to the lanes */
    attn__small_sequence_rows of[ATTN__OPERANDS]; /* rows of each operand; the address of a head is added later */
    int64_t *query_at[ATTN__OPERANDS], *key_at[ATTN__OPERANDS]; /* offsets of rows from the head's first row */
    int64_t *copy_at[ATTN__OPERANDS];                           /* offsets of rows that are copied from bf16 */
    uint32_t *drop_column;                                      /* [keys, padded]: dropout column numbers */
} head_shape;

typedef struct head_plan {
    const attn__small_sequence_kernel *kernel;
    int64_t channels, values;
    int order[ATTN_MAX_DIMS];      /* order of the batch axes, outermost first */
    int64_t weight[ATTN_MAX_DIMS]; /* batch item number = sum of weight * index */
    int64_t sharing;               /* heads that add to one bias gradient, one after another; without a gradient: all */
    int64_t together, parts;       /* heads of a work item; items among `sharing` heads */
    int64_t items;
    bool joins; /* a bias gradient has parts, which must be added */
    attn__tile_plan tiles;
    bool has_bytes;   /* some masks are not a range of keys per query */
    bool copies;      /* rows run along several axes and must be copied */
    bool converts;    /* rows are bf16 and must be converted */
    bool by_query;    /* lanes are queries: the forward pass */
    size_t each;      /* bytes of one thread's memory */
    head_shape shape; /* shape of all heads, or of the longest packed sequences */
} head_plan;

typedef struct head_scratch {
    float *panel;                /* [channels or values][width] */
    float *s, *ds;               /* scores; forward [keys][width], backward [queries][width] */
    float *bias;                 /* bias of the current head, shaped like `s`; forward times log2(e) */
    float *flags;                /* forward: 0 for masked pairs, otherwise not 0; shaped like `s` */
    uint8_t *mask;               /* backward: 0 for masked pairs, [queries][width] */
    float *dbias;                /* sum of the bias gradient over the item's heads, shaped like `s` */
    float *dbias_now;            /* bias gradient of one head if it differs from ds, shaped like `s` */
    float *copy[ATTN__OPERANDS]; /* rows that were copied, without gaps */
    float *out;                  /* rows of an output before rounding to bf16 */
    uint8_t *alive;              /* 1 for pairs whose weight is used, shaped like `s` */
    attn__visible_rows see;
    attn__tile_rows rows;
    attn__tile_keys keys; /* offsets and columns are those of the shape */
    attn__tile tile;      /* all scores of the head */
    float *clean;         /* rows of one operand; rows with NaN or infinity are 0 */
    int64_t *bad;         /* indices of the rows that are not finite */
    char *shape;          /* memory of the head_shape of a packed sequence */
} head_scratch;

/* Offsets by which a thread recognizes the masks that it has loaded. */
typedef struct head_pairs {
    int64_t mask, blocks, lens;
} head_pairs;

/* The current head and the next head. */
typedef struct head {
    const attn__canonical *canonical; /* problem and arrays of the head or of its packed sequence */
    const head_plan *plan;
    const head_shape *shape;
    const attn__execution *arrays;
    head_scratch m;
    attn__place now, next;
    int64_t number;               /* number of the batch item, see head_plan.weight */
    int64_t index[ATTN_MAX_DIMS]; /* indices of the next batch item, in the order of plan->order */
    int64_t sequence;             /* packed sequence of the head, or -1 before the first head */
    bool loaded;                  /* m.flags and m.mask belong to `pairs` */
    head_pairs pairs;
} head;

/* ------------------------------------------------------------------------------------------------- what is refused */

/* Operands with rows. The forward pass has the first four, and the backward pass has all. */
static const attn__operand operands[] = {ATTN__OP_Q,  ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                         ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DOUT};
enum { FORWARD = 4, ALL = 8 };

/* Returns a reason for which neither pass can run the problem, or NULL if there is none. */
static const char *refuse_both(const attn__canonical *canonical)
{
    const char *unusual =
        attn__refuse_unusual(canonical, canonical->backward ? ATTN__WEIGHTS_KINDS : ATTN__HARDMAX_TOO);
    if (!unusual)
        unusual = attn__refuse_top_k(canonical);
    if (unusual)
        return unusual;
    if (canonical->problem.nrelatives)
        return "does not support relative tables";
    if (canonical->query.size > MOST_ROWS || canonical->key.size > MOST_ROWS)
        return "supports at most 96 queries and keys";
    if (canonical->contract.size > MOST_CHANNELS || canonical->value.size > MOST_CHANNELS)
        return "supports heads of at most 256 channels";
    if (!attn__channels_adjacent(canonical, operands, canonical->backward ? ALL : FORWARD))
        return "needs adjacent channels";
    return NULL;
}

static const char *refuse(const attn__canonical *canonical)
{
    return canonical->backward ? "supports forward only" : refuse_both(canonical);
}

static const char *refuse_backward(const attn__canonical *canonical)
{
    const char *why = canonical->backward ? refuse_both(canonical) : "supports backward only";
    if (why)
        return why;
    if ((canonical->problem.flags & ATTN_WANT_DBIAS) &&
        !(attn__group_moves(&canonical->query, ATTN__OP_DBIAS) && attn__group_moves(&canonical->key, ATTN__OP_DBIAS)))
        return "does not support pairs of a head that share an element of the bias gradient";
    if ((canonical->problem.flags & ATTN_WANT_DBIAS) && attn__is_packed(canonical))
        return "does not support a bias gradient of packed sequences";
    return attn__sums_broadcast(canonical) & ATTN__WANT_ROWS ? "does not support gradients summed over broadcast dims"
                                                             : NULL;
}

enum { FEW = 16 }; /* tokens */

/* Estimates the time. `decode` is faster for a single query, because it reads each element once. Heads of up to 8
 * channels fill half of a vector here, so `small_head` is faster if queries fill its lanes. For 9 to 16 channels this
 * solver is faster with few tokens. The number of heads must not change the choice, because bits would depend on it. */
static double cost(const attn__canonical *canonical)
{
    double keys = (double)canonical->batch.size * (double)canonical->key.size,
           queries = (double)canonical->query.size + 0.2;
    int64_t most = attn__max(canonical->contract.size, canonical->value.size), filled = most <= 4 ? 32 : 16;
    bool few = canonical->query.size <= FEW && canonical->key.size <= FEW;
    double wide = few && most <= 16 ? 0.4 : 0.8;
    double each = most > 8 ? wide : canonical->query.size > filled ? 0.99 : 0.4;
    return each * keys * queries * (double)(canonical->contract.size + canonical->value.size);
}

/* Estimates the time. `small_head_backward` is faster for heads of up to 4 channels if keys fill its lanes. */
static double cost_backward(const attn__canonical *canonical)
{
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    bool slim = canonical->contract.size <= 4 && canonical->value.size <= 4 && canonical->key.size <= 32;
    return (slim ? 0.4 : 0.8) * pairs * (double)(canonical->contract.size + canonical->value.size);
}

/* --------------------------------------------------------------------------------------------- memory of a thread */

/* Divides `base` into arrays of offsets and returns the bytes used. If `base` is NULL, it only counts bytes. */
static size_t divide_shape(const head_plan *p, int64_t most_queries, int64_t most_keys, char *base, head_shape *s)
{
    attn__arena arena = {base, 0};
    int64_t queries = attn__round_up(most_queries, p->kernel->lanes),
            keys = attn__round_up(most_keys, p->kernel->lanes);
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++) {
        int roles = attn__operand_table[op].roles;
        s->query_at[op] = attn__arena_offsets(&arena, roles & ATTN__IN_QUERY ? queries : 0);
        s->key_at[op] = attn__arena_offsets(&arena, roles & ATTN__IN_KEY ? keys : 0);
        s->copy_at[op] = attn__arena_offsets(&arena, p->converts ? attn__max(queries, keys) : 0);
    }
    s->drop_column = attn__arena_take(&arena, keys, sizeof(uint32_t));
    return arena.used;
}

/* Divides `base` into arrays and returns the bytes used. If `base` is NULL, it only counts bytes. */
static size_t divide(const head_plan *p, bool packed, char *base, head_scratch *m)
{
    static const attn__operand copied[] = {ATTN__OP_Q, ATTN__OP_K, ATTN__OP_V, ATTN__OP_DOUT, ATTN__OP_O};
    attn__arena arena = {base, 0};
    const head_shape *shape = &p->shape;
    int64_t most = attn__max(shape->queries, shape->keys), channels = attn__max(p->channels, p->values);
    int64_t size = most * attn__round_up(most, p->kernel->lanes), rows = most * channels;
    int64_t queries = attn__round_up(shape->queries, p->kernel->lanes);
    head_shape unused;
    m->panel = attn__arena_floats(&arena, channels * shape->width);
    m->s = attn__arena_floats(&arena, size);
    m->ds = attn__arena_floats(&arena, size);
    m->bias = attn__arena_floats(&arena, p->tiles.has_bias ? size : 0);
    m->flags = attn__arena_floats(&arena, p->has_bytes ? size : 0);
    m->mask = attn__arena_take(&arena, p->has_bytes ? size : 0, 1);
    m->dbias = attn__arena_floats(&arena, p->tiles.wants_dbias ? size : 0);
    m->dbias_now = attn__arena_floats(&arena, p->tiles.wants_dbias && p->tiles.softcap != 0.0f ? size : 0);
    (p->by_query ? attn__tile_lanes_take : attn__tile_rows_take)(&m->rows, &p->tiles, &arena, 1, queries);
    m->alive = attn__arena_take(&arena, size, 1);
    if (p->tiles.masks) {
        attn__visible_rows_take(&m->see, &p->tiles.visible, &arena, queries, ATTN__VISIBLE_ANY);
        attn__visible_keys_take(&m->keys.see, &p->tiles.visible, &arena, shape->keys, ATTN__VISIBLE_ANY);
    }
    m->clean = attn__arena_floats(&arena, rows);
    m->bad = attn__arena_offsets(&arena, most);
    m->out = attn__arena_floats(&arena, p->converts ? rows : 0);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        m->copy[copied[i]] = attn__arena_floats(&arena, p->copies || p->converts ? rows : 0);
    m->shape =
        attn__arena_take(&arena, packed ? (int64_t)divide_shape(p, shape->queries, shape->keys, NULL, &unused) : 0, 1);
    return arena.used;
}

/* --------------------------------------------------------------------------------------------- the order of heads */

/* Reports whether heads along a batch axis share the bias and the masks. */
static bool shares_pairs(const attn__canonical *canonical, const attn_dim *dim)
{
    bool lens = canonical->has_lens && canonical->key.n > 1;
    return (!canonical->has_bias || dim->bias == 0) && (!canonical->has_mask || dim->mask == 0) &&
           (!canonical->has_blocks || dim->blocks == 0) && (!lens || dim->lens == 0);
}

/* Returns what heads along an axis share. 0: nothing. 1: the gradient of the bias. 2: also the bias and the masks. */
static int how_shared(const attn__canonical *canonical, const head_plan *p, const attn__axis *axis)
{
    bool apart = axis->packed || (p->tiles.wants_dbias && axis->dim.dbias != 0);
    return apart ? 0 : 1 + shares_pairs(canonical, &axis->dim);
}

/* Sorts axes by what their heads share: first nothing, then the bias gradient, last also bias and masks. */
static void order_axes(const attn__canonical *canonical, head_plan *p)
{
    const attn__group *batch = &canonical->batch;
    int n = 0;
    for (int sharing = 0; sharing < 3; sharing++)
        for (int a = 0; a < batch->n; a++)
            if (sharing == how_shared(canonical, p, &batch->axis[a]))
                p->order[n++] = a;
    int64_t weight = 1;
    for (int a = batch->n - 1; a >= 0; a--) {
        p->weight[a] = weight;
        weight *= batch->axis[a].dim.n;
    }
}

static void divide_work(const attn__canonical *canonical, head_plan *p)
{
    const attn__group *batch = &canonical->batch;
    p->sharing = batch->size;
    p->together = attn__max(1, attn__min(16, batch->size / ITEMS));
    if (p->tiles.wants_dbias && batch->size > 0) {
        for (int a = 0; a < batch->n; a++)
            p->sharing /= how_shared(canonical, p, &batch->axis[a]) > 0 ? 1 : batch->axis[a].dim.n;
        int64_t parts = attn__max(1, ITEMS / (batch->size / p->sharing));
        p->together = attn__ceil_div(p->sharing, attn__min(parts, p->sharing));
    }
    p->parts = attn__ceil_div(p->sharing, p->together);
    p->items = p->sharing > 0 ? batch->size / p->sharing * p->parts : 0;
    p->joins = p->tiles.wants_dbias && p->parts > 1;
}

/* Writes the offsets of a group. Pads them to whole vectors with copies of the last offset. */
static void fill_offsets(const attn__group *group, size_t stride, int64_t lanes, int64_t *at)
{
    attn__offsets_fill(group, stride, 0, group->size, at);
    for (int64_t i = group->size; i < attn__round_up(group->size, lanes); i++)
        at[i] = at[group->size - 1];
}

static void fill_copies(const attn__small_sequence_rows *rows, int64_t lanes, int64_t *at)
{
    for (int64_t i = 0; i < attn__round_up(rows->rows, lanes); i++)
        at[i] = attn__min(i, rows->rows - 1) * rows->channels;
}

/* Sets all fields except the arrays, which must have memory already. */
static void fill_shape(const attn__canonical *canonical, const head_plan *p, head_shape *s)
{
    const attn__group *query = &canonical->query, *key = &canonical->key;
    int64_t lanes = p->kernel->lanes;
    s->queries = query->size;
    s->keys = key->size;
    s->width = attn__round_up(canonical->backward ? s->keys : s->queries, lanes);
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++) {
        int roles = attn__operand_table[op].roles;
        const attn__group *group = attn__rows_of(canonical, op);
        s->of[op] = (attn__small_sequence_rows){.step = attn__stride(&group->axis[group->n - 1].dim, op),
                                                .row_at = roles & ATTN__IN_QUERY ? s->query_at[op] : s->key_at[op],
                                                .rows = group->size,
                                                .channels = roles & ATTN__IN_VALUE ? p->values : p->channels};
        size_t stride = attn__stride_of(op);
        if (roles & ATTN__IN_QUERY)
            fill_offsets(query, stride, lanes, s->query_at[op]);
        if (roles & ATTN__IN_KEY)
            fill_offsets(key, stride, lanes, s->key_at[op]);
        if (p->converts)
            fill_copies(&s->of[op], lanes, s->copy_at[op]);
    }
    attn__dropout_columns(canonical, 0, s->keys, s->drop_column);
}

static head_plan describe(const attn__canonical *canonical)
{
    const attn_problem *problem = &canonical->problem;
    head_plan p = {.kernel = attn__small_sequence_for(canonical->isa),
                   .channels = canonical->contract.size,
                   .values = canonical->value.size,
                   .by_query = !canonical->backward,
                   .copies = canonical->query.n > 1 || canonical->key.n > 1,
                   .converts = problem->dtype == ATTN_BF16,
                   .shape = {.queries = canonical->query.size, .keys = canonical->key.size}};
    head_scratch unused;
    p.tiles = attn__tile_plan_of(canonical, p.kernel->isa);
    p.shape.width = attn__round_up(canonical->backward ? p.shape.keys : p.shape.queries, p.kernel->lanes);
    p.has_bytes = p.tiles.visible.mask || p.tiles.visible.blocks || !p.tiles.visible.ranges;
    order_axes(canonical, &p);
    divide_work(canonical, &p);
    p.each = divide(&p, attn__is_packed(canonical), NULL, &unused);
    return p;
}

static attn_status make_plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    head_plan made = describe(canonical), *p;
    int64_t queries = made.shape.queries, keys = made.shape.keys;
    size_t front = (size_t)attn__round_up((int64_t)sizeof *p, 64);
    char *memory = attn__alloc(context, front + divide_shape(&made, queries, keys, NULL, &made.shape));
    if (!memory)
        return ATTN_ERROR_MEMORY;
    recipe->data = p = memcpy(memory, &made, sizeof made);
    divide_shape(p, queries, keys, memory + front, &p->shape);
    fill_shape(canonical, p, &p->shape);
    size_t sums = p->joins ? (size_t)(queries * p->shape.width) * sizeof(float) : 0;
    recipe->workspace =
        attn__size_add(attn__size_mul((size_t)canonical->threads, p->each), attn__size_mul((size_t)p->items, sums));
    snprintf(recipe->text, sizeof recipe->text, "%s %d queries x %d keys, %d heads at a time",
             attn__isa_text(p->kernel->isa), (int)queries, (int)keys, (int)p->together);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ rows of one head */

static attn__small_sequence_rows rows_of(const head *h, attn__operand op)
{
    char *base = attn__operand_array(h->arrays, op);
    int64_t size = h->plan->converts ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    attn__small_sequence_rows rows = h->shape->of[op];
    rows.at = (float *)(void *)(base + attn__stride(&h->now.at, op) * size);
    rows.next = (float *)(void *)(base + attn__stride(&h->next.at, op) * size);
    return rows;
}

/* Copies rows to f32 and makes `x` describe the copies. With plan->copies, only some operands need copies. */
static void copy_rows(const head *h, attn__operand op, attn__small_sequence_rows *x)
{
    const head_plan *p = h->plan;
    float *copy = h->m.copy[op];
    p->tiles.lanes->copy(x->at, p->converts ? ATTN_BF16 : ATTN_F32, x->row_at, NULL, x->rows, x->channels, copy,
                         x->channels);
    x->at = copy;
    x->step = x->channels;
    if (p->converts) {
        x->row_at = h->shape->copy_at[op];
        x->next = copy;
    }
}

/* Runs the kernel's sum, but only adds NaN and infinity for pairs whose `alive` has `bit`.  Finite rows are multiplied
 * in the normal way, so that results do not depend on masked rows. */
static void sum_guarded(const head *h, const attn__small_sequence_sums *t, const uint8_t *alive, uint8_t bit)
{
    attn__small_sequence_sums clean = *t;
    clean.x.at = h->m.clean;
    clean.x.step = t->x.channels;
    int64_t bad = attn__finite_clean(t->x.at, t->x.step, t->x.rows, t->x.channels, h->m.clean, clean.x.step, h->m.bad);
    h->plan->kernel->sum(&clean);
    attn__finite_sums sums = {.outs = t->out.rows,
                              .channels = t->out.channels,
                              .w = t->w,
                              .alive = alive,
                              .bit = bit,
                              .w_out = t->across,
                              .w_row = t->along,
                              .factor = t->factor,
                              .out_factor = t->row_factor,
                              .x = t->x.at,
                              .x_row = t->x.step,
                              .out = t->out.at,
                              .out_at = t->out.row_at,
                              .out_channel = 1};
    attn__finite_repair(&sums, h->m.bad, bad);
}

/* Returns the rows to which a sum is written: the rows of the output or, for bf16, f32 rows in scratch memory. */
static attn__small_sequence_rows rows_to_sum(const head *h, attn__operand op)
{
    attn__small_sequence_rows rows = rows_of(h, op);
    if (h->plan->converts) {
        rows.at = h->m.out;
        rows.next = h->m.out;
        rows.row_at = h->shape->copy_at[op];
    }
    return rows;
}

/* Rounds a sum's f32 rows to bf16 and stores them. Does nothing for f32 problems. */
static void store_sum(const head *h, attn__operand op, bool add)
{
    if (!h->plan->converts)
        return;
    attn__small_sequence_rows rows = rows_of(h, op);
    for (int64_t r = 0; r < rows.rows; r++)
        h->plan->tiles.backward->store_bf16((uint16_t *)(void *)rows.at + rows.row_at[r], h->m.out + r * rows.channels,
                                            rows.channels, 1.0f, add);
}

/* ----------------------------------------------------------------------------------------------- pairs of one head */

/* The parts that m.flags or m.mask hide. Ranges of keys are applied apart. */
static unsigned parts_in_bytes(const head_plan *p)
{
    unsigned parts = ATTN__VISIBLE_MASK | ATTN__VISIBLE_BLOCKS;
    if (!p->tiles.visible.ranges)
        parts |= ATTN__VISIBLE_LIMITS;
    return p->has_bytes ? parts : 0;
}

/* Makes all pairs of the head's shape the tile. */
static void start_tile(head *h)
{
    const head_plan *p = h->plan;
    const head_shape *shape = h->shape;
    head_scratch *m = &h->m;
    bool by_query = p->by_query;
    m->rows.bias = shape->query_at[ATTN__OP_BIAS];
    m->keys.bias = shape->key_at[ATTN__OP_BIAS];
    m->keys.column = shape->drop_column;
    m->keys.sigmoid_bias = attn__sigmoid_offset(h->canonical);
    m->keys.first = 0;
    attn__tile *t = &m->tile; /* set field by field, because clearing a struct takes a few percent of a small head */
    t->plan = &p->tiles;
    t->canonical = h->canonical;
    t->arrays = h->arrays;
    t->see = &m->see;
    t->rows = &m->rows;
    t->keys = &m->keys;
    t->row = t->key = t->head = 0;
    t->nrows = shape->queries;
    t->nkeys = shape->keys;
    t->ld = shape->width;
    t->s = m->s;
    t->ds = by_query ? NULL : m->ds;
    t->dbias = p->tiles.wants_dbias && p->tiles.softcap != 0.0f ? m->dbias_now : NULL;
    t->bias = m->bias;
    t->bias_there = NULL;
    t->flags = m->flags;
    t->mask = m->mask;
    t->alive = NULL;
    t->fades = NULL;
    t->hidden = parts_in_bytes(p);
    t->flagged = by_query ? t->hidden : 0;
    t->full = !p->tiles.visible.axes;
    if (by_query && p->tiles.visible.ranges && p->tiles.visible.axes)
        t->hidden |= ATTN__VISIBLE_LIMITS;
}

/* Loads the masks. The forward pass needs floats with queries in the lanes, and the backward pass needs bytes. */
static void load_bytes(const head *h)
{
    attn__visible_tile pairs = attn__tile_pairs(&h->m.tile);
    unsigned parts = parts_in_bytes(h->plan);
    int64_t width = h->shape->width;
    if (h->plan->by_query)
        attn__visible_hide(&pairs, parts, h->plan->tiles.lanes, h->m.flags, width, 0.0f, h->m.flags);
    else
        attn__visible_bytes(&pairs, parts, h->m.mask, width);
}

static attn__tile_place place_of(const head *h)
{
    return (attn__tile_place){h->canonical, h->arrays, 0, h->number, 0, h->shape->queries};
}

/* Finds which keys the head's queries attend, unless the previous head had the same masks. Finds the dropout hashes and
 * the place of the bias. */
static void load_pairs(head *h)
{
    const head_plan *p = h->plan;
    const attn_dim *at = &h->now.at;
    const head_pairs now = {at->mask, at->blocks, at->lens};
    bool same = h->loaded && h->pairs.mask == now.mask && h->pairs.blocks == now.blocks && h->pairs.lens == now.lens;
    if (p->tiles.has_dropout) {
        attn__tile_place place = place_of(h);
        attn__tile_rows_head(&h->m.rows, &p->tiles, &place);
    }
    if (p->tiles.has_bias)
        h->m.rows.bias_at[0] = at->bias;
    if (p->tiles.masks && !same)
        attn__visible_rows_start(&h->m.see, h->canonical, h->arrays, h->number, 0, h->shape->queries, p->kernel->lanes);
    if (p->has_bytes && !same)
        load_bytes(h);
    h->loaded = true;
    h->pairs = now;
}

/* If several pairs share an element, the elements are set to 0 and then added to. */
static void store_dbias(const head *h)
{
    const head_shape *shape = h->shape;
    const int64_t *row_at = shape->query_at[ATTN__OP_DBIAS], *key_at = shape->key_at[ATTN__OP_DBIAS];
    bool meets = h->canonical->extras & ATTN__BIAS_MEETS;
    attn__bias dbias = attn__bias_of(h->canonical, h->arrays, true, row_at, shape->queries, key_at, shape->keys);
    dbias.base += h->now.at.dbias;
    for (int64_t i = 0; meets && i < shape->queries; i++)
        for (int64_t j = 0; j < shape->keys; j++)
            dbias.base[row_at[i] + key_at[j]] = 0.0f;
    attn__bias_store(&dbias, h->plan->tiles.backward, h->m.dbias, shape->width,
                     meets || h->canonical->problem.accumulate);
}

/* -------------------------------------------------------------------------------------------------------- forward */

/* Computes the weights in m.s. Sets m.rows.shrink to the factor of each row. */
static void find_weights(head *h, const attn__small_sequence_rows *k, bool careful)
{
    const head_plan *p = h->plan;
    head_scratch *m = &h->m;
    int64_t width = h->shape->width;
    p->kernel->score(k, m->panel, m->s, width);
    m->tile.alive = careful ? m->alive : NULL;
    attn__tile_scores(&m->tile);
    attn__running_begin(h->canonical, h->arrays, h->number, 0, h->shape->queries, width, m->rows.m, m->rows.l);
    attn__tile_softmax(&m->tile, NULL);
    bool chooses = p->tiles.kind == ATTN__WEIGHTS_LARGEST;
    for (int64_t i = 0; chooses && i < h->shape->queries; i++)
        m->rows.l[i] = m->rows.m[i] == -INFINITY ? 0.0f : 1.0f;
    for (int64_t i = 0; i < width; i++)
        m->rows.shrink[i] = m->rows.l[i] == 0.0f ? 0.0f : p->tiles.drop_scale / m->rows.l[i];
}

static void write_lse(const head *h)
{
    float *lse = (float *)h->arrays->at.lse + h->now.at.lse;
    const int64_t *at = h->shape->query_at[ATTN__OP_LSE];
    for (int64_t i = 0; i < h->shape->queries; i++)
        lse[at[i]] = attn__running_lse(h->canonical, h->m.rows.m[i], h->m.rows.l[i]);
}

/* All scores are computed at once, and the softmax is along columns. */
static void run_head(head *h)
{
    const head_plan *p = h->plan;
    const head_scratch *m = &h->m;
    attn__small_sequence_rows q = rows_of(h, ATTN__OP_Q), k = rows_of(h, ATTN__OP_K), v = rows_of(h, ATTN__OP_V);
    if (p->converts)
        copy_rows(h, ATTN__OP_Q, &q);
    if (p->copies || p->converts) {
        copy_rows(h, ATTN__OP_K, &k);
        copy_rows(h, ATTN__OP_V, &v);
    }
    load_pairs(h);
    p->kernel->transpose(&q, attn__score_factor(h->canonical), m->panel, h->shape->width);
    find_weights(h, &k, false);
    attn__small_sequence_sums t = {
        rows_to_sum(h, ATTN__OP_O), v, m->s, h->shape->width, 1, 1.0f, m->rows.shrink, false};
    if (p->tiles.kind == ATTN__WEIGHTS_LARGEST) {
        attn__tile_store_chosen(&(attn__tile_chosen){
            .plan = &p->tiles, .place = place_of(h), .m = m->rows.m, .chosen = m->rows.chosen, .row = m->panel});
    } else if (!p->kernel->sum(&t)) {
        find_weights(h, &k, true);
        sum_guarded(h, &t, m->alive, 1);
    }
    if (p->tiles.kind != ATTN__WEIGHTS_LARGEST)
        store_sum(h, ATTN__OP_O, false);
    if (h->canonical->problem.flags & ATTN_WANT_LSE)
        write_lse(h);
}

/* ------------------------------------------------------------------------------------------------------- backward
 *
 * Keys are the lanes:
 *
 *     P = 2^(q k - lse)     dS = P (dout v - delta)     dv = P^T dout     dk = dS^T q     dq = dS k
 */

/* Computes P in m.s and dS in m.ds. */
static void weigh(head *h, bool finite)
{
    const head_plan *p = h->plan;
    head_scratch *m = &h->m;
    attn__tile_place place = place_of(h);
    load_pairs(h);
    attn__tile_rows_lse(&m->rows, &p->tiles, &place, &m->see);
    m->tile.alive = finite ? NULL : m->alive;
    attn__tile_weights(&m->tile);
    if (p->tiles.wants_dbias)
        p->tiles.lanes->add(m->dbias, m->tile.dbias ? m->dbias_now : m->ds, h->shape->queries * h->shape->width, 1.0f);
}

/* Computes the gradient `out` as factor * sum over rows of x, weighted by w (see attn__small_sequence_sums). */
static void spread(const head *h, attn__operand out, const attn__small_sequence_rows *x, const float *w, bool by_key,
                   float factor, bool finite)
{
    bool add = h->canonical->problem.accumulate;
    attn__small_sequence_sums t = {.out = rows_to_sum(h, out),
                                   .x = *x,
                                   .w = w,
                                   .along = by_key ? h->shape->width : 1,
                                   .across = by_key ? 1 : h->shape->width,
                                   .factor = factor,
                                   .add = add && !h->plan->converts};
    if (finite)
        h->plan->kernel->sum(&t);
    else
        sum_guarded(h, &t, h->m.alive, out == ATTN__OP_DV ? 2 : 1);
    store_sum(h, out, add);
}

static void run_head_backward(head *h)
{
    const head_plan *p = h->plan;
    const head_scratch *m = &h->m;
    unsigned wishes = h->canonical->problem.flags;
    int64_t width = h->shape->width;
    float scale = (float)h->canonical->problem.scale;
    attn__small_sequence_rows q = rows_of(h, ATTN__OP_Q), k = rows_of(h, ATTN__OP_K), v = rows_of(h, ATTN__OP_V);
    attn__small_sequence_rows o = rows_of(h, ATTN__OP_O), dout = rows_of(h, ATTN__OP_DOUT);
    if (p->converts) {
        copy_rows(h, ATTN__OP_Q, &q);
        copy_rows(h, ATTN__OP_K, &k);
        copy_rows(h, ATTN__OP_V, &v);
        copy_rows(h, ATTN__OP_O, &o);
        copy_rows(h, ATTN__OP_DOUT, &dout);
    }
    p->kernel->dots(&dout, &o, m->rows.delta);
    p->kernel->transpose(&k, attn__score_factor(h->canonical), m->panel, width);
    if (p->copies && !p->converts) {
        copy_rows(h, ATTN__OP_Q, &q);
        copy_rows(h, ATTN__OP_K, &k);
        copy_rows(h, ATTN__OP_DOUT, &dout);
    }
    bool finite = p->kernel->score(&q, m->panel, m->s, width);
    p->kernel->transpose(&v, 1.0f, m->panel, width);
    finite = p->kernel->score(&dout, m->panel, m->ds, width) && finite;
    weigh(h, finite);
    if (wishes & ATTN_WANT_DV)
        spread(h, ATTN__OP_DV, &dout, m->s, true, 1.0f, finite);
    if (wishes & ATTN_WANT_DK)
        spread(h, ATTN__OP_DK, &q, m->ds, true, scale, finite);
    if (wishes & ATTN_WANT_DQ)
        spread(h, ATTN__OP_DQ, &k, m->ds, false, scale, finite);
}

/* -------------------------------------------------------------------------------------------------------- all heads */

/* Moves h->now to head `number` in the plan's order. */
static void locate(head *h, int64_t number)
{
    const attn__group *batch = &h->canonical->batch;
    for (int i = batch->n - 1; i >= 0; i--) {
        const attn__axis *axis = &batch->axis[h->plan->order[i]];
        h->index[i] = number % axis->dim.n;
        number /= axis->dim.n;
        attn__place_advance(&h->now, axis, h->index[i]);
        h->number += h->index[i] * h->plan->weight[h->plan->order[i]];
    }
    h->next = h->now;
}

/* Moves h->next to the next head, or from the last to the first. Returns the change of the batch item's number. */
static int64_t advance(head *h)
{
    int64_t by = 0;
    for (int i = h->canonical->batch.n - 1; i >= 0; i--) {
        const attn__axis *axis = &h->canonical->batch.axis[h->plan->order[i]];
        bool over = ++h->index[i] == axis->dim.n;
        int64_t step = over ? 1 - axis->dim.n : 1;
        attn__place_advance(&h->next, axis, step);
        by += step * h->plan->weight[h->plan->order[i]];
        if (!over)
            break;
        h->index[i] = 0;
    }
    return by;
}

typedef struct job {
    const attn__canonical *canonical;
    const head_plan *plan;
    const attn__execution *arrays;
    char *workspace;
    float *parts; /* [items][queries][width]: parts of the bias gradient */
    void (*run)(head *h);
} job;

static void begin(const job *j, int64_t number, int thread, head *h)
{
    const head_plan *p = j->plan;
    size_t size = (size_t)(attn__max(p->shape.queries, p->shape.keys) * p->shape.width);
    h->canonical = j->canonical;
    h->plan = p;
    h->shape = &p->shape;
    h->arrays = j->arrays;
    h->now = (attn__place){.drop = 0};
    h->number = 0;
    h->sequence = -1;
    h->loaded = false;
    divide(p, attn__is_packed(j->canonical), j->workspace + (size_t)thread * p->each, &h->m);
    if (p->tiles.has_bias)
        memset(h->m.bias, 0, size * sizeof(float)); /* padding columns are read too, so they must be finite */
    if (p->has_bytes && j->canonical->backward)
        memset(h->m.mask, 0, size);
    if (p->tiles.wants_dbias)
        memset(h->m.dbias, 0, size * sizeof(float));
    if (p->tiles.masks && !attn__is_packed(j->canonical))
        attn__visible_keys_start(&h->m.keys.see, j->canonical, 0, p->shape.keys);
    start_tile(h);
    locate(h, number);
}

/* Sets the head's problem, arrays and shape. */
static void enter_sequence(const job *j, head *h, head_shape *shape, attn__sequence *one)
{
    const head_plan *p = j->plan;
    int64_t sequence = attn__packed_sequence(j->canonical, h->number);
    if (sequence == h->sequence)
        return;
    h->canonical = j->canonical;
    h->arrays = j->arrays;
    attn__sequence_enter(one, &h->canonical, &h->arrays, h->number);
    divide_shape(p, p->shape.queries, p->shape.keys, h->m.shape, shape);
    fill_shape(h->canonical, p, shape);
    if (p->tiles.masks)
        attn__visible_keys_start(&h->m.keys.see, h->canonical, 0, shape->keys);
    h->shape = shape;
    h->sequence = sequence;
    h->loaded = false;
    start_tile(h);
}

static void run_item(void *user, int64_t item, int thread)
{
    const job *j = user;
    const head_plan *p = j->plan;
    int64_t at = item % p->parts * p->together, end = attn__min(at + p->together, p->sharing);
    bool packed = attn__is_packed(j->canonical);
    head h;
    head_shape shape;
    attn__sequence one;
    begin(j, item / p->parts * p->sharing + at, thread, &h);
    while (true) {
        int64_t by = advance(&h);
        if (packed)
            enter_sequence(j, &h, &shape, &one);
        j->run(&h);
        if (++at == end)
            break;
        h.now = h.next;
        h.number += by;
    }
    int64_t size = p->shape.queries * p->shape.width;
    if (p->joins)
        memcpy(j->parts + item * size, h.m.dbias, (size_t)size * sizeof(float));
    else if (p->tiles.wants_dbias)
        store_dbias(&h);
}

/* Adds the parts of one bias gradient in order and stores the sum. */
static void join_parts(void *user, int64_t number, int thread)
{
    const job *j = user;
    const head_plan *p = j->plan;
    int64_t size = p->shape.queries * p->shape.width;
    const float *parts = j->parts + number * p->parts * size;
    head h;
    begin(j, number * p->sharing, thread, &h);
    memcpy(h.m.dbias, parts, (size_t)size * sizeof *parts);
    for (int64_t i = 1; i < p->parts; i++)
        p->tiles.lanes->add(h.m.dbias, parts + i * size, size, 1.0f);
    store_dbias(&h);
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    const head_plan *p = recipe->data;
    float *parts = (float *)(void *)((char *)workspace + (size_t)canonical->threads * p->each);
    job j = {canonical, p, arrays, workspace, parts, canonical->backward ? run_head_backward : run_head};
    attn__parallel_items(canonical->threads, p->items, run_item, &j);
    if (p->joins)
        attn__parallel_items(canonical->threads, p->items / p->parts, join_parts, &j);
}

extern const attn__solver attn__solver_small_sequence, attn__solver_small_sequence_backward;
const attn__solver attn__solver_small_sequence = {
    .name = "small_sequence",
    .refuse = refuse,
    .cost = cost,
    .plan = make_plan,
    .apply = apply,
    .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__BLOCKS | ATTN__TOP_K,
};
const attn__solver attn__solver_small_sequence_backward = {
    .name = "small_sequence_backward",
    .refuse = refuse_backward,
    .cost = cost_backward,
    .plan = make_plan,
    .apply = apply,
    .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__DLSE | ATTN__BLOCKS | ATTN__BIAS_MEETS,
};
