/* SPDX-License-Identifier: MIT */
#include "support/table_problem.h"

#include "support/attend_ref_walk.h"
#include "support/cmocka.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const table_solvers[2][2] = {{NULL, "flash"}, {NULL, "flash_backward"}};
attn_context *table_context;

int table_start(void **state)
{
    (void)state;
    return attn_context_create(&table_context, &(attn_context_options){.threads = 2}) != ATTN_OK;
}

int table_end(void **state)
{
    (void)state;
    attn_context_destroy(table_context);
    return 0;
}

/* --------------------------------------------------------------------------------------------- describing */

static int64_t or_one(int64_t n)
{
    return n ? n : 1;
}

static int axes_of(const table_shape *s)
{
    return s->q[1] ? 2 : 1;
}

static void lay_heads(const table_shape *s, attn_problem *p, int64_t rows, int64_t keys, const int64_t *token)
{
    int64_t group = or_one(s->group), heads = or_one(s->heads);
    int64_t c = s->dim * or_one(s->step) + s->gap, v = or_one(s->dim_value) * or_one(s->step) + s->gap;
    p->dims[0] = (attn_dim){.role = ATTN_ROLE_BATCH,
                            .n = s->no_batch ? 0 : or_one(s->batch),
                            .q = rows * token[0],
                            .k = keys * token[1],
                            .v = keys * token[2],
                            .o = rows * token[3],
                            .mask = rows * keys,
                            .lens = s->lens_by_query ? s->q[0] : 1,
                            .lse = heads * group * rows};
    p->dims[1] = (attn_dim){.role = ATTN_ROLE_BATCH,
                            .n = heads,
                            .q = group * c,
                            .k = c,
                            .v = v,
                            .o = group * v,
                            .bias = group * rows * keys,
                            .lse = group * rows};
    p->dims[2] = (attn_dim){.role = ATTN_ROLE_BATCH, .n = group, .q = c, .o = v, .bias = rows * keys, .lse = rows};
}

static void lay_axes(const table_shape *s, attn_problem *p, int64_t keys, const int64_t *token)
{
    int axes = axes_of(s);
    int64_t rows_in = 1, keys_in = 1;
    for (int a = axes - 1; a >= 0; a--) {
        p->dims[TABLE_QUERY + a] = (attn_dim){.role = ATTN_ROLE_QUERY,
                                              .n = s->q[a],
                                              .q = rows_in * token[0],
                                              .o = rows_in * token[3],
                                              .bias = rows_in * keys,
                                              .mask = rows_in * keys,
                                              .lens = s->lens_by_query && a == 0,
                                              .lse = rows_in};
        p->dims[TABLE_QUERY + axes + a] = (attn_dim){.role = ATTN_ROLE_KEY,
                                                     .n = s->k[a],
                                                     .k = keys_in * token[1],
                                                     .v = keys_in * token[2],
                                                     .bias = keys_in,
                                                     .mask = keys_in};
        if (s->banded)
            p->bands[p->nbands++] = (attn_band){TABLE_QUERY + a, TABLE_QUERY + axes + a, s->lo, s->hi};
        rows_in *= s->q[a];
        keys_in *= s->k[a];
    }
}

