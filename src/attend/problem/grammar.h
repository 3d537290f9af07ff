/* SPDX-License-Identifier: MIT
 *
 * grammar.h - a problem's text, read: what stands between the grammar and the functions that fill a problem.
 */
#ifndef ATTN_ATTEND_GRAMMAR_H
#define ATTN_ATTEND_GRAMMAR_H

#include "attn/attn.h"

typedef enum attn__form {
    ATTN__HEADS = 0,
    ATTN__ADDITIVE,
    ATTN__AXIS,
    ATTN__TIED,
    ATTN__WINDOW,
    ATTN__FORMS
} attn__form;

/* X(NAME, as written, what follows '=' in help's letters: 0 nothing, 'X' real, 'N' whole, 'R' range; forms or 0) */
#define ATTN__FEATURE_MAP(X)                                                                                           \
    X(BF16, "bf16", 0, 0)                                                                                              \
    X(F64, "f64", 0, 0)                                                                                                \
    X(CAUSAL, "causal", 0, 0)                                                                                          \
    X(CAUSAL_BR, "causal-br", 0, 0)                                                                                    \
    X(BAND, "band", 'R', 0)                                                                                            \
    X(LENS, "lens", 0, 0)                                                                                              \
    X(LENSQ, "lensq", 0, 0)                                                                                            \
    X(PACKED, "packed", 'N', 1 << ATTN__HEADS)                                                                         \
    X(PAD, "pad", 0, 0)                                                                                                \
    X(MASK, "mask", 0, 0)                                                                                              \
    X(BLOCKS, "blocks", 'N', 0)                                                                                        \
    X(BIAS, "bias", 0, 0)                                                                                              \
    X(BIASK, "biask", 0, 0)                                                                                            \
    X(BIASD, "biasd", 0, 0)                                                                                            \
    X(BUCKETS, "buckets", 'N', 0)                                                                                      \
    X(REL, "rel", 0, 0)                                                                                                \
    X(DROPOUT, "dropout", 'X', 0)                                                                                      \
    X(FILL, "fill", 'X', 0)                                                                                            \
    X(SCALE, "scale", 'X', 0)                                                                                          \
    X(SOFTCAP, "softcap", 'X', 0)                                                                                      \
    X(LSE, "lse", 0, 0)                                                                                                \
    X(SINKS, "sinks", 0, 0)                                                                                            \
    X(DLSE, "dlse", 0, 0)                                                                                              \
    X(OVER_N, "over-n", 0, 0)                                                                                          \
    X(KERNEL_SUM, "kernel-sum", 0, 0)                                                                                  \
    X(BTHD, "bthd", 0, 1 << ATTN__HEADS | 1 << ATTN__ADDITIVE)                                                         \
    X(BHTD, "bhtd", 0, 1 << ATTN__HEADS | 1 << ATTN__ADDITIVE)                                                         \
    X(ROW, "row", 0, 1 << ATTN__AXIS)                                                                                  \
    X(COL, "col", 0, 1 << ATTN__AXIS)                                                                                  \
    X(AXIS, "axis", 'N', 1 << ATTN__AXIS)                                                                              \
    X(FIRST, "first", 0, 1 << ATTN__AXIS)                                                                              \
    X(ZERO, "zero", 0, 1 << ATTN__WINDOW)                                                                              \
    X(MASK_BORDER, "mask-border", 0, 1 << ATTN__WINDOW)                                                                \
    X(SHIFT, "shift", 0, 1 << ATTN__WINDOW)

typedef enum attn__feature {
#define ATTN_X(NAME, text, value, forms) ATTN__FEATURE_##NAME,
    ATTN__FEATURE_MAP(ATTN_X)
#undef ATTN_X
#define ATTN_X(NAME, name) ATTN__FEATURE_SCORE_##NAME,
        ATTN_SCORES(ATTN_X) /* in their order: ATTN__FEATURE_SCORE_DOT + score */
#undef ATTN_X
    ATTN__FEATURES
} attn__feature;

_Static_assert(ATTN__FEATURES <= 64, "a phrase keeps its features in 64 bits");

enum { ATTN__PHRASE_LENGTHS = 7 };

typedef struct attn__phrase {
    attn__form form;
    int nlengths; /* of axis, tied, window: 256x256 */
    int64_t lengths[ATTN__PHRASE_LENGTHS];
    int64_t letter['z' - 'a' + 1]; /* -1: not given */
    int64_t taps_x;                /* of window's w7x5; -1: as taps_y */
    uint64_t features;             /* bits 1 << attn__feature */
    double dropout, fill, scale, softcap;
    int64_t lo, hi, axis, packed, buckets, blocks;
} attn__phrase;

static inline bool attn__phrase_has(const attn__phrase *phrase, attn__feature feature)
{
    return phrase->features >> feature & 1;
}

/* The value of a letter, or `otherwise` if it was not given. */
static inline int64_t attn__phrase_letter(const attn__phrase *phrase, char letter, int64_t otherwise)
{
    int64_t value = phrase->letter[letter - 'a'];
    return value < 0 ? otherwise : value;
}

/* problem_forms.c and problem_features.c: the form, then the features, into a problem.  ATTN_ERROR_ARGUMENT: what
 * does not go together, said without a place in the text. */
attn_status attn__phrase_form(attn_problem *problem, attn_context *context, const attn__phrase *phrase);
attn_status attn__phrase_features(attn_problem *problem, attn_context *context, const attn__phrase *phrase);

#endif
