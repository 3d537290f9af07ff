/* SPDX-License-Identifier: MIT
 * Writes a model's directory with the weights of its linear layers as bf16 or int8. */
#include "apps/checkpoint/model_config.h"
#include "apps/checkpoint/model_directory.h"
#include "apps/checkpoint/convert.h"
#include "base/context.h"
#include "io/tensors/adapter.h"
#include "io/tensors/quantized.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of a file: `from` in their old types and `to` in their new types. int8[i] is true if tensor i of `to`
 * holds int8 integers. */
typedef struct store {
    attn_context *context;
    attn_precision precision;
    attn_named_list from, to;
    bool *int8;
} store;

static attn_status add(store *s, const char *name, attn_tensor *tensor, bool int8)
{
    attn_status status = attn_named_add(&s->to, name, tensor);
    if (status == ATTN_OK)
        s->int8[s->to.n - 1] = int8;
    else
        attn_tensor_destroy(tensor);
    return status;
}

static attn_status copy(store *s, const attn_named *named)
{
    const attn_tensor *x = named->tensor;
    attn_tensor *y = NULL;
    attn_status status = attn_tensor_create(&y, s->context, x->dtype, x->rank, x->shape);
    if (status != ATTN_OK)
        return status;
    memcpy(y->data, x->data, attn__tensor_bytes(x));
    return add(s, named->name, y, false);
}

static attn_status add_rounded(store *s, const attn_named *named)
{
    const attn_tensor *x = named->tensor;
    attn_tensor *y = NULL;
    attn_status status = attn_tensor_create(&y, s->context, ATTN_BF16, x->rank, x->shape);
    if (status != ATTN_OK)
        return status;
    attn__bf16_of_weights(x, y->data);
    return add(s, named->name, y, false);
}

/* Adds a weight as int8 integers and scales, if these represent the weight exactly. Otherwise adds nothing and sets
 * *stored to false. */
static attn_status add_integers(store *s, const attn_named *named, bool *stored)
{
    const attn_tensor *x = named->tensor;
    attn_tensor *q = NULL, *scales = NULL;
    char name[600];
    int length = snprintf(name, sizeof name, "%s" ATTN__INT8_SCALE, named->name);
    attn_status status = attn_tensor_create(&q, s->context, ATTN_U8, 2, x->shape);
    if (status == ATTN_OK)
        status = attn_tensor_create(&scales, s->context, ATTN_F32, 1, x->shape);
    if (status == ATTN_OK)
        status = attn__int8_of_weights(s->context, x, q->data, scales->data, stored);
    *stored = *stored && length < (int)sizeof name;
    if (status != ATTN_OK || !*stored) {
        attn_tensor_destroy(q);
        attn_tensor_destroy(scales);
        return status;
    }
    status = add(s, named->name, q, true);
    if (status != ATTN_OK)
        attn_tensor_destroy(scales);
    return status == ATTN_OK ? add(s, name, scales, false) : status;
}

/* Converts a matrix of reals of any type to f32, as models do when they read it. The caller destroys *wide. */
static attn_status widen(const store *s, const attn_named *named, attn_tensor **wide)
{
    attn_status status = attn_tensor_create(wide, s->context, ATTN_F32, 2, named->tensor->shape);
    attn_named from = *named, to = {named->name, *wide};
    const attn_named_list read = {.context = s->context, .items = &from, .n = 1};
    attn_named_list made = {.context = s->context, .items = &to, .n = 1};
    return status == ATTN_OK ? attn_weights_assign(&made, &read, NULL, NULL) : status;
}

/* Adds the weight of a linear layer in the requested precision. If int8 is requested and does not represent the
 * weight exactly, the weight is added unchanged. */
static attn_status add_linear(store *s, const attn_named *named)
{
    attn_tensor *wide = NULL;
    bool stored = true;
    attn_status status = widen(s, named, &wide);
    const attn_named linear = {named->name, wide};
    if (status == ATTN_OK)
        status = s->precision == ATTN_PRECISION_INT8 ? add_integers(s, &linear, &stored) : add_rounded(s, &linear);
    attn_tensor_destroy(wide);
    return status == ATTN_OK && !stored ? copy(s, named) : status;
}

