/* SPDX-License-Identifier: MIT
 *
 * Registers parameters under their names, and computes their initial values.
 */
#include "nn/linear_weight.h"

#include "base/context.h"
#include "base/hash.h"
#include "base/rng.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void attn_nn_pushf(attn_nn_builder *builder, const char *format, ...)
{
    char name[ATTN_NN_MAX_NAME];
    va_list arguments;
    va_start(arguments, format);
    /* a name that is cut here fills the buffer, so attn_nn_push refuses it as too long */
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    attn_nn_push(builder, name);
}

void attn_nn_push(attn_nn_builder *builder, const char *name)
{
    size_t n = strlen(name);
    size_t used = strlen(builder->prefix);
    bool deep = builder->depth < 0 || builder->depth >= ATTN_NN_MAX_DEPTH;
    if (deep || n > sizeof builder->prefix || used + n + 2 > sizeof builder->prefix) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
                   "parameter name %s%.200s is too %s; at most %d %s are supported", builder->prefix, name,
                   deep ? "deep" : "long", deep ? (int)ATTN_NN_MAX_DEPTH : (int)sizeof builder->prefix - 2,
                   deep ? "levels" : "bytes");
        builder->depth++; /* the refused part is counted too, so that the later pop of this part has a counterpart */
        return;
    }
    builder->ends[builder->depth++] = (int)used;
    memcpy(builder->prefix + used, name, n);
    memcpy(builder->prefix + used + n, ".", 2);
}

void attn_nn_pop(attn_nn_builder *builder)
{
    if (builder->depth > 0 && --builder->depth < ATTN_NN_MAX_DEPTH)
        builder->prefix[builder->ends[builder->depth]] = 0;
}

static double product(const int64_t *shape, int begin, int end)
{
    double n = 1;
    for (int i = begin; i < end; i++)
        n *= (double)shape[i];
    return n;
}

/* Returns the spread of the initial values: the bound of a uniform distribution, or the standard deviation of a
 * normal distribution. */
static double spread_of(const attn_nn_initializer *fill, int rank, const int64_t *shape)
{
    double in = fill->fan_in > 0 ? fill->fan_in : product(shape, 1, rank);
    double rows = rank > 0 ? (double)shape[0] : 1;
    double out = fill->fan_out > 0 ? fill->fan_out : rows * product(shape, 2, rank);
    switch (fill->start) {
    case ATTN_INIT_XAVIER_UNIFORM:
        return sqrt(6 / fmax(in + out, 1));
    case ATTN_INIT_KAIMING_UNIFORM:
        return 1 / sqrt(fmax(in, 1));
    default:
        return fill->scale > 0 ? fill->scale : 1;
    }
}

static double draw(attn__rng *rng, attn_nn_initializer_kind start, double spread)
{
    switch (start) {
    case ATTN_INIT_ZEROS:
        return 0;
    case ATTN_INIT_ONES:
        return 1;
    case ATTN_INIT_NORMAL:
        return spread * attn__rng_normal(rng);
    case ATTN_INIT_POSITIVE:
        return spread * attn__rng_uniform(rng);
    default:
        return spread * (2 * attn__rng_uniform(rng) - 1);
    }
}

static void fill_tensor(attn_tensor *tensor, const char *name, uint64_t seed, const attn_nn_initializer *fill)
{
    /* each name has its own random stream, so that initial values do not depend on the order of the parameters */
    attn__rng rng = {.seed = seed, .stream = attn__hash_text(ATTN__HASH_BEGIN, name)};
    double spread = spread_of(fill, attn_tensor_rank(tensor), attn_tensor_shape(tensor));
    int64_t n = attn_tensor_size(tensor);
    if (fill->start == ATTN_INIT_ZEROS)
        return;
    if (attn_tensor_dtype(tensor) == ATTN_F64) {
        double *x = attn_tensor_data(tensor);
        for (int64_t i = 0; i < n; i++)
            x[i] = draw(&rng, fill->start, spread);
    } else {
        float *x = attn_tensor_data(tensor);
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)draw(&rng, fill->start, spread);
    }
}

