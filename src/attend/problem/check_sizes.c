/* SPDX-License-Identifier: MIT
 *
 * check_sizes.c - checks that sizes are numbers a machine can hold, and that no two indices of an output address the same
 * element.
 *
 * They do if some difference x of indices, not all zero, |x_i| < n_i, has sum x_i stride_i = 0.  A depth-first
 * search over x, largest stride first: what the smaller strides can still reach leaves x one choice, 0, at each
 * level of an ordinary nested layout, so that the search is one straight path; elsewhere the sum so far must also be
 * a multiple of what the smaller strides have in common.  The last two spans are solved, not searched.  The general
 * question is a subset sum: after ten million candidates without an answer, the indices count as overlapping.
 */
#include "attend/problem/problem.h"
#include "base/integers.h"

#include <stdio.h>

/* --------------------------------------------------------------------------------------------------- overlap */

/* One dim of an array, for the test of overlap. */
typedef struct span_dim {
    int64_t n, stride;
    int dim;
} span_dim;

__extension__ typedef unsigned __int128 wide; /* of products of two strides */

typedef struct search {
    int n;
    span_dim spans[ATTN_MAX_DIMS + 1]; /* strides positive, descending */
    int64_t reach[ATTN_MAX_DIMS + 2];  /* of the spans from i on */
    int64_t gcd[ATTN_MAX_DIMS + 2];    /* of their strides */
    int64_t x[ATTN_MAX_DIMS + 1];
    int budget;
} search;

/* The inverse of a modulo m, gcd(a, m) = 1. */
static int64_t inverse(int64_t a, int64_t m)
{
    int64_t r0 = m, r1 = m > 0 ? a % m : 0, t0 = 0, t1 = 1;
    while (r1 > 0) {
        int64_t q = r0 / r1, r = r0 - q * r1, t = t0 - q * t1;
        r0 = r1, r1 = r;
        t0 = t1, t1 = t;
    }
    return t0 < 0 ? t0 + m : t0;
}

/* rest + x a + y b = 0 in the bounds of the last two spans: x is one residue modulo b / gcd, in one interval. */
static bool last_two_meet(search *s, int64_t rest, bool nonzero)
{
    const span_dim *a = &s->spans[s->n - 2], *b = &s->spans[s->n - 1];
    int64_t g = attn__max(s->gcd[s->n - 2], 1), modulus = b->stride / g, reach = s->reach[s->n - 1], x;
    if (!nonzero) { /* rest is 0 then: the least multiple that both can take back */
        s->x[s->n - 2] = modulus;
        s->x[s->n - 1] = -(a->stride / g);
        return modulus < a->n && a->stride / g < b->n;
    }
    if (rest % g != 0)
        return false;
    int64_t wanted = -(rest / g) % modulus;
    wanted += wanted < 0 ? modulus : 0;
    x = (int64_t)((wide)wanted * (uint64_t)inverse(a->stride / g, modulus) % (uint64_t)modulus);
    int64_t low = attn__max(attn__ceil_div(-rest - reach, a->stride), 1 - a->n);
    int64_t high = attn__min(attn__floor_div(reach - rest, a->stride), a->n - 1);
    x = low + ((x - low) % modulus + modulus) % modulus;
    s->x[s->n - 2] = x;
    s->x[s->n - 1] = x <= high ? -(rest + x * a->stride) / b->stride : 0;
    return x <= high;
}

static bool meets(search *s, int level, int64_t rest, bool nonzero)
{
    if (level == s->n - 2)
        return last_two_meet(s, rest, nonzero);
    const span_dim *span = &s->spans[level];
    int64_t reach = s->reach[level + 1], bound = span->n - 1;
    int64_t low = attn__max(-attn__floor_div(reach + rest, span->stride), -bound);
    int64_t high = attn__min(attn__floor_div(reach - rest, span->stride), bound);
    if (!nonzero && low < 0)
        low = 0; /* x and -x say the same */
    for (int64_t x = low; x <= high; x++) {
        s->x[level] = x;
        if ((rest + x * span->stride) % s->gcd[level + 1] != 0)
            continue;
        if (--s->budget < 0 || meets(s, level + 1, rest + x * span->stride, nonzero || x != 0))
            return true;
    }
    return false;
}

