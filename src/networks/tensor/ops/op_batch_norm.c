/* SPDX-License-Identifier: MIT
 *
 * Implements batch normalization (Ioffe and Szegedy 2015, arXiv:1502.03167).
 */
#include "base/context.h"
#include "base/parallel.h"
#include "dist/ranks.h"
#include "kernels/batch_norm/batch_norm.h"
#include "tensor/op.h"

#include <math.h>

enum { X, GAIN, BIAS, INPUTS };
enum { SAVED_X, SAVED_GAIN, SAVED_MEAN, SAVED_INVERSE, SAVED_COUNT };

typedef struct norm_detail {
    bool train;
    double whole; /* number of elements per channel over which the statistics are computed */
} norm_detail;

typedef struct norm_job {
    attn__batch_norm_args args;
    const attn__batch_norm_kernel *kernel;
    attn_dtype dtype;
    /* true: the statistics (in the forward pass) or the sums (in the backward pass) are already computed */
    bool measured;
    bool train, again;
    double eps, momentum;
    attn_tensor *running_mean, *running_var;
} norm_job;

static void run_channels(attn_tape *tape, const norm_job *job, attn__batch_norm_run *loop, void *user)
{
    attn__parallel_range(tape->context->threads, job->args.channels, 1, loop, user);
}

/* Returns the end of the group of channels that begins at c. All loops process one group before the next one, so that
 * its data stay in the cache. A group is one channel, or up to 64 channels if each has only one element per example. */
static int64_t together(const norm_job *job, int64_t c, int64_t end)
{
    int64_t next = c + (job->args.plane == 1 ? 64 : 1);
    return next < end ? next : end;
}

static attn__batch_norm_args sizes_of(const attn_tensor *x)
{
    attn__batch_norm_args args = {.batch = x->shape[0], .channels = x->shape[1], .plane = 1};
    for (int i = 2; i < x->rank; i++)
        args.plane *= x->shape[i];
    return args;
}

static bool is_divided(const attn_tape *tape)
{
    return tape->options.train && tape->share.whole > 0;
}

