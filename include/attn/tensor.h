/* SPDX-License-Identifier: MIT
 *
 * tensor.h - n-dimensional arrays, operations on them, and their gradients.
 *
 * Tensors are contiguous and row-major. A tape runs operations one after the other. While a tape records, it keeps what
 * the gradients need. If an operation fails, it sets the context's error and returns NULL. If an operation has a NULL
 * input, it returns NULL. The first error is kept until attn_tape_reset (see attn_context_status in attn.h). So a model
 * checks only its last result.
 *
 *     attn_tensor *h = attn_linear(tape, x, w1, b1, ATTN_ACTIVATION_RELU);
 *     attn_tensor *y = attn_linear(tape, h, w2, b2, ATTN_ACTIVATION_IDENTITY);
 *     attn_tensor *loss = attn_cross_entropy(tape, y, labels, NULL);
 *     if (!loss || attn_backward(tape, loss) != ATTN_OK) puts(attn_context_error(context));
 *
 * The argument `axis` of an operation may be negative, and then counts from the end.
 *
 * Not thread safe. Only one thread at a time may use a tape, its context and its tensors.  Operations use the context's
 * threads and give the same bits for any number of threads. Every operation supports f32, and f64 for checking
 * gradients. Integers (ids, lengths) are I32. */
#ifndef ATTN_TENSOR_H
#define ATTN_TENSOR_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_MAX_RANK 8

/* --------------------------------------------------------------------------------------------- tensors */

typedef struct attn_tensor attn_tensor;

/* Makes a tensor of zeros. The caller owns it, and destroys it after the tapes that used it were reset.
 * ATTN_ERROR_ARGUMENT (rank > ATTN_MAX_RANK, negative length), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tensor_create(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                        const int64_t *shape);
/* Destroys a tensor that the caller owns. NULL is allowed. Never call this function for a tape's tensors. Because
 * tensors may share memory, call it from the thread that uses the context, and not from a finalizer's thread. */
ATTN_API void attn_tensor_destroy(attn_tensor *tensor);
/* Makes a tensor from the caller's memory, which must be contiguous and aligned to its elements. The memory is not
 * copied, cleared or freed. It must stay valid and unchanged until the tensor is destroyed, which is after the tapes
 * that used it were reset. Operations only read the memory. If the tensor is a parameter, attn_weights_load and
 * optimizers write to the memory. ATTN_ERROR_ARGUMENT also if `data` is NULL and the shape has elements. */
ATTN_API attn_status attn_tensor_wrap(attn_tensor **tensor, attn_context *context, attn_dtype dtype, int rank,
                                      const int64_t *shape, void *data);
/* Makes a tensor that shares the memory of `tensor`, and that the caller owns. So a tape's result outlives the
 * tape's reset, and the tape itself, without a copy. The new tensor has no gradient and needs none. If a gradient is
 * shared, the next backward pass adds to a copy of it, and attn_tensor_drop_grad does not change it.
 * ATTN_ERROR_ARGUMENT: NULL. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tensor_share(attn_tensor **shared, const attn_tensor *tensor);

/* Returns the address of the elements, which are in row-major order. The tensor owns them. */
ATTN_API void *attn_tensor_data(const attn_tensor *tensor);
/* Returns the type of the tensor's elements. */
ATTN_API attn_dtype attn_tensor_dtype(const attn_tensor *tensor);
/* Returns the number of axes; 0 for a single element. */
ATTN_API int attn_tensor_rank(const attn_tensor *tensor);
/* Returns the lengths of the axes. These are `rank` numbers, which the tensor owns. */
ATTN_API const int64_t *attn_tensor_shape(const attn_tensor *tensor);
/* Returns the length of an axis. A negative axis counts from the end. */
ATTN_API int64_t attn_tensor_length(const attn_tensor *tensor, int axis);
ATTN_API int64_t attn_tensor_size(const attn_tensor *tensor);
/* Sets whether a tensor gets a gradient, as parameters do. Initially false. */
ATTN_API void attn_tensor_set_requires_grad(attn_tensor *tensor, bool needs);
ATTN_API bool attn_tensor_requires_grad(const attn_tensor *tensor);
/* Returns the gradient, or NULL if there is none yet. attn_backward adds to the gradient of a caller's tensor until
 * this gradient is cleared. */
ATTN_API attn_tensor *attn_tensor_grad(const attn_tensor *tensor);
/* Discards the gradient of a caller's tensor, as if no backward pass had run. The gradient's memory returns to the
 * tape that allocated it, and is reused. */
ATTN_API void attn_tensor_drop_grad(attn_tensor *tensor);