/* Checks that the builder's limit of bytes allows this tensor. This is checked before the tensor is allocated. */
static bool within_limit(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape)
{
    size_t bytes = attn_dtype_size(builder->dtype);
    for (int i = 0; i < rank; i++)
        bytes = attn__size_mul(bytes, shape[i] > 0 ? (size_t)shape[i] : 0);
    builder->held = attn__size_add(builder->held, bytes);
    if (builder->limit == 0 || builder->held <= builder->limit)
        return true;
    attn__fail(builder->context, ATTN_ERROR_ARGUMENT,
               "the settings need parameters of more than %zu bytes, the most that the file of weights can hold; "
               "the parameter %s alone needs %zu bytes",
               builder->limit, name, bytes);
    return false;
}

/* Creates a tensor and adds it to `list` under its full name. Returns NULL on failure. */
static attn_tensor *add_tensor(attn_nn_builder *builder, attn_named_list *list, const char *name, int rank,
                               const int64_t *shape, const attn_nn_initializer *fill, bool packs_on_load)
{
    char full[2 * ATTN_NN_MAX_NAME];
    attn_tensor *tensor = NULL;
    if (attn__call_status(builder->context) != ATTN_OK)
        return NULL; /* do nothing after the error of an earlier call */
    if (attn__check_choice(builder->context, "attn_nn_initializer.start", (int)fill->start, ATTN_INIT_POSITIVE) ||
        attn__check_choice(builder->context, "attn_nn_builder.policy", (int)builder->policy, ATTN_POLICY_TORCH))
        return NULL;
    if (builder->dtype != ATTN_F32 && builder->dtype != ATTN_F64) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "attn_nn_builder.dtype is %s; it must be f32 or f64",
                   attn_dtype_name(builder->dtype));
        return NULL;
    }
    snprintf(full, sizeof full, "%s%s", builder->prefix, name);
    if (attn_named_find(list, full)) {
        attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "parameter %s is registered twice", full);
        return NULL;
    }
    if (!within_limit(builder, full, rank, shape))
        return NULL;
    attn_status status = packs_on_load
                             ? attn__tensor_create_empty(&tensor, builder->context, builder->dtype, rank, shape)
                             : attn_tensor_create(&tensor, builder->context, builder->dtype, rank, shape);
    if (status != ATTN_OK)
        return NULL;
    if (!builder->blank)
        fill_tensor(tensor, full, builder->seed, fill);
    if (attn_named_add(list, full, tensor) != ATTN_OK) {
        attn_tensor_destroy(tensor);
        return NULL;
    }
    return tensor;
}

attn_tensor *attn_nn_parameter(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape,
                               attn_nn_initializer fill)
{
    attn_tensor *tensor = add_tensor(builder, builder->parameters, name, rank, shape, &fill, false);
    if (tensor)
        attn_tensor_set_requires_grad(tensor, true);
    return tensor;
}

attn_tensor *attn__nn_linear_weight(attn_nn_builder *builder, int64_t in, int64_t out, attn_nn_initializer fill)
{
    int64_t shape[2] = {out, in};
    attn_tensor *tensor =
        add_tensor(builder, builder->parameters, "weight", 2, shape, &fill, builder->blank && builder->waits);
    if (tensor) {
        attn_tensor_set_requires_grad(tensor, true);
        tensor->linear = true;
    }
    return tensor;
}

attn_tensor *attn_nn_buffer(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape,
                            attn_nn_initializer fill)
{
    return add_tensor(builder, builder->parameters, name, rank, shape, &fill, false);
}

attn_tensor *attn_nn_constant(attn_nn_builder *builder, const char *name, int rank, const int64_t *shape)
{
    return add_tensor(builder, builder->constants, name, rank, shape, &(attn_nn_initializer){.start = ATTN_INIT_ZEROS},
                      false);
}
