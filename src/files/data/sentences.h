/* SPDX-License-Identifier: MIT
 *
 * sentences.h - sentences as training data: text preparation, pairs, splits, vocabularies, ids and batches.
 *
 * Readers take (text, length, name), so the bytes may come from any source; attn_file_read of io.h reads them from a
 * file, plain or gzip. From a file of sentence pairs to batches:
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
 * ATTN_COMPAT_D2L reproduces "Dive into Deep Learning" (Zhang et al., chapters 10.5 and 11) exactly, where the default
 * differs:
 *   - text: only U+202F and U+00A0 become spaces. Only , . ! ? get a space before them, also between digits.
 *   - pairs: max_examples + 1 lines are used. The first 512 are for training, the rest for validation, none for
 *     test. The same English sentence may be in both.
 *   - vocabulary: frequencies are counted after truncation and padding, and include validation sentences if the given
 *     pairs do. Tokens, including special ones, are sorted by code point. Only the target's vocabulary has <bos>.
 *   - ids: every sentence has exactly `steps` (9) places, and truncation removes <eos>.
 *
 * Any number of threads may read an object at once, except attn_batches (one thread). Texts are UTF-8. */
#ifndef ATTN_DATA_SENTENCES_H
#define ATTN_DATA_SENTENCES_H

#include "attn/attn.h"

typedef enum attn_compat { ATTN_COMPAT_NONE = 0, ATTN_COMPAT_D2L } attn_compat;

/* ------------------------------------------------------------------------------------------------ text */

/* Letters become lower case. No-break and thin spaces (U+00A0, U+202F, U+2009 and similar) become spaces, U+200B and
 * U+00AD are removed, and U+2019 becomes '. A space is put before , . ! ? ; : unless there is one or the mark is
 * between two digits. Runs of spaces become one space, and spaces at the ends are removed. Writes to `out` at most
 * `size` bytes with the final 0 (2 * length + 1 bytes always suffice). `needed` (may be NULL) gets the uncut length.
 * `out` may be NULL if `size` is 0. ATTN_ERROR_FORMAT: invalid UTF-8; the error names the byte. */
attn_status attn_text_normalize(attn_context *context, const char *text, size_t length, attn_compat compat, char *out,
                                size_t size, size_t *needed);
/* Words are separated by spaces. *word and *length describe the word, and *text becomes the address after it. Returns
 * false if there are no more words. */
bool attn_text_word(const char **text, const char **word, size_t *length);
/* Removes the spaces that normalization added before punctuation, so that no space before , . ! ? ; : remains. If
 * `space_before_high_marks` is true, as for French, the space before ! ? ; : stays. The buffer is used as in
 * attn_text_normalize. Returns the length of the uncut text. */
size_t attn_text_detokenize(const char *text, bool space_before_high_marks, char *out, size_t size);

/* ----------------------------------------------------------------------------------------------- pairs */

typedef struct attn_pair {
    const char *source, *target; /* the normalized sentences, or the original ones if keep_text was set */
} attn_pair;
typedef struct attn_pairs attn_pairs;

/* A callback for invalid lines. `tell` is called with the number of the line and a description of the fault, and the
 * line is left out. If `tell` is NULL, the first invalid line is an error. Line 0 is a note on the form of a whole
 * file: numbers, quotes or a header line that are no part of the sentences. */
typedef struct attn_pairs_bad {
    void (*tell)(void *user, int64_t line, const char *error);
    void *user;
} attn_pairs_bad;

/* Where pairs are read from: a file, which may be compressed with gzip, or the text `text`. */
typedef struct attn_pairs_source {
    const char *path; /* NULL: text */
    const char *text;
    size_t size;      /* length of text */
    const char *name; /* name of `text` in messages; NULL: "phrasebook" */
    attn_pairs_bad bad;
} attn_pairs_source;

/* A field that is zero has its default. */
typedef struct attn_pairs_options {
    attn_compat compat;
    int64_t max_examples; /* maximum number of pairs, 0: all; D2L compatibility reads one more */
    size_t max_line;      /* maximum length of a line in bytes; 0: 65536 */
    /* true: sentences are stored unchanged, without spaces at the ends; needed for subword vocabularies */
    bool keep_text;
    attn_pairs_bad bad;
} attn_pairs_options;

