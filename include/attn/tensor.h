/* SPDX-License-Identifier: MIT
 *
 * tensor.h - n-dimensional arrays, operations on them, and their gradients.
 *
 * Tensors are contiguous and row-major. A tape runs operations one after the other. While a tape records, it keeps what
 * the gradients need. Errors stick: an operation that fails sets the context's error and returns NULL, and an operation
 * with a NULL input returns NULL. A model therefore checks only its last result.
 *
 *     attn_tensor *h = attn_linear(tape, x, w1, b1, ATTN_ACTIVATION_RELU);
 *     attn_tensor *y = attn_linear(tape, h, w2, b2, ATTN_ACTIVATION_IDENTITY);
 *     attn_tensor *loss = attn_cross_entropy(tape, y, labels, NULL);
 *     if (!loss || attn_backward(tape, loss) != ATTN_OK) puts(attn_context_error(context));
 *
 * Not thread safe: one thread at a time uses a tape, its context and its tensors.  Operations use the
 * context's threads and give the same bits for any number of threads.
 * Every operation supports f32, and f64 for checking gradients. Integers (ids, lengths) are I32. */
#ifndef ATTN_TENSOR_H
#define ATTN_TENSOR_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_MAX_RANK 8

/* --------------------------------------------------------------------------------------------- tensors */

typedef struct attn_tensor attn_tensor;

/* Makes a tensor of zeros that the caller owns. The caller destroys it, after the tapes that used it were reset.
 * ATTN_ERROR_ARGUMENT (rank > ATTN_MAX_RANK, negative length), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tensor_create(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                        const int64_t *shape);
/* Destroys a tensor that the caller owns. NULL is allowed. Never call this for a tape's tensors. Call it from the
 * thread that uses the context, not from a finalizer's thread: tensors may share memory. */
ATTN_API void attn_tensor_destroy(attn_tensor *tensor);
/* Makes a tensor over the caller's memory, which must be contiguous and aligned to its elements. The memory is not
 * copied, cleared or freed. The memory must stay valid and unchanged until the tensor is destroyed (so until the tapes
 * that used it were reset). Operations only read the memory; attn_weights_load and optimizers write to it if the tensor
 * is a parameter. ATTN_ERROR_ARGUMENT also if `data` is NULL and the shape has elements. */
ATTN_API attn_status attn_tensor_wrap(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                      const int64_t *shape, void *data);
/* Makes a tensor that the caller owns and that shares the memory of `tensor`. A tape's result thus outlives the tape's
 * reset, and the tape itself, without a copy. The new tensor has no gradient and needs none. If a gradient is shared,
 * the next backward pass adds to a copy of it, and attn_tensor_drop_grad does not change it. ATTN_ERROR_ARGUMENT: NULL;
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tensor_share(attn_tensor **shared, const attn_tensor *tensor);

/* Returns the tensor's elements in row-major order, which the tensor owns. */
ATTN_API void *attn_tensor_data(const attn_tensor *tensor);
/* Returns the type of the tensor's elements. */
ATTN_API attn_dtype attn_tensor_dtype(const attn_tensor *tensor);
/* Returns the number of axes; 0 for a single element. */
ATTN_API int attn_tensor_rank(const attn_tensor *tensor);
/* Returns the lengths of the axes, `rank` numbers that the tensor owns. */
ATTN_API const int64_t *attn_tensor_shape(const attn_tensor *tensor);
/* Returns the length of an axis. Negative axes count from the end. */
ATTN_API int64_t attn_tensor_length(const attn_tensor *tensor, int axis);
ATTN_API int64_t attn_tensor_size(const attn_tensor *tensor); /* Returns the number of elements. */
/* Sets whether a tensor gets a gradient, like parameters and checked inputs do. Initially false. */
ATTN_API void attn_tensor_set_requires_grad(attn_tensor *tensor, bool needs);
ATTN_API bool attn_tensor_requires_grad(const attn_tensor *tensor);
/* Returns the gradient, or NULL if there is none yet. attn_backward adds to the gradient of a caller's tensor until it
 * is cleared. */
ATTN_API attn_tensor *attn_tensor_grad(const attn_tensor *tensor);
/* Discards the gradient of a caller's tensor, as if no backward pass had run. The gradient's memory returns to the tape
 * that allocated it, for reuse. */
ATTN_API void attn_tensor_drop_grad(attn_tensor *tensor);