static double get(const void *data, attn_dtype dtype, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void put(void *data, attn_dtype dtype, int64_t i, double x)
{
    if (dtype == ATTN_F64)
        ((double *)data)[i] = x;
    else
        ((float *)data)[i] = (float)x;
}

static void backward_some(void *user, int64_t begin, int64_t end)
{
    norm_job *job = user;
    for (int64_t c = begin, next; c < end; c = next) {
        next = together(job, c, end);
        if (!job->measured)
            job->kernel->slopes(&job->args, c, next);
        if (job->args.y)
            job->kernel->backward(&job->args, c, next);
    }
}

static bool join_sums(attn_tape *tape, norm_job *job)
{
    run_channels(tape, job, job->kernel->slopes, &job->args);
    job->measured = true;
    return attn__ranks_sum(tape->context, job->args.sums, 2 * job->args.channels, ATTN__SUM_F64) == ATTN_OK;
}

static void batch_norm_backward(attn_tape *tape, attn__node *node)
{
    attn__target dx = attn__grad_target(tape, node->x[X]), dg = attn__grad_target(tape, node->x[GAIN]),
                 db = attn__grad_target(tape, node->x[BIAS]);
    const norm_detail *detail = node->detail;
    norm_job job = {.args = sizes_of(node->y),
                    .kernel = attn__batch_norm_for(node->y->dtype == ATTN_F64, tape->context->isa)};
    attn__batch_norm_args *args = &job.args;
    args->dy = node->y->grad->data;
    args->x = node->saved[SAVED_X].data;
    args->gain = node->saved[SAVED_GAIN].data;
    args->mean = node->saved[SAVED_MEAN].data;
    args->inverse = node->saved[SAVED_INVERSE].data;
    /* an empty share of the batch has one placeholder example, which does not count in the statistics, so `moving` is
     * false */
    args->moving = detail->train && (!is_divided(tape) || tape->share.count > 0);
    args->whole = detail->whole;
    args->y = dx.data, args->add = dx.add;
    args->dgain = dg.data, args->add_gain = dg.add;
    args->dbias = db.data, args->add_bias = db.add;
    attn__hold sums = attn__scratch(tape, (size_t)args->channels * 2 * sizeof(double));
    args->sums = sums.data;
    if (args->sums && (!is_divided(tape) || join_sums(tape, &job)))
        run_channels(tape, &job, backward_some, &job);
    else
        tape->failed = true;
    attn__scratch_release(sums);
}

/* Replaces the mean and the variance of this share of the batch by those of the whole batch. The sums of x and of x
 * squared are added up over the processes, in double. */
static bool join_statistics(attn_tape *tape, norm_job *job)
{
    attn__batch_norm_args *args = &job->args;
    attn_dtype dtype = job->dtype;
    run_channels(tape, job, job->kernel->statistics, args);
    job->measured = true;
    int64_t n = args->channels;
    double here = tape->share.count > 0 ? (double)(args->batch * args->plane) : 0;
    attn__hold memory = attn__scratch(tape, (size_t)(2 * n + 1) * sizeof(double));
    double *sums = memory.data;
    for (int64_t c = 0; sums && c < n; c++) {
        double mean = get(args->mean, dtype, c), variance = get(args->inverse, dtype, c);
        sums[2 * c] = here * mean;
        sums[2 * c + 1] = here * (variance + mean * mean);
    }
    if (sums)
        sums[2 * n] = here;
    bool done = sums && attn__ranks_sum(tape->context, sums, 2 * n + 1, ATTN__SUM_F64) == ATTN_OK;
    args->whole = done && sums[2 * n] > 0 ? sums[2 * n] : 1;
    for (int64_t c = 0; done && c < n; c++) {
        double mean = sums[2 * c] / args->whole, variance = sums[2 * c + 1] / args->whole - mean * mean;
        put(args->mean, dtype, c, mean);
        put(args->inverse, dtype, c, variance > 0 ? variance : 0);
    }
    attn__scratch_release(memory);
    return done;
}

/* Updates the running statistics from the statistics of the batch. Then replaces the variance by 1 / sqrt(variance +
 * eps). */
static void settle_statistics(norm_job *job, int64_t begin, int64_t end)
{
    void *mean = job->args.mean, *inverse = job->args.inverse;
    attn_dtype dtype = job->dtype;
    double n = job->args.whole;
    for (int64_t c = begin; c < end; c++) {
        double m = get(job->running_mean->data, dtype, c), v = get(job->running_var->data, dtype, c);
        if (!job->train) {
            put(mean, dtype, c, m);
            put(inverse, dtype, c, v);
            /* the second run of a reversible block and an empty batch do not change the running statistics */
        } else if (!job->again && n > 0) {
            double unbiased = get(inverse, dtype, c) * (n > 1 ? n / (n - 1) : 1);
            put(job->running_mean->data, dtype, c, m + job->momentum * (get(mean, dtype, c) - m));
            put(job->running_var->data, dtype, c, v + job->momentum * (unbiased - v));
        }
        put(inverse, dtype, c, 1 / sqrt(get(inverse, dtype, c) + job->eps));
    }
}

static void forward_some(void *user, int64_t begin, int64_t end)
{
    norm_job *job = user;
    for (int64_t c = begin, next; c < end; c = next) {
        next = together(job, c, end);
        if (job->train && !job->measured)
            job->kernel->statistics(&job->args, c, next);
        settle_statistics(job, c, next);
        job->kernel->normalize(&job->args, c, next);
    }
}

static bool accepts(attn_tape *tape, const attn_tensor *x, attn_tensor *const *vectors)
{
    for (int i = 0; i < 4; i++) {
        char text[ATTN__SHAPE_TEXT], vector[ATTN__SHAPE_TEXT];
        if (x->rank >= 2 && vectors[i]->rank == 1 && vectors[i]->shape[0] == x->shape[1])
            continue;
        attn__op_shape_error(tape, "batch_norm: x %s, operand %d %s; expected x [N,C,...] and operand [C]",
                             attn__shape_text(x, text), i + 1, attn__shape_text(vectors[i], vector));
        return false;
    }
    return true;
}

attn_tensor *attn_batch_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b, attn_tensor *running_mean,
                             attn_tensor *running_var, double momentum, double eps)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "batch_norm", 5, x, g, b, running_mean, running_var) ||
        !accepts(tape, x, (attn_tensor *[]){g, b, running_mean, running_var}))
        return NULL;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape), *inputs[INPUTS] = {x, g, b};
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, batch_norm_backward, y, INPUTS, inputs, SAVED_COUNT, sizeof(norm_detail)))
        return NULL;
    size_t bytes = (size_t)x->shape[1] * attn_dtype_size(x->dtype);
    attn__hold mean = attn__scratch(tape, bytes), inverse = attn__scratch(tape, bytes);
    norm_job job = {.args = sizes_of(x),
                    .kernel = attn__batch_norm_for(x->dtype == ATTN_F64, tape->context->isa),
                    .dtype = x->dtype,
                    .train = tape->options.train,
                    .again = tape->again,
                    .eps = eps,
                    .momentum = momentum,
                    .running_mean = running_mean,
                    .running_var = running_var};
    job.args.x = x->data, job.args.y = y->data, job.args.gain = g->data, job.args.bias = b->data;
    job.args.mean = mean.data, job.args.inverse = inverse.data;
    job.args.whole = (double)(job.args.batch * job.args.plane);
    bool done = mean.data && inverse.data && (!is_divided(tape) || join_statistics(tape, &job));
    if (done)
        run_channels(tape, &job, forward_some, &job);
    if (done && node) {
        *(norm_detail *)node->detail = (norm_detail){job.train, job.args.whole};
        attn__node_save(node, SAVED_X, x);
        attn__node_save(node, SAVED_GAIN, g);
        attn__storage_ref(mean.storage);
        attn__node_save_hold(node, SAVED_MEAN, mean);
        attn__storage_ref(inverse.storage);
        attn__node_save_hold(node, SAVED_INVERSE, inverse);
    }
    attn__scratch_release(mean);
    attn__scratch_release(inverse);
    return done ? y : NULL;
}
