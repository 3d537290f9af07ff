/* SPDX-License-Identifier: MIT
 *
 * attn.h - the attention engine: describe a problem once, plan it, execute it often.
 *
 *     S[b,i,j] = cap(scale * score(q[b,i,:], k[b,j,:])) + bias[b,i,j]     cap: none, or softcap * tanh(x / softcap)
 *     P        = normalize(mask(S))              over the keys j
 *     O[b,i,:] = sum_j dropout(P)[b,i,j] * v[b,j,:]
 *
 * A problem is a table of dimensions.  Each dimension has one of five roles (attn_role), a length, and
 * one stride per operand, in elements; a stride of 0 broadcasts.  Every attention of the literature that this library
 * supports is a way to fill this table; functions below (attn_problem_heads and its kin) fill it for the usual cases.
 *
 * This header stands alone: nothing else of the library is needed to use the engine, and the engine needs
 * only libc, libm and threads.  Fixed letters in shape comments: B batch, H heads, Tq queries, Tk keys, D channels of
 * q and k, Dv channels of v and o.
 *
 * Threads: one thread at a time uses a context or makes a plan from it; different contexts are independent; a finished
 * plan may be executed from several threads at once, each with a workspace of its own.
 *
 * Pointers: one may be NULL where its function's comment says so, and nowhere else.
 */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) || !defined(__GNUC__)
#define ATTN_API
#else
#define ATTN_API __attribute__((visibility("default")))
#endif

#define ATTN_VERSION_MAJOR 1
#define ATTN_VERSION_MINOR 0
#define ATTN_VERSION_PATCH 0
/* "1.0.0"; a constant string. */
ATTN_API const char *attn_version(void);

/* ---------------------------------------------------------------------------------------------- errors */

/* The one table of errors: X(NAME, code, text). */
/* clang-format off */
#define ATTN_STATUS_MAP(X)                                                                                   \
    X(OK, 0, "success")                                                                                      \
    X(ERROR_ARGUMENT, 1, "invalid argument")                                                                       \
    X(ERROR_SHAPE, 2, "shapes do not fit")                                                                         \
    X(ERROR_MEMORY, 3, "out of memory")                                                                            \
    X(ERROR_UNSUPPORTED, 4, "not supported")                                                                       \
    X(ERROR_BUSY, 5, "in use by another thread or process")                                       \
    X(ERROR_IO, 6, "input or output failed")                                                                       \
    X(ERROR_FORMAT, 7, "malformed input")                                                                          \
    X(ERROR_NOT_FOUND, 8, "not found")                                                                             \
    X(ERROR_INTERRUPTED, 9, "interrupted")                                                                         \
    X(ERROR_INTERNAL, 10, "internal error")
/* clang-format on */

typedef enum attn_status {
#define ATTN_X(name, code, text) ATTN_##name = code,
    ATTN_STATUS_MAP(ATTN_X)
#undef ATTN_X
} attn_status;

/* The table's text for `status`; a constant string, "unknown status" for a number outside the table. */
ATTN_API const char *attn_status_text(attn_status status);

/* --------------------------------------------------------------------------------------------- context */

/* Where memory comes from.  `alloc` returns `size` bytes aligned to `align` (a power of two) or NULL;
 * `release` gets what `alloc` returned, with the same size.  Both may be called from several threads. */
typedef struct attn_allocator {
    void *(*alloc)(void *user, size_t size, size_t align);
    void (*release)(void *user, void *memory, size_t size);
    void *user;
} attn_allocator;

/* The number format of matrix products (linear layers, convolutions, attention).  Sums, norms, softmax and
 * losses are f32 in all of them. */
typedef enum attn_precision {
    ATTN_PRECISION_DEFAULT = 0,
    ATTN_PRECISION_F32,  /* f32: faster routes are taken where they are proved to be as exact (docs/numerics.md) */
    ATTN_PRECISION_FMA,  /* f32, by multiply-adds of f32 alone: AMX is not used */
    ATTN_PRECISION_BF16, /* numbers rounded to bf16, sums in f32 */
    ATTN_PRECISION_INT8  /* linear layers in 8-bit integers, the rest as in bf16; without gradients */
} attn_precision;
ATTN_API const char *attn_precision_name(attn_precision precision); /* "f32", "fma", ...; a constant string */
/* The precision of that name ("f32", "fma", "bf16", "int8"); false, with *precision unchanged: there is none. */
ATTN_API bool attn_precision_find(attn_precision *precision, const char *name);

/* Zero means the default in each field. */
typedef struct attn_context_options {
    attn_allocator allocator;                  /* default: aligned memory from libc */
    int threads;                               /* default: ATTN_THREADS, else OMP_NUM_THREADS, else the usable cores */
    const char *isa;                           /* default: ATTN_ISA, else the best of the machine; see attn_isa_name */
    void (*log)(void *user, const char *line); /* default: none; gets one line for each plan made */
    void *log_user;
    int verbose; /* 0, or 1: the log also says why each other solver was not chosen */
    /* Applies to f32 products, and to the models that are made with the context (models.h).  Default: ATTN_PRECISION,
     * else f32. */
    attn_precision precision;
    /* The result for one sequence is bitwise the same whatever its padding, if that is finite, and whatever else is in
     * the batch.  It costs speed in short sequences and all of AMX (docs/numerics.md).  Default: whether ATTN_BATCH_INVARIANT is 1,
     * else false. */
    bool batch_invariant;
    int64_t reserved[8]; /* zero: room for later versions */
} attn_context_options;

