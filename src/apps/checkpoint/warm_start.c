/* SPDX-License-Identifier: MIT */
#include "apps/checkpoint/warm_start.h"

#include "base/context.h"
#include "io/tensors/array.h"
#include "io/tensors/weights.h"

#include <string.h>

/* Reports whether two tensors can be heads for different numbers of classes. Their shapes may differ only in the
 * first axis, which is the number of outputs. */
static bool is_head(const attn__warm_start *s, const attn_tensor *from, const attn_tensor *to)
{
    int rank = attn_tensor_rank(to);
    return rank > 0 && rank == attn_tensor_rank(from) && attn_tensor_length(to, 0) == s->outputs &&
           (rank == 1 ||
            memcmp(attn_tensor_shape(from) + 1, attn_tensor_shape(to) + 1, (size_t)(rank - 1) * sizeof(int64_t)) == 0);
}

static bool is_fresh(const attn__warm_start *s, const char *name)
{
    return s->fresh && strncmp(name, s->fresh, strlen(s->fresh)) == 0;
}

static attn_status assign(const attn__warm_start *s, const attn_named_list *own, const attn_named_list *found)
{
    attn_named_list to = {.context = s->context}, from = {.context = s->context};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < own->n && status == ATTN_OK; i++) {
        const attn_named *parameter = &own->items[i];
        attn_tensor *tensor = attn_named_find(found, parameter->name);
        bool same = tensor && attn_tensor_size(tensor) == attn_tensor_size(parameter->tensor);
        if (is_fresh(s, parameter->name) || (tensor && !same && is_head(s, tensor, parameter->tensor)))
            continue;
        status = attn_named_add(&to, parameter->name, parameter->tensor);
        if (status == ATTN_OK && tensor)
            status = attn_named_add(&from, parameter->name, tensor);
    }
    if (status == ATTN_OK)
        status = attn__weights_assign(&to, &from, s->path, NULL, NULL);
    attn_named_clear(&to);
    attn_named_clear(&from);
    return status;
}

attn_status attn__warm_start_fill(const attn__warm_start *start, const attn_named_list *parameters)
{
    attn_named_list found = {.context = start->context, .owns = true};
    attn_weights_options how = {.names = start->names};
    attn_status status = attn_weights_read(&found, start->path, &how, NULL, NULL);
    if (status == ATTN_OK)
        status = assign(start, parameters, &found);
    attn_named_clear(&found);
    return status;
}

static bool find_entry(const attn_checkpoint *weights, const char *name, attn_checkpoint_entry *entry)
{
    for (int64_t i = 0; attn_checkpoint_at(weights, i, entry); i++)
        if (strcmp(entry->name, name) == 0)
            return true;
    return false;
}

static attn_status tell_parameter(const attn__warm_start *s, const attn_checkpoint *weights,
                                  const attn_named *parameter, attn_bytes *table)
{
    attn_checkpoint_entry e;
    char own[128], its[128] = "";
    attn__array_shape_text(own, attn_tensor_rank(parameter->tensor), attn_tensor_shape(parameter->tensor));
    bool found = find_entry(weights, parameter->name, &e);
    if (found)
        attn__array_shape_text(its, e.rank, e.shape);
    bool positions = strcmp(parameter->name, "pos_embedding") == 0;
    bool same = found && strcmp(own, its) == 0 && !is_fresh(s, parameter->name);
    const char *how = !found      ? "anew: the checkpoint has none"
                      : same      ? "taken"
                      : positions ? "interpolated from"
                                  : "anew: for other classes than";
    return attn__bytes_appendf(s->context, table, "%s\t%s\t%s%s%s%s%s\n", parameter->name, own, how, same ? "" : " ",
                               same ? "" : its, found && e.origin ? ", " : "", found && e.origin ? e.origin : "");
}

attn_status attn__warm_start_tell(const attn__warm_start *start, const attn_model *model, attn_bytes *table)
{
    const attn_named_list *list = attn_model_parameters(model);
    attn_checkpoint *weights = NULL;
    attn_status status = attn_checkpoint_open(&weights, start->context, start->path,
                                              &(attn_weights_options){.names = start->names}, NULL);
    for (int64_t i = 0; status == ATTN_OK && i < list->n; i++)
        status = tell_parameter(start, weights, &list->items[i], table);
    attn_checkpoint_close(weights);
    return status;
}
