/* SPDX-License-Identifier: MIT */
#include "io/tensors/zip.h"

#include "base/context.h"
#include "base/parallel.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { STORED = 0, DEFLATED = 8 };
enum { LOCAL_SIZE = 30, CENTRAL_SIZE = 46, END_SIZE = 22, END64_SIZE = 56, LOCATOR_SIZE = 20, MAX_COMMENT = 65535 };

/* The end record of the archive's directory. A zip64 value replaces each field that is 0xffff.... */
typedef struct directory {
    uint64_t count, size, offset;
} directory;

static bool has_signature(const uint8_t *p, uint8_t third, uint8_t fourth)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == third && p[3] == fourth;
}

bool attn__zip_matches(const attn__input *input)
{
    return input->size >= 4 && (has_signature(input->data, 3, 4) || has_signature(input->data, 5, 6));
}

/* ------------------------------------------------------------------------------------- the directory's end */

/* Finds the end record of the directory. Searches backwards from the end of the file, because a comment of up to 65535
 * bytes may follow the record. */
static attn_status find_end(const attn__input *input, size_t *end)
{
    if (input->size >= END_SIZE) {
        size_t at = input->size - END_SIZE, last = at > MAX_COMMENT ? at - MAX_COMMENT : 0;
        for (;; at--) {
            if (has_signature(input->data + at, 5, 6) &&
                attn__read_u16(input->data + at + 20) == input->size - END_SIZE - at) {
                *end = at;
                return ATTN_OK;
            }
            if (at == last)
                break;
        }
    }
    return attn__input_fail(input, ATTN_ERROR_FORMAT, input->size, "zip: no directory at the end: the file is cut off");
}

/* Reads the zip64 end record. Its offset is in the locator, which is directly before the end record. */
static attn_status read_end64(const attn__input *input, size_t end, directory *d)
{
    const uint8_t *locator = input->data + end - LOCATOR_SIZE;
    uint64_t at = attn__read_u64(locator + 8);
    if (at > end - LOCATOR_SIZE || end - LOCATOR_SIZE - at < END64_SIZE || !has_signature(input->data + at, 6, 6))
        return attn__input_fail(input, ATTN_ERROR_FORMAT, end - LOCATOR_SIZE,
                                "zip: the end of the zip64 directory is missing");
    const uint8_t *p = input->data + at;
    *d = (directory){attn__read_u64(p + 32), attn__read_u64(p + 40), attn__read_u64(p + 48)};
    return ATTN_OK;
}

/* Checks that the directory is inside the file and large enough for the declared number of records. Without this check,
 * a small file could make the reader allocate memory for a huge number of records. */
static attn_status read_end(const attn__input *input, directory *d)
{
    size_t end = 0;
    attn_status status = find_end(input, &end);
    if (status != ATTN_OK)
        return status;
    const uint8_t *p = input->data + end;
    *d = (directory){attn__read_u16(p + 10), attn__read_u32(p + 12), attn__read_u32(p + 16)};
    if (end >= LOCATOR_SIZE && has_signature(p - LOCATOR_SIZE, 6, 7))
        status = read_end64(input, end, d);
    if (status == ATTN_OK && (d->offset > end || d->size > end - d->offset || d->count > d->size / CENTRAL_SIZE))
        status = attn__input_fail(input, ATTN_ERROR_FORMAT, end, "zip: the directory does not lie in the file");
    return status;
}

/* --------------------------------------------------------------------------------------------- entries */

/* Reads the zip64 extra field of a record. The field has, in a fixed order, those sizes and offsets of the record that
 * do not fit in 32 bits. */
static bool read_extra64(const uint8_t *p, size_t size, uint64_t *wide[3])
{
    while (size >= 4) {
        size_t id = attn__read_u16(p), length = attn__read_u16(p + 2);
        if (length > size - 4)
            return false;
        const uint8_t *field = p + 4, *end = field + length;
        for (int i = 0; i < 3 && id == 1; i++) {
            if (*wide[i] != UINT32_MAX)
                continue;
            if (end - field < 8)
                return false;
            *wide[i] = attn__read_u64(field);
            field += 8;
        }
        p = end;
        size -= 4 + length;
    }
    return true;
}

/* The number of bytes of an entry's name that a message shows. */
static int shown(const attn__zip_entry *entry)
{
    return entry->name_size < 100 ? (int)entry->name_size : 100;
}

/* Finds the packed bytes of an entry, which follow its local header. The lengths of the name and the extra field are
 * read from the local header, because they can differ from those in the directory. */
