/* SPDX-License-Identifier: MIT
 *
 * Reads weights of any format from a path or from memory, into new tensors or into the tensors of a model.
 */
#include "io/tensors/weights.h"
#include "base/downloaded.h"

#include "base/integers.h"
#include "io/names/names.h"
#include "io/tensors/weights_files.h"
#include "tensor/tensor.h"
#include "io/tensors/formats.h"

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
    enum { HEAD = 64 }; /* size of the block's header, chosen so that the memory after it is aligned */
    char *block = attn__alloc(findings->arrays.context, attn__size_add(size, HEAD));
    if (!block)
        return NULL;
    memcpy(block, &findings->memory, sizeof findings->memory);
    findings->memory = block;
    return block + HEAD;
}

attn_status attn__findings_entry(attn__findings *findings, const attn__zip *zip, const attn__zip_entry *entry,
                                 const uint8_t **bytes)
{
    const attn__input *input = zip->input;
    size_t limit = attn__size_add(attn__size_mul(input->size, 64), (size_t)64 << 20);
    uint8_t *out = NULL;
    *bytes = input->data + entry->data;
    if (entry->method != 0) {
        if (entry->size > limit - findings->inflated)
            return attn__input_fail(input, ATTN_ERROR_FORMAT, entry->data,
                                    "zip: the decompressed entries need more than the limit of %zu bytes", limit);
        out = attn__findings_memory(findings, entry->size);
        if (!out)
            return ATTN_ERROR_MEMORY;
        findings->inflated += entry->size;
        findings->arrays.backing += entry->size;
        *bytes = out;
    }
    return attn__zip_read(zip, entry, out);
}

void attn__findings_clear(attn__findings *findings)
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

void attn__findings_join_memory(attn__findings *findings, attn__findings *other)
{
    void *last = other->memory, *next = last;
    while (next) {
        last = next;
        memcpy(&next, last, sizeof next);
    }
    if (last) {
        memcpy(last, &findings->memory, sizeof findings->memory);
        findings->memory = other->memory;
        other->memory = NULL;
    }
}

/* ---------------------------------------------------------------------------------------------- reading */

typedef attn_status (*find_function)(attn__findings *findings, const attn__input *input);

/* Finds the arrays of a zip file. A zip file with .npy files is NumPy's, and any other is PyTorch's. */
static attn_status find_in_zip(attn__findings *findings, const attn__input *input)
{
    attn__zip zip = {0};
    attn_status status = attn__zip_open(&zip, input);
    if (status == ATTN_OK)
        status = attn__npz_matches(&zip) ? attn__npz_find_in(findings, &zip) : attn__pt_find_in(findings, &zip);
    attn__zip_close(&zip);
    return status;
}

static attn_status find_in_npy(attn__findings *findings, const attn__input *input)
{
    attn__array array;
    attn_status status = attn__npy_find(&array, input);
    if (status != ATTN_OK)
        return status;
    array.name = attn__strdup(input->context, "array");
    return array.name ? attn__arrays_add(&findings->arrays, &array) : ATTN_ERROR_MEMORY;
}

static bool begins_with(const attn__input *input, const char *magic, size_t size)
{
    return input->size >= size && memcmp(input->data, magic, size) == 0;
}

/* Returns whether the input begins with a pickle protocol that PyTorch writes. */
static bool is_pickle(const attn__input *input)
{
    return begins_with(input, "\x80", 1) && input->size >= 2 && input->data[1] >= 2 && input->data[1] <= 5;
}

/* Returns the function that reads the input's format, which is recognized by its first bytes. No safetensors file
 * begins with the bytes of a zip file, a .npy file or a PyTorch file, because its header would be too long. */
static find_function finder_for(const attn__input *input)
{
    if (input->size >= 9 && input->data[8] == '{')
        return attn__safetensors_find;
    if (begins_with(input, "\x93NUMPY", 6))
        return find_in_npy;
    if (begins_with(input, "PK", 2))
        return attn__zip_matches(input) ? find_in_zip : attn__pt_find;
    return is_pickle(input) ? attn__pt_find : attn__safetensors_find;
}

static attn_status find_any(attn__findings *findings, const attn__input *input)
{
    attn_status status = attn__check_downloaded(input->context, input->name, input->data, input->size);
    return status == ATTN_OK ? finder_for(input)(findings, input) : status;
}

