/* SPDX-License-Identifier: MIT
 *
 * kind.h - the definition of an architecture: its public description, and the functions that build and run it.
 *
 * Each architecture has a file that defines one attn__kind. registry.c lists all kinds. */
#ifndef ATTN_MODELS_KIND_H
#define ATTN_MODELS_KIND_H

#include "attn/models.h"
#include "nn/layers.h"
#include "nn/msa.h"
#include "models/decoding.h"

/* The arguments of one run of attn_model_forward. */
typedef struct attn__call {
    const attn_model *model;
    attn_tape *tape;
    const attn_named_list *inputs;
    attn_named_list *outputs;
} attn__call;

/* Functions that only sequence-to-sequence architectures have. `self` is the model's own struct. */
typedef struct attn__seq2seq {
    attn_tensor *(*forward)(const void *self, attn_tape *tape, const attn_tensor *src, const attn_tensor *src_lens,
                            const attn_tensor *tgt_in, const attn_seq2seq_options *options);
    size_t state_size;
    /* Sets decoding->state, which is zero before. `end` frees what `begin` has allocated, even if `begin` failed. */
    attn_status (*begin)(attn_decoding *decoding, attn_tape *tape, const attn_tensor *src);
    attn_tensor *(*step)(attn_decoding *decoding, attn_tape *tape, const attn_tensor *tokens);
    attn_status (*reorder)(attn_decoding *decoding, const int64_t *rows);
    /* Keeps only n sentences in the state. `sentences` holds their indices. rows[n * width] holds the indices of
     * their rows. */
    attn_status (*select)(attn_decoding *decoding, const int64_t *sentences, int64_t n, const int64_t *rows);
    void (*end)(attn_decoding *decoding);
} attn__seq2seq;

typedef struct attn__kind {
    attn_architecture about;
    size_t size; /* size of the architecture's own struct, in bytes */
    /* Registers the parameters and fills the zeroed struct `self`. An error stays in the builder's context. */
    void (*build)(void *self, attn_nn_builder *builder, const attn_config *config);
    /* Runs the model, and sets its outputs with attn__call_output. An error stays in the context. */
    void (*forward)(const void *self, const attn__call *call);
    const attn__seq2seq *seq2seq; /* functions of a sequence-to-sequence model; NULL for other architectures */
} attn__kind;

struct attn_model {
    attn_context *context;
    const attn__kind *kind;
    attn_config *config; /* the settings after defaults have been filled in */
    attn_dtype dtype;
    attn_precision precision;
    attn_named_list parameters, constants;
    void *self;
};

/* Returns a copy of a model for another thread. The copy shares the config and the parameters of `model`. `model` must
 * exist longer than the copy and must not change. `context` must belong to the thread, and the copy may only run on
 * tapes of this context. The copy need not be destroyed. */
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
    int64_t step;
    bool first_position;
    struct attn__shortlist *shortlist; /* list of tokens that may come next (shortlist.h); NULL: any token */
};

/* Keeps only n sentences, whose indices are ascending. The rows of these sentences keep their order. After a failure,
 * the decoding can only be destroyed. */
attn_status attn__decoding_select(attn_decoding *decoding, const int64_t *sentences, int64_t n);

/* Does the same as attn_seq2seq_translate, on the caller's tape. `src` and `src_lens` must not be on this tape. The
 * tape keeps packed weights (tensor/packed_weights.h), so several calls can share them. */
attn_status attn__seq2seq_search(attn_model *model, attn_tape *tape, const attn_tensor *src,
                                 const attn_tensor *src_lens, const attn_beam_search_options *options,
                                 attn_hypothesis *results);

/* attn__model_begin gives the tape the model's precision for products, and attn__model_end restores the tape's own
 * precision. If the tape records but the precision does not support gradients, attn__model_begin sets an error and
 * returns false. attn__model_end must then not be called. */
bool attn__model_begin(const attn_model *model, attn_tape *tape);
void attn__model_end(attn_tape *tape);

/* Returns the kind called `name`, or NULL. */
const attn__kind *attn__kind_find(const char *name);

/* Returns the input `name`, converted to the model's float type, or to I32 for an integer input. If conversion to
 * I32 would change a value, sets an error. Returns NULL on error, or if an optional input was not given. */
attn_tensor *attn__call_input(const attn__call *call, const char *name);
/* Does the same for an input of real numbers that may be given as integers. An integer that the model's float type
 * cannot hold sets an error. */
attn_tensor *attn__call_numbers(const attn__call *call, const char *name);
void attn__call_output(const attn__call *call, const char *name, attn_tensor *tensor);
/* Returns `slot` if the caller requested the optional output `name`, otherwise NULL. */
attn_tensor **attn__wanted(const attn__call *call, const char *name, attn_tensor **slot);

/* attn__block_begin and attn__block_end enclose a block of a model in a scope of the tape. If `maps` is true, they
 * do nothing, because the scope would free the attention maps. */
void attn__block_begin(attn_tape *tape, bool maps);
attn_tensor *attn__block_end(attn_tape *tape, bool maps, attn_tensor *x);
/* Adds `weights` to a list under the name "part.index". Does nothing if the list or `weights` is NULL. */
void attn__weights_add(attn_named_list *list, const char *part, int index, attn_tensor *weights);
/* Concatenates the tensors "part.0", "part.1", ... of a list along a new first axis. */
attn_tensor *attn__stack(attn_tape *tape, const attn_named_list *list, const char *part);

/* Copies the keys that the architecture has from `from` to `to`. Other keys of `from` are ignored, because config
 * files may contain them. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_architecture_select(const attn_architecture *architecture, const attn_config *from, attn_config *to);

/* Returns the type of the model's parameters, ATTN_F32 or ATTN_F64. */
attn_dtype attn_model_dtype(const attn_model *model);

/* Returns the model's precision, which is ATTN_PRECISION_DEFAULT for f64. */
attn_precision attn_model_precision(const attn_model *model);

int attn_architecture_count(void);

#endif
