/* SPDX-License-Identifier: MIT
 *
 * Reads NumPy's .npz files. A .npz file is a zip archive of .npy files, stored or deflated. Each .npy file has the name
 * of its array.
 */
#include "io/tensors/weights.h"

#include <stdio.h>
#include <string.h>

static const char ending[] = ".npy";

static bool is_array(const attn__zip_entry *entry)
{
    size_t size = sizeof ending - 1;
    return entry->name_size > size && memcmp(entry->name + entry->name_size - size, ending, size) == 0;
}

bool attn__npz_matches(const attn__zip *zip)
{
    for (size_t i = 0; i < zip->n; i++)
        if (is_array(&zip->entries[i]))
            return true;
    return false;
}

/* Adds the array in a zip entry. Its name is the name of the entry without ".npy". */
static attn_status add_array(attn__findings *findings, const attn__zip *zip, const attn__zip_entry *entry)
{
    enum { MAX_NAME = 1024 };
    size_t length = entry->name_size - (sizeof ending - 1);
    attn_context *context = zip->input->context;
    char name[512];
    attn__array array;
    if (length >= MAX_NAME)
        return attn__input_fail(zip->input, ATTN_ERROR_FORMAT, entry->header,
                                "zip: the name of an array has %zu bytes; at most %d are supported", length,
                                MAX_NAME - 1);
    if (memchr(entry->name, 0, length))
        return attn__input_fail(zip->input, ATTN_ERROR_FORMAT, entry->header,
                                "zip: the name of an array has a zero byte");
    snprintf(name, sizeof name, "%s(%.*s)", zip->input->name, (int)entry->name_size, entry->name);
    attn__input input = {.context = context, .name = name, .data = NULL, .size = entry->size};
    attn_status status = attn__findings_entry(findings, zip, entry, &input.data);
    if (status == ATTN_OK)
        status = attn__npy_find(&array, &input);
    if (status != ATTN_OK)
        return status;
    array.name = attn__alloc(context, length + 1);
    if (!array.name)
        return ATTN_ERROR_MEMORY;
    memcpy(array.name, entry->name, length);
    array.name[length] = '\0';
    return attn__arrays_add(&findings->arrays, &array);
}

attn_status attn__npz_find_in(attn__findings *findings, const attn__zip *zip)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < zip->n && status == ATTN_OK; i++) {
        const attn__zip_entry *entry = &zip->entries[i];
        status =
            is_array(entry)
                ? add_array(findings, zip, entry)
                : attn__findings_note(findings, "%s: \"%.*s\" is not a .npy file and was skipped", zip->input->name,
                                      entry->name_size < 100 ? (int)entry->name_size : 100, entry->name);
    }
    return status == ATTN_OK ? attn__arrays_check_names(&findings->arrays) : status;
}

attn_status attn__npz_find(attn__findings *findings, const attn__input *input)
{
    attn__zip zip = {0};
    if (!attn__zip_matches(input))
        return attn__input_fail(input, ATTN_ERROR_FORMAT, 0, "not a .npz file: not a zip");
    attn_status status = attn__zip_open(&zip, input);
    if (status == ATTN_OK)
        status = attn__npz_find_in(findings, &zip);
    attn__zip_close(&zip);
    return status;
}
