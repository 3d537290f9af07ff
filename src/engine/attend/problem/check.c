/* SPDX-License-Identifier: MIT
 * Checks a problem part by part. Later checks rely on earlier ones. */
#include "attend/problem/problem.h"

#include "attend/block/window_base.h"
#include "base/integers.h"

#include <math.h>
#include <stdio.h>

static attn_status check_role(attn_context *context, const attn_problem *problem, int dim, attn_role role,
                              const char *what)
{
    if (dim < 0 || dim >= problem->ndims)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s names dim %d, but the problem has %d dims", what, dim,
                          problem->ndims);
    if (problem->dims[dim].role != role)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s names dim %d, which is a %s dim, not a %s dim", what, dim,
                          attn__role_name(problem->dims[dim].role), attn__role_name(role));
    return ATTN_OK;
}

typedef attn_status check_part(attn_context *context, const attn_problem *problem, int i);

static attn_status check_each(attn_context *context, const attn_problem *p, int n, check_part *check)
{
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < n; i++)
        status = check(context, p, i);
    return status;
}

static attn_status check_counts(attn_context *context, const attn_problem *p)
{
    const struct {
        const char *name;
        int n, most;
    } counts[] = {
        {"ndims", p->ndims, ATTN_MAX_DIMS},
        {"nbands", p->nbands, ATTN_MAX_BANDS},
        {"nwindows", p->nwindows, ATTN_MAX_WINDOWS},
        {"nrelatives", p->nrelatives, ATTN_MAX_RELATIVE},
        {"npicks", p->npicks, ATTN_MAX_PICKS},
        {"direction", (int)p->direction, ATTN_DIRECTION_BACKWARD},
        {"score", (int)p->score, ATTN_SCORE_COUNT - 1},
        {"normalization", (int)p->normalization, ATTN_NORMALIZATION_SIGMOID},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        attn_status status = attn__check_choice(context, counts[i].name, counts[i].n, counts[i].most);
        if (status != ATTN_OK)
            return status;
    }
    if (p->dtype != ATTN_F32 && p->dtype != ATTN_BF16 && p->dtype != ATTN_F64)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "dtype %s is not supported; expected f32, bf16 or f64",
                          attn_dtype_name(p->dtype));
    return ATTN_OK;
}

static const char *normalization_name(const attn_problem *p)
{
    static const char *const names[] = {"softmax", "mean", "sum", "hardmax", "none", "sigmoid"};
    return names[p->normalization];
}

static attn_status check_softmax(attn_context *context, const attn_problem *p, const char *needs)
{
    return p->normalization == ATTN_NORMALIZATION_SOFTMAX
               ? ATTN_OK
               : attn__fail(context, ATTN_ERROR_ARGUMENT, "%s the softmax normalization, but the normalization is %s",
                            needs, normalization_name(p));
}

static attn_status check_numbers(attn_context *context, const attn_problem *p)
{
    char needs[48];
    if (!isfinite(p->scale))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "scale %g is not finite", p->scale);
    if (!isfinite(p->width) || p->width < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "width %g is not a positive number", p->width);
    if (p->softcap != 0 && !(p->softcap >= 1e-30 && p->softcap <= 1e30))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "softcap %g does not lie between 1e-30 and 1e30 (0 caps nothing)", p->softcap);
    if (!isfinite(p->mask_fill))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "mask_fill %g is not finite (0 leaves masked keys out)",
                          p->mask_fill);
    snprintf(needs, sizeof needs, "mask_fill (%g) needs", p->mask_fill);
    if (p->mask_fill != 0 && check_softmax(context, p, needs) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (p->top_k < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "top_k %lld is negative (0 keeps all keys)",
                          (long long)p->top_k);
    snprintf(needs, sizeof needs, "top_k (%lld) needs", (long long)p->top_k);
    if (p->top_k > 0 && check_softmax(context, p, needs) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (!(p->dropout >= 0 && p->dropout < 1))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "dropout %g: the probability must lie in [0, 1)", p->dropout);
    return ATTN_OK;
}

static attn_status check_sigmoid(attn_context *context, const attn_problem *p)
{
    if (!isfinite(p->sigmoid_bias))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "sigmoid_bias %g is not finite", p->sigmoid_bias);
    if (p->sigmoid_bias != 0 && !p->own_sigmoid_bias)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "sigmoid_bias is %g, but own_sigmoid_bias is false, so it would not be used",
                          p->sigmoid_bias);
    if (p->normalization != ATTN_NORMALIZATION_SIGMOID && p->own_sigmoid_bias)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "sigmoid_bias needs the sigmoid normalization, but the normalization is %s",
                          normalization_name(p));
    if (p->normalization == ATTN_NORMALIZATION_SIGMOID && (p->flags & ATTN_WANT_LSE))
        return attn__fail(
            context, ATTN_ERROR_ARGUMENT,
            "the log-sum-exp is requested (ATTN_WANT_LSE), but the weights of a sigmoid have no sum over the keys");
    return ATTN_OK;
}

