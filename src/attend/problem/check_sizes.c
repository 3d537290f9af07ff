/* SPDX-License-Identifier: MIT
 * Checks that sizes are numbers a machine can hold, and that no two indices of an output share an element. */
#include "attend/problem/problem.h"

#include <stdio.h>

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

static attn_status check_table_reach(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    int64_t reach = 0;
    bool ok = stretch(&reach, r->rows, r->row_stride);
    for (int d = 0; ok && d < p->ndims; d++)
        ok = stretch(&reach, attn__table_length(p, r, d), r->stride[d]);
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
    attn__span spans[ATTN_MAX_DIMS];
    int n = 0, first, second;
    for (int i = 0; i < p->ndims; i++) {
        attn__span span = {attn__operand_length(p, i, op), attn__stride(&p->dims[i], op), i};
        /* Sequences have tokens of their own. */
        bool apart = (p->flags & ATTN_WITH_PACKED) && i == p->packed.batch_dim &&
                     (attn__operand_packed(op, ATTN_ROLE_QUERY) || attn__operand_packed(op, ATTN_ROLE_KEY));
        if ((attn__operand_table[op].roles >> p->dims[i].role & 1) && !(sums && span.stride == 0) && !apart)
            spans[n++] = span;
    }
    return attn__spans_overlap(spans, n, &first, &second) ? report(context, p, name, first, second) : ATTN_OK;
}

static attn__operand bias_gradient(const attn_problem *p)
{
    return p->own_grad_strides ? ATTN__OP_DBIAS : ATTN__OP_BIAS;
}

bool attn__bias_gradient_meets(const attn_problem *p)
{
    attn__span spans[ATTN_MAX_DIMS];
    int n = 0, first, second;
    attn__operand op = bias_gradient(p);
    for (int i = 0; i < p->ndims; i++) {
        int64_t stride = attn__stride(&p->dims[i], op);
        if ((p->dims[i].role == ATTN_ROLE_QUERY || p->dims[i].role == ATTN_ROLE_KEY) && stride != 0)
            spans[n++] = (attn__span){p->dims[i].n, stride, i};
    }
    return attn__operand_used(p, ATTN__OP_DBIAS) && attn__spans_overlap(spans, n, &first, &second);
}

/* Rows of a table that an index reads, of different BATCH indices. */
static attn_status check_indexed_gradient(attn_context *context, const attn_problem *p)
{
    attn__span spans[ATTN_MAX_DIMS + 1];
    int n = 0, first, second;
    spans[n++] = (attn__span){p->bias_index.rows, p->bias_index.row_stride, -1};
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == ATTN_ROLE_BATCH && p->dims[i].bias != 0)
            spans[n++] = (attn__span){p->dims[i].n, p->dims[i].bias, i};
    if (!attn__spans_overlap(spans, n, &first, &second))
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_SHAPE,
                      "dbias: rows of the table that bias_index reads (%lld, %lld apart) share elements with those of "
                      "another BATCH index",
                      (long long)p->bias_index.rows, (long long)p->bias_index.row_stride);
}

/* Pairs of one BATCH index may meet; those of different ones may not, wherever between the pairs' ends they lie. */
static attn_status check_bias_gradient(attn_context *context, const attn_problem *p)
{
    attn__span spans[ATTN_MAX_DIMS + 1];
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
            spans[n++] = (attn__span){p->dims[i].n, stride, i};
        else if (stretch(&reach, p->dims[i].n, stride) && stride != 0)
            last = i;
    }
    spans[n++] = (attn__span){reach + 1, 1, last};
    return attn__spans_overlap(spans, n, &first, &second) ? report(context, p, "dbias", first, second) : ATTN_OK;
}

static attn_status check_table_output(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    attn__span spans[ATTN_MAX_DIMS + 1];
    int n = 0, first, second;
    if (r->row_stride != 0)
        spans[n++] = (attn__span){r->rows, r->row_stride, -1};
    for (int d = 0; d < p->ndims; d++)
        if (r->stride[d] != 0)
            spans[n++] = (attn__span){attn__table_length(p, r, d), r->stride[d], d};
    char name[32];
    snprintf(name, sizeof name, "dtable[%d]", i);
    return attn__spans_overlap(spans, n, &first, &second) ? report(context, p, name, first, second) : ATTN_OK;
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
