/* SPDX-License-Identifier: MIT */
#include "tensor/tensor.h"

#include <string.h>

static bool has_room(attn_named_list *list)
{
    if (list->n < list->capacity)
        return true;
    int64_t capacity = list->capacity ? 2 * list->capacity : 16;
    attn_named *items = attn__realloc(list->context, list->items, attn__size_mul((size_t)capacity, sizeof *items));
    if (!items)
        return false;
    list->items = items;
    list->capacity = capacity;
    return true;
}

attn_status attn_named_add(attn_named_list *list, const char *name, attn_tensor *tensor)
{
    ATTN__CALL(list->context);
    char *copy = has_room(list) ? attn__strdup(list->context, name) : NULL;
    if (!copy)
        return ATTN_ERROR_MEMORY;
    list->items[list->n++] = (attn_named){copy, tensor};
    return ATTN_OK;
}

attn_tensor *attn_named_find(const attn_named_list *list, const char *name)
{
    for (int64_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return list->items[i].tensor;
    return NULL;
}

void attn_named_clear(attn_named_list *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        attn__free(list->context, list->items[i].name);
        if (list->owns)
            attn_tensor_destroy(list->items[i].tensor);
    }
    attn__free(list->context, list->items);
    list->items = NULL;
    list->n = list->capacity = 0;
}