static attn_status check_wishes(attn_context *context, const attn_problem *p)
{
    const unsigned gradients = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES |
                               ATTN_WANT_DW | ATTN_WANT_DSINKS;
    const unsigned known = gradients | ATTN_WITH_BIAS | ATTN_WITH_MASK | ATTN_WITH_LENS | ATTN_WITH_PACKED |
                           ATTN_WITH_SINKS | ATTN_WITH_DLSE | ATTN_WITH_BIAS_INDEX | ATTN_WITH_BLOCKS |
                           ATTN_WITH_BF16_KEYS | ATTN_WANT_LSE | ATTN_WANT_WEIGHTS;
    if (p->flags & ~known)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "flags has unknown bits 0x%x", p->flags & ~known);
    if ((p->flags & ATTN_WITH_SINKS) && check_softmax(context, p, "sinks need") != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if ((p->flags & ATTN_WITH_DLSE) && check_softmax(context, p, "dlse needs") != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if ((p->flags & ATTN_WITH_SINKS) && p->mask_fill != 0)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "sinks and mask_fill (%g) cannot be used together",
                          p->mask_fill);
    if ((p->flags & ATTN_WITH_BF16_KEYS) && p->dtype != ATTN_F32)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "bf16 keys and values (ATTN_WITH_BF16_KEYS) need a problem of dtype f32, not %s",
                          attn_dtype_name(p->dtype));
    if ((p->flags & ATTN_WITH_BF16_KEYS) && p->direction != ATTN_DIRECTION_FORWARD)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "bf16 keys and values (ATTN_WITH_BF16_KEYS) are not supported in a backward problem");
    if ((p->flags & ATTN_WITH_BF16_KEYS) && (p->flags & ATTN_WANT_WEIGHTS))
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "bf16 keys and values (ATTN_WITH_BF16_KEYS) and ATTN_WANT_WEIGHTS cannot be used together");
    if (p->direction != ATTN_DIRECTION_BACKWARD && (p->flags & gradients))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "flags has ATTN_WANT_D... (0x%x), but the direction is ATTN_DIRECTION_FORWARD",
                          p->flags & gradients);
    if (p->direction != ATTN_DIRECTION_BACKWARD)
        return ATTN_OK;
    if ((p->flags & ATTN_WANT_DSINKS) && !(p->flags & ATTN_WITH_SINKS))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "the gradient of the sinks is requested, but there are no sinks");
    if (!(p->flags & gradients))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "a backward problem requests no gradient (flags has no ATTN_WANT_D...)");
    if ((p->flags & ATTN_WANT_DBIAS) && !(p->flags & ATTN_WITH_BIAS))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the gradient of the bias is requested, but there is no bias");
    if ((p->flags & ATTN_WANT_DTABLES) && p->nrelatives == 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "gradients of relative tables are requested, but there are no tables");
    if ((p->flags & ATTN_WANT_DW) && !attn__operand_used(p, ATTN__OP_W))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "the gradient of w is requested, but only additive and concatenation scores have w");
    return ATTN_OK;
}

/* Checks that an operand has a stride in at least one dim of `roles`. If it has none, all indices read its first
 * element, and the strides were forgotten, unless it has a single element (attn_problem.broadcast). Lengths and sinks
 * are not checked: a problem of one sequence or of one head has a single length or sink without a stride. */
static attn_status check_moves(attn_context *context, const attn_problem *p, attn__operand op, int roles, bool single)
{
    int still = -1;
    for (int i = 0; i < p->ndims; i++) {
        if (!(roles >> p->dims[i].role & 1))
            continue;
        if (p->dims[i].n == 0 || attn__stride(&p->dims[i], op) != 0)
            return ATTN_OK;
        still = p->dims[i].n > 1 ? i : still;
    }
    if (still < 0 || single || !attn__operand_used(p, op))
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_SHAPE,
                      "%s has stride 0 in every dim, also in dim %d (%s, length %lld), so only its first element is "
                      "read; set the strides, attn_dim.%s%s",
                      attn__operand_table[op].name, still, attn__role_name(p->dims[still].role),
                      (long long)p->dims[still].n, attn__operand_table[op].name,
                      op == ATTN__OP_BIAS || op == ATTN__OP_MASK || op == ATTN__OP_BLOCKS
                          ? "; if there is a single element, set attn_problem.broadcast"
                          : "");
}

static attn_status check_strides(attn_context *context, const attn_problem *p)
{
    const uint64_t known = ATTN_WITH_BIAS | ATTN_WITH_MASK | ATTN_WITH_BLOCKS, single = p->broadcast;
    const int pairs = ATTN__IN_QUERY | ATTN__IN_KEY, all = ATTN__IN_BATCH | pairs;
    if (single & ~known)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "broadcast has unknown bits 0x%llx",
                          (unsigned long long)(single & ~known));
    /* if the bias is read through an index, its strides in BATCH dims are those of the table */
    bool indexed = p->flags & ATTN_WITH_BIAS_INDEX;
    attn_status status = check_moves(context, p, ATTN__OP_W, ATTN__IN_CONTRACT, false);
    if (status == ATTN_OK)
        status = check_moves(context, p, ATTN__OP_BIAS, indexed ? pairs : all, single & ATTN_WITH_BIAS);
    if (status == ATTN_OK)
        status = check_moves(context, p, ATTN__OP_MASK, all, single & ATTN_WITH_MASK);
    if (status == ATTN_OK)
        status = check_moves(context, p, ATTN__OP_BLOCKS, all, single & ATTN_WITH_BLOCKS);
    return status;
}

