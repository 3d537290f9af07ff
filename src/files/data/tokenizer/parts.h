/* SPDX-License-Identifier: MIT
 *
 * parts.h - the internal form of a tokenizer: normalizers, pre-tokenizers, a model and a template, which texts pass in
 * this order. */
#ifndef ATTN_DATA_TOKENIZER_PARTS_H
#define ATTN_DATA_TOKENIZER_PARTS_H

#include "data/subword.h"
#include "data/tokenizer.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/trie.h"
#include "base/context.h"

/* ------------------------------------------------------------------------------------------ texts in work */

/* Where a byte comes from: a range of bytes of the original text. */
typedef struct attn__origin {
    uint32_t begin, end;
} attn__origin;

/* A valid UTF-8 text, each byte with its origin. After the first failure, appending does nothing. */
typedef struct attn__aligned_text {
    attn_context *context;
    char *bytes;
    attn__origin *origins;
    size_t n, capacity;
    attn_status status;
} attn__aligned_text;

/* Returns false if the text has failed. */
bool attn__aligned_reserve(attn__aligned_text *text, size_t more);
void attn__aligned_put(attn__aligned_text *text, uint32_t code, attn__origin origin);
void attn__aligned_append(attn__aligned_text *text, const char *bytes, size_t n, attn__origin origin);
void attn__aligned_copy(attn__aligned_text *text, const attn__aligned_text *from, size_t begin, size_t end);
/* Appends a text of any bytes as valid UTF-8. Origins are positions in `bytes`. */
void attn__aligned_decode(attn__aligned_text *text, const char *bytes, size_t n);
void attn__aligned_free(attn__aligned_text *text);
void attn__aligned_swap(attn__aligned_text *a, attn__aligned_text *b);

/* A part of a text that pre-tokenizers may split, or that is an added token with an id. */
typedef struct attn__piece {
    uint32_t begin, end;
    int32_t id; /* -1: no added token */
} attn__piece;

typedef struct attn__pieces {
    attn__aligned_text text;
    attn__piece *items;
    size_t n, capacity;
} attn__pieces;

void attn__pieces_add(attn__pieces *pieces, size_t begin, size_t end, int32_t id); /* does not add an empty piece */
void attn__pieces_clear(attn__pieces *pieces);
void attn__pieces_free(attn__pieces *pieces);

/* ------------------------------------------------------------------------------------------------- steps */

typedef enum attn__normalizer_kind {
    ATTN__NORMALIZE_BERT_CLEAN,
    ATTN__NORMALIZE_BERT_CHINESE,
    ATTN__NORMALIZE_BERT_ACCENTS, /* after NFD */
    ATTN__NORMALIZE_FORM,
    ATTN__NORMALIZE_LOWERCASE,
    ATTN__NORMALIZE_STRIP,
    ATTN__NORMALIZE_STRIP_ACCENTS,
    ATTN__NORMALIZE_REPLACE,
    ATTN__NORMALIZE_PREPEND,
    ATTN__NORMALIZE_NMT,
    ATTN__NORMALIZE_PRECOMPILED,
    ATTN__NORMALIZE_BYTE_LEVEL
} attn__normalizer_kind;

typedef struct attn__normalize_step {
    attn__normalizer_kind kind;
    bool compatibility, composed; /* FORM */
    bool left, right;             /* STRIP */
    attn__regex *pattern;         /* REPLACE */
    char *content;                /* REPLACE, PREPEND */
    size_t content_size;
    uint32_t *units; /* PRECOMPILED: a double array trie, and the texts to which its values point */
    size_t nunits;
    char *texts;
    size_t texts_size;
} attn__normalize_step;

typedef enum attn__behavior {
    ATTN__SPLIT_REMOVED,
    ATTN__SPLIT_ISOLATED,
    ATTN__SPLIT_MERGED_WITH_PREVIOUS,
    ATTN__SPLIT_MERGED_WITH_NEXT,
    ATTN__SPLIT_CONTIGUOUS
} attn__behavior;

typedef enum attn__splitter_kind {
    ATTN__SPLIT_PATTERN,
    ATTN__SPLIT_SPACES,
    ATTN__SPLIT_PUNCTUATION,
    ATTN__SPLIT_DIGITS,
    ATTN__SPLIT_WORDS,      /* \w+|[^\w\s]+ */
    ATTN__SPLIT_BYTE_LEVEL, /* bytes become the characters of GPT-2 */
    ATTN__SPLIT_SPACE_BEFORE,
    ATTN__SPLIT_METASPACE /* spaces become `content`, which is also put before a text */
} attn__splitter_kind;

typedef struct attn__splitter {
    attn__splitter_kind kind;
    attn__behavior behavior;
    bool invert;          /* what is between the matches is the delimiter */
    bool whole;           /* METASPACE: the text is changed, but not split */
    attn__regex *pattern; /* PATTERN */
    char content[8];      /* METASPACE */
    enum { ATTN__PREPEND_NEVER, ATTN__PREPEND_FIRST, ATTN__PREPEND_ALWAYS } prepend;
} attn__splitter;

/* A token that is found before the normalizer, or in normalized text. */
typedef struct attn__added {
    char *content;
    size_t size;
    int32_t id;
    bool special, single_word, strips_left, strips_right, normalized;
} attn__added;

