/* SPDX-License-Identifier: MIT
 *
 * kind.h - what an architecture brings along: its public description and how it is built and run.
 *
 * One file per architecture defines one attn__kind; registry.c lists them. */
#ifndef ATTN_MODELS_KIND_H
#define ATTN_MODELS_KIND_H

#include "attn/models.h"
#include "nn/layers.h"
#include "nn/msa.h"
#include "models/decoding.h"

/* One run of attn_model_forward. */
typedef struct attn__call {
    const attn_model *model;
    attn_tape *tape;
    const attn_named_list *inputs;
    attn_named_list *outputs;
} attn__call;

/* The sequence-to-sequence side of an architecture.  `self` is the model's own struct. */
typedef struct attn__seq2seq {
    attn_tensor *(*forward)(const void *self, attn_tape *tape, const attn_tensor *src, const attn_tensor *src_lens,
                            const attn_tensor *tgt_in, const attn_seq2seq_options *options);
    size_t state_size;
    /* Fills decoding->state (zeroed before); what it held is freed by `end`, also after a failure. */
    attn_status (*begin)(attn_decoding *decoding, attn_tape *tape, const attn_tensor *src);
    attn_tensor *(*step)(attn_decoding *decoding, attn_tape *tape, const attn_tensor *tokens);
    attn_status (*reorder)(attn_decoding *decoding, const int64_t *rows);
    /* The state goes on with n of the sentences; their rows are rows[n * width]. */
    attn_status (*select)(attn_decoding *decoding, const int64_t *sentences, int64_t n, const int64_t *rows);
    void (*end)(attn_decoding *decoding);
} attn__seq2seq;

typedef struct attn__kind {
    attn_architecture about;
    size_t size; /* of the model's own struct */
    /* Fills the zeroed struct; errors stick in the builder's context. */
    void (*build)(void *self, attn_nn_builder *builder, const attn_config *config);
    /* Errors stick; outputs are set with attn__call_output. */
    void (*forward)(const void *self, const attn__call *call);
    const attn__seq2seq *seq2seq; /* NULL: none */
} attn__kind;

struct attn_model {
    attn_context *context;
    const attn__kind *kind;
    attn_config *config; /* resolved */
    attn_dtype dtype;
    attn_precision precision;
    attn_named_list parameters, constants;
    void *self;
};

/* A model for another thread: it shares the config and the parameters of `model`, which must outlive it and not change, and
 * has a context of the thread's own.  It runs on tapes of that context; nothing of it is destroyed. */
static inline attn_model attn__model_view(const attn_model *model, attn_context *context)
{
    attn_model view = *model;
    view.context = context;
    return view;
}

struct attn_decoding {
    attn_model *model;
    void *state;
    attn_tensor *lens; /* a copy of the source lengths, or NULL */
    int64_t batch, width, max_len;
    int64_t step; /* tokens so far */
    bool first_position;
    struct attn__shortlist *shortlist; /* what alone may follow (shortlist.h); NULL: any token */
};

/* Decoding goes on with n of its sentences only, which ascend; their rows keep their order.  After a failure it can only
 * be destroyed. */
attn_status attn__decoding_select(attn_decoding *decoding, const int64_t *sentences, int64_t n);

/* attn_seq2seq_translate on a tape of the caller's, on which src and src_lens are not.  Weights that the tape keeps
 * (tensor/packed_weights.h) serve several calls.  `numbers`: what errors call the sentences; NULL: from 1. */
attn_status attn__seq2seq_translate(attn_model *model, attn_tape *tape, const attn_tensor *src,
                                    const attn_tensor *src_lens, const attn_beam_search_options *options,
                                    const int64_t *numbers, attn_hypothesis *results);

/* Between these the tape's products have the model's precision.  False (noted): the tape records what this precision has
 * no gradients for; nothing needs to be ended then. */
bool attn__model_begin(const attn_model *model, attn_tape *tape);
void attn__model_end(attn_tape *tape);

/* The kind called `name`, or NULL. */
const attn__kind *attn__kind_find(const char *name);

/* The input `name`; of the model's float type, or I32 where the port says integer (converted where that loses
 * nothing).  NULL where an optional input is missing, or on failure. */
attn_tensor *attn__call_input(const attn__call *call, const char *name);
/* Sets the output `name`. */
void attn__call_output(const attn__call *call, const char *name, attn_tensor *tensor);
/* `slot` if the caller requested the optional output `name`, else NULL. */
attn_tensor **attn__wanted(const attn__call *call, const char *name, attn_tensor **slot);

/* Around a block of a model: a scope, or, as it would free the maps of attention too, none if these are requested. */
void attn__block_begin(attn_tape *tape, bool maps);
attn_tensor *attn__block_end(attn_tape *tape, bool maps, attn_tensor *x);
/* Adds weights to a list under "part.index"; a NULL list or tensor is skipped. */
void attn__weights_add(attn_named_list *list, const char *part, int index, attn_tensor *weights);
/* The weights "part.0", "part.1", ... of a list on top of each other, one new axis in front. */
attn_tensor *attn__stack(attn_tape *tape, const attn_named_list *list, const char *part);

/* Sets in `to` those keys of `from` that are the architecture's own: for config files that hold more.
 * ATTN_ERROR_MEMORY. */
attn_status attn_architecture_select(const attn_architecture *architecture, const attn_config *from, attn_config *to);

/* ATTN_F32 or ATTN_F64. */
attn_dtype attn_model_dtype(const attn_model *model);

/* ATTN_PRECISION_DEFAULT for f64. */
attn_precision attn_model_precision(const attn_model *model);

/* How many architectures the registry has. */
int attn_architecture_count(void);

#endif