static bool is_linear(const attn_model *model, const attn_named *named)
{
    const attn_tensor *p = attn_named_find(attn_model_parameters(model), named->name), *x = named->tensor;
    bool real = x->dtype == ATTN_F32 || x->dtype == ATTN_F64 || x->dtype == ATTN_F16 || x->dtype == ATTN_BF16;
    return p && p->linear && real && x->rank == 2 && p->rank == 2 && x->size > 0 &&
           memcmp(p->shape, x->shape, 2 * sizeof *x->shape) == 0;
}

static attn_status convert(store *s, const attn_model *model)
{
    s->int8 = attn__alloc_zero(s->context, attn__size_mul((size_t)s->from.n, 2 * sizeof *s->int8));
    attn_status status = s->int8 ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < s->from.n && status == ATTN_OK; i++) {
        const attn_named *named = &s->from.items[i];
        status = is_linear(model, named) ? add_linear(s, named) : copy(s, named);
    }
    return status;
}

static attn_status check_target(attn_context *context, const char *to)
{
    return attn__adapter_is_in(to)
               ? attn__fail(context, ATTN_ERROR_ARGUMENT,
                            "%s: the directory holds a low-rank adapter; choose another directory", to)
               : ATTN_OK;
}

static attn_status copy_others(attn_context *context, const char *directory, const char *to)
{
    char *from_here = realpath(directory, NULL), *there = realpath(to, NULL);
    bool same = from_here && there && strcmp(from_here, there) == 0;
    free(from_here);
    free(there);
    return same ? ATTN_OK : attn__model_files_copy(context, directory, to);
}

/* Reports whether the architecture's layers can use stored int8 weights. The listed architectures cannot, because
 * some of their layers compute other integers from the weights. Such layers run in place, quantize only some columns
 * of a weight at a time, or run in bf16 because they are not along the last axis. */
static bool can_be_int8(const attn_architecture *architecture)
{
    static const char *const names[] = {"msa-transformer",       "axial-transformer-layer", "row-self-attention",
                                        "column-self-attention", "axial-image-transformer", "axial-image-classifier",
                                        "reversible-block",      "reversible-sequence"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(architecture->name, names[i]) == 0)
            return false;
    return true;
}

bool attn_architecture_quantizes(const attn_architecture *architecture, attn_precision precision)
{
    return precision == ATTN_PRECISION_BF16 || (precision == ATTN_PRECISION_INT8 && can_be_int8(architecture));
}

static attn_status read(store *s, attn_model **model, const char *directory)
{
    attn_weights_options how = {.keep_types = true};
    attn_status status = attn__model_of_directory(model, s->context, directory);
    if (status == ATTN_OK && !attn_architecture_quantizes(attn_model_architecture(*model), s->precision))
        status = attn__fail(s->context, ATTN_ERROR_UNSUPPORTED,
                            "%s: some linear layers of \"%s\" cannot be stored as int8; store the weights as bf16",
                            directory, attn_model_architecture(*model)->name);
    return status == ATTN_OK ? attn_weights_read(&s->from, directory, &how, NULL, NULL) : status;
}

static attn_status write(const store *s, const char *directory, const char *to)
{
    char path[ATTN__PATH];
    attn_status status = attn__path(s->context, path, to, "model.safetensors");
    if (status == ATTN_OK)
        status = copy_others(s->context, directory, to);
    return status == ATTN_OK ? attn__safetensors_write(&s->to, s->int8, path, NULL) : status;
}

attn_status attn_model_quantize(attn_context *context, const char *directory, const char *to, attn_precision precision)
{
    ATTN__CALL(context);
    attn_model *model = NULL;
    store s = {context, precision, {.context = context, .owns = true}, {.context = context, .owns = true}, NULL};
    if (precision != ATTN_PRECISION_BF16 && precision != ATTN_PRECISION_INT8)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "weights can be stored as bf16 or int8, not as %s",
                          attn_precision_name(precision));
    attn_status status = check_target(context, to);
    if (status == ATTN_OK)
        status = read(&s, &model, directory);
    if (status == ATTN_OK)
        status = convert(&s, model);
    if (status == ATTN_OK)
        status = write(&s, directory, to);
    attn_model_destroy(model);
    attn_named_clear(&s.from);
    attn_named_clear(&s.to);
    attn__free(context, s.int8);
    return status;
}