/* Reads lines `source<TAB>target[<TAB>anything]`, or `number<TAB>source<TAB>number<TAB>target[<TAB>anything]` if all
 * lines have this form. If all sentences are quoted as in CSV, the quotes are removed. A first line that names the
 * columns
 * ("English<TAB>French") is left out. Empty lines are skipped. A carriage return at the end of a line and a
 * byte order mark at the start are dropped. `options` may be NULL. `text` is not needed after the call.
 * ATTN_ERROR_FORMAT: all lines are empty, or a line has no tab, has an empty side, is too long, or has invalid UTF-8.
 * The message begins with `name:line:` and, for invalid UTF-8, gives the byte in the line. ATTN_ERROR_MEMORY: there is
 * no memory. */
attn_status attn_pairs_parse(attn_pairs **pairs, attn_context *context, const char *text, size_t size, const char *name,
                             const attn_pairs_options *options);
void attn_pairs_destroy(attn_pairs *pairs); /* NULL is allowed */
int64_t attn_pairs_size(const attn_pairs *pairs);
/* 0 <= i < size; the texts are valid as long as the pairs */
attn_pair attn_pairs_get(const attn_pairs *pairs, int64_t i);

typedef struct attn_pairs_split_options {
    attn_compat compat;
    uint64_t seed;
    /* shares of the validation part and of the test part; 0: 0.05 each; negative: no such part */
    double valid, test;
    int64_t train_examples; /* D2L compatibility: number of pairs at the beginning that are for training; 0: 512 */
} attn_pairs_split_options;
/* Splits pairs by a hash of the seed and the normalized source sentence (even if the original text is kept). All
 * translations of one sentence are thus in the same part. The part does not depend on the other pairs of the file. If
 * the pointer to a part is NULL, this part is not made. The parts keep the order and borrow the texts, so destroy them
 * before `all`. A part may be empty. ATTN_ERROR_ARGUMENT: the shares sum to 1 or more. ATTN_ERROR_MEMORY: there is no
 * memory. */
attn_status attn_pairs_split(attn_pairs **train, attn_pairs **valid, attn_pairs **test, const attn_pairs *all,
                             const attn_pairs_split_options *options);
/* Makes a part of the pairs [begin, end). The part borrows the texts, like the parts of a split.
 * ATTN_ERROR_ARGUMENT: the range is out of bounds. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_pairs_slice(attn_pairs **part, const attn_pairs *all, int64_t begin, int64_t end);

/* If all fields are zero, no pair is left out. */
typedef struct attn_pairs_filter_options {
    /* A pair is left out if one side has more than max_ratio times as many characters as the other. 0: no pair is left
     * out for this reason. */
    double max_ratio;
    bool unique; /* true: a pair is left out if both its sides equal those of an earlier pair */
} attn_pairs_filter_options;
typedef struct attn_pairs_filtered {
    /* numbers of pairs that were left out; a duplicate with unlike lengths counts only as a duplicate */
    int64_t unlike, duplicates;
} attn_pairs_filtered;
/* Makes a part of the pairs that are not left out, in the same order. The part borrows the texts.
 * ATTN_ERROR_ARGUMENT: the ratio is below 1. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_pairs_filter(attn_pairs **kept, attn_pairs_filtered *counts, const attn_pairs *all,
                              const attn_pairs_filter_options *options);
/* Makes a list of all pairs of `own`, followed by at most `n` pairs of `other`. The pairs of `other` are drawn by the
 * seed, each at most once. Both lists must outlive the result. May return ATTN_ERROR_ARGUMENT and ATTN_ERROR_MEMORY. */
attn_status attn_pairs_mix(attn_pairs **mixed, const attn_pairs *own, const attn_pairs *other, int64_t n,
                           uint64_t seed);

/* ------------------------------------------------------------------------------------------ vocabulary */