static void insert(search *s, span_dim span)
{
    if (span.stride < 0)
        span.stride = -span.stride;
    int at = s->n++;
    for (; at > 0 && s->spans[at - 1].stride < span.stride; at--)
        s->spans[at] = s->spans[at - 1];
    s->spans[at] = span;
}

static void blame(const search *s, int *first, int *second)
{
    *first = *second = -1;
    for (int i = 0; i < s->n; i++) {
        if (s->x[i] == 0)
            continue;
        if (*first < 0)
            *first = s->spans[i].dim;
        *second = s->spans[i].dim;
    }
    if (*first < 0)
        *first = *second = s->spans[0].dim;
}

/* Whether two different indices of the array meet in one element; `first` and `second` are then two dims that take part (the
 * same one twice if it does so alone).  Strides must be small enough that offsets fit. */
static bool spans_overlap(const span_dim *spans, int n, int *first, int *second)
{
    search s = {.budget = 10000000};
    for (int i = 0; i < n; i++)
        if (spans[i].n == 0)
            return false;
    for (int i = 0; i < n; i++) {
        if (spans[i].n == 1)
            continue;
        if (spans[i].stride == 0) {
            *first = *second = spans[i].dim;
            return true;
        }
        insert(&s, spans[i]);
    }
    for (int i = s.n - 1; i >= 0; i--)
        s.reach[i] = s.reach[i + 1] + (s.spans[i].n - 1) * s.spans[i].stride;
    for (int i = s.n - 1; i >= 0; i--)
        s.gcd[i] = attn__common_divisor(s.gcd[i + 1], s.spans[i].stride);
    if (s.n < 2) /* one span of a stride that is not 0 */
        return false;
    if (!meets(&s, 0, 0, false))
        return false;
    blame(&s, first, second);
    return true;
}

/* ----------------------------------------------------------------------------------------------------- sizes */

/* Half of the address space: offsets and sums of two of them never wrap. */
static const int64_t most = INT64_MAX / 4;

static attn_status check_role_size(attn_context *context, const attn_problem *p, attn_role role)
{
    int64_t size = 1;
    bool empty = false, over = false;
    for (int i = 0; i < p->ndims; i++) {
        if (p->dims[i].role != role)
            continue;
        empty = empty || p->dims[i].n == 0;
        over = over || __builtin_mul_overflow(size, p->dims[i].n ? p->dims[i].n : 1, &size) || size > most;
    }
    if (over && !empty)
        return attn__fail(context, ATTN_ERROR_SHAPE, "the product of the %s dims overflows", attn__role_name(role));
    return ATTN_OK;
}

/* Adds (n - 1) * |stride| to *reach; false if that overflows. */
static bool stretch(int64_t *reach, int64_t n, int64_t stride)
{
    int64_t part;
    if (n <= 1 || stride == 0)
        return true;
    return stride != INT64_MIN && !__builtin_mul_overflow(n - 1, stride < 0 ? -stride : stride, &part) &&
           !__builtin_add_overflow(*reach, part, reach) && *reach <= most;
}

static attn_status check_reach(attn_context *context, const attn_problem *p, attn__operand op)
{
    int64_t reach = 0;
    for (int i = 0; i < p->ndims; i++)
        if (!stretch(&reach, attn__operand_length(p, i, op), attn__stride(&p->dims[i], op)))
            return attn__fail(context, ATTN_ERROR_SHAPE,
                              "dim %d (length %lld): with its stride %lld the size of %s overflows", i,
                              (long long)attn__operand_length(p, i, op), (long long)attn__stride(&p->dims[i], op),
                              attn__operand_table[op].name);
    int64_t size = (int64_t)attn_dtype_size(attn__operand_dtype(p, op));
    if (reach > most / size)
        return attn__fail(context, ATTN_ERROR_SHAPE, "the bytes of %s overflow", attn__operand_table[op].name);
    return ATTN_OK;
}

/* How many indices a relative table has along a dim: the length, or the range of channels that it serves. */
static int64_t table_length(const attn_problem *problem, const attn_relative *relative, int dim)
{
    bool all = relative->begin == 0 && relative->end == 0;
    if (!all && dim == attn__last_dim(problem, attn__table_role(relative)))
        return relative->end - relative->begin;
    return problem->dims[dim].n;
}

static attn_status check_table_reach(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    int64_t reach = 0;
    bool ok = stretch(&reach, r->rows, r->row_stride);
    for (int d = 0; ok && d < p->ndims; d++)
        ok = stretch(&reach, table_length(p, r, d), r->stride[d]);
    if (ok && reach <= most / 8)
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_SHAPE, "the size of relative table %d overflows", i);
}

