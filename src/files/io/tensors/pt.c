/* SPDX-License-Identifier: MIT
 *
 * Reads files of PyTorch's torch.save in the zip format. The entries are STEM/data.pkl, STEM/byteorder, and
 * STEM/data/KEY for each storage.
 */
#include "io/tensors/pt.h"
#include "io/tensors/zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct archive {
    attn__findings *findings;
    const attn__input *input;
    const attn__zip *zip;
    const char *stem; /* beginning of all entries' names, with the slash */
    size_t stem_size;
    const uint8_t **seen; /* address of each entry's bytes; NULL until the entry is first used */
} archive;

static attn_status read_entry(archive *a, const attn__zip_entry *entry, const uint8_t **bytes)
{
    const uint8_t **seen = &a->seen[entry - a->zip->entries];
    attn_status status = *seen ? ATTN_OK : attn__findings_entry(a->findings, a->zip, entry, seen);
    *bytes = *seen;
    return status;
}

/* Checks that the zip entry has enough bytes for `numel` elements. When an entry is first used, its checksum is
 * verified. */
static attn_status find_storage(void *user, const char *key, size_t key_size, uint64_t numel, size_t element,
                                attn__storage_bytes *bytes)
{
    archive *a = user;
    char name[96];
    int n = snprintf(name, sizeof name, "data/%.*s", key_size < 80 ? (int)key_size : 80, key);
    const attn__zip_entry *entry = attn__zip_find(a->zip, a->stem, a->stem_size, name, (size_t)n);
    if (!entry)
        return attn__fail(a->input->context, ATTN_ERROR_FORMAT, "%s: the storage \"%s\" is missing", a->input->name,
                          name);
    if (numel > entry->size / element)
        return attn__fail(a->input->context, ATTN_ERROR_FORMAT,
                          "%s: storage \"%s\" should have %" PRIu64 " elements of %zu bytes but has %zu bytes",
                          a->input->name, name, numel, element, entry->size);
    bytes->size = (size_t)numel * element;
    return read_entry(a, entry, &bytes->data);
}

/* Finds the entry STEM/data.pkl. STEM must not contain a slash. */
static const attn__zip_entry *find_pickle(archive *a)
{
    static const char name[] = "/data.pkl";
    const size_t size = sizeof name - 1;
    for (size_t i = 0; i < a->zip->n; i++) {
        const attn__zip_entry *entry = &a->zip->entries[i];
        const char *slash = memchr(entry->name, '/', entry->name_size);
        if (slash && (size_t)(entry->name + entry->name_size - slash) == size && memcmp(slash, name, size) == 0) {
            a->stem = entry->name;
            a->stem_size = entry->name_size - size + 1;
            return entry;
        }
    }
    return NULL;
}

static attn_status read_byte_order(archive *a, bool *swapped)
{
    const attn__zip_entry *entry = attn__zip_find(a->zip, a->stem, a->stem_size, "byteorder", 9);
    static const uint8_t nothing[8];
    const uint8_t *text = nothing;
    *swapped = false; /* default: older files are little endian and have no such entry */
    if (!entry)
        return ATTN_OK;
    attn_status status = read_entry(a, entry, &text);
    if (status == ATTN_OK && entry->size == 3 && memcmp(text, "big", 3) == 0)
        *swapped = true;
    else if (status == ATTN_OK && (entry->size != 6 || memcmp(text, "little", 6) != 0))
        status =
            attn__input_fail(a->input, ATTN_ERROR_FORMAT, entry->data, "byteorder is \"%.*s\"; expected little or big",
                             (int)(entry->size < 20 ? entry->size : 20), (const char *)text);
    return status;
}

/* The entry's name is in messages, because they give offsets in the entry. */
static attn_status walk_pickle(archive *a, const attn__zip_entry *entry)
{
    const uint8_t *text;
    char name[512];
    attn__pt pt = {.findings = a->findings, .find = find_storage, .user = a};
    attn_status status = read_byte_order(a, &pt.swapped);
    if (status == ATTN_OK)
        status = read_entry(a, entry, &text);
    if (status != ATTN_OK)
        return status;
    snprintf(name, sizeof name, "%s(data.pkl)", a->input->name);
    attn__input input = {.context = a->input->context, .name = name, .data = text, .size = entry->size};
    attn__pickle pickle;
    size_t offset = 0;
    pt.input = &input;
    pt.pickle = &pickle;
    status = attn__pickle_read(&pickle, &input, &offset);
    if (status == ATTN_OK)
        status = attn__pt_walk(&pt);
    attn__pickle_clear(&pickle);
    return status;
}

attn_status attn__pt_find_in(attn__findings *findings, const attn__zip *zip)
{
    archive a = {.findings = findings, .input = zip->input, .zip = zip};
    const attn__zip_entry *pickle = find_pickle(&a);
    if (!pickle)
        return attn__input_fail(
            zip->input, ATTN_ERROR_FORMAT, 0,
            "the zip archive has neither a data.pkl, as PyTorch's archives have, nor .npy files, as NumPy's; load the "
            "model in PyTorch, also from a .pt2, and save it with torch.save(model.state_dict(), FILE)");
    a.seen = attn__alloc_zero(zip->input->context, attn__size_mul(zip->n, sizeof *a.seen));
    if (!a.seen)
        return ATTN_ERROR_MEMORY;
    attn_status status = walk_pickle(&a, pickle);
    attn__free(zip->input->context, a.seen);
    return status == ATTN_OK ? attn__arrays_check_names(&findings->arrays) : status;
}

static attn_status find_in_zip(attn__findings *findings, const attn__input *input)
{
    attn__zip zip = {0};
    attn_status status = attn__zip_open(&zip, input);
    if (status == ATTN_OK)
        status = attn__pt_find_in(findings, &zip);
    attn__zip_close(&zip);
    return status;
}

attn_status attn__pt_find(attn__findings *findings, const attn__input *input)
{
    if (attn__zip_matches(input))
        return find_in_zip(findings, input);
    if (!attn__pt_legacy_matches(input))
        return attn__input_fail(input, ATTN_ERROR_FORMAT, 0,
                                "not a PyTorch file: neither a zip archive nor the form before PyTorch 1.6");
    attn_status status = attn__pt_legacy_find(findings, input);
    return status == ATTN_OK ? attn__arrays_check_names(&findings->arrays) : status;
}
