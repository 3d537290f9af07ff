/* SPDX-License-Identifier: MIT
 *
 * translate.h - the translator. It is trained from sentence pairs (trainer.h, kind "translate") and saved in a
 * directory. It translates and shows its attention.
 *
 * A translator's directory holds
 *     config.json          the architecture, its settings and how text is prepared
 *     model.safetensors    the parameters that were best on the validation part
 *     source.vocab, target.vocab   or, with a vocabulary of pieces, source.spm, target.spm
 *     low_score.json       the score below which a translation is doubtful (attn_translation.doubtful); absent if the
 *                          training had no validation part, or is not finished
 * and, for resuming the training,
 *     training.json        every setting of the training
 *     checkpoint.safetensors  parameters, optimizer and counters in one file, so that they always match
 *     history.tsv          one line per epoch
 * Files are replaced as a whole. If a run is killed at any moment, it can be resumed, and ends with the same bits. This
 * holds for any number of threads. */
#ifndef ATTN_TRANSLATE_H
#define ATTN_TRANSLATE_H

#include "attn/models.h"
#include "attn/plot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_translator attn_translator;

/* Loads a translator from its directory; the caller destroys it. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO,
 * ATTN_ERROR_FORMAT, ATTN_ERROR_SHAPE (parameters that do not match the config), ATTN_ERROR_MEMORY. `names` is a names
 * file of io.h, or the name of a built-in one, for weights with foreign names; NULL: none. With `names`, the directory
 * still needs attn's vocabulary files, but settings that follow from the shapes of the weights may be absent from
 * config.json. If the directory is in MarianMT's form, it keeps its form, and `names` replaces the names file for its
 * weights. ATTN_ERROR_FORMAT also: a names file is malformed, or a tensor has no rule. */
ATTN_API attn_status attn_translator_load(attn_translator **translator, attn_context *context, const char *directory,
                                          const char *names);
ATTN_API void attn_translator_destroy(attn_translator *translator); /* Destroys a translator. NULL is allowed. */
/* Packs the weights once, in the order in which products read them, for all later translations. Without this call, each
 * translation packs them again. The packed form replaces a parameter where possible, which is not the case on AMX in
 * f32. After this call, the model can only translate and score, and attn_tensor_data of a replaced parameter is NULL.
 * The parameters must not change after this call. A second call does nothing. After ATTN_ERROR_MEMORY the translator
 * can only be destroyed. */
ATTN_API attn_status attn_translator_pack_weights(attn_translator *translator);
/* A lexicon. It has the probabilities that a token of one language translates to a token of the other. */
typedef struct attn_lexicon attn_lexicon;
/* Options for translating. Zero means the default. Negative numbers, NaN and infinity are refused (ATTN_ERROR_ARGUMENT). */
typedef struct attn_translator_options {
    /* width of the beam; 1: greedy search; 0: the model's own setting, which is 1 if attn trained the model */
    int64_t beam;
    double length_penalty; /* length penalty of beam search; 0: the model's own setting */
    int64_t batch;         /* number of sentences that are translated at once; 0: 32 */
    /* maximum number of tokens of a translation, including its end; the model's own maximum applies if it is smaller */
    int64_t max_len;
    /* maximum number of tokens for each token of the line, including the ends; 0: no such limit if max_len is given,
     * and otherwise the model's own limit */
    double length_factor;
    int64_t min_len; /* minimum number of tokens, including the end; 0: the model's own minimum, or none */
    /* Rules against repetition, as in attn_beam_search_options. 0: the model's own setting, or no rule. */
    int64_t no_repeat_ngram;
    double repetition_penalty;
    /* Tokens of the target vocabulary that no translation contains, in addition to the model's own. There are
     * nsuppressed of them. */
    const int32_t *suppressed;
    int64_t nsuppressed;
    int64_t nbest; /* number of translations to return for each line, at most `beam`; 0: 1 */
    /* Minimum Bayes risk (Kumar and Byrne 2004). The hypotheses of the beam are sorted by their expected chrF instead
     * of their probability. The expected chrF of a hypothesis is its mean chrF against every hypothesis, where each is
     * weighted by the square root of its probability. It becomes the score, 0 to 100. The beam must have a width of at
     * least 2. Wide beams gain most. */
    bool mbr;
    /* Forced prefixes. The translations of a line begin with its prefix, which is a text of whole words. NULL or "":
     * no prefix. */
    const char *const *prefixes;
    bool alignments; /* true: `alignment` of each translation is filled in */
    /* A shortlist. Translations use only three kinds of tokens: tokens that this lexicon lists for the tokens of the
     * line, the first `shortlist_first` tokens of the vocabulary (0: 100), and tokens that are always allowed. The
     * lexicon must be for the translator's vocabularies. NULL: all tokens are used. */
    const attn_lexicon *shortlist;
    int64_t shortlist_first;
    /* number of the likeliest translations that the lexicon gives for each token of the line; 0: 100 */
    int64_t shortlist_best;
    bool unscored;             /* true: a greedy search saves time, and `score` is 0 */
    bool suppress_unk;         /* true: no translation contains the unknown token */
    bool sequences_are_tokens; /* true: `suppressed_sequences` has tokens in place of texts */
    /* Sequences of tokens that no translation contains, after which NULL follows. By default, each is a text, such as
     * "la porte", which is normalized and divided like a translation of the training. A text with words that the
     * vocabulary does not have suppresses nothing, because no translation can contain it. With a vocabulary of pieces,
     * the same letters may still occur as other pieces, and a word that only begins with the last piece is suppressed
     * too. With `sequences_are_tokens`, each sequence consists of tokens of the target vocabulary with spaces between,
     * as in `tokens` of a translation. A forced prefix may contain the sequences. NULL: nothing is suppressed. */
    const char *const *suppressed_sequences;
    /* maximum number of tokens of a line that the model reads, including the end. A longer line is cut, and `truncated`
     * is set. 0, or more than the model supports: the number that the model supports */
    int64_t max_input;
    /* When the search of a line ends: after beam * patience finished hypotheses, as in attn_beam_search_options.
     * 0, 1: the model's own settings decide. */
    double patience;
    int64_t reserved[1];
} attn_translator_options;

