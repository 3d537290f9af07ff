/* SPDX-License-Identifier: MIT
 *
 * Implements attention as one operation, whose forward and backward passes run plans of the attention engine. */
#include "attend/plan/plan.h"
#include "attend/problem/arrays.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "tensor/dropout.h"
#include "tensor/linear_part.h"
#include "tensor/operand_layout.h"
#include "tensor/plans.h"

#include <string.h>

/* Indices of the arrays of an execution. A node's inputs, saved data and gradients are also indexed by them. */
enum { Q, K, V, BIAS, W, W2, TABLES, INPUTS = TABLES + ATTN_MAX_RELATIVE };
enum { SAVED_MASK = INPUTS, SAVED_LENS, SAVED_O, SAVED_LSE, SAVED_OFFSETS, SAVED_COUNT };

static attn_array input_of(int place)
{
    static const attn_array inputs[SAVED_COUNT] = {[Q] = ATTN_ARRAY_Q,
                                                   [K] = ATTN_ARRAY_K,
                                                   [V] = ATTN_ARRAY_V,
                                                   [BIAS] = ATTN_ARRAY_BIAS,
                                                   [W] = ATTN_ARRAY_W,
                                                   [W2] = ATTN_ARRAY_W2,
                                                   [SAVED_MASK] = ATTN_ARRAY_MASK,
                                                   [SAVED_LENS] = ATTN_ARRAY_LENS,
                                                   [SAVED_O] = ATTN_ARRAY_O,
                                                   [SAVED_LSE] = ATTN_ARRAY_LSE,
                                                   [SAVED_OFFSETS] = ATTN_ARRAY_Q_OFFSETS};
    return place >= TABLES && place < INPUTS ? (attn_array)(ATTN_ARRAY_TABLE + place - TABLES) : inputs[place];
}

static attn_array gradient_of(int place)
{
    static const attn_array gradients[TABLES] = {[Q] = ATTN_ARRAY_DQ,       [K] = ATTN_ARRAY_DK, [V] = ATTN_ARRAY_DV,
                                                 [BIAS] = ATTN_ARRAY_DBIAS, [W] = ATTN_ARRAY_DW, [W2] = ATTN_ARRAY_DW2};
    return place < TABLES ? gradients[place] : (attn_array)(ATTN_ARRAY_DTABLE + place - TABLES);
}

static unsigned wish(int place)
{
    static const unsigned wishes[] = {[Q] = ATTN_WANT_DQ,       [K] = ATTN_WANT_DK, [V] = ATTN_WANT_DV,
                                      [BIAS] = ATTN_WANT_DBIAS, [W] = ATTN_WANT_DW, [W2] = ATTN_WANT_DW};
    return place < TABLES ? wishes[place] : ATTN_WANT_DTABLES;
}

static const char *name_of(int place)
{
    return attn__arrays_table[input_of(place)].name;
}

/* Returns where the strides of this array are in attn_dim. The strides of tables are elsewhere. */
static size_t strides_of(int place)
{
    return attn__arrays_table[input_of(place)].strides;
}

typedef struct attend_detail {
    attn_problem problem; /* the problem of the forward pass, without picks and weights */
    int64_t offset[INPUTS];
    uint64_t seed;
    attn__drop_rows rows; /* maps the rows of this shard to rows of the whole batch, for dropout */
} attend_detail;

static void *element(const void *data, attn_dtype dtype, int64_t offset)
{
    return data ? (char *)(uintptr_t)data + offset * (int64_t)attn_dtype_size(dtype) : NULL;
}

/* ---------------------------------------------------------------------------------------------- backward */

/* Gradients of one execution. target[i] is the memory for gradient i. If operand i overlaps another operand, apart[i]
 * is a buffer of its own for gradient i. */
typedef struct gradients {
    attn__target target[INPUTS];
    attn__hold apart[INPUTS];
    bool add;
} gradients;

static attn__blocks blocks_of(const attn_problem *problem, int place)
{
    attn__operand_dim extents[ATTN_MAX_DIMS];
    /* empty blocks count as overlapping, which is good enough for bias, tables and weights, because these rarely share
     * a tensor */
    if (place > V)
        return (attn__blocks){0};
    int n = attn__operand_extents(problem, strides_of(place), place != Q, extents);
    return attn__operand_blocks(n, extents);
}

