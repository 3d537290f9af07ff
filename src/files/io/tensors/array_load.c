/* SPDX-License-Identifier: MIT */
#include "io/names/names.h"

#include "tensor/packed_weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* Collects the differences between a file and a model. The report lists all differences, and the error message names
 * the first. */
typedef struct complaints {
    const attn__arrays *arrays;
    int64_t missing, extra, misshapen;
    attn_bytes report;
    attn_status status; /* status of writing `report` */
} complaints;

static void complain(complaints *c, int64_t *count, const char *kind, const char *name, const char *detail)
{
    ++*count;
    if (c->status == ATTN_OK)
        c->status = attn__bytes_appendf(c->arrays->context, &c->report, "%s: %s%s\n", kind, name, detail);
}

static const attn__array **find_array(const attn__array **sorted, int64_t n, char *name)
{
    const attn__array wanted = {.name = name}, *key = &wanted;
    return n ? bsearch(&key, sorted, (size_t)n, sizeof *sorted, attn__array_by_name) : NULL;
}

bool attn__array_fits(int rank, const int64_t *shape, const attn_tensor *tensor)
{
    const int64_t *wanted = attn_tensor_shape(tensor);
    int axes = attn_tensor_rank(tensor);
    while (rank == 2 && axes > 2 && wanted[axes - 1] == 1)
        axes--;
    return axes == rank && (rank == 0 || memcmp(shape, wanted, (size_t)rank * sizeof *shape) == 0);
}

static void complain_shape(complaints *c, const attn__array *array, const attn_tensor *tensor)
{
    char expected[128], found[128], detail[600];
    attn__array_shape_text(expected, attn_tensor_rank(tensor), attn_tensor_shape(tensor));
    attn__array_shape_text(found, array->rank, array->shape);
    snprintf(detail, sizeof detail, " expected %s, found %s%s%.300s%s", expected, found, array->origin ? " (of " : "",
             array->origin ? array->origin : "", array->origin ? ")" : "");
    complain(c, &c->misshapen, "misshapen", array->name, detail);
}

/* Returns whether an unused array shares its memory with a used array. Such an array may stay unused. PyTorch saves a
 * tied parameter under each of its names, and an embedding also as "lm_head.weight", but in this library a tied
 * parameter has only one name. Arrays with equal elements but different memory do not count, because two newly
 * initialized biases are equal too. */
static bool is_tied(const attn__array *array, const attn__array **matched, int64_t n)
{
    size_t axes = (size_t)array->rank * sizeof(int64_t);
    for (int64_t i = 0; i < n; i++) {
        const attn__array *other = matched[i];
        if (other && other->data == array->data && other->element == array->element && other->rank == array->rank &&
            attn__array_count(array) > 0 && memcmp(other->shape, array->shape, axes) == 0 &&
            memcmp(other->stride, array->stride, axes) == 0)
            return true;
    }
    return false;
}

/* Returns whether a parameter that is missing in the file may stay zero, because the names file allows this. */
static bool stays_zero(const attn_weights_options *options, const char *name)
{
    return options->names && attn__names_default(options->names, name);
}

/* Reports whether a tensor counts the batches of a batch norm, which PyTorch needs only without a momentum. As in
 * PyTorch, files of older versions may lack it, and a frozen norm ignores it: the model then has the norm's
 * running_var. */
static bool counts_batches(const attn__array **sorted, int64_t n, const bool *used, const char *name)
{
    static const char counter[] = "num_batches_tracked", beside[] = "running_var";
    char other[256];
    size_t length = strlen(name), stem = length < sizeof counter - 1 ? 0 : length - (sizeof counter - 1);
    if (strcmp(name + stem, counter) != 0 || (stem > 0 && name[stem - 1] != '.') || length >= sizeof other)
        return false;
    memcpy(other, name, stem);
    memcpy(other + stem, beside, sizeof beside);
    const attn__array **found = find_array(sorted, n, other);
    return found && used[found - sorted];
}

