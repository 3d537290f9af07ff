/* SPDX-License-Identifier: MIT
 *
 * Reads weights from several files. An index in Hugging Face's format, NAME.index.json, tells in which file each tensor
 * is. */
#include "io/tensors/weights_files.h"

#include "io/json.h"
#include "io/directory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ paths */

const char *attn__weights_file_in(const char *directory)
{
    static const char *const usual[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                        "pytorch_model.bin.index.json", "model.npz"};
    return attn__file_in(directory, usual, sizeof usual / sizeof *usual);
}

/* Chooses the standard file of weights in a directory. If there is none, the path stays NULL. */
static attn_status choose_in(attn__weights_files *files, const char *directory)
{
    const char *name = attn__weights_file_in(directory);
    files->path = name ? attn__join(files->context, directory, name) : NULL;
    return !name || files->path ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status choose(attn__weights_files *files, const char *path);

/* Chooses the base model of an adapter. Its path in the adapter's config can be relative to the adapter's directory or
 * to the working directory. */
static attn_status choose_base(attn__weights_files *files, const char *directory)
{
    const char *base = attn__adapter_base(&files->adapter);
    char *path = attn__join(files->context, directory, base);
    attn_status status = path ? ATTN_OK : ATTN_ERROR_MEMORY;
    bool here = path && *base && (attn_file_exists(path) || attn__is_directory(path));
    if (status == ATTN_OK && !here && !(*base && (attn_file_exists(base) || attn__is_directory(base))))
        status = attn__fail(
            files->context, ATTN_ERROR_NOT_FOUND,
            "%s: the weights that the adapter is for are missing: \"base_model_name_or_path\" is \"%.200s\", which "
            "does not exist, and there is no model.safetensors beside the adapter",
            directory, base);
    if (status == ATTN_OK)
        status = choose(files, here ? path : base);
    attn__free(files->context, path);
    return status;
}

static attn_status choose(attn__weights_files *files, const char *path)
{
    if (!attn__is_directory(path)) {
        files->path = attn__strdup(files->context, path);
        return files->path ? ATTN_OK : ATTN_ERROR_MEMORY;
    }
    bool adapted = attn__adapter_is_in(path);
    attn_status status = ATTN_OK;
    if (adapted && files->adapter.config)
        status = attn__fail(files->context, ATTN_ERROR_UNSUPPORTED,
                            "%s: the adapter's base model has an adapter of its own, which is not supported", path);
    if (status == ATTN_OK && adapted)
        status = attn__adapter_open(&files->adapter, files->context, path);
    if (status == ATTN_OK)
        status = choose_in(files, path);
    if (status != ATTN_OK || files->path)
        return status;
    if (adapted)
        return choose_base(files, path);
    return attn__fail(
        files->context, ATTN_ERROR_NOT_FOUND,
        "%s: the directory has no weights: neither model.safetensors nor pytorch_model.bin (or their .index.json) "
        "nor model.npz",
        path);
}

static bool is_index(const char *path)
{
    return strcmp(attn__path_extension(path), ".json") == 0;
}

attn_status attn__weights_files_open(attn__weights_files *files, attn_context *context, const char *path)
{
    *files = (attn__weights_files){.context = context, .find = files->find, .adapter = {.context = context}};
    attn_status status = choose(files, path);
    if (status != ATTN_OK || is_index(files->path))
        return status;
    files->parts = attn__alloc_zero(context, sizeof *files->parts);
    if (!files->parts)
        return ATTN_ERROR_MEMORY;
    files->n = 1;
    return attn__file_map(&files->parts->input, context, files->path);
}

attn_status attn__weights_files_unchanged(const attn__weights_files *files)
{
    attn_status status = attn__file_unchanged(&files->adapter.input);
    for (int64_t i = 0; i < files->n && status == ATTN_OK; i++)
        status = attn__file_unchanged(&files->parts[i].input);
    return status;
}

void attn__weights_files_close(attn__weights_files *files)
{
    for (int64_t i = 0; i < files->n; i++) {
        attn__file_unmap(&files->parts[i].input);
        attn__free(files->context, files->parts[i].path);
    }
    attn__adapter_close(&files->adapter);
    attn__free(files->context, files->parts);
    attn__free(files->context, files->path);
    *files = (attn__weights_files){.context = files->context};
}

/* ------------------------------------------------------------------------------------------------ index */

typedef struct place {
    const char *tensor, *file; /* name of a tensor, and name of its file; the parsed index owns both */
} place;

typedef struct index_reader {
    attn__weights_files *files;
    attn__findings *findings;
    place *places; /* sorted by file, and by tensor within a file */
    int64_t n;
} index_reader;

static int by_file(const void *a, const void *b)
{
    const place *x = a, *y = b;
    int files = strcmp(x->file, y->file);
    return files ? files : strcmp(x->tensor, y->tensor);
}

static attn_status fail(const index_reader *r, const char *format, const char *name)
{
    char what[300];
    snprintf(what, sizeof what, format, name);
    return attn__fail(r->files->context, ATTN_ERROR_FORMAT, "%s: %s", r->files->path, what);
}

/* Returns whether a part's name has no directory. Parts must be in the directory of their index. */
static bool is_plain_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/') && !strchr(name, '\\');
}