/* Renames the arrays by calling the caller's function. Arrays for which this function returns false are dropped. */
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
            status = ATTN_ERROR_MEMORY;
        if (array.name)
            arrays->items[kept++] = array;
    }
    arrays->n = kept;
    return status == ATTN_OK ? attn__arrays_check_names(arrays) : status;
}

static attn_status prepare(attn__findings *findings, attn_context *context, const char *file,
                           const attn_weights_options *options, attn_config *metadata)
{
    *findings = (attn__findings){.arrays = {.context = context, .file = file}, .metadata = metadata};
    if (ATTN__CHECK_RESERVED(context, options, attn_weights_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (options && options->reals != ATTN_F32 && options->reals != ATTN_F64)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "weights can be read as f32 or f64, not as %s",
                          attn_dtype_name(options->reals));
    return ATTN_OK;
}

static attn_status rename_found(attn__findings *findings, const attn_weights_options *options)
{
    attn_status status =
        options && options->names ? attn__names_apply(options->names, findings, options->allow_extra) : ATTN_OK;
    return status == ATTN_OK && options && options->rename ? rename_arrays(&findings->arrays, options) : status;
}

static void take_notes(attn__findings *findings, attn_bytes *report)
{
    if (report) {
        *report = findings->notes;
        findings->notes = (attn_bytes){0};
    }
}

static attn_status list_found(attn__findings *findings, attn_named_list *list, const attn_weights_options *options,
                              attn_bytes *report)
{
    attn_status status = attn__arrays_to_list(&findings->arrays, list, options);
    if (status == ATTN_OK)
        take_notes(findings, report);
    return status;
}

static attn_status read_into_list(find_function finder, const attn__input *input, attn_named_list *list,
                                  const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    attn__findings findings;
    if (report)
        *report = (attn_bytes){0};
    attn_status status = prepare(&findings, input->context, input->name, options, metadata);
    findings.arrays.backing = input->size;
    if (status == ATTN_OK)
        status = finder(&findings, input);
    if (status == ATTN_OK)
        status = rename_found(&findings, options);
    if (status == ATTN_OK)
        status = list_found(&findings, list, options, report);
    attn__findings_clear(&findings);
    return status;
}

static attn_status parse(find_function finder, attn_named_list *list, const void *data, size_t size, const char *name,
                         const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    ATTN__CALL(list->context);
    attn__input input = {.context = list->context, .name = name, .data = data, .size = size};
    return read_into_list(finder, &input, list, options, metadata, report);
}

attn_status attn_weights_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                               const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    return parse(find_any, list, data, size, name, options, metadata, report);
}

attn_status attn_safetensors_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                                   const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    return parse(attn__safetensors_find, list, data, size, name, options, metadata, report);
}

attn_status attn_pt_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                          const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    return parse(attn__pt_find, list, data, size, name, options, metadata, report);
}

attn_status attn_npz_parse(attn_named_list *list, const void *data, size_t size, const char *name,
                           const attn_weights_options *options, attn_config *metadata, attn_bytes *report)
{
    return parse(attn__npz_find, list, data, size, name, options, metadata, report);
}

attn_status attn__weights_find(attn__findings *findings, attn__weights_files *files, attn_context *context,
                               const char *path, const attn_weights_options *options, attn_config *metadata)
{
    *files = (attn__weights_files){.find = find_any};
    *findings = (attn__findings){.arrays = {.context = context}};
    attn_status status = attn__weights_files_open(files, context, path);
    if (status == ATTN_OK)
        status = prepare(findings, context, files->path, options, metadata);
    if (status == ATTN_OK)
        status = attn__weights_files_find(files, findings);
    if (status == ATTN_OK)
        status = rename_found(findings, options);
    findings->arrays.copied = attn__weights_files_drop;
    findings->arrays.user = files;
    return status;
}