/* A context holds the allocator, the number of threads, the chosen instruction set and the last error.
 * One thread at a time may use a context; different contexts are independent. */
typedef struct attn_context attn_context;

/* Makes a context.  `options` may be NULL.  There is no context yet to keep words in, so each reason has a status of
 * its own: ATTN_ERROR_NOT_FOUND, an instruction set (the option or ATTN_ISA) of no known name;
 * ATTN_ERROR_UNSUPPORTED, one that the machine lacks; ATTN_ERROR_ARGUMENT, threads below 0 or above 1024, an
 * allocator with one of its two functions, a precision (the option or ATTN_PRECISION) that does not exist, or an
 * ATTN_BATCH_INVARIANT that is neither 0 nor 1; ATTN_ERROR_MEMORY.  *context is then NULL and nothing is held. */
ATTN_API attn_status attn_context_create(attn_context **context, const attn_context_options *options);
ATTN_API void attn_context_destroy(attn_context *context); /* NULL is allowed */

/* The status of the last call that failed, and a one-line message that says what was wrong and where ("" if none has
 * failed since the last attn_context_clear_error).  The text lives as long as the context and changes with the next
 * call that fails.  For operations on a tape, the first failure is kept (see tensor.h).  These three functions
 * cannot fail.  Without a context (NULL: attn_context_create failed) the status is ATTN_ERROR_ARGUMENT, and the message
 * says that there is none. */
ATTN_API attn_status attn_context_status(const attn_context *context);
ATTN_API const char *attn_context_error(const attn_context *context);
ATTN_API void attn_context_clear_error(attn_context *context);

/* Long calls of the library (a pass over an alignment, measuring or translating many) tell `work` how far they are:
 * `done` of `total` "layers", "sentences" or other `things`, a constant string.  It is called often, by the thread
 * that made the call, and must return soon; false stops the call, which then returns ATTN_ERROR_INTERRUPTED.  NULL,
 * the initial state, switches the reports off.  Training and image generation have their own callbacks. */
ATTN_API void attn_context_set_progress(attn_context *context,
                                        bool (*work)(void *user, const char *things, int64_t done, int64_t total),
                                        void *user);

/* With true, bf16 and int8 models that are loaded in the context from here on (made with attn_model_options.blank) only
 * infer: each weight that linear layers alone read is packed for products as it is read and has no f32 form, as after
 * attn_model_pack_weights (models.h).  Only one such weight at a time is in f32.  Initially false. */
ATTN_API void attn_context_set_inference(attn_context *context, bool inference);

/* The threads that the context was made with, its default already resolved. */
ATTN_API int attn_context_threads(const attn_context *context);
/* Memory taken through the context: bytes held now, the most ever held, and allocations made so far.  Any
 * pointer may be NULL.  May be called from any thread. */
ATTN_API void attn_context_memory(const attn_context *context, size_t *held, size_t *peak, uint64_t *allocations);
/* "amx", "avx512bf16", "avx512", "avx2", "neon" or "scalar".  A constant string. */
ATTN_API const char *attn_context_isa(const attn_context *context);
/* The context's precision; never ATTN_PRECISION_DEFAULT. */
ATTN_API attn_precision attn_context_precision(const attn_context *context);
/* The i-th instruction set that this machine can run, best first; NULL past the end. */
ATTN_API const char *attn_isa_name(int i);

/* Bytes of the context's memory.  Functions that fill one overwrite what it held without freeing it: start
 * with {0}.  A zero byte, not counted in `size`, follows the last one, so that text can be used as a string. */
typedef struct attn_bytes {
    char *data;
    size_t size;
} attn_bytes;
ATTN_API void attn_bytes_free(attn_context *context, attn_bytes *bytes); /* empties it; an empty one is allowed */

/* --------------------------------------------------------------------------------------------- problem */

#define ATTN_MAX_DIMS     16
#define ATTN_MAX_BANDS    3
#define ATTN_MAX_WINDOWS  3
#define ATTN_MAX_RELATIVE 6
#define ATTN_MAX_PICKS    4

typedef enum attn_role {
    ATTN_ROLE_BATCH = 1, /* runs along with everything: batch, head, the other axes of an image */
    ATTN_ROLE_QUERY,     /* positions of the queries */
    ATTN_ROLE_KEY,       /* positions of the keys */
    ATTN_ROLE_CONTRACT,  /* summed in the score: the channels of a head */
    ATTN_ROLE_VALUE      /* carried to the output */
} attn_role;

typedef enum attn_dtype {
    ATTN_F32 = 0,
    ATTN_BF16, /* storage only; sums are kept in f32 */
    ATTN_F64,  /* by blocks where that solver takes the problem, else by the reference solver */
    ATTN_F16,  /* files only */
    ATTN_I32,
    ATTN_I64,
    ATTN_U8,
    ATTN_BOOL
} attn_dtype;
ATTN_API size_t attn_dtype_size(attn_dtype dtype);      /* bytes of one element; 0 if unknown */
ATTN_API const char *attn_dtype_name(attn_dtype dtype); /* "f32", "bf16", ...; a constant string */

/* The scores.  A row X(NAME, name) makes ATTN_SCORE_NAME, the word `name` of attn_problem_parse, and names the file
 * that computes it, src/attend/scores/score_name.c; a new score is that file and a row at the end, as
 * docs/adding-a-score.md shows. */
