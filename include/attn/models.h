/* SPDX-License-Identifier: MIT
 *
 * models.h - builds and runs a model of any architecture by its name. It also runs sequence-to-sequence models and
 * decodes.
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

/* A named input or output of an architecture. */
typedef struct attn_port {
    const char *name;
    const char *shape; /* shape as readable text, such as "(b,q,d)" */
    /* true for ids and lengths, which are I32, or of any type with integer values in the range of I32 */
    bool integer;
    bool optional; /* true for an input that may be absent, or an output that is computed only on request */
    const char *doc;
} attn_port;

typedef struct attn_architecture {
    const char *name;
    const char *summary;
    const char *source; /* paper or text */
    int nkeys, ninputs, noutputs;
    const attn_setting *keys; /* settings that the config of attn_model_create may have */
    const attn_port *inputs, *outputs;
    bool seq2seq; /* true if attn_seq2seq_forward and attn_seq2seq_translate support the architecture */
} attn_architecture;

/* Returns the i-th architecture. Returns NULL past the end. */
ATTN_API const attn_architecture *attn_architecture_at(int i);
/* Returns the architecture with this name. Returns NULL if there is none. */
ATTN_API const attn_architecture *attn_architecture_find(const char *name);

/* ----------------------------------------------------------------------------------------------- models */

typedef struct attn_model attn_model;

/* Options for making a model. Zero means the default. */
typedef struct attn_model_options {
    uint64_t seed;
    attn_dtype dtype; /* type of the parameters, ATTN_F32 or ATTN_F64 */
    /* true: parameters are zero, because weights will be loaded; this saves the time of drawing random numbers */
    bool blank;
    /* maximum of the bytes of parameters and tables together, in case settings come from an untrusted file; 0: no
     * limit */
    size_t limit;
    /* The precision of products. Parameters, their gradients and an optimizer's moments stay f32. By default, it is
     * the context's precision. A model in f64 computes in f64. In a context that uses AMX, ATTN_PRECISION_FMA gives
     * ATTN_ERROR_ARGUMENT. Make the context with ATTN_PRECISION_FMA instead. */
    attn_precision precision;
    int64_t reserved[4];
} attn_model_options;

/* Builds `architecture` with the settings in `config`, which may be NULL. A key "architecture" in the config is
 * ignored. `options` may be NULL. On failure, *model is NULL. ATTN_ERROR_NOT_FOUND: there is no such architecture.
 * ATTN_ERROR_ARGUMENT: a key is unknown, missing, of the wrong type or out of range, and the message says what is
 * allowed; or the model needs more than options->limit bytes. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_model_create(attn_model **model, attn_context *context, const char *architecture,
                                       const attn_config *config, const attn_model_options *options);
ATTN_API void attn_model_destroy(attn_model *model); /* Destroys a model. NULL is allowed. */

/* Returns the model's architecture, a constant of the library. */
ATTN_API const attn_architecture *attn_model_architecture(const attn_model *model);
/* Returns the settings with every key, including the defaults. The model owns the config. */
ATTN_API const attn_config *attn_model_config(const attn_model *model);
/* Returns the context of the model, which the caller owns. */
ATTN_API attn_context *attn_model_context(const attn_model *model);
/* Returns the state dict in the order of construction. It has trained parameters (attn_tensor_requires_grad) and
 * buffers. The model owns the list. attn_weights_load and attn_weights_assign of io.h fill its tensors. */
ATTN_API attn_named_list *attn_model_parameters(const attn_model *model);
/* Packs the weights of linear layers once, in the order in which products read them. Without this call, each run packs
 * the weights again. The packed form replaces a parameter where possible. This is not possible for lookup tables in
 * bf16 and int8, or in f32 on AMX. After this call, the model only infers, in its own precision. attn_tensor_data of a
 * replaced parameter is NULL, and recording tapes and savers are refused. The parameters must not change after this
 * call. A second call does nothing. Results keep their bits, except on AMX in f32 (docs/numerics.md). After
 * ATTN_ERROR_MEMORY the model can only be destroyed. */
ATTN_API attn_status attn_model_pack_weights(attn_model *model);
/* Runs the model on named inputs. `outputs` gets the tape's tensors under the architecture's names, so that the list
 * must have its context set, and must not own its tensors. An optional output, such as attention weights, is computed
 * only if the list already has an item of that name. Add such an item by attn_named_add with a NULL tensor, or keep an
 * old one. ATTN_ERROR_ARGUMENT: an input is missing, unknown or of the wrong type; ATTN_ERROR_SHAPE. */
