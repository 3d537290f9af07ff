/* SPDX-License-Identifier: MIT */
#include "support/random_arrays.h"

#include "support/attend_ref.h"
#include "support/attend_ref_walk.h"
#include "support/guard.h"

#include "attend/scores/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How to find the strides of an array: its stride field and the roles of its dims. Tables are found in another way. */
typedef struct kind {
    array_id id;
    const char *name;
    size_t field;
    int roles;
    bool positional, output, side, gradient;
} kind;

#define FIELD(name) offsetof(attn_dim, name)
static const kind kinds[] = {
    {ARRAY_Q, "q", FIELD(q), ROLE_B | ROLE_Q | ROLE_C, false, false, false, false},
    {ARRAY_K, "k", FIELD(k), ROLE_B | ROLE_K | ROLE_C, true, false, false, false},
    {ARRAY_V, "v", FIELD(v), ROLE_B | ROLE_K | ROLE_V, true, false, false, false},
    {ARRAY_O, "o", FIELD(o), ROLE_B | ROLE_Q | ROLE_V, false, true, false, false},
    {ARRAY_BIAS, "bias", FIELD(bias), ROLE_B | ROLE_Q | ROLE_K, false, false, true, false},
    {ARRAY_MASK, "mask", FIELD(mask), ROLE_B | ROLE_Q | ROLE_K, true, false, false, false},
    {ARRAY_LENS, "lens", FIELD(lens), ROLE_B | ROLE_Q, false, false, false, false},
    {ARRAY_LSE, "lse", FIELD(lse), ROLE_B | ROLE_Q, false, true, true, false},
    {ARRAY_WEIGHTS, "weights", FIELD(weights), ROLE_B | ROLE_Q | ROLE_K, false, true, true, false},
    {ARRAY_W, "w", FIELD(w), ROLE_B | ROLE_C, false, false, true, false},
    {ARRAY_W2, "w2", FIELD(w), ROLE_B | ROLE_C, false, false, true, false},
    {ARRAY_DW, "dw", FIELD(w), ROLE_B | ROLE_C, false, true, true, true},
    {ARRAY_DW2, "dw2", FIELD(w), ROLE_B | ROLE_C, false, true, true, true},
    {ARRAY_SINKS, "sinks", FIELD(sinks), ROLE_B | ROLE_Q, false, false, true, false},
    {ARRAY_BLOCKS, "blocks", FIELD(blocks), ROLE_B | ROLE_Q | ROLE_K, false, false, false, false},
    {ARRAY_DSINKS, "dsinks", FIELD(sinks), ROLE_B | ROLE_Q, false, true, true, true},
    {ARRAY_DLSE, "dlse", FIELD(lse), ROLE_B | ROLE_Q, false, false, true, false},
    {ARRAY_DOUT, "dout", FIELD(dout), ROLE_B | ROLE_Q | ROLE_V, false, false, false, false},
    {ARRAY_DQ, "dq", FIELD(dq), ROLE_B | ROLE_Q | ROLE_C, false, true, false, true},
    {ARRAY_DK, "dk", FIELD(dk), ROLE_B | ROLE_K | ROLE_C, true, true, false, true},
    {ARRAY_DV, "dv", FIELD(dv), ROLE_B | ROLE_K | ROLE_V, true, true, false, true},
    {ARRAY_DBIAS, "dbias", FIELD(dbias), ROLE_B | ROLE_Q | ROLE_K, false, true, true, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int64_t *field_of(attn_problem *p, int dim, size_t field)
{
    return (int64_t *)(void *)((char *)&p->dims[dim] + field);
}

static int64_t length_of(const attn_problem *p, const kind *k, int dim)
{
    for (int i = 0; k->positional && i < p->nwindows; i++)
        if (p->windows[i].key_dim == dim)
            return p->windows[i].size;
    if ((p->flags & ATTN_WITH_PACKED) && dim == p->packed.query_dim && walk_is_token(k->field, ATTN_ROLE_QUERY))
        return p->packed.queries;
    if ((p->flags & ATTN_WITH_PACKED) && dim == p->packed.key_dim && walk_is_token(k->field, ATTN_ROLE_KEY))
        return p->packed.keys;
    if (k->id == ARRAY_BLOCKS && (p->flags & ATTN_WITH_BLOCKS) && dim == p->blocks.query_dim)
        return (p->dims[dim].n + p->blocks.queries - 1) / p->blocks.queries;
    if (k->id == ARRAY_BLOCKS && (p->flags & ATTN_WITH_BLOCKS) && dim == p->blocks.key_dim)
        return (p->dims[dim].n + p->blocks.keys - 1) / p->blocks.keys;
    for (int i = 0; k->id == ARRAY_WEIGHTS && i < p->npicks; i++)
        if (p->picks[i].dim == dim)
            return p->picks[i].n;
    return p->dims[dim].n;
}

static int64_t chosen(attn__rng *g, int percent)
{
    return attn__rng_below(g, 100) < (uint64_t)percent;
}

/* Orders the dims as in layers: channels are innermost, and the first axis of heads follows. */
static void put_heads_inside(const attn_problem *p, int64_t *order)
{
    int at = 0;
    for (int i = 0; i < p->ndims; i++)
        if (i != 1 && p->dims[i].role < ATTN_ROLE_CONTRACT)
            order[at++] = i;
    if (p->ndims > 1 && p->dims[1].role < ATTN_ROLE_CONTRACT)
        order[at++] = 1;
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role >= ATTN_ROLE_CONTRACT)
            order[at++] = i;
}

/* Sets contiguous strides in some order of the dims. If `wild` is true, also uses gaps, negative strides and
 * broadcast dims. */
static void lay_out(attn__rng *g, attn_problem *p, const kind *k, bool wild, bool heads_inside)
{
    int64_t order[ATTN_MAX_DIMS], next = 1;
    for (int i = 0; i < p->ndims; i++)
        order[i] = i;
    wild = wild && !heads_inside;
    if (heads_inside)
        put_heads_inside(p, order);
    else if (wild || chosen(g, 30))
        attn__rng_shuffle(g, order, p->ndims);
    for (int i = p->ndims - 1; i >= 0; i--) {
        int dim = (int)order[i];
        int64_t *stride = field_of(p, dim, k->field), n = length_of(p, k, dim);
        *stride = 0;
        if (!(k->roles >> p->dims[dim].role & 1))
            continue;
        if ((p->flags & ATTN_WITH_PACKED) && dim == p->packed.batch_dim &&
            (walk_is_token(k->field, ATTN_ROLE_QUERY) || walk_is_token(k->field, ATTN_ROLE_KEY)))
            continue;
        bool broadcast = k->id == ARRAY_BIAS || k->id == ARRAY_MASK || k->id == ARRAY_LENS || k->id == ARRAY_W ||
                         k->id == ARRAY_SINKS || k->id == ARRAY_BLOCKS;
        bool spread = !k->output || k->gradient;
        if (spread && p->dims[dim].role == ATTN_ROLE_BATCH && (broadcast ? chosen(g, 40) : wild && chosen(g, 15)))
            continue;
        bool needed = k->id == ARRAY_W && p->dims[dim].role == ATTN_ROLE_CONTRACT;
        needed = needed || ((p->flags & ATTN_WITH_PACKED) && walk_is_token(k->field, p->dims[dim].role) &&
                            (dim == p->packed.query_dim || dim == p->packed.key_dim));
        if (spread && wild && chosen(g, 6) && !needed)
            continue;
        *stride = wild && chosen(g, 8) ? -next : next;
        next *= n > 0 ? n : 1;
        next += wild && chosen(g, 15) ? 1 + (int64_t)attn__rng_below(g, 3) : 0;
    }
}

static void lay_out_table(attn__rng *g, attn_problem *p, attn_relative *r)
{
    attn_role role = r->kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT;
    int64_t next = 1;
    bool last = true;
    for (int d = p->ndims - 1; d >= 0; d--) {
        bool mine = p->dims[d].role == role || (p->dims[d].role == ATTN_ROLE_BATCH && chosen(g, 25));
        if (!mine)
            continue;
        r->stride[d] = next;
        int64_t n = p->dims[d].n;
        if (p->dims[d].role == role && last) {
            n = r->begin || r->end ? r->end - r->begin : n;
            last = false;
        }
        next *= n > 0 ? n : 1;
    }
    r->row_stride = next;
}

static void copy_strides(random_problem *r)
{
    attn_problem *from = &r->forward, *to = &r->backward;
    for (int d = 0; d < from->ndims; d++) {
        attn_dim own = to->dims[d];
        to->dims[d] = from->dims[d];
        if (to->own_grad_strides)
            to->dims[d].dq = own.dq, to->dims[d].dk = own.dk, to->dims[d].dv = own.dv, to->dims[d].dout = own.dout,
            to->dims[d].dbias = own.dbias;
    }
    memcpy(to->relatives, from->relatives, sizeof to->relatives);
}

/* Sets the strides of a bias by distance: pairs with the same distance share an element. */
static void by_distance(random_problem *r)
{
    attn_problem *const both[] = {&r->forward, &r->backward};
    for (int i = 0; i < 2; i++) {
        attn_dim *d = both[i]->dims;
        int64_t n = r->forward.dims[2].n + r->forward.dims[3].n;
        const int64_t strides[] = {0, n + 2, -1, 1};
        for (int dim = 0; dim < 4; dim++)
            *(i ? &d[dim].dbias : &d[dim].bias) = strides[dim];
    }
}

/* Gives the problem a bias with an index by distance or by pair. Rows of the bias have gaps. Heads are the outer or
 * the inner axis of the bias. */
static void by_index(random_problem *r)
{
    attn_problem *const both[] = {&r->forward, &r->backward};
    attn__rng g = {.seed = 20201122, .stream = r->number};
    bool pairs = chosen(&g, 30), behind = chosen(&g, 50);
    int64_t rows = 1 + (int64_t)attn__rng_below(&g, 40), heads = r->forward.dims[1].n;
    const int64_t strides[] = {0, behind ? 1 : rows + 1, pairs ? r->forward.dims[3].n : -1, 1};
    for (int i = 0; i < 2; i++) {
        both[i]->flags |= ATTN_WITH_BIAS_INDEX;
        both[i]->bias_index = (attn_bias_index){rows, behind ? heads + 2 : 1};
        for (int dim = 0; dim < 4; dim++)
            *(i ? &both[i]->dims[dim].dbias : &both[i]->dims[dim].bias) = strides[dim];
    }
}

void random_layout(attn__rng *g, random_problem *r, bool plain)
{
    bool wild = !plain || chosen(g, 15);
    for (int i = 0; i < KINDS; i++) {
        if (kinds[i].id == ARRAY_W2 || kinds[i].id == ARRAY_DW || kinds[i].id == ARRAY_DW2 ||
            kinds[i].id == ARRAY_DSINKS || kinds[i].id == ARRAY_DLSE)
            continue;
        if (kinds[i].id == ARRAY_SINKS && !(r->forward.flags & ATTN_WITH_SINKS))
            continue;
        if (kinds[i].id == ARRAY_BLOCKS && !(r->forward.flags & ATTN_WITH_BLOCKS))
            continue;
        bool own = kinds[i].field >= FIELD(dq), channels = kinds[i].roles & (ROLE_C | ROLE_V);
        lay_out(g, own ? &r->backward : &r->forward, &kinds[i], wild, wild && channels && r->number % 3 == 0);
    }
    if (plain && r->forward.dims[1].n > 1 && chosen(g, 25)) /* grouped heads */
        for (int d = 1; d < 2; d++)
            r->forward.dims[d].k = r->forward.dims[d].v = 0;
    for (int i = 0; i < r->forward.nrelatives; i++)
        lay_out_table(g, &r->forward, &r->forward.relatives[i]);
    if (plain && (r->forward.flags & ATTN_WITH_BIAS) && !r->backward.accumulate && r->number % 4 < 2)
        (r->number % 4 ? by_index : by_distance)(r);
    copy_strides(r);
}

/* ---------------------------------------------------------------------------------------------- memory */

static bool is_present(const random_problem *r, array_id id)
{
    const attn_problem *p = &r->forward;
    int vectors = attn__score_of(p)->vectors;
    unsigned with = r->backward.flags;
    switch (id) {
    case ARRAY_BIAS:
        return p->flags & ATTN_WITH_BIAS;
    case ARRAY_MASK:
        return p->flags & ATTN_WITH_MASK;
    case ARRAY_LENS:
        return p->flags & ATTN_WITH_LENS;
    case ARRAY_WEIGHTS:
        return p->flags & ATTN_WANT_WEIGHTS;
    case ARRAY_W:
        return vectors > 0;
    case ARRAY_W2:
        return vectors > 1;
    case ARRAY_DW:
        return vectors > 0 && (with & ATTN_WANT_DW);
    case ARRAY_DW2:
        return vectors > 1 && (with & ATTN_WANT_DW);
    case ARRAY_SINKS:
        return p->flags & ATTN_WITH_SINKS;
    case ARRAY_BLOCKS:
        return p->flags & ATTN_WITH_BLOCKS;
    case ARRAY_DSINKS:
        return with & ATTN_WANT_DSINKS;
    case ARRAY_DLSE:
        return with & ATTN_WITH_DLSE;
    case ARRAY_DQ:
        return with & ATTN_WANT_DQ;
    case ARRAY_DK:
        return with & ATTN_WANT_DK;
    case ARRAY_DV:
        return with & ATTN_WANT_DV;
    case ARRAY_DBIAS:
        return with & ATTN_WANT_DBIAS;
    default:
        return true;
    }
}

static void stretch(array *a, int64_t n, int64_t stride)
{
    if (stride == 0)
        return;
    if (n == 0)
        a->bytes = 1; /* marks an array without elements; `bytes` gets its real value later */
    else if (stride < 0)
        a->low += (n - 1) * stride, a->n += (n - 1) * -stride;
    else
        a->n += (n - 1) * stride;
}

static void obtain(array *a)
{
    if (a->bytes == 1)
        a->n = 1, a->low = 0;
    a->bytes = (size_t)a->n * attn_dtype_size(a->dtype);
    a->block = guard_alloc(a->bytes);
}

static attn_dtype dtype_of(const attn_problem *p, const kind *k)
{
    if (k->id == ARRAY_MASK || k->id == ARRAY_BLOCKS)
        return ATTN_U8;
    if (k->id == ARRAY_LENS)
        return ATTN_I32;
    return k->side ? walk_side(p) : p->dtype;
}

/* Returns the stride field of an array. If the problem has no own gradient strides, dq has the strides of q. */
static size_t effective_field(const attn_problem *p, const kind *k)
{
    static const size_t own[] = {FIELD(dq), FIELD(dk), FIELD(dv), FIELD(dout), FIELD(dbias)};
    static const size_t like[] = {FIELD(q), FIELD(k), FIELD(v), FIELD(o), FIELD(bias)};
    for (int i = 0; i < 5 && !p->own_grad_strides; i++)
        if (k->field == own[i])
            return like[i];
    return k->field;
}

/* Draws ascending offsets of packed sequences, up to the number of positions. Their array ends at a guard page. */
static void draw_offsets(attn__rng *g, array *a, const char *name, int64_t sequences, int64_t longest,
                         int64_t positions)
{
    *a = (array){.name = name, .dtype = ATTN_I32, .n = sequences + 1};
    obtain(a);
    int32_t *offsets = a->block;
    offsets[0] = (int32_t)attn__rng_below(g, 3);
    for (int64_t s = 1; s <= sequences; s++)
        offsets[s] = (int32_t)(offsets[s - 1] + (int64_t)attn__rng_below(g, (uint64_t)longest + 1));
    if (offsets[sequences] > positions || (sequences == 0 && offsets[0] > positions))
        offsets[0] = -1; /* If the sequences do not fit, an offset of -1 makes the problem invalid. */
}

void random_offsets(attn__rng *g, random_problem *r)
{
    const attn_problem *p = &r->forward;
    int64_t n = p->dims[p->packed.batch_dim].n;
    if (!(p->flags & ATTN_WITH_PACKED))
        return;
    draw_offsets(g, &r->array[ARRAY_Q_OFFSETS], "q_offsets", n, p->dims[p->packed.query_dim].n, p->packed.queries);
    draw_offsets(g, &r->array[ARRAY_K_OFFSETS], "k_offsets", n, p->dims[p->packed.key_dim].n, p->packed.keys);
    r->arrays.q_offsets = r->array[ARRAY_Q_OFFSETS].block;
    r->arrays.k_offsets = r->array[ARRAY_K_OFFSETS].block;
}

void random_index(random_problem *r)
{
    const attn_problem *p = &r->forward;
    attn__rng g = {.seed = 20201123, .stream = r->number};
    array a = {.name = "bias_index", .dtype = ATTN_I32, .n = 1};
    if (!(p->flags & ATTN_WITH_BIAS_INDEX))
        return;
    for (int d = 0; d < p->ndims; d++)
        if (p->dims[d].role == ATTN_ROLE_QUERY || p->dims[d].role == ATTN_ROLE_KEY)
            stretch(&a, p->dims[d].n, p->dims[d].bias);
    obtain(&a);
    for (int64_t i = 0; i < a.n; i++)
        ((int32_t *)a.block)[i] = (int32_t)attn__rng_below(&g, (uint64_t)p->bias_index.rows);
    r->array[ARRAY_BIAS_INDEX] = a;
    r->arrays.bias_index = array_base(&a);
}

static void allocate_tables(random_problem *r)
{
    attn_problem *p = &r->forward;
    for (int i = 0; i < p->nrelatives; i++) {
        const attn_relative *t = &p->relatives[i];
        attn_role role = t->kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT;
        bool wanted = r->backward.flags & ATTN_WANT_DTABLES, last = true;
        array a = {.name = "table", .dtype = walk_side(p), .n = 1};
        stretch(&a, t->rows, t->row_stride);
        for (int d = p->ndims - 1; d >= 0; d--) {
            bool cut = p->dims[d].role == role && last && (t->begin || t->end);
            last = last && p->dims[d].role != role;
            stretch(&a, cut ? t->end - t->begin : p->dims[d].n, t->stride[d]);
        }
        array gradient = a;
        gradient.name = "dtable";
        obtain(&a);
        r->array[ARRAY_TABLE + i] = a;
        if (wanted) {
            obtain(&gradient);
            r->array[ARRAY_DTABLE + i] = gradient;
        }
    }
}

void *array_base(const array *a)
{
    return a->block ? (char *)a->block - a->low * (int64_t)attn_dtype_size(a->dtype) : NULL;
}

static void connect(random_problem *r)
{
    attn_arrays *a = &r->arrays;
    const array *x = r->array;
    a->q = array_base(&x[ARRAY_Q]), a->k = array_base(&x[ARRAY_K]), a->v = array_base(&x[ARRAY_V]);
    a->bias = array_base(&x[ARRAY_BIAS]), a->mask = array_base(&x[ARRAY_MASK]), a->lens = array_base(&x[ARRAY_LENS]);
    a->w = array_base(&x[ARRAY_W]), a->w2 = array_base(&x[ARRAY_W2]);
    a->o = array_base(&x[ARRAY_O]), a->lse = array_base(&x[ARRAY_LSE]), a->weights = array_base(&x[ARRAY_WEIGHTS]);
    a->dout = array_base(&x[ARRAY_DOUT]), a->dq = array_base(&x[ARRAY_DQ]), a->dk = array_base(&x[ARRAY_DK]);
    a->dv = array_base(&x[ARRAY_DV]), a->dbias = array_base(&x[ARRAY_DBIAS]);
    a->sinks = array_base(&x[ARRAY_SINKS]), a->dsinks = array_base(&x[ARRAY_DSINKS]);
    a->dlse = array_base(&x[ARRAY_DLSE]), a->blocks = array_base(&x[ARRAY_BLOCKS]);
    a->dw = array_base(&x[ARRAY_DW]), a->dw2 = array_base(&x[ARRAY_DW2]);
    for (int i = 0; i < ATTN_MAX_RELATIVE; i++) {
        a->table[i] = array_base(&x[ARRAY_TABLE + i]);
        a->dtable[i] = array_base(&x[ARRAY_DTABLE + i]);
    }
}

void random_allocate(random_problem *r)
{
    for (int i = 0; i < KINDS; i++) {
        const kind *k = &kinds[i];
        attn_problem *p = &r->backward;
        array a = {.name = k->name, .dtype = dtype_of(p, k), .n = 1};
        if (!is_present(r, k->id))
            continue;
        bool rows = (p->flags & ATTN_WITH_BIAS_INDEX) && (k->id == ARRAY_BIAS || k->id == ARRAY_DBIAS);
        for (int d = 0; d < p->ndims; d++)
            if (!rows || p->dims[d].role == ATTN_ROLE_BATCH)
                stretch(&a, length_of(&r->forward, k, d), *field_of(p, d, rows ? FIELD(bias) : effective_field(p, k)));
        if (rows)
            stretch(&a, p->bias_index.rows, p->bias_index.row_stride);
        obtain(&a);
        r->array[k->id] = a;
    }
    allocate_tables(r);
    connect(r);
}

void random_problem_free(random_problem *r)
{
    for (int i = 0; i < ARRAY_COUNT; i++)
        if (r->array[i].block)
            guard_free(r->array[i].block, r->array[i].bytes);
}

/* --------------------------------------------------------------------------------------------- contents */

double array_get(const array *a, int64_t offset)
{
    return walk_load(a->dtype, a->block, offset - a->low);
}

void array_set(const array *a, int64_t offset, double x)
{
    int64_t at = offset - a->low;
    if (a->dtype == ATTN_F64) {
        ((double *)a->block)[at] = x;
    } else if (a->dtype == ATTN_F32) {
        ((float *)a->block)[at] = (float)x;
    } else if (a->dtype == ATTN_BF16) {
        float f = (float)x;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        /* Truncating the bits is enough, because the number is random. */
        ((uint16_t *)a->block)[at] = (uint16_t)(bits >> 16);
    }
}

static void fill_normal(attn__rng *g, const array *a, double size)
{
    for (int64_t i = 0; a->block && i < a->n; i++)
        array_set(a, a->low + i, size * attn__rng_normal(g));
}

static void fill_masks(attn__rng *g, random_problem *r)
{
    const array *mask = &r->array[ARRAY_MASK], *lens = &r->array[ARRAY_LENS], *bias = &r->array[ARRAY_BIAS];
    /* the percentage of visible pairs is 5, 35, 65 or 95 */
    int density = (int)attn__rng_below(g, 4) * 30 + 5;
    int64_t most = lens->block ? r->forward.dims[r->forward.lens_dim].n + 2 : 1;
    for (int64_t i = 0; i < mask->n && mask->block; i++)
        ((uint8_t *)mask->block)[i] = (uint8_t)(chosen(g, density) ? 1 + attn__rng_below(g, 200) : 0);
    for (int64_t i = 0; i < lens->n && lens->block; i++)
        ((int32_t *)lens->block)[i] = (int32_t)attn__rng_below(g, (uint64_t)most + 1) - 1;
    bool masking = chosen(g, 25) && r->forward.normalization == ATTN_NORMALIZATION_SOFTMAX;
    for (int64_t i = 0; i < bias->n && bias->block && masking; i++)
        if (chosen(g, 15))
            array_set(bias, bias->low + i, (double)-INFINITY);
}

static void fill_blocks(attn__rng *g, const array *blocks)
{
    for (int64_t i = 0; blocks->block && i < blocks->n; i++)
        ((uint8_t *)blocks->block)[i] = (uint8_t)(chosen(g, 60) ? 1 + attn__rng_below(g, 200) : 0);
}

static void poison_unused(random_problem *r)
{
    const array *k = &r->array[ARRAY_K], *v = &r->array[ARRAY_V];
    unsigned char *used_k = calloc((size_t)k->n, 1), *used_v = calloc((size_t)v->n, 1);
    attend_ref_mark_used(&r->forward, &r->arrays, used_k - k->low, used_v - v->low);
    for (int64_t i = 0; i < k->n; i++)
        if (!used_k[i])
            array_set(k, k->low + i, (double)NAN);
    for (int64_t i = 0; i < v->n; i++)
        if (!used_v[i])
            array_set(v, v->low + i, (double)NAN);
    free(used_k);
    free(used_v);
}

void random_fill(attn__rng *g, random_problem *r, double loud)
{
    static const array_id plain[] = {ARRAY_V, ARRAY_BIAS, ARRAY_W, ARRAY_W2, ARRAY_DOUT};
    fill_normal(g, &r->array[ARRAY_Q], loud);
    fill_normal(g, &r->array[ARRAY_K], loud);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        fill_normal(g, &r->array[plain[i]], 1);
    for (int i = 0; i < ATTN_MAX_RELATIVE; i++)
        fill_normal(g, &r->array[ARRAY_TABLE + i], 0.5);
    fill_masks(g, r);
    fill_normal(g, &r->array[ARRAY_SINKS], 2);
    fill_normal(g, &r->array[ARRAY_DLSE], 1);
    fill_blocks(g, &r->array[ARRAY_BLOCKS]);
    poison_unused(r);
}

bool random_problem_narrow_keys(random_problem *r)
{
    static const array_id ids[] = {ARRAY_K, ARRAY_V};
    if (r->forward.dtype != ATTN_F32 || (r->forward.flags & ATTN_WANT_WEIGHTS))
        return false;
    r->forward.flags |= ATTN_WITH_BF16_KEYS;
    /* No solver supports bf16 keys in the backward pass, but the float64 evaluation needs the flag. */
    r->backward.flags |= ATTN_WITH_BF16_KEYS;
    for (int i = 0; i < 2; i++) {
        array *narrow = &r->array[ids[i]], wide = *narrow;
        narrow->dtype = ATTN_BF16;
        obtain(narrow);
        for (int64_t e = wide.low; e < wide.low + wide.n; e++)
            array_set(narrow, e, array_get(&wide, e));
        guard_free(wide.block, wide.bytes);
    }
    connect(r);
    return true;
}

void random_problem_poison(random_problem *r)
{
    for (int i = ARRAY_O; i < ARRAY_COUNT; i++)
        for (int64_t e = 0; r->array[i].block && e < r->array[i].n; e++)
            array_set(&r->array[i], r->array[i].low + e, -1.25e30);
}