#define ATTN_SCORES(X)                                                                                                 \
    X(DOT, dot)               /* sum_c q_c k_c; the default */                                                         \
    X(ADDITIVE, additive)     /* sum_c w_c tanh(q_c + k_c)            Bahdanau et al. 2014, arXiv:1409.0473 */         \
    X(CONCAT, concat)         /* relu(sum_c w_c q_c + w2_c k_c)       Wang et al. 2018, arXiv:1711.07971 */            \
    X(GAUSSIAN, gaussian)     /* -|q-k|^2 / (2 width^2), the logarithm of the kernel; kernels of the distance: */      \
    X(BOXCAR, boxcar)         /* 1 if |q-k| < width, else 0 */                                                         \
    X(CONSTANT, constant)     /* 1 */                                                                                  \
    X(TRIANGULAR, triangular) /* max(0, 1 - |q-k| / width); Dive into Deep Learning's Epanechnikov */                  \
    /* add new rows above this line */
#define ATTN_SCORE_VALUE(NAME, name) ATTN_SCORE_##NAME,
#define ATTN_SCORE_ONE(NAME, name)   +1
typedef enum attn_score { ATTN_SCORES(ATTN_SCORE_VALUE) } attn_score;
enum { ATTN_SCORE_COUNT = ATTN_SCORES(ATTN_SCORE_ONE) }; /* how many there are */

typedef enum attn_normalization {
    ATTN_NORMALIZATION_SOFTMAX = 0, /* exp(S) / sum exp(S) */
    ATTN_NORMALIZATION_MEAN,        /* S / N, N the number of keys of the row that are not masked */
    ATTN_NORMALIZATION_SUM, /* S / sum S, for nonnegative S; a row whose sum is 0 gives zero output and lse -inf */
    /* 1 at the first of the largest S, the lowest key index, and 0 elsewhere; lse is that score.  The gradient of v is
     * that of these weights; q, k, bias, tables and w get zeros, since the weights do not change with the scores. */
    ATTN_NORMALIZATION_HARDMAX,
    ATTN_NORMALIZATION_NONE /* S itself, for nonnegative S; lse is 0 */
} attn_normalization;

/* One row of the table.  Strides are in elements and may be negative.  An operand may only have strides in
 * the roles named; elsewhere they must be 0. */
typedef struct attn_dim {
    attn_role role;
    int64_t n;    /* length; 0 is allowed: no keys gives rows like fully masked ones */
    int64_t q;    /* BATCH QUERY CONTRACT */
    int64_t k;    /* BATCH KEY CONTRACT */
    int64_t v;    /* BATCH KEY VALUE */
    int64_t o;    /* BATCH QUERY VALUE */
    int64_t bias; /* BATCH QUERY KEY; one number a distance: -s along QUERY and s along KEY, for each axis of a grid */
    int64_t mask; /* BATCH QUERY KEY */
    int64_t lens; /* BATCH QUERY */
    int64_t lse;  /* BATCH QUERY; the log-sum-exp, one number a row */
    int64_t weights; /* BATCH QUERY KEY */
    int64_t w;       /* BATCH CONTRACT; the vectors w and w2 of additive and concatenation scores */
    int64_t sinks;   /* BATCH QUERY; the gradient has the same strides */
    int64_t blocks;  /* BATCH QUERY KEY; from block to block along attn_problem.blocks' two dims */
    /* Gradients.  Used only where attn_problem.own_grad_strides; else dq has the strides of q, and so on. */
    int64_t dq, dk, dv, dout, dbias;
    int64_t reserved[4]; /* zero, as in all structs below that have it: room for later versions */
} attn_dim;

/* Key j is attended by query i only if lo <= j - i <= hi, j and i the indices along the two dims named.
 * INT64_MIN and INT64_MAX are open ends.  Causal: {.lo = INT64_MIN, .hi = 0} (top-left) or .hi = Tk - Tq
 * (bottom-right, where the last query sees the last key). */
typedef struct attn_band {
    int query_dim, key_dim;
    int64_t lo, hi;
} attn_band;

typedef enum attn_border {
    ATTN_BORDER_MASK = 0, /* taps outside take no part */
    ATTN_BORDER_ZERO,     /* taps outside are keys and values of zero that do take part (scores keep bias and tables) */
    ATTN_BORDER_SHIFT     /* the window is moved inwards until it fits: neighbourhood attention */
} attn_border;

/* The KEY dim's length is then a number of taps, and tap t of query i is at position
 *     i * step + t * dilation + offset        of an axis of `size` positions.
 * The KEY dim's strides in k, v and mask are per position (the QUERY dim's are 0); its strides in bias and
 * weights are per tap.  Bands and relative tables of the pair see the position as j and i * step as i.
 * Shifting keeps taps on the same residue modulo dilation and needs size >= taps * dilation. */
typedef struct attn_window {
    int query_dim, key_dim;
    int64_t size;
    int64_t step;     /* 0 means 1 */
    int64_t dilation; /* 0 means 1 */
    int64_t offset;   /* of the first tap; -(taps/2)*dilation centres */
    attn_border border;
} attn_window;

typedef enum attn_relative_kind {
    ATTN_RELATIVE_QUERY = 0, /* score += sum_c q_c table[d,c] */
    ATTN_RELATIVE_KEY,       /* score += sum_c k_c table[d,c] */
    ATTN_RELATIVE_VALUE      /* v_c  += table[d,c], for this pair of positions */
} attn_relative_kind;

