/* SPDX-License-Identifier: MIT
 *
 * Implements rotary positions (Su et al. 2021, arXiv:2104.09864). The backward pass rotates the gradient by the
 * opposite angles. */
#include "base/parallel.h"
#include "tensor/op.h"
#include "tensor/parts.h"

#include <inttypes.h>

typedef struct rotate_detail {
    int64_t heads, dims;
    bool pairs;
} rotate_detail;

enum { SAVED_TABLE, SAVED_POSITIONS, SAVED_COUNT };

/* One run over all tokens. `sign` is 1 forward and -1 backward. */
typedef struct job {
    const void *x, *table;
    void *y;
    const int32_t *positions; /* NULL: the position of a token is its index modulo `steps` */
    int64_t steps, channels;
    rotate_detail how;
    double sign;
    bool wide; /* true: f64; false: f32 */
} job;

/* Rotates one head of `dim` channels; y may be x. `turn` has the cosines and then the sines of its position. */
#define ROTATE(name, real)                                                                                             \
    static void name(const real *x, real *y, const real *turn, int64_t dim, const rotate_detail *how, real sign)       \
    {                                                                                                                  \
        const int64_t half = how->dims / 2, first = how->pairs ? 2 : 1, second = how->pairs ? 1 : half;                \
        for (int64_t j = 0; j < half; j++) {                                                                           \
            const real cosine = turn[j], sine = sign * turn[half + j];                                                 \
            const real a = x[first * j], b = x[first * j + second];                                                    \
            y[first * j] = a * cosine - b * sine;                                                                      \
            y[first * j + second] = b * cosine + a * sine;                                                             \
        }                                                                                                              \
        for (int64_t c = how->dims; c < dim; c++)                                                                      \
            y[c] = x[c];                                                                                               \
    }
ROTATE(rotate_f32, float)
ROTATE(rotate_f64, double)

static void rotate_tokens(void *user, int64_t begin, int64_t end)
{
    const job *j = user;
    const int64_t dim = j->channels / j->how.heads;
    for (int64_t i = begin; i < end; i++) {
        const int64_t position = j->positions ? j->positions[i] : i % j->steps;
        for (int64_t h = 0; h < j->how.heads; h++) {
            const int64_t at = i * j->channels + h * dim, row = position * j->how.dims;
            if (j->wide)
                rotate_f64((const double *)j->x + at, (double *)j->y + at, (const double *)j->table + row, dim, &j->how,
                           j->sign);
            else
                rotate_f32((const float *)j->x + at, (float *)j->y + at, (const float *)j->table + row, dim, &j->how,
                           (float)j->sign);
        }
    }
}

static void run(const attn_tape *tape, const attn_tensor *like, job *j)
{
    enum { GRAIN = 16 };
    j->steps = like->shape[1];
    j->channels = like->shape[2];
    j->wide = like->dtype == ATTN_F64;
    attn__parallel_range(attn_context_threads(tape->context), like->shape[0] * like->shape[1], GRAIN, rotate_tokens, j);
}

static void rotate_backward(attn_tape *tape, attn__node *node)
{
    attn__hold dx = attn__grad_reuse(tape, node->y);
    if (!dx.data)
        return;
    job j = {.x = node->y->grad->data,
             .y = dx.data,
             .table = node->saved[SAVED_TABLE].data,
             .positions = node->saved[SAVED_POSITIONS].data,
             .how = *(const rotate_detail *)node->detail,
             .sign = -1};
    run(tape, node->y, &j);
    attn__grad_give(tape, node->x[0], dx);
}

static bool shapes_fit(attn_tape *tape, const attn_tensor *x, const attn_rotary *rotary)
{
    const attn_tensor *table = rotary->table, *positions = rotary->positions;
    char tx[ATTN__SHAPE_TEXT], tt[ATTN__SHAPE_TEXT], tp[ATTN__SHAPE_TEXT];
    if (x->rank != 3 || rotary->heads < 1 || x->shape[2] % rotary->heads != 0) {
        attn__op_shape_error(tape,
                             "rotate: found x %s of %" PRId64 " heads; expected [B,T,D], where the heads divide D",
                             attn__shape_text(x, tx), rotary->heads);
        return false;
    }
    const int64_t channels = x->shape[2] / rotary->heads;
    if (table->rank != 2 || table->dtype != x->dtype || table->shape[1] % 2 != 0 || table->shape[1] > channels) {
        attn__op_shape_error(tape,
                             "rotate: found the table %s %s; expected %s [max,R], where R is even and at most %" PRId64
                             ", the channels of a head",
                             attn_dtype_name(table->dtype), attn__shape_text(table, tt), attn_dtype_name(x->dtype),
                             channels);
        return false;
    }
    if (positions && (positions->rank != 2 || positions->dtype != ATTN_I32 || positions->shape[0] != x->shape[0] ||
                      positions->shape[1] != x->shape[1])) {
        attn__op_shape_error(tape, "rotate: found positions %s %s; expected i32 [%" PRId64 ",%" PRId64 "], as in x",
                             attn_dtype_name(positions->dtype), attn__shape_text(positions, tp), x->shape[0],
                             x->shape[1]);
        return false;
    }
    return true;
}

static bool positions_fit(attn_tape *tape, const attn_tensor *x, const attn_rotary *rotary)
{
    const int32_t *at = rotary->positions ? rotary->positions->data : NULL;
    int64_t most = rotary->table->shape[0], last = x->shape[1] - 1;
    bool fits = at || last < most;
    for (int64_t i = 0; at && fits && i < rotary->positions->size; i++) {
        last = at[i];
        fits = last >= 0 && last < most;
    }
    if (!fits)
        attn__fail(tape->context, ATTN_ERROR_SHAPE,
                   "rotary positions: position %" PRId64 " is requested, but max_len is %" PRId64, last, most);
    return fits;
}

attn_tensor *attn_rotate(attn_tape *tape, attn_tensor *x, const attn_rotary *rotary)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "rotate", 2, x, rotary->table) || !shapes_fit(tape, x, rotary) ||
        !positions_fit(tape, x, rotary))
        return NULL;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, rotate_backward, y, 1, &x, SAVED_COUNT, sizeof(rotate_detail)))
        return NULL;
    job j = {.x = x->data,
             .y = y->data,
             .table = rotary->table->data,
             .positions = rotary->positions ? rotary->positions->data : NULL,
             .how = {rotary->heads, rotary->table->shape[1], rotary->pairs},
             .sign = 1};
    run(tape, y, &j);
    if (node) {
        *(rotate_detail *)node->detail = j.how;
        attn__node_save(node, SAVED_TABLE, rotary->table);
        if (rotary->positions)
            attn__node_save(node, SAVED_POSITIONS, rotary->positions);
    }
    return y;
}