/* A list of named tensors, such as a state dict, the parameters of an optimizer, or the contents of a file. */
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
/* Adds a tensor, which may be NULL, under a copy of `name`. list->context must be set. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_named_add(attn_named_list *list, const char *name, attn_tensor *tensor);
/* Returns the tensor with this name. Returns NULL if there is none. */
ATTN_API attn_tensor *attn_named_find(const attn_named_list *list, const char *name);
/* Frees the names. If the list owns its tensors, frees them, too. The list can be used again. */
ATTN_API void attn_named_clear(attn_named_list *list);

/* ------------------------------------------------------------------------------------------------ tape */

typedef struct attn_tape attn_tape;

/* Options of a tape. Zero means inference, without recording and dropout. */
typedef struct attn_tape_options {
    bool record; /* true: keeps the data that attn_backward needs */
    bool train;  /* true: enables dropout and statistics of the batch */
    /* seed of dropout; use a new seed for each step. Each dropout operation of a step has its own stream. */
    uint64_t seed;
    int64_t reserved[4];
} attn_tape_options;

/* Creates a tape, which the caller destroys before the context.  It records nothing until attn_tape_reset enables
 * recording. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_tape_create(attn_tape **tape, attn_context *context);
/* Destroys a tape and its tensors. NULL is allowed. Shared tensors (attn_tensor_share) stay valid. */
ATTN_API void attn_tape_destroy(attn_tape *tape);
/* Destroys every tensor that the tape made, clears the context's error, and starts a new round. Memory is kept and
 * reused. So after a few rounds with the same shapes, nothing is allocated. If `options` is NULL, all options are
 * zero. */
ATTN_API void attn_tape_reset(attn_tape *tape, const attn_tape_options *options);

/* Computes d loss / d x for every tensor x that needs a gradient. `loss` has one element. The pass consumes the data
 * that the operations saved. So call it only once for each forward pass. If another operation on a differentiated
 * tensor is then recorded, it gives ATTN_ERROR_ARGUMENT. Results stay readable until the reset, except as documented at
 * attn_cross_entropy. ATTN_ERROR_SHAPE: more than one element. ATTN_ERROR_ARGUMENT: the loss does not depend on any
 * tensor with a gradient. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_backward(attn_tape *tape, attn_tensor *loss);
/* Computes gradients like attn_backward, for `n` results at once with given gradients: grads[i] is the gradient of
 * results[i]. ATTN_ERROR_SHAPE: a gradient of another shape or type. ATTN_ERROR_ARGUMENT: n < 1, or a result that does
 * not depend on any tensor with a gradient. If an error occurs before the pass begins, no gradient has changed.
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_backward_many(attn_tape *tape, attn_tensor *const *results, const attn_tensor *const *grads,
                                        int n);

/* ------------------------------------------------------------------------------------------ making, shape */

/* Makes a tensor of the tape with the lengths `shape`, of which there are `rank`. Its elements are copied from
 * `data`, or are zero if `data` is NULL. */
ATTN_API attn_tensor *attn_tape_tensor(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape,
                                       const void *data);
/* Returns x in another shape with the same number of elements. One length may be -1, and is then computed. The
 * result shares the memory of x. */
ATTN_API attn_tensor *attn_reshape(attn_tape *tape, attn_tensor *x, int rank, const int64_t *shape);
/* Returns a copy of x with permuted axes. Axis i of the result is axis axes[i] of x, and `axes` has as many numbers
 * as x has axes. */
ATTN_API attn_tensor *attn_permute(attn_tape *tape, attn_tensor *x, const int *axes);
/* Concatenates n tensors along `axis`. ATTN_ERROR_SHAPE: their shapes differ along another axis. */
ATTN_API attn_tensor *attn_concat(attn_tape *tape, attn_tensor *const *xs, int n, int axis);
/* Returns a copy of x[..., begin : end, ...] along `axis`. */
ATTN_API attn_tensor *attn_slice(attn_tape *tape, attn_tensor *x, int axis, int64_t begin, int64_t end);
/* Selects rows of x (along axis 0) by I32 index: y[i] = x[index[i]]. */
ATTN_API attn_tensor *attn_index_select(attn_tape *tape, attn_tensor *x, const attn_tensor *index);
/* Converts x to F32, F64, I32, U8 or BOOL. The result has the same shape. Conversion to an integer truncates.
 * ATTN_ERROR_ARGUMENT: the new type cannot represent a number, which is out of range or NaN. ATTN_ERROR_UNSUPPORTED:
 * another type. */
ATTN_API attn_tensor *attn_cast(attn_tape *tape, attn_tensor *x, attn_dtype dtype);