/* A table read at the relative position d = j - i + offset.  Scores are scaled after these terms are added.
 * The i-th relative of a problem reads attn_arrays.table[i] and its gradient is written to dtable[i] (same strides).
 * (Shaw et al. 2018, arXiv:1803.02155; Ramachandran et al. 2019, arXiv:1906.05909; Wang et al. 2020,
 * arXiv:2003.07853.) */
typedef struct attn_relative {
    attn_relative_kind kind;
    int query_dim, key_dim;
    int64_t offset;
    int64_t rows; /* of the table; every reachable d must lie in [0, rows) */
    int64_t row_stride;
    int64_t stride[ATTN_MAX_DIMS]; /* per dim of the problem: BATCH and CONTRACT (VALUE for kind VALUE) */
    int64_t begin, end;            /* the range of the innermost (last) CONTRACT or VALUE dim that the table
                                    * serves; its stride counts from `begin`.  0, 0: all of it */
} attn_relative;

/* Requests weights only at chosen indices of a BATCH or QUERY dim; the weights array is then `n` long there. */
typedef struct attn_pick {
    int dim;
    int64_t n;
    const int64_t *index; /* read when the plan is made */
} attn_pick;

/* Sequences of different lengths stored end to end without padding (the cu_seqlens layout).  Index s of `batch_dim`
 * (BATCH) counts sequences: sequence s has queries [q_offsets[s], q_offsets[s + 1]) and keys [k_offsets[s],
 * k_offsets[s + 1]) of the packed positions.  The lengths of `query_dim` and `key_dim` are those of the longest
 * sequence.  Along `batch_dim` q, k, v, o, lse and their gradients have stride 0: index i of `query_dim` is at position
 * q_offsets[s] + i of q, o, lse, dq and dout, index j of `key_dim` at k_offsets[s] + j of k, v, dk and dv. Bias, mask,
 * lens, weights, bands and dropout are indexed by (s, i, j), as if each sequence were padded.  Rows and keys past a
 * sequence's length do not exist: they cost nothing, nothing is written for them (weights: 0), and mask_fill does not
 * count them. A sequence gets the same bits whatever the others are: those that it gets alone, and padded in a
 * batch-invariant context.  (The longest decides if AMX or the solver of single queries is used: the last bits.) */
typedef struct attn_packed {
    int batch_dim, query_dim, key_dim;
    int64_t queries, keys; /* packed positions in all; no offset may be larger */
    bool align_ends;       /* bands take query i as i + keys - queries of its sequence, so that the last query is at the
                            * last key: hi = 0 is then causal bottom-right */
} attn_packed;

/* A bias read through a table, trainable: T5's buckets, the relative positions of Swin's windows.  The strides that QUERY
 * and KEY dims have for `bias` then locate a pair's entry in arrays.bias_index, and that entry is the row of
 * arrays.bias that is added to its score; strides of -1 and 1 make an index by distance, whose memory is linear, those
 * of a matrix one of pairs.  Strides of BATCH dims are those of the table, so that heads have rows of their own. */
typedef struct attn_bias_index {
    int64_t rows; /* of the table; entries lie in [0, rows) */
    int64_t row_stride;
} attn_bias_index;

/* A mask of blocks: query i and key j, the indices along the two dims named, may meet only if the byte of block (i /
 * queries, j / keys) is not 0.  Blocks whose byte is 0 cost no work.  Bands, lens and the mask cut further.  Not
 * with windows or packed sequences.  (As block-sparse attention and FlexAttention's BlockMask have it,
 * arXiv:2412.05496.) */
typedef struct attn_blocks {
    int query_dim, key_dim;
    int64_t queries, keys; /* of a block; the last ones may be cut short */
} attn_blocks;

/* Optional operands and outputs, as bits. */
enum {
    ATTN_WITH_BIAS = 1 << 0,   /* arrays.bias */
    ATTN_WITH_MASK = 1 << 1,   /* arrays.mask: one byte an entry, nonzero = attend */
    ATTN_WITH_LENS = 1 << 2,   /* arrays.lens: int32; keys of lens_dim at or past the length are masked */
    ATTN_WITH_PACKED = 1 << 3, /* arrays.q_offsets, arrays.k_offsets: int32, see attn_problem.packed */
    /* arrays.sinks: a row's sink s takes part in its sum as a key of score s and value 0 (Xiao et al. 2023,
     * arXiv:2309.17453; a number for each head in gpt-oss): the log-sum-exp contains it, weights and o become
     * smaller, and a row without keys gives zero output and lse = s.  -inf: none.  Softmax only, and without
     * mask_fill. */
    ATTN_WITH_SINKS = 1 << 4,
    /* backward: arrays.dlse, the gradient of the log-sum-exp, as merging partial attentions leaves it.  Softmax only;
     * ignored forward, and where a row has no keys. */
    ATTN_WITH_DLSE = 1 << 5,
    ATTN_WITH_BIAS_INDEX = 1 << 6, /* with BIAS: arrays.bias_index, see attn_problem.bias_index */
    ATTN_WITH_BLOCKS = 1 << 7,     /* arrays.blocks: one byte a block, nonzero = attend, see attn_problem.blocks */
    /* arrays.k and arrays.v are bf16, q and o f32: a KV cache in half the memory.  F32 problems only, forward and
     * without weights. */
    ATTN_WITH_BF16_KEYS = 1 << 8,
    ATTN_WITH_ALL = (1 << 16) - 1, /* every operand, of later versions too */
    ATTN_WANT_LSE = 1 << 16,       /* forward: arrays.lse */
    ATTN_WANT_WEIGHTS = 1 << 17,   /* forward: arrays.weights, before dropout unless weights_dropped */
    ATTN_WANT_DQ = 1 << 18,        /* backward only: which gradients to compute */
    ATTN_WANT_DK = 1 << 19,
    ATTN_WANT_DV = 1 << 20,
    ATTN_WANT_DBIAS = 1 << 21,
    ATTN_WANT_DTABLES = 1 << 22,
    ATTN_WANT_DW = 1 << 23,
    ATTN_WANT_DSINKS = 1 << 24
};

