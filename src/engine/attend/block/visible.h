/* SPDX-License-Identifier: MIT
 *
 * visible.h - finds which keys a query attends.  Bands, lengths, a boolean mask, a mask of blocks, packed sequences and
 * the borders of windows can hide keys.  A block of queries and a block of keys are prepared once each.
 * attn__visible_of then classifies a tile of queries and keys: all pairs are visible, no pair is visible, or the tile
 * needs a mask.  attn__visible_bytes writes 0 for hidden pairs, and attn__visible_hide writes the score of a masked
 * key.  A solver's plan holds an attn__visible. Each thread has one attn__visible_rows and one attn__visible_keys.
 */
#ifndef ATTN_ATTEND_VISIBLE_H
#define ATTN_ATTEND_VISIBLE_H

#include "attend/problem/canonical.h"
#include "base/arena.h"
#include "base/integers.h"
#include "kernels/online_softmax/online_softmax.h"

/* Largest number of key axes that are limited. Each band, length, window and packed dim limits one key axis. */
enum { ATTN__VISIBLE_AXES = ATTN_MAX_BANDS + ATTN_MAX_WINDOWS + 2 };

/* The limits of keys in a problem. The plan makes one attn__visible, which all packed sequences use. */
typedef struct attn__visible {
    int axes;                     /* number of key axes along which bands, lengths or windows limit keys */
    int axis[ATTN__VISIBLE_AXES]; /* the indices of these key axes, without duplicates */
    bool ranges;                  /* a query attends one range of keys, because there is one key axis and no window */
    bool mask, blocks;
    bool windows;
    bool lens_by_query;
    bool fills; /* masked keys have the score problem.mask_fill */
} attn__visible;

/* Returns a tile size that is an equal part of a block of the mask, or several whole blocks. If that size exceeds
 * `most` or is no multiple of `step`, returns `otherwise`. */
static inline int64_t attn__visible_fit(int64_t block, int64_t most, int64_t step, int64_t otherwise)
{
    enum { LEAST = 32 };
    int64_t count = attn__ceil_div(block, most), size = block % count == 0 ? block / count : 0;
    if (block < LEAST)
        size = attn__round_up(LEAST, block);
    return size > 0 && size <= most && size % step == 0 ? size : otherwise;
}

/* Packed sequences run one by one (attn__sequence_at). */
void attn__visible_make(attn__visible *visible, const attn__canonical *canonical);
static inline bool attn__visible_masks(const attn__visible *visible)
{
    return visible->axes || visible->mask || visible->blocks;
}

/* Parts of a problem that can mask keys, as bits. */
enum {
    ATTN__VISIBLE_ALL = 0,    /* no part masks a key */
    ATTN__VISIBLE_LIMITS = 1, /* bands, lengths, windows */
    ATTN__VISIBLE_MASK = 2,
    ATTN__VISIBLE_BLOCKS = 4,
    ATTN__VISIBLE_ANY = 7,
    ATTN__VISIBLE_NONE = 8 /* all pairs of the tile are masked; this bit is never combined with others */
};

/* A block of queries. Arrays have one entry per query. Copies of the last entry pad them to a multiple of `lanes`. */
typedef struct attn__visible_rows {
    const attn__visible *visible;
    const attn__canonical *canonical;
    const attn__execution *arrays;
    unsigned parts; /* bits of the arrays that are present */
    int64_t first, count;
    /* Bands and lengths limit each query to the indices [from, to) along visible->axis[a]. */
    int32_t *from[ATTN__VISIBLE_AXES], *to[ATTN__VISIBLE_AXES];
    int32_t *begin, *end; /* range of keys of each query: from[0] and to[0] if visible->ranges is set, or all keys */
    /* With windows, an index is a tap. Taps [inside_from, inside_to) are inside of the axis. `length` is the first tap
     * past the length. `to` ignores the length, because the length does not apply to taps outside of the axis. */
    int32_t *inside_from[ATTN__VISIBLE_AXES], *inside_to[ATTN__VISIBLE_AXES], *length;
    int64_t *mask, *blocks; /* offset of each query; a pair's byte is at query offset + key offset */
} attn__visible_rows;

