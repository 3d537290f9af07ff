/* SPDX-License-Identifier: MIT
 *
 * translate.h - the translator: trained from sentence pairs, saved in a directory, used to translate
 * and to show its attention.
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

#include "attn/models.h"
#include "attn/plot.h"

#ifdef __cplusplus
extern "C" {
#endif

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
/* How likely each token of one language translates to each of another. */
typedef struct attn_lexicon attn_lexicon;
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
    bool unscored;          /* greedy search leaves `score` 0, which takes less time */
    int64_t reserved[4];
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
ATTN_API void attn_lexicon_destroy(attn_lexicon *lexicon); /* NULL is allowed */

typedef enum attn_attention_kind {
    ATTN_SHOW_ENCODER = 1 << 0,
    ATTN_SHOW_DECODER = 1 << 1,
    ATTN_SHOW_CROSS = 1 << 2,
    /* In addition: the pieces of a word are joined, queries by their mean, keys by their sum. */
    ATTN_SHOW_WORDS = 1 << 3,
    ATTN_SHOW_COLOURS = 1 << 4 /* times an attn_colours, added: the colours of the heatmaps */
} attn_attention_kind;

/* Draws the attention while `sentence` is translated: one panel a head, one row of panels a layer and kind, token
 * labels, one colour scale.  `kinds`: ATTN_SHOW_* added up; without a kind, all.  `translation` (may be NULL) gets the
 * words of the translation, to be freed with attn_bytes_free.  ATTN_ERROR_ARGUMENT: an empty sentence. */
ATTN_API attn_status attn_translator_render_attention(attn_translator *translator, const char *sentence, unsigned kinds,
                                                      attn_plot_format format, attn_bytes *picture,
                                                      attn_bytes *translation);

#ifdef __cplusplus
}
#endif
#endif