typedef enum attn_direction { ATTN_DIRECTION_FORWARD = 0, ATTN_DIRECTION_BACKWARD } attn_direction;

/* Zero-initialize, then fill; zero means the default everywhere, but for numbers of dims (lens_dim, those of bands,
 * windows, tables, picks, packed and blocks), where 0 is the first dim. */
typedef struct attn_problem {
    int ndims;
    attn_dim dims[ATTN_MAX_DIMS];
    /* Type of q, k, v (but see ATTN_WITH_BF16_KEYS), o and their gradients; bias, tables, w, sinks, lse and weights are
     * f32 (f64 with F64). */
    attn_dtype dtype;
    attn_direction direction;
    attn_score score;
    double scale; /* 0: 1/sqrt(product of the CONTRACT dims) for DOT, 1 for the others */
    double width; /* of the distance kernels; 0: 1 */
    /* Not 0: scores x = scale * (score + tables) become softcap * tanh(x / softcap), before the bias and the masks:
     * a bias or a mask_fill is not capped.  Between 1e-30 and 1e30.  (Gemma 2, arXiv:2408.00118.) */
    double softcap;
    attn_normalization normalization;
    unsigned flags; /* ATTN_WITH_* | ATTN_WANT_* */
    int lens_dim;   /* the KEY dim that lengths cut */
    attn_packed packed;
    attn_bias_index bias_index; /* the gradient of the table has the table's strides, and is not accumulated */
    attn_blocks blocks;
    int nbands;
    attn_band bands[ATTN_MAX_BANDS];
    int nwindows;
    attn_window windows[ATTN_MAX_WINDOWS];
    int nrelatives;
    attn_relative relatives[ATTN_MAX_RELATIVE];
    int npicks;
    attn_pick picks[ATTN_MAX_PICKS];
    /* The score of a masked key. 0: none, the key is left out and a row without keys gives zero output, lse
     * -inf and zero gradients.  Else this finite score replaces its own (-1e6 in Dive into Deep Learning,
     * -10000 in ESM), so that a row without keys gives the mean of all values. */
    double mask_fill;
    double dropout; /* probability, 0 <= p < 1, on the normalized weights; scaled by 1/(1-p) */
    uint64_t seed;  /* dropout's; together with `stream` it fixes every dropped position, in any solver */
    uint64_t stream;
    bool weights_dropped; /* weights are written after dropout */
    bool accumulate;      /* backward: add to the gradients instead of overwriting them */
    bool own_grad_strides;
    /* Not 0: a row's k largest scores alone take part in its softmax, ties by the lower key index; its other keys are
     * masked, and have no gradient.  Counts visible keys, not sinks; a row with no more of them keeps all, and so does one
     * with a NaN among its scores.  The log-sum-exp is that of the kept.  Softmax only. */
    int64_t top_k;
    int64_t reserved[15];
} attn_problem;

/* The arrays of one execution.  Unused ones may be NULL.  Outputs must not overlap anything else.
 * Forward reads q k v (bias mask lens w w2 sinks blocks table) and writes o (lse weights).
 * Backward reads those, o, lse, dout (and dlse), and writes the requested gradients. A gradient of an operand that is
 * broadcast (stride 0) or read several times (windows, tables, a bias whose QUERY and KEY strides let pairs of the same
 * distance meet) is the sum over its uses; such a bias has no `accumulate`. */
typedef struct attn_arrays {
    const void *q, *k, *v;
    const void *bias;
    const uint8_t *mask;
    const int32_t *lens;
    /* Packed sequences, one more than there are sequences: 0 <= q_offsets[s] <= q_offsets[s + 1] <= packed.queries, no
     * sequence longer than the dim; k_offsets alike.  The same array may serve as both. */
    const int32_t *q_offsets, *k_offsets;
    const int32_t *bias_index; /* the entry of query 0 and key 0: with negative strides others precede it */
    const void *w, *w2;
    const void *sinks;
    const uint8_t *blocks;
    const void *table[ATTN_MAX_RELATIVE];
    void *o;
    void *lse;
    void *weights;
    const void *dout;
    const void *dlse; /* has the strides of lse */
    void *dq, *dk, *dv;
    void *dbias;
    void *dw, *dw2;
    void *dsinks;
    void *dtable[ATTN_MAX_RELATIVE];
    uint64_t seed_offset; /* added to problem.seed: a new one each training step, with the same plan */
    const void *reserved[16];
} attn_arrays;

/* ------------------------------------------------------------------------------------------------ plan */

