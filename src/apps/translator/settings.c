/* SPDX-License-Identifier: MIT
 *
 * Contains the table of a translator's settings. The defaults are for the Transformer. For the Bahdanau model and for
 * D2L compatibility, presets change them.
 */
#include "apps/translator/settings.h"

#include "apps/run/run.h"
#include "base/context.h"

#include <string.h>

static const char *const models[] = {"transformer", "bahdanau", NULL};
static const char *const compats[] = {"none", "d2l", NULL};
static const char *const vocabularies[] = {"auto", "unigram", "bpe", "word", NULL};
static const char *const judges[] = {"loss", "bleu", "chrf", NULL};
static const char *const ties[] = {"none", "decoder", "all", NULL};
static const char *const norms[] = {"post", "pre", NULL};
static const attn_setting keys[] = {
    ATTN__TEXT("model", "transformer", models, "the kind of model"),
    ATTN__TEXT("compat", "none", compats,
               "d2l: the choices of Dive into Deep Learning, right or wrong (see docs/translate.md)"),
    ATTN__RUN_BEGIN(
        "a translator: a directory of attn's or one in MarianMT's form, whose model and vocabularies are then used",
        "dropout"),
    /* data */
    ATTN__INT("max_examples", "0", 0, 1e9, "read at most this many pairs; 0: all"),
    ATTN__TEXT("vocabulary", "auto", vocabularies,
               "pieces of words, by a unigram model or by merged pairs, or whole words; auto: unigram from 4,000 pairs "
               "on, else word"),
    ATTN__INT("vocabulary_size", "8000", 300, 1e6, "most pieces in a vocabulary of pieces"),
    ATTN__REAL("character_coverage", "0.9995", 0.98, 1,
               "share of the texts' characters that get pieces of their own; rarer characters are spelled as bytes "
               "(vocabulary of pieces)"),
    ATTN__BOOL("joint_vocabulary", "true", "one vocabulary of pieces for both sides"),
    ATTN__INT("min_frequency", "2", 1, 1e9, "words seen less often are unknown (vocabulary of words)"),
    ATTN__INT("max_words", "0", 0, 1e9, "most words in each vocabulary of words; 0: no limit"),
    ATTN__INT("max_tokens", "64", 2, 1000, "longer sentences are cut"),
    ATTN__REAL("valid", "0.05", 0, 0.9, "share of the source sentences kept for validation"),
    ATTN__REAL("test", "0.05", 0, 0.9, "share of the source sentences kept for testing"),
    ATTN__REAL(
        "max_ratio", "0", 0, 1e6,
        "leave out of training each pair with more than this many times as many characters on one side as on the "
        "other; 0: none"),
    ATTN__BOOL("unique", "false", "train on equal pairs only once"),
    ATTN__TEXT(
        "mix", "", NULL,
        "FILE=SHARE: add pairs of another file (its training part), so many that they are this share of the training "
        "part, as 0.5"),
    ATTN__TEXT(
        "guided_alignment", "", NULL,
        "a file of word alignments, a line for each pair of the data, as fast_align and attn align --alignments write "
        "them: \"0-0 1-2\", source-target. The attention of the decoder's last layer (the mean of its heads) learns "
        "to follow them"),
    ATTN__REAL("guided_alignment_weight", "", 0, 1e6,
               "weight of the alignments' loss beside that of the tokens; default 0.1"),
    ATTN__BOOL("space_before_marks", "true",
               "translations keep the space before ! ? ; :, as French has it (vocabulary of words)"),
    /* model */
    ATTN__INT("num_hiddens", "256", 1, 65536, "width of the model"),
    ATTN__INT("ffn_num_hiddens", "1024", 1, 1048576, "width of the feed-forward layers (transformer)"),
    ATTN__INT("num_heads", "4", 1, 1024, "attention heads (transformer)"),
    ATTN__INT("num_blks", "3", 1, 64, "layers of encoder and decoder each (transformer)"),
    ATTN__BOOL("use_bias", "false", "biases in the encoder's attention (transformer)"),
    ATTN__INT("embed_size", "256", 1, 65536, "width of the embeddings (bahdanau)"),
    ATTN__INT("num_layers", "2", 1, 100, "layers of encoder and decoder each (bahdanau)"),
    ATTN__TEXT(
        "tie", "", ties,
        "which layers share one table (transformer): none; decoder: its embedding and the output layer; all: the "
        "encoder's embedding too; default: all with one vocabulary of pieces, decoder with two, none with words"),
    ATTN__TEXT("norm", "", norms,
               "where norms stand (transformer): post, behind the residual connections, or pre, before the layers; "
               "default: pre with a vocabulary of pieces, post with words"),
    ATTN__REAL("dropout", "0.1", 0, 0.95, "share of activations dropped in training"),
    /* training */
    ATTN__INT("average", "1", 1, 100, "average the parameters at the ends of this many last epochs"),
    ATTN__INT(
        "valid_sentences", "", 0, 1e9,
        "sentences of the validation part that are translated after each epoch, for BLEU and chrF; default 500 with "
        "a vocabulary of pieces, else 0"),
    ATTN__TEXT("best_by", "loss", judges, "the measure by which the best epoch is chosen, for --keep and --patience"),
    ATTN__INT("batch_tokens", "0", 0, 1e6,
              "tokens in a step, padding included, of the longer side, in place of --batch; 0: sentences are counted"),
    ATTN__RUN_KEYS("sentences", "words", "10", "64", "adam", "0.0007", "inverse-sqrt", "1000", "0", "0.1"),
};
/* Defaults that depend on the settings "model" or "compat". */
static const attn__preset presets[] = {
    {{"bahdanau", NULL}, "dropout", "0.2"},   {{"bahdanau", NULL}, "rate", "0.001"},
    {{"bahdanau", NULL}, "warmup", "200"},    {{NULL, "d2l"}, "vocabulary", "word"},
    {{NULL, "d2l"}, "max_examples", "640"},   {{NULL, "d2l"}, "max_tokens", "9"},
    {{NULL, "d2l"}, "ffn_num_hiddens", "64"}, {{NULL, "d2l"}, "num_blks", "2"},
    {{NULL, "d2l"}, "dropout", "0.2"},        {{NULL, "d2l"}, "epochs", "30"},
    {{NULL, "d2l"}, "batch", "128"},          {{NULL, "d2l"}, "rate", "0.0015"},
    {{NULL, "d2l"}, "schedule", "constant"},  {{NULL, "d2l"}, "warmup", "0"},
    {{NULL, "d2l"}, "label_smoothing", "0"},  {{NULL, "d2l"}, "keep", "last"},
    {{"bahdanau", "d2l"}, "rate", "0.005"},   {{"bahdanau", "d2l"}, "dropout", "0.4"},
    {{"bahdanau", "d2l"}, "epochs", "15"},
};