static attn_status locate_data(const attn__input *input, size_t limit, attn__zip_entry *entry)
{
    if (entry->header > limit || limit - entry->header < LOCAL_SIZE ||
        !has_signature(input->data + entry->header, 3, 4))
        return attn__input_fail(input, ATTN_ERROR_FORMAT, entry->header < input->size ? entry->header : input->size,
                                "zip: the local header of entry \"%.*s\" is not at the offset that the directory gives",
                                shown(entry), entry->name);
    const uint8_t *p = input->data + entry->header;
    size_t before = (size_t)LOCAL_SIZE + attn__read_u16(p + 26) + attn__read_u16(p + 28);
    if (before > limit - entry->header || entry->packed > limit - entry->header - before)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, entry->header, "zip: entry \"%.*s\" does not lie in the file",
                                shown(entry), entry->name);
    entry->data = entry->header + before;
    return ATTN_OK;
}

static attn_status check_method(const attn__input *input, size_t at, unsigned flags, const attn__zip_entry *entry)
{
    if (flags & 1)
        return attn__input_fail(input, ATTN_ERROR_UNSUPPORTED, at,
                                "zip: entry \"%.*s\" is encrypted, which is not supported", shown(entry), entry->name);
    if (entry->method != STORED && entry->method != DEFLATED)
        return attn__input_fail(input, ATTN_ERROR_UNSUPPORTED, at,
                                "zip: entry \"%.*s\" has compression method %u, which is not supported; expected 0 "
                                "(stored) or 8 (deflated)",
                                shown(entry), entry->name, entry->method);
    if (entry->method == STORED && entry->packed != entry->size)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, at,
                                "zip: entry \"%.*s\" is stored as it is, but its two sizes differ: %zu and %zu",
                                shown(entry), entry->name, entry->packed, entry->size);
    return ATTN_OK;
}

static attn_status read_entry(const attn__input *input, const directory *d, size_t *at, attn__zip_entry *entry)
{
    const uint8_t *p = input->data + *at;
    size_t left = (size_t)(d->offset + d->size) - *at;
    if (left < CENTRAL_SIZE || !has_signature(p, 1, 2))
        return attn__input_fail(input, ATTN_ERROR_FORMAT, *at, "zip: the directory is damaged");
    size_t name = attn__read_u16(p + 28), extra = attn__read_u16(p + 30), comment = attn__read_u16(p + 32);
    if (name + extra + comment > left - CENTRAL_SIZE)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, *at, "zip: the directory is damaged");
    uint64_t packed = attn__read_u32(p + 20), size = attn__read_u32(p + 24), header = attn__read_u32(p + 42);
    if (!read_extra64(p + CENTRAL_SIZE + name, extra, (uint64_t *[]){&size, &packed, &header}))
        return attn__input_fail(input, ATTN_ERROR_FORMAT, *at, "zip: an extra field of the directory is damaged");
    *entry = (attn__zip_entry){
        (const char *)p + CENTRAL_SIZE, name, attn__read_u16(p + 10), attn__read_u32(p + 16), packed, size, header, 0};
    attn_status status = check_method(input, *at, attn__read_u16(p + 8), entry);
    *at += CENTRAL_SIZE + name + extra + comment;
    return status == ATTN_OK ? locate_data(input, (size_t)d->offset, entry) : status;
}