typedef enum attn_effort {
    ATTN_ESTIMATE = 0, /* choose by rule */
    ATTN_MEASURE       /* time each solver that accepts the problem on scratch arrays; remember the winner */
} attn_effort;

typedef struct attn_plan_options {
    int threads; /* the most, fewer run what is too small to gain; with a `solver`, exactly these.  0: the context's */
    attn_effort effort;
    const char *solver; /* NULL: the best; else this one by name, or ATTN_ERROR_UNSUPPORTED with its reason */
    int64_t reserved[4];
} attn_plan_options;

/* A plan is immutable. Destroy it before its context and its allocator. */
typedef struct attn_plan attn_plan;

/* Checks `problem` and plans it.  `options` may be NULL.  The problem is copied.
 * ATTN_ERROR_ARGUMENT or ATTN_ERROR_SHAPE: the problem is wrong (negative or overflowing sizes, strides in a role that an
 * operand does not have, an output whose elements would overlap, an impossible window, ...), and the
 * context's error says which dim and why; ATTN_ERROR_UNSUPPORTED; ATTN_ERROR_MEMORY.  *plan is NULL on failure. */
ATTN_API attn_status attn_plan_create(attn_plan **plan, attn_context *context, const attn_problem *problem,
                                      const attn_plan_options *options);
/* NULL is allowed.  From any thread, once no thread executes the plan. */
ATTN_API void attn_plan_destroy(attn_plan *plan);

/* Bytes of scratch memory that an execution uses.  It does not grow with the number of keys, but for: the reference
 * solver's own needs; the solver `blocked` (float64), whose threads each keep the keys and values of one batch index, and
 * with top_k some 6 k numbers for each query of a block; a bias_index (a number for each entry of it and each index of the
 * table's BATCH dims, twice backward); and, where `accumulate` is set, one copy of those gradients of q, k, v and bias
 * that are broadcast: they are summed apart, so that what is given is rounded once. */
ATTN_API size_t attn_plan_workspace(const attn_plan *plan);
/* Multiplications and additions of one execution: the convention of the field, 2 for each score channel and
 * 2 for each value channel of every (query, key) pair that is not masked by structure, times 2.5 backward.  Packed
 * sequences count as if all were equally long, a mask of blocks as if all its blocks were there. */
ATTN_API double attn_plan_flops(const attn_plan *plan);
/* The name of the solver chosen.  A constant string. */
ATTN_API const char *attn_plan_solver(const attn_plan *plan);
/* Writes one line that says what was chosen (and, if `verbose`, why each other solver was not) to `text`,
 * cut to `size` bytes with its final 0; returns the length that it would have had. */
ATTN_API size_t attn_plan_describe(const attn_plan *plan, bool verbose, char *text, size_t size);

/* Runs the plan.  `workspace` is attn_plan_workspace() bytes aligned to 64, or NULL for the plan's own. Several
 * threads may execute one plan at once if each gives a workspace; with NULL the second one gets ATTN_ERROR_BUSY.
 * ATTN_ERROR_ARGUMENT: a NULL array that the problem needs, a workspace that is not aligned, an output that is the
 * same array as another one (other overlaps are not looked for), offsets of packed sequences that are not in order,
 * an entry of bias_index that is no row of the table.  Nothing is allocated or written on error.  Where several
 * executions fail at once each returns its own status, and the context's error is that of one of them; read it when none
 * runs.  The same bits come out for any number of threads. */
ATTN_API attn_status attn_plan_execute(const attn_plan *plan, const attn_arrays *arrays, void *workspace);

/* The arrays of an execution but its tables and its weights.  A row X(NAME, field, strides, written) makes ATTN_ARRAY_NAME,
 * the number of attn_arrays.field; `strides` is the field of attn_dim that holds the array's strides (n: none, the
 * array is contiguous); `written` says in which pass it is an output: NEVER, FORWARD or BACKWARD. */
#define ATTN_ARRAYS(X)                                                                                                 \
    X(Q, q, q, NEVER)                                                                                                  \
    X(K, k, k, NEVER)                                                                                                  \
    X(V, v, v, NEVER)                                                                                                  \
    X(BIAS, bias, bias, NEVER)                                                                                         \
    X(MASK, mask, mask, NEVER)                                                                                         \
    X(LENS, lens, lens, NEVER)                                                                                         \
    X(W, w, w, NEVER)                                                                                                  \
    X(W2, w2, w, NEVER)                                                                                                \
    X(Q_OFFSETS, q_offsets, n, NEVER)                                                                                  \
    X(K_OFFSETS, k_offsets, n, NEVER)                                                                                  \
    X(BIAS_INDEX, bias_index, n, NEVER)                                                                                \
    X(SINKS, sinks, sinks, NEVER)                                                                                      \
    X(DLSE, dlse, lse, NEVER)                                                                                          \
    X(BLOCKS, blocks, blocks, NEVER)                                                                                   \
    X(O, o, o, FORWARD)                                                                                                \
    X(LSE, lse, lse, FORWARD)                                                                                          \
    X(DOUT, dout, dout, NEVER)                                                                                         \
    X(DQ, dq, dq, BACKWARD)                                                                                            \
    X(DK, dk, dk, BACKWARD)                                                                                            \
    X(DV, dv, dv, BACKWARD)                                                                                            \
    X(DBIAS, dbias, dbias, BACKWARD)                                                                                   \
    X(DW, dw, w, BACKWARD)                                                                                             \
    X(DW2, dw2, w, BACKWARD)                                                                                           \
    X(DSINKS, dsinks, sinks, BACKWARD)