typedef enum attn_interpolation {
    ATTN_INTERPOLATE_LINEAR = 0,
    ATTN_INTERPOLATE_CUBIC /* cubic filter (Keys 1981) with a = -0.75 */
} attn_interpolation;
/* Resamples axis `axis` of x to the length n, which is at least 1. Positions are at the centres of pixels, and the
 * outer edges stay. For an image, call the function once for each axis. The numbers are the same as from PyTorch's
 * interpolate with align_corners and antialias off. If the length is n already, returns x itself. The other lengths of
 * the shape do not change. ATTN_ERROR_SHAPE. */
ATTN_API attn_tensor *attn_interpolate(attn_tape *tape, attn_tensor *x, int axis, int64_t n, attn_interpolation kind);

/* ------------------------------------------------------------------------------------------- arithmetic */

/* Add or multiply elements. Shapes are broadcast as in NumPy, where axes are aligned at the end, and axes of length
 * 1 are repeated. */
ATTN_API attn_tensor *attn_add(attn_tape *tape, attn_tensor *a, attn_tensor *b);
ATTN_API attn_tensor *attn_sub(attn_tape *tape, attn_tensor *a, attn_tensor *b);
ATTN_API attn_tensor *attn_mul(attn_tape *tape, attn_tensor *a, attn_tensor *b);
/* Computes x*scale + shift. The result has the same shape. */
ATTN_API attn_tensor *attn_affine(attn_tape *tape, attn_tensor *x, double scale, double shift);
/* Compute the sum or the mean along an axis. The axis is removed from the shape. */
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
/* Computes the softmax along the last axis. The result has the same shape. Keys at or past lens are masked. lens is
 * I32 and has one number for each row, or one for each leading index. If lens is NULL, all keys are visible. If fill
 * is 0, a row without visible keys gives zeros. Otherwise masked keys get the score `fill`. */
ATTN_API attn_tensor *attn_softmax(attn_tape *tape, attn_tensor *x, const attn_tensor *lens, double fill);

/* --------------------------------------------------------------------------------------------- layers' ops */

/* Computes y[...,out] = activation(x[...,in] w[out,in]^T + b[out]). b may be NULL. */
ATTN_API attn_tensor *attn_linear(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b,
                                  attn_activation activation);
/* Computes c[...,m,n] = a[...,m,k] b[...,k,n]. a and b have the same leading axes, or b has rank 2. The last two
 * axes of a, and of b, can be transposed. */
ATTN_API attn_tensor *attn_matmul(attn_tape *tape, attn_tensor *a, attn_tensor *b, bool transpose_a, bool transpose_b);
/* Computes y[i,:] = table[ids[i],:]*scale. If `position` is not NULL, adds position[(i mod period) + first,:]. ids
 * is I32 of any shape [..., period], and position is [max,D]. ATTN_ERROR_ARGUMENT: an id is out of range. The error
 * names the first such id. */
ATTN_API attn_tensor *attn_embedding(attn_tape *tape, attn_tensor *table, const attn_tensor *ids, double scale,
                                     attn_tensor *position, int64_t first);
ATTN_API attn_tensor *attn_dropout(attn_tape *tape, attn_tensor *x, double p);
/* Normalizes over the last axis: (x - mean) / sqrt(var + eps) * g + b. g and b are [D]. */
ATTN_API attn_tensor *attn_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b, double eps);
/* The divisor of attn_channel_norm. */
typedef enum attn_norm {
    ATTN_NORM_VARIANCE = 0, /* divides by sqrt(var + eps), as in layer norm */
    ATTN_NORM_DEVIATION     /* divides by sqrt(var) + eps; if var is 0, the derivative of sqrt(var) is taken as 0 */
} attn_norm;
/* Normalizes over any axis without moving the axis: (x - mean) / divisor * g + b. The result has the same shape. g
 * and b have as many elements as the axis is long. If the axis is the last one, attn_layer_norm is faster. */
ATTN_API attn_tensor *attn_channel_norm(attn_tape *tape, attn_tensor *x, int axis, attn_tensor *g, attn_tensor *b,
                                        double eps, attn_norm kind);

/* Computes one layer of gated recurrent units with PyTorch's gate order r, z, n (Cho et al. 2014, arXiv:1406.1078): x
 * [T,B,I], h0 [B,H] or NULL (zeros), w_ih [3H,I], w_hh [3H,H], b_ih, b_hh [3H]. Returns all states [T,B,H], of which
 * the last row is the final state. */