static void lay_table(const table_shape *s, attn_problem *p, const table_part *t)
{
    int axes = axes_of(s), channel = TABLE_QUERY + 2 * axes + (t->kind == ATTN_RELATIVE_VALUE);
    int64_t lo = 1 - s->q[t->axis], hi = s->k[t->axis] - 1, width = t->end ? t->end - t->begin : p->dims[channel].n;
    if (s->banded) {
        lo = s->lo > lo ? s->lo : lo;
        hi = s->hi < hi ? s->hi : hi;
    }
    attn_relative *r = &p->relatives[p->nrelatives++];
    *r = (attn_relative){.kind = t->kind,
                         .query_dim = TABLE_QUERY + t->axis,
                         .key_dim = TABLE_QUERY + axes + t->axis,
                         .offset = t->slack - lo,
                         .rows = (hi >= lo ? hi - lo + 1 : 1) + 2 * t->slack,
                         .begin = t->begin,
                         .end = t->end};
    r->stride[channel] = or_one(s->step);
    r->row_stride = width * or_one(s->step) + t->gap;
    int64_t next = r->rows * r->row_stride;
    if (t->per_head) {
        r->stride[TABLE_GROUP] = next;
        r->stride[TABLE_HEAD] = next * or_one(s->group);
        next *= or_one(s->group) * or_one(s->heads);
    }
    r->stride[TABLE_BATCH] = t->per_batch ? next : 0;
}

void table_fill(random_problem *r, uint64_t seed)
{
    static const array_id ids[] = {ARRAY_Q, ARRAY_K, ARRAY_V, ARRAY_DOUT};
    attn__rng rng = {.seed = seed};
    for (int i = 0; i < 4; i++)
        for (int64_t e = 0; e < r->array[ids[i]].n; e++)
            array_set(&r->array[ids[i]], e, attn__rng_normal(&rng));
}

void table_problem(random_problem *r, const table_shape *s, attn_dtype dtype)
{
    memset(r, 0, sizeof *r);
    attn_problem *p = &r->forward;
    int axes = axes_of(s), channel = TABLE_QUERY + 2 * axes;
    int64_t step = or_one(s->step), heads = or_one(s->heads), group = or_one(s->group), value = or_one(s->dim_value);
    int64_t rows = axes == 2 ? s->q[0] * s->q[1] : s->q[0], keys = axes == 2 ? s->k[0] * s->k[1] : s->k[0];
    int64_t c = s->dim * step + s->gap, v = value * step + s->gap;
    const int64_t token[] = {heads * group * c + s->gap, heads * c + s->gap, heads * v + s->gap,
                             heads * group * v + s->gap};
    lay_heads(s, p, rows, keys, token);
    lay_axes(s, p, keys, token);
    p->dims[channel] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = s->dim, .q = step, .k = step};
    p->dims[channel + 1] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = value, .v = step, .o = step};
    p->ndims = channel + 2;
    p->dtype = dtype;
    for (int i = 0; i < 5 && s->tables[i].there; i++)
        lay_table(s, p, &s->tables[i]);
    p->lens_dim = TABLE_QUERY + axes;
    p->scale = s->scale, p->softcap = s->softcap, p->dropout = s->dropout;
    p->seed = 11, p->stream = 3;
    p->flags = ATTN_WANT_LSE | s->with;
    r->backward = *p;
    r->backward.direction = ATTN_DIRECTION_BACKWARD;
    r->backward.accumulate = s->accumulate;
    unsigned all = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DTABLES;
    all |= s->with & ATTN_WITH_BIAS ? ATTN_WANT_DBIAS : 0u;
    r->backward.flags = s->with | (s->want ? s->want : all);
    random_problem_arrays(r, (uint64_t)(rows * 1000 + keys));
    if (!s->causal_mask)
        return;
    table_fill(r, 5);
    for (int64_t i = 0; i < r->array[ARRAY_MASK].n; i++)
        ((uint8_t *)r->array[ARRAY_MASK].block)[i] = i % keys <= i / keys % rows;
}

/* ------------------------------------------------------------------------------------------- one pair */

typedef struct row {
    const random_problem *r;
    const attn_problem *p;
    int64_t at[ATTN_MAX_DIMS];
    double *x, *weight, *slope, *keep, *by_weight;
    double *const *value;
} row;

static bool is_of(const row *w, int dim, int roles)
{
    return roles >> w->p->dims[dim].role & 1;
}

static bool first(row *w, int roles)
{
    bool any = true;
    for (int d = 0; d < w->p->ndims; d++)
        if (is_of(w, d, roles)) {
            w->at[d] = 0;
            any = any && w->p->dims[d].n > 0;
        }
    return any;
}