#define ATTN_ARRAY_VALUE(NAME, field, strides, written) ATTN_ARRAY_##NAME,

/* The fields of attn_arrays by number; TABLE + i and DTABLE + i are the i-th relative's. */
typedef enum attn_array {
    ATTN_ARRAYS(ATTN_ARRAY_VALUE) ATTN_ARRAY_TABLE,
    ATTN_ARRAY_DTABLE = ATTN_ARRAY_TABLE + ATTN_MAX_RELATIVE,
    ATTN_ARRAY_COUNT = ATTN_ARRAY_DTABLE + ATTN_MAX_RELATIVE
} attn_array;

/* The elements [low, high) of an array that an execution reads or writes, counted from the pointer passed in.
 * `low` is 0 but where strides are negative; low = high where a dim has length 0. */
typedef struct attn_span {
    attn_dtype dtype;
    bool output;
    int64_t low, high;
} attn_span;

/* False, and an empty span, if the plan does not use the array.  arrays.weights has no number here: its size is
 * the product of the lengths of its dims, or of their picks. */
ATTN_API bool attn_plan_span(const attn_plan *plan, attn_array array, attn_span *span);

/* The i-th solver of the table, best first, the reference last; NULL past the end. */
ATTN_API const char *attn_solver_name(int i);

/* The winners that ATTN_MEASURE found (wisdom), as text lines: exports to a caller's buffer like attn_plan_describe;
 * import reads them into the context (ATTN_ERROR_FORMAT names the line that is malformed). */
ATTN_API size_t attn_wisdom_export(const attn_context *context, char *text, size_t size);
ATTN_API attn_status attn_wisdom_import(attn_context *context, const char *text);

/* ---------------------------------------------------------------------------------------- usual problems */

typedef enum attn_layout {
    ATTN_LAYOUT_BTHD = 0, /* [B,T,H,D]: heads inside the channels, as a linear layer leaves them */
    ATTN_LAYOUT_BHTD      /* [B,H,T,D] */
} attn_layout;

typedef enum attn_causal { ATTN_CAUSAL_NONE = 0, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_BOTTOM_RIGHT } attn_causal;

/* Multi-head attention.  All arrays contiguous in `layout`, except that `q_row`, `k_row`, `v_row`, `o_row`
 * (elements between two tokens in BTHD; 0: H*D) let q, k and v be parts of a packed matrix. */
typedef struct attn_heads {
    int64_t batch, heads, queries, keys, dim;
    int64_t kv_heads;  /* 0: heads.  Divides heads: grouped-query attention */
    int64_t dim_value; /* 0: dim */
    attn_layout layout;
    int64_t q_row, k_row, v_row, o_row;
    attn_causal causal;
    int lens_per;     /* 0 none, 1 lens[B], 2 lens[B,Tq] */
    bool key_padding; /* mask[B,Tk], nonzero = attend */
    /* Packed sequences: `batch` is how many, `queries` and `keys` are the longest; q and o are [packed_queries,H,D],
     * k and v [packed_keys,Hkv,D] ([H,packed_queries,D] and so on in BHTD), lse is [H,packed_queries].  causal
     * BOTTOM_RIGHT aligns the ends of each sequence. */
    bool packed;
    int64_t packed_queries, packed_keys;
    int64_t reserved[4];
} attn_heads;
/* Dims in order: batch, (kv) head, [group], query, key, contract, value; lse and weights are [B,H,Tq] and
 * [B,H,Tq,Tk].  `problem` is overwritten; the caller may go on filling it.  ATTN_ERROR_SHAPE: kv_heads does not
 * divide heads.  ATTN_ERROR_ARGUMENT: a size below 0 or above 2^40, lens_per, causal or layout none of those above. */
ATTN_API attn_status attn_problem_heads(attn_problem *problem, const attn_heads *heads);

/* Attention along one axis of a contiguous array: x is [n0, ..., n(rank-1)] with the channels (heads * dim)
 * along `channel_axis`; every other axis but `axis` is batch.  Axial attention (Ho et al. 2019). */
typedef struct attn_axis {
    int rank; /* <= 8 */
    int64_t shape[8];
    int axis, channel_axis;
    int64_t heads; /* divides shape[channel_axis]; head-major channels */
    attn_causal causal;
} attn_axis;
/* ATTN_ERROR_SHAPE: heads does not divide the channels.  ATTN_ERROR_ARGUMENT: rank not 2 to 8, an axis that is not
 * one of them or is the channels', a negative length, heads < 1. */
ATTN_API attn_status attn_problem_axis(attn_problem *problem, const attn_axis *axis);

/* Tied rows of an alignment: q, k, v, o are [R,C,B,H,D]; one map [H,B,C,C] for all rows.  Scale 1/sqrt(D*R).
 * Rao et al. 2021, MSA Transformer.  ATTN_ERROR_ARGUMENT: a size below 0 or above 2^40. */
ATTN_API attn_status attn_problem_tied_rows(attn_problem *problem, int64_t rows, int64_t cols, int64_t batch,
                                            int64_t heads, int64_t dim);

