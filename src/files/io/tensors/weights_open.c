/* SPDX-License-Identifier: MIT
 * Opens a checkpoint, lists its tensors, and reads them one at a time. */
#include "io/names/names.h"
#include "io/tensors/weights_files.h"

#include <string.h>

struct attn_checkpoint {
    attn__weights_files files;
    attn__findings findings;
    attn_weights_options options;
};

attn_status attn_checkpoint_open(attn_checkpoint **weights, attn_context *context, const char *path,
                                 const attn_weights_options *options, attn_config *metadata)
{
    ATTN__CALL(context);
    attn_checkpoint *w = attn__alloc_zero(context, sizeof *w);
    *weights = NULL;
    if (!w)
        return ATTN_ERROR_MEMORY;
    if (options)
        w->options = *options;
    attn_status status = attn__weights_find(&w->findings, &w->files, context, path, &w->options, metadata);
    if (status == ATTN_OK)
        *weights = w;
    else
        attn_checkpoint_close(w);
    return status;
}

void attn_checkpoint_close(attn_checkpoint *weights)
{
    if (!weights)
        return;
    attn_context *context = weights->files.context;
    attn__findings_clear(&weights->findings);
    attn__weights_files_close(&weights->files);
    attn__free(context, weights);
}

attn_context *attn__weights_context(const attn_checkpoint *weights)
{
    return weights->files.context;
}

const char *attn_checkpoint_notes(const attn_checkpoint *weights)
{
    return weights->findings.notes.size ? weights->findings.notes.data : "";
}

const char *attn_checkpoint_path(const attn_checkpoint *weights)
{
    return weights->files.path;
}

bool attn_checkpoint_at(const attn_checkpoint *weights, int64_t i, attn_checkpoint_entry *entry)
{
    static const char *const types[ATTN__ELEMENTS] = {
        [ATTN__F32] = "f32", [ATTN__F64] = "f64", [ATTN__F16] = "f16",   [ATTN__BF16] = "bf16", [ATTN__I8] = "i8",
        [ATTN__I16] = "i16", [ATTN__I32] = "i32", [ATTN__I64] = "i64",   [ATTN__U8] = "u8",     [ATTN__U16] = "u16",
        [ATTN__U32] = "u32", [ATTN__U64] = "u64", [ATTN__BOOL] = "bool",
    };
    if (i < 0 || i >= weights->findings.arrays.n)
        return false;
    const attn__array *array = &weights->findings.arrays.items[i];
    *entry = (attn_checkpoint_entry){.name = array->name,
                                     .type = types[array->element],
                                     .rank = array->rank,
                                     .shape = array->shape,
                                     .count = attn__array_count(array),
                                     .origin = array->origin};
    if (array->stored)
        entry->type = types[ATTN__I8];
    entry->bytes = array->stored;
    if (!array->stored)
        entry->bytes = attn__size_mul((size_t)entry->count, attn__element_size(array->element));
    return true;
}

attn_status attn_checkpoint_tensor(attn_tensor **tensor, const attn_checkpoint *weights, int64_t i)
{
    ATTN__CALL(weights->findings.arrays.context);
    const attn__arrays *arrays = &weights->findings.arrays;
    *tensor = NULL;
    if (i < 0 || i >= arrays->n)
        return attn__fail(arrays->context, ATTN_ERROR_ARGUMENT, "%s: there is no tensor %lld", arrays->file,
                          (long long)i);
    attn__arrays one = *arrays;
    one.items = &arrays->items[i];
    one.n = 1;
    attn_status status = attn__arrays_check_total(&one, &weights->options);
    if (status == ATTN_OK)
        status = attn__array_to_tensor(tensor, arrays, one.items, attn__array_dtype(one.items, &weights->options));
    if (status == ATTN_OK && (status = attn__weights_files_unchanged(&weights->files)) != ATTN_OK) {
        attn_tensor_destroy(*tensor);
        *tensor = NULL;
    }
    return status;
}