/* A list of named tensors: a state dict, the parameters of an optimizer, the contents of a file. */
typedef struct attn_named {
    char *name;
    attn_tensor *tensor;
} attn_named;
typedef struct attn_named_list {
    attn_context *context;
    attn_named *items;
    int64_t n, capacity;
    bool owns; /* true: the list destroys its tensors */
} attn_named_list;
/* Adds a tensor under a copy of `name`. list->context must be set. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_named_add(attn_named_list *list, const char *name, attn_tensor *tensor);
/* Returns the tensor with this name; NULL if there is none. */
ATTN_API attn_tensor *attn_named_find(const attn_named_list *list, const char *name);
/* Frees the names, and the tensors if the list owns them. The list can be used again. */
ATTN_API void attn_named_clear(attn_named_list *list);

/* ------------------------------------------------------------------------------------------------ tape */

typedef struct attn_tape attn_tape;

/* Options of a tape. Zero means inference: no recording, no dropout. */
typedef struct attn_tape_options {
    bool record; /* keeps the data that attn_backward needs */
    bool train;  /* enables dropout and statistics of the batch */
    /* seed of dropout: use a new seed for each step; each dropout operation of a step has its own stream */
    uint64_t seed;
    int64_t reserved[4];
} attn_tape_options;

/* Creates a tape, which the caller destroys before the context.  It records nothing until attn_tape_reset enables
 * recording. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tape_create(attn_tape **tape, attn_context *context);
/* Destroys a tape and its tensors. NULL is allowed. Shared tensors (attn_tensor_share) stay valid. */
ATTN_API void attn_tape_destroy(attn_tape *tape);
/* Destroys every tensor that the tape made and starts a new round. Memory is kept for reuse: after a few rounds with
 * the same shapes nothing is allocated any more. If `options` is NULL, all options are zero. */
ATTN_API void attn_tape_reset(attn_tape *tape, const attn_tape_options *options);

/* Computes d loss / d x for every tensor x that needs a gradient; `loss` has one element. The pass consumes the data
 * that the operations saved, so call it once per forward pass. Recording another operation on a differentiated tensor
 * is ATTN_ERROR_ARGUMENT. Results stay readable until the reset, except as documented at attn_cross_entropy.
 * ATTN_ERROR_SHAPE: more than one element. ATTN_ERROR_ARGUMENT: the loss does not depend on any tensor with a gradient.
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_backward(attn_tape *tape, attn_tensor *loss);
/* Computes gradients like attn_backward, for `n` results at once with given gradients: grads[i] is the gradient of
 * results[i]. ATTN_ERROR_SHAPE: a gradient of another shape or type. ATTN_ERROR_ARGUMENT: n < 1, or a result that does
 * not depend on any tensor with a gradient. On an error before the pass begins no gradient has changed.
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_backward_many(attn_tape *tape, attn_tensor *const *results, const attn_tensor *const *grads,
                                        int n);

/* ------------------------------------------------------------------------------------------ making, shape */

/* Makes a tensor of the tape with `rank` lengths `shape`. It is copied from `data`, or zero if `data` is NULL. */
ATTN_API attn_tensor *attn_tape_tensor(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape,
                                       const void *data);
/* Returns x in another shape with the same number of elements. One length may be -1 and is then computed. The result
 * shares x's memory. */
ATTN_API attn_tensor *attn_reshape(attn_tape *tape, attn_tensor *x, int rank, const int64_t *shape);
/* Returns a copy of x with permuted axes: axis i of the result is axis axes[i] of x. `axes` has as many numbers as x
 * has axes. */
ATTN_API attn_tensor *attn_permute(attn_tape *tape, attn_tensor *x, const int *axes);
/* Concatenates n tensors along `axis`. ATTN_ERROR_SHAPE if their shapes differ along another axis. */
ATTN_API attn_tensor *attn_concat(attn_tape *tape, attn_tensor *const *xs, int n, int axis);
/* Returns a copy of x[..., begin : end, ...] along `axis`. */
ATTN_API attn_tensor *attn_slice(attn_tape *tape, attn_tensor *x, int axis, int64_t begin, int64_t end);
/* Selects rows of x (along axis 0) by I32 index: y[i] = x[index[i]]. */
ATTN_API attn_tensor *attn_index_select(attn_tape *tape, attn_tensor *x, const attn_tensor *index);
/* Converts x to another type: F32, F64, I32, U8 or BOOL. Conversion to an integer truncates. A number that the new type
 * cannot represent (out of range, NaN) is ATTN_ERROR_ARGUMENT. The result has the same shape. ATTN_ERROR_UNSUPPORTED:
 * other types. */
ATTN_API attn_tensor *attn_cast(attn_tape *tape, attn_tensor *x, attn_dtype dtype);

typedef enum attn_interpolation {
    ATTN_INTERPOLATE_LINEAR = 0,
    ATTN_INTERPOLATE_CUBIC /* cubic filter (Keys 1981) with a = -0.75 */
} attn_interpolation;
/* Resamples axis `axis` of x to length n (>= 1), with positions at pixel centres and the outer edges fixed. For an
 * image, call the function once per axis. The numbers are the same as PyTorch's interpolate with align_corners and
 * antialias off. Returns x itself if the length is n already. The other lengths of the shape stay. ATTN_ERROR_SHAPE. */
