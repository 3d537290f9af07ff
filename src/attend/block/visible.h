/* SPDX-License-Identifier: MIT
 *
 * visible.h - which keys a query attends: by bands, lengths, a boolean mask, the mask of blocks, packed sequences and
 * the borders of windows.
 *
 * A block of queries and a block of keys are prepared once each; then attn__visible_of finds whether all pairs of any
 * part of both, a tile, are visible, none, or which limits are left to apply: a range of keys for each query, or bytes.
 * Where a query may not see a key, attn__visible_bytes has 0 and attn__visible_hide puts the score of masked keys in
 * place.
 *
 * A solver's plan holds an attn__visible; its memory, one attn__visible_rows and one attn__visible_keys a thread.
 */
#ifndef ATTN_ATTEND_VISIBLE_H
#define ATTN_ATTEND_VISIBLE_H

#include "attend/problem/canonical.h"
#include "base/arena.h"
#include "base/integers.h"
#include "kernels/online_softmax/online_softmax.h"

/* Bands, lengths, windows and the packed dim: each names one key axis. */
enum { ATTN__VISIBLE_AXES = ATTN_MAX_BANDS + ATTN_MAX_WINDOWS + 2 };

/* The limits of keys in a problem; made once with the plan, and the same for each of its packed sequences. */
typedef struct attn__visible {
    int axes; /* key axes along which bands, lengths, windows or the ends of sequences limit keys, */
    int axis[ATTN__VISIBLE_AXES]; /* these axes, each once */
    bool ranges;                  /* each query has one range of keys: there is one key axis and no window */
    bool mask, blocks;
    bool windows;
    bool lens_by_query; /* lengths depend on the query */
    bool fills;         /* masked keys have the score problem.mask_fill */
    bool padded;        /* packed sequences are read by their padded indices, not by attn__sequence_at */
} attn__visible;

/* The size of tiles whose keys a block of the mask shows or hides as a whole: the largest part of a block, or number of
 * whole ones, up to `most`; `otherwise` if there is none that is a multiple of `step`. */
static inline int64_t attn__visible_fit(int64_t block, int64_t most, int64_t step, int64_t otherwise)
{
    enum { LEAST = 32 };
    int64_t count = attn__ceil_div(block, most), size = block % count == 0 ? block / count : 0;
    if (block < LEAST)
        size = attn__round_up(LEAST, block);
    return size > 0 && size <= most && size % step == 0 ? size : otherwise;
}

/* `padded`: of packed sequences, the canonical problem and the arrays will be those of the whole batch. */
void attn__visible_make(attn__visible *visible, const attn__canonical *canonical, bool padded);
/* Whether some pair may be masked. */
static inline bool attn__visible_masks(const attn__visible *visible)
{
    return visible->axes || visible->mask || visible->blocks;
}

/* The parts of a problem that can mask keys, as bits. */
enum {
    ATTN__VISIBLE_ALL = 0,    /* nothing */
    ATTN__VISIBLE_LIMITS = 1, /* bands, lengths, ends of sequences, windows */
    ATTN__VISIBLE_MASK = 2,
    ATTN__VISIBLE_BLOCKS = 4,
    ATTN__VISIBLE_ANY = 7,
    ATTN__VISIBLE_NONE = 8 /* no query of the tile sees a key of it: alone */
};

/* A block of queries. The arrays have an entry for each query, padded to a multiple of `lanes` with the last entry. */
typedef struct attn__visible_rows {
    const attn__visible *visible;
    const attn__canonical *canonical;
    const attn_arrays *arrays;
    unsigned parts; /* bits of the arrays that are present */
    int64_t first, count;
    /* With visible->padded: number of keys of the sequence; later keys do not exist and have no mask_fill. */
    int64_t keys;
    /* [from, to) are the indices along visible->axis[a] that bands, lengths and ends of sequences leave.  With
     * visible->ranges, from[0] and to[0] are always there and hold keys. */
    int32_t *from[ATTN__VISIBLE_AXES], *to[ATTN__VISIBLE_AXES];
    /* With windows, indices are taps: those that are inside, and those before the length, which does not apply to taps
     * outside and is not in `to` then. */
    int32_t *inside_from[ATTN__VISIBLE_AXES], *inside_to[ATTN__VISIBLE_AXES], *length;
    int64_t *mask, *blocks; /* offsets of the query; the byte of a pair is at the sum of both offsets */
} attn__visible_rows;