static bool overlaps_earlier(const attend_detail *detail, attn_tensor *const *x, int i)
{
    attn__blocks own = blocks_of(&detail->problem, i);
    for (int j = 0; j < i; j++) {
        attn__blocks other = blocks_of(&detail->problem, j);
        if (x[j] == x[i] && !attn__blocks_disjoint(&other, &own, detail->offset[i] - detail->offset[j]))
            return true;
    }
    return false;
}

/* Returns whether the requested gradients together overwrite all elements of their tensors. Otherwise the tensors must
 * be cleared first. */
static bool cover_everything(const attend_detail *detail, attn_tensor *const *x)
{
    for (int i = 0; i < INPUTS; i++) {
        if (!attn__grad_wanted(x[i]))
            continue;
        if (i > V || (x[i]->grad && !x[i]->grad->zero_pending) || overlaps_earlier(detail, x, i))
            return false;
        int64_t covered = 0;
        for (int j = Q; j <= V; j++)
            covered += x[j] == x[i] ? blocks_of(&detail->problem, j).count : 0;
        if (covered != x[i]->size)
            return false;
    }
    return true;
}

static attn__hold cleared(attn_tape *tape, const attn_tensor *x)
{
    attn__hold hold = attn__scratch(tape, attn__tensor_bytes(x));
    tape->failed |= !hold.data;
    if (hold.data)
        memset(hold.data, 0, attn__tensor_bytes(x));
    return hold;
}

static unsigned wishes_of(attn_tensor *const *x)
{
    unsigned wishes = 0;
    for (int i = 0; i < INPUTS; i++)
        wishes |= attn__grad_wanted(x[i]) ? wish(i) : 0;
    return wishes;
}

/* The engine computes the gradients of all tables together, and those of w and w2 together. Gradients that are not
 * needed are computed into buffers of their own and discarded. */
static void open_gradients(attn_tape *tape, attn__node *node, gradients *g)
{
    const attend_detail *detail = node->detail;
    unsigned wishes = wishes_of(node->x);
    g->add = !cover_everything(detail, node->x);
    for (int i = 0; i < INPUTS && !tape->failed; i++) {
        if (!node->x[i] || !(wishes & wish(i)))
            continue;
        if (!attn__grad_wanted(node->x[i]) || overlaps_earlier(detail, node->x, i))
            g->apart[i] = cleared(tape, node->x[i]);
        else if (g->add)
            g->target[i] = attn__grad_target_added(tape, node->x[i]);
        else
            g->target[i] = attn__grad_target(tape, node->x[i]);
    }
}

static void execute_backward(attn_tape *tape, attn__node *node, const gradients *g)
{
    const attend_detail *detail = node->detail;
    attn_problem problem = detail->problem;
    attn_arrays arrays = {.dout = node->y->grad->data, .seed_offset = detail->seed};
    for (int i = 0; i < SAVED_COUNT; i++)
        attn__arrays_set(&arrays, input_of(i), node->saved[i].data);
    arrays.k_offsets = arrays.q_offsets;
    problem.direction = ATTN_DIRECTION_BACKWARD;
    problem.accumulate = g->add;
    problem.flags &= ~(unsigned)ATTN_WANT_LSE;
    for (int i = 0; i < INPUTS; i++) {
        void *gradient = g->apart[i].data ? g->apart[i].data : g->target[i].data;
        if (gradient) {
            problem.flags |= wish(i);
            attn__arrays_set(&arrays, gradient_of(i), element(gradient, node->x[i]->dtype, detail->offset[i]));
        }
    }
    const attn_plan *plan = attn__plan_for(tape, &problem);
    attn__hold workspace = {0};
    if (plan)
        workspace = attn__scratch(tape, attn_plan_workspace(plan));
    if (!workspace.data || attn__plan_execute(plan, &arrays, &detail->rows, workspace.data) != ATTN_OK)
        tape->failed = true;
    attn__scratch_release(workspace);
}

static void attend_backward(attn_tape *tape, attn__node *node)
{
    gradients g = {0};
    open_gradients(tape, node, &g);
    if (!tape->failed)
        execute_backward(tape, node, &g);
    for (int i = 0; i < INPUTS; i++)
        attn__grad_give(tape, node->x[i], g.apart[i]);
}