static const attn__key_need needs[] = {
    {"embed_size", "model", {"bahdanau"}},
    {"num_layers", "model", {"bahdanau"}},
    {"ffn_num_hiddens", "model", {"transformer"}},
    {"num_heads", "model", {"transformer"}},
    {"num_blks", "model", {"transformer"}},
    {"use_bias", "model", {"transformer"}},
    {"tie", "model", {"transformer"}},
    {"norm", "model", {"transformer"}},
    {"vocabulary_size", "vocabulary", {"unigram", "bpe"}},
    {"character_coverage", "vocabulary", {"unigram", "bpe"}},
    {"joint_vocabulary", "vocabulary", {"unigram", "bpe"}},
    {"min_frequency", "vocabulary", {"word"}},
    {"max_words", "vocabulary", {"word"}},
    {"space_before_marks", "vocabulary", {"word"}},
};

const attn__keys attn__translator_keys = {.keys = keys,
                                          .n = sizeof keys / sizeof *keys,
                                          .selectors = {"model", "compat"},
                                          .presets = presets,
                                          .npresets = sizeof presets / sizeof *presets,
                                          .needs = needs,
                                          .nneeds = sizeof needs / sizeof *needs};

const attn_trainer attn__translator_trainer = {
    .kind = "translate",
    .summary = "a translator",
    .data = "a file of sentence pairs, plain or gzip: the sentence, a tab, its translation",
    .nkeys = sizeof keys / sizeof *keys,
    .keys = keys};

/* -------------------------------------------------------------------------------------------- reading */

attn_compat attn__setting_compat(const attn_config *settings)
{
    return strcmp(attn_config_text(settings, "compat", "none"), "d2l") == 0 ? ATTN_COMPAT_D2L : ATTN_COMPAT_NONE;
}

attn_vocab_kind attn__setting_vocabulary(const attn_config *settings)
{
    const char *name = attn_config_text(settings, "vocabulary", "word");
    return strcmp(name, "unigram") == 0 ? ATTN_VOCAB_UNIGRAM
           : strcmp(name, "bpe") == 0   ? ATTN_VOCAB_BPE
                                        : ATTN_VOCAB_WORDS;
}

/* Converts a share in the settings to a share in the library's options. In the settings, 0 means no share. In the
 * options, -1 means no share, and 0 means the default. */
static double share(const attn_config *settings, const char *key)
{
    double value = attn_config_real(settings, key, 0);
    return value > 0 ? value : -1;
}

attn_pairs_split_options attn__setting_split(const attn_config *settings)
{
    return (attn_pairs_split_options){.compat = attn__setting_compat(settings),
                                      .seed = (uint64_t)attn_config_int(settings, "seed", 1),
                                      .valid = share(settings, "valid"),
                                      .test = share(settings, "test")};
}