/* Memory for up to `count` queries (a multiple of the lanes); `parts`: which arrays the solver reads. */
void attn__visible_rows_take(attn__visible_rows *rows, const attn__visible *visible, attn__arena *arena, int64_t count,
                             unsigned parts);
/* Queries [first, first + count) of a batch index; fills arrays up to a multiple of `lanes`. */
void attn__visible_rows_start(attn__visible_rows *rows, const attn__canonical *canonical, const attn_arrays *arrays,
                              int64_t batch, int64_t first, int64_t count, int64_t lanes);

/* A block of keys, or taps; the same for each batch index. */
typedef struct attn__visible_keys {
    const attn__visible *visible;
    unsigned parts;
    int64_t first, count;
    int32_t *index[ATTN__VISIBLE_AXES]; /* index along visible->axis[a] */
    int64_t *mask, *blocks;             /* offsets of the key */
    bool adjacent;                      /* the mask bytes of the keys are adjacent */
} attn__visible_keys;

void attn__visible_keys_take(attn__visible_keys *keys, const attn__visible *visible, attn__arena *arena, int64_t count,
                             unsigned parts);
void attn__visible_keys_start(attn__visible_keys *keys, const attn__canonical *canonical, int64_t first, int64_t count);

/* The key range along each axis that some queries have in common. */
typedef struct attn__visible_span {
    int32_t begin[ATTN__VISIBLE_AXES], end[ATTN__VISIBLE_AXES];           /* outside this range no query has a key */
    int32_t open_begin[ATTN__VISIBLE_AXES], open_end[ATTN__VISIBLE_AXES]; /* inside this range the limits mask no key */
    int64_t first, last; /* all keys that may have a weight are in [first, last); with mask_fill these are all keys */
} attn__visible_span;

attn__visible_span attn__visible_span_of(const attn__visible_rows *rows, int64_t row, int64_t nrows);
/* Rows [row, row + nrows) of a block of queries and keys [key, key + nkeys) of a block of keys. */
typedef struct attn__visible_tile {
    const attn__visible_rows *rows;
    int64_t row, nrows;
    const attn__visible_keys *keys;
    int64_t key, nkeys;
} attn__visible_tile;

/* The parts that hide keys of the tile: ALL and NONE are certain; NONE disregards mask_fill.  `span` is that of the
 * tile's rows; NULL: the mask of blocks alone decides. */
unsigned attn__visible_of(const attn__visible_tile *tile, const attn__visible_span *span);
/* out[r * ld + j] = 1 where `parts` leave row r its key j, else 0.  With windows all parts count. */
void attn__visible_bytes(const attn__visible_tile *tile, unsigned parts, uint8_t *out, int64_t ld);
/* s[j * width + r], one query per lane, becomes `fill` where `parts` hide key j from row r; not for windows, nor for
 * padded sequences with mask_fill.  `scratch` has the size of s, and is used by a mask only.  If it is s itself, s gets
 * flags for the kernel's `hide`, which several heads may share: not 0, and `fill` for a hidden pair. */
void attn__visible_hide(const attn__visible_tile *tile, unsigned parts, const attn__online_softmax_kernel *lanes,
                        float *s, int64_t width, float fill, float *scratch);

/* Kinds of pairs: OUT takes no part, KEY has its own score, FILL is masked and has the score problem.mask_fill. */
enum { ATTN__VISIBLE_OUT, ATTN__VISIBLE_KEY, ATTN__VISIBLE_FILL };
/* Finds the kinds of one row's keys. */
void attn__visible_kinds(const attn__visible_tile *tile, uint8_t *kinds);

/* The weight of a row's masked keys with mask_fill, as a logarithm in powers of two.  Where a large fill is nearly all
 * of a row, its lse = fill + log(count) has lost its last digits in f32, and only the count of masked keys tells the
 * weight. */
float attn__visible_fill_weight(const attn__visible_rows *rows, int64_t row, float lse);

#endif
