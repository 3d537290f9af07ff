/* SPDX-License-Identifier: MIT
 *
 * tensor.h - n-dimensional arrays, operations on them, and their gradients.
 *
 * Tensors are contiguous and row-major.  A tape runs operations one after the other and, while it records,
 * remembers how to take their gradients.  Errors stick: an operation that fails notes the error in the
 * context and returns NULL, an operation that is given NULL returns NULL, so that a model is written without
 * a check on every line and its caller looks at the last result only.
 *
 *     attn_tensor *h = attn_linear(tape, x, w1, b1, ATTN_ACTIVATION_RELU);
 *     attn_tensor *y = attn_linear(tape, h, w2, b2, ATTN_ACTIVATION_IDENTITY);
 *     attn_tensor *loss = attn_cross_entropy(tape, y, labels, NULL);
 *     if (!loss || attn_backward(tape, loss) != ATTN_OK) puts(attn_context_error(context));
 *
 * Not thread safe: one thread at a time uses a tape, its context and its tensors.  Operations use the
 * context's threads and give the same bits for any number of threads.
 * f32 everywhere; f64 in every operation as well, for checking gradients.  Integers (ids, lengths) are I32.
 */
#ifndef ATTN_TENSOR_H
#define ATTN_TENSOR_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_MAX_RANK 8

/* --------------------------------------------------------------------------------------------- tensors */

typedef struct attn_tensor attn_tensor;

/* A tensor of the caller's own, zeroed; to be destroyed by the caller, after the tapes that used it were
 * reset.  ATTN_ERROR_ARGUMENT (rank > ATTN_MAX_RANK, negative length), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tensor_create(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                        const int64_t *shape);
/* NULL is allowed; never for a tape's tensors.  By the thread that uses the context, not by a finalizer's: tensors may
 * share memory. */
ATTN_API void attn_tensor_destroy(attn_tensor *tensor);
/* The same over memory of the caller's, contiguous and aligned to its elements, which is neither copied nor cleared
 * nor freed: it must stay, and keep its numbers, until the tensor is destroyed (so until the tapes that used it were
 * reset).  Operations only read this memory; attn_weights_load and optimizers write to it if the tensor is a
 * parameter.  ATTN_ERROR_ARGUMENT also if `data` is NULL and there are elements. */
ATTN_API attn_status attn_tensor_wrap(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                      const int64_t *shape, void *data);
/* A tensor of the caller's own that shares the memory of `tensor`: so a tape's result outlives its reset, and the
 * tape itself, without a copy.  Has no gradient and needs none.  The next backward pass adds to a copy of a
 * gradient that is shared, and attn_tensor_drop_grad leaves it.  ATTN_ERROR_ARGUMENT: NULL; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tensor_share(attn_tensor **shared, const attn_tensor *tensor);

/* Its elements, in rows; the tensor owns them. */
ATTN_API void *attn_tensor_data(const attn_tensor *tensor);
/* The type of its elements. */
ATTN_API attn_dtype attn_tensor_dtype(const attn_tensor *tensor);
/* How many axes it has; 0: a single element. */
ATTN_API int attn_tensor_rank(const attn_tensor *tensor);
/* The lengths of its axes, `rank` numbers that the tensor owns. */
ATTN_API const int64_t *attn_tensor_shape(const attn_tensor *tensor);
/* Length of axis `axis`; negative ones count from the end. */
ATTN_API int64_t attn_tensor_length(const attn_tensor *tensor, int axis);
ATTN_API int64_t attn_tensor_size(const attn_tensor *tensor); /* number of elements */
/* A tensor that gets a gradient (parameters, checked inputs).  Off at first. */
ATTN_API void attn_tensor_set_requires_grad(attn_tensor *tensor, bool needs);
ATTN_API bool attn_tensor_requires_grad(const attn_tensor *tensor);
/* The gradient: of a caller's tensor, added up by attn_backward until cleared; NULL if there is none yet. */
ATTN_API attn_tensor *attn_tensor_grad(const attn_tensor *tensor);
/* For a caller's tensor: discards the gradient, as if no backward pass had run.  Its memory is returned to the tape
 * that allocated it, for reuse. */
ATTN_API void attn_tensor_drop_grad(attn_tensor *tensor);

