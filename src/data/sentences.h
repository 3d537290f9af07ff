/* SPDX-License-Identifier: MIT
 *
 * sentences.h - sentences as training data: text preparation, pairs, splits, vocabularies, ids and batches.
 *
 * Readers take (text, length, name), so that bytes may come from anywhere; attn_file_read of io.h gives them
 * from a file, plain or gzip.  From a file of sentence pairs to batches:
 *
 *     attn_bytes file = {0};
 *     attn_file_read(&file, context, "fra.txt.gz", 0);
 *     attn_pairs_parse(&all, context, file.data, file.size, "fra.txt.gz", NULL);
 *     attn_pairs_split(&train, &valid, &test, all, NULL);
 *     attn_vocab_build(&source, train, ATTN_SIDE_SOURCE, NULL);
 *     attn_vocab_build(&target, train, ATTN_SIDE_TARGET, NULL);
 *     attn_corpus_create(&corpus, train, source, target, NULL);
 *     attn_batches_create(&batches, corpus, &(attn_batches_options){.size = 64, .seed = 1});
 *     for (int64_t epoch = 0; epoch < 30; epoch++) {
 *         attn_batches_seek(batches, epoch, 0);
 *         while (attn_batches_next(batches, &batch)) { ... }
 *     }
 *
 * ATTN_COMPAT_D2L follows "Dive into Deep Learning" (Zhang et al., chapters 10.5 and 11) to the letter, where
 * the default does what is right:
 *   - text: only U+202F and U+00A0 become spaces, only , . ! ? get a space before them, digits or not;
 *   - pairs: max_examples + 1 lines are taken, and the split is the first 512 for training, the rest for
 *     validation, none for test (so that the same English sentence may be in both);
 *   - vocabulary: frequencies are counted after truncation and padding, validation sentences included if they
 *     are in the pairs given; tokens sorted by code point, specials among them; <bos> in the target's only;
 *   - ids: every sentence takes exactly `steps` (9) places, and truncation cuts <eos> off.
 *
 * Objects are not changed by reading them, from any number of threads, except attn_batches (one thread).
 * Texts are UTF-8.
 */
#ifndef ATTN_DATA_SENTENCES_H
#define ATTN_DATA_SENTENCES_H

#include "attn/attn.h"

typedef enum attn_compat { ATTN_COMPAT_NONE = 0, ATTN_COMPAT_D2L } attn_compat;

/* ------------------------------------------------------------------------------------------------ text */

/* Prepares a sentence: lower case; no-break and thin spaces (U+00A0 U+202F U+2009 and their kin) become
 * spaces, U+200B and U+00AD are removed, U+2019 becomes '; a space before , . ! ? ; : unless one is there or the mark
 * is between two digits; runs of spaces become one, none at the ends.  Writes to `out`, cut to `size` bytes with its
 * final 0 (2 * length + 1 always suffice); `needed` (may be NULL) gets the length that it would have had.  `out` may be
 * NULL if `size` is 0.  ATTN_ERROR_FORMAT: invalid UTF-8, the error says at which byte. */
attn_status attn_text_normalize(attn_context *context, const char *text, size_t length, attn_compat compat, char *out,
                                size_t size, size_t *needed);
/* Steps through the words of a text (anything between spaces): *word and *length get the next one, *text moves
 * behind it.  False at the end. */
bool attn_text_word(const char **text, const char **word, size_t *length);
/* Tokens joined by spaces as a reader wants them: no space before , . ! ? ; : (with `space_before_high_marks`,
 * as French has it, the one before ! ? ; : stays).  Buffer as in attn_text_normalize; returns the length
 * needed. */
size_t attn_text_detokenize(const char *text, bool space_before_high_marks, char *out, size_t size);

/* ----------------------------------------------------------------------------------------------- pairs */

typedef struct attn_pair {
    const char *source, *target; /* normalized, unless the text was to be kept */
} attn_pair;
typedef struct attn_pairs attn_pairs;