/* ------------------------------------------------------------------------------------------------ checks */

/* Checks that all elements of the operand are inside its tensor. The engine cannot check this, because it gets only
 * pointers. */
static bool lies_within(attn_tape *tape, int place, const attn_tensor *x, int64_t offset, int n,
                        const attn__operand_dim *extents)
{
    int64_t lowest, highest;
    if (!attn__operand_bounds(n, extents, &lowest, &highest))
        return true;
    if (offset >= 0 && lowest >= -offset && highest < x->size - offset)
        return true;
    char text[ATTN__SHAPE_TEXT];
    if (offset < 0 || offset > x->size) {
        attn__op_shape_error(tape, "attend: the offset of %s is %lld, outside of its tensor %s", name_of(place),
                             (long long)offset, attn__shape_text(x, text));
        return false;
    }
    int64_t first = offset + lowest, last = offset + attn__min(highest, INT64_MAX - offset);
    attn__op_shape_error(
        tape, "attend: %s reads elements %lld to %lld of its tensor %s, which has %lld elements; the offset is %lld",
        name_of(place), (long long)first, (long long)last, attn__shape_text(x, text), (long long)x->size,
        (long long)offset);
    return false;
}

static int table_extents(const attn_problem *problem, int i, attn__operand_dim extents[ATTN_MAX_DIMS + 1])
{
    const attn_relative *relative = &problem->relatives[i];
    int n = 0, innermost = -1;
    attn_role channels = relative->kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT;
    extents[n++] = (attn__operand_dim){relative->rows, relative->row_stride};
    for (int d = 0; d < problem->ndims; d++)
        if (problem->dims[d].role == channels)
            innermost = d;
    for (int d = 0; d < problem->ndims; d++) {
        int64_t length = problem->dims[d].n;
        if (d == innermost && relative->end > relative->begin)
            length = relative->end - relative->begin;
        if (relative->stride[d] != 0)
            extents[n++] = (attn__operand_dim){length, relative->stride[d]};
    }
    return n;
}

static bool operand_fits(attn_tape *tape, const attn_problem *problem, int place, const attn_tensor *x, int64_t offset)
{
    attn__operand_dim extents[ATTN_MAX_DIMS + 1];
    if (!x)
        return true;
    if (!x->data) {
        attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "attend: %s was freed by the end of a scope", name_of(place));
        return false;
    }
    bool is_table = place >= TABLES && place < INPUTS, positions = place == K || place == V || place == SAVED_MASK;
    int n = is_table ? table_extents(problem, place - TABLES, extents)
                     : attn__operand_extents(problem, strides_of(place), positions, extents);
    return lies_within(tape, place, x, offset, n, extents);
}

/* Returns whether queries are f32 while keys and values are bf16, as in a KV cache. */
static bool has_bf16_keys(attn_tensor *const *inputs)
{
    return inputs[Q] && inputs[K] && inputs[V] && inputs[Q]->dtype == ATTN_F32 && inputs[K]->dtype == ATTN_BF16 &&
           inputs[V]->dtype == ATTN_BF16;
}

static bool types_fit(attn_tape *tape, const attn_attention *a, attn_tensor *const *inputs)
{
    for (int i = 0; i < INPUTS; i++) {
        bool apart = (i == K || i == V) && has_bf16_keys(inputs);
        if (inputs[i] && !apart && inputs[i]->dtype != a->q.tensor->dtype) {
            attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "attend: %s is %s, q is %s; they must have one type",
                       name_of(i), attn_dtype_name(inputs[i]->dtype), attn_dtype_name(a->q.tensor->dtype));
            return false;
        }
    }
    bool mask = !a->mask || a->mask->dtype == ATTN_U8 || a->mask->dtype == ATTN_BOOL;
    if (mask && (!a->lens || a->lens->dtype == ATTN_I32))
        return true;
    attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "attend: %s is %s; it must be %s", mask ? "lens" : "mask",
               attn_dtype_name(mask ? a->lens->dtype : a->mask->dtype), mask ? "i32" : "u8 or bool");
    return false;
}

/* ----------------------------------------------------------------------------------------------- forward */