/* Tensors with names: a state dict, the parameters of an optimizer, the contents of a file. */
typedef struct attn_named {
    char *name;
    attn_tensor *tensor;
} attn_named;
typedef struct attn_named_list {
    attn_context *context;
    attn_named *items;
    int64_t n, capacity;
    bool owns; /* the list destroys its tensors */
} attn_named_list;
/* Copies `name`; list->context must be set.  ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_named_add(attn_named_list *list, const char *name, attn_tensor *tensor);
ATTN_API attn_tensor *attn_named_find(const attn_named_list *list, const char *name); /* NULL if none */
ATTN_API void attn_named_clear(attn_named_list *list); /* frees names (and tensors, if owned); reusable */

/* ------------------------------------------------------------------------------------------------ tape */

typedef struct attn_tape attn_tape;

/* Zero: inference, nothing recorded, dropout off. */
typedef struct attn_tape_options {
    bool record;   /* keep what attn_backward needs */
    bool train;    /* dropout on, batch statistics taken from the batch */
    uint64_t seed; /* of dropout: another one for each step; each dropout site of a step has its own stream */
    int64_t reserved[4];
} attn_tape_options;

/* A tape, which the caller destroys before the context.  It records nothing until attn_tape_reset enables recording.
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tape_create(attn_tape **tape, attn_context *context);
/* NULL is allowed.  Its tensors are destroyed with it; shared ones (attn_tensor_share) stay. */
ATTN_API void attn_tape_destroy(attn_tape *tape);
/* Forgets every tensor that the tape made and starts afresh.  Memory is kept for the next round: after a few
 * rounds of the same shapes nothing is allocated any more. */
ATTN_API void attn_tape_reset(attn_tape *tape, const attn_tape_options *options); /* NULL: all zero */

/* d loss / d everything that needs a gradient; `loss` has one element.  The pass consumes what the operations saved,
 * so call it once per forward pass; to record an operation on a tensor that it differentiated is ATTN_ERROR_ARGUMENT.
 * Results stay readable until the reset, except as documented at attn_cross_entropy.  ATTN_ERROR_SHAPE: more
 * than one element; ATTN_ERROR_ARGUMENT: nothing with a gradient leads to it; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_backward(attn_tape *tape, attn_tensor *loss);
/* The same for `n` results at once with given gradients, grads[i] of results[i] (else ATTN_ERROR_SHAPE: another shape or
 * type).  A result that nothing with a gradient leads to is an error (ATTN_ERROR_ARGUMENT), as is n < 1; on an error
 * before the pass begins nothing was added anywhere.  ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_backward_many(attn_tape *tape, attn_tensor *const *results, const attn_tensor *const *grads,
                                        int n);

/* ------------------------------------------------------------------------------------------ making, shape */

/* A tape's tensor of `rank` lengths `shape`; zeroed where `data` is NULL, else copied from it. */
ATTN_API attn_tensor *attn_tape_tensor(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape,
                                       const void *data);
/* x in another shape of as many elements, of which one length may be -1, inferred; shares x's memory. */
ATTN_API attn_tensor *attn_reshape(attn_tape *tape, attn_tensor *x, int rank, const int64_t *shape);
/* Axis i of the result is axis axes[i] of x, of whose shape `rank` numbers are given; a copy. */
ATTN_API attn_tensor *attn_permute(attn_tape *tape, attn_tensor *x, const int *axes);
/* The n tensors one behind the other along `axis`; their shapes differ only there, or ATTN_ERROR_SHAPE. */
ATTN_API attn_tensor *attn_concat(attn_tape *tape, attn_tensor *const *xs, int n, int axis);
/* x[..., begin : end, ...] along `axis`; a copy. */
ATTN_API attn_tensor *attn_slice(attn_tape *tape, attn_tensor *x, int axis, int64_t begin, int64_t end);
/* Rows of x (along axis 0) by I32 index: y[i] = x[index[i]]. */
ATTN_API attn_tensor *attn_index_select(attn_tape *tape, attn_tensor *x, const attn_tensor *index);
/* x as another type, F32, F64, I32, U8 or BOOL; to integers fractions are cut off, and a number that the type has not
 * (out of range, NaN) is ATTN_ERROR_ARGUMENT.  The same shape.  ATTN_ERROR_UNSUPPORTED: other types. */
ATTN_API attn_tensor *attn_cast(attn_tape *tape, attn_tensor *x, attn_dtype dtype);

