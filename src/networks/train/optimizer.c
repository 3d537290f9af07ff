/* SPDX-License-Identifier: MIT
 *
 * Updates a list of f32 parameters with Adam, AdamW or SGD with momentum. Gradients are clipped by their global
 * norm. */
#include "train/optimizer.h"

#include "base/context.h"
#include "base/normal.h"
#include "base/parallel.h"
#include "kernels/elementwise/elementwise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GRAIN = 4 }; /* minimum number of blocks per thread; a block has ATTN__ELEMENTWISE_BLOCK elements */

typedef struct parameter_part {
    double factor; /* factor by which the learning rate is multiplied */
    /* index in `state` of the parameter's first moment; -1: the parameter has no moments, because it needed no gradient
     * when the optimizer was created */
    int64_t moments;
} parameter_part;

struct attn_optimizer {
    attn_context *context;
    const attn_named_list *parameters;
    const attn__elementwise_table *rows;
    attn_optimizer_options options;
    int64_t steps;
    parameter_part *each;
    bool rated; /* true: a parameter has a factor of the learning rate that is not 1 */
    /* Moments of the trained parameters, in the order of the parameters: a tensor m.NAME, followed by a tensor v.NAME
     * for Adam and AdamW. */
    attn_named_list state;
};

static double or_default(double value, double otherwise)
{
    return value != 0 ? value : otherwise;
}

static attn_status check_options(attn_context *context, const attn_optimizer_options *o)
{
    attn_status status = attn__check_choice(context, "the kind of optimizer", (int)o->kind, ATTN_OPTIMIZER_SGD);
    if (status != ATTN_OK)
        return status;
    for (int i = 0; i < 2; i++) {
        const double beta = i == 0 ? o->beta1 : o->beta2;
        if (!(beta >= 0 && beta < 1))
            return attn__fail(context, ATTN_ERROR_ARGUMENT, "optimizer: beta%d is %g; it must lie in [0, 1)", i + 1,
                              beta);
    }
    if (!(o->eps > 0))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "optimizer: eps is %g; it must be positive", o->eps);
    if (!(o->momentum >= 0 && o->momentum < 1))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "optimizer: momentum is %g; it must lie in [0, 1)",
                          o->momentum);
    if (!(o->weight_decay >= 0))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "optimizer: weight_decay is %g; it must be at least 0",
                          o->weight_decay);
    if (!(o->clip_norm >= 0))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "optimizer: clip_norm is %g; it must be at least 0",
                          o->clip_norm);
    return ATTN_OK;
}

static int64_t block_count(int64_t elements)
{
    return (elements + ATTN__ELEMENTWISE_BLOCK - 1) / ATTN__ELEMENTWISE_BLOCK;
}

/* A parameter that was frozen after the optimizer was created is not trained, but its moments stay in the state. */
static bool trained(const attn_optimizer *optimizer, int64_t i)
{
    return optimizer->each[i].moments >= 0 && attn_tensor_requires_grad(optimizer->parameters->items[i].tensor);
}

static attn_status add_moment(attn_optimizer *optimizer, const char *prefix, const attn_named *parameter)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", prefix, parameter->name);
    const attn_tensor *like = parameter->tensor;
    attn_tensor *moment;
    attn_status status =
        attn_tensor_create(&moment, optimizer->context, ATTN_F32, attn_tensor_rank(like), attn_tensor_shape(like));
    if (status == ATTN_OK) {
        status = attn_named_add(&optimizer->state, name, moment);
        if (status != ATTN_OK)
            attn_tensor_destroy(moment);
    }
    return status;
}