static attn_status check_dim(attn_context *context, const attn_problem *p, int i)
{
    const attn_dim *dim = &p->dims[i];
    if (!attn__all_zero(dim->reserved, sizeof dim->reserved))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "dim %d: a reserved field is not zero", i);
    if (dim->role < ATTN_ROLE_BATCH || dim->role > ATTN_ROLE_VALUE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "dim %d: role is %d; it must be between %d and %d", i,
                          (int)dim->role, (int)ATTN_ROLE_BATCH, (int)ATTN_ROLE_VALUE);
    if (dim->n < 0)
        return attn__fail(context, ATTN_ERROR_SHAPE, "dim %d (%s): its length %lld is negative", i,
                          attn__role_name(dim->role), (long long)dim->n);
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++) {
        int64_t stride = attn__stride(dim, op);
        if (stride == 0 || (attn__operand_table[op].roles >> dim->role & 1))
            continue;
        if (op >= ATTN__OP_DQ && !p->own_grad_strides)
            continue;
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "dim %d (%s, length %lld): the stride of %s is %lld; it must be 0, because %s has no %s dims",
                          i, attn__role_name(dim->role), (long long)dim->n, attn__operand_table[op].name,
                          (long long)stride, attn__operand_table[op].name, attn__role_name(dim->role));
    }
    return ATTN_OK;
}

static attn_status check_dims(attn_context *context, const attn_problem *p)
{
    if (!attn__all_zero(p->reserved, sizeof p->reserved))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the problem: a reserved field is not zero");
    if (p->ndims == 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "the problem has no dims; attn_problem_heads and the similar functions fill them");
    return check_each(context, p, p->ndims, check_dim);
}

/* ---------------------------------------------------------------------------- windows, bands, lengths, picks */

static int64_t or_one(int64_t x)
{
    return x ? x : 1;
}

/* Returns what is too large in a window, or NULL. The limit keeps positions inside and outside of the axis far from
 * overflow. */
static const char *too_large(const attn_problem *p, const attn_window *w)
{
    const int64_t limit = INT64_MAX / 4;
    int64_t span, reach;
    if (__builtin_mul_overflow(p->dims[w->query_dim].n, or_one(w->step), &span) || span >= limit)
        return "queries * step";
    if (__builtin_mul_overflow(p->dims[w->key_dim].n, or_one(w->dilation), &reach) || reach >= limit)
        return "keys * dilation";
    if (w->offset <= -limit || w->offset >= limit)
        return "the magnitude of offset";
    return w->size >= limit ? "size" : NULL;
}

static attn_status check_window(attn_context *context, const attn_problem *p, int i)
{
    const attn_window *w = &p->windows[i];
    char what[32];
    snprintf(what, sizeof what, "window %d", i);
    attn_status status = check_role(context, p, w->query_dim, ATTN_ROLE_QUERY, what);
    if (status == ATTN_OK)
        status = check_role(context, p, w->key_dim, ATTN_ROLE_KEY, what);
    if (status != ATTN_OK)
        return status;
    if ((unsigned)w->border > ATTN_BORDER_SHIFT)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "window %d: border is %d; it must be between 0 and %d", i,
                          (int)w->border, (int)ATTN_BORDER_SHIFT);
    const char *negative = w->size < 0 ? "size" : w->step < 0 ? "step" : w->dilation < 0 ? "dilation" : NULL;
    if (negative)
        return attn__fail(context, ATTN_ERROR_SHAPE, "window %d: %s is %lld; it must not be negative", i, negative,
                          (long long)(w->size < 0   ? w->size
                                      : w->step < 0 ? w->step
                                                    : w->dilation));
    const char *large = too_large(p, w);
    if (large)
        return attn__fail(context, ATTN_ERROR_SHAPE, "window %d: %s is too large; it must be below 2^61", i, large);
    int64_t taps = p->dims[w->key_dim].n, dilation = or_one(w->dilation);
    if (w->border == ATTN_BORDER_SHIFT && p->dims[w->query_dim].n > 0 && w->size < taps * dilation)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "window %d (key dim %d): %lld taps with dilation %lld need more than size = %lld positions; "
                          "ATTN_BORDER_SHIFT needs taps * dilation <= size",
                          i, w->key_dim, (long long)taps, (long long)dilation, (long long)w->size);
    for (int other = 0; other < i; other++)
        if (p->windows[other].key_dim == w->key_dim)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "windows %d and %d both have key_dim %d; a KEY dim can have only one window", other, i,
                              w->key_dim);
    return ATTN_OK;
}

static attn_status check_windows(attn_context *context, const attn_problem *p)
{
    return check_each(context, p, p->nwindows, check_window);
}

/* Checks the pair of dims that a band or a table refers to. The dims must have the right roles.  If the key dim has a
 * window, that window must slide along the query dim, because otherwise the pair has no positions. */
static attn_status check_pair(attn_context *context, const attn_problem *p, int query_dim, int key_dim,
                              const char *what)
{
    attn_status status = check_role(context, p, query_dim, ATTN_ROLE_QUERY, what);
    if (status == ATTN_OK)
        status = check_role(context, p, key_dim, ATTN_ROLE_KEY, what);
    if (status != ATTN_OK)
        return status;
    const attn_window *w = attn__window_of(p, key_dim);
    if (w && w->query_dim != query_dim)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s pairs query dim %d with key dim %d, but the window of key dim %d slides along query "
                          "dim %d",
                          what, query_dim, key_dim, key_dim, w->query_dim);
    return ATTN_OK;
}

