/* SPDX-License-Identifier: MIT */
#include "tensor/matrix_product.h"

#include <stdio.h>
#include <string.h>

attn_status attn__tensor_describe(attn_context *context, attn_tensor *tensor, attn_dtype dtype, int rank,
                                  const int64_t *shape)
{
    if (rank < 0 || rank > ATTN_MAX_RANK)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "a tensor of %d axes is requested; it must have 0 to %d", rank,
                          ATTN_MAX_RANK);
    if (attn_dtype_size(dtype) == 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "a tensor of the unknown type %d is requested", (int)dtype);
    size_t size = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "axis %d of a tensor has length %lld; it must not be negative", i, (long long)shape[i]);
        tensor->shape[i] = shape[i];
        size = attn__size_mul(size, (size_t)shape[i]);
    }
    if (size > INT64_MAX / 16)
        return attn__fail_memory(context, SIZE_MAX);
    tensor->context = context;
    tensor->dtype = dtype;
    tensor->rank = rank;
    tensor->size = (int64_t)size;
    return ATTN_OK;
}

size_t attn__tensor_bytes(const attn_tensor *tensor)
{
    return (size_t)tensor->size * attn_dtype_size(tensor->dtype);
}

bool attn__tensor_allocate(attn_tensor *tensor, attn__pool *pool)
{
    tensor->storage = attn__storage_create(tensor->context, pool, attn__tensor_bytes(tensor));
    tensor->data = tensor->storage ? attn__storage_data(tensor->storage) : NULL;
    return tensor->storage != NULL;
}

/* Makes a handle without data, which the caller owns. On failure, returns NULL and sets *status. */
static attn_tensor *own_handle(attn_context *context, attn_dtype dtype, int rank, const int64_t *shape,
                               attn_status *status)
{
    attn_tensor described = {0};
    *status = attn__tensor_describe(context, &described, dtype, rank, shape);
    attn_tensor *made = *status == ATTN_OK ? attn__alloc(context, sizeof *made) : NULL;
    if (made)
        *made = described;
    else if (*status == ATTN_OK)
        *status = ATTN_ERROR_MEMORY;
    return made;
}

attn_status attn__tensor_create_empty(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                      const int64_t *shape)
{
    attn_status status;
    *tensor = own_handle(context, dtype, rank, shape, &status);
    return status;
}

attn_status attn_tensor_create(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                               const int64_t *shape)
{
    ATTN__CALL(context);
    attn_status status;
    attn_tensor *made = own_handle(context, dtype, rank, shape, &status);
    *tensor = NULL;
    if (!made)
        return status;
    if (!attn__tensor_allocate(made, NULL)) {
        attn__free(context, made);
        return ATTN_ERROR_MEMORY;
    }
    memset(made->data, 0, attn__tensor_bytes(made));
    *tensor = made;
    return ATTN_OK;
}

/* Makes a tensor of the caller's memory. Its storage has no data, but counts the references to this memory. */
attn_status attn_tensor_wrap(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                             const int64_t *shape, void *data)
{
    ATTN__CALL(context);
    attn_status status;
    attn_tensor *made = own_handle(context, dtype, rank, shape, &status);
    *tensor = NULL;
    if (!made)
        return status;
    if (!data && made->size > 0)
        status = attn__fail(context, ATTN_ERROR_ARGUMENT, "the memory given for a tensor is NULL");
    made->storage = status == ATTN_OK ? attn__storage_create(context, NULL, 0) : NULL;
    if (!made->storage) {
        attn__free(context, made);
        return status == ATTN_OK ? ATTN_ERROR_MEMORY : status;
    }
    made->data = data ? data : attn__storage_data(made->storage);
    *tensor = made;
    return ATTN_OK;
}

