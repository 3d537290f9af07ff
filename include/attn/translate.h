/* SPDX-License-Identifier: MIT
 *
 * translate.h - the translator: trained from sentence pairs, saved in a directory, used to translate, to measure its
 * score and to show its attention.
 *
 * A translator's directory holds
 *     config.json          the architecture, its settings and how text is prepared
 *     model.safetensors    the parameters that were best on the validation part
 *     source.vocab, target.vocab   or, with a vocabulary of pieces, source.spm, target.spm
 * and, while it is being trained or may be trained further,
 *     training.json        the settings of the training, every one
 *     checkpoint.safetensors  parameters, optimizer and counters, one file so that they always belong together
 *     history.tsv          one line an epoch
 * Files are replaced as a whole; a run killed at any moment can be resumed and ends in the same bits (with any
 * number of threads).
 */
#ifndef ATTN_TRANSLATE_H
#define ATTN_TRANSLATE_H

#include "attn/data.h"
#include "attn/io.h"
#include "attn/models.h"
#include "attn/plot.h"
#include "attn/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------- training */

/* The settings of a training: names, types, defaults (of the Transformer) and what they mean.  One table for
 * the command's options, its help, training.json and the documents. */
ATTN_API const attn_setting *attn_translator_keys(int *n);

/* `given` (may be NULL) with every other key filled in.  Defaults depend on "model" (transformer, bahdanau) and
 * "compat" (none, d2l).  ATTN_ERROR_ARGUMENT: an unknown key, a wrong type or value; the message names what is
 * allowed. */
ATTN_API attn_status attn_translator_settings(attn_config **settings, attn_context *context, const attn_config *given);

/* Settings and sizes of a run, known before it starts.  It and what it points to are valid only until `begin`
 * returns. */
typedef struct attn_translator_run_info {
    const attn_config *settings; /* resolved */
    int64_t train_pairs, valid_pairs, test_pairs;
    attn_pairs_filtered filtered;       /* left out of the training part */
    int64_t mixed_pairs;                /* of train_pairs, those of "mix" */
    int64_t judged_pairs;               /* of valid_pairs, those that are translated after each epoch */
    int64_t source_words, target_words; /* vocabulary sizes */
    int64_t parameters;
    int64_t steps_per_epoch, epochs, first_epoch; /* first_epoch counts from 1 */
    bool warmup_fitted; /* "warmup" of the settings was too long for so few steps, and is a share of them now */
    const char
        *taken; /* a line a parameter, "name TAB shape TAB where from", of a fine-tuning's beginning; else NULL */
} attn_translator_run_info;

typedef struct attn_translator_job {
    attn_pairs_source data;
    const char *directory;       /* made if it is not there */
    const attn_config *settings; /* as attn_translator_settings takes them; when resuming only "epochs", "patience"
                                  * and "save_every" count, the others stay what they were */
    bool resume;                 /* go on from the directory's checkpoint; data may be left out */
    /* Called after each step and epoch; false stops the run, which can be resumed.  May be NULL. */
    bool (*progress)(void *user, const attn_progress *progress);
    /* Called once before the first step, with what was read.  May be NULL. */
    void (*begin)(void *user, const attn_translator_run_info *info);
    void *user;
} attn_translator_job;

/* Trains and leaves the directory complete.  ATTN_ERROR_INTERRUPTED: progress() stopped it; ATTN_ERROR_ARGUMENT:
 * settings, the directory has a translator already (unless resuming), the data is not that of the run to resume, or
 * there is too little of it; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_FORMAT, ATTN_ERROR_IO: a file (named). */
ATTN_API attn_status attn_translator_train(attn_context *context, const attn_translator_job *job);

/* -------------------------------------------------------------------------------------------- using one */

typedef struct attn_translator attn_translator;

/* A translator from its directory; the caller destroys it.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_SHAPE (parameters that are not those of the config), ATTN_ERROR_MEMORY. `names`: a names file of io.h,
 * or the name of one that is built in, for weights of foreign names; NULL: none. The vocabularies are in the directory
 * as in one of attn's own; settings that follow from shapes may be absent from config.json.  A directory in MarianMT's
 * form keeps its form: `names` replaces the names file for its weights. ATTN_ERROR_FORMAT also: the names
 * file, or what it leaves out. */
ATTN_API attn_status attn_translator_load(attn_translator **translator, attn_context *context, const char *directory,
                                          const char *names);
