/* SPDX-License-Identifier: MIT
 *
 * Implements sets of images. Pixels are stored in blocks that are never moved, so a part of a set can be a list of
 * pointers to the pixels of the whole set.
 */
#include "data/images.h"

#include "base/context.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

typedef struct item {
    const unsigned char *pixels;
    uint64_t key;
    int32_t label;
} item;

typedef struct block {
    struct block *next;
    size_t used, size;
    unsigned char bytes[];
} block;

enum { BLOCK = 1 << 20, MOST_SIDE = 4096, MOST_FRAMES = 4096 };

struct attn_image_set {
    attn_context *context;
    attn_image_shape shape;
    item *items;
    int64_t n, capacity, classes;
    block *blocks; /* blocks of pixels, the newest first; NULL: the set is a part of another set */
    bool is_a_part;
};

static size_t image_bytes(const attn_image_set *set)
{
    return (size_t)attn__image_numbers(set->shape);
}

attn_status attn_image_set_create(attn_image_set **set, attn_context *context, attn_image_shape s)
{
    ATTN__CALL(context);
    *set = NULL;
    s.frames = s.frames ? s.frames : 1;
    if (s.frames < 1 || s.frames > MOST_FRAMES)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the videos have %lld frames; 1 to %d are supported",
                          (long long)s.frames, (int)MOST_FRAMES);
    if (s.width < 1 || s.height < 1 || s.width > MOST_SIDE || s.height > MOST_SIDE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the images have %lld x %lld pixels; each side must be 1 to %d",
                          (long long)s.width, (long long)s.height, (int)MOST_SIDE);
    if (s.channels != 1 && s.channels != 3)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the images have %lld channels; expected 1 or 3",
                          (long long)s.channels);
    *set = attn__alloc_zero(context, sizeof **set);
    if (!*set)
        return ATTN_ERROR_MEMORY;
    (*set)->context = context;
    (*set)->shape = s;
    return ATTN_OK;
}

void attn_image_set_destroy(attn_image_set *set)
{
    if (!set)
        return;
    while (set->blocks) {
        block *next = set->blocks->next;
        attn__free(set->context, set->blocks);
        set->blocks = next;
    }
    attn__free(set->context, set->items);
    attn__free(set->context, set);
}

/* --------------------------------------------------------------------------------------------- adding */

static attn_status reserve(attn_image_set *set, int64_t n)
{
    if (n <= set->capacity)
        return ATTN_OK;
    int64_t capacity = n > 2 * set->capacity ? n : 2 * set->capacity;
    item *items = attn__realloc(set->context, set->items, attn__size_mul((size_t)capacity, sizeof *items));
    if (!items)
        return ATTN_ERROR_MEMORY;
    set->items = items;
    set->capacity = capacity;
    return ATTN_OK;
}

static unsigned char *pixels_new(attn_image_set *set)
{
    size_t size = image_bytes(set), whole = size > BLOCK ? size : BLOCK;
    if (!set->blocks || set->blocks->size - set->blocks->used < size) {
        block *b = attn__alloc(set->context, sizeof *b + whole);
        if (!b)
            return NULL;
        *b = (block){.next = set->blocks, .size = whole};
        set->blocks = b;
    }
    unsigned char *pixels = set->blocks->bytes + set->blocks->used;
    set->blocks->used += size;
    return pixels;
}

static void append(attn_image_set *set, item it)
{
    set->items[set->n++] = it;
    set->classes = it.label + 1 > set->classes ? it.label + 1 : set->classes;
}

attn_status attn_image_set_add(attn_image_set *set, const unsigned char *pixels, int32_t label, uint64_t key)
{
    ATTN__CALL(set->context);
    if (set->is_a_part)
        return attn__fail(set->context, ATTN_ERROR_ARGUMENT,
                          "images cannot be added to a set that is a part of another");
    if (label < 0 || label == INT32_MAX)
        return attn__fail(set->context, ATTN_ERROR_ARGUMENT, "the label of an image is %d; it must be 0 to %d", label,
                          (int)INT32_MAX - 1);
    attn_status status = reserve(set, set->n + 1);
    unsigned char *copy = status == ATTN_OK ? pixels_new(set) : NULL;
    if (!copy)
        return ATTN_ERROR_MEMORY;
    memcpy(copy, pixels, image_bytes(set));
    append(set, (item){copy, key, label});
    return ATTN_OK;
}

/* -------------------------------------------------------------------------------------------- looking */

attn_image_shape attn_image_set_shape(const attn_image_set *set)
{
    return set->shape;
}