static bool next(row *w, int roles)
{
    for (int d = w->p->ndims - 1; d >= 0; d--) {
        if (!is_of(w, d, roles))
            continue;
        if (++w->at[d] < w->p->dims[d].n)
            return true;
        w->at[d] = 0;
    }
    return false;
}

#define EACH(w, roles, name) for (bool name = first(w, roles); name; name = next(w, roles))
#define AT(w, field)         offset_of(w, offsetof(attn_dim, field))

static int64_t offset_of(const row *w, size_t field)
{
    int64_t sum = 0;
    for (int d = 0; d < w->p->ndims; d++)
        sum += w->at[d] * *(const int64_t *)(const void *)((const char *)&w->p->dims[d] + field);
    return sum;
}

static double get(const row *w, int id, int64_t at)
{
    return array_get(&w->r->array[id], at);
}

static void give(const row *w, int id, int64_t at, double x)
{
    if (w->value[id])
        w->value[id][at] += x;
}

static bool is_seen(const row *w)
{
    const attn_problem *p = w->p;
    for (int i = 0; i < p->nbands; i++) {
        int64_t d = w->at[p->bands[i].key_dim] - w->at[p->bands[i].query_dim];
        if (d < p->bands[i].lo || d > p->bands[i].hi)
            return false;
    }
    if ((p->flags & ATTN_WITH_LENS) && w->at[p->lens_dim] >= w->r->arrays.lens[AT(w, lens)])
        return false;
    return !(p->flags & ATTN_WITH_MASK) || w->r->arrays.mask[AT(w, mask)] != 0;
}

/* Returns the offset of the i-th table's element for the current pair and channel, or -1 if there is none. */
static int64_t entry_of(const row *w, int i)
{
    const attn_relative *t = &w->p->relatives[i];
    int inner = w->p->ndims - 2 + (t->kind == ATTN_RELATIVE_VALUE);
    int64_t begin = t->end ? t->begin : 0, end = t->end ? t->end : w->p->dims[inner].n;
    if (w->at[inner] < begin || w->at[inner] >= end)
        return -1;
    int64_t at = (w->at[t->key_dim] - w->at[t->query_dim] + t->offset) * t->row_stride;
    for (int d = 0; d < w->p->ndims; d++)
        at += t->stride[d] * (w->at[d] - (d == inner ? begin : 0));
    return at;
}

static double tables_of(const row *w, attn_relative_kind kind)
{
    double sum = 0;
    for (int i = 0; i < w->p->nrelatives; i++)
        if (w->p->relatives[i].kind == kind && entry_of(w, i) >= 0)
            sum += get(w, ARRAY_TABLE + i, entry_of(w, i));
    return sum;
}

static double scale_of(const attn_problem *p)
{
    return p->scale != 0 ? p->scale : 1 / sqrt((double)p->dims[p->ndims - 2].n);
}

static double pair_score(row *w, double *slope)
{
    double sum = 0;
    EACH(w, ROLE_C, more)
    {
        double q = get(w, ARRAY_Q, AT(w, q)), k = get(w, ARRAY_K, AT(w, k));
        sum += q * k + q * tables_of(w, ATTN_RELATIVE_QUERY) + k * tables_of(w, ATTN_RELATIVE_KEY);
    }
    double x = sum * scale_of(w->p), cap = w->p->softcap, t = cap != 0 ? tanh(x / cap) : 0;
    *slope = scale_of(w->p) * (1 - t * t);
    return (cap != 0 ? cap * t : x) + (w->p->flags & ATTN_WITH_BIAS ? get(w, ARRAY_BIAS, AT(w, bias)) : 0);
}

/* --------------------------------------------------------------------------------------------- one row */

static double keep_of(const row *w)
{
    walk at = {.p = w->p};
    memcpy(at.at, w->at, sizeof at.at);
    return walk_keep(&at, w->r->arrays.seed_offset);
}

