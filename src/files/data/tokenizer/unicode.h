/* SPDX-License-Identifier: MIT
 *
 * unicode.h - properties of code points as the library `tokenizers` of Hugging Face sees them. Its parts have tables
 * of several versions of Unicode: 8 for Bert's punctuation, control characters and accents, 13 for normal forms, 16
 * for patterns, 17 for lower case. utf8proc has the tables; unicode.c lists the code points in which `tokenizers`
 * differs. */
#ifndef ATTN_DATA_TOKENIZER_UNICODE_H
#define ATTN_DATA_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

/* General categories, in the order of utf8proc's numbers. */
typedef enum attn__general_category {
    ATTN__CN,
    ATTN__LU,
    ATTN__LL,
    ATTN__LT,
    ATTN__LM,
    ATTN__LO,
    ATTN__MN,
    ATTN__MC,
    ATTN__ME,
    ATTN__ND,
    ATTN__NL,
    ATTN__NO,
    ATTN__PC,
    ATTN__PD,
    ATTN__PS,
    ATTN__PE,
    ATTN__PI,
    ATTN__PF,
    ATTN__PO,
    ATTN__SM,
    ATTN__SC,
    ATTN__SK,
    ATTN__SO,
    ATTN__ZS,
    ATTN__ZL,
    ATTN__ZP,
    ATTN__CC,
    ATTN__CF,
    ATTN__CS,
    ATTN__CO
} attn__general_category;

attn__general_category attn__unicode_category(uint32_t code);
bool attn__unicode_space(uint32_t code);       /* White_Space */
bool attn__unicode_numeric(uint32_t code);     /* categories N* */
bool attn__unicode_punctuation(uint32_t code); /* categories P*, and the ASCII symbols */
bool attn__unicode_control(uint32_t code);     /* categories Cc, Cf and Co */
bool attn__unicode_nonspacing(uint32_t code);  /* category Mn */
bool attn__unicode_mark(uint32_t code);        /* categories M* */
/* Whether \w matches. `joiners`: also ZWNJ and ZWJ, as in the engine that finds added tokens and words; the engine of
 * the patterns in tokenizer.json does not count them. */
bool attn__unicode_word(uint32_t code, bool joiners);
/* Writes one or two code points, and returns their number. */
int attn__unicode_lower(uint32_t code, uint32_t out[2]);
/* Returns the simple case folding, with which patterns compare if they ignore case. */
uint32_t attn__unicode_fold(uint32_t code);

enum { ATTN__LONGEST_DECOMPOSITION = 18 };
/* Writes the full canonical or compatibility decomposition, and returns the number of code points. */
int attn__unicode_decompose(uint32_t code, bool compatibility, uint32_t out[ATTN__LONGEST_DECOMPOSITION]);
int attn__unicode_combining_class(uint32_t code);
/* Returns the primary composite of two code points, or 0 if there is none. */
uint32_t attn__unicode_compose(uint32_t first, uint32_t second);
/* Returns whether a grapheme cluster ends between two neighbors. *state is 0 at the beginning of a text. */
bool attn__unicode_grapheme_ends(uint32_t before, uint32_t after, int32_t *state);

#endif
