/* SPDX-License-Identifier: MIT
 *
 * tensor.h - what a tensor, a tape and a node of the tape are.  Operations include tensor/op.h.
 */
#ifndef ATTN_TENSOR_TENSOR_H
#define ATTN_TENSOR_TENSOR_H

#include "attn/tensor.h"
#include "base/context.h"
#include "tensor/storage.h"
#include "tensor/tape_state.h"

/* Linear layers that read the weight w read w + scale B A instead, without ever making it. */
typedef struct attn__low_rank {
    attn_tensor *a, *b; /* [r,in], [out,r] */
    double scale;
} attn__low_rank;

struct attn_tensor {
    attn_context *context;
    attn_tape *tape;        /* NULL: the caller's own */
    attn__storage *storage; /* NULL: freed by the end of a scope */
    void *data;             /* within the storage */
    attn_dtype dtype;
    int rank;
    int64_t shape[ATTN_MAX_RANK];
    int64_t size;
    bool needs_grad;
    bool computed;     /* a recorded operation made it: its gradient is freed once passed on */
    bool passed;       /* its gradient has been: what is computed from it now gives it none */
    bool zero_pending; /* of a gradient: counts as zero, and is cleared when somebody looks */
    unsigned section;  /* the tape's when it was made */
    attn_tensor *grad; /* may be a handle without storage, which counts as none */
    attn_tensor *next; /* in the tape's list, newest first */
    /* For a parameter whose gradient is summed over processes: its number there, from 1, and where the gradient must be
     * (tensor/all_reduce.h).  0 and NULL: it is not. */
    int64_t slot;
    void *place;
    bool rounded;  /* f32 whose numbers are all of bf16; false: not known */
    bool linear;   /* a weight of a linear layer */
    bool table;    /* rows of it are looked up, by an embedding or a shortlist */
    bool tied;     /* a table that is the weight of a linear layer, too */
    bool in_parts; /* such a weight of which others read parts, or which they read along another axis */
    const attn__low_rank *low_rank; /* of such a weight; NULL: none.  Other operations refuse it. */
    /* Its own, packed for all products of one precision (packed_weights.h).  Where data is NULL the numbers are there
     * alone, and linear layers and embeddings read them; else both have them. */
    struct attn__packed *packed;
    /* Not DEFAULT: it gets memory when its numbers come, and is packed for this precision then. */
    attn_precision packs_on_load;
};

/* Data that the backward pass needs, alive although the tensor itself may be freed. */
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
    bool hidden;              /* it uses parameters that are not among x */
    attn_precision precision; /* the tape's when it was recorded */
    void *detail;             /* the operation's own, from the arena */
};

/* Small things that live until the reset: handles, nodes, details. */
typedef struct attn__chunk attn__chunk;
typedef struct attn__tape_arena {
    attn__chunk *first, *current;
    size_t used; /* of the current chunk */
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
    attn_tensor *idle;                     /* handles to use again */
    attn__node *nodes;                     /* newest first */
    attn_tensor *scopes[ATTN__MAX_SCOPES]; /* the newest tensor when each scope began */
    int depth;
    uint64_t stream; /* dropout sites so far */
    uint64_t moved;  /* bytes, see attn_tape_copied */
    /* Branches of reversible blocks run in sections of their own, numbered from 1; 0: outside of all. */
    unsigned section, sections;
    bool again;                   /* a branch runs for the second time: what it changed outside has changed already */
    bool failed;                  /* in the backward pass */
    attn_precision precision;     /* of the products that run now; DEFAULT: f32 */
    attn_shard share;             /* whole 0: the batch is not divided */
    int examples;                 /* the axis of activations that runs over the examples of a batch */
    attn__all_reduce *all_reduce; /* of gradients with other processes; NULL: none */
    struct attn__packed_weights *packed_weights; /* NULL: products pack for themselves */
    int packed_begun;                            /* begins of theirs that have not ended */
    attn__plan_cache *plans;
    void (*release_plans)(attn_tape *tape);
};

/* Whether f32 operands of products are rounded to bf16. */
static inline bool attn__rounds(const attn_tape *tape)
{
    return tape->precision == ATTN_PRECISION_BF16 || tape->precision == ATTN_PRECISION_INT8;
}

/* Fills in dtype, rank, shape and size. */
attn_status attn__tensor_describe(attn_context *context, attn_tensor *tensor, attn_dtype dtype, int rank,
                                  const int64_t *shape);
size_t attn__tensor_bytes(const attn_tensor *tensor);
/* ATTN_ERROR_ARGUMENT (noted): its numbers were packed, or freed by the end of a scope. */
attn_status attn__tensor_must_have_data(attn_context *context, const attn_tensor *tensor, const char *name);
/* A tensor of the caller's own that has no memory yet. */
attn_status attn__tensor_create_empty(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                      const int64_t *shape);
/* Takes fresh storage for a described tensor. */
bool attn__tensor_allocate(attn_tensor *tensor, attn__pool *pool);
/* Carries out a pending clearing. */
void attn__tensor_settle(attn_tensor *tensor);

/* "[2,3,4]" in `text`, which is returned. */
enum { ATTN__SHAPE_TEXT = 128 };
const char *attn__shape_text(const attn_tensor *tensor, char text[ATTN__SHAPE_TEXT]);

/* Memory of the arena, zeroed; NULL (noted). */
void *attn__tape_take(attn_tape *tape, size_t size);
/* A handle of the tape without data. */
attn_tensor *attn__handle_take(attn_tape *tape);

void attn_tensor_zero_grad(attn_tensor *tensor); /* to zero; the memory stays */

#endif