static attn_problem forward_problem(const attn_tape *tape, const attn_attention *a)
{
    attn_problem p = a->problem;
    p.dtype = a->q.tensor->dtype;
    p.direction = ATTN_DIRECTION_FORWARD;
    p.flags = (a->bias ? (unsigned)ATTN_WITH_BIAS : 0) | (a->mask ? (unsigned)ATTN_WITH_MASK : 0) |
              (a->lens ? (unsigned)ATTN_WITH_LENS : 0) |
              (a->k.tensor->dtype != p.dtype ? (unsigned)ATTN_WITH_BF16_KEYS : 0) |
              (a->offsets ? (unsigned)ATTN_WITH_PACKED : 0);
    p.dropout = tape->options.train ? a->dropout : 0;
    /* 0, because the seed is set at each execution; otherwise equal layers could not share a plan */
    p.seed = p.stream = 0;
    p.accumulate = p.own_grad_strides = false;
    return p;
}

/* Returns the number of elements of an array whose strides are at offset `member` of attn_dim. Returns -1 if an element
 * would come before the array's first element, or if the number overflows. */
static int64_t array_size(const attn_problem *problem, size_t member)
{
    attn__operand_dim extents[ATTN_MAX_DIMS];
    int64_t lowest, highest;
    int n = attn__operand_extents(problem, member, false, extents);
    if (!attn__operand_bounds(n, extents, &lowest, &highest))
        return 0;
    return lowest < 0 || highest == INT64_MAX ? -1 : highest + 1;
}

static bool result_fits(attn_tape *tape, const attn_problem *problem, const attn_tensor *o)
{
    attn__operand_dim extents[ATTN_MAX_DIMS];
    int n = attn__operand_extents(problem, offsetof(attn_dim, o), false, extents);
    if (!lies_within(tape, SAVED_O, o, 0, n, extents))
        return false;
    if (attn__operand_blocks(n, extents).count != o->size)
        memset(o->data, 0, attn__tensor_bytes(o));
    return true;
}

/* Allocates the optional result `weights` in the shape that the caller gave. The shape cannot be derived from the
 * problem, because picks may make axes shorter. */
static bool make_weights(attn_tape *tape, const attn_attention *a, attn_problem *problem, attn_arrays *arrays)
{
    if (!a->weights)
        return true;
    attn_tensor *weights = attn__op_result(tape, problem->dtype, a->weights_rank, a->weights_shape);
    if (!weights)
        return false;
    attn_problem picked = *problem;
    for (int i = 0; i < problem->npicks; i++)
        if (problem->picks[i].dim >= 0 && problem->picks[i].dim < problem->ndims)
            picked.dims[problem->picks[i].dim].n = problem->picks[i].n;
    int64_t size = array_size(&picked, offsetof(attn_dim, weights));
    if (size < 0 || size > weights->size) {
        char text[ATTN__SHAPE_TEXT];
        attn__op_shape_error(tape, "attend: the strides of the weights reach beyond their tensor %s",
                             attn__shape_text(weights, text));
        return false;
    }
    memset(weights->data, 0, attn__tensor_bytes(weights));
    problem->flags |= ATTN_WANT_WEIGHTS;
    arrays->weights = weights->data;
    *a->weights = weights;
    return true;
}

/* Makes copies of queries, keys and values that are rounded to bf16. Operands in the same tensor share a copy. A tensor
 * that is already rounded is not copied. The caller releases the copies. */
static bool round_operands(attn_tape *tape, attn_tensor *const *inputs, attn__hold rounded[INPUTS])
{
    bool done = true;
    for (int i = Q; i <= V && done; i++) {
        if (inputs[i]->rounded || inputs[i]->dtype == ATTN_BF16)
            continue;
        for (int j = Q; j < i && !rounded[i].data; j++) {
            if (inputs[j] == inputs[i]) {
                rounded[i] = rounded[j];
                attn__storage_ref(rounded[i].storage);
            }
        }
        if (rounded[i].data)
            continue;
        rounded[i] = attn__scratch(tape, attn__tensor_bytes(inputs[i]));
        done = rounded[i].data != NULL;
        if (done)
            attn__elementwise_run(tape, ATTN_F32, ATTN__ELEMENTWISE_ROUND,
                                  &(attn__elementwise_args){.x = inputs[i]->data, .y = rounded[i].data},
                                  inputs[i]->size, 1);
    }
    return done;
}