/* Lines that are no pairs: `tell` is called with the number of each and what is wrong, and the line is left out.  NULL: the
 * first one is an error. */
typedef struct attn_pairs_bad {
    void (*tell)(void *user, int64_t line, const char *error);
    void *user;
} attn_pairs_bad;

/* Where pairs are: a file, plain or gzip, or `text`. */
typedef struct attn_pairs_source {
    const char *path; /* NULL: text */
    const char *text;
    size_t size;      /* of text */
    const char *name; /* of text, for messages; NULL: phrasebook */
    attn_pairs_bad bad;
} attn_pairs_source;

/* Zero means the default in each field. */
typedef struct attn_pairs_options {
    attn_compat compat;
    int64_t max_examples; /* 0: all.  In d2l's way one more is taken */
    size_t max_line;      /* bytes; 0: 65536 */
    bool keep_text;       /* sentences stay as they are but for spaces at their ends: for vocabularies of pieces */
    attn_pairs_bad bad;
} attn_pairs_options;

/* Reads lines `source<TAB>target[<TAB>anything]`; empty lines are passed over, a carriage return at the end of
 * a line is dropped, a byte order mark at the start too.  `options` may be NULL; `text` is not needed later.
 * ATTN_ERROR_FORMAT: nothing but empty lines, a line without a tab, with an empty side, too long, or with invalid
 * UTF-8; the error says `name:line:` and, for UTF-8, the byte of the line.  ATTN_ERROR_MEMORY. */
attn_status attn_pairs_parse(attn_pairs **pairs, attn_context *context, const char *text, size_t size, const char *name,
                             const attn_pairs_options *options);
void attn_pairs_destroy(attn_pairs *pairs); /* NULL is allowed */
int64_t attn_pairs_size(const attn_pairs *pairs);
attn_pair attn_pairs_get(const attn_pairs *pairs, int64_t i); /* 0 <= i < size; lives as long as pairs */

typedef struct attn_pairs_split_options {
    attn_compat compat;
    uint64_t seed;
    double valid, test;     /* shares; 0: 0.05 each, negative: none */
    int64_t train_examples; /* d2l's way: the first ones; 0: 512 */
} attn_pairs_split_options;
/* Divides pairs by a hash of the seed and the normalized source sentence (also where the text was kept), so that all
 * translations of one sentence are in one part, whatever else the file holds.  Any of the parts may be NULL, and is
 * then not made.  The parts keep the order and borrow the texts: destroy them before `all`.  A part may be empty.
 * ATTN_ERROR_ARGUMENT: shares sum to 1 or more.  ATTN_ERROR_MEMORY. */
attn_status attn_pairs_split(attn_pairs **train, attn_pairs **valid, attn_pairs **test, const attn_pairs *all,
                             const attn_pairs_split_options *options);
/* Pairs [begin, end) as a part of their own, under the same rules.  ATTN_ERROR_ARGUMENT: a range that is none of theirs;
 * ATTN_ERROR_MEMORY. */
attn_status attn_pairs_slice(attn_pairs **part, const attn_pairs *all, int64_t begin, int64_t end);

/* Which pairs to leave out; zero leaves none out. */
typedef struct attn_pairs_filter_options {
    double
        max_ratio; /* those one side of which has more than this many times the characters of the other; at least 1 */
    bool unique;   /* those that an earlier pair equals on both sides */
} attn_pairs_filter_options;
typedef struct attn_pairs_filtered {
    int64_t unlike, duplicates; /* left out; what is both counts as a duplicate */
} attn_pairs_filtered;
/* The pairs that are left, which borrow the texts and keep the order.  ATTN_ERROR_ARGUMENT: a ratio below 1;
 * ATTN_ERROR_MEMORY. */
attn_status attn_pairs_filter(attn_pairs **kept, attn_pairs_filtered *counts, const attn_pairs *all,
                              const attn_pairs_filter_options *options);
