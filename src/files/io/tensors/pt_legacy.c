/* SPDX-License-Identifier: MIT
 * Reads PyTorch's format before 1.6. A file begins with five pickles: a magic number, a protocol, the system, the saved
 * object, and the keys of the storages. The storages follow in the order of the keys. Each is the number of its
 * elements (int64), followed by its elements. */
#include "io/tensors/pt_tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the first pickle: opcode LONG1 with the 10-byte magic number 0x1950a86a20f9469cfc6c, and opcode STOP. */
static const uint8_t magic[] = {0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

/* Returns the size in bytes of the first pickle, or 0 if the file has another format. The pickle has a header and the
 * magic number. From protocol 4 on, the header also has the length of a frame. */
static size_t magic_size(const attn__input *input)
{
    enum { PROTOCOL = 2, FRAME = 9 };
    size_t at = input->size > PROTOCOL && input->data[PROTOCOL] == 0x95 ? PROTOCOL + FRAME : PROTOCOL;
    bool is = input->size >= at + sizeof magic && input->data[0] == 0x80 && input->data[1] >= 2 &&
              input->data[1] <= 5 && memcmp(input->data + at, magic, sizeof magic) == 0;
    return is ? at + sizeof magic : 0;
}

bool attn__pt_legacy_matches(const attn__input *input)
{
    return magic_size(input) > 0;
}

/* A storage of the file. The pickled tree has a persistent id of each storage, from which the size of its elements is
 * known. The ids in unknown objects are also read, because the position of a storage depends on the sizes of all
 * storages before it. */
typedef struct storage {
    const char *key;
    size_t key_size;
    size_t element; /* size of an element in bytes; 0: not known yet */
    size_t place, size;
} storage;

typedef struct reader {
    const attn__input *input;
    storage *storages;
    storage **sorted;
    uint32_t n;
} reader;

static int by_key(const void *a, const void *b)
{
    const storage *x = *(const storage *const *)a, *y = *(const storage *const *)b;
    if (x->key_size != y->key_size)
        return x->key_size < y->key_size ? -1 : 1;
    return memcmp(x->key, y->key, x->key_size);
}

static storage *find_key(const reader *r, const char *key, size_t key_size)
{
    const storage wanted = {.key = key, .key_size = key_size}, *probe = &wanted;
    storage **found = r->n ? bsearch(&probe, r->sorted, r->n, sizeof *r->sorted, by_key) : NULL;
    return found ? *found : NULL;
}

static attn_status find_storage(void *user, const char *key, size_t key_size, uint64_t numel, size_t element,
                                attn__storage_bytes *bytes)
{
    reader *r = user;
    storage *s = find_key(r, key, key_size);
    if (!s)
        return attn__fail(r->input->context, ATTN_ERROR_FORMAT, "%s: the storage \"%.*s\" is missing", r->input->name,
                          key_size < 80 ? (int)key_size : 80, key);
    *bytes = (attn__storage_bytes){r->input->data + s->place, s->size};
    if (numel > s->size / element)
        return attn__fail(r->input->context, ATTN_ERROR_FORMAT,
                          "%s: storage \"%.*s\" should have %" PRIu64 " elements of %zu bytes but has %zu bytes",
                          r->input->name, key_size < 80 ? (int)key_size : 80, key, numel, element, s->size);
    return ATTN_OK;
}

static attn_status read_keys(reader *r, const attn__pickle *keys)
{
    const attn__pickle_node *list = &keys->nodes[keys->root];
    if (list->type != ATTN__NODE_LIST)
        return attn__fail(r->input->context, ATTN_ERROR_FORMAT, "%s: the storages' keys are not a list",
                          r->input->name);
    r->storages = attn__alloc_zero(r->input->context, attn__size_mul(list->count, sizeof *r->storages));
    r->sorted = attn__alloc(r->input->context, attn__size_mul(list->count, sizeof *r->sorted));
    if (!r->storages || !r->sorted)
        return ATTN_ERROR_MEMORY;
    for (uint32_t cell = list->first; cell; cell = keys->cells[cell].next) {
        const attn__pickle_node *key = &keys->nodes[keys->cells[cell].node];
        if (key->type != ATTN__NODE_TEXT)
            return attn__fail(r->input->context, ATTN_ERROR_FORMAT, "%s: a storage's key is not a text",
                              r->input->name);
        r->sorted[r->n] = &r->storages[r->n];
        r->storages[r->n++] = (storage){.key = key->text, .key_size = key->size};
    }
    qsort(r->sorted, r->n, sizeof *r->sorted, by_key);
    return ATTN_OK;
}

/* Stores the size of a storage's elements, which follows from the class in the storage's persistent id ('storage',
 * class, key, ...). */
static attn_status note_unit(reader *r, const attn__pickle *object, const attn__pickle_node *id)
{
    const attn__pickle_node *kind = attn__pickle_item(object, id, 0), *class = attn__pickle_item(object, id, 1);
    const attn__pickle_node *key = attn__pickle_item(object, id, 2);
    if (id->type != ATTN__NODE_TUPLE || !key || !attn__node_is_text(kind, "storage") || key->type != ATTN__NODE_TEXT)
        return ATTN_OK;
    storage *s = find_key(r, key->text, key->size);
    size_t unit = attn__pt_storage_unit(class);
    if (s && s->element && unit && s->element != unit)
        return attn__fail(r->input->context, ATTN_ERROR_FORMAT,
                          "%s: storage \"%.*s\" is used with elements of %zu bytes and of %zu bytes", r->input->name,
                          key->size < 80 ? (int)key->size : 80, key->text, s->element, unit);
    if (s && unit)
        s->element = unit;
    return ATTN_OK;
}

static attn_status note_units(reader *r, const attn__pickle *object)
{
    attn_status status = ATTN_OK;
    for (uint32_t i = 0; i < object->n_nodes && status == ATTN_OK; i++)
        if (object->nodes[i].type == ATTN__NODE_PERSISTENT)
            status = note_unit(r, object, &object->nodes[object->nodes[i].arguments]);
    return status;
}

static attn_status place_storages(reader *r, size_t offset)
{
    for (uint32_t i = 0; i < r->n; i++) {
        storage *s = &r->storages[i];
        if (r->input->size - offset < 8)
            return attn__input_fail(r->input, ATTN_ERROR_FORMAT, offset, "the file is cut off before a storage");
        uint64_t numel = attn__read_u64(r->input->data + offset);
        offset += 8;
        if (s->element == 0)
            return attn__input_fail(r->input, ATTN_ERROR_UNSUPPORTED, offset,
                                    "a storage has elements of an unknown type");
        if (numel > (r->input->size - offset) / s->element)
            return attn__input_fail(r->input, ATTN_ERROR_FORMAT, offset,
                                    "a storage has %" PRIu64
                                    " elements of %zu bytes, but the file ends after %zu bytes",
                                    numel, s->element, r->input->size - offset);
        s->place = offset;
        s->size = (size_t)numel * s->element;
        offset += s->size;
    }
    return ATTN_OK;
}

static attn_status walk(reader *r, attn__findings *findings, const attn__pickle *object, size_t offset)
{
    const attn__pt pt = {.findings = findings, .input = r->input, .pickle = object, .find = find_storage, .user = r};
    attn_status status = note_units(r, object);
    if (status == ATTN_OK)
        status = place_storages(r, offset);
    return status == ATTN_OK ? attn__pt_walk(&pt) : status;
}

/* Skips the pickles of the protocol and of the system. The system need not be checked, because PyTorch writes little
 * endian on all its platforms. */
static attn_status skip_pickles(const attn__input *input, size_t *offset)
{
    attn_status status = ATTN_OK;
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        attn__pickle pickle;
        status = attn__pickle_read(&pickle, input, offset);
        attn__pickle_clear(&pickle);
    }
    return status;
}

attn_status attn__pt_legacy_find(attn__findings *findings, const attn__input *input)
{
    reader r = {.input = input};
    attn__pickle object = {.context = input->context}, keys = {.context = input->context};
    size_t offset = magic_size(input);
    attn_status status = skip_pickles(input, &offset);
    if (status == ATTN_OK)
        status = attn__pickle_read(&object, input, &offset);
    if (status == ATTN_OK)
        status = attn__pickle_read(&keys, input, &offset);
    if (status == ATTN_OK)
        status = read_keys(&r, &keys);
    if (status == ATTN_OK)
        status = walk(&r, findings, &object, offset);
    attn__pickle_clear(&object);
    attn__pickle_clear(&keys);
    attn__free(input->context, r.storages);
    attn__free(input->context, r.sorted);
    return status;
}