static bool execute(attn_tape *tape, const attn_problem *problem, const attn_arrays *arrays,
                    const attn__drop_rows *rows)
{
    const attn_plan *plan = attn__plan_for(tape, problem);
    attn__hold workspace = {0};
    if (plan)
        workspace = attn__scratch(tape, attn_plan_workspace(plan));
    bool done = workspace.data && attn__plan_execute(plan, arrays, rows, workspace.data) == ATTN_OK;
    attn__scratch_release(workspace);
    return done;
}

static void save(attn__node *node, const attn_problem *problem, const attn_arrays *arrays, const attn__drop_rows *rows,
                 const attn_attention *a, const attn__hold rounded[INPUTS], attn__hold lse)
{
    attend_detail *detail = node->detail;
    detail->problem = *problem;
    detail->problem.flags &= ~(unsigned)ATTN_WANT_WEIGHTS;
    detail->problem.npicks = 0;
    detail->problem.weights_dropped = false;
    detail->seed = arrays->seed_offset;
    detail->rows = *rows;
    detail->offset[Q] = a->q.offset;
    detail->offset[K] = a->k.offset;
    detail->offset[V] = a->v.offset;
    for (int i = 0; i < INPUTS; i++) {
        if (!node->x[i])
            continue;
        if (rounded[i].data) {
            attn__storage_ref(rounded[i].storage);
            attn__node_save_hold(node, i, rounded[i]);
        } else {
            attn__node_save(node, i, node->x[i]);
        }
        node->saved[i].data = element(node->saved[i].data, node->x[i]->dtype, detail->offset[i]);
    }
    if (a->mask)
        attn__node_save(node, SAVED_MASK, a->mask);
    if (a->lens)
        attn__node_save(node, SAVED_LENS, a->lens);
    if (a->offsets)
        attn__node_save(node, SAVED_OFFSETS, a->offsets);
    attn__node_save(node, SAVED_O, node->y);
    if (lse.storage) /* a sigmoid has no log-sum-exp */
        attn__storage_ref(lse.storage);
    attn__node_save_hold(node, SAVED_LSE, lse);
}

/* Checks the lengths of the problem's lists. The engine also checks them, but this file reads the lists before that. */
static bool counts_fit(attn_tape *tape, const attn_problem *p)
{
    const struct {
        const char *name;
        int n, most;
    } counts[] = {{"dims", p->ndims, ATTN_MAX_DIMS},
                  {"windows", p->nwindows, ATTN_MAX_WINDOWS},
                  {"picks", p->npicks, ATTN_MAX_PICKS}};
    for (int i = 0; i < 3; i++) {
        if (counts[i].n < 0 || counts[i].n > counts[i].most) {
            attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "attend: the problem has %d %s; 0 to %d are supported",
                       counts[i].n, counts[i].name, counts[i].most);
            return false;
        }
    }
    return true;
}

/* Checks that the offsets have a number for each packed sequence and one more. The engine checks their values. */
static bool offsets_fit(attn_tape *tape, const attn_attention *a)
{
    const attn_problem *p = &a->problem;
    int dim = p->packed.batch_dim;
    if (a->offsets && a->offsets->dtype != ATTN_I32) {
        attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "attend: offsets must be i32, not %s",
                   attn_dtype_name(a->offsets->dtype));
        return false;
    }
    if (!a->offsets || dim < 0 || dim >= p->ndims || a->offsets->size == p->dims[dim].n + 1)
        return true;
    attn__op_shape_error(tape, "attend: there are %lld offsets, but %lld packed sequences need %lld",
                         (long long)a->offsets->size, (long long)p->dims[dim].n, (long long)p->dims[dim].n + 1);
    return false;
}

static bool accepts(attn_tape *tape, const attn_attention *a, attn_tensor *const *inputs, const attn_problem *problem)
{
    if (!counts_fit(tape, problem) || !offsets_fit(tape, a) || !types_fit(tape, a, inputs) ||
        !attn__dropout_accepts(tape, "attend", a->dropout))
        return false;
    const int64_t offset[INPUTS] = {a->q.offset, a->k.offset, a->v.offset};
    for (int i = 0; i < INPUTS; i++)
        if (!operand_fits(tape, problem, i, inputs[i], offset[i]))
            return false;
    return operand_fits(tape, problem, SAVED_MASK, a->mask, 0) && operand_fits(tape, problem, SAVED_LENS, a->lens, 0);
}