typedef enum attn_interpolation {
    ATTN_INTERPOLATE_LINEAR = 0,
    ATTN_INTERPOLATE_CUBIC /* Keys 1981 with a = -0.75 */
} attn_interpolation;
/* Resamples axis `axis` of x to length n (>= 1), with positions at pixel centres and the outer edges fixed. For an
 * image, call it once per axis.  The same numbers as PyTorch's interpolate with align_corners and antialias off.  x
 * itself where the length is n already.  ATTN_ERROR_SHAPE.  The other lengths of its shape stay. */
ATTN_API attn_tensor *attn_interpolate(attn_tape *tape, attn_tensor *x, int axis, int64_t n, attn_interpolation kind);

/* ------------------------------------------------------------------------------------------- arithmetic */

/* Shapes broadcast as in NumPy: aligned at the end, 1 stretches. */
ATTN_API attn_tensor *attn_add(attn_tape *tape, attn_tensor *a, attn_tensor *b);
ATTN_API attn_tensor *attn_sub(attn_tape *tape, attn_tensor *a, attn_tensor *b);
ATTN_API attn_tensor *attn_mul(attn_tape *tape, attn_tensor *a, attn_tensor *b);
ATTN_API attn_tensor *attn_affine(attn_tape *tape, attn_tensor *x, double scale, double shift); /* x*scale + shift */
ATTN_API attn_tensor *attn_sum(attn_tape *tape, attn_tensor *x, int axis);                      /* the axis is
                                                                                                 * removed */
ATTN_API attn_tensor *attn_mean(attn_tape *tape, attn_tensor *x, int axis);

typedef enum attn_activation {
    ATTN_ACTIVATION_IDENTITY = 0,
    ATTN_ACTIVATION_RELU,
    ATTN_ACTIVATION_LEAKY_RELU, /* slope 0.01 */
    ATTN_ACTIVATION_GELU_ERF,
    ATTN_ACTIVATION_GELU_TANH,
    ATTN_ACTIVATION_GELU_SIGMOID, /* x * sigmoid(1.702 x) */
    ATTN_ACTIVATION_TANH,
    ATTN_ACTIVATION_SIGMOID,
    ATTN_ACTIVATION_SILU /* x * sigmoid(x), also called swish */
} attn_activation;
/* The function at each element; the same shape. */
ATTN_API attn_tensor *attn_activate(attn_tape *tape, attn_tensor *x, attn_activation activation);
/* Along the last axis; keys at or past lens (I32, one number a row or one for each leading index; NULL: all)
 * take no part, a row without any gives zeros (fill 0) or is filled with the score `fill` first.  The same shape. */
ATTN_API attn_tensor *attn_softmax(attn_tape *tape, attn_tensor *x, const attn_tensor *lens, double fill);

/* --------------------------------------------------------------------------------------------- layers' ops */

/* y[...,out] = activation(x[...,in] w[out,in]^T + b[out]); b may be NULL. */
ATTN_API attn_tensor *attn_linear(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b,
                                  attn_activation activation);
/* c[...,m,n] = a[...,m,k] b[...,k,n]; leading axes equal, or b of rank 2; transposes of the last two axes. */
ATTN_API attn_tensor *attn_matmul(attn_tape *tape, attn_tensor *a, attn_tensor *b, bool transpose_a, bool transpose_b);
/* y[i,:] = table[ids[i],:]*scale (+ position[(i mod period) + first,:]); ids I32 of any shape [..., period];
 * position [max,D] or NULL.  ATTN_ERROR_ARGUMENT names the first id out of range. */
ATTN_API attn_tensor *attn_embedding(attn_tape *tape, attn_tensor *table, const attn_tensor *ids, double scale,
                                     attn_tensor *position, int64_t first);
ATTN_API attn_tensor *attn_dropout(attn_tape *tape, attn_tensor *x, double p);
/* Over the last axis: (x - mean) / sqrt(var + eps) * g + b; g, b [D]. */
ATTN_API attn_tensor *attn_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b, double eps);
/* The divisor of a normalization. */
typedef enum attn_norm {
    ATTN_NORM_VARIANCE = 0, /* sqrt(var + eps), as layer norm does */
    ATTN_NORM_DEVIATION     /* sqrt(var) + eps; where var is 0 its derivative counts as 0 */
} attn_norm;
/* The same over any axis, without moving it: (x - mean) / divisor * g + b; g, b of as many elements as the axis is
 * long.  attn_layer_norm is faster where the axis is the last one.  The same shape. */
ATTN_API attn_tensor *attn_channel_norm(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *g, attn_tensor *b,
                                        double eps, attn_norm kind);