ATTN_API void attn_translator_destroy(attn_translator *translator); /* NULL is allowed */
/* Packs the weights once, in the order in which products read them, for all translations that follow; without it each
 * call packs for itself.  The packed form takes the place of the parameters where it can (not on AMX in f32): the model
 * then only translates and scores, and attn_tensor_data of such a parameter is NULL.  From here on the parameters must
 * not change.  A second call does nothing.  ATTN_ERROR_MEMORY: the translator is only to be destroyed. */
ATTN_API attn_status attn_translator_pack_weights(attn_translator *translator);
/* Its model, which it owns. */
ATTN_API attn_model *attn_translator_model(const attn_translator *translator);
/* The vocabulary of one side, which the translator owns. */
ATTN_API const attn_vocab *attn_translator_vocab(const attn_translator *translator, attn_side side);

/* Zero means the default. */
typedef struct attn_translator_options {
    int64_t beam;          /* 1: greedy; 0: the model's own, of one that attn trained 1 */
    double length_penalty; /* of beam search; 0: the model's own */
    int64_t batch;         /* sentences at once; 0: 32 */
    int64_t max_len;       /* most tokens of a translation, its end included, if that is less than the model's own */
    double length_factor;  /* most tokens for each one of the line, the ends included; 0: the model's own, or none where
                            * max_len is given */
    int64_t min_len;       /* least tokens, the end included; 0: the model's own, or none */
    /* Repetition, as attn_beam_search_options has it; 0: the model's own, or none. */
    int64_t no_repeat_ngram;
    double repetition_penalty;
    const int32_t *
        suppressed; /* nsuppressed tokens of the target vocabulary that no translation holds, in addition to those of the model */
    int64_t nsuppressed;
    int64_t nbest; /* translations to return for each line, at most `beam`; 0: 1 */
    /* Minimum Bayes risk (Kumar and Byrne 2004): sorts the hypotheses of the beam by their expected chrF instead of their
     * probability.  The expected chrF of one is the mean of its chrF against every hypothesis, each weighted by the square root of
     * its probability; it becomes the score, 0 to 100.  Needs a beam of at least 2; wide beams gain most. */
    bool mbr;
    /* Of each line the text that its translations begin with, in whole words; NULL or "": any. */
    const char *const *prefixes;
    bool alignments; /* fill in `alignment` of the translations */
    /* Translations are made of the tokens that this lexicon of the translator's vocabularies has for the line's, of the
     * first `shortlist_first` tokens (0: 100) and of those that may always follow; NULL: of all. */
    const attn_lexicon *shortlist;
    int64_t shortlist_first;
    int64_t shortlist_best; /* so many for each token of the line, the likeliest; 0: 100 */
    /* For attn_translator_evaluate: a source that is in several pairs is translated once and compared with all their
     * targets; false: each pair is scored by itself. */
    bool all_references;
    /* For attn_translator_evaluate: called for each sentence, with the first of its references.  May be NULL. */
    void (*sample)(void *user, const char *source, const char *reference, const char *prediction);
    void *user;
    bool unscored; /* greedy search leaves `score` 0, which takes less time */
} attn_translator_options;

typedef struct attn_translation {
    char *text;             /* detokenized; "" for an empty line */
    char *tokens;           /* as the model produced it: words joined by spaces */
    double score;           /* log-probability after the length penalty; with mbr the expected chrF */
    int64_t words, unknown; /* tokens of the source sentence, and those of them that the vocabulary lacks */
    char *unknown_words;    /* these, joined by ", "; "" if there are none */
    bool truncated;         /* the sentence was longer than the model takes */
    char *alignment;        /* if requested: a pair "i-j" for each word j of the translation, joined by spaces: word i
                             * of the line is the one that it attends to most.  Both count from 0; words are those
                             * between spaces or, with a vocabulary of words, its tokens */
} attn_translation;

/* Search settings of a published model's files: the options that hold where those of a call are zero, and what is
 * the caller's to do.  `shortlist` belongs to the translator. */
typedef struct attn_translator_search {
    attn_translator_options options;
    bool sampled;          /* the files request sampling, which is not done */
    bool prefixed;         /* a tab and what its translation begins with follow each line (Marian's force-decode) */
    const char *shortlist; /* the file of the model's lexicon; NULL: it has none */
} attn_translator_search;
ATTN_API attn_translator_search attn_translator_own_search(const attn_translator *translator);