static void forward_arrays(const attn_attention *a, attn_tensor *const *inputs, const attn__hold rounded[INPUTS],
                           attn_arrays *arrays)
{
    for (int i = 0; i < INPUTS; i++)
        attn__arrays_set(arrays, input_of(i), rounded[i].data ? rounded[i].data : inputs[i] ? inputs[i]->data : NULL);
    arrays->q = element(arrays->q, a->q.tensor->dtype, a->q.offset);
    arrays->k = element(arrays->k, a->k.tensor->dtype, a->k.offset);
    arrays->v = element(arrays->v, a->v.tensor->dtype, a->v.offset);
    arrays->mask = a->mask ? a->mask->data : NULL;
    arrays->lens = a->lens ? a->lens->data : NULL;
    arrays->q_offsets = arrays->k_offsets = a->offsets ? a->offsets->data : NULL;
}

/* Returns how many contiguous rows of the weights belong to one example of the batch. A row is one combination of
 * indices of the BATCH and QUERY dims, in their order, as in the engine's dropout. */
static int64_t rows_of_example(const attn_tape *tape, const attn_problem *problem, int dim)
{
    int64_t rows = 1;
    for (int i = dim; i < problem->ndims; i++)
        rows *= problem->dims[i].role == ATTN_ROLE_BATCH || problem->dims[i].role == ATTN_ROLE_QUERY
                    ? problem->dims[i].n
                    : 1;
    return rows / (tape->share.count > 0 ? tape->share.count : 1);
}

/* bf16 inputs are accepted if nothing is recorded and the only arrays are queries, keys and values. The engine reads
 * all other arrays as f32. */
static bool takes(attn_tape *tape, const attn_attention *a, attn_tensor *const *inputs)
{
    if (ATTN__CHECK_RESERVED(tape->context, a, attn_attention) != ATTN_OK)
        return false;
    bool plain = !tape->options.record && !tape->options.train && !a->weights, bf16 = plain;
    if (plain && has_bf16_keys(inputs) && inputs[K]->data && inputs[V]->data)
        return attn__op_accepts(tape, "attend", 1, inputs[Q]);
    for (int i = 0; i < INPUTS; i++)
        bf16 = bf16 && (i <= V ? inputs[i] && inputs[i]->data && inputs[i]->dtype == ATTN_BF16 : !inputs[i]);
    return bf16 || attn__op_accepts(tape, "attend", 3, inputs[Q], inputs[K], inputs[V]);
}

/* Computes attn_attend after the inputs were checked. If rounded[i] has data, they are used instead of the data of
 * input i. */
static attn_tensor *attend(attn_tape *tape, const attn_attention *a, attn_tensor **inputs,
                           const attn__hold rounded[INPUTS])
{
    attn_problem problem = forward_problem(tape, a);
    if (!accepts(tape, a, inputs, &problem))
        return NULL;
    attn_arrays arrays = {0};
    attn__drop_rows rows = {0};
    if (problem.dropout > 0) {
        arrays.seed_offset = attn__mix64(attn__mix64(tape->options.seed) ^ tape->stream++);
        rows = attn__dropout_shard(tape, rows_of_example(tape, &problem, a->examples));
    }
    attn_tensor *y = attn__op_result(tape, problem.dtype, a->rank, a->shape);
    attn__node *node;
    if (!y || !result_fits(tape, &problem, y) || !make_weights(tape, a, &problem, &arrays) ||
        !attn__op_record(tape, &node, attend_backward, y, INPUTS, inputs, SAVED_COUNT, sizeof(attend_detail)))
        return NULL;
    forward_arrays(a, inputs, rounded, &arrays);
    arrays.o = y->data;
    attn__hold lse = {0};
    if (node && problem.normalization != ATTN_NORMALIZATION_SIGMOID) {
        int64_t size = array_size(&problem, offsetof(attn_dim, lse));
        for (int i = 0; i < problem.ndims && size < 0; i++)
            if (problem.dims[i].lse < 0)
                return attn__op_shape_error(tape,
                                            "attend: the stride of lse along dim %d is %lld; it must not be negative",
                                            i, (long long)problem.dims[i].lse);
        if (size < 0)
            return attn__op_shape_error(tape, "attend: the strides of lse make its size overflow");
        lse = attn__scratch(tape, attn__size_mul((size_t)size, attn_dtype_size(y->dtype)));
        if (!lse.data)
            return NULL;
        problem.flags |= ATTN_WANT_LSE;
        arrays.lse = lse.data;
    }
    bool done = execute(tape, &problem, &arrays, &rows);
    if (done && node)
        save(node, &problem, &arrays, &rows, a, rounded, lse);
    attn__scratch_release(lse);
    return done ? y : NULL;
}