typedef struct attn_translation {
    char *text;   /* detokenized translation; if the line is empty, "" */
    char *tokens; /* words of the translation joined by spaces, as the model produced them */
    double score; /* log-probability after the length penalty or, with mbr, the expected chrF */
    /* number of tokens of the source sentence, and how many of them are not in the vocabulary */
    int64_t words, unknown;
    char *unknown_words; /* the unknown words, joined by ", "; "" if there are none */
    bool truncated;      /* true if the sentence was longer than the model or `max_input` allows and was cut */
    /* true if the line has unknown words, or if the log-probability of the translation divided by its number of tokens,
     * with the end token, is below the translator's limit. When a training ends, it translates up to 500 sentences of
     * its validation part. The limit is the value that 98 % of these translations reach. A published model has no limit,
     * and an unscored search has no log-probability, so that only unknown words count. */
    bool doubtful;
    /* If requested, one pair "i-j" for each word j of the translation, joined by spaces. Word i of the line has the
     * largest attention weight for word j. Both count from 0. Words are separated by spaces. If the vocabulary has
     * whole words, the words are the tokens. */
    char *alignment;
    int64_t reserved[4]; /* 0; the library fills arrays of this struct, so later versions use these fields */
} attn_translation;

/* Translates n lines. `results` has room for n * nbest translations and is freed by attn_translations_free with that
 * number. The translations of line i start at results[i * nbest], with the best one first. The first one also describes
 * the line (words, unknown, unknown_words, truncated). If there are fewer than nbest translations, the `text` of the
 * remaining results is NULL. ATTN_ERROR_FORMAT: a line is not UTF-8, and the error has its number.
 * ATTN_ERROR_ARGUMENT: nbest is above the beam, or above the number of hypotheses with which `patience` ends the
 * search; mbr is set without a beam; a suppressed sequence has no tokens, or a token that the vocabulary does not
 * have; all tokens that could follow are suppressed; or a prefix is too long or has a word that the vocabulary does
 * not have. The error has the number of the sequence, line or prefix, which counts from 1. ATTN_ERROR_UNSUPPORTED:
 * alignments are requested, and the model's decoder does not attend to the source. */
ATTN_API attn_status attn_translator_translate(attn_translator *translator, const char *const *lines, int64_t n,
                                               const attn_translator_options *options, attn_translation *results);
ATTN_API void attn_translations_free(attn_context *context, attn_translation *results, int64_t n);

/* Loads a lexicon for `shortlist` from a file, which may be compressed by gzip. The caller destroys the lexicon
 * before the translator. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_translator_lexicon(attn_lexicon **lexicon, const attn_translator *translator,
                                             const char *path);
ATTN_API void attn_lexicon_destroy(attn_lexicon *lexicon); /* Destroys a lexicon. NULL is allowed. */

typedef enum attn_attention_kind {
    ATTN_SHOW_ENCODER = 1 << 0,
    ATTN_SHOW_DECODER = 1 << 1,
    ATTN_SHOW_CROSS = 1 << 2
} attn_attention_kind;

/* How attention is drawn. Zero means the default. */
typedef struct attn_translator_view {
    unsigned kinds; /* sum of ATTN_SHOW_*; 0: all kinds */
    /* draws words instead of pieces; the weights of a word are the mean over its queries and the sum over its keys */
    bool words;
    attn_colours colours;
    double low, high; /* the range of the colour scale, as in attn_heatmaps */
    /* options of the translation, of which the best one is shown; NULL: the model's own settings */
    const attn_translator_options *search;
    int64_t reserved[4];
} attn_translator_view;

/* Draws the attention during the translation of `sentence`: the weights of the computation with which
 * attn_translator_translate makes this translation with the options view->search. Each head has a panel, and each layer
 * and kind has a row of panels. All panels have token labels and one colour scale. `view` may be NULL. `translation`,
 * which may be NULL, gets the words of the translation. Free it with attn_bytes_free. ATTN_ERROR_ARGUMENT: the sentence
 * is empty. Otherwise returns the errors of attn_translator_translate and attn_heatmaps_render. */
ATTN_API attn_status attn_translator_render_attention(attn_translator *translator, const char *sentence,
                                                      const attn_translator_view *view, attn_plot_format format,
                                                      attn_bytes *picture, attn_bytes *translation);

#ifdef __cplusplus
}
#endif
#endif