static attn_status check_rows(attn_context *context, const attn_problem *p)
{
    int64_t rows = 1;
    bool over = false;
    for (int i = 0; i < p->ndims; i++) {
        if (p->dims[i].role > ATTN_ROLE_QUERY)
            continue;
        if (p->dims[i].n == 0)
            return ATTN_OK;
        over = over || __builtin_mul_overflow(rows, p->dims[i].n, &rows) || rows > most;
    }
    return over ? attn__fail(context, ATTN_ERROR_SHAPE, "the number of rows (BATCH times QUERY dims) overflows")
                : ATTN_OK;
}

attn_status attn__check_sizes(attn_context *context, const attn_problem *p)
{
    attn_status status = ATTN_OK;
    for (attn_role role = ATTN_ROLE_BATCH; status == ATTN_OK && role <= ATTN_ROLE_VALUE; role++)
        status = check_role_size(context, p, role);
    for (attn__operand op = 0; status == ATTN_OK && op < ATTN__OPERANDS; op++)
        /* Gradients without strides of their own go like their operands; what stands in those members says nothing. */
        if (attn__operand_used(p, op) && (op < ATTN__OP_DQ || p->own_grad_strides))
            status = check_reach(context, p, op);
    for (int i = 0; status == ATTN_OK && i < p->nrelatives; i++)
        status = check_table_reach(context, p, i);
    return status == ATTN_OK ? check_rows(context, p) : status;
}

/* ------------------------------------------------------------------------------------------- overlap */

static attn_status report(attn_context *context, const attn_problem *p, const char *name, int first, int second)
{
    if (first < 0 || second < 0)
        return attn__fail(context, ATTN_ERROR_SHAPE, "%s: two rows share an element", name);
    if (first == second)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "%s: the indices of dim %d (%s, length %lld) share elements of this "
                          "output; its stride is 0",
                          name, first, attn__role_name(p->dims[first].role), (long long)p->dims[first].n);
    return attn__fail(context, ATTN_ERROR_SHAPE,
                      "%s: its strides let dims %d (%s, length %lld) and %d (%s, length %lld) "
                      "meet in one element of this output",
                      name, first, attn__role_name(p->dims[first].role), (long long)p->dims[first].n, second,
                      attn__role_name(p->dims[second].role), (long long)p->dims[second].n);
}

/* A gradient may be broadcast, since it is a sum then: zero strides are left out. */
static attn_status check_output(attn_context *context, const attn_problem *p, attn__operand op, const char *name,
                                bool sums)
{
    span_dim spans[ATTN_MAX_DIMS];
    int n = 0, first, second;
    for (int i = 0; i < p->ndims; i++) {
        span_dim span = {attn__operand_length(p, i, op), attn__stride(&p->dims[i], op), i};
        /* Sequences have tokens of their own. */
        bool apart = (p->flags & ATTN_WITH_PACKED) && i == p->packed.batch_dim &&
                     (attn__operand_packed(op, ATTN_ROLE_QUERY) || attn__operand_packed(op, ATTN_ROLE_KEY));
        if ((attn__operand_table[op].roles >> p->dims[i].role & 1) && !(sums && span.stride == 0) && !apart)
            spans[n++] = span;
    }
    return spans_overlap(spans, n, &first, &second) ? report(context, p, name, first, second) : ATTN_OK;
}

static attn__operand bias_gradient(const attn_problem *p)
{
    return p->own_grad_strides ? ATTN__OP_DBIAS : ATTN__OP_BIAS;
}

bool attn__bias_gradient_meets(const attn_problem *p)
{
    span_dim spans[ATTN_MAX_DIMS];
    int n = 0, first, second;
    attn__operand op = bias_gradient(p);
    for (int i = 0; i < p->ndims; i++) {
        int64_t stride = attn__stride(&p->dims[i], op);
        if ((p->dims[i].role == ATTN_ROLE_QUERY || p->dims[i].role == ATTN_ROLE_KEY) && stride != 0)
            spans[n++] = (span_dim){p->dims[i].n, stride, i};
    }
    return attn__operand_used(p, ATTN__OP_DBIAS) && spans_overlap(spans, n, &first, &second);
}

