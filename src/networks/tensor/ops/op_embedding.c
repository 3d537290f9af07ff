/* SPDX-License-Identifier: MIT
 *
 * Implements two operations that look up rows of a table. One looks up rows by id, scales them and adds positions. The
 * other only looks up rows by index. */
#include "tensor/matrix_product.h"
#include "tensor/op.h"

#include <string.h>

typedef struct embedding_detail {
    double scale;
    int64_t rows, width, period, first;
} embedding_detail;

enum { SAVED_IDS, SAVED_COUNT };
enum { TABLE, POSITION, INPUTS };

/* Gradients of the same table row are summed in runs. A run of RUN gradients is summed in f32, and the runs are summed
 * in f64. A single f32 sum of millions of gradients would lose digits. */
enum { RUN = 256 };

/* Plans the sums in f64, and returns their number. moves[row] is the index of the f64 sum to which a run is added after
 * gradient `row`, or -1 if no run ends there. owners[i] is the id of f64 sum i. `uses` and `sum_of` are scratch memory
 * with one element per id. */
static int64_t plan_moves(const int32_t *ids, int64_t rows, int64_t table, int32_t *moves, int32_t *owners,
                          int32_t *uses, int32_t *sum_of)
{
    int32_t sums = 0;
    memset(uses, 0, (size_t)table * sizeof *uses);
    memset(sum_of, -1, (size_t)table * sizeof *sum_of);
    for (int64_t i = 0; i < rows; i++) {
        int32_t id = ids[i];
        moves[i] = -1;
        if (++uses[id] < RUN)
            continue;
        uses[id] = 0;
        if (sum_of[id] < 0) {
            owners[sums] = id;
            sum_of[id] = sums++;
        }
        moves[i] = sum_of[id];
    }
    return sums;
}

static void add_to_table(attn_tape *tape, attn__elementwise_args args, attn_tensor *table)
{
    int64_t rows = args.rows, ids = table->shape[0];
    attn__hold plan = {0}, sums = {0};
    args.period = 0;
    if (rows >= RUN) {
        plan = attn__scratch(tape, ((size_t)rows + (size_t)rows / RUN + 2 * (size_t)ids) * sizeof(int32_t));
        int32_t *moves = plan.data;
        tape->failed |= !moves;
        if (!moves)
            return;
        int32_t *owners = moves + rows, *uses = owners + rows / RUN;
        args.period = plan_moves(args.ids, rows, ids, moves, owners, uses, uses + ids);
        args.x2 = args.period > 0 ? moves : NULL;
        args.x3 = owners;
    }
    if (args.period > 0) {
        size_t size = (size_t)args.period * (size_t)args.n * sizeof(double);
        sums = attn__scratch(tape, size);
        args.y2 = sums.data;
        tape->failed |= !args.y2;
        if (args.y2)
            memset(args.y2, 0, size);
    }
    if (!tape->failed)
        attn__elementwise_run(tape, table->dtype, ATTN__ELEMENTWISE_EMBED_BACKWARD, &args, args.n, rows);
    attn__scratch_release(sums);
    attn__scratch_release(plan);
}

static void embedding_backward(attn_tape *tape, attn__node *node)
{
    const embedding_detail *d = node->detail;
    const attn_tensor *y = node->y;
    int64_t n = d->width;
    attn__elementwise_args args = {
        .x = y->grad->data, .n = n, .rows = d->rows, .s = {d->scale}, .ids = node->saved[SAVED_IDS].data};
    attn__target dtable = attn__grad_target_added(tape, node->x[TABLE]);
    args.y = dtable.data;
    if (args.y)
        add_to_table(tape, args, node->x[TABLE]);
    attn__target dposition = attn__grad_target_added(tape, node->x[POSITION]);
    if (!dposition.data)
        return;
    size_t before = (size_t)(d->first * n) * attn_dtype_size(y->dtype);
    args = (attn__elementwise_args){.x = y->grad->data,
                                    .y = (char *)dposition.data + before,
                                    .n = d->period * n,
                                    .rows = d->rows / d->period,
                                    .s = {1},
                                    .add = true};
    attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_REDUCE, &args, args.n, args.rows);
}

static bool ids_fit(attn_tape *tape, const char *op, const attn_tensor *table, const attn_tensor *ids)
{
    if (!ids || table->rank < 1)
        return false;
    if (ids->dtype != ATTN_I32 || !ids->data) {
        attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "%s: the indices are %s; expected i32", op,
                   attn_dtype_name(ids->dtype));
        return false;
    }
    const int32_t *id = ids->data;
    for (int64_t i = 0; i < ids->size; i++) {
        if (id[i] < 0 || id[i] >= table->shape[0]) {
            attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "%s: indices[%lld] is %d; the table has the rows 0 to %lld",
                       op, (long long)i, id[i], (long long)table->shape[0] - 1);
            return false;
        }
    }
    return true;
}

