/* SPDX-License-Identifier: MIT
 *
 * Implements normalization over an axis that need not be the last one, such as layer norm of images whose channels are
 * the first axis. A variant divides by the standard deviation plus eps. */
#include "base/parallel.h"
#include "kernels/channel_norm/channel_norm.h"
#include "tensor/op.h"

#include <math.h>

enum { BLOCK = 128 }; /* positions of a block; the sums of a block take a few KiB */
enum { X, GAIN, BIAS, INPUTS };
enum { SAVED_X, SAVED_GAIN, SAVED_MEAN, SAVED_SCALE, SAVED_BEND, SAVED_COUNT };

/* Sizes of x, seen as an array [outer, channels, inner]. */
typedef struct channel_sizes {
    int64_t outer, channels, inner;
} channel_sizes;

typedef struct channel_job {
    channel_sizes sizes;
    attn_norm kind;
    double eps;
    const void *x, *dy, *gain, *bias;
    void *y, *dgain, *dbias;   /* y: the result, or the gradient of x */
    void *mean, *scale, *bend; /* arrays [outer, inner]; `mean` is relative to the first channel */
    bool add, add_gain, add_bias;
    const attn__channel_norm_kernel *kernel; /* the f32 kernel; NULL: the loops in double are used */
} channel_job;

/* A block of n adjacent positions. `position` is the index of the first one in [outer, inner], and `element` is the
 * index in x of its first channel. */
typedef struct channel_block {
    int64_t position, element, n;
} channel_block;

static int64_t blocks_across(const channel_sizes *s)
{
    return (s->inner + BLOCK - 1) / BLOCK;
}

static channel_block block_of(const channel_sizes *s, int64_t index)
{
    int64_t outer = index / blocks_across(s), first = index % blocks_across(s) * BLOCK, left = s->inner - first;
    return (channel_block){outer * s->inner + first, outer * s->channels * s->inner + first,
                           left < BLOCK ? left : BLOCK};
}

#define REAL       float
#define NAME(name) name##_float
#include "op_channel_norm_tmpl.h"
#undef REAL
#undef NAME

#define WHOLE
#define REAL       double
#define ROOT       sqrt
#define NAME(name) name##_double
#include "op_channel_norm_tmpl.h"

static attn__channel_norm_args planes_of(const channel_job *job, int64_t index)
{
    channel_block b = block_of(&job->sizes, index);
    return (attn__channel_norm_args){.x = (const float *)job->x + b.element,
                                     .dy = job->dy ? (const float *)job->dy + b.element : NULL,
                                     .gain = job->gain,
                                     .bias = job->bias,
                                     .y = (float *)job->y + b.element,
                                     .mean = (float *)job->mean + b.position,
                                     .scale = (float *)job->scale + b.position,
                                     .bend = (float *)job->bend + b.position,
                                     .channels = job->sizes.channels,
                                     .ld = job->sizes.inner,
                                     .n = b.n,
                                     .eps = (float)job->eps,
                                     .deviation = job->kind == ATTN_NORM_DEVIATION,
                                     .add = job->add};
}

static void forward_float(void *user, int64_t begin, int64_t end)
{
    const channel_job *job = user;
    for (int64_t block = begin; block < end; block++) {
        attn__channel_norm_args args = planes_of(job, block);
        job->kernel->forward(&args);
    }
}

static void backward_float(void *user, int64_t begin, int64_t end)
{
    const channel_job *job = user;
    for (int64_t block = begin; block < end; block++) {
        attn__channel_norm_args args = planes_of(job, block);
        job->kernel->backward(&args);
    }
}

static void add_slopes(const channel_job *job, int64_t outer, int64_t c, double *gain, double *bias)
{
    enum { FEW = 16 }; /* with fewer elements than this, a call of the kernel takes longer than the loop */
    const channel_sizes *s = &job->sizes;
    int64_t at = (outer * s->channels + c) * s->inner;
    if (!job->kernel) {
        add_slopes_double(job, outer, c, gain, bias);
        return;
    }
    if (s->inner < FEW) {
        add_slopes_float(job, outer, c, gain, bias);
        return;
    }
    attn__channel_norm_args args = {.x = (const float *)job->x + at,
                                    .dy = (const float *)job->dy + at,
                                    .first = (const float *)job->x + outer * s->channels * s->inner,
                                    .mean = (float *)job->mean + outer * s->inner,
                                    .scale = (float *)job->scale + outer * s->inner,
                                    .n = s->inner};
    job->kernel->slopes(&args, gain, bias);
}

/* Computes the gradients of gain and bias for channels [begin, end), by summing over all positions. */
static void parameters(void *user, int64_t begin, int64_t end)
{
    const channel_job *job = user;
    for (int64_t c = begin; c < end; c++) {
        double gain = 0, bias = 0;
        for (int64_t outer = 0; outer < job->sizes.outer; outer++)
            add_slopes(job, outer, c, &gain, &bias);
        if (job->dgain)
            (job->kernel ? put_slope_float : put_slope_double)(job->dgain, c, gain, job->add_gain);
        if (job->dbias)
            (job->kernel ? put_slope_float : put_slope_double)(job->dbias, c, bias, job->add_bias);
    }
}

typedef struct channel_detail {
    channel_sizes sizes;
    attn_norm kind;
} channel_detail;