static int compare_names(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static int by_name(const void *a, const void *b)
{
    const attn__zip_entry *x = a, *y = b;
    return compare_names(x->name, x->name_size, y->name, y->name_size);
}

static int by_place(const void *a, const void *b)
{
    const attn__zip_entry *x = a, *y = b;
    return (x->header > y->header) - (x->header < y->header);
}

/* Checks that no entries overlap. Overlapping entries, which no program writes, could make a small file expand to a
 * huge size. */
static attn_status check_entries(const attn__zip *zip)
{
    qsort(zip->entries, zip->n, sizeof *zip->entries, by_place);
    for (size_t i = 1; i < zip->n; i++)
        if (zip->entries[i].header < zip->entries[i - 1].data + zip->entries[i - 1].packed)
            return attn__input_fail(zip->input, ATTN_ERROR_FORMAT, zip->entries[i].header,
                                    "zip: the entries \"%.*s\" and \"%.*s\" overlap: the file is damaged",
                                    shown(&zip->entries[i - 1]), zip->entries[i - 1].name, shown(&zip->entries[i]),
                                    zip->entries[i].name);
    qsort(zip->entries, zip->n, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < zip->n; i++) {
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return attn__input_fail(zip->input, ATTN_ERROR_FORMAT, zip->entries[i].header,
                                    "zip: two entries have the name \"%.*s\"", shown(&zip->entries[i]),
                                    zip->entries[i].name);
    }
    return ATTN_OK;
}

attn_status attn__zip_open(attn__zip *zip, const attn__input *input)
{
    *zip = (attn__zip){.input = input};
    directory d;
    attn_status status = read_end(input, &d);
    if (status != ATTN_OK)
        return status;
    zip->entries = attn__alloc(input->context, attn__size_mul((size_t)d.count, sizeof *zip->entries));
    if (!zip->entries)
        return ATTN_ERROR_MEMORY;
    size_t at = (size_t)d.offset;
    while (zip->n < d.count && status == ATTN_OK) {
        status = read_entry(input, &d, &at, &zip->entries[zip->n]);
        zip->summed |= status == ATTN_OK && zip->entries[zip->n].crc != 0;
        zip->n += status == ATTN_OK;
    }
    return status == ATTN_OK ? check_entries(zip) : status;
}

void attn__zip_close(attn__zip *zip)
{
    attn__free(zip->input->context, zip->entries);
}

const attn__zip_entry *attn__zip_find(const attn__zip *zip, const char *prefix, size_t prefix_size, const char *name,
                                      size_t name_size)
{
    size_t low = 0, high = zip->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const attn__zip_entry *entry = &zip->entries[middle];
        size_t head = entry->name_size < prefix_size ? entry->name_size : prefix_size;
        int order = compare_names(prefix, prefix_size, entry->name, head);
        if (order == 0)
            order = compare_names(name, name_size, entry->name + head, entry->name_size - head);
        if (order == 0)
            return entry;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------- data */

static attn_status fail_entry(const attn__zip *zip, const attn__zip_entry *entry, const char *what)
{
    return attn__input_fail(zip->input, ATTN_ERROR_FORMAT, entry->data, "zip: entry \"%.*s\": %s", shown(entry),
                            entry->name, what);
}

/* All packed bytes must be used, and must give exactly entry->size bytes. */
static attn_status inflate_entry(const attn__zip *zip, const attn__zip_entry *entry, uint8_t *out)
{
    z_stream z = {.zalloc = attn__zlib_alloc, .zfree = attn__zlib_free, .opaque = zip->input->context};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return ATTN_ERROR_MEMORY;
    size_t in = entry->packed, room = entry->size;
    int code = Z_OK;
    z.next_in = (Bytef *)(uintptr_t)(zip->input->data + entry->data);
    z.next_out = out;
    while (code == Z_OK) {
        z.avail_in = in < 1u << 30 ? (uInt)in : 1u << 30;
        z.avail_out = room < 1u << 30 ? (uInt)room : 1u << 30;
        uInt in_before = z.avail_in, out_before = z.avail_out;
        code = inflate(&z, Z_NO_FLUSH);
        in -= in_before - z.avail_in;
        room -= out_before - z.avail_out;
    }
    inflateEnd(&z);
    if (code == Z_MEM_ERROR)
        return ATTN_ERROR_MEMORY;
    return code == Z_STREAM_END && room == 0 ? ATTN_OK : fail_entry(zip, entry, "compressed data are damaged");
}

/* The checksum of a large entry is combined from the checksums of PARTS parts. LEAST_PART is the minimum size of a part
 * in bytes. */
enum { PARTS = 16, LEAST_PART = 1 << 16 };

typedef struct checksum {
    const uint8_t *data;
    size_t size, each;
    uint32_t part[PARTS];
} checksum;

static size_t part_size(const checksum *c, int64_t i)
{
    size_t begin = (size_t)i * c->each;
    return begin >= c->size ? 0 : c->size - begin < c->each ? c->size - begin : c->each;
}

static void sum_part(void *user, int64_t item, int thread)
{
    checksum *c = user;
    (void)thread;
    c->part[item] = (uint32_t)crc32_z(0, c->data + (size_t)item * c->each, part_size(c, item));
}

/* Returns the checksum of the data. Several threads compute it, because checksums of a model's large entries would
 * otherwise take a third of the loading time. */
static uint32_t checksum_of(const attn_context *context, const uint8_t *data, size_t size)
{
    checksum c = {.data = data, .size = size, .each = size / PARTS + 1};
    if (size < (size_t)PARTS * LEAST_PART)
        return (uint32_t)crc32_z(0, data, size);
    attn__parallel_items(context->threads, PARTS, sum_part, &c);
    uint32_t sum = c.part[0];
    for (int64_t i = 1; i < PARTS; i++)
        sum = (uint32_t)crc32_combine(sum, c.part[i], (z_off_t)part_size(&c, i));
    return sum;
}

attn_status attn__zip_read(const attn__zip *zip, const attn__zip_entry *entry, uint8_t *out)
{
    const uint8_t *packed = zip->input->data + entry->data, *plain = out;
    if (entry->method == DEFLATED) {
        attn_status status = inflate_entry(zip, entry, out);
        if (status != ATTN_OK)
            return status;
    } else if (out) {
        memcpy(out, packed, entry->size);
    } else {
        plain = packed;
    }
    if (zip->summed && checksum_of(zip->input->context, plain, entry->size) != entry->crc)
        return fail_entry(zip, entry, "its checksum is wrong");
    return ATTN_OK;
}
