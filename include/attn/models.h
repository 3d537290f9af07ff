/* SPDX-License-Identifier: MIT
 *
 * models.h - every architecture by name: its settings, building and running a model; sequence-to-sequence models and
 * decoding.
 *
 *     attn_config_set_int(config, "num_hiddens", 256); ...
 *     attn_model_create(&model, context, "transformer", config, &(attn_model_options){.seed = 1});
 *     logits = attn_seq2seq_forward(model, tape, src, src_lens, tgt_in, NULL);
 *
 * A model belongs to its context. One thread at a time uses a model and its context. Fixed letters: B batch, Ts and Tt
 * source and target tokens, V the target's vocabulary, H heads. */
#ifndef ATTN_MODELS_H
#define ATTN_MODELS_H

#include "attn/attn.h"
#include "attn/config.h"
#include "attn/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------- architectures */

/* A named input or output. */
typedef struct attn_port {
    const char *name;
    const char *shape; /* shape as readable text: "(b,q,d)" */
    bool integer;      /* ids and lengths: I32, or any type whose values are integers in the range of I32 */
    bool optional;     /* an optional input, or an output that is computed only on request */
    const char *doc;
} attn_port;

typedef struct attn_architecture {
    const char *name;
    const char *summary;
    const char *source; /* paper or text */
    int nkeys, ninputs, noutputs;
    const attn_setting *keys;
    const attn_port *inputs, *outputs;
    bool seq2seq; /* true if attn_seq2seq_forward and attn_seq2seq_translate work with the architecture */
} attn_architecture;

/* Returns the i-th architecture; NULL past the end. */
ATTN_API const attn_architecture *attn_architecture_at(int i);
/* Returns the architecture with this name; NULL if there is none. */
ATTN_API const attn_architecture *attn_architecture_find(const char *name);

/* ----------------------------------------------------------------------------------------------- models */

typedef struct attn_model attn_model;

/* Options for making a model. Zero means the default. */
typedef struct attn_model_options {
    uint64_t seed;    /* seed of the initial parameters */
    attn_dtype dtype; /* type of the parameters, ATTN_F32 or ATTN_F64 */
    /* parameters are zero, for weights that will be loaded: this saves the time of drawing random numbers */
    bool blank;
    /* maximum bytes of parameters and tables together, for settings from an untrusted file; 0: no limit */
    size_t limit;
    /* The precision of products. Parameters, their gradients and an optimizer's moments stay f32. The default is the
     * context's precision; a model in f64 computes in f64. ATTN_PRECISION_FMA is ATTN_ERROR_ARGUMENT in a context that
     * uses AMX; make that context with ATTN_PRECISION_FMA instead. */
    attn_precision precision;
    int64_t reserved[4];
} attn_model_options;

/* Builds `architecture` with the settings in `config` (may be NULL; a key "architecture" in it is ignored).
 * `options` may be NULL. ATTN_ERROR_NOT_FOUND: no such architecture; ATTN_ERROR_ARGUMENT: a key is unknown, missing, of
 * the wrong type or out of range (the message says what is allowed), or the model needs more than options->limit bytes;
 * ATTN_ERROR_MEMORY. *model is NULL on failure. */
ATTN_API attn_status attn_model_create(attn_model **model, attn_context *context, const char *architecture,
                                       const attn_config *config, const attn_model_options *options);
ATTN_API void attn_model_destroy(attn_model *model); /* Destroys a model. NULL is allowed. */

/* Returns the model's architecture, a constant of the library. */
ATTN_API const attn_architecture *attn_model_architecture(const attn_model *model);
/* Returns the settings with every key, which the model owns. */
ATTN_API const attn_config *attn_model_config(const attn_model *model);
/* Returns the context of the model, which the caller owns. */
ATTN_API attn_context *attn_model_context(const attn_model *model);
/* Returns the state dict in order of construction: trained parameters (attn_tensor_requires_grad) and buffers. The
 * model owns the list; attn_weights_load and attn_weights_assign of io.h fill its tensors. */
ATTN_API attn_named_list *attn_model_parameters(const attn_model *model);
/* Packs the weights of linear layers once, in the order in which products read them. Without this call each run packs
 * the weights again. The packed form replaces a parameter where possible (not lookup tables in bf16 and int8, and not
 * in f32 on AMX). Then the model only infers, in its own precision: attn_tensor_data of a replaced parameter is NULL,
 * and recording tapes and savers are refused. The parameters must not change after this call. A second call does
 * nothing. Results keep their bits, except on AMX in f32 (docs/numerics.md). After ATTN_ERROR_MEMORY the model can only
 * be destroyed. */
