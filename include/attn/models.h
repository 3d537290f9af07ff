/* SPDX-License-Identifier: MIT
 *
 * models.h - every architecture by name: what it is built from, and running it; sequence-to-sequence models and
 * decoding with them.
 *
 *     attn_config_set_int(config, "num_hiddens", 256); ...
 *     attn_model_create(&model, context, "transformer", config, &(attn_model_options){.seed = 1});
 *     logits = attn_seq2seq_forward(model, tape, src, src_lens, tgt_in, NULL);
 *
 * A model belongs to its context and follows the same rule: one thread at a time.  Fixed letters: B batch, Ts and
 * Tt source and target tokens, V the target's vocabulary, H heads.
 */
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
    const char *shape; /* for people: "(b,q,d)" */
    bool integer;      /* ids and lengths: I32, or any type whose values are whole and fit */
    bool optional;     /* an input that may be left out; an output that is made only if requested */
    const char *doc;
} attn_port;

typedef struct attn_architecture {
    const char *name;
    const char *summary;
    const char *source; /* paper or text */
    int nkeys, ninputs, noutputs;
    const attn_setting *keys;
    const attn_port *inputs, *outputs;
    bool seq2seq; /* attn_seq2seq_forward and attn_seq2seq_translate work */
} attn_architecture;

ATTN_API const attn_architecture *attn_architecture_at(int i);              /* NULL past the end */
ATTN_API const attn_architecture *attn_architecture_find(const char *name); /* NULL if there is none */

/* ----------------------------------------------------------------------------------------------- models */

typedef struct attn_model attn_model;

/* Zero means the default. */
typedef struct attn_model_options {
    uint64_t seed;    /* of the parameters */
    attn_dtype dtype; /* ATTN_F32 or ATTN_F64 */
    bool blank;       /* parameters are zeros, for weights that will be loaded: no time is spent on random numbers */
    size_t limit;     /* most bytes of parameters and tables together, for settings from a file; 0: no limit */
    /* The precision of products; parameters, their gradients and an optimizer's moments stay f32.  The default is the
     * context's precision; a model in f64 computes in f64.  ATTN_PRECISION_FMA in a context that uses AMX is
     * ATTN_ERROR_ARGUMENT: there the context has to have it. */
    attn_precision precision;
    int64_t reserved[4];
} attn_model_options;

/* Builds `architecture` with the settings in `config` (may be NULL; a key "architecture" in it is ignored).
 * `options` may be NULL.  ATTN_ERROR_NOT_FOUND: no such architecture; ATTN_ERROR_ARGUMENT: a key unknown, missing,
 * of the wrong type or out of range (the message says what is allowed), or more than options->limit;
 * ATTN_ERROR_MEMORY.  *model is NULL on failure. */
ATTN_API attn_status attn_model_create(attn_model **model, attn_context *context, const char *architecture,
                                       const attn_config *config, const attn_model_options *options);
ATTN_API void attn_model_destroy(attn_model *model); /* NULL is allowed */

/* The model's architecture; a constant of the library. */
ATTN_API const attn_architecture *attn_model_architecture(const attn_model *model);
ATTN_API const attn_config *attn_model_config(const attn_model *model); /* every key, defaults filled in */
/* The context that it was made with, which is the caller's. */
ATTN_API attn_context *attn_model_context(const attn_model *model);
/* The state dict, in order of construction: trained parameters (attn_tensor_requires_grad) and buffers.  The
 * model's own; attn_weights_load and attn_weights_assign of io.h fill it. */
ATTN_API attn_named_list *attn_model_parameters(const attn_model *model);
/* Packs the weights of linear layers once, in the order in which products read them, for all later runs; without it
 * each run packs for itself.  The packed form replaces the parameters where it can (not tables in bf16 and int8, whose
 * rows are looked up, nor f32 on AMX).  The model then only infers, in its precision: attn_tensor_data of such a
 * parameter is NULL, and a recording tape and savers are refused.  From here on the parameters must not change.  A
 * second call does nothing.  Results keep their bits, but on AMX in f32 (docs/numerics.md).  ATTN_ERROR_MEMORY: the
 * model can only be destroyed. */