/* Translates n lines.  results has room for n * nbest and is freed by attn_translations_free with that number.  The
 * translations of line i start at results[i * nbest], best first; what concerns the line itself (words, unknown,
 * unknown_words, truncated) is in the first.  Where there are fewer than nbest, the `text` of the last is NULL.
 * ATTN_ERROR_FORMAT: a line is not UTF-8 (its number is named); ATTN_ERROR_ARGUMENT: nbest is above the beam, mbr has
 * no beam, or a prefix (its number is named) is longer than a translation may be or has a word that the vocabulary
 * lacks; ATTN_ERROR_UNSUPPORTED: alignments of a model whose decoder does not attend to the source. */
ATTN_API attn_status attn_translator_translate(attn_translator *translator, const char *const *lines, int64_t n,
                                               const attn_translator_options *options, attn_translation *results);
ATTN_API void attn_translations_free(attn_context *context, attn_translation *results, int64_t n);

/* A lexicon from a file, plain or gzip, for `shortlist`; destroyed by the caller, before the translator.
 * ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_translator_lexicon(attn_lexicon **lexicon, const attn_translator *translator,
                                             const char *path);

typedef struct attn_translator_score {
    int64_t sentences, references; /* translated; and what they were compared with */
    int64_t truncated;             /* sentences that were longer than the model takes, whose ends were left out */
    double loss;                   /* nats per target token */
    double bleu_d2l;               /* mean over the sentences of attn_bleu_d2l with k = 2, of the best reference */
    attn_bleu corpus;              /* sacreBLEU's, of detokenized text */
    double chrf;                   /* chrF2, sacreBLEU's, of the same */
    double tokens_per_second;      /* decoded */
    double words_per_second;       /* of the source sentences, between spaces */
} attn_translator_score;

/* Which part of the data: its training's held-out part, or all of it. */
typedef enum attn_split { ATTN_SPLIT_ALL = 0, ATTN_SPLIT_TRAIN, ATTN_SPLIT_VALID, ATTN_SPLIT_TEST } attn_split;

/* Translates a part of the pairs and scores it.  `options` may be NULL; its `nbest`, `prefixes` and `alignments` are
 * ignored.  ATTN_ERROR_ARGUMENT: a part that has no pairs; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_translator_evaluate(attn_translator *translator, const attn_pairs_source *data,
                                              attn_split part, const attn_translator_options *options,
                                              attn_translator_score *score);

/* Learns a lexicon of its vocabularies from a part of the pairs; *pairs (may be NULL) gets how many those
 * were.  The caller destroys it, before the translator.
 * options->alignments gets a line for each pair of the data, whichever part was learned from: the likeliest source word
 * of each target word, "0-0 1-2", source-target, words being separated by spaces, and nothing for a word that
 * comes from none (freed by attn_bytes_free).  ATTN_ERROR_ARGUMENT: a part that has no pairs; ATTN_ERROR_NOT_FOUND,
 * ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_translator_learn_lexicon(attn_lexicon **lexicon, attn_translator *translator,
                                                   const attn_pairs_source *data, attn_split part,
                                                   const attn_lexicon_options *options, int64_t *pairs);

typedef enum attn_attention_kind {
    ATTN_SHOW_ENCODER = 1 << 0,
    ATTN_SHOW_DECODER = 1 << 1,
    ATTN_SHOW_CROSS = 1 << 2,
    ATTN_SHOW_WORDS = 1 << 3 /* in addition: the pieces of a word are joined, queries by their mean, keys by their
                              * sum */
} attn_attention_kind;

/* Draws the attention while `sentence` is translated: one panel a head, one row of panels a layer and kind, token
 * labels, one colour scale.  `kinds`: ATTN_SHOW_* added up; without a kind, all.  `translation` (may be NULL) gets the
 * words of the translation, to be freed with attn_bytes_free.  ATTN_ERROR_ARGUMENT: an empty sentence. */
ATTN_API attn_status attn_translator_render_attention(attn_translator *translator, const char *sentence, unsigned kinds,
                                                      attn_plot_format format, attn_bytes *picture,
                                                      attn_bytes *translation);

/* The phrasebook that the library carries: English and French, 'source<TAB>target' lines (CC0). */
ATTN_API const char *attn_phrasebook(size_t *size);

#ifdef __cplusplus
}
#endif
#endif