attn_status attn_weights_read(attn_named_list *list, const char *path, const attn_weights_options *options,
                              attn_config *metadata, attn_bytes *report)
{
    attn__weights_files files;
    attn__findings findings;
    ATTN__CALL(list->context);
    if (report)
        *report = (attn_bytes){0};
    attn_status status = attn__weights_find(&findings, &files, list->context, path, options, metadata);
    int64_t before = list->n;
    if (status == ATTN_OK)
        status = list_found(&findings, list, options, report);
    if (status == ATTN_OK && (status = attn__weights_files_unchanged(&files)) != ATTN_OK)
        attn__named_shorten(list, before);
    attn__findings_clear(&findings);
    attn__weights_files_close(&files);
    return status;
}

/* ---------------------------------------------------------------------------------------------- loading */

attn_status attn_weights_load(attn_named_list *parameters, const char *path, const attn_weights_options *options,
                              attn_config *metadata, attn_bytes *report)
{
    attn__weights_files files;
    attn__findings findings;
    ATTN__CALL(parameters->context);
    if (report)
        *report = (attn_bytes){0};
    attn_status status = attn__weights_find(&findings, &files, parameters->context, path, options, metadata);
    if (status == ATTN_OK) {
        take_notes(&findings, report);
        status = attn__arrays_into(&findings.arrays, parameters, options, report);
    }
    if (status == ATTN_OK)
        status = attn__weights_files_unchanged(&files);
    attn__findings_clear(&findings);
    attn__weights_files_close(&files);
    return status;
}

attn_status attn_weights_bound(attn_context *context, const char *path, size_t *bytes)
{
    ATTN__CALL(context);
    attn__weights_files files = {.find = find_any};
    attn__findings findings = {.arrays = {.context = context}};
    attn_status status = attn__weights_files_open(&files, context, path);
    /* a single file need not be parsed, because its size is the size of the weights */
    if (status == ATTN_OK && files.n == 1)
        findings.arrays.backing = attn__size_add(files.parts->input.size, files.adapter.input.size);
    else if (status == ATTN_OK)
        status = attn__weights_files_find(&files, &findings);
    *bytes = attn__size_add(attn__size_mul(findings.arrays.backing, 16), (size_t)64 << 20);
    attn__findings_clear(&findings);
    attn__weights_files_close(&files);
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
        array.shape[i] = attn_tensor_length(named->tensor, i);
    attn__array_set_rows(&array);
    attn_status status = attn__tensor_must_have_data(arrays->context, named->tensor, named->name);
    if (status != ATTN_OK)
        return status;
    array.name = attn__strdup(arrays->context, named->name);
    return array.name ? attn__arrays_add(arrays, &array) : ATTN_ERROR_MEMORY;
}

attn_status attn__weights_assign(attn_named_list *parameters, const attn_named_list *source, const char *file,
                                 const attn_weights_options *options, attn_bytes *report)
{
    ATTN__CALL(parameters->context);
    if (report)
        *report = (attn_bytes){0};
    attn__arrays arrays = {.context = parameters->context, .file = file};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < source->n && status == ATTN_OK; i++)
        status = add_tensor(&arrays, &source->items[i]);
    if (status == ATTN_OK)
        status = attn__arrays_into(&arrays, parameters, options, report);
    attn__arrays_clear(&arrays);
    return status;
}

attn_status attn_weights_assign(attn_named_list *parameters, const attn_named_list *source,
                                const attn_weights_options *options, attn_bytes *report)
{
    if (report)
        *report = (attn_bytes){0};
    ATTN__CALL(parameters->context);
    attn__findings findings;
    attn_status status = prepare(&findings, parameters->context, "tensors", options, NULL);
    return status == ATTN_OK ? attn__weights_assign(parameters, source, "tensors", options, report) : status;
}

attn_status attn__weights_named(attn_named_list *list, const attn_named_list *source, const char *file,
                                const attn_weights_options *options)
{
    attn__findings findings;
    attn_status status = prepare(&findings, list->context, file, options, NULL);
    for (int64_t i = 0; i < source->n && status == ATTN_OK; i++) {
        status = add_tensor(&findings.arrays, &source->items[i]);
        findings.arrays.backing = attn__size_add(findings.arrays.backing, attn__tensor_bytes(source->items[i].tensor));
    }
    if (status == ATTN_OK)
        status = rename_found(&findings, options);
    if (status == ATTN_OK)
        status = list_found(&findings, list, options, NULL);
    attn__findings_clear(&findings);
    return status;
}