static bool positions_fit(attn_tape *tape, const attn_tensor *position, int64_t n, int64_t period, int64_t first)
{
    if (!position ||
        (position->rank == 2 && position->shape[1] == n && first >= 0 && first + period <= position->shape[0]))
        return true;
    char text[ATTN__SHAPE_TEXT];
    attn__op_shape_error(tape, "embedding: the table of positions is %s; expected [P,%lld] with the rows %lld to %lld",
                         attn__shape_text(position, text), (long long)n, (long long)first,
                         (long long)(first + period - 1));
    return false;
}

/* Copies the needed rows of a packed table into contiguous memory, and makes ids that refer to these copies. Returns
 * false and records an error if there is no memory. */
static bool unpack_rows(attn_tape *tape, const attn_tensor *table, const attn_tensor *ids, attn__elementwise_args *args,
                        attn__hold *hold)
{
    size_t row = (size_t)args->n * attn_dtype_size(table->dtype), count = (size_t)ids->size;
    *hold = attn__scratch(tape, attn__size_mul(count, row + sizeof(int32_t)));
    if (!hold->data)
        return false;
    const int32_t *wanted = ids->data;
    int32_t *id = (int32_t *)(void *)((char *)hold->data + count * row);
    for (size_t i = 0; i < count; i++) {
        attn__gemm_packed_row(tape->context, table->packed, wanted[i], (char *)hold->data + i * row);
        id[i] = (int32_t)i;
    }
    args->x = hold->data;
    args->ids = id;
    return true;
}

/* Looks up rows of n elements each. The shape of y is the shape of the ids, followed by the shape of a row. */
static attn_tensor *look_up(attn_tape *tape, attn_tensor *table, const attn_tensor *ids, attn_tensor *position,
                            const embedding_detail *detail, int row_axes)
{
    int64_t shape[2 * ATTN_MAX_RANK], n = detail->width;
    memcpy(shape, ids->shape, (size_t)ids->rank * sizeof *shape);
    memcpy(shape + ids->rank, table->shape + 1, (size_t)row_axes * sizeof *shape);
    attn_tensor *y = attn__op_result(tape, table->dtype, ids->rank + row_axes, shape);
    attn__node *node;
    attn_tensor *inputs[INPUTS] = {table, position};
    if (!y || !attn__op_record(tape, &node, embedding_backward, y, INPUTS, inputs, SAVED_COUNT, sizeof *detail))
        return NULL;
    attn__elementwise_args args = {.x = table->data,
                                   .x2 = position ? position->data : NULL,
                                   .y = y->data,
                                   .n = n,
                                   .s = {detail->scale},
                                   .period = detail->period,
                                   .first = detail->first,
                                   .ids = ids->data};
    attn__hold rows = {0};
    if (!table->data && !unpack_rows(tape, table, ids, &args, &rows))
        return NULL;
    attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_EMBED, &args, ids->size, n);
    attn__scratch_release(rows);
    if (node) {
        *(embedding_detail *)node->detail = *detail;
        attn__node_save(node, SAVED_IDS, ids);
    }
    return y;
}

/* A packed table is accepted if nothing is recorded and its single rows can be read. */
static bool accepts(attn_tape *tape, const attn_tensor *table, const attn_tensor *position)
{
    if (attn__op_is_packed(table, position) && !tape->options.record)
        return !position || attn__op_accepts(tape, "embedding", 1, position);
    return attn__op_accepts(tape, "embedding", position ? 2 : 1, table, position);
}

attn_tensor *attn_embedding(attn_tape *tape, attn_tensor *table, const attn_tensor *ids, double scale,
                            attn_tensor *position, int64_t first)
{
    ATTN__TAPE_CALL(tape->context);
    if (!accepts(tape, table, position) || !ids_fit(tape, "embedding", table, ids))
        return NULL;
    if (table->rank != 2)
        return attn__op_shape_error(tape, "embedding: a table must have 2 axes, not %d", table->rank);
    int64_t period = ids->rank ? ids->shape[ids->rank - 1] : 1;
    if (!positions_fit(tape, position, table->shape[1], period, first))
        return NULL;
    embedding_detail detail = {scale, ids->size, table->shape[1], period > 0 ? period : 1, first};
    return look_up(tape, table, ids, position, &detail, 1);
}

attn_tensor *attn_index_select(attn_tape *tape, attn_tensor *x, const attn_tensor *index)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "gather", 1, x) || !ids_fit(tape, "gather", x, index))
        return NULL;
    int64_t width = 1;
    for (int i = 1; i < x->rank; i++)
        width *= x->shape[i];
    embedding_detail detail = {1, index->size, width, 1, 0};
    return look_up(tape, x, index, NULL, &detail, x->rank - 1);
}