static attn_status add_state(attn_optimizer *optimizer)
{
    bool first = optimizer->options.kind != ATTN_OPTIMIZER_SGD || optimizer->options.momentum > 0;
    bool second = optimizer->options.kind != ATTN_OPTIMIZER_SGD;
    for (int64_t i = 0; i < optimizer->parameters->n; i++) {
        const attn_named *parameter = &optimizer->parameters->items[i];
        bool needed = attn_tensor_requires_grad(parameter->tensor);
        optimizer->each[i].factor = 1;
        optimizer->each[i].moments = needed ? optimizer->state.n : -1;
        if (!needed)
            continue;
        if (attn_tensor_dtype(parameter->tensor) != ATTN_F32)
            return attn__fail(optimizer->context, ATTN_ERROR_UNSUPPORTED, "optimizer: parameter %s is %s, not f32",
                              parameter->name, attn_dtype_name(attn_tensor_dtype(parameter->tensor)));
        attn_status status = first ? add_moment(optimizer, "m", parameter) : ATTN_OK;
        if (status == ATTN_OK && second)
            status = add_moment(optimizer, "v", parameter);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

attn_status attn_optimizer_create(attn_optimizer **optimizer, attn_context *context, const attn_named_list *parameters,
                                  const attn_optimizer_options *options)
{
    ATTN__CALL(context);
    *optimizer = NULL;
    if (ATTN__CHECK_RESERVED(context, options, attn_optimizer_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_optimizer_options o = options ? *options : (attn_optimizer_options){0};
    o.beta1 = or_default(o.beta1, 0.9);
    o.beta2 = or_default(o.beta2, 0.999);
    o.eps = or_default(o.eps, 1e-8);
    attn_status status = check_options(context, &o);
    if (status != ATTN_OK)
        return status;
    attn_optimizer *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->context = context;
    made->parameters = parameters;
    made->rows = attn__elementwise_for(false, context->isa);
    made->options = o;
    made->state = (attn_named_list){.context = context, .owns = true};
    made->each = attn__alloc(context, attn__size_mul((size_t)parameters->n + 1, sizeof *made->each));
    status = made->each ? add_state(made) : ATTN_ERROR_MEMORY;
    if (status != ATTN_OK) {
        attn_optimizer_destroy(made);
        return status;
    }
    *optimizer = made;
    return ATTN_OK;
}

void attn_optimizer_destroy(attn_optimizer *optimizer)
{
    if (!optimizer)
        return;
    attn_named_clear(&optimizer->state);
    attn__free(optimizer->context, optimizer->each);
    attn__free(optimizer->context, optimizer);
}

void attn_optimizer_set_factor(attn_optimizer *optimizer, int64_t i, double factor)
{
    if (i >= 0 && i < optimizer->parameters->n)
        optimizer->each[i].factor = factor;
    optimizer->rated = optimizer->rated || factor != 1;
}

int64_t attn_optimizer_steps(const attn_optimizer *optimizer)
{
    return optimizer->steps;
}

void attn_optimizer_set_steps(attn_optimizer *optimizer, int64_t steps)
{
    optimizer->steps = steps;
}

const attn_named_list *attn_optimizer_state(const attn_optimizer *optimizer)
{
    return &optimizer->state;
}

/* ------------------------------------------------------------------------------------------------ norm */

/* Sums of squares of fixed blocks, which are then added in order, so that the norm does not depend on the number of
 * threads. */
typedef struct norm_job {
    attn__elementwise_fn squares;
    attn__elementwise_args args;
} norm_job;

static void norm_blocks(void *user, int64_t begin, int64_t end)
{
    const norm_job *job = user;
    job->squares(&job->args, begin, end);
}

static double square_norm(const attn_optimizer *optimizer, const attn_tensor *tensor)
{
    enum { SUMS = 256 };
    double sums[SUMS], total = 0;
    const float *g = attn_tensor_data(tensor);
    int64_t n = attn_tensor_size(tensor), most = (int64_t)SUMS * ATTN__ELEMENTWISE_BLOCK;
    for (int64_t from = 0; from < n; from += most) {
        int64_t part = n - from < most ? n - from : most, count = block_count(part);
        norm_job job = {optimizer->rows->run[ATTN__ELEMENTWISE_SQUARES], {.x = g + from, .y = sums, .n = part}};
        attn__parallel_range(optimizer->context->threads, count, GRAIN, norm_blocks, &job);
        for (int64_t i = 0; i < count; i++)
            total += sums[i];
    }
    return total;
}

static double global_norm(const attn_optimizer *optimizer)
{
    double total = 0;
    for (int64_t i = 0; i < optimizer->parameters->n; i++) {
        const attn_tensor *grad = attn_tensor_grad(optimizer->parameters->items[i].tensor);
        if (trained(optimizer, i) && grad)
            total += square_norm(optimizer, grad);
    }
    return sqrt(total);
}

/* ------------------------------------------------------------------------------------------------ step */

typedef struct step_job {
    const attn_optimizer_options *o;
    attn__elementwise_fn adam;
    attn__elementwise_args args; /* arguments of Adam's kernel; the scalars are the same for all parameters */
    attn__all_reduce_piece at;
    float clip, rate;
} step_job;

static int64_t end_of(const step_job *job, int64_t block)
{
    return block * ATTN__ELEMENTWISE_BLOCK < job->at.n ? block * ATTN__ELEMENTWISE_BLOCK : job->at.n;
}

static void adam_blocks(void *user, int64_t begin, int64_t end)
{
    const step_job *job = user;
    job->adam(&job->args, begin * ATTN__ELEMENTWISE_BLOCK, end_of(job, end));
}

static void sgd_blocks(void *user, int64_t begin, int64_t end)
{
    const step_job *job = user;
    const attn__all_reduce_piece *at = &job->at;
    float decay = (float)job->o->weight_decay, momentum = (float)job->o->momentum;
    for (int64_t i = begin * ATTN__ELEMENTWISE_BLOCK; i < end_of(job, end); i++) {
        float g = at->g[i] * job->clip + decay * at->p[i];
        if (at->s[0])
            g = at->s2[0][i] = attn__normal(momentum * at->s[0][i] + g);
        at->p2[i] = at->p[i] - job->rate * g;
    }
}

/* Returns the data of moment `which` (0 or 1) of trained parameter i, or NULL if the optimizer does not have this
 * moment. */
static float *moment(const attn_optimizer *optimizer, int64_t i, int which)
{
    int kept = optimizer->options.kind == ATTN_OPTIMIZER_SGD ? (optimizer->options.momentum > 0) : 2;
    int64_t at = optimizer->each[i].moments + which;
    return kept > which ? attn_tensor_data(optimizer->state.items[at].tensor) : NULL;
}

static step_job prepare(const attn_optimizer *optimizer, double rate, double clip)
{
    const attn_optimizer_options *o = &optimizer->options;
    double steps = (double)optimizer->steps;
    return (step_job){
        .o = o,
        .clip = (float)clip,
        .rate = (float)rate,
        .adam = optimizer->rows->run[ATTN__ELEMENTWISE_ADAM],
        .args = {.s = {o->kind == ATTN_OPTIMIZER_SGD ? 0 : rate / (1 - pow(o->beta1, steps)), o->beta1, o->beta2,
                       o->eps, clip, o->kind == ATTN_OPTIMIZER_ADAMW ? rate * o->weight_decay : 0,
                       1 / (1 - pow(o->beta2, steps)), o->kind == ATTN_OPTIMIZER_ADAM ? o->weight_decay : 0}}};
}

static void step_piece(const attn_optimizer *optimizer, step_job *job, const attn__all_reduce_piece *piece)
{
    bool sgd = optimizer->options.kind == ATTN_OPTIMIZER_SGD;
    attn__elementwise_args *args = &job->args;
    job->at = *piece;
    args->x = piece->g;
    args->x2 = piece->p;
    args->x3 = piece->s[0];
    args->x4 = piece->s[1];
    args->y = piece->p2;
    args->y2 = piece->s2[0];
    args->y3 = piece->s2[1];
    args->past = piece->past;
    attn__parallel_range(optimizer->context->threads, block_count(piece->n), GRAIN, sgd ? sgd_blocks : adam_blocks,
                         job);
}

static void update(attn_optimizer *optimizer, double rate, double clip)
{
    for (int64_t i = 0; i < optimizer->parameters->n; i++) {
        attn_tensor *tensor = optimizer->parameters->items[i].tensor, *grad = attn_tensor_grad(tensor);
        if (!trained(optimizer, i) || !grad)
            continue;
        float *p = attn_tensor_data(tensor), *m = moment(optimizer, i, 0), *v = moment(optimizer, i, 1);
        attn__all_reduce_piece whole = {
            .p = p, .s = {m, v}, .g = attn_tensor_data(grad), .p2 = p, .s2 = {m, v}, .n = attn_tensor_size(tensor)};
        step_job job = prepare(optimizer, rate * optimizer->each[i].factor, clip);
        step_piece(optimizer, &job, &whole);
    }
}

/* Returns the factor that clips the gradients, whose global norm is `length`. */
static double clipping(const attn_optimizer *optimizer, double length)
{
    double most = optimizer->options.clip_norm;
    return most > 0 && length > most ? most / length : 1;
}

static void drop_gradients(const attn_optimizer *optimizer)
{
    for (int64_t i = 0; i < optimizer->parameters->n; i++)
        attn_tensor_drop_grad(optimizer->parameters->items[i].tensor);
}

attn_status attn_optimizer_step(attn_optimizer *optimizer, double rate, double *norm)
{
    ATTN__CALL(optimizer->context);
    /* the norm is computed even if clipping is off, because gradients that are not finite must not change the
     * parameters */
    double length = global_norm(optimizer);
    if (isfinite(length)) {
        optimizer->steps++;
        update(optimizer, rate, clipping(optimizer, length));
    }
    drop_gradients(optimizer);
    if (norm)
        *norm = length;
    return ATTN_OK;
}

static double factor_of(const attn_optimizer *optimizer, const attn_tensor *parameter)
{
    for (int64_t i = 0; optimizer->rated && i < optimizer->parameters->n; i++)
        if (optimizer->parameters->items[i].tensor == parameter)
            return optimizer->each[i].factor;
    return 1;
}

attn_status attn__optimizer_step_shared(attn_optimizer *optimizer, attn__all_reduce *all_reduce, double rate,
                                        double *norm)
{
    attn_status status = ATTN_OK;
    *norm = sqrt(attn__all_reduce_squares(all_reduce));
    if (isfinite(*norm)) {
        attn__all_reduce_piece piece;
        optimizer->steps++;
        double clip = clipping(optimizer, *norm);
        while (attn__all_reduce_next(all_reduce, &piece)) {
            step_job job = prepare(optimizer, rate * factor_of(optimizer, piece.parameter), clip);
            step_piece(optimizer, &job, &piece);
        }
        status = attn__all_reduce_commit(all_reduce);
        if (status != ATTN_OK)
            optimizer->steps--;
    }
    drop_gradients(optimizer);
    return status;
}