typedef enum attn_side { ATTN_SIDE_SOURCE = 0, ATTN_SIDE_TARGET } attn_side;
typedef enum attn_special { ATTN_SPECIAL_PAD = 0, ATTN_SPECIAL_BOS, ATTN_SPECIAL_EOS, ATTN_SPECIAL_UNK } attn_special;
typedef struct attn_vocab attn_vocab;

/* The tokens of a vocabulary are words, or subword pieces learned by SentencePiece (Kudo and Richardson 2018,
 * arXiv:1808.06226). Pieces are learned by a unigram model (Kudo 2018, arXiv:1804.10959) or by merging pairs (Sennrich
 * et al. 2016, arXiv:1508.07909). Pieces keep case and punctuation. Characters without a piece become bytes, so nothing
 * is unknown. */
typedef enum attn_vocab_kind { ATTN_VOCAB_WORDS = 0, ATTN_VOCAB_UNIGRAM, ATTN_VOCAB_BPE } attn_vocab_kind;

typedef struct attn_vocab_options {
    attn_compat compat;
    int64_t min_frequency; /* words with a lower frequency are left out; 0: 2 */
    /* maximum number of tokens, including special ones; 0: no limit for words, and 8000 for pieces (fewer if the
     * texts give fewer) */
    int64_t max_size;
    /* only for D2L compatibility: sentences are cut or padded to this length before words are counted; 0: 9 */
    int64_t steps;
    attn_vocab_kind kind;
    bool joint; /* true: pieces are learned from both sides together */
    /* share of the texts' characters that have pieces of their own, the most frequent ones; others are encoded as
     * bytes; 0: SentencePiece's default, 0.9995 */
    double character_coverage;
} attn_vocab_options;

/* Words are ordered <pad> <bos> <eos> <unk> (ids 0 to 3, as in attn_special), then by falling frequency, and by code
 * point if equally frequent. With D2L compatibility all words are sorted by code point. If tokens are pieces, the same
 * four tokens come first, then the pieces in SentencePiece's order. For pieces, the pairs must have been read with
 * keep_text. ATTN_ERROR_ARGUMENT: the size is too small for the bytes and letters of the texts. ATTN_ERROR_UNSUPPORTED:
 * pieces are requested, but the library was built without SentencePiece. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_vocab_build(attn_vocab **vocab, const attn_pairs *pairs, attn_side side,
                             const attn_vocab_options *options);
void attn_vocab_destroy(attn_vocab *vocab); /* NULL is allowed */
/* Writes a text file with one token per line, where the line number (from 0) is the id. Pieces are written as a
 * SentencePiece file (.spm). The caller frees *file with attn_bytes_free. May return ATTN_ERROR_MEMORY. */
attn_status attn_vocab_format(const attn_vocab *vocab, attn_bytes *file);
/* Reads a vocabulary from a text file with one token per line. ATTN_ERROR_FORMAT: a line is empty, a token contains a
 * space or occurs twice, UTF-8 is invalid, the newline at the end is missing (a truncated file), or <pad>, <eos> or
 * <unk> is missing. The message begins with `name:line:`. */
attn_status attn_vocab_parse(attn_vocab **vocab, attn_context *context, const char *text, size_t size,
                             const char *name);

/* Reads the bytes of a SentencePiece model and keeps its ids. ATTN_ERROR_FORMAT: the model is damaged, or has no <pad>,
 * <eos> or <unk>; the message begins with `name`. ATTN_ERROR_UNSUPPORTED: the library was built without SentencePiece.
 * ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_vocab_parse_subwords(attn_vocab **vocab, attn_context *context, const char *bytes, size_t size,
                                      const char *name);
bool attn_subwords_available(void);
bool attn_vocab_has_subwords(const attn_vocab *vocab);

/* Returns the number of tokens, including the special ones. */
int64_t attn_vocab_size(const attn_vocab *vocab);
const char *attn_vocab_token(const attn_vocab *vocab, int64_t id); /* returns NULL if the id is out of range */
/* Returns the id of a word of `length` bytes, or -1 if the vocabulary does not have the word. The names of special
 * tokens are not words and also give -1. */
int32_t attn_vocab_find(const attn_vocab *vocab, const char *word, size_t length);
/* returns -1 if the vocabulary does not have this special token */
int32_t attn_vocab_special(const attn_vocab *vocab, attn_special special);

