/* SPDX-License-Identifier: MIT
 *
 * tensor.h - the structs of tensors, tapes and nodes. Files that implement operations include tensor/op.h. */
#ifndef ATTN_TENSOR_TENSOR_H
#define ATTN_TENSOR_TENSOR_H

#include "attn/tensor.h"
#include "base/context.h"
#include "tensor/storage.h"
#include "tensor/tape_state.h"

/* A low-rank adapter of a weight w. Linear layers that read w compute with w + scale B A, without storing this
 * matrix. */
typedef struct attn__low_rank {
    attn_tensor *a, *b; /* a: [r,in]; b: [out,r] */
    double scale;
} attn__low_rank;

struct attn_tensor {
    attn_context *context;
    attn_tape *tape;        /* the tape that owns the tensor; NULL: the caller owns it */
    attn__storage *storage; /* memory of the data; NULL: the data were freed at the end of a scope */
    void *data;             /* address of the first element, inside the storage */
    attn_dtype dtype;
    int rank;
    int64_t shape[ATTN_MAX_RANK];
    int64_t size;
    bool needs_grad;
    /* true: the tensor is the result of a recorded operation; its gradient is freed after it is passed on */
    bool computed;
    bool passed;       /* true: the tensor's gradient was passed on, so later operations must not add to it */
    bool zero_pending; /* for a gradient: true: it is zero, and its memory must be cleared before it is read */
    unsigned section;  /* number of the tape's section in which the tensor was made */
    attn_tensor *grad; /* the gradient; if it has no storage, there is no gradient */
    attn_tensor *next; /* the next older tensor in the tape's list */
    /* For a parameter whose gradient is summed over processes (tensor/all_reduce.h): the number of its slot, counted
     * from 1, and the address where its gradient must be stored. For other tensors: 0 and NULL. */
    int64_t slot;
    void *place;
    bool rounded; /* true: all elements can be represented exactly in bf16; false: unknown */
    bool linear;
    bool table; /* true: single rows of the tensor are read, by embeddings or a shortlist */
    bool tied;  /* true: the tensor is both a table and the weight of a linear layer */
    /* true: the tensor is the weight of a linear layer, and is also read in parts or multiplied along another axis */
    bool in_parts;
    /* adapter of a linear weight; NULL: none; only linear layers accept a tensor with an adapter */
    const attn__low_rank *low_rank;
    /* The tensor's own packed form for all products of one precision (packed_weights.h). If `data` is NULL, this is the
     * only form of the tensor, and only linear layers and embeddings can read it. Otherwise both forms hold the same
     * elements. */
    struct attn__packed *packed;
    /* If not DEFAULT: the tensor gets memory only when its elements are loaded, and is then packed for this
     * precision. */
    attn_precision packs_on_load;
};

/* A reference to data that the backward pass needs. It keeps the data even if their tensor is freed. */
typedef struct attn__hold {
    attn__storage *storage;
    void *data;
} attn__hold;

typedef struct attn__node attn__node;
struct attn__node {
    attn__node *previous;
    void (*backward)(attn_tape *tape, attn__node *node);
    attn_tensor *y;
    attn_tensor **x;
    int nx;
    attn__hold *saved;
    int nsaved;
    bool hidden; /* true: the node uses parameters that are not in x */
    attn_precision precision;
    void *detail; /* the operation's own data, in the tape's arena */
};

/* A chunk of memory for small objects (handles, nodes, details), which are freed at the reset. */
typedef struct attn__chunk attn__chunk;
typedef struct attn__tape_arena {
    attn__chunk *first, *current;
    size_t used; /* bytes that are used in the current chunk */
} attn__tape_arena;

enum { ATTN__MAX_SCOPES = 64 };

typedef struct attn__plan_cache attn__plan_cache;
typedef struct attn__all_reduce attn__all_reduce;

struct attn_tape {
    attn_context *context;
    attn_tape_options options;
    attn__pool *pool;
    attn__tape_arena arena;
    attn_tensor *tensors; /* newest first */
    attn_tensor *idle;    /* list of unused handles */
    attn__node *nodes;    /* newest first */
    /* for each open scope: the tensor that was the newest when the scope began */
    attn_tensor *scopes[ATTN__MAX_SCOPES];
    int depth;
    uint64_t stream; /* number of dropout sites since the reset */
    uint64_t moved;
    /* section: number of the current section, 0 outside of sections; sections: number of sections so far. Branches of
     * reversible blocks run in sections. */
    unsigned section, sections;
    /* true: a branch runs for the second time and must not update running statistics again */
    bool again;
    bool failed;
    attn_precision precision; /* precision in which products are computed; DEFAULT: f32 */
    attn_shard share;         /* the process's share of the batch; whole = 0: the batch is not divided */
    /* index of the axis of activations that holds the examples of the batch */
    int examples;
    attn__all_reduce *all_reduce;                /* sums gradients over processes; NULL: gradients are not summed */
    struct attn__packed_weights *packed_weights; /* list of packed weights; NULL: each product packs its own operands */
    int packed_begun;                            /* how many begins of packed_weights have had no end yet */
    attn__plan_cache *plans;
    void (*release_plans)(attn_tape *tape);
};

/* Returns whether f32 operands of products are rounded to bf16. */
static inline bool attn__rounds(const attn_tape *tape)
{
    return tape->precision == ATTN_PRECISION_BF16 || tape->precision == ATTN_PRECISION_INT8;
}

attn_status attn__tensor_describe(attn_context *context, attn_tensor *tensor, attn_dtype dtype, int rank,
                                  const int64_t *shape);
size_t attn__tensor_bytes(const attn_tensor *tensor);
/* Returns ATTN_ERROR_ARGUMENT if the tensor has no data, because its elements exist only in packed form or were
 * freed at the end of a scope. */
attn_status attn__tensor_must_have_data(attn_context *context, const attn_tensor *tensor, const char *name);
/* Creates a tensor without memory, which the caller owns. */
attn_status attn__tensor_create_empty(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                      const int64_t *shape);
bool attn__tensor_allocate(attn_tensor *tensor, attn__pool *pool);
/* Clears the memory of a gradient that is marked as zero. */
void attn__tensor_settle(attn_tensor *tensor);

enum { ATTN__SHAPE_TEXT = 128 };
/* Writes the shape in the form "[2,3,4]" to `text` and returns text. */
const char *attn__shape_text(const attn_tensor *tensor, char text[ATTN__SHAPE_TEXT]);

/* Allocates zeroed memory from the tape's arena. Returns NULL and records an error if there is no memory. */
void *attn__tape_take(attn_tape *tape, size_t size);
/* Returns a handle without data, which the tape owns. */
attn_tensor *attn__handle_take(attn_tape *tape);

void attn_tensor_zero_grad(attn_tensor *tensor); /* marks the gradient as zero; its memory is kept */

#endif