/* A window over a 2-D image: q, k, v, o are [B,Y,X,H,D] (channels last). */
typedef struct attn_window2d {
    int64_t batch, height, width, heads, dim;
    int64_t window_y, window_x; /* taps */
    int64_t step, dilation;     /* 0 means 1; with a step q and o are the smaller grid, ceil(size/step) */
    attn_border border;
} attn_window2d;
/* Fills a problem with it.  ATTN_ERROR_ARGUMENT: a size below 0 or above 2^40, a border that is none of the three. */
ATTN_API attn_status attn_problem_window2d(attn_problem *problem, const attn_window2d *window);

/* Attention over two parts of the keys, merged into attention over both:
 *
 *     lse = log(exp(lse1) + exp(lse2))        o = exp(lse1 - lse) o1 + exp(lse2 - lse) o2
 *
 * More parts are merged one after another: o may be o1 or o2, and lse alike.  o1, o2 and o are [B,T,H,D] or [B,H,T,D],
 * the log-sum-exps [B,H,T], f32 (f64 with F64), as attn_problem_heads leaves them. */
typedef struct attn_partials {
    int64_t batch, heads, queries, dim; /* channels of a value */
    attn_layout layout;
    attn_dtype dtype; /* f32, bf16, f64 */
} attn_partials;
/* ATTN_ERROR_SHAPE: a negative or too large size; ATTN_ERROR_UNSUPPORTED: another type; ATTN_ERROR_ARGUMENT: no such
 * layout, or NULL. */
ATTN_API attn_status attn_partials_merge(attn_context *context, const attn_partials *shape, const void *o1,
                                         const void *lse1, const void *o2, const void *lse2, void *o, void *lse);

/* Backward: from the gradients of o and lse those of the parts, which a backward problem of each part takes as dout and,
 * with ATTN_WITH_DLSE, as dlse. */
typedef struct attn_partials_arrays {
    const void *o1, *lse1, *o2, *lse2;
    const void *dout, *dlse; /* dlse NULL: 0 */
    void *do1, *dlse1, *do2, *dlse2;
} attn_partials_arrays;
ATTN_API attn_status attn_partials_backward(attn_context *context, const attn_partials *shape,
                                            const attn_partials_arrays *arrays);

/* A problem from text, for benchmarks, tests and reports: FORM[:FEATURE[,FEATURE]...].
 *
 * FORM is one of these; N stands for a number, [] for what may be left out, and letters may be in any order:
 *     bNhNqNkNdN[gN][vN]     multi-head attention: batch, heads, queries, keys, channels of a head; g key and value
 *                            heads (h), v channels of a value (d).  Without b, h: 1; without k: as q
 *     add bNhNqNkNdN[gN][vN] the same with additive scores
 *     axisNxNcNhN            along one axis of an array of any 1 to 7 lengths and c channels in all, heads h
 *     tiedNxNhNdN[bN]        tied rows of an alignment: rows x columns
 *     windowNxNwN[xN]hNdN[bN][sN][lN]   a window of w x w taps over an image; s step, l dilation
 * FEATURE is one of
 *     bf16 f64               the type; else f32
 *     causal causal-br       keys up to the query's own place; bottom-right: the last query sees the last key
 *     band=LO..HI            keys from i + LO to i + HI only
 *     lens lensq             lengths, one for each index of the first dim, or for each query of those
 *     packed=N               (multi-head) b packed sequences of N queries in all, at most q each; keys in proportion
 *     pad mask               boolean masks over [first dim, keys] and over [queries, keys]
 *     blocks=N               a mask of blocks of N queries and N keys, a quarter of them there, the same for all batch dims
 *     bias biask biasd       an additive bias of its own for each score, or for each key, or by head and distance
 *     buckets=N              as biasd, but distances share N numbers a head, through an index
 *     rel                    relative positions in the score: a table of channels along the last query and key dims
 *                            or, with a window, two tables, each for half of a head's channels
 *     dropout=P fill=X scale=X softcap=X   mask_fill, scale and softcap as in attn_problem
 *     lse                    forward: the log-sum-exp as well
 *     sinks                  a sink for each index of the batch dims but the first: for each head
 *     dlse                   backward: a gradient of the log-sum-exp as well
 *     dot additive concat gaussian boxcar constant triangular   the score: any `name` of ATTN_SCORES
 *     over-n kernel-sum hardmax none   another normalization
 *     topk=N                 the N largest scores of a row alone take part
 *     bthd bhtd              (multi-head) the layout; else bthd
 *     row col axis=N first   (axis) along the last axis of lengths, the first, or the N-th; the channels in front
 *                            of all; else row, and the channels last
 *     zero mask-border shift (window) the border; else mask-border
 * So "b2h8q512k512d64:causal,bf16", "axis256x256c64h8:col", "window256x256w7h8d8:zero,rel".
 *
 * With ATTN_DIRECTION_BACKWARD the problem requests the gradient of each of its operands.  `problem` is overwritten.
 * ATTN_ERROR_ARGUMENT: the context's error says at which character and why; the problem's own checks come with its
 * plan. */
ATTN_API attn_status attn_problem_parse(attn_problem *problem, attn_context *context, const char *text,
                                        attn_direction direction);

/* The rate of multiply-adds that the context's instruction set reaches on registers, measured now with `threads`
 * threads at once (0: the context's), in 10^9 operations a second; takes some 20 ms.  ATTN_F32; for ATTN_BF16 the same
 * figure, since bf16 is summed in f32.  0, with the error noted, for other types or threads < 0. */
ATTN_API double attn_machine_peak(attn_context *context, attn_dtype dtype, int threads);

#ifdef __cplusplus
}
#endif
#endif