typedef struct attn_encode_options {
    attn_compat compat;
    int64_t steps; /* maximum number of tokens including <eos>; 0: 128 (D2L compatibility: 9) */
} attn_encode_options;
/* Encodes a sentence as ids with <eos> at the end. If tokens are words, the sentence must be normalized. A sentence
 * that is too long is truncated, and still ends with <eos>. D2L compatibility also truncates <eos>, and pads short
 * sentences to `steps`. Writes at most `capacity` ids. *n gets the number of ids including <eos>, without padding.
 * *unknown gets the number of <unk> among these ids. `n` and `unknown` may be NULL. ATTN_ERROR_ARGUMENT: there are more
 * ids than `capacity`. ATTN_ERROR_FORMAT: tokens are pieces, and the text is not UTF-8. */
attn_status attn_vocab_encode(const attn_vocab *vocab, const char *text, const attn_encode_options *options,
                              int32_t *ids, int64_t capacity, int64_t *n, int64_t *unknown);
/* Decodes ids to words joined by spaces, up to the first <eos>. <pad> and <bos> are skipped, and ids out of range give
 * <unk>. The buffer is used as in attn_text_detokenize. Returns the length of the uncut text. */
size_t attn_vocab_decode(const attn_vocab *vocab, const int32_t *ids, int64_t n, char *out, size_t size);

/* --------------------------------------------------------------------------------------------- batches */

/* Sentence pairs as ids. */
typedef struct attn_corpus attn_corpus;
/* Creates a corpus. It copies what it needs of the pairs and the vocabularies. ATTN_ERROR_ARGUMENT: the target
 * vocabulary has no <bos>, or options.steps allows more than 1024 tokens per sentence. ATTN_ERROR_MEMORY: there is no
 * memory. */
attn_status attn_corpus_create(attn_corpus **corpus, const attn_pairs *pairs, const attn_vocab *source,
                               const attn_vocab *target, const attn_encode_options *options);
void attn_corpus_destroy(attn_corpus *corpus); /* NULL is allowed */
int64_t attn_corpus_size(const attn_corpus *corpus);
/* returns the sum of the lengths of all sentences of one side, including <eos>, without padding */
int64_t attn_corpus_tokens(const attn_corpus *corpus, attn_side side);
int64_t attn_corpus_unknown(const attn_corpus *corpus, attn_side side);
/* returns the number of tokens of the longest sentence, including <eos> */
int64_t attn_corpus_longest(const attn_corpus *corpus, attn_side side);

/* A batch of B sentences. Sources are padded with <pad> to length S, and targets to length T. The decoder reads input =
 * <bos> w1 w2 ... and is trained to output labels = w1 w2 ... <eos>. The attn_batches own the memory, and their next
 * batch overwrites it. */
typedef struct attn_batch {
    int64_t size, source_steps, target_steps; /* B, S, T */
    const int32_t *source;                    /* [B,S] */
    const int32_t *source_lens;               /* [B] */
    const int32_t *input;                     /* [B,T] */
    const int32_t *labels;                    /* [B,T] */
    const int32_t *target_lens;               /* [B]; lengths of labels, including <eos> */
    const int64_t *indices;                   /* [B]: for each sentence, the index of its pair in the corpus */
    int64_t source_tokens, target_tokens;     /* sums of the lengths of all sources, and of all targets */
    /* Used if the batch is sharded (attn_batches_shard): the whole batch has `whole` sentences with `whole_tokens`
     * target tokens, and this share begins at sentence `first`. If the batch is not sharded, `first` is 0, `whole` is B
     * and `whole_tokens` is target_tokens. */
    int64_t first, whole, whole_tokens;
    /* true: the sentence is only a placeholder, because the batch has fewer sentences than there are processes. The
     * sentence belongs to another process and must not be counted. */
    bool stands_in;
} attn_batch;