static attn_status check_pick(attn_context *context, const attn_problem *p, int i)
{
    const attn_pick *pick = &p->picks[i];
    if (pick->dim < 0 || pick->dim >= p->ndims)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "pick %d names dim %d, but the problem has %d dims", i,
                          pick->dim, p->ndims);
    if (p->dims[pick->dim].role != ATTN_ROLE_BATCH && p->dims[pick->dim].role != ATTN_ROLE_QUERY)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "pick %d names dim %d, which is a %s dim; expected a BATCH or QUERY dim", i, pick->dim,
                          attn__role_name(p->dims[pick->dim].role));
    for (int other = 0; other < i; other++)
        if (p->picks[other].dim == pick->dim)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "picks %d and %d both name dim %d; a dim can have only one pick", other, i, pick->dim);
    if (pick->n < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "pick %d: n is %lld; it must not be negative", i,
                          (long long)pick->n);
    if (pick->n > 0 && !pick->index)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "pick %d: n is %lld, but index is NULL", i, (long long)pick->n);
    for (int64_t j = 0; j < pick->n; j++)
        if (pick->index[j] < 0 || pick->index[j] >= p->dims[pick->dim].n)
            return attn__fail(context, ATTN_ERROR_ARGUMENT, "pick %d: index %lld lies outside dim %d of length %lld", i,
                              (long long)pick->index[j], pick->dim, (long long)p->dims[pick->dim].n);
    return ATTN_OK;
}

static attn_status check_relations(attn_context *context, const attn_problem *p)
{
    char what[32];
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < p->nbands; i++) {
        snprintf(what, sizeof what, "band %d", i);
        status = check_pair(context, p, p->bands[i].query_dim, p->bands[i].key_dim, what);
    }
    for (int i = 0; status == ATTN_OK && i < p->nrelatives; i++) {
        snprintf(what, sizeof what, "relative table %d", i);
        status = check_pair(context, p, p->relatives[i].query_dim, p->relatives[i].key_dim, what);
    }
    if (status == ATTN_OK)
        status = check_each(context, p, p->npicks, check_pick);
    if (status == ATTN_OK && (p->flags & ATTN_WITH_LENS))
        status = check_role(context, p, p->lens_dim, ATTN_ROLE_KEY, "lens_dim");
    return status;
}

/* ------------------------------------------------------------------------------------------ packed sequences */

static attn_status check_packed_dims(attn_context *context, const attn_problem *p)
{
    const attn_packed *packed = &p->packed;
    attn_status status = check_role(context, p, packed->batch_dim, ATTN_ROLE_BATCH, "packed.batch_dim");
    if (status == ATTN_OK)
        status = check_role(context, p, packed->query_dim, ATTN_ROLE_QUERY, "packed.query_dim");
    if (status == ATTN_OK)
        status = check_role(context, p, packed->key_dim, ATTN_ROLE_KEY, "packed.key_dim");
    for (int i = 0; status == ATTN_OK && i < p->nwindows; i++)
        if (p->windows[i].query_dim == packed->query_dim || p->windows[i].key_dim == packed->key_dim)
            status = attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                                "window %d slides along packed sequences, which is not supported", i);
    return status;
}

static attn_status check_packed_counts(attn_context *context, const attn_problem *p)
{
    const attn_packed *packed = &p->packed;
    const struct {
        const char *name;
        int64_t positions, longest;
    } sides[] = {{"queries", packed->queries, p->dims[packed->query_dim].n},
                 {"keys", packed->keys, p->dims[packed->key_dim].n}};
    for (int i = 0; i < 2; i++) {
        if (sides[i].positions < 0 || sides[i].positions > INT32_MAX)
            return attn__fail(context, ATTN_ERROR_SHAPE, "packed.%s is %lld; it must be 0 to 2^31 - 1", sides[i].name,
                              (long long)sides[i].positions);
        if (sides[i].longest > INT32_MAX)
            return attn__fail(
                context, ATTN_ERROR_SHAPE,
                "dim %d (packed %s): the longest sequence has %lld positions; at most 2^31 - 1 are supported",
                i ? packed->key_dim : packed->query_dim, sides[i].name, (long long)sides[i].longest);
    }
    return ATTN_OK;
}

/* Checks that an operand has stride 0 along packed sequences, and a nonzero stride along the positions of tokens. */
static attn_status check_packed_strides(attn_context *context, const attn_problem *p, attn__operand op)
{
    const attn_packed *packed = &p->packed;
    int along = attn__operand_packed(op, ATTN_ROLE_QUERY) ? packed->query_dim : packed->key_dim;
    int64_t stride = attn__stride(&p->dims[packed->batch_dim], op);
    if (stride != 0)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "dim %d (packed.batch_dim): the stride of %s is %lld; it must be 0, because the offsets say "
                          "where each packed sequence starts",
                          packed->batch_dim, attn__operand_table[op].name, (long long)stride);
    if (attn__stride(&p->dims[along], op) == 0 && attn__operand_length(p, &p->dims[along], along, op) > 1)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "dim %d (packed positions): the stride of %s is 0; it must be another number", along,
                          attn__operand_table[op].name);
    return ATTN_OK;
}