ATTN_API attn_status attn_model_forward(attn_model *model, attn_tape *tape, const attn_named_list *inputs,
                                        attn_named_list *outputs);

/* Writes DIRECTORY/config.json (the architecture's name and settings) and DIRECTORY/model.safetensors with the
 * architecture's own parameter names. The directory is created if it does not exist. attn_model_load reads it, and so
 * do the functions that load an image classifier, an image generator, a detector, an MSA Transformer or an encoder, for
 * a model of their architecture. ATTN_ERROR_IO; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_model_save(const attn_model *model, const char *directory);

/* Options for loading. Zero means the default in each field. */
typedef struct attn_model_load_options {
    const attn_config *config; /* settings in place of config.json; NULL: the directory's config.json */
    /* The architecture; NULL: the "architecture" of the settings or of the names file. */
    const char *architecture;
    /* a names file of io.h, or the name of a built-in names file, for weights with foreign names */
    const char *names;
    attn_dtype dtype;         /* type of the parameters, ATTN_F32 or ATTN_F64 */
    attn_precision precision; /* the precision, as in attn_model_options */
    /* If not NULL, gets a text of the parameters that are missing, extra or of another shape, one per line. Free it
     * with attn_bytes_free. */
    attn_bytes *report;
    int64_t reserved[4];
} attn_model_load_options;
/* Loads a model with its weights; the caller destroys it with attn_model_destroy. The path is a directory with
 * config.json and weights, which attn_model_save or a training wrote. It may also be a file of weights, together with
 * `config` or `names`. Settings that the architecture does not have are ignored. `options` may be NULL.
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
    /* A quirk of Dive into Deep Learning: its decoder is not causal outside of training, so that its validation loss
     * sees tokens that should be predicted. If false, the decoder is always causal. */
    bool see_future;
    /* Another quirk of that book: while it translates, every target token has position 0. */
    bool first_position;
    /* If not NULL, this list gets the attention weights, whose tensors the tape owns. Their names and shapes are
     * "encoder.0" [B,H,Ts,Ts], "decoder.0" [B,H,Tt,Tt], "cross.0" [B,H,Tt,Ts], and so on for each layer. A model with
     * one attention has only "cross.0" [B,1,Tt,Ts]. */
    attn_named_list *weights;
    /* If not NULL, gets the last layer's "cross" weights, or NULL if no layer attends to the source. If the tape
     * records, a gradient flows through them. The list `weights` then lacks the last layer's "decoder". */
    attn_tensor **guided;
    int64_t reserved[4];
} attn_seq2seq_options;

/* Computes logits [B,Tt,V] from src I32 [B,Ts], src_lens I32 [B] or NULL, and tgt_in I32 [B,Tt]. If the tape trains,
 * dropout is applied. Returns NULL on error. ATTN_ERROR_UNSUPPORTED: the architecture is not sequence-to-sequence. */
ATTN_API attn_tensor *attn_seq2seq_forward(attn_model *model, attn_tape *tape, const attn_tensor *src,
                                           const attn_tensor *src_lens, const attn_tensor *tgt_in,
                                           const attn_seq2seq_options *options);

/* How the score of a hypothesis depends on its length, and when a search ends. */
typedef enum attn_length_rule {
    /* log_prob / ((5 + length) / 6)^alpha (Wu et al. 2016, arXiv:1609.08144). The search ends if no open hypothesis
     * can overtake the best finished one, or if as many hypotheses have finished as the beam is wide. */
    ATTN_LENGTH_WU = 0,
    /* log_prob / length^alpha, as in Marian and Hugging Face transformers. As many finished hypotheses are kept as
     * the beam is wide. The search ends if the best open hypothesis, at its present length, is not better than the
     * worst finished one. */
    ATTN_LENGTH_POWER
} attn_length_rule;
typedef enum attn_stopping { ATTN_STOP_LIKELY = 0, ATTN_STOP_FULL, ATTN_STOP_NEVER } attn_stopping;

/* What a search keeps to for one sentence. A field that is 0 or NULL does not limit the search. */
typedef struct attn_beam_sentence {
    int64_t max_len; /* a smaller max_len for this sentence */
    /* Forced prefix. Each hypothesis begins with these tokens, whatever their probability. They are fewer than max_len
     * and do not include the end token. */
    const int32_t *prefix;
    int64_t nprefix;
    /* The allowed tokens in ascending order, including the end token and the tokens of the prefix. Other tokens have no
     * share of the probability. NULL: all are allowed. All sentences of a batch have such a list, or none has. */
    const int32_t *allowed;
    int64_t nallowed;
    int64_t number; /* number of the sentence in error messages; 0: its place in the batch, counted from 1 */
    int64_t reserved[4];
} attn_beam_sentence;

