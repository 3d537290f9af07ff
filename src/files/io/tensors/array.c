/* SPDX-License-Identifier: MIT */
#include "io/tensors/array.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

attn_status attn__arrays_add(attn__arrays *arrays, const attn__array *array)
{
    attn__array *items = attn__grow(arrays->context, arrays->items, arrays->n, sizeof *items);
    if (!items) {
        attn__free(arrays->context, array->name);
        return ATTN_ERROR_MEMORY;
    }
    arrays->items = items;
    arrays->items[arrays->n++] = *array;
    return ATTN_OK;
}

void attn__arrays_clear(attn__arrays *arrays)
{
    for (int64_t i = 0; i < arrays->n; i++)
        attn__free(arrays->context, arrays->items[i].name);
    attn__free(arrays->context, arrays->items);
    arrays->items = NULL;
    arrays->n = 0;
}

int attn__array_by_name(const void *a, const void *b)
{
    return strcmp((*(const attn__array *const *)a)->name, (*(const attn__array *const *)b)->name);
}

const attn__array **attn__arrays_sorted(const attn__arrays *arrays)
{
    const attn__array **sorted = attn__alloc(arrays->context, attn__size_mul((size_t)arrays->n, sizeof *sorted));
    if (!sorted)
        return NULL;
    for (int64_t i = 0; i < arrays->n; i++)
        sorted[i] = &arrays->items[i];
    if (arrays->n > 0)
        qsort(sorted, (size_t)arrays->n, sizeof *sorted, attn__array_by_name);
    return sorted;
}

int64_t attn__array_count(const attn__array *array)
{
    int64_t n = 1;
    for (int i = 0; i < array->rank; i++)
        n *= array->shape[i];
    return n;
}

size_t attn__array_set_rows(attn__array *array)
{
    /* reach: what `count` would be if axes of length 0 had length 1; it is used so that the strides of empty arrays
     * cannot overflow */
    size_t count = 1, reach = 1;
    for (int i = array->rank - 1; i >= 0; i--) {
        if (array->shape[i] < 0)
            return SIZE_MAX;
        array->stride[i] = (int64_t)reach;
        count = attn__size_mul(count, (size_t)array->shape[i]);
        reach = attn__size_mul(reach, array->shape[i] ? (size_t)array->shape[i] : 1);
        if (reach > INT64_MAX / 8)
            return SIZE_MAX;
    }
    return attn__size_mul(count, attn__element_size(array->element));
}

attn_dtype attn__array_dtype(const attn__array *array, const attn_weights_options *options)
{
    static const struct {
        attn_dtype kept, usual;
    } types[ATTN__ELEMENTS] = {
        [ATTN__F32] = {ATTN_F32, ATTN_F32},    [ATTN__F64] = {ATTN_F64, ATTN_F32}, [ATTN__F16] = {ATTN_F16, ATTN_F32},
        [ATTN__BF16] = {ATTN_BF16, ATTN_F32},  [ATTN__I8] = {ATTN_I32, ATTN_I32},  [ATTN__I16] = {ATTN_I32, ATTN_I32},
        [ATTN__I32] = {ATTN_I32, ATTN_I32},    [ATTN__I64] = {ATTN_I64, ATTN_I32}, [ATTN__U8] = {ATTN_U8, ATTN_U8},
        [ATTN__U16] = {ATTN_I32, ATTN_I32},    [ATTN__U32] = {ATTN_I64, ATTN_I32}, [ATTN__U64] = {ATTN_I64, ATTN_I32},
        [ATTN__BOOL] = {ATTN_BOOL, ATTN_BOOL},
    };
    attn__element element = array->scales ? ATTN__F32 : array->element;
    if (options && options->keep_types)
        return types[element].kept;
    attn_dtype usual = types[element].usual;
    return usual == ATTN_F32 && options ? options->reals : usual;
}

void attn__array_shape_text(char text[128], int rank, const int64_t *shape)
{
    size_t used = 0;
    text[used++] = '[';
    for (int i = 0; i < rank && used < 100; i++)
        used += (size_t)snprintf(text + used, 128 - used, i ? ",%" PRId64 : "%" PRId64, shape[i]);
    snprintf(text + used, 128 - used, "]");
}

attn_status attn__array_to_tensor(attn_tensor **tensor, const attn__arrays *arrays, const attn__array *array,
                                  attn_dtype dtype)
{
    attn_status status = attn_tensor_create(tensor, arrays->context, dtype, array->rank, array->shape);
    if (status != ATTN_OK)
        return status;
    status = attn__array_copy(arrays, array, dtype, attn_tensor_data(*tensor));
    if (status != ATTN_OK) {
        attn_tensor_destroy(*tensor);
        *tensor = NULL;
    }
    return status;
}

/* Checks that the total size of the tensors is at most 16 times the file's size plus a quarter of a GiB. The limit is
 * needed because a small file can describe huge tensors, by strides of 0 or by sharing storages. A factor above 1 is
 * needed because types are converted (from BF16 to F64, the size grows 4 times), and because normal files also share
 * storages. */
attn_status attn__arrays_check_total(const attn__arrays *arrays, const attn_weights_options *options)
{
    size_t limit = options && options->limit ? options->limit : (size_t)64 << 30;
    size_t bound = attn__size_add(attn__size_mul(arrays->backing, 16), (size_t)256 << 20);
    if (bound < limit)
        limit = bound;
    size_t total = 0;
    for (int64_t i = 0; i < arrays->n; i++) {
        const attn__array *array = &arrays->items[i];
        size_t size = attn_dtype_size(attn__array_dtype(array, options));
        total = attn__size_add(total, attn__size_mul((size_t)attn__array_count(array), size));
        if (total > limit)
            return attn__fail(arrays->context, ATTN_ERROR_FORMAT,
                              "%s: the tensors up to \"%.100s\" need more than %zu bytes, the limit", arrays->file,
                              array->name, limit);
    }
    return ATTN_OK;
}

void attn__named_shorten(attn_named_list *list, int64_t n)
{
    for (int64_t i = n; i < list->n; i++) {
        attn__free(list->context, list->items[i].name);
        attn_tensor_destroy(list->items[i].tensor);
    }
    list->n = n;
}

attn_status attn__arrays_to_list(const attn__arrays *arrays, attn_named_list *list, const attn_weights_options *options)
{
    int64_t before = list->n;
    attn_status status = attn__arrays_check_total(arrays, options);
    for (int64_t i = 0; i < arrays->n && status == ATTN_OK; i++) {
        const attn__array *array = &arrays->items[i];
        attn_tensor *tensor = NULL;
        status = attn__array_to_tensor(&tensor, arrays, array, attn__array_dtype(array, options));
        if (status == ATTN_OK)
            status = attn_named_add(list, array->name, tensor);
        if (status != ATTN_OK)
            attn_tensor_destroy(tensor);
    }
    if (status != ATTN_OK)
        attn__named_shorten(list, before);
    return status;
}

/* Checks that no two arrays have the same name. A PyTorch file can have such arrays, because names of members are
 * joined by dots, and a key may contain a dot itself. */
attn_status attn__arrays_check_names(const attn__arrays *arrays)
{
    const attn__array **sorted = attn__arrays_sorted(arrays);
    attn_status status = sorted ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 1; i < arrays->n && status == ATTN_OK; i++) {
        if (attn__array_by_name(&sorted[i - 1], &sorted[i]) == 0)
            status = attn__fail(arrays->context, ATTN_ERROR_FORMAT, "%s: two tensors are named \"%.200s\"",
                                arrays->file, sorted[i]->name);
    }
    attn__free(arrays->context, sorted);
    return status;
}