/* One layer of gated recurrent units, PyTorch's gate order r, z, n (Cho et al. 2014, arXiv:1406.1078):
 * x [T,B,I], h0 [B,H] or NULL (zeros), w_ih [3H,I], w_hh [3H,H], b_ih, b_hh [3H].  Returns all states
 * [T,B,H]; the last one is its last row. */
ATTN_API attn_tensor *attn_gru(attn_tape *tape, attn_tensor *x, attn_tensor *h0, attn_tensor *w_ih, attn_tensor *w_hh,
                               attn_tensor *b_ih, attn_tensor *b_hh);

typedef struct attn_cross_entropy_options {
    bool use_ignore_index;
    int64_t ignore_index;   /* label that does not count (padding) */
    double label_smoothing; /* share spread evenly over all classes */
    double divisor;         /* 0: the number of labels that count */
    int64_t reserved[4];
} attn_cross_entropy_options;
/* Mean over counted labels of -log softmax(logits)[label]; logits [...,C], labels I32 [...].  One element.
 * While recording, the logits are overwritten by their gradient in the backward pass. */
ATTN_API attn_tensor *attn_cross_entropy(attn_tape *tape, attn_tensor *logits, const attn_tensor *labels,
                                         const attn_cross_entropy_options *options);

/* ------------------------------------------------------------------------------------------- attention */

/* A tensor for one pointer of attn_arrays, and the offset (in elements) of the problem's index 0 in it. */
typedef struct attn_operand {
    attn_tensor *tensor;
    int64_t offset;
} attn_operand;
typedef struct attn_attention {
    attn_problem problem; /* forward, as attn.h describes; direction, seed, stream, gradients are filled in here */
    attn_operand q, k, v;
    attn_tensor *bias;
    const attn_tensor *mask; /* U8 or BOOL */
    const attn_tensor *lens; /* I32 */
    attn_tensor *w, *w2;
    attn_tensor *table[ATTN_MAX_RELATIVE];
    int rank; /* of the result, whose strides are the problem's o */
    int64_t shape[ATTN_MAX_RANK];
    attn_tensor **weights; /* if not NULL: gets the weights, shaped as below; no gradient flows through them */
    int weights_rank;
    int64_t weights_shape[ATTN_MAX_RANK];
    double dropout; /* in training */
    int examples;   /* the dim of the problem that runs over the examples of a batch: usually the first */
    int64_t reserved[8];
} attn_attention;
/* Any attention that the engine supports, with its gradients.  Plans are kept by the tape and used again for
 * equal problems.  The result has the shape that the attention describes.  On a tape that neither records nor trains
 * q, k and v may be BF16, and the result is then; not with a bias, tables, w or weights. */
ATTN_API attn_tensor *attn_attend(attn_tape *tape, const attn_attention *attention);

/* ------------------------------------------------------------------------------------------ convolution */

typedef struct attn_conv {
    int spatial;                   /* 1 to 3 */
    int64_t stride[3], padding[3]; /* stride 0 means 1 */
    int64_t groups;                /* 0 means 1 */
    attn_activation activation;    /* of the result */
    int64_t dilation[3];           /* from one tap to the next; 0 means 1 */
} attn_conv;
/* x [B,C,spatial...], w [O,C/groups,kernel...], b [O] or NULL (cross-correlation, as in PyTorch).
 * ATTN_ERROR_ARGUMENT: there is no such activation. */
ATTN_API attn_tensor *attn_convolve(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b,
                                    const attn_conv *conv);
/* Max or average over windows `kernel` (stride NULL or 0: the kernel), incomplete windows left out; padding (NULL:
 * none), at most half a kernel on both sides, takes no part.  x [B,C,spatial...].  ATTN_ERROR_SHAPE. */
ATTN_API attn_tensor *attn_max_pool(attn_tape *tape, attn_tensor *x, int spatial, const int64_t *kernel,
                                    const int64_t *stride, const int64_t *padding);
ATTN_API attn_tensor *attn_avg_pool(attn_tape *tape, attn_tensor *x, int spatial, const int64_t *kernel,
                                    const int64_t *stride);
/* Per channel (axis 1): batch statistics in training, running ones otherwise; running_* [C] are updated in
 * training by `momentum` (PyTorch's meaning; the running variance is the unbiased one). */
ATTN_API attn_tensor *attn_batch_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b,
                                      attn_tensor *running_mean, attn_tensor *running_var, double momentum, double eps);

#ifdef __cplusplus
}
#endif
#endif