/* The pairs of `own` and behind them at most `n` of `other`, drawn without repetition by the seed; both must outlive what
 * is made.  ATTN_ERROR_ARGUMENT, ATTN_ERROR_MEMORY. */
attn_status attn_pairs_mix(attn_pairs **mixed, const attn_pairs *own, const attn_pairs *other, int64_t n,
                           uint64_t seed);

/* ------------------------------------------------------------------------------------------ vocabulary */

typedef enum attn_side { ATTN_SIDE_SOURCE = 0, ATTN_SIDE_TARGET } attn_side;
typedef enum attn_special { ATTN_SPECIAL_PAD = 0, ATTN_SPECIAL_BOS, ATTN_SPECIAL_EOS, ATTN_SPECIAL_UNK } attn_special;
typedef struct attn_vocab attn_vocab;

/* The tokens of a vocabulary: words, or pieces of words as SentencePiece learns them (Kudo and Richardson 2018,
 * arXiv:1808.06226) by a unigram model (Kudo 2018, arXiv:1804.10959) or by merging pairs (Sennrich et al. 2016,
 * arXiv:1508.07909).  Pieces keep case and punctuation, and what no piece covers becomes bytes: nothing is unknown. */
typedef enum attn_vocab_kind { ATTN_VOCAB_WORDS = 0, ATTN_VOCAB_UNIGRAM, ATTN_VOCAB_BPE } attn_vocab_kind;

typedef struct attn_vocab_options {
    attn_compat compat;
    int64_t min_frequency; /* words seen less often are left out; 0: 2 */
    int64_t max_size;      /* specials included; 0: no limit; of pieces: 8000, fewer where texts give no more */
    int64_t steps;         /* d2l's way only, the length that sentences are cut or padded to first; 0: 9 */
    attn_vocab_kind kind;
    bool joint; /* pieces: learned from both sides, whichever is requested */
} attn_vocab_options;

/* The words of one side.  Order: <pad> <bos> <eos> <unk> (ids 0 to 3, as in attn_special), then by falling
 * frequency, equal ones by code point; d2l's way: all by code point.  Pieces: the same four, then in SentencePiece's
 * order; the pairs should have been read with keep_text.  ATTN_ERROR_ARGUMENT: a size too small for the bytes and
 * letters of the texts; ATTN_ERROR_UNSUPPORTED: pieces, and the library was built without SentencePiece;
 * ATTN_ERROR_MEMORY. */
attn_status attn_vocab_build(attn_vocab **vocab, const attn_pairs *pairs, attn_side side,
                             const attn_vocab_options *options);
void attn_vocab_destroy(attn_vocab *vocab); /* NULL is allowed */
/* As a text file: one token a line, the line number (from 0) is the id; pieces as a file of SentencePiece (.spm).  The
 * caller frees *file with attn_bytes_free.  ATTN_ERROR_MEMORY. */
attn_status attn_vocab_format(const attn_vocab *vocab, attn_bytes *file);
/* ATTN_ERROR_FORMAT: an empty line, a token with a space, a duplicate, invalid UTF-8, no newline at the end (a file
 * cut off), <pad>, <eos> or <unk> missing; the error says `name:line:`. */
attn_status attn_vocab_parse(attn_vocab **vocab, attn_context *context, const char *text, size_t size,
                             const char *name);

/* From the bytes of a SentencePiece model, whose own ids count.  ATTN_ERROR_FORMAT: damaged, or without a <pad>,
 * <eos> or <unk>; the error begins with `name`.  ATTN_ERROR_UNSUPPORTED: the library was built without
 * SentencePiece; ATTN_ERROR_MEMORY. */
attn_status attn_vocab_parse_subwords(attn_vocab **vocab, attn_context *context, const char *bytes, size_t size,
                                      const char *name);
/* Whether the library was built with SentencePiece. */
bool attn_subwords_available(void);
/* Whether its tokens are pieces of words. */
bool attn_vocab_has_subwords(const attn_vocab *vocab);