static void run_blocks(const attn_tape *tape, void (*loop)(void *, int64_t, int64_t), channel_job *job)
{
    attn__parallel_range(tape->context->threads, job->sizes.outer * blocks_across(&job->sizes), 1, loop, job);
}

static void channel_norm_backward(attn_tape *tape, attn__node *node)
{
    const channel_detail *detail = node->detail;
    bool is_double = node->y->dtype == ATTN_F64;
    channel_job job = {.sizes = detail->sizes,
                       .kind = detail->kind,
                       .x = node->saved[SAVED_X].data,
                       .dy = node->y->grad->data,
                       .gain = node->saved[SAVED_GAIN].data,
                       .mean = node->saved[SAVED_MEAN].data,
                       .scale = node->saved[SAVED_SCALE].data,
                       .bend = node->saved[SAVED_BEND].data,
                       .kernel = is_double ? NULL : attn__channel_norm_for(tape->context->isa)};
    attn__target dx = attn__grad_target(tape, node->x[X]), dgain = attn__grad_target(tape, node->x[GAIN]);
    attn__target dbias = attn__grad_target(tape, node->x[BIAS]);
    job.y = dx.data, job.add = dx.add;
    job.dgain = dgain.data, job.add_gain = dgain.add;
    job.dbias = dbias.data, job.add_bias = dbias.add;
    if (dx.data)
        run_blocks(tape, is_double ? backward_double : backward_float, &job);
    if (dgain.data || dbias.data)
        attn__parallel_range(tape->context->threads, job.sizes.channels, 1, parameters, &job);
}

/* Checks the shapes. Gain and bias may have any shape with one element per channel, for example [C] or [1,C,1,1]. */
static bool plan(attn_tape *tape, const attn_tensor *x, int axis, const attn_tensor *g, const attn_tensor *b,
                 channel_sizes *s)
{
    axis = attn__op_axis(tape, "channel_norm", x, axis);
    if (axis < 0)
        return false;
    *s = (channel_sizes){1, x->shape[axis], 1};
    for (int i = 0; i < x->rank; i++) {
        s->outer *= i < axis ? x->shape[i] : 1;
        s->inner *= i > axis ? x->shape[i] : 1;
    }
    if (s->channels > 0 && g->size == s->channels && b->size == s->channels)
        return true;
    char tx[ATTN__SHAPE_TEXT], tg[ATTN__SHAPE_TEXT], tb[ATTN__SHAPE_TEXT];
    attn__op_shape_error(tape,
                         "channel_norm: axis %d of x %s has %lld channels; expected as many gains and biases, found "
                         "g %s, b %s",
                         axis, attn__shape_text(x, tx), (long long)s->channels, attn__shape_text(g, tg),
                         attn__shape_text(b, tb));
    return false;
}

/* Allocates the three values per position that the backward pass reads: mean, scale and bend. */
static bool take_numbers(attn_tape *tape, const attn_tensor *x, const channel_sizes *s, attn__hold numbers[3])
{
    bool all = true;
    for (int i = 0; i < 3; i++) {
        numbers[i] = attn__scratch(tape, (size_t)(s->outer * s->inner) * attn_dtype_size(x->dtype));
        all &= numbers[i].data != NULL;
    }
    return all;
}

static void save(attn__node *node, const channel_job *job, const attn__hold numbers[3])
{
    *(channel_detail *)node->detail = (channel_detail){job->sizes, job->kind};
    attn__node_save(node, SAVED_X, node->x[X]);
    attn__node_save(node, SAVED_GAIN, node->x[GAIN]);
    for (int i = 0; i < 3; i++) {
        attn__storage_ref(numbers[i].storage);
        attn__node_save_hold(node, SAVED_MEAN + i, numbers[i]);
    }
}

attn_tensor *attn_channel_norm(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *g, attn_tensor *b, double eps,
                               attn_norm kind)
{
    ATTN__TAPE_CALL(tape->context);
    channel_job job = {.kind = kind, .eps = eps, .kernel = attn__channel_norm_for(tape->context->isa)};
    if (!attn__op_accepts(tape, "channel_norm", 3, x, g, b) ||
        attn__check_choice(tape->context, "the kind of channel_norm", (int)kind, ATTN_NORM_DEVIATION) ||
        !plan(tape, x, axis, g, b, &job.sizes))
        return NULL;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape), *inputs[INPUTS] = {x, g, b};
    attn__node *node;
    attn__hold numbers[3] = {{0}};
    if (!y ||
        !attn__op_record(tape, &node, channel_norm_backward, y, INPUTS, inputs, SAVED_COUNT, sizeof(channel_detail)))
        return NULL;
    bool done = take_numbers(tape, x, &job.sizes, numbers);
    if (done) {
        job.x = x->data, job.y = y->data;
        job.gain = g->data, job.bias = b->data;
        job.mean = numbers[0].data, job.scale = numbers[1].data, job.bend = numbers[2].data;
        run_blocks(tape, x->dtype == ATTN_F64 ? forward_double : forward_float, &job);
    }
    if (done && node)
        save(node, &job, numbers);
    for (int i = 0; i < 3; i++)
        attn__scratch_release(numbers[i]);
    return done ? y : NULL;
}