/* An element of a template: the first text, the second text, or tokens. */
typedef struct attn__template_piece {
    int8_t text; /* 0, 1; -1: the tokens ids[begin] to ids[begin + n - 1] of the template */
    int32_t type, begin, n;
} attn__template_piece;

typedef struct attn__template {
    attn__template_piece *pieces;
    int64_t n;
    int32_t *ids;
    int64_t nids;
} attn__template;

/* ------------------------------------------------------------------------------------------------- model */

typedef enum attn__model_kind {
    ATTN__MODEL_WORD_PIECE,
    ATTN__MODEL_BPE,
    ATTN__MODEL_UNIGRAM,
    ATTN__MODEL_WORD_LEVEL,
    ATTN__MODEL_SENTENCEPIECE
} attn__model_kind;

typedef struct attn__merge {
    uint64_t pair; /* left id << 32 | right id, plus 1; 0: the slot is free */
    uint32_t rank;
    int32_t merged;
} attn__merge;

typedef struct attn__token_model {
    attn__model_kind kind;
    attn__trie trie; /* the tokens */
    int32_t unk;     /* -1: none */
    int64_t size;    /* number of tokens */
    /* WordPiece */
    uint32_t continuing_node; /* the trie's node after the continuing prefix; ATTN__TRIE_NONE: no token has it */
    int64_t most_characters;
    /* BPE */
    attn__merge *merges; /* a hash table with linear probing */
    size_t merges_mask;
    char *prefix, *suffix; /* of characters that continue a word, and of the last one; NULL: none */
    bool fuse_unk, byte_fallback, ignore_merges, has_unk;
    int32_t bytes[256]; /* ids of <0x00> to <0xFF>; -1: none */
    /* Unigram */
    double *scores, unk_score;
    attn__subword *subword; /* SentencePiece: normalizes and splits texts; the trie has the ids of its pieces */
} attn__token_model;

typedef struct attn__token_text {
    uint32_t begin, length;
    bool present, added;
} attn__token_text;

struct attn__tokenizer {
    attn_context *context;
    attn__normalize_step *normalizers;
    attn__splitter *splitters;
    attn__added *added;
    int64_t nnormalizers, nsplitters, nadded;
    int64_t nnew;                           /* number of added tokens that the model does not have */
    attn__trie added_raw, added_normalized; /* values are indices of `added` */
    attn__token_model model;
    attn__template single, pair;
    bool trims_offsets;     /* offsets of tokens do not include spaces at their ends */
    bool keeps_first_space; /* but one space at the beginning of a text */
    char *texts;            /* of the tokens, in the order of `tokens` */
    size_t texts_size, texts_capacity;
    attn__token_text *tokens;
    int64_t ntokens;
    int32_t special[ATTN__TOKEN_SPECIALS];
    int64_t max_length;
};

/* ------------------------------------------------------------------------------------------------ functions */

/* `scratch` is any text. */
void attn__normalize(const attn__tokenizer *t, attn__aligned_text *text, attn__aligned_text *scratch);
/* Applies all pre-tokenizers. `scratch` is any list of pieces. */
void attn__split(const attn__tokenizer *t, attn__pieces *pieces, attn__pieces *scratch);
/* Writes the character of GPT-2 for each byte of a range. */
void attn__byte_level(attn__aligned_text *out, const attn__aligned_text *in, size_t begin, size_t end);
/* Appends a token, whose offsets are positions in the piece's text. */
attn_status attn__encoding_add(attn_context *context, attn__encoding *tokens, int32_t id, size_t begin, size_t end);
/* Splits bytes [begin, end) of a text into tokens. */
attn_status attn__model_encode(const attn__tokenizer *t, const char *bytes, size_t begin, size_t end,
                               attn__encoding *tokens);
void attn__model_free(attn_context *context, attn__token_model *model);
/* Inserts a merge in the table, which must have a free slot. The later of two equal pairs counts. */
void attn__merge_put(attn__token_model *model, int32_t left, int32_t right, uint32_t rank, int32_t merged);

/* Make a tokenizer from its parts. `name` is the name of the file in messages. attn__tokenizer_create leaves
 * *tokenizer for attn__tokenizer_destroy also if it fails. attn__tokenizer_add_token adds a token of the model.
 * attn__tokenizer_add_added copies `added`, and finds or makes the token's id. The tokenizer owns what a normalizer
 * or a splitter refers to, if adding it succeeds. */
attn_status attn__tokenizer_create(attn__tokenizer **tokenizer, attn_context *context);
attn_status attn__tokenizer_add_token(attn__tokenizer *t, const char *name, const char *text, size_t length,
                                      int64_t id);
attn_status attn__tokenizer_add_added(attn__tokenizer *t, const char *name, const attn__added *added);
attn_status attn__tokenizer_add_normalizer(attn__tokenizer *t, const attn__normalize_step *normalizer);
attn_status attn__tokenizer_add_splitter(attn__tokenizer *t, const attn__splitter *splitter);
/* Appends a text to a template (0 or 1), or the token `id` if `text` is -1. */
attn_status attn__template_add(attn__tokenizer *t, attn__template *to, int8_t text, int32_t type, int32_t id);
void attn__normalizer_free(attn_context *context, attn__normalize_step *normalizer);
/* Finishes a tokenizer: finds added tokens in texts, and special tokens by their usual names. */
attn_status attn__tokenizer_finish(attn__tokenizer *t, const char *name);

#endif