ATTN_API attn_tensor *attn_gru(attn_tape *tape, attn_tensor *x, attn_tensor *h0, attn_tensor *w_ih, attn_tensor *w_hh,
                               attn_tensor *b_ih, attn_tensor *b_hh);

typedef struct attn_cross_entropy_options {
    bool use_ignore_index;
    int64_t ignore_index;   /* labels with this value are ignored, such as padding */
    double label_smoothing; /* label smoothing: the share of the probability that is spread evenly over all classes */
    double divisor;         /* divisor of the sum of the losses; 0: the number of labels that are not ignored */
    int64_t reserved[4];
} attn_cross_entropy_options;
/* Computes the mean of -log softmax(logits)[label] over the labels that are not ignored. logits are [...,C], and labels
 * are I32 [...]. The result has one element. If the tape records, the backward pass overwrites the logits with their
 * gradient. */
ATTN_API attn_tensor *attn_cross_entropy(attn_tape *tape, attn_tensor *logits, const attn_tensor *labels,
                                         const attn_cross_entropy_options *options);

/* ------------------------------------------------------------------------------------------- attention */

/* A tensor for one pointer of attn_arrays. The offset, in elements, is the place of the problem's index 0 in the
 * tensor. */
typedef struct attn_operand {
    attn_tensor *tensor;
    int64_t offset;
} attn_operand;
typedef struct attn_attention {
    /* forward problem (attn.h); attn_attend sets its direction, seed, stream and gradients */
    attn_problem problem;
    attn_operand q, k, v;
    attn_tensor *bias;
    const attn_tensor *mask; /* type U8 or BOOL */
    const attn_tensor *lens; /* type I32 */
    attn_tensor *w, *w2;
    attn_tensor *table[ATTN_MAX_RELATIVE];
    int rank; /* rank and lengths of the result; its strides are those of o in the problem */
    int64_t shape[ATTN_MAX_RANK];
    /* If not NULL, gets the attention weights without a gradient. Their shape is the next two fields. */
    attn_tensor **weights;
    int weights_rank;
    int64_t weights_shape[ATTN_MAX_RANK];
    double dropout; /* probability in training that a weight is dropped */
    int examples;   /* number of the problem's dim that indexes the examples of a batch, usually 0 */
    /* offsets of packed sequences, I32 [sequences + 1], of queries and of keys alike; problem.packed describes them */
    const attn_tensor *offsets;
    int64_t reserved[7];
} attn_attention;
/* Computes any attention that the engine supports, with its gradients. The result has the shape that `attention`
 * describes. The tape keeps plans and reuses them for equal problems. If a tape neither records nor trains, q, k and
 * v may be BF16, and the result is then BF16. In this case, there can be no bias, tables, w or weights. */
ATTN_API attn_tensor *attn_attend(attn_tape *tape, const attn_attention *attention);

/* ------------------------------------------------------------------------------------------ convolution */

typedef struct attn_conv {
    int spatial;                   /* number of spatial axes, 1 to 3 */
    int64_t stride[3], padding[3]; /* a stride of 0 means 1 */
    int64_t groups;                /* number of groups; 0 means 1 */
    attn_activation activation;
    int64_t dilation[3]; /* distance between taps of the kernel; 0 means 1 */
} attn_conv;
/* Computes a convolution, which is a cross-correlation as in PyTorch. x is [B,C,spatial...], w is
 * [O,C/groups,kernel...], and b is [O] or NULL. ATTN_ERROR_ARGUMENT: the activation is unknown. */
ATTN_API attn_tensor *attn_convolve(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b,
                                    const attn_conv *conv);
/* Compute max or average pooling of x [B,C,spatial...], over windows of size `kernel` with step `stride`. A stride of
 * NULL or 0 is the kernel's size. Incomplete windows are left out. Padding is at most half a kernel on both sides, and
 * NULL means none. Padding is never part of a mean or a maximum. ATTN_ERROR_SHAPE. */
ATTN_API attn_tensor *attn_max_pool(attn_tape *tape, attn_tensor *x, int spatial, const int64_t *kernel,
                                    const int64_t *stride, const int64_t *padding);
ATTN_API attn_tensor *attn_avg_pool(attn_tape *tape, attn_tensor *x, int spatial, const int64_t *kernel,
                                    const int64_t *stride);
/* Applies batch normalization to each channel (axis 1). In training, statistics of the batch are used, and running_*
 * [C] are updated by `momentum`, which has PyTorch's meaning. The running variance is unbiased. Outside of training,
 * the running statistics are used. */
ATTN_API attn_tensor *attn_batch_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b,
                                      attn_tensor *running_mean, attn_tensor *running_var, double momentum, double eps);

#ifdef __cplusplus
}
#endif
#endif
