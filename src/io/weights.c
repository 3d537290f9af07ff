/* SPDX-License-Identifier: MIT
 * Weights of any format: into new tensors, into a model's, by path or from memory. */
#include "io/weights.h"

#include "io/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------- findings */

attn_status attn__findings_note(attn__findings *findings, const char *format, ...)
{
    enum { MOST = 65536 };
    if (findings->notes.size > MOST)
        return ATTN_OK;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return attn__bytes_appendf(findings->arrays.context, &findings->notes, "%s\n", text);
}

void *attn__findings_memory(attn__findings *findings, size_t size)
{
    enum { HEAD = 64 }; /* keeps what follows aligned */
    char *block = attn__alloc(findings->arrays.context, attn__size_add(size, HEAD));
    if (!block)
        return NULL;
    memcpy(block, &findings->memory, sizeof findings->memory);
    findings->memory = block;
    return block + HEAD;
}

static void findings_clear(attn__findings *findings)
{
    attn_context *context = findings->arrays.context;
    attn__arrays_clear(&findings->arrays);
    attn_bytes_free(context, &findings->notes);
    while (findings->memory) {
        void *next;
        memcpy(&next, findings->memory, sizeof next);
        attn__free(context, findings->memory);
        findings->memory = next;
    }
}

/* ---------------------------------------------------------------------------------------------- reading */

typedef attn_status (*find_function)(attn__findings *findings, const attn__input *input);

/* A zip and the two older forms of PyTorch begin in ways that no header length of safetensors can. */
static find_function finder_for(const attn__input *input)
{
    if (input->size >= 2 && (memcmp(input->data, "PK", 2) == 0 || memcmp(input->data, "\x80\x02", 2) == 0))
        if (input->size < 9 || input->data[8] != '{')
            return attn__pt_find;
    return attn__safetensors_find;
}

/* Gives the arrays the names that the caller wants them to have; those without one are dropped. */
static attn_status rename_arrays(attn__arrays *arrays, const attn_weights_options *options)
{
    int64_t kept = 0;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < arrays->n; i++) {
        char name[512];
        attn__array array = arrays->items[i];
        bool wanted = status == ATTN_OK && options->rename(options->rename_user, array.name, name, sizeof name);
        attn__free(arrays->context, array.name);
        array.name = wanted ? attn__strdup(arrays->context, name) : NULL;
        if (wanted && !array.name)
            status = ATTN_MEMORY;
        if (array.name)
            arrays->items[kept++] = array;
    }
    arrays->n = kept;
    return status == ATTN_OK ? attn__arrays_check_names(arrays) : status;
}

static attn_status find(attn__findings *findings, find_function finder, const attn__input *input,
                        const attn_weights_options *options, attn_config *metadata)
{
    *findings = (attn__findings){.arrays = {.context = input->context, .file = input->name, .backing = input->size},
                                 .metadata = metadata};
    if (options && options->reals != ATTN_F32 && options->reals != ATTN_F64)
        return attn__fail(input->context, ATTN_ARGUMENT, "weights are read as f32 or f64, not %s",
                          attn_dtype_name(options->reals));
    attn_status status = finder(findings, input);
    return status == ATTN_OK && options && options->rename ? rename_arrays(&findings->arrays, options) : status;
}

static attn_status read_into_list(find_function finder, const attn__input *input, attn_named_list *list,
                                  const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    attn__findings findings;
    if (report)
        *report = (attn_bytes){0};
    attn_status status = find(&findings, finder, input, options, metadata);
    if (status == ATTN_OK)
        status = attn__arrays_to_list(&findings.arrays, list, options);
    if (status == ATTN_OK && report) {
        *report = findings.notes;
        findings.notes = (attn_bytes){0};
    }
    findings_clear(&findings);
    return status;
}

attn_status attn_weights_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                               const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    attn__call_begin(list->context);
    attn__input input = {list->context, name, data, size};
    return read_into_list(finder_for(&input), &input, list, options, metadata, report);
}