static attn_status check_packed(attn_context *context, const attn_problem *p)
{
    if (!(p->flags & ATTN_WITH_PACKED))
        return ATTN_OK;
    attn_status status = check_packed_dims(context, p);
    if (status == ATTN_OK)
        status = check_packed_counts(context, p);
    for (attn__operand op = 0; status == ATTN_OK && op < ATTN__OPERANDS; op++) {
        bool token = attn__operand_packed(op, ATTN_ROLE_QUERY) || attn__operand_packed(op, ATTN_ROLE_KEY);
        if (token && attn__operand_used(p, op) && (op < ATTN__OP_DQ || p->own_grad_strides))
            status = check_packed_strides(context, p, op);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------ a mask of blocks */

static attn_status check_blocks(attn_context *context, const attn_problem *p)
{
    if (!(p->flags & ATTN_WITH_BLOCKS))
        return ATTN_OK;
    attn_status status = check_role(context, p, p->blocks.query_dim, ATTN_ROLE_QUERY, "blocks.query_dim");
    if (status == ATTN_OK)
        status = check_role(context, p, p->blocks.key_dim, ATTN_ROLE_KEY, "blocks.key_dim");
    if (status != ATTN_OK)
        return status;
    bool empty = p->blocks.queries <= 0;
    if (empty || p->blocks.keys <= 0)
        return attn__fail(context, ATTN_ERROR_SHAPE, "blocks.%s is %lld; it must be at least 1",
                          empty ? "queries" : "keys", (long long)(empty ? p->blocks.queries : p->blocks.keys));
    if (p->nwindows)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "a mask of blocks and a window cannot be used together");
    if (p->flags & ATTN_WITH_PACKED)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "a mask of blocks and packed sequences cannot be used together");
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------------- a bias through an index */

/* Reports whether int64 can hold the size of the expanded bias. It has one number for each entry of the index and each
 * BATCH index of the table. */
static bool spread_fits(const attn_problem *p)
{
    int64_t entries = 1, part;
    bool ok = true;
    for (int i = 0; i < p->ndims; i++) {
        int64_t stride = p->dims[i].bias < 0 ? -p->dims[i].bias : p->dims[i].bias;
        if ((p->dims[i].role == ATTN_ROLE_QUERY || p->dims[i].role == ATTN_ROLE_KEY) && p->dims[i].n > 1)
            ok = ok && !__builtin_mul_overflow(p->dims[i].n - 1, stride, &part) &&
                 !__builtin_add_overflow(entries, part, &entries);
    }
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == ATTN_ROLE_BATCH && p->dims[i].bias != 0 && p->dims[i].n > 1)
            ok = ok && !__builtin_mul_overflow(entries, p->dims[i].n, &entries);
    return ok && entries <= INT64_MAX / 64;
}

static bool reach_fits(const attn_bias_index *x)
{
    int64_t reach;
    return !__builtin_mul_overflow(x->rows, x->row_stride, &reach) && reach <= INT64_MAX / 64 &&
           reach >= -(INT64_MAX / 64);
}

static attn_status check_bias_index(attn_context *context, const attn_problem *p)
{
    if (!(p->flags & ATTN_WITH_BIAS_INDEX))
        return ATTN_OK;
    if (!(p->flags & ATTN_WITH_BIAS))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "bias_index is set, but the problem has no bias");
    if (p->bias_index.rows < 1 || p->bias_index.rows > INT32_MAX)
        return attn__fail(context, ATTN_ERROR_SHAPE, "bias_index.rows is %lld; it must be 1 to 2^31 - 1",
                          (long long)p->bias_index.rows);
    if (p->bias_index.rows > 1 && p->bias_index.row_stride == 0)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "bias_index.rows is %lld, but bias_index.row_stride is 0, so only the first row is read",
                          (long long)p->bias_index.rows);
    if (!reach_fits(&p->bias_index))
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "bias_index: rows %lld * row_stride %lld is too large; a table of at most 2^57 elements is "
                          "supported",
                          (long long)p->bias_index.rows, (long long)p->bias_index.row_stride);
    if (!spread_fits(p))
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "bias_index: the bias that is made from the table is too large; at most 2^57 elements are "
                          "supported");
    if (p->direction == ATTN_DIRECTION_BACKWARD && (p->flags & ATTN_WANT_DBIAS) && p->accumulate)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "dbias: accumulate is not supported with bias_index, because pairs of a query and a key "
                          "share rows of the table");
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------- relative tables */

static attn_status check_table(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    int last = attn__last_dim(p, attn__table_role(r));
    int64_t n = last < 0 ? 1 : p->dims[last].n;
    if ((unsigned)r->kind > ATTN_RELATIVE_VALUE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "relative table %d: kind is %d; it must be between 0 and %d", i,
                          (int)r->kind, (int)ATTN_RELATIVE_VALUE);
    if (r->rows < 0)
        return attn__fail(context, ATTN_ERROR_SHAPE, "relative table %d: rows is %lld; it must not be negative", i,
                          (long long)r->rows);
    if (r->rows > 1 && r->row_stride == 0)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "relative table %d has %lld rows, but row_stride is 0, so only its first row is read", i,
                          (long long)r->rows);
    bool all = r->begin == 0 && r->end == 0;
    if (!all && (r->begin < 0 || r->begin > r->end || r->end > n))
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "relative table %d: begin is %lld and end %lld; they must satisfy 0 <= begin <= end <= %lld, "
                          "the number of channels",
                          i, (long long)r->begin, (long long)r->end, (long long)n);
    for (int d = 0; d < p->ndims; d++) {
        attn_role role = p->dims[d].role;
        if (r->stride[d] != 0 && role != ATTN_ROLE_BATCH && role != attn__table_role(r))
            return attn__fail(context, ATTN_ERROR_SHAPE,
                              "relative table %d: the stride along dim %d is %lld; it must be 0, because the table has "
                              "no %s dims",
                              i, d, (long long)r->stride[d], attn__role_name(role));
    }
    return ATTN_OK;
}

typedef struct range {
    int64_t low, high; /* bounds of the range; empty if low > high */
} range;

