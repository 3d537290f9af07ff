/* SPDX-License-Identifier: MIT
 *
 * tensor.h - the structs of a tensor, a tape and a node of the tape. Operations include tensor/op.h.
 */
#ifndef ATTN_TENSOR_TENSOR_H
#define ATTN_TENSOR_TENSOR_H

#include "attn/tensor.h"
#include "base/context.h"
#include "tensor/storage.h"
#include "tensor/tape_state.h"

/* A low-rank adapter of a weight w. Linear layers that read w use w + scale B A instead, without computing this sum. */
typedef struct attn__low_rank {
    attn_tensor *a, *b; /* [r,in], [out,r] */
    double scale;
} attn__low_rank;

struct attn_tensor {
    attn_context *context;
    attn_tape *tape;        /* NULL: the caller owns the tensor */
    attn__storage *storage; /* NULL: freed at the end of a scope */
    void *data;             /* inside the storage */
    attn_dtype dtype;
    int rank;
    int64_t shape[ATTN_MAX_RANK];
    int64_t size;
    bool needs_grad;
    bool computed;     /* a recorded operation made the tensor; its gradient is freed after it is passed on */
    bool passed;       /* its gradient was passed on: later results pass no gradient to it */
    bool zero_pending; /* a gradient that counts as zero and is cleared before it is read */
    unsigned section;  /* the tape's section when the tensor was made */
    attn_tensor *grad; /* may be a handle without storage, which counts as no gradient */
    attn_tensor *next; /* next tensor of the tape's list, which is ordered from new to old */
    /* For a parameter whose gradient is summed over processes (tensor/all_reduce.h): the slot, counted from 1, and
     * where the gradient must be stored. Otherwise 0 and NULL. */
    int64_t slot;
    void *place;
    bool rounded;                   /* all numbers are exact in bf16; false: unknown */
    bool linear;                    /* the tensor is a weight of a linear layer */
    bool table;                     /* an embedding or a shortlist reads single rows of the tensor */
    bool tied;                      /* a table that is also the weight of a linear layer */
    bool in_parts;                  /* a linear weight that is also read in parts, or along another axis */
    const attn__low_rank *low_rank; /* adapter of a linear weight; NULL: none. Other operations refuse the tensor. */
    /* The tensor's own packed form for all products of one precision (packed_weights.h). If data is NULL, the numbers
     * exist only there, and linear layers and embeddings read them. Otherwise both forms have the numbers. */
    struct attn__packed *packed;
    /* Unless DEFAULT, the tensor gets memory when its numbers are loaded, and is then packed for this precision. */
    attn_precision packs_on_load;
};

/* Data that the backward pass needs. A hold keeps them alive after the tensor is freed. */
typedef struct attn__hold {
    attn__storage *storage;
    void *data;
} attn__hold;

/* One recorded operation. */
typedef struct attn__node attn__node;
struct attn__node {
    attn__node *previous;
    void (*backward)(attn_tape *tape, attn__node *node);
    attn_tensor *y;
    attn_tensor **x;
    int nx;
    attn__hold *saved;
    int nsaved;
    bool hidden;              /* the node uses parameters that are not in x */
    attn_precision precision; /* the tape's precision when the node was recorded */
    void *detail;             /* data of the operation, in the arena */
};

/* Memory of small objects that live until the reset: handles, nodes, details. */
typedef struct attn__chunk attn__chunk;
typedef struct attn__tape_arena {
    attn__chunk *first, *current;
    size_t used; /* used bytes of the current chunk */
} attn__tape_arena;

enum { ATTN__MAX_SCOPES = 64 };

typedef struct attn__plan_cache attn__plan_cache;
typedef struct attn__all_reduce attn__all_reduce;

struct attn_tape {
    attn_context *context;
    attn_tape_options options;
    attn__pool *pool;
    attn__tape_arena arena;
    attn_tensor *tensors;                  /* newest first */
    attn_tensor *idle;                     /* handles that can be reused */
    attn__node *nodes;                     /* newest first */
    attn_tensor *scopes[ATTN__MAX_SCOPES]; /* the newest tensor when each scope began */
    int depth;
    uint64_t stream; /* number of dropout sites so far */
    uint64_t moved;  /* bytes that attn_tape_copied reports */
    /* Branches of reversible blocks run in sections, which are numbered from 1. 0 means outside of all sections. */
    unsigned section, sections;
    bool again;                   /* a branch runs for the second time and must not repeat its outside changes */
    bool failed;                  /* the backward pass failed */
    attn_precision precision;     /* precision of the current products; DEFAULT: f32 */
    attn_shard share;             /* whole = 0: the batch is not divided */
    int examples;                 /* the axis of activations that holds the examples of a batch */
    attn__all_reduce *all_reduce; /* sums gradients over processes; NULL: no summation */
    struct attn__packed_weights *packed_weights; /* NULL: products pack their own operands */
    int packed_begun;                            /* begins of packed_weights without an end so far */
    attn__plan_cache *plans;
    void (*release_plans)(attn_tape *tape);
};

/* Returns whether f32 operands of products are rounded to bf16. */
static inline bool attn__rounds(const attn_tape *tape)
{
    return tape->precision == ATTN_PRECISION_BF16 || tape->precision == ATTN_PRECISION_INT8;
}

/* Sets dtype, rank, shape and size. */
attn_status attn__tensor_describe(attn_context *context, attn_tensor *tensor, attn_dtype dtype, int rank,
                                  const int64_t *shape);
size_t attn__tensor_bytes(const attn_tensor *tensor);
/* Returns ATTN_ERROR_ARGUMENT if the numbers were packed, or freed at the end of a scope. */
attn_status attn__tensor_must_have_data(attn_context *context, const attn_tensor *tensor, const char *name);
/* Creates a tensor that the caller owns and that has no memory yet. */
attn_status attn__tensor_create_empty(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                      const int64_t *shape);
/* Allocates storage for a tensor whose shape is set. */
bool attn__tensor_allocate(attn_tensor *tensor, attn__pool *pool);
/* Clears a gradient if clearing is pending. */
void attn__tensor_settle(attn_tensor *tensor);

enum { ATTN__SHAPE_TEXT = 128 };
/* Writes the shape in the form "[2,3,4]" to `text` and returns text. */
const char *attn__shape_text(const attn_tensor *tensor, char text[ATTN__SHAPE_TEXT]);

/* Takes zeroed memory from the arena. Returns NULL and records an error if there is no memory. */
void *attn__tape_take(attn_tape *tape, size_t size);
/* Takes a handle of the tape, without data. */
attn_tensor *attn__handle_take(attn_tape *tape);

void attn_tensor_zero_grad(attn_tensor *tensor); /* sets the gradient to zero; the memory is kept */

#endif