/* How many tokens it has, the special ones among them. */
int64_t attn_vocab_size(const attn_vocab *vocab);
const char *attn_vocab_token(const attn_vocab *vocab, int64_t id); /* NULL out of range */
/* The id of a word of `length` bytes; -1 if it has none.  The names of the specials are no words: -1 too. */
int32_t attn_vocab_find(const attn_vocab *vocab, const char *word, size_t length);
int32_t attn_vocab_special(const attn_vocab *vocab, attn_special special); /* -1 if it has none */

typedef struct attn_encode_options {
    attn_compat compat;
    int64_t steps; /* most tokens with <eos>; 0: 128 (d2l's way: 9) */
} attn_encode_options;
/* A normalized sentence (for pieces: any) as ids, <eos> at the end (kept by truncation; d2l's way cuts it off and pads to
 * `steps`).  Writes at most `capacity` ids; *n (may be NULL) gets how many there are with <eos> but without
 * padding, which is the valid length; *unknown (may be NULL) how many of them are <unk>.  ATTN_ERROR_ARGUMENT: more
 * ids than `capacity`; ATTN_ERROR_FORMAT: pieces, and the text is not UTF-8. */
attn_status attn_vocab_encode(const attn_vocab *vocab, const char *text, const attn_encode_options *options,
                              int32_t *ids, int64_t capacity, int64_t *n, int64_t *unknown);
/* Ids as words joined by spaces, up to the first <eos>; <pad> and <bos> are passed over, ids out of range give
 * <unk>.  Buffer as in attn_text_detokenize; returns the length needed. */
size_t attn_vocab_decode(const attn_vocab *vocab, const int32_t *ids, int64_t n, char *out, size_t size);

/* --------------------------------------------------------------------------------------------- batches */

/* Pairs as ids. */
typedef struct attn_corpus attn_corpus;
/* Copies what it needs of the pairs and the vocabularies.  ATTN_ERROR_ARGUMENT: the target vocabulary has no <bos>,
 * or a sentence takes more than 1024 places (options.steps beyond it);
 * ATTN_ERROR_MEMORY. */
attn_status attn_corpus_create(attn_corpus **corpus, const attn_pairs *pairs, const attn_vocab *source,
                               const attn_vocab *target, const attn_encode_options *options);
void attn_corpus_destroy(attn_corpus *corpus); /* NULL is allowed */
int64_t attn_corpus_size(const attn_corpus *corpus);
int64_t attn_corpus_tokens(const attn_corpus *corpus, attn_side side); /* with <eos>, without padding */
int64_t attn_corpus_unknown(const attn_corpus *corpus, attn_side side);
int64_t attn_corpus_longest(const attn_corpus *corpus, attn_side side); /* tokens, with <eos> */

/* B sentences, source padded to S and target to T places with <pad>.  The decoder reads
 * input = <bos> w1 w2 ... and is trained to output labels = w1 w2 ... <eos>.  Memory belongs to the attn_batches and is
 * overwritten by its next batch. */
typedef struct attn_batch {
    int64_t size, source_steps, target_steps; /* B, S, T */
    const int32_t *source;                    /* [B,S] */
    const int32_t *source_lens;               /* [B] */
    const int32_t *input;                     /* [B,T] */
    const int32_t *labels;                    /* [B,T] */
    const int32_t *target_lens;               /* [B]; of labels, <eos> included */
    const int64_t *indices;                   /* [B]; of the pairs in the corpus */
    int64_t source_tokens, target_tokens;     /* sums of the lengths */
    /* In a divided batch (attn_batches_shard): the batch has `whole` sentences with `whole_tokens` target tokens, of
     * which these begin at `first`.  Undivided: 0, B and target_tokens. */
    int64_t first, whole, whole_tokens;
    /* A placeholder: there were fewer sentences than processes.  This one belongs to another process and must not be
     * counted. */
    bool stands_in;
} attn_batch;