static range window_range(const attn_problem *p, attn_window w)
{
    range r;
    w.step = w.step ? w.step : 1;
    w.dilation = w.dilation ? w.dilation : 1;
    attn__window_reach(&w, p->dims[w.key_dim].n, p->dims[w.query_dim].n, &r.low, &r.high);
    return r;
}

/* Narrows a table's range of distances to the bands, because masked keys need no table rows. With mask_fill it changes
 * nothing.  A band that aligns the ends of packed sequences is ignored, because it differs per sequence. */
static void cut_by_bands(const attn_problem *p, const attn_relative *r, range *reach)
{
    for (int i = 0; p->mask_fill == 0 && i < p->nbands; i++) {
        const attn_band *band = &p->bands[i];
        bool moves = (p->flags & ATTN_WITH_PACKED) && p->packed.align_ends && band->query_dim == p->packed.query_dim &&
                     band->key_dim == p->packed.key_dim;
        if (moves || band->query_dim != r->query_dim || band->key_dim != r->key_dim)
            continue;
        reach->low = attn__max(reach->low, band->lo);
        reach->high = attn__min(reach->high, band->hi);
    }
}

static attn_status check_reached_rows(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    int64_t queries = p->dims[r->query_dim].n, keys = p->dims[r->key_dim].n;
    if (queries == 0 || keys == 0)
        return ATTN_OK;
    const attn_window *w = attn__window_of(p, r->key_dim);
    range reach = w ? window_range(p, *w) : (range){1 - queries, keys - 1};
    cut_by_bands(p, r, &reach);
    int64_t low, high;
    if (reach.low > reach.high)
        return ATTN_OK;
    if (__builtin_add_overflow(reach.low, r->offset, &low) || __builtin_add_overflow(reach.high, r->offset, &high) ||
        low < 0 || high >= r->rows)
        return attn__fail(
            context, ATTN_ERROR_SHAPE,
            "relative table %d has %lld rows, but the problem reads the rows distance + offset for the distances %lld "
            "to %lld and the offset %lld (query dim %d, key dim %d)",
            i, (long long)r->rows, (long long)reach.low, (long long)reach.high, (long long)r->offset, r->query_dim,
            r->key_dim);
    return ATTN_OK;
}

static attn_status check_tables(attn_context *context, const attn_problem *p)
{
    return check_each(context, p, p->nrelatives, check_table);
}

static attn_status check_table_rows(attn_context *context, const attn_problem *p)
{
    return check_each(context, p, p->nrelatives, check_reached_rows);
}

/* ----------------------------------------------------------------------------------------------------- sizes */

/* The largest size. With this limit, offsets and sums of two offsets cannot overflow. */
static const int64_t most = INT64_MAX / 4;

static bool product_fits(const attn_problem *p, attn_role first, attn_role last)
{
    int64_t size = 1;
    bool empty = false, over = false;
    for (int i = 0; i < p->ndims; i++) {
        if (p->dims[i].role < first || p->dims[i].role > last)
            continue;
        empty = empty || p->dims[i].n == 0;
        over = over || __builtin_mul_overflow(size, p->dims[i].n ? p->dims[i].n : 1, &size) || size > most;
    }
    return empty || !over;
}

/* Adds (n - 1) * |stride| to *reach. Returns false if *reach overflows. */
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
    for (int i = 0; i < p->ndims; i++) {
        int64_t n = attn__operand_length(p, &p->dims[i], i, op), stride = attn__stride(&p->dims[i], op);
        if (!stretch(&reach, n, stride))
            return attn__fail(context, ATTN_ERROR_SHAPE,
                              "dim %d (length %lld): the stride of %s is %lld, so the size of %s overflows", i,
                              (long long)n, attn__operand_table[op].name, (long long)stride,
                              attn__operand_table[op].name);
    }
    int64_t size = (int64_t)attn_dtype_size(attn__operand_dtype(p, op));
    if (reach > most / size)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "%s spans %lld elements of %lld bytes; at most 2^61 bytes are supported",
                          attn__operand_table[op].name, (long long)reach + 1, (long long)size);
    return ATTN_OK;
}

/* Returns how many indices a relative table has along a dim: the dim's length, or the size of its range of channels. */
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
    return attn__fail(context, ATTN_ERROR_SHAPE,
                      "the size of relative table %d overflows; at most 2^58 elements are supported", i);
}

static attn_status check_sizes(attn_context *context, const attn_problem *p)
{
    attn_status status = ATTN_OK;
    for (attn_role role = ATTN_ROLE_BATCH; status == ATTN_OK && role <= ATTN_ROLE_VALUE; role++)
        if (!product_fits(p, role, role))
            status = attn__fail(context, ATTN_ERROR_SHAPE,
                                "the product of the lengths of the %s dims overflows; at most 2^61 is supported",
                                attn__role_name(role));
    for (attn__operand op = 0; status == ATTN_OK && op < ATTN__OPERANDS; op++)
        /* If gradients have no strides of their own, their stride fields are not read, so they are not checked. */
        if (attn__operand_used(p, op) && (op < ATTN__OP_DQ || p->own_grad_strides))
            status = check_reach(context, p, op);
    if (status == ATTN_OK)
        status = check_each(context, p, p->nrelatives, check_table_reach);
    if (status == ATTN_OK && !product_fits(p, ATTN_ROLE_BATCH, ATTN_ROLE_QUERY))
        status = attn__fail(context, ATTN_ERROR_SHAPE,
                            "the number of rows (BATCH times QUERY dims) overflows; at most 2^61 are supported");
    return status;
}

/* ------------------------------------------------------------------------------------------- overlap */