attn_status attn_safetensors_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                                   const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    attn__call_begin(list->context);
    attn__input input = {list->context, name, data, size};
    return read_into_list(attn__safetensors_find, &input, list, options, metadata, report);
}

attn_status attn_pt_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                          const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    attn__call_begin(list->context);
    attn__input input = {list->context, name, data, size};
    return read_into_list(attn__pt_find, &input, list, options, metadata, report);
}

attn_status attn_weights_read(attn_named_list *list, const char *path, const attn_weights_options *options,
                              attn_config *metadata, attn_bytes *report)
{
    attn__call_begin(list->context);
    if (report)
        *report = (attn_bytes){0};
    attn__input input;
    attn_status status = attn__file_map(&input, list->context, path);
    if (status == ATTN_OK)
        status = read_into_list(finder_for(&input), &input, list, options, metadata, report);
    attn__file_unmap(&input);
    return status;
}

/* ---------------------------------------------------------------------------------------------- loading */

attn_status attn_weights_load(attn_named_list *parameters, const char *path, const attn_weights_options *options,
                              attn_config *metadata, attn_bytes *report)
{
    attn__call_begin(parameters->context);
    if (report)
        *report = (attn_bytes){0};
    attn__input input;
    attn__findings findings = {0};
    attn_status status = attn__file_map(&input, parameters->context, path);
    if (status != ATTN_OK)
        return status;
    status = find(&findings, finder_for(&input), &input, options, metadata);
    if (status == ATTN_OK && report) {
        *report = findings.notes;
        findings.notes = (attn_bytes){0};
    }
    if (status == ATTN_OK)
        status = attn__arrays_into(&findings.arrays, parameters, options, report);
    findings_clear(&findings);
    attn__file_unmap(&input);
    return status;
}

attn_status attn_weights_bound(attn_context *context, const char *path, size_t *bytes)
{
    attn__call_begin(context);
    int descriptor;
    size_t size = 0;
    attn_status status = attn__file_open(context, path, &descriptor, &size);
    if (status == ATTN_OK)
        close(descriptor);
    *bytes = attn__size_add(attn__size_mul(size, 16), (size_t)64 << 20);
    return status;
}

static attn__element element_of(attn_dtype dtype)
{
    static const attn__element elements[] = {
        [ATTN_F32] = ATTN__F32, [ATTN_BF16] = ATTN__BF16, [ATTN_F64] = ATTN__F64, [ATTN_F16] = ATTN__F16,
        [ATTN_I32] = ATTN__I32, [ATTN_I64] = ATTN__I64,   [ATTN_U8] = ATTN__U8,   [ATTN_BOOL] = ATTN__BOOL,
    };
    return elements[dtype];
}

static attn_status add_tensor(attn__arrays *arrays, const attn_named *named)
{
    attn__array array = {.element = element_of(attn_tensor_dtype(named->tensor)),
                         .rank = attn_tensor_rank(named->tensor),
                         .data = attn_tensor_data(named->tensor)};
    for (int i = 0; i < array.rank; i++)
        array.shape[i] = attn_tensor_dim(named->tensor, i);
    attn__array_set_rows(&array);
    array.name = attn__strdup(arrays->context, named->name);
    return array.name ? attn__arrays_add(arrays, &array) : ATTN_MEMORY;
}

attn_status attn_weights_assign(attn_named_list *parameters, const attn_named_list *source,
                                const attn_weights_options *options, attn_bytes *report)
{
    attn__call_begin(parameters->context);
    if (report)
        *report = (attn_bytes){0};
    attn__arrays arrays = {.context = parameters->context, .file = "tensors"};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < source->n && status == ATTN_OK; i++)
        status = add_tensor(&arrays, &source->items[i]);
    if (status == ATTN_OK)
        status = attn__arrays_into(&arrays, parameters, options, report);
    attn__arrays_clear(&arrays);
    return status;
}