typedef struct attn_batches attn_batches;
typedef struct attn_batches_options {
    int64_t size; /* number of sentences in a batch; 0: 64 */
    /* Limits batches by tokens instead of by `size`. A batch has as many sentences as fit into this number of padded
     * tokens of the longer side, but at least one. The sentences of a batch have equal or neighbouring lengths.
     * Every epoch has the same number of batches. Not allowed with mixed_lengths. 0: batches are limited by `size`. */
    int64_t tokens;
    uint64_t seed;
    bool in_order; /* true: sentences stay in the corpus's order, as is needed for validation */
    /* false: sentences of similar length are in the same batch, which reduces padding; true: sentences are mixed */
    bool mixed_lengths;
    /* S and T are rounded up to a multiple of this number, so that fewer different shapes occur; 0: 1 */
    int64_t multiple;
    /* fixed value of S and T, at least the length of the corpus's longest sentence; 0: S and T depend on the batch.
     * For D2L compatibility, use the same value as `steps` for encoding. */
    int64_t fixed_steps;
} attn_batches_options;

/* The order of an epoch depends only on (seed, epoch), so saving (epoch, position) is enough to resume. `corpus` must
 * outlive the batches. The next batch is initially batch 0 of epoch 0. All memory is allocated by this function. May
 * return ATTN_ERROR_ARGUMENT and ATTN_ERROR_MEMORY. */
attn_status attn_batches_create(attn_batches **batches, const attn_corpus *corpus, const attn_batches_options *options);
void attn_batches_destroy(attn_batches *batches); /* NULL is allowed */
/* A position at or past attn_batches_count means the end of the epoch. */
void attn_batches_seek(attn_batches *batches, int64_t epoch, int64_t position);
/* Returns false at the end of the epoch. The last batch may be smaller than the others. */
bool attn_batches_next(attn_batches *batches, attn_batch *batch);
/* Makes later calls of attn_batches_next return only this process's share of each batch (ranks.h). The share is
 * padded to the length of the whole batch. */
void attn_batches_shard(attn_batches *batches);
bool attn_batches_sharded(const attn_batches *batches);
int64_t attn_batches_count(const attn_batches *batches); /* returns the number of batches in an epoch */
int64_t attn_batches_epoch(const attn_batches *batches);
int64_t attn_batches_position(const attn_batches *batches);

/* --------------------------------------------------------------------------------------------- lexicons */

/* Probabilities that a token of a source vocabulary translates to a token of a target vocabulary. Both vocabularies
 * must outlive the lexicon. The text form is that of Marian's lexical shortlists (lex.s2t), whose lines are `target
 * source probability`. */
typedef struct attn_lexicon attn_lexicon;
/* Lines with "NULL" for a token are skipped. ATTN_ERROR_FORMAT: a line is too long, does not have three fields, or has
 * an unknown token, an invalid probability or invalid UTF-8 (the message begins with `name:line:`); or the lexicon has
 * no entries. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_lexicon_parse(attn_lexicon **lexicon, attn_context *context, const char *text, size_t size,
                               const char *name, const attn_vocab *source, const attn_vocab *target);
typedef struct attn_lexicon_options {
    int64_t iterations;     /* 0: 5 */
    int64_t best;           /* number of likeliest translations that are kept for each source token; 0: 100 */
    double min_probability; /* translations with a lower probability are not kept; 0: 0.0001 */
    /* only for attn_translator_learn_lexicon: gets the word alignments; NULL: they are not computed */
    attn_bytes *alignments;
} attn_lexicon_options;
/* Learns a lexicon from pairs by IBM Model 1 (Brown et al. 1993), on one thread. `options` may be NULL.
 * ATTN_ERROR_ARGUMENT: the pairs have no tokens. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_lexicon_learn(attn_lexicon **lexicon, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, const attn_lexicon_options *options);
ATTN_API void attn_lexicon_destroy(attn_lexicon *lexicon); /* NULL is allowed */
int64_t attn_lexicon_size(const attn_lexicon *lexicon);
/* Writes the lexicon as text. Entries are sorted by source token, and then by falling probability. The caller frees
 * *file with attn_bytes_free. May return ATTN_ERROR_MEMORY. */
attn_status attn_lexicon_format(const attn_lexicon *lexicon, attn_bytes *file);

#endif