/* -------------------------------------------------------------------------------------------------------- overlap
 *
 * Two indices of an output must not address the same element.  They do if their difference x, with |x_i| < n_i and not
 * all x_i zero, has sum x_i stride_i = 0.  A depth-first search looks for such an x, largest stride first.  In an
 * ordinary nested layout, the range of the smaller strides allows only x_i = 0 at each level, so the search is a single
 * path.  In other layouts, the partial sum must also be a multiple of the smaller strides' greatest common divisor.
 * The last two spans are solved directly.  The general problem is a subset sum. If ten million candidates give no
 * answer, the indices therefore count as overlapping.
 */

/* One dim of an array, for the overlap test. */
typedef struct span_dim {
    int64_t n, stride;
    int dim;
} span_dim;

typedef struct spans {
    int n;
    span_dim of[ATTN_MAX_DIMS + 1];
    int first, second; /* the two dims that cause an overlap; equal if a single dim causes it */
} spans;

static void add_span(spans *s, int64_t n, int64_t stride, int dim)
{
    s->of[s->n++] = (span_dim){n, stride, dim};
}

__extension__ typedef unsigned __int128 wide; /* product of two strides, which may exceed 64 bits */

typedef struct search {
    int n;
    span_dim spans[ATTN_MAX_DIMS + 1]; /* dims with positive strides, in descending order of stride */
    int64_t reach[ATTN_MAX_DIMS + 2];  /* reach[i]: largest offset that the spans from i on can give */
    int64_t gcd[ATTN_MAX_DIMS + 2];    /* gcd[i]: greatest common divisor of the strides from span i on */
    int64_t x[ATTN_MAX_DIMS + 1];
    int budget;
} search;

/* Returns the inverse of a modulo m. gcd(a, m) must be 1. */
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

/* Solves rest + x * a + y * b = 0 within the lengths of the last two spans, whose strides are a and b.  Only the first
 * x in its interval is tested, because all solutions x are congruent modulo b / gcd(a, b). */
static bool last_two_meet(search *s, int64_t rest, bool nonzero)
{
    const span_dim *a = &s->spans[s->n - 2], *b = &s->spans[s->n - 1];
    int64_t g = attn__max(s->gcd[s->n - 2], 1), modulus = b->stride / g, reach = s->reach[s->n - 1], x;
    if (!nonzero) { /* rest is 0 here, so only the smallest nonzero solution is tested */
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
        low = 0; /* if x is a solution, so is -x, and only one is tested */
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

static void blame(const search *s, spans *of)
{
    of->first = of->second = -1;
    for (int i = 0; i < s->n; i++) {
        if (s->x[i] == 0)
            continue;
        if (of->first < 0)
            of->first = s->spans[i].dim;
        of->second = s->spans[i].dim;
    }
    if (of->first < 0)
        of->first = of->second = s->spans[0].dim;
}

/* Reports whether two different indices of the array share an element. If so, sets `first` and `second` to the dims
 * along which the indices differ. Offsets must not overflow. */
static bool spans_overlap(spans *of)
{
    search s = {.budget = 10000000};
    for (int i = 0; i < of->n; i++)
        if (of->of[i].n == 0)
            return false;
    for (int i = 0; i < of->n; i++) {
        if (of->of[i].n == 1)
            continue;
        if (of->of[i].stride == 0) {
            of->first = of->second = of->of[i].dim;
            return true;
        }
        insert(&s, of->of[i]);
    }
    for (int i = s.n - 1; i >= 0; i--)
        s.reach[i] = s.reach[i + 1] + (s.spans[i].n - 1) * s.spans[i].stride;
    for (int i = s.n - 1; i >= 0; i--)
        s.gcd[i] = attn__gcd(s.gcd[i + 1], s.spans[i].stride);
    if (s.n < 2 || !meets(&s, 0, 0, false)) /* a single dim with a nonzero stride cannot overlap */
        return false;
    blame(&s, of);
    return true;
}

static attn_status check_spans(attn_context *context, const attn_problem *p, const char *name, spans *s)
{
    if (!spans_overlap(s))
        return ATTN_OK;
    int first = s->first, second = s->second;
    if (first < 0 || second < 0)
        return attn__fail(
            context, ATTN_ERROR_SHAPE,
            "%s: rows of the table overlap, because of their strides; rows of an output must not share elements", name);
    if (first == second)
        return attn__fail(
            context, ATTN_ERROR_SHAPE,
            "%s: the stride of dim %d (%s, length %lld) is 0; indices of an output must not share elements", name,
            first, attn__role_name(p->dims[first].role), (long long)p->dims[first].n);
    return attn__fail(
        context, ATTN_ERROR_SHAPE,
        "%s: dims %d (%s, length %lld) and %d (%s, length %lld) overlap, because of their strides; indices of an output "
        "must not share elements",
        name, first, attn__role_name(p->dims[first].role), (long long)p->dims[first].n, second,
        attn__role_name(p->dims[second].role), (long long)p->dims[second].n);
}

/* Checks that no two indices of an output share an element. A gradient, which sums terms, may have zero strides. */
static attn_status check_output(attn_context *context, const attn_problem *p, attn__operand op, const char *name,
                                bool sums)
{
    spans s = {0};
    for (int i = 0; i < p->ndims; i++) {
        const attn_dim *dim = &p->dims[i];
        /* Packed sequences never share tokens, although their stride is 0. */
        bool apart = (p->flags & ATTN_WITH_PACKED) && i == p->packed.batch_dim &&
                     (attn__operand_packed(op, ATTN_ROLE_QUERY) || attn__operand_packed(op, ATTN_ROLE_KEY));
        if ((attn__operand_table[op].roles >> dim->role & 1) && !(sums && attn__stride(dim, op) == 0) && !apart)
            add_span(&s, attn__operand_length(p, dim, i, op), attn__stride(dim, op), i);
    }
    return check_spans(context, p, name, &s);
}

static attn__operand bias_gradient(const attn_problem *p)
{
    return p->own_grad_strides ? ATTN__OP_DBIAS : ATTN__OP_BIAS;
}

bool attn__bias_gradient_meets(const attn_problem *p)
{
    spans s = {0};
    attn__operand op = bias_gradient(p);
    for (int i = 0; i < p->ndims; i++) {
        int64_t stride = attn__stride(&p->dims[i], op);
        if ((p->dims[i].role == ATTN_ROLE_QUERY || p->dims[i].role == ATTN_ROLE_KEY) && stride != 0)
            add_span(&s, p->dims[i].n, stride, i);
    }
    return attn__operand_used(p, ATTN__OP_DBIAS) && spans_overlap(&s);
}

/* Checks a table that is read by an index. Its rows for different BATCH indices must not share elements. */
static attn_status check_indexed_gradient(attn_context *context, const attn_problem *p)
{
    spans s = {0};
    add_span(&s, p->bias_index.rows, p->bias_index.row_stride, -1);
    if (spans_overlap(&s))
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "dbias: the %lld rows of the table share elements, because bias_index.row_stride is %lld",
                          (long long)p->bias_index.rows, (long long)p->bias_index.row_stride);
    for (int i = 0; i < p->ndims; i++)
        if (p->dims[i].role == ATTN_ROLE_BATCH && p->dims[i].bias != 0)
            add_span(&s, p->dims[i].n, p->dims[i].bias, i);
    if (!spans_overlap(&s))
        return ATTN_OK;
    return attn__fail(
        context, ATTN_ERROR_SHAPE,
        "dbias: the tables of two BATCH indices share elements; a table has %lld rows with the row_stride %lld, and "
        "attn_dim.bias of each BATCH dim must exceed its length",
        (long long)p->bias_index.rows, (long long)p->bias_index.row_stride);
}

/* Checks the strides of the bias gradient. Pairs of one BATCH index may share elements, but different BATCH indices
 * must have disjoint ranges of elements. */
static attn_status check_bias_gradient(attn_context *context, const attn_problem *p)
{
    spans s = {0};
    int last = -1;
    int64_t reach = 0; /* does not overflow, because sizes were checked before */
    attn__operand op = bias_gradient(p);
    if (p->flags & ATTN_WITH_BIAS_INDEX)
        return check_indexed_gradient(context, p);
    if (!attn__bias_gradient_meets(p))
        return check_output(context, p, op, "dbias", true);
    if (p->accumulate)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "dbias: accumulate is not supported where pairs of a query and a key share elements of "
                          "dbias");
    for (int i = 0; i < p->ndims; i++) {
        int64_t stride = attn__stride(&p->dims[i], op);
        if (p->dims[i].role == ATTN_ROLE_BATCH && stride != 0)
            add_span(&s, p->dims[i].n, stride, i);
        else if (stretch(&reach, p->dims[i].n, stride) && stride != 0)
            last = i;
    }
    add_span(&s, reach + 1, 1, last);
    return check_spans(context, p, "dbias", &s);
}