ATTN_API attn_status attn_model_pack_weights(attn_model *model);
/* Runs the model on named inputs. `outputs` gets the tape's tensors under the architecture's names; the list must not
 * own its tensors. An optional output (attention weights) is made only if the list already has an item of that name
 * (attn_named_add with a NULL tensor, or an old tensor). ATTN_ERROR_ARGUMENT: an input is missing, unknown or of the
 * wrong type; ATTN_ERROR_SHAPE. */
ATTN_API attn_status attn_model_forward(attn_model *model, attn_tape *tape, const attn_named_list *inputs,
                                        attn_named_list *outputs);

/* Writes DIRECTORY/config.json (the architecture's name and settings) and DIRECTORY/model.safetensors with the
 * architecture's own parameter names, the input format of attn_model_create and attn_weights_load. ATTN_ERROR_IO;
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_model_save(const attn_model *model, const char *directory);

/* Options for loading. Zero means the default in each field. */
typedef struct attn_model_load_options {
    const attn_config *config; /* settings instead of config.json; NULL: the directory's config.json */
    /* The architecture; NULL: the "architecture" of the settings or of the names file. */
    const char *architecture;
    const char *names;        /* a names file of io.h, or the name of a built-in one, for weights with foreign names */
    attn_dtype dtype;         /* type of the parameters, ATTN_F32 or ATTN_F64 */
    attn_precision precision; /* the precision, as in attn_model_options */
    /* If not NULL, gets the parameters that are missing, extra or of another shape, one per line. Free it with
     * attn_bytes_free. */
    attn_bytes *report;
    int64_t reserved[4];
} attn_model_load_options;
/* Loads a model with its weights; the caller destroys it with attn_model_destroy. The path is a directory with
 * config.json and weights, the output of attn_model_save and of trainings, or a file of weights together with `config`
 * or `names`. Settings that the architecture does not have are ignored. `options` may be NULL.
 *
 *     attn_model *model;
 *     if (attn_model_load(&model, context, "out/demo", NULL) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * *model is NULL on failure. ATTN_ERROR_NOT_FOUND: no such file, or no such architecture; ATTN_ERROR_ARGUMENT: the
 * architecture is not given, or a setting is wrong; ATTN_ERROR_SHAPE: parameters are missing, extra or of another
 * shape; the statuses of attn_weights_load and attn_name_map_read. */
ATTN_API attn_status attn_model_load(attn_model **model, attn_context *context, const char *path,
                                     const attn_model_load_options *options);

/* --------------------------------------------------------------------------------- sequence to sequence */

/* Options of a forward pass. Zero means the default. */
typedef struct attn_seq2seq_options {
    /* Quirk of Dive into Deep Learning: outside training its decoder is not causal, so its validation loss includes
     * tokens that should be predicted. By default the decoder is always causal. */
    bool see_future;
    /* If not NULL, gets attention weights: "encoder.0" [B,H,Ts,Ts], "decoder.0" [B,H,Tt,Tt], "cross.0" [B,H,Tt,Ts],
     * and so on for each layer (models with one attention: "cross.0" [B,1,Tt,Ts] only). The tape owns the tensors. */
    attn_named_list *weights;
    /* If not NULL, gets the last layer's "cross" weights. A gradient flows through them if the tape records. NULL if no
     * layer attends to the source. `weights` then lacks the last layer's "decoder". */
    attn_tensor **guided;
    int64_t reserved[4];
} attn_seq2seq_options;

/* Computes logits [B,Tt,V] from src I32 [B,Ts], src_lens I32 [B] or NULL, and tgt_in I32 [B,Tt]. Dropout is applied if
 * the tape trains. NULL on error; ATTN_ERROR_UNSUPPORTED if the architecture is not sequence-to-sequence. */
ATTN_API attn_tensor *attn_seq2seq_forward(attn_model *model, attn_tape *tape, const attn_tensor *src,
                                           const attn_tensor *src_lens, const attn_tensor *tgt_in,
                                           const attn_seq2seq_options *options);