ATTN_API attn_tensor *attn_interpolate(attn_tape *tape, attn_tensor *x, int axis, int64_t n, attn_interpolation kind);

/* ------------------------------------------------------------------------------------------- arithmetic */

/* Add or multiply elements. Shapes broadcast as in NumPy: axes are aligned at the end, and axes of length 1 are
 * repeated. */
ATTN_API attn_tensor *attn_add(attn_tape *tape, attn_tensor *a, attn_tensor *b);
ATTN_API attn_tensor *attn_sub(attn_tape *tape, attn_tensor *a, attn_tensor *b);
ATTN_API attn_tensor *attn_mul(attn_tape *tape, attn_tensor *a, attn_tensor *b);
/* Computes x*scale + shift. The result has the same shape. */
ATTN_API attn_tensor *attn_affine(attn_tape *tape, attn_tensor *x, double scale, double shift);
/* Compute the sum or the mean along an axis, which is removed from the shape. */
ATTN_API attn_tensor *attn_sum(attn_tape *tape, attn_tensor *x, int axis);
ATTN_API attn_tensor *attn_mean(attn_tape *tape, attn_tensor *x, int axis);

typedef enum attn_activation {
    ATTN_ACTIVATION_IDENTITY = 0,
    ATTN_ACTIVATION_RELU,
    ATTN_ACTIVATION_LEAKY_RELU, /* slope 0.01 for negative x */
    ATTN_ACTIVATION_GELU_ERF,
    ATTN_ACTIVATION_GELU_TANH,
    ATTN_ACTIVATION_GELU_SIGMOID, /* x * sigmoid(1.702 x) */
    ATTN_ACTIVATION_TANH,
    ATTN_ACTIVATION_SIGMOID,
    ATTN_ACTIVATION_SILU /* x * sigmoid(x), also called swish */
} attn_activation;
/* Applies the function to each element. The result has the same shape. */
ATTN_API attn_tensor *attn_activate(attn_tape *tape, attn_tensor *x, attn_activation activation);
/* Computes the softmax along the last axis. Keys at or past lens (I32, one number a row or one for each leading index;
 * NULL: all keys are visible) are masked. With fill 0 a row without visible keys gives zeros; otherwise masked keys get
 * the score `fill`. The result has the same shape. */
ATTN_API attn_tensor *attn_softmax(attn_tape *tape, attn_tensor *x, const attn_tensor *lens, double fill);

/* --------------------------------------------------------------------------------------------- layers' ops */

/* Computes y[...,out] = activation(x[...,in] w[out,in]^T + b[out]). b may be NULL. */
ATTN_API attn_tensor *attn_linear(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b,
                                  attn_activation activation);
/* Computes c[...,m,n] = a[...,m,k] b[...,k,n]. The leading axes of a and b must be equal, or b has rank 2. The last
 * two axes of a and b can be transposed. */
ATTN_API attn_tensor *attn_matmul(attn_tape *tape, attn_tensor *a, attn_tensor *b, bool transpose_a, bool transpose_b);
/* Computes y[i,:] = table[ids[i],:]*scale (+ position[(i mod period) + first,:]). ids is I32 of any shape [...,
 * period]. position is [max,D] or NULL.  ATTN_ERROR_ARGUMENT names the first id out of range. */
ATTN_API attn_tensor *attn_embedding(attn_tape *tape, attn_tensor *table, const attn_tensor *ids, double scale,
                                     attn_tensor *position, int64_t first);
ATTN_API attn_tensor *attn_dropout(attn_tape *tape, attn_tensor *x, double p);
/* Normalizes over the last axis: (x - mean) / sqrt(var + eps) * g + b. g and b are [D]. */
ATTN_API attn_tensor *attn_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b, double eps);
/* The divisors of attn_channel_norm. */
typedef enum attn_norm {
    ATTN_NORM_VARIANCE = 0, /* sqrt(var + eps), as in layer norm */
    ATTN_NORM_DEVIATION     /* sqrt(var) + eps; its derivative is taken as 0 if var is 0 */
} attn_norm;
/* Normalizes over any axis without moving the axis: (x - mean) / divisor * g + b. g and b have as many elements as the
 * axis is long. attn_layer_norm is faster if the axis is the last one. The result has the same shape. */
ATTN_API attn_tensor *attn_channel_norm(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *g, attn_tensor *b,
                                        double eps, attn_norm kind);