typedef struct attn_batches attn_batches;
typedef struct attn_batches_options {
    int64_t size;   /* sentences in a batch; 0: 64 */
    int64_t tokens; /* 0: `size` counts.  Else a batch has as many sentences as make at most so many places of the
                          * longer side (one sentence at least), all of one length or of neighbouring ones; each epoch
                          * has as many batches.  Not with mixed_lengths */
    uint64_t seed;
    bool in_order;       /* not shuffled: the corpus's order (validation) */
    bool mixed_lengths;  /* default: sentences of like length share a batch, so that little is padding */
    int64_t multiple;    /* S and T are rounded up to a multiple of it, so that few different shapes occur; 0: 1 */
    int64_t fixed_steps; /* S and T are this (d2l's way: encode and batch with the same steps); 0: as needed.
                          * Must not be less than the longest sentence of the corpus */
} attn_batches_options;

/* The order of an epoch depends on (seed, epoch) alone, so that (epoch, position) is all that must be kept to go
 * on later.  `corpus` must outlive the batches.  Starts at (0, 0).  All memory is taken here.
 * ATTN_ERROR_ARGUMENT, ATTN_ERROR_MEMORY. */
attn_status attn_batches_create(attn_batches **batches, const attn_corpus *corpus, const attn_batches_options *options);
void attn_batches_destroy(attn_batches *batches); /* NULL is allowed */
/* The next batch that attn_batches_next gives is number `position` of epoch `epoch`; a position at or past
 * attn_batches_count is the epoch's end. */
void attn_batches_seek(attn_batches *batches, int64_t epoch, int64_t position);
/* False at the epoch's end; the last batch may be smaller. */
bool attn_batches_next(attn_batches *batches, attn_batch *batch);
/* From now on attn_batches_next gives this process's share of each batch (ranks.h), padded as the whole one. */
void attn_batches_shard(attn_batches *batches);
bool attn_batches_sharded(const attn_batches *batches);
int64_t attn_batches_count(const attn_batches *batches); /* batches in an epoch */
int64_t attn_batches_epoch(const attn_batches *batches);
int64_t attn_batches_position(const attn_batches *batches);

/* --------------------------------------------------------------------------------------------- lexicons */

/* How likely each token of a source vocabulary translates to each of a target's; both must outlive it.  As text, in the
 * form of Marian's lexical shortlists (lex.s2t), a line is `target source probability`. */
typedef struct attn_lexicon attn_lexicon;
/* Lines with "NULL" for a token are passed over.  ATTN_ERROR_FORMAT: a line that has not three fields or is too long, a
 * token that its vocabulary lacks, what is no probability, invalid UTF-8 (the error says `name:line:`), or no entry at
 * all; ATTN_ERROR_MEMORY. */
attn_status attn_lexicon_parse(attn_lexicon **lexicon, attn_context *context, const char *text, size_t size,
                               const char *name, const attn_vocab *source, const attn_vocab *target);
typedef struct attn_lexicon_options {
    int64_t iterations;     /* 0: 5 */
    int64_t best;           /* translations kept of each source token, the likeliest; 0: 100 */
    double min_probability; /* of what is kept; 0: 0.0001 */
    attn_bytes *alignments; /* attn_translator_learn_lexicon: if not NULL, gets word alignments too */
} attn_lexicon_options;
/* Learned from pairs by IBM Model 1 (Brown et al. 1993), on one thread.  `options` may be NULL.
 * ATTN_ERROR_ARGUMENT: pairs without tokens; ATTN_ERROR_MEMORY. */
attn_status attn_lexicon_learn(attn_lexicon **lexicon, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, const attn_lexicon_options *options);
ATTN_API void attn_lexicon_destroy(attn_lexicon *lexicon); /* NULL is allowed */
int64_t attn_lexicon_size(const attn_lexicon *lexicon);    /* entries */
/* As text, by source token, the likeliest first.  The caller frees *file with attn_bytes_free.  ATTN_ERROR_MEMORY. */
attn_status attn_lexicon_format(const attn_lexicon *lexicon, attn_bytes *file);

#endif