attn_status attn_tensor_share(attn_tensor **shared, const attn_tensor *tensor)
{
    *shared = NULL;
    if (!tensor)
        return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "attn_tensor_share: the tensor is NULL");
    ATTN__CALL(tensor->context);
    if (attn__tensor_must_have_data(tensor->context, tensor, "to share") != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn__tensor_settle((attn_tensor *)tensor);
    attn_status status;
    attn_tensor *made = own_handle(tensor->context, tensor->dtype, tensor->rank, tensor->shape, &status);
    if (!made)
        return status;
    attn__storage_ref(tensor->storage);
    made->storage = tensor->storage;
    made->data = tensor->data;
    *shared = made;
    return ATTN_OK;
}

void attn_tensor_destroy(attn_tensor *tensor)
{
    if (!tensor || tensor->tape)
        return;
    attn_tensor_destroy(tensor->grad);
    attn__storage_unref(tensor->storage);
    if (tensor->packed)
        attn__gemm_unpack(tensor->packed);
    attn__free(tensor->context, tensor->packed);
    attn__free(tensor->context, tensor);
}

void attn__tensor_settle(attn_tensor *tensor)
{
    /* no write here, because several threads may read one tensor at the same time */
    if (!tensor->zero_pending)
        return;
    memset(tensor->data, 0, attn__tensor_bytes(tensor));
    tensor->zero_pending = false;
}

attn_status attn__tensor_must_have_data(attn_context *context, const attn_tensor *tensor, const char *name)
{
    if (tensor->data)
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_ARGUMENT, "tensor \"%.100s\" has no data: %s", name,
                      tensor->packed          ? "its model packed the weights for inference"
                      : tensor->packs_on_load ? "its weights are not loaded yet"
                                              : "it was freed by the end of a scope");
}

void *attn_tensor_data(const attn_tensor *tensor)
{
    attn__tensor_settle((attn_tensor *)tensor);
    return tensor->data;
}

attn_dtype attn_tensor_dtype(const attn_tensor *tensor)
{
    return tensor->dtype;
}

int attn_tensor_rank(const attn_tensor *tensor)
{
    return tensor->rank;
}

const int64_t *attn_tensor_shape(const attn_tensor *tensor)
{
    return tensor->shape;
}

int64_t attn_tensor_length(const attn_tensor *tensor, int axis)
{
    return tensor->shape[axis < 0 ? axis + tensor->rank : axis];
}

int64_t attn_tensor_size(const attn_tensor *tensor)
{
    return tensor->size;
}

void attn_tensor_set_requires_grad(attn_tensor *tensor, bool needs)
{
    tensor->needs_grad = needs;
    if (needs && tensor->storage)
        tensor->storage->leaf = true;
}

bool attn_tensor_requires_grad(const attn_tensor *tensor)
{
    return tensor->needs_grad;
}

attn_tensor *attn_tensor_grad(const attn_tensor *tensor)
{
    return tensor->grad && tensor->grad->storage ? tensor->grad : NULL;
}

/* Marks the gradient as zero without clearing its memory. The next backward pass then overwrites the gradient, so that
 * most gradients never need to be cleared. */
void attn_tensor_zero_grad(attn_tensor *tensor)
{
    if (tensor->grad)
        tensor->grad->zero_pending = true;
}

void attn_tensor_drop_grad(attn_tensor *tensor)
{
    if (tensor->tape || !tensor->grad)
        return;
    attn__storage_unref(tensor->grad->storage);
    tensor->grad->storage = NULL;
    tensor->grad->data = NULL;
    tensor->grad->zero_pending = true;
}

const char *attn__shape_text(const attn_tensor *tensor, char text[ATTN__SHAPE_TEXT])
{
    int used = snprintf(text, ATTN__SHAPE_TEXT, "[");
    for (int i = 0; i < tensor->rank && used < ATTN__SHAPE_TEXT - 24; i++)
        used +=
            snprintf(text + used, (size_t)(ATTN__SHAPE_TEXT - used), i ? ",%lld" : "%lld", (long long)tensor->shape[i]);
    snprintf(text + used, (size_t)(ATTN__SHAPE_TEXT - used), "]");
    return text;
}