/* Computes one layer of gated recurrent units with PyTorch's gate order r, z, n (Cho et al. 2014, arXiv:1406.1078): x
 * [T,B,I], h0 [B,H] or NULL (zeros), w_ih [3H,I], w_hh [3H,H], b_ih, b_hh [3H]. Returns all states [T,B,H]; the final
 * state is the last row. */
ATTN_API attn_tensor *attn_gru(attn_tape *tape, attn_tensor *x, attn_tensor *h0, attn_tensor *w_ih, attn_tensor *w_hh,
                               attn_tensor *b_ih, attn_tensor *b_hh);

typedef struct attn_cross_entropy_options {
    bool use_ignore_index;
    int64_t ignore_index;   /* labels with this value are ignored (padding) */
    double label_smoothing; /* label smoothing: the share of the probability that is spread evenly over all classes */
    double divisor;         /* divisor of the sum; 0: the number of labels that are not ignored */
    int64_t reserved[4];
} attn_cross_entropy_options;
/* Computes the mean of -log softmax(logits)[label] over the labels that are not ignored. logits are [...,C], and labels
 * are I32 [...]. The result has one element. While recording, the logits are overwritten by their gradient in the
 * backward pass. */
ATTN_API attn_tensor *attn_cross_entropy(attn_tape *tape, attn_tensor *logits, const attn_tensor *labels,
                                         const attn_cross_entropy_options *options);

/* ------------------------------------------------------------------------------------------- attention */

/* A tensor for one pointer of attn_arrays, and the offset (in elements) of the problem's index 0 in it. */
typedef struct attn_operand {
    attn_tensor *tensor;
    int64_t offset;
} attn_operand;
typedef struct attn_attention {
    /* a forward problem, as attn.h describes; direction, seed, stream and gradients are set by attn_attend */
    attn_problem problem;
    attn_operand q, k, v;
    attn_tensor *bias;
    const attn_tensor *mask; /* type U8 or BOOL */
    const attn_tensor *lens; /* type I32 */
    attn_tensor *w, *w2;
    attn_tensor *table[ATTN_MAX_RELATIVE];
    int rank; /* shape of the result, whose strides are the problem's o */
    int64_t shape[ATTN_MAX_RANK];
    /* if not NULL: gets the attention weights in the shape below; no gradient flows through them */
    attn_tensor **weights;
    int weights_rank;
    int64_t weights_shape[ATTN_MAX_RANK];
    double dropout; /* drop probability in training */
    int examples;   /* the dim of the problem that counts the examples of a batch, usually the first */
    int64_t reserved[8];
} attn_attention;
/* Computes any attention that the engine supports, with its gradients. The tape keeps plans and reuses them for equal
 * problems. The result has the shape that the attention describes. On a tape that neither records nor trains, q, k and
 * v may be BF16, and the result is then BF16; this excludes a bias, tables, w and weights. */
ATTN_API attn_tensor *attn_attend(attn_tape *tape, const attn_attention *attention);

/* ------------------------------------------------------------------------------------------ convolution */

typedef struct attn_conv {
    int spatial;                   /* number of spatial axes, 1 to 3 */
    int64_t stride[3], padding[3]; /* stride 0 means 1 */
    int64_t groups;                /* number of groups; 0 means 1 */
    attn_activation activation;    /* activation of the result */
    int64_t dilation[3];           /* distance between taps; 0 means 1 */
} attn_conv;
/* Computes a convolution (cross-correlation, as in PyTorch): x [B,C,spatial...], w [O,C/groups,kernel...], b [O] or
 * NULL. ATTN_ERROR_ARGUMENT: an unknown activation. */
ATTN_API attn_tensor *attn_convolve(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b,
                                    const attn_conv *conv);
/* Compute max or average pooling over windows of size `kernel` with step `stride` (NULL or 0: the kernel). Incomplete
 * windows are left out. Padding (NULL: none) is at most half a kernel on both sides and is never part of a mean or
 * maximum. x [B,C,spatial...]. ATTN_ERROR_SHAPE. */
ATTN_API attn_tensor *attn_max_pool(attn_tape *tape, attn_tensor *x, int spatial, const int64_t *kernel,
                                    const int64_t *stride, const int64_t *padding);
ATTN_API attn_tensor *attn_avg_pool(attn_tape *tape, attn_tensor *x, int spatial, const int64_t *kernel,
                                    const int64_t *stride);
/* Applies batch normalization to each channel (axis 1), with batch statistics in training and running statistics
 * otherwise. In training, running_* [C] are updated by `momentum` (PyTorch's meaning; the running variance is
 * unbiased). */
ATTN_API attn_tensor *attn_batch_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b,
                                      attn_tensor *running_mean, attn_tensor *running_var, double momentum, double eps);

#ifdef __cplusplus
}
#endif
#endif