/* Rows of a table that an index reads, of different BATCH indices. */
static attn_status check_indexed_gradient(attn_context *context, const attn_problem *p)
{
    span_dim spans[ATTN_MAX_DIMS + 1];
    int n = 0, first, second;
    spans[n++] = (span_dim){p->bias_index.rows, p->bias_index.row_stride, -1};
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == ATTN_ROLE_BATCH && p->dims[i].bias != 0)
            spans[n++] = (span_dim){p->dims[i].n, p->dims[i].bias, i};
    if (!spans_overlap(spans, n, &first, &second))
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_SHAPE,
                      "dbias: rows of the table that bias_index reads (%lld, %lld apart) share elements with those of "
                      "another BATCH index",
                      (long long)p->bias_index.rows, (long long)p->bias_index.row_stride);
}

/* Pairs of one BATCH index may meet; those of different ones may not, wherever between the pairs' ends they lie. */
static attn_status check_bias_gradient(attn_context *context, const attn_problem *p)
{
    span_dim spans[ATTN_MAX_DIMS + 1];
    int n = 0, first, second, last = -1;
    int64_t reach = 0; /* fits: the sizes are checked */
    attn__operand op = bias_gradient(p);
    if (p->flags & ATTN_WITH_BIAS_INDEX)
        return check_indexed_gradient(context, p);
    if (!attn__bias_gradient_meets(p))
        return check_output(context, p, op, "dbias", true);
    if (p->accumulate)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "dbias: accumulate where pairs of a query and a key share its elements");
    for (int i = 0; i < p->ndims; i++) {
        int64_t stride = attn__stride(&p->dims[i], op);
        if (p->dims[i].role == ATTN_ROLE_BATCH && stride != 0)
            spans[n++] = (span_dim){p->dims[i].n, stride, i};
        else if (stretch(&reach, p->dims[i].n, stride) && stride != 0)
            last = i;
    }
    spans[n++] = (span_dim){reach + 1, 1, last};
    return spans_overlap(spans, n, &first, &second) ? report(context, p, "dbias", first, second) : ATTN_OK;
}

static attn_status check_table_output(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    span_dim spans[ATTN_MAX_DIMS + 1];
    int n = 0, first, second;
    if (r->row_stride != 0)
        spans[n++] = (span_dim){r->rows, r->row_stride, -1};
    for (int d = 0; d < p->ndims; d++)
        if (r->stride[d] != 0)
            spans[n++] = (span_dim){table_length(p, r, d), r->stride[d], d};
    char name[32];
    snprintf(name, sizeof name, "dtable[%d]", i);
    return spans_overlap(spans, n, &first, &second) ? report(context, p, name, first, second) : ATTN_OK;
}

static attn_status check_gradients(attn_context *context, const attn_problem *p)
{
    static const struct {
        attn__operand wanted, like;
    } pairs[] = {{ATTN__OP_DQ, ATTN__OP_Q}, {ATTN__OP_DK, ATTN__OP_K}, {ATTN__OP_DV, ATTN__OP_V}};
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < sizeof pairs / sizeof *pairs; i++) {
        attn__operand op = p->own_grad_strides ? pairs[i].wanted : pairs[i].like;
        if (attn__operand_used(p, pairs[i].wanted))
            status = check_output(context, p, op, attn__operand_table[pairs[i].wanted].name, true);
    }
    if (status == ATTN_OK && (p->flags & ATTN_WANT_DBIAS))
        status = check_bias_gradient(context, p);
    if (status == ATTN_OK && (p->flags & ATTN_WANT_DW))
        status = check_output(context, p, ATTN__OP_W, "dw", true);
    if (status == ATTN_OK && (p->flags & ATTN_WANT_DSINKS))
        status = check_output(context, p, ATTN__OP_SINKS, "dsinks", true);
    for (int i = 0; status == ATTN_OK && (p->flags & ATTN_WANT_DTABLES) && i < p->nrelatives; i++)
        status = check_table_output(context, p, i);
    return status;
}

attn_status attn__check_outputs(attn_context *context, const attn_problem *p)
{
    if (p->direction == ATTN_DIRECTION_BACKWARD)
        return check_gradients(context, p);
    static const attn__operand outputs[] = {ATTN__OP_O, ATTN__OP_LSE, ATTN__OP_WEIGHTS};
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < 3; i++)
        if (attn__operand_used(p, outputs[i]))
            status = check_output(context, p, outputs[i], attn__operand_table[outputs[i]].name, false);
    return status;
}
