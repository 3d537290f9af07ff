/* SPDX-License-Identifier: MIT
 * Checks a problem, part by part; later checks rely on earlier ones. */
#include "attend/problem/problem.h"

#include "base/integers.h"

#include <math.h>

attn_status attn__check_problem(attn_context *context, const attn_problem *problem)
{
    static attn_status (*const parts[])(attn_context *, const attn_problem *) = {
        attn__check_fields, attn__check_windows, attn__check_relations,  attn__check_packed,     attn__check_blocks,
        attn__check_tables, attn__check_sizes,   attn__check_bias_index, attn__check_table_rows, attn__check_outputs,
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        attn_status status = parts[i](context, problem);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

attn_status attn__check_role(attn_context *context, const attn_problem *problem, int dim, attn_role role,
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
        {"normalization", (int)p->normalization, ATTN_NORMALIZATION_SUM},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        attn_status status = attn__check_choice(context, counts[i].name, counts[i].n, counts[i].most);
        if (status != ATTN_OK)
            return status;
    }
    if (p->dtype != ATTN_F32 && p->dtype != ATTN_BF16 && p->dtype != ATTN_F64)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "dtype %s: the engine takes f32, bf16 and f64",
                          attn_dtype_name(p->dtype));
    return ATTN_OK;
}

static attn_status check_numbers(attn_context *context, const attn_problem *p)
{
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
    if (p->mask_fill != 0 && p->normalization != ATTN_NORMALIZATION_SOFTMAX)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "mask_fill is a score before softmax; other normalizations leave "
                          "masked keys out");
    if (!(p->dropout >= 0 && p->dropout < 1))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "dropout %g: the probability must lie in [0, 1)", p->dropout);
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
    if ((p->flags & (ATTN_WITH_SINKS | ATTN_WITH_DLSE)) && p->normalization != ATTN_NORMALIZATION_SOFTMAX)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "sinks and dlse belong to a softmax; there is another normalization");
    if ((p->flags & ATTN_WITH_SINKS) && p->mask_fill != 0)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "sinks with a mask_fill (%g)", p->mask_fill);
    if ((p->flags & ATTN_WITH_BF16_KEYS) &&
        (p->dtype != ATTN_F32 || p->direction != ATTN_DIRECTION_FORWARD || (p->flags & ATTN_WANT_WEIGHTS)))
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "bf16 keys and values are read by f32 problems, forward and without weights");
    if (p->direction != ATTN_DIRECTION_BACKWARD && (p->flags & gradients))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "flags has ATTN_WANT_D... (0x%x), but the direction is ATTN_DIRECTION_FORWARD",
                          p->flags & gradients);
    if (p->direction != ATTN_DIRECTION_BACKWARD)
        return ATTN_OK;
    if ((p->flags & ATTN_WANT_DSINKS) && !(p->flags & ATTN_WITH_SINKS))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the gradient of the sinks is wanted, but there are none");
    if (!(p->flags & gradients))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "a backward problem wants no gradient (flags has no ATTN_WANT_D...)");
    if ((p->flags & ATTN_WANT_DBIAS) && !(p->flags & ATTN_WITH_BIAS))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the gradient of the bias is wanted, but there is no bias");
    if ((p->flags & ATTN_WANT_DTABLES) && p->nrelatives == 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "gradients of relative tables are wanted, but there are none");
    if ((p->flags & ATTN_WANT_DW) && !attn__operand_used(p, ATTN__OP_W))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "the gradient of w is wanted, but only additive and concatenation "
                          "scores have w");
    return ATTN_OK;
}

/* Without a stride, all channels would share the one number w. */
static attn_status check_w(attn_context *context, const attn_problem *p)
{
    int still = -1;
    for (int i = 0; i < p->ndims; i++) {
        if (p->dims[i].role != ATTN_ROLE_CONTRACT || p->dims[i].n <= 1)
            continue;
        if (p->dims[i].w != 0)
            return ATTN_OK;
        still = i;
    }
    if (still < 0 || !attn__operand_used(p, ATTN__OP_W))
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_SHAPE,
                      "dim %d (CONTRACT, length %lld): w has no stride, but additive and "
                      "concatenation scores have a w for each channel",
                      still, (long long)p->dims[still].n);
}

static bool is_gradient(attn__operand op)
{
    return op >= ATTN__OP_DQ;
}

static attn_status check_dim(attn_context *context, const attn_problem *p, int i)
{
    const attn_dim *dim = &p->dims[i];
    if (!attn__all_zero(dim->reserved, sizeof dim->reserved))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "dim %d: a reserved field is not zero", i);
    if (dim->role < ATTN_ROLE_BATCH || dim->role > ATTN_ROLE_VALUE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "dim %d: role %d is not one of the five", i, (int)dim->role);
    if (dim->n < 0)
        return attn__fail(context, ATTN_ERROR_SHAPE, "dim %d (%s): its length %lld is negative", i,
                          attn__role_name(dim->role), (long long)dim->n);
    for (attn__operand op = 0; op < ATTN__OPERANDS; op++) {
        int64_t stride = attn__stride(dim, op);
        if (stride == 0 || (attn__operand_table[op].roles >> dim->role & 1))
            continue;
        if (is_gradient(op) && !p->own_grad_strides)
            continue;
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "dim %d (%s, length %lld): %s has stride %lld, but %s does not move "
                          "along %s dims",
                          i, attn__role_name(dim->role), (long long)dim->n, attn__operand_table[op].name,
                          (long long)stride, attn__operand_table[op].name, attn__role_name(dim->role));
    }
    return ATTN_OK;
}

attn_status attn__check_fields(attn_context *context, const attn_problem *problem)
{
    attn_status status = check_counts(context, problem);
    if (status == ATTN_OK && !attn__all_zero(problem->reserved, sizeof problem->reserved))
        status = attn__fail(context, ATTN_ERROR_ARGUMENT, "the problem: a reserved field is not zero");
    if (status == ATTN_OK)
        status = check_numbers(context, problem);
    if (status == ATTN_OK)
        status = check_wishes(context, problem);
    for (int i = 0; status == ATTN_OK && i < problem->ndims; i++)
        status = check_dim(context, problem, i);
    return status == ATTN_OK ? check_w(context, problem) : status;
}