/* Reserves memory for `count` queries, a multiple of the lanes. `parts` selects the arrays that the solver reads. */
void attn__visible_rows_take(attn__visible_rows *rows, const attn__visible *visible, attn__arena *arena, int64_t count,
                             unsigned parts);
/* Prepares queries [first, first + count) of a batch index. Pads the arrays to a multiple of `lanes`. */
void attn__visible_rows_start(attn__visible_rows *rows, const attn__canonical *canonical, const attn__execution *arrays,
                              int64_t batch, int64_t first, int64_t count, int64_t lanes);

/* A block of keys or taps, which is the same for each batch index. */
typedef struct attn__visible_keys {
    const attn__visible *visible;
    unsigned parts;
    int64_t first, count;
    int32_t *index[ATTN__VISIBLE_AXES]; /* index of each key along visible->axis[a] */
    int64_t *mask, *blocks;             /* offset of each key in the mask and in the mask of blocks */
    bool adjacent;                      /* the keys' bytes in the mask are adjacent */
} attn__visible_keys;

void attn__visible_keys_take(attn__visible_keys *keys, const attn__visible *visible, attn__arena *arena, int64_t count,
                             unsigned parts);
void attn__visible_keys_start(attn__visible_keys *keys, const attn__canonical *canonical, int64_t first, int64_t count);

/* Ranges of keys along each axis for a group of queries. */
typedef struct attn__visible_span {
    int32_t begin[ATTN__VISIBLE_AXES], end[ATTN__VISIBLE_AXES];           /* no query has a key outside of this range */
    int32_t open_begin[ATTN__VISIBLE_AXES], open_end[ATTN__VISIBLE_AXES]; /* the limits mask no key in this range */
    int64_t first, last; /* [first, last) contains every key with a weight; with mask_fill it has all keys */
} attn__visible_span;

attn__visible_span attn__visible_span_of(const attn__visible_rows *rows, int64_t row, int64_t nrows);
/* Rows [row, row + nrows) of a block of queries and keys [key, key + nkeys) of a block of keys. */
typedef struct attn__visible_tile {
    const attn__visible_rows *rows;
    int64_t row, nrows;
    const attn__visible_keys *keys;
    int64_t key, nkeys;
} attn__visible_tile;

/* Returns bits of the parts that hide keys. ALL: no key is masked. NONE: all keys are masked and have no score; with
 * mask_fill the result is then ANY.  `span` belongs to the rows of the tile. If `span` is NULL, only the mask of blocks
 * is tested. */
unsigned attn__visible_of(const attn__visible_tile *tile, const attn__visible_span *span);
/* Sets out[r * ld + j] to 0 if `parts` hide key j from row r, otherwise to 1. With windows all parts are applied. */
void attn__visible_bytes(const attn__visible_tile *tile, unsigned parts, uint8_t *out, int64_t ld);
/* Sets s[j * width + r] = fill if `parts` hide key j from row r, with one query per lane. The problem must have no
 * windows.  `scratch` has the size of s and is used only with a mask.  If `scratch`
 * is s, then s receives flags for the kernel's `hide`: `fill` for a hidden pair, and another nonzero number for other
 * pairs. Several heads may share these flags. */
void attn__visible_hide(const attn__visible_tile *tile, unsigned parts, const attn__online_softmax_kernel *lanes,
                        float *s, int64_t width, float fill, float *scratch);

/* The kinds of pairs. OUT: no score. KEY: a computed score. FILL: masked, with the score problem.mask_fill. */
enum { ATTN__VISIBLE_OUT, ATTN__VISIBLE_KEY, ATTN__VISIBLE_FILL };
void attn__visible_kinds(const attn__visible_tile *tile, uint8_t *kinds);

/* Returns the logarithm to base 2 of a masked key's weight, in a row with mask_fill.  If masked keys have nearly all
 * weight, the weight is computed from the number of masked keys, because lse = fill + log(number) has lost its last
 * digits in f32. */
float attn__visible_fill_weight(const attn__visible_rows *rows, int64_t row, float lse);

#endif