static attn_status read_places(index_reader *r, const json_t *map)
{
    const char *name;
    json_t *file;
    if (!json_is_object(map) || json_object_size(map) == 0)
        return fail(r, "the index has no \"%s\", an object that gives the file of each tensor", "weight_map");
    r->places = attn__alloc(r->files->context, attn__size_mul(json_object_size(map), sizeof *r->places));
    if (!r->places)
        return ATTN_ERROR_MEMORY;
    json_object_foreach((json_t *)(uintptr_t)map, name, file)
    {
        const char *text = json_string_value(file);
        if (!text || !is_plain_name(text))
            return fail(r, "the file of the tensor \"%.200s\" must be a name without a directory", name);
        r->places[r->n++] = (place){name, text};
    }
    qsort(r->places, (size_t)r->n, sizeof *r->places, by_file);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ parts */

/* Checks that a part contains exactly the tensors that the index assigns to it. Both lists of names are sorted. */
static attn_status compare_names(const index_reader *r, const attn__arrays *arrays, const place *places, int64_t n)
{
    const attn__array **sorted = attn__arrays_sorted(arrays);
    attn_status status = sorted ? ATTN_OK : ATTN_ERROR_MEMORY;
    int64_t i = 0, k = 0;
    while (status == ATTN_OK && (i < arrays->n || k < n)) {
        int order = i == arrays->n ? 1 : k == n ? -1 : strcmp(sorted[i]->name, places[k].tensor);
        if (order < 0)
            status =
                attn__fail(arrays->context, ATTN_ERROR_FORMAT,
                           "%s: the file has the tensor \"%.200s\", which the index %s does not assign to this file",
                           arrays->file, sorted[i]->name, r->files->path);
        else if (order > 0)
            status = attn__fail(arrays->context, ATTN_ERROR_FORMAT,
                                "%s: the file lacks the tensor \"%.200s\", which the index %s assigns to this file",
                                arrays->file, places[k].tensor, r->files->path);
        i++;
        k++;
    }
    attn__free(arrays->context, sorted);
    return status;
}

/* Appends the findings of a part to those of the earlier parts. If this fails, arrays that were not moved stay with the
 * part. */
static attn_status take(attn__findings *to, attn__findings *from)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < from->arrays.n && status == ATTN_OK; i++) {
        status = attn__arrays_add(&to->arrays, &from->arrays.items[i]);
        from->arrays.items[i].name = NULL;
    }
    if (status == ATTN_OK && from->notes.size > 0)
        status = attn__bytes_append(to->arrays.context, &to->notes, from->notes.data, from->notes.size);
    to->arrays.backing = attn__size_add(to->arrays.backing, from->arrays.backing);
    attn__findings_join_memory(to, from);
    return status;
}

static attn_status find_part(index_reader *r, attn__weights_part *part, const place *places, int64_t n)
{
    attn_context *context = r->files->context;
    part->path = attn__join_beside(context, r->files->path, places->file);
    if (!part->path)
        return ATTN_ERROR_MEMORY;
    attn_status status = attn__file_map(&part->input, context, part->path);
    if (status != ATTN_OK)
        return status;
    attn__findings found = {.arrays = {.context = context, .file = part->path, .backing = part->input.size},
                            .metadata = r->findings->metadata};
    status = r->files->find(&found, &part->input);
    if (status == ATTN_OK)
        status = compare_names(r, &found.arrays, places, n);
    if (status == ATTN_OK)
        status = take(r->findings, &found);
    attn__findings_clear(&found);
    return status;
}

static attn_status find_parts(index_reader *r)
{
    attn__weights_files *files = r->files;
    files->parts = attn__alloc_zero(files->context, attn__size_mul((size_t)r->n, sizeof *files->parts));
    if (!files->parts)
        return ATTN_ERROR_MEMORY;
    attn_status status = ATTN_OK;
    for (int64_t i = 0, end; i < r->n && status == ATTN_OK; i = end) {
        for (end = i + 1; end < r->n && strcmp(r->places[end].file, r->places[i].file) == 0; end++) {
        }
        status = find_part(r, &files->parts[files->n++], &r->places[i], end - i);
    }
    return status == ATTN_OK ? attn__arrays_check_names(&r->findings->arrays) : status;
}

static attn_status find_base(attn__weights_files *files, attn__findings *findings)
{
    enum { MAX_VALUES = 1 << 21 };
    index_reader r = {.files = files, .findings = findings};
    attn__input text;
    json_t *root = NULL;
    if (!is_index(files->path)) {
        findings->arrays.backing = files->parts->input.size;
        return files->find(findings, &files->parts->input);
    }
    attn_status status = attn__file_map(&text, files->context, files->path);
    if (status == ATTN_OK)
        status = attn__json_parse(&root, &text, 4, MAX_VALUES, 0);
    if (status == ATTN_OK)
        status = read_places(&r, json_object_get(root, "weight_map"));
    if (status == ATTN_OK)
        status = find_parts(&r);
    json_decref(root);
    attn__free(files->context, r.places);
    attn__file_unmap(&text);
    return status;
}

attn_status attn__weights_files_find(attn__weights_files *files, attn__findings *findings)
{
    attn_status status = find_base(files, findings);
    return status == ATTN_OK && files->adapter.config ? attn__adapter_merge(&files->adapter, findings) : status;
}

void attn__weights_files_drop(const void *user, const uint8_t *data, size_t size)
{
    const attn__weights_files *files = user;
    for (int64_t i = 0; i < files->n; i++) {
        const attn__input *input = &files->parts[i].input;
        /* pages of a mapping are read again from the file if they are needed again; other memory would be lost */
        if (input->mapped && data >= input->data && data < input->data + input->size)
            attn__system_drop_pages(data, size);
    }
}