ATTN_API attn_status attn_model_pack_weights(attn_model *model);
/* Runs the model on named inputs.  `outputs` gets the tape's tensors under the architecture's names; which must not own its tensors; optional
 * outputs (attention weights) only if an item of that name is there before the call (attn_named_add with a NULL
 * tensor, or an old one).  ATTN_ERROR_ARGUMENT: an input missing, unknown or of the wrong type; ATTN_ERROR_SHAPE. */
ATTN_API attn_status attn_model_forward(attn_model *model, attn_tape *tape, const attn_named_list *inputs,
                                        attn_named_list *outputs);

/* Writes DIRECTORY/config.json (the architecture's name and settings) and DIRECTORY/model.safetensors, in that
 * architecture's own names, as attn_model_create and attn_weights_load take them.  ATTN_ERROR_IO; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_model_save(const attn_model *model, const char *directory);

/* Zero means the default in each field. */
typedef struct attn_model_load_options {
    const attn_config *config; /* the settings, in place of config.json; NULL: that of the directory */
    /* Which architecture; NULL: the one that the settings name by "architecture", or the names file. */
    const char *architecture;
    const char *names; /* a names file of io.h, or the name of one that is built in, for weights of foreign names */
    attn_dtype dtype;  /* ATTN_F32 or ATTN_F64 */
    attn_precision precision; /* as in attn_model_options */
    /* If not NULL: gets the parameters that are missing, extra or misshapen, one a line; freed by attn_bytes_free. */
    attn_bytes *report;
    int64_t reserved[4];
} attn_model_load_options;
/* A model with its weights, to be destroyed by the caller with attn_model_destroy: from a directory of config.json and
 * weights, as attn_model_save and trainings write it, or from a file of weights with `config`, or with `names`.
 * Settings that the architecture does not have are passed over.  `options` may be NULL.
 *
 *     attn_model *model;
 *     if (attn_model_load(&model, context, "out/demo", NULL) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * *model is NULL on failure.  ATTN_ERROR_NOT_FOUND: no such file, or no such architecture; ATTN_ERROR_ARGUMENT: nothing says what model it is, or
 * a setting is wrong; ATTN_ERROR_SHAPE: parameters are missing, extra or misshapen; the statuses of attn_weights_load
 * and attn_name_map_read. */
ATTN_API attn_status attn_model_load(attn_model **model, attn_context *context, const char *path,
                                     const attn_model_load_options *options);

/* --------------------------------------------------------------------------------- sequence to sequence */

/* Zero means the default. */
typedef struct attn_seq2seq_options {
    /* Quirk of Dive into Deep Learning: outside training its decoder masks nothing, so that its validation loss
     * sees the tokens it should predict.  By default the decoder is always causal. */
    bool see_future;
    /* If not NULL, gets attention weights: "encoder.0" [B,H,Ts,Ts], "decoder.0" [B,H,Tt,Tt], "cross.0" [B,H,Tt,Ts],
     * and so on for each layer (models with one attention: "cross.0" [B,1,Tt,Ts] only).  The tape's tensors. */
    attn_named_list *weights;
    /* If not NULL, gets the last layer's "cross" weights, through which a gradient flows where the tape records; NULL
     * where no layer attends to the source.  `weights` then lacks the last layer's "decoder". */
    attn_tensor **guided;
    int64_t reserved[4];
} attn_seq2seq_options;

/* src I32 [B,Ts], src_lens I32 [B] or NULL, tgt_in I32 [B,Tt] -> logits [B,Tt,V].  Dropout follows the tape's mode.
 * NULL on error; ATTN_ERROR_UNSUPPORTED if the architecture is none of this kind. */
ATTN_API attn_tensor *attn_seq2seq_forward(attn_model *model, attn_tape *tape, const attn_tensor *src,
                                           const attn_tensor *src_lens, const attn_tensor *tgt_in,
                                           const attn_seq2seq_options *options);