static attn_status check_table_output(attn_context *context, const attn_problem *p, int i)
{
    const attn_relative *r = &p->relatives[i];
    spans s = {0};
    if (r->row_stride != 0)
        add_span(&s, r->rows, r->row_stride, -1);
    for (int d = 0; d < p->ndims; d++)
        if (r->stride[d] != 0)
            add_span(&s, table_length(p, r, d), r->stride[d], d);
    char name[32];
    snprintf(name, sizeof name, "dtable[%d]", i);
    return check_spans(context, p, name, &s);
}

static attn_status check_gradients(attn_context *context, const attn_problem *p)
{
    static const struct {
        attn__operand wanted, like;
    } pairs[] = {{ATTN__OP_DQ, ATTN__OP_Q}, {ATTN__OP_DK, ATTN__OP_K}, {ATTN__OP_DV, ATTN__OP_V}};
    /* Examples of a batch may have the same results, and so share o and lse; all of their elements cannot be one. */
    const int rows = ATTN__IN_BATCH | ATTN__IN_QUERY;
    attn_status status = check_moves(context, p, ATTN__OP_O, rows | ATTN__IN_VALUE, false);
    if (status == ATTN_OK)
        status = check_moves(context, p, ATTN__OP_LSE, rows, false);
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
    if (status == ATTN_OK && (p->flags & ATTN_WANT_DTABLES))
        status = check_each(context, p, p->nrelatives, check_table_output);
    return status;
}

static attn_status check_outputs(attn_context *context, const attn_problem *p)
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

/* ------------------------------------------------------------------------------------------------------- all */

attn_status attn__check_problem(attn_context *context, const attn_problem *problem)
{
    static attn_status (*const parts[])(attn_context *, const attn_problem *) = {
        check_counts,  check_numbers,   check_sigmoid,    check_wishes,     check_dims,
        check_windows, check_relations, check_packed,     check_blocks,     check_tables,
        check_sizes,   check_strides,   check_bias_index, check_table_rows, check_outputs,
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        attn_status status = parts[i](context, problem);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}