/* The length rule: how the score of a hypothesis depends on its length, and when a search ends. */
typedef enum attn_length_rule {
    /* log_prob / ((5 + length) / 6)^alpha (Wu et al. 2016, arXiv:1609.08144). The search ends when no open hypothesis
     * can overtake the best finished one, or when as many have finished as the beam is wide. */
    ATTN_LENGTH_WU = 0,
    /* log_prob / length^alpha, as in Marian and Hugging Face transformers. Keeps as many finished hypotheses as the
     * beam is wide. The search ends when the best open hypothesis, at its present length, is not above the worst
     * finished one. */
    ATTN_LENGTH_POWER
} attn_length_rule;
typedef enum attn_stopping { ATTN_STOP_LIKELY = 0, ATTN_STOP_FULL, ATTN_STOP_NEVER } attn_stopping;

/* Options of a beam search. Zero means the default, except for the ids, which have no default. */
typedef struct attn_beam_search_options {
    int32_t bos, eos;      /* first and last token of a sentence */
    int64_t max_len;       /* maximum number of tokens of the result; 0: 64 */
    int64_t beam;          /* number of hypotheses that are kept; 0 or 1: greedy search */
    double length_penalty; /* alpha of the length rule; the length includes the end token. 0: no penalty */
    bool first_position;   /* quirk of Dive into Deep Learning: every decoded token is at position 0 */
    attn_length_rule rule;
    /* for ATTN_LENGTH_POWER only: when the search ends. It ends as described there, or as soon as the beam is full of
     * finished hypotheses, or when no open hypothesis could be better than the finished ones at any length. */
    attn_stopping stopping;
    bool force_end;  /* only the end token may be the last of max_len tokens, and it adds no cost there */
    int64_t nbanned; /* tokens that are never chosen; see `renormalize` for the other tokens' probabilities */
    const int32_t *banned;
    bool renormalize;        /* true: the softmax is renormalized over the tokens that are not banned */
    int64_t no_repeat_ngram; /* no sequence of this many tokens occurs twice, including `bos`; 0: no such rule */
    /* For tokens that a hypothesis already has, a negative log-probability (without a beam: logit) is multiplied by
     * this number, a positive one divided (arXiv:1909.05858). 0, 1: no penalty. */
    double repetition_penalty;
    int64_t min_len;         /* minimum number of tokens of a hypothesis, including the end token */
    const int64_t *max_lens; /* for each sentence: its own max_len, if that is smaller; NULL: none */
    int64_t nbest;           /* number of hypotheses to return for each sentence, at most `beam`; 0: 1 */
    /* Forced prefixes: the tokens that each hypothesis of sentence b begins with, whatever their probability. prefix[b]
     * has nprefix[b] tokens, fewer than max_len and without the end token. NULL: no prefixes. */
    const int32_t *const *prefix;
    const int64_t *nprefix;
    /* The allowed tokens of sentence b: nallowed[b] tokens in allowed[b], in ascending order, including the end token
     * and the tokens of the prefix. Other tokens have no share of the probability. NULL: all tokens are allowed. */
    const int32_t *const *allowed;
    const int64_t *nallowed;
    /* true: greedy search compares logits instead of probabilities and leaves log_prob and score 0. The result can
     * differ from a search with scores only if two logits differ but their probabilities, as doubles, are equal. */
    bool unscored;
    int64_t reserved[4];
} attn_beam_search_options;

typedef struct attn_hypothesis {
    int64_t n;
    int32_t *ids;    /* tokens without the start and end tokens; free them with attn_hypotheses_free */
    double log_prob; /* sum over the tokens, including the end token */
    double score;    /* log_prob after the length penalty */
    bool finished;   /* true if the hypothesis has reached the end token */
} attn_hypothesis;

/* Translates src (I32 [B,Ts], src_lens I32 [B] or NULL), all sentences at once. `results` has room for B * nbest
 * hypotheses. The hypotheses of sentence i start at results[i * nbest], best first; the first is the same for every
 * nbest. If a search ends with fewer than nbest, the remaining results are zero and their `ids` are NULL. The function
 * uses its own tape. On error nothing needs to be freed. ATTN_ERROR_UNSUPPORTED: the model has no decoder;
 * ATTN_ERROR_SHAPE, ATTN_ERROR_ARGUMENT, ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_seq2seq_translate(attn_model *model, const attn_tensor *src, const attn_tensor *src_lens,
                                            const attn_beam_search_options *options, attn_hypothesis *results);
ATTN_API void attn_hypotheses_free(attn_context *context, attn_hypothesis *results, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