/* Finds the array for each parameter. matched[i] becomes the array of parameter i, or NULL if there is none. */
static void match(complaints *c, const attn_named_list *parameters, const attn__array **sorted, bool *used,
                  const attn__array **matched, const attn_weights_options *options)
{
    for (int64_t i = 0; i < parameters->n; i++) {
        const attn_named *parameter = &parameters->items[i];
        const attn__array **found = find_array(sorted, c->arrays->n, parameter->name);
        matched[i] = found ? *found : NULL;
        if (found)
            used[found - sorted] = true;
        if (!found && !options->allow_missing && !stays_zero(options, parameter->name) &&
            !counts_batches(sorted, c->arrays->n, used, parameter->name)) {
            char shape[128], detail[140];
            attn__array_shape_text(shape, attn_tensor_rank(parameter->tensor), attn_tensor_shape(parameter->tensor));
            snprintf(detail, sizeof detail, " %s", shape);
            complain(c, &c->missing, "missing", parameter->name, detail);
        } else if (found && !attn__array_fits((*found)->rank, (*found)->shape, parameter->tensor)) {
            complain_shape(c, *found, parameter->tensor);
        } else if (found && (*found)->element == ATTN__I8 && !(*found)->scales &&
                   attn_tensor_dtype(parameter->tensor) <= ATTN_F64) {
            complain(c, &c->misshapen, "misshapen", parameter->name, " is int8 without its scales");
        } else if (found && !attn__array_converts(*found, attn_tensor_dtype(parameter->tensor))) {
            complain(c, &c->misshapen, "misshapen", parameter->name, " is of a type that cannot be converted");
        }
    }
    for (int64_t i = 0; i < c->arrays->n && !options->allow_extra; i++) {
        char shape[128], detail[140];
        attn__array_shape_text(shape, sorted[i]->rank, sorted[i]->shape);
        snprintf(detail, sizeof detail, " %s", shape);
        if (!used[i] && !is_tied(sorted[i], matched, parameters->n) &&
            !counts_batches(sorted, c->arrays->n, used, sorted[i]->name))
            complain(c, &c->extra, "extra", sorted[i]->name, detail);
    }
}

static attn_status fail_complaints(const complaints *c)
{
    return attn__fail(c->arrays->context, ATTN_ERROR_SHAPE,
                      "%s: does not fit the model: %" PRId64 " parameters missing, %" PRId64 " extra, %" PRId64
                      " misshapen; %.*s",
                      c->arrays->file, c->missing, c->extra, c->misshapen,
                      (int)(c->report.size ? strcspn(c->report.data, "\n") : 0), c->report.size ? c->report.data : "");
}

/* A weight that is packed when it is loaded has f32 memory only during this function, so that at most one such weight
 * at a time needs f32 memory. */
static attn_status fill(const attn__arrays *arrays, const attn__array *array, attn_tensor *tensor)
{
    attn_status status = attn__weight_fill(tensor);
    if (status == ATTN_OK && array)
        status = attn__array_copy(arrays, array, attn_tensor_dtype(tensor), attn_tensor_data(tensor));
    else if (status == ATTN_OK)
        memset(attn_tensor_data(tensor), 0, attn__tensor_bytes(tensor));
    return status == ATTN_OK ? attn__weight_filled(tensor) : status;
}

/* All checks come first, so that a model is filled completely or not at all. Only one error is found later, during the
 * copy: an integer does not fit its parameter's type. */
static attn_status load(complaints *c, attn_named_list *parameters, const attn_weights_options *options)
{
    const attn__arrays *arrays = c->arrays;
    const attn__array **sorted = attn__arrays_sorted(arrays);
    bool *used = attn__alloc_zero(arrays->context, (size_t)arrays->n + 1);
    const attn__array **matched = attn__alloc(arrays->context, attn__size_mul((size_t)parameters->n, sizeof *matched));
    attn_status status = sorted && used && matched ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK) {
        match(c, parameters, sorted, used, matched, options);
        status = c->missing + c->extra + c->misshapen ? fail_complaints(c) : ATTN_OK;
    }
    for (int64_t i = 0; i < parameters->n && status == ATTN_OK; i++) {
        const attn_named *p = &parameters->items[i];
        status = p->tensor->packs_on_load ? ATTN_OK : attn__tensor_must_have_data(arrays->context, p->tensor, p->name);
    }
    for (int64_t i = 0; i < parameters->n && status == ATTN_OK; i++)
        if (matched[i] || stays_zero(options, parameters->items[i].name))
            status = fill(arrays, matched[i], parameters->items[i].tensor);
    attn__free(arrays->context, sorted);
    attn__free(arrays->context, used);
    attn__free(arrays->context, matched);
    return status;
}

attn_status attn__arrays_into(const attn__arrays *arrays, attn_named_list *parameters,
                              const attn_weights_options *options, attn_bytes *report)
{
    static const attn_weights_options defaults;
    complaints c = {.arrays = arrays};
    attn_status status = load(&c, parameters, options ? options : &defaults);
    if (report && status == ATTN_ERROR_SHAPE) {
        attn_bytes_free(arrays->context, report);
        *report = c.report;
    } else {
        attn_bytes_free(arrays->context, &c.report);
    }
    return status;
}