static int64_t count_of(const attn_problem *p, attn_role role)
{
    int64_t n = 1;
    for (int i = 0; i < p->ndims && i < ATTN_MAX_DIMS; i++)
        n *= p->dims[i].role == role ? p->dims[i].n : 1;
    return n;
}

/* Returns whether to use a bf16 plan instead of an f32 plan with rounded operands. It is used if bf16 products are
 * faster, no gradients are needed, and the flash solver would run the plan. With few queries, keys or channels, another
 * solver would run, which may support only f32. A bf16 plan is not used for operands that a cache has rounded, or for
 * padded sentences, because their results would depend on the padding. */
static bool narrows(const attn_tape *tape, const attn_attention *a, attn_tensor *const *inputs)
{
    enum { LEAST = 32, SMALL_HEAD = 16 };
    bool fast = attn__isa_gains_by_bf16(tape->context->isa) && !tape->context->batch_invariant;
    bool plain = !tape->options.record && !tape->options.train && !a->weights && !a->lens && !a->mask &&
                 a->problem.nwindows == 0 && a->problem.score == ATTN_SCORE_DOT &&
                 a->problem.normalization == ATTN_NORMALIZATION_SOFTMAX &&
                 count_of(&a->problem, ATTN_ROLE_QUERY) >= LEAST && count_of(&a->problem, ATTN_ROLE_KEY) >= LEAST &&
                 count_of(&a->problem, ATTN_ROLE_CONTRACT) > SMALL_HEAD;
    for (int i = 0; i < INPUTS; i++)
        plain = plain && (i <= V ? inputs[i]->dtype == ATTN_F32 && !inputs[i]->rounded : !inputs[i]);
    return fast && plain;
}

static attn_tensor *attend_narrow(attn_tape *tape, const attn_attention *a, attn_tensor *const *inputs)
{
    const attn__hold none[INPUTS] = {{0}};
    attn_tensor *narrow[INPUTS] = {NULL};
    attn_attention of_bf16 = *a;
    bool fine = true;
    attn_scope_begin(tape);
    for (int i = Q; i <= V && fine; i++) {
        for (int j = Q; j < i && !narrow[i]; j++)
            narrow[i] = inputs[j] == inputs[i] ? narrow[j] : NULL;
        narrow[i] = narrow[i] ? narrow[i] : attn__rounded(tape, inputs[i]);
        fine = narrow[i] != NULL;
    }
    of_bf16.q.tensor = narrow[Q], of_bf16.k.tensor = narrow[K], of_bf16.v.tensor = narrow[V];
    attn_tensor *o = fine ? attend(tape, &of_bf16, narrow, none) : NULL;
    return attn_scope_end(tape, o ? attn__widened(tape, o) : NULL);
}

attn_tensor *attn_attend(attn_tape *tape, const attn_attention *a)
{
    ATTN__TAPE_CALL(tape->context);
    attn_tensor *inputs[INPUTS] = {a->q.tensor, a->k.tensor, a->v.tensor, a->bias, a->w, a->w2};
    attn__hold rounded[INPUTS] = {{0}};
    memcpy(inputs + TABLES, a->table, sizeof a->table);
    if (!takes(tape, a, inputs))
        return NULL;
    bool rounds = attn__rounds(tape) && inputs[Q]->dtype == ATTN_F32;
    if (rounds && narrows(tape, a, inputs))
        return attend_narrow(tape, a, inputs);
    attn_tensor *y = !rounds || round_operands(tape, inputs, rounded) ? attend(tape, a, inputs, rounded) : NULL;
    for (int i = Q; i <= V; i++)
        attn__scratch_release(rounded[i]);
    return y;
}