/* Returns false if no key is visible. */
static bool weigh(row *w)
{
    double most = -HUGE_VAL, sum = 0;
    int64_t n = 0;
    EACH(w, ROLE_K, more)
    {
        w->x[n] = -HUGE_VAL;
        if (is_seen(w))
            w->x[n] = pair_score(w, &w->slope[n]);
        w->keep[n] = keep_of(w);
        most = fmax(most, w->x[n++]);
    }
    for (int64_t j = 0; j < n; j++)
        sum += most > -HUGE_VAL ? exp(w->x[j] - most) : 0;
    for (int64_t j = 0; j < n; j++)
        w->weight[j] = sum > 0 ? exp(w->x[j] - most) / sum : 0;
    give(w, ARRAY_LSE, AT(w, lse), sum > 0 ? most + log(sum) : -HUGE_VAL);
    return sum > 0;
}

/* Computes the output and the gradients of the values. Returns the sum over the keys of weight * gradient of the
 * weight. */
static double values(row *w)
{
    double delta = 0;
    int64_t j = 0;
    EACH(w, ROLE_K, key)
    {
        double p = w->weight[j] * w->keep[j];
        w->by_weight[j] = 0;
        if (w->x[j] > -HUGE_VAL)
            EACH(w, ROLE_V, more)
            {
                double v = get(w, ARRAY_V, AT(w, v)) + tables_of(w, ATTN_RELATIVE_VALUE);
                double dout = get(w, ARRAY_DOUT, AT(w, o));
                w->by_weight[j] += w->keep[j] * dout * v;
                give(w, ARRAY_O, AT(w, o), p * v);
                give(w, ARRAY_DV, AT(w, v), p * dout);
                for (int i = 0; i < w->p->nrelatives; i++)
                    if (w->p->relatives[i].kind == ATTN_RELATIVE_VALUE && entry_of(w, i) >= 0)
                        give(w, ARRAY_DTABLE + i, entry_of(w, i), p * dout);
            }
        delta += w->weight[j] * w->by_weight[j];
        j++;
    }
    return delta;
}

static void score_gradients(row *w, double delta)
{
    int64_t j = 0;
    EACH(w, ROLE_K, key)
    {
        double by_score = w->weight[j] * (w->by_weight[j] - delta), by_sum = by_score * w->slope[j];
        bool seen = w->x[j++] > -HUGE_VAL;
        if (!seen)
            continue;
        give(w, ARRAY_DBIAS, AT(w, bias), by_score);
        EACH(w, ROLE_C, more)
        {
            double q = get(w, ARRAY_Q, AT(w, q)), k = get(w, ARRAY_K, AT(w, k));
            give(w, ARRAY_DQ, AT(w, q), by_sum * (k + tables_of(w, ATTN_RELATIVE_QUERY)));
            give(w, ARRAY_DK, AT(w, k), by_sum * (q + tables_of(w, ATTN_RELATIVE_KEY)));
            for (int i = 0; i < w->p->nrelatives; i++)
                if (w->p->relatives[i].kind != ATTN_RELATIVE_VALUE && entry_of(w, i) >= 0)
                    give(w, ARRAY_DTABLE + i, entry_of(w, i),
                         by_sum * (w->p->relatives[i].kind == ATTN_RELATIVE_QUERY ? q : k));
        }
    }
}

/* ------------------------------------------------------------------------------------------- all of them */