/* How the score of a hypothesis depends on its length, and when a search ends. */
typedef enum attn_length_rule {
    ATTN_LENGTH_WU = 0, /* log_prob / ((5 + length) / 6)^alpha (Wu et al. 2016, arXiv:1609.08144); ends when no living
                         * hypothesis can overtake the best that ended, or as many as the beam have ended */
    ATTN_LENGTH_POWER   /* log_prob / length^alpha, as Marian and Hugging Face transformers have it; keeps as many ended
                         * ones as the beam is wide and ends when the best living one, at its present length, is not
                         * above the worst of these */
} attn_length_rule;
typedef enum attn_stopping { ATTN_STOP_LIKELY = 0, ATTN_STOP_FULL, ATTN_STOP_NEVER } attn_stopping;

/* Zero means the default, except for the ids, which are taken as they are. */
typedef struct attn_beam_search_options {
    int32_t bos, eos;      /* what a sentence starts and ends with */
    int64_t max_len;       /* most tokens of the result; 0: 64 */
    int64_t beam;          /* 0 or 1: greedy */
    double length_penalty; /* alpha of the rule; length counts the end.  0: none */
    bool first_position;   /* quirk of Dive into Deep Learning: every decoded token is at position 0 */
    attn_length_rule rule;
    attn_stopping stopping; /* ATTN_LENGTH_POWER: as above; as soon as the beam is full of ended ones; or when the best
                             * living one could not be above them at any length */
    bool force_end;         /* nothing but the end may be the last of max_len tokens; it costs nothing there */
    int64_t nbanned;        /* tokens that never follow; their share of the probability is not given to others... */
    const int32_t *banned;
    bool renormalize; /* ...or it is: the softmax is over the others */
    int64_t
        no_repeat_ngram; /* no hypothesis has a sequence of so many tokens twice, `bos` counted as its first; 0: any */
    double
        repetition_penalty; /* log-probabilities (without a beam: logits) of tokens that a hypothesis has are multiplied
                                * by it where they are negative, else divided (arXiv:1909.05858); 0, 1: none */
    int64_t min_len;        /* least tokens of a hypothesis, the end included */
    const int64_t *max_lens; /* for each sentence, its own max_len where that is less; NULL: none has one */
    int64_t nbest;           /* hypotheses to return for each sentence, at most `beam`; 0: 1 */
    /* Tokens that each hypothesis of sentence b begins with, whatever their probability: prefix[b] has nprefix[b] of
     * them, fewer than max_len and none of them the end.  NULL: none. */
    const int32_t *const *prefix;
    const int64_t *nprefix;
    /* The tokens that hypotheses of sentence b are made of: nallowed[b] of them in allowed[b], which ascend, the end and
     * those of its prefix among them.  Others have no share of the probability.  NULL: all. */
    const int32_t *const *allowed;
    const int64_t *nallowed;
    /* Greedy search compares logits instead of probabilities, and leaves log_prob and score 0.  Two logits may differ
     * although their probabilities, as doubles, are equal; only then it may choose another token than with scores. */
    bool unscored;
    int64_t reserved[4];
} attn_beam_search_options;

typedef struct attn_hypothesis {
    int64_t n;
    int32_t *ids;    /* without start and end; freed by attn_hypotheses_free */
    double log_prob; /* sum over the tokens, the end included */
    double score;    /* log_prob after the length penalty */
    bool finished;   /* the end was reached */
} attn_hypothesis;

/* Translates src (I32 [B,Ts], src_lens I32 [B] or NULL), all sentences at once; results has room for B * nbest and
 * gets the best hypotheses of each, best first: those of sentence i start at results[i * nbest].  The first is the
 * same for every nbest.  Where a search ended with fewer, the last are zeros: their `ids` are NULL.  Uses a tape of
 * its own. On error nothing needs to be freed.  ATTN_ERROR_UNSUPPORTED: not a model that decodes; ATTN_ERROR_SHAPE,
 * ATTN_ERROR_ARGUMENT, ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_seq2seq_translate(attn_model *model, const attn_tensor *src, const attn_tensor *src_lens,
                                            const attn_beam_search_options *options, attn_hypothesis *results);
ATTN_API void attn_hypotheses_free(attn_context *context, attn_hypothesis *results, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