int64_t attn_image_set_size(const attn_image_set *set)
{
    return set->n;
}

int64_t attn_image_set_classes(const attn_image_set *set)
{
    return set->classes;
}

const unsigned char *attn_image_set_pixels(const attn_image_set *set, int64_t i)
{
    return set->items[i].pixels;
}

int32_t attn_image_set_label(const attn_image_set *set, int64_t i)
{
    return set->items[i].label;
}

/* Computes mean and deviation from sums of integers. Such sums are exact, so the result does not depend on the order
 * of the images. */
void attn_image_set_statistics(const attn_image_set *set, float *mean, float *std)
{
    int64_t channels = set->shape.channels, samples = (int64_t)image_bytes(set) / channels;
    for (int64_t c = 0; c < channels; c++) {
        uint64_t sum = 0, squares = 0;
        for (int64_t i = 0; i < set->n; i++) {
            const unsigned char *p = set->items[i].pixels + c;
            for (int64_t k = 0; k < samples; k++, p += channels) {
                sum += *p;
                squares += (uint64_t)*p * *p;
            }
        }
        double n = set->n > 0 ? (double)set->n * (double)samples : 1, m = (double)sum / n;
        double variance = (double)squares / n - m * m;
        mean[c] = (float)(m / 255);
        std[c] = variance > 0 ? (float)(sqrt(variance) / 255) : 1;
    }
}

uint64_t attn_image_set_fingerprint(const attn_image_set *set)
{
    size_t size = image_bytes(set);
    uint64_t hash = attn__mix64((uint64_t)set->shape.width << 32 ^ (uint64_t)set->shape.channels ^
                                (uint64_t)(set->shape.frames - 1) << 16);
    for (int64_t i = 0; i < set->n; i++) {
        const unsigned char *pixels = set->items[i].pixels;
        hash = attn__mix64(hash ^ (uint64_t)set->items[i].label);
        for (size_t k = 0; k < size; k += 8) {
            uint64_t word = 0;
            memcpy(&word, pixels + k, size - k < 8 ? size - k : 8);
            hash = attn__mix64(hash ^ word);
        }
    }
    return hash;
}

/* ---------------------------------------------------------------------------------------------- parts */

enum { TRAIN, VALID, TEST, PARTS };

static int part_of(const item *it, uint64_t seed, double valid, double test)
{
    double u = (double)(attn__mix64(it->key ^ attn__mix64(seed)) >> 11) * 0x1p-53;
    return u < test ? TEST : u < test + valid ? VALID : TRAIN;
}

attn_status attn_image_set_split(attn_image_set **train, attn_image_set **valid, attn_image_set **test,
                                 const attn_image_set *all, uint64_t seed, double valid_share, double test_share)
{
    ATTN__CALL(all->context);
    attn_image_set **wanted[PARTS] = {train, valid, test};
    int64_t counts[PARTS] = {0};
    attn_status status = ATTN_OK;
    for (int p = 0; p < PARTS; p++)
        if (wanted[p])
            *wanted[p] = NULL;
    if (!(valid_share >= 0 && test_share >= 0))
        return attn__fail(all->context, ATTN_ERROR_ARGUMENT, "split: the share for %s is %g; it must be at least 0",
                          valid_share >= 0 ? "test" : "validation", valid_share >= 0 ? test_share : valid_share);
    if (!(valid_share + test_share < 1))
        return attn__fail(all->context, ATTN_ERROR_ARGUMENT,
                          "split: the shares are %g for validation and %g for test; their sum must be below 1",
                          valid_share, test_share);
    for (int64_t i = 0; i < all->n; i++)
        counts[part_of(&all->items[i], seed, valid_share, test_share)]++;
    for (int p = 0; p < PARTS && status == ATTN_OK; p++) {
        status = wanted[p] ? attn_image_set_create(wanted[p], all->context, all->shape) : ATTN_OK;
        if (status == ATTN_OK && wanted[p]) {
            (*wanted[p])->is_a_part = true;
            status = reserve(*wanted[p], counts[p] > 0 ? counts[p] : 1);
        }
    }
    for (int64_t i = 0; i < all->n && status == ATTN_OK; i++) {
        attn_image_set **part = wanted[part_of(&all->items[i], seed, valid_share, test_share)];
        if (part)
            append(*part, all->items[i]);
    }
    for (int p = 0; p < PARTS && status != ATTN_OK; p++) {
        if (wanted[p]) {
            attn_image_set_destroy(*wanted[p]);
            *wanted[p] = NULL;
        }
    }
    return status;
}