/* Tokens that follow each other. */
typedef struct attn_token_sequence {
    const int32_t *ids;
    int64_t n; /* number of tokens, at least 1 */
} attn_token_sequence;

/* Options of a beam search. Zero means the default. The ids have no default. */
typedef struct attn_beam_search_options {
    int32_t bos, eos;      /* first and last token of a sentence */
    int64_t max_len;       /* maximum number of tokens of the result; 0: 64 */
    int64_t beam;          /* number of hypotheses that the beam keeps; 0 or 1: greedy search */
    double length_penalty; /* alpha of the length rule, where the length includes the end token; 0: no penalty */
    bool first_position;   /* true: every decoded token is at position 0, which is a quirk of Dive into Deep Learning */
    attn_length_rule rule;
    /* When the search ends, for ATTN_LENGTH_POWER only. The search ends by the rule of ATTN_LENGTH_POWER, or as soon
     * as the beam is full of finished hypotheses, or if no open hypothesis could be better than the finished ones at
     * any length. */
    attn_stopping stopping;
    bool force_end; /* true: only the end token may be the last of max_len tokens, and it adds no cost there */
    /* number of tokens that are never chosen */
    int64_t nbanned;
    const int32_t *banned;
    bool renormalize; /* true: the softmax is computed over the tokens that are not banned */
    /* no sequence of this many tokens may occur twice, where `bos` counts too; 0: no such rule */
    int64_t no_repeat_ngram;
    /* A penalty for tokens that a hypothesis already has. Their log-probability, or logit without a beam, is
     * multiplied by this number if it is negative, and divided if it is positive (arXiv:1909.05858). 0, 1: no
     * penalty. */
    double repetition_penalty;
    int64_t min_len;                     /* minimum length of a hypothesis in tokens, including the end token */
    int64_t nbest;                       /* number of hypotheses to return for each sentence, at most `beam`; 0: 1 */
    const attn_beam_sentence *sentences; /* [B] what holds for each sentence alone; NULL: nothing does */
    /* true: greedy search compares logits instead of probabilities, and log_prob and score are 0. The result can
     * change only if two different logits have probabilities that are equal as doubles. */
    bool unscored;
    /* Sequences of tokens that no hypothesis contains, where `bos` counts too. A hypothesis that ends with the first
     * n - 1 tokens of a sequence does not continue with the last token. A forced prefix is not changed, but its tokens
     * count. There are nbanned_sequences of them. */
    const attn_token_sequence *banned_sequences;
    int64_t nbanned_sequences;
    /* Patience (Kasai et al. 2022, arXiv:2204.05424). The search of a sentence ends when beam * patience hypotheses,
     * rounded and at least 1, have finished, or earlier if no open hypothesis can become one of the results. It must be
     * finite and not negative, and beam * patience at least nbest. Without a beam it has no effect. 0, 1: `rule` and
     * `stopping` decide when the search ends. */
    double patience;
    int64_t reserved[1];
} attn_beam_search_options;

typedef struct attn_hypothesis {
    int64_t n;
    int32_t *ids;        /* tokens without the start token and the end token; free them with attn_hypotheses_free */
    double log_prob;     /* sum of the log-probabilities of the tokens, including the end token */
    double score;        /* log_prob after the length penalty */
    bool finished;       /* true if the hypothesis has reached the end token */
    int64_t reserved[4]; /* 0 */
} attn_hypothesis;

/* Translates src (I32 [B,Ts], src_lens I32 [B] or NULL), all sentences at once. `results` has room for B * nbest
 * hypotheses. The hypotheses of sentence i start at results[i * nbest], with the best one first. The best one is the
 * same for every nbest. If a search ends with fewer than nbest, the remaining results are zero and their `ids` are
 * NULL. The function uses its own tape. On error, nothing needs to be freed. ATTN_ERROR_UNSUPPORTED: the model has no
 * decoder; ATTN_ERROR_SHAPE, ATTN_ERROR_ARGUMENT, ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_seq2seq_translate(attn_model *model, const attn_tensor *src, const attn_tensor *src_lens,
                                            const attn_beam_search_options *options, attn_hypothesis *results);
ATTN_API void attn_hypotheses_free(attn_context *context, attn_hypothesis *results, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