double table_truth(const random_problem *r, truth *t)
{
    double *value[ARRAY_COUNT] = {NULL}, worst = 0;
    row w = {.r = r, .p = &r->forward, .value = value};
    size_t keys = (size_t)walk_count(w.p, ROLE_K) + 1;
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        if (t->value[id])
            value[id] = calloc((size_t)r->array[id].n, sizeof(double));
    double *pool = calloc(5 * keys, sizeof *pool);
    w.x = pool, w.weight = pool + keys, w.slope = pool + 2 * keys;
    w.keep = pool + 3 * keys, w.by_weight = pool + 4 * keys;
    EACH(&w, ROLE_B | ROLE_Q, more)
    {
        if (weigh(&w))
            score_gradients(&w, values(&w));
    }
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++) {
        for (int64_t e = 0; value[id] && e < r->array[id].n; e++) {
            double was = t->value[id][e], bound = t->bound[id][e], error = fabs(was - value[id][e]);
            if (bound >= 0 && was != value[id][e] && !(error / (bound + 1e-36) <= worst))
                worst = error / (bound + 1e-36);
            t->value[id][e] = value[id][e];
        }
        free(value[id]);
    }
    free(pool);
    return worst;
}

void table_pairs(const random_problem *r, unsigned char *reads)
{
    row w = {.r = r, .p = &r->forward};
    EACH(&w, ROLE_B | ROLE_Q, more)
    EACH(&w, ROLE_K, key)
    *reads++ = is_seen(&w);
}

static void spoil_tables(random_problem *r, double x)
{
    row w = {.r = r, .p = &r->forward};
    for (int i = 0; i < w.p->nrelatives; i++) {
        const array *a = &r->array[ARRAY_TABLE + i];
        unsigned char *read = calloc((size_t)a->n, 1);
        int channels = w.p->relatives[i].kind == ATTN_RELATIVE_VALUE ? ROLE_V : ROLE_C;
        EACH(&w, ROLE_B | ROLE_Q | ROLE_K, more)
        {
            if (is_seen(&w))
                EACH(&w, channels, channel)
            if (entry_of(&w, i) >= 0)
                read[entry_of(&w, i)] = 1;
        }
        for (int64_t e = 0; e < a->n; e++)
            if (!read[e])
                array_set(a, e, x);
        free(read);
    }
}

void table_spoil(random_problem *r, double x)
{
    row w = {.r = r, .p = &r->forward};
    spoil_tables(r, x);
    EACH(&w, ROLE_B | ROLE_Q, more)
    {
        bool any = false;
        EACH(&w, ROLE_K, key) any = any || is_seen(&w);
        if (any)
            continue;
        EACH(&w, ROLE_C, channel) array_set(&r->array[ARRAY_Q], AT(&w, q), x);
        EACH(&w, ROLE_V, channel) array_set(&r->array[ARRAY_DOUT], AT(&w, o), x);
    }
}

/* ------------------------------------------------------------------------------------- what a direction writes */

static bool is_written(const random_problem *r, int id, attn_direction direction)
{
    return r->array[id].block && (id >= ARRAY_DQ) == (direction == ATTN_DIRECTION_BACKWARD);
}

const attn_problem *table_direction(const random_problem *r, attn_direction direction)
{
    return direction == ATTN_DIRECTION_FORWARD ? &r->forward : &r->backward;
}

/* Fills the outputs with numbers, because a plan may add its gradients to them. */
void table_clear(const random_problem *r, attn_direction direction)
{
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        for (int64_t e = 0; is_written(r, id, direction) && e < r->array[id].n; e++)
            array_set(&r->array[id], r->array[id].low + e, 3);
}

void table_results_take(table_results *x, const random_problem *r, attn_direction direction)
{
    *x = (table_results){0};
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        if (is_written(r, id, direction))
            x->copy[id] = memcpy(malloc(r->array[id].bytes + 1), r->array[id].block, r->array[id].bytes);
}

void table_results_assert_same(const table_results *x, const random_problem *r, const char *what, int number)
{
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        if (x->copy[id] && memcmp(x->copy[id], r->array[id].block, r->array[id].bytes) != 0)
            fail_msg("shape %d, %s: other bits in %s", number, what, r->array[id].name);
}

void table_results_drop(table_results *x)
{
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        free(x->copy[id]);
}
