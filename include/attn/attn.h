/* SPDX-License-Identifier: MIT
 *
 * attn.h - the attention engine. A program describes a problem once, makes a plan for it, and executes the plan many
 * times.
 *
 *     S[b,i,j] = cap(scale * score(q[b,i,:], k[b,j,:])) + bias[b,i,j]     cap: none, or softcap * tanh(x / softcap)
 *     P        = normalize(mask(S))              over the keys j
 *     O[b,i,:] = sum_j dropout(P)[b,i,j] * v[b,j,:]
 *
 * A problem is a table of dimensions.  Each dimension has one of five roles (attn_role), a length, and one stride per
 * operand, in elements. A stride of 0 broadcasts the operand. Each kind of attention that this library supports is one
 * way to fill this table. attn_problem_heads and the similar functions below fill the table for the usual cases.
 *
 * The engine needs no other header of the library, and depends only on libc, libm and threads. Fixed letters in shape
 * comments: B batch, H heads, Tq queries, Tk keys, D channels of q and k, Dv channels of v and o.
 *
 * Threads: Only one thread at a time may use a context or make a plan from it. Different contexts are independent.
 * Several threads may execute a finished plan at once, if each thread has its own workspace.
 *
 * Pointers: an argument may be NULL only where the comment of the function allows it. A function that makes an object
 * sets the caller's pointer to NULL on failure.
 *
 * Stability: this header does not change in a way that breaks a program before version 2.0. Structs that end with
 * `reserved` fields may get fields in their place. The other structs do not change in 1.x: attn_allocator, attn_openmp,
 * attn_bytes, attn_span, and the parts of attn_problem (see attn_dim). All other headers of the library are at 0.x: a
 * minor version may change them, and libattn then has another soname. libattn-engine, the library of this header alone,
 * keeps its soname. */
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
/* Returns the version as a constant string, such as "1.0.0". */
ATTN_API const char *attn_version(void);

/* ---------------------------------------------------------------------------------------------- errors */

/* The table of all errors. Each row is X(NAME, code, text). */
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

/* Returns the text of `status` in this table, which is a constant string. If `status` is not in the table, the text
 * is "unknown status". */
ATTN_API const char *attn_status_text(attn_status status);

/* --------------------------------------------------------------------------------------------- context */

/* The functions that allocate memory. `alloc` returns `size` bytes aligned to `align`, which is a power of two, or
 * NULL. `release` gets a pointer that `alloc` returned, and the same size. Several threads may call both at once. */
typedef struct attn_allocator {
    void *(*alloc)(void *user, size_t size, size_t align);
    void (*release)(void *user, void *memory, size_t size);
    void *user;
} attn_allocator;

/* The number format of matrix products in linear layers, convolutions and attention. In every format, sums, norms,
 * softmax and losses are f32. */
typedef enum attn_precision {
    ATTN_PRECISION_DEFAULT = 0,
    ATTN_PRECISION_F32,  /* f32; a faster method is used only if it is proved to be as exact (docs/numerics.md) */
    ATTN_PRECISION_FMA,  /* f32 with multiply-adds only; AMX is not used */
    ATTN_PRECISION_BF16, /* numbers are rounded to bf16, and sums are f32 */
    ATTN_PRECISION_INT8  /* linear layers use 8-bit integers, and all other products use bf16; no gradients */
} attn_precision;
ATTN_API const char *attn_precision_name(attn_precision precision); /* Returns a constant string: "f32", "fma", ... */
/* Finds the precision named "f32", "fma", "bf16" or "int8". For any other name, returns false and leaves *precision
 * unchanged. */
ATTN_API bool attn_precision_find(attn_precision *precision, const char *name);

/* Options of a context. Zero means the default in each field. */
typedef struct attn_context_options {
    attn_allocator allocator; /* functions that allocate memory; default: aligned memory from libc */
    /* number of threads; default: the environment variable ATTN_THREADS or OMP_NUM_THREADS, or the number of usable
     * cores */
    int threads;
    /* name of the instruction set (attn_isa_name); default: the environment variable ATTN_ISA, or the machine's best
     * set */
    const char *isa;
    /* called with one line for each plan that is made; default: no function */
    void (*log)(void *user, const char *line);
    void *log_user;
    int verbose; /* 1: the log also says why each other solver was not chosen; default: 0 */
    /* The precision of f32 products, and of models that are made with the context (models.h). Default:
     * ATTN_PRECISION, or f32 if ATTN_PRECISION is not set. */
    attn_precision precision;
    /* true: the result for a sequence has the same bits for any finite padding, and for any other sequences in the
     * batch. This makes short sequences slower and disables AMX (docs/numerics.md). Default: true only if
     * ATTN_BATCH_INVARIANT is 1. */
    bool batch_invariant;
    int64_t reserved[8]; /* must be zero; reserved for later versions */
} attn_context_options;

/* A context holds the allocator, the number of threads, the chosen instruction set and the last error.
 * One thread at a time may use a context; different contexts are independent. */
typedef struct attn_context attn_context;

/* Makes a context. `options` may be NULL. On failure, attn_context_error(NULL) is the reason, *context is NULL and no
 * memory is held. ATTN_ERROR_NOT_FOUND: the option or ATTN_ISA names an unknown instruction set.
 * ATTN_ERROR_UNSUPPORTED: the machine lacks the instruction set. ATTN_ERROR_ARGUMENT: threads below 0 or above 1024,
 * an allocator with only one of its two functions, an unknown precision (the option or ATTN_PRECISION), or an
 * ATTN_BATCH_INVARIANT that is neither 0 nor 1. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_context_create(attn_context **context, const attn_context_options *options);
ATTN_API void attn_context_destroy(attn_context *context); /* Destroys a context. NULL is allowed. */

/* Return the status of the last call, and a one-line message that says what was wrong and where. Each function that can
 * fail begins without the error of earlier calls, so if it succeeds, the status is ATTN_OK and the message is "". Only
 * the functions that take a tape (tensor.h) keep an error: the first error among them is returned after each call that
 * does not fail itself, until attn_tape_reset or attn_context_clear_error. The text is valid until the next call that
 * fails, and not longer than the context exists. These three functions cannot fail.
 *
 * Functions of this header that have no context (attn_context_create, attn_problem_heads and its kin) have a message,
 * too: attn_context_error(NULL) returns why the last of them failed in this thread or, if it did not fail, that there
 * is no context. attn_context_status(NULL) is ATTN_ERROR_ARGUMENT. */
ATTN_API attn_status attn_context_status(const attn_context *context);
ATTN_API const char *attn_context_error(const attn_context *context);
ATTN_API void attn_context_clear_error(attn_context *context);

/* Sets a function that long calls of the library use to report their progress. Examples are a pass over an alignment,
 * the translation of many sentences, and the generation of images. `work` is called to report that `done` of `total`
 * `things` are finished, where `things` is a constant string such as "layers" or "sentences". It is called often, and
 * by the thread that made the long call, so it must return soon. If `work` returns false, the call stops and returns
 * ATTN_ERROR_INTERRUPTED. NULL, the initial state, disables the reports. A training has its own callback (trainer.h).
 */
ATTN_API void attn_context_set_progress(attn_context *context,
                                        bool (*work)(void *user, const char *things, int64_t done, int64_t total),
                                        void *user);

/* Sets whether models that this context loads from now on are for inference only. This concerns bf16 and int8 models
 * that are made with attn_model_options.blank. If true, each weight that only linear layers read is packed for products
 * while it is loaded. A packed weight has no f32 form, as after attn_model_pack_weights (models.h). At most one such
 * weight at a time is held in f32. Initially false. */
ATTN_API void attn_context_set_inference(attn_context *context, bool inference);

/* Returns the number of threads of the context. If the option was 0, this is the number that the default gave. */
ATTN_API int attn_context_threads(const attn_context *context);
/* Reports the memory that the context has allocated. *held is the number of bytes held now, *peak is the largest
 * number of bytes ever held, and *allocations is the number of allocations so far. Any pointer may be NULL. Any
 * thread may call this function. */
ATTN_API void attn_context_memory(const attn_context *context, size_t *held, size_t *peak, uint64_t *allocations);
/* Returns the name of the context's instruction set, a constant string: "amx", "avx512bf16", "avx512", "avx2",
 * "neon" or "scalar". */
ATTN_API const char *attn_context_isa(const attn_context *context);
/* Returns the context's precision, which is never ATTN_PRECISION_DEFAULT. */
ATTN_API attn_precision attn_context_precision(const attn_context *context);
/* Returns the name of the i-th instruction set that this machine can run, with the best set first. Returns NULL past
 * the end. */
ATTN_API const char *attn_isa_name(int i);

/* Three functions of an OpenMP runtime that the program has loaded: GOMP_parallel, omp_get_max_threads and
 * omp_get_thread_num. libgomp has all three, and so have the runtimes of LLVM and Intel. */
typedef struct attn_openmp {
    void (*parallel)(void (*work)(void *user), void *user, unsigned threads, unsigned flags);
    int (*max_threads)(void);
    int (*thread_number)(void);
} attn_openmp;
/* Lets the parallel regions of all contexts run on the threads of an OpenMP runtime, in place of the library's own
 * threads. NULL restores the library's own threads, as initially. It is meant for programs that also run OpenMP regions,
 * as PyTorch does: idle threads of OpenMP spin on the cores that other threads could use.
 *
 * A region that wants more threads than max_threads() runs on the library's own threads. A region within a region of
 * OpenMP runs on the threads that the runtime gives it, by default its caller's alone. A process that is forked later
 * uses the library's own threads, because it has none of the runtime's. Results have the same bits on all threads.
 *
 * The three functions must stay loaded until the process ends. Any thread may call this function at any time. Regions
 * that run end on the threads on which they began. attn_context_error(NULL) is the reason of a failure.
 * ATTN_ERROR_ARGUMENT: a function is NULL. ATTN_ERROR_UNSUPPORTED: the process was forked from one in which a runtime was
 * set, or more than 8 different runtimes were set. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_set_openmp(const attn_openmp *runtime);

/* A byte buffer allocated by the context. A function that fills a buffer overwrites its pointer without freeing the old
 * memory, so begin with {0}. A zero byte, which `size` does not count, follows the last byte. So text can be used as a
 * string. If there is nothing to write, as in a report without notes, the pointer may be NULL. */
typedef struct attn_bytes {
    char *data;
    size_t size;
} attn_bytes;
/* Frees the bytes and empties the buffer. The buffer may be empty already. */
ATTN_API void attn_bytes_free(attn_context *context, attn_bytes *bytes);

/* --------------------------------------------------------------------------------------------- problem */

#define ATTN_MAX_DIMS     16
#define ATTN_MAX_BANDS    3
#define ATTN_MAX_WINDOWS  3
#define ATTN_MAX_RELATIVE 6
#define ATTN_MAX_PICKS    4

typedef enum attn_role {
    ATTN_ROLE_BATCH = 1, /* axis over which attention is repeated, such as batch, head, or other axes of an image */
    ATTN_ROLE_QUERY,
    ATTN_ROLE_KEY,
    ATTN_ROLE_CONTRACT, /* channels of queries and keys; the score sums over them */
    ATTN_ROLE_VALUE     /* channels of values and outputs */
} attn_role;

typedef enum attn_dtype {
    ATTN_F32 = 0,
    ATTN_BF16, /* storage is bf16, and sums are f32 */
    ATTN_F64,  /* the solver `blocked` runs if it accepts the problem; otherwise the reference solver runs */
    ATTN_F16,  /* only in files */
    ATTN_I32,
    ATTN_I64,
    ATTN_U8,
    ATTN_BOOL
} attn_dtype;
/* Returns the number of bytes of an element, or 0 if the type is unknown. */
ATTN_API size_t attn_dtype_size(attn_dtype dtype);
ATTN_API const char *attn_dtype_name(attn_dtype dtype); /* Returns a constant string: "f32", "bf16", ... */

/* The scores. A row X(NAME, name) defines ATTN_SCORE_NAME and the word `name` of attn_problem_parse. The file
 * src/engine/attend/scores/score_name.c computes the score. To add a score, add its file and a new row at the end
 * (docs/adding-a-score.md). */
#define ATTN_SCORES(X)                                                                                                 \
    X(DOT, dot)               /* sum_c q_c k_c; the default */                                                         \
    X(ADDITIVE, additive)     /* sum_c w_c tanh(q_c + k_c)            Bahdanau et al. 2014, arXiv:1409.0473 */         \
    X(CONCAT, concat)         /* relu(sum_c w_c q_c + w2_c k_c)       Wang et al. 2018, arXiv:1711.07971 */            \
    X(GAUSSIAN, gaussian)     /* -|q-k|^2 / (2 width^2), the logarithm of the Gaussian kernel of |q-k| */              \
    X(BOXCAR, boxcar)         /* 1 if |q-k| < width, else 0 */                                                         \
    X(CONSTANT, constant)     /* 1 */                                                                                  \
    X(TRIANGULAR, triangular) /* max(0, 1 - |q-k| / width); Dive into Deep Learning's Epanechnikov */                  \
    /* add new rows above this line */
#define ATTN_SCORE_VALUE(NAME, name) ATTN_SCORE_##NAME,
#define ATTN_SCORE_ONE(NAME, name)   +1
typedef enum attn_score { ATTN_SCORES(ATTN_SCORE_VALUE) } attn_score;
enum { ATTN_SCORE_COUNT = ATTN_SCORES(ATTN_SCORE_ONE) };

typedef enum attn_normalization {
    ATTN_NORMALIZATION_SOFTMAX = 0, /* exp(S) / sum exp(S) */
    ATTN_NORMALIZATION_MEAN,        /* S / N, where N is the number of unmasked keys of the row */
    ATTN_NORMALIZATION_SUM,         /* S / sum S, for nonnegative S; if the sum is 0, the output is 0 and lse is -inf */
    /* 1 at the largest S, and 0 elsewhere. If several S are the largest, the lowest key index gets the 1. lse is the
     * largest S. The gradient of v uses these weights. q, k, bias, tables and w get zero gradients, because small
     * changes of the scores do not change the weights. */
    ATTN_NORMALIZATION_HARDMAX,
    ATTN_NORMALIZATION_NONE, /* S itself, for nonnegative S; lse is 0 */
    /* 1 / (1 + exp(-(S + b))) of each key by itself, without a sum over the keys; see attn_problem.sigmoid_bias.  There
     * is no lse, and the backward pass does not read it. (Ramapuram et al. 2024, arXiv:2409.04431.) */
    ATTN_NORMALIZATION_SIGMOID
} attn_normalization;

/* One dim of the problem. Strides are in elements and may be negative. An operand may have a nonzero stride only in
 * dims of the roles that its comment names. */
typedef struct attn_dim {
    attn_role role;
    int64_t n; /* length, which may be 0; if there are no keys, every query counts as fully masked */
    int64_t q; /* stride of q; roles BATCH, QUERY, CONTRACT */
    int64_t k; /* stride of k; roles BATCH, KEY, CONTRACT */
    int64_t v; /* stride of v; roles BATCH, KEY, VALUE */
    int64_t o; /* stride of o; roles BATCH, QUERY, VALUE */
    /* Stride of the bias; roles BATCH, QUERY, KEY. If a bias has one number for each distance, its strides are -s
     * along QUERY and s along KEY, for each axis of a grid. */
    int64_t bias;
    int64_t mask;    /* stride of the mask; roles BATCH, QUERY, KEY */
    int64_t lens;    /* stride of the lengths; roles BATCH, QUERY */
    int64_t lse;     /* stride of the log-sum-exp, which has one number for each query; roles BATCH, QUERY */
    int64_t weights; /* stride of the weights; roles BATCH, QUERY, KEY */
    /* stride of the vectors w and w2, which additive and concatenation scores use; roles BATCH, CONTRACT */
    int64_t w;
    int64_t sinks; /* stride of the sinks and of their gradient, for dims of the roles BATCH and QUERY */
    /* stride of the block mask; roles BATCH, QUERY, KEY; along the query dim and the key dim of attn_problem.blocks,
     * it is the stride from block to block */
    int64_t blocks;
    /* Strides of the gradients. They are used only if attn_problem.own_grad_strides is true. Otherwise dq has the
     * strides of q, dk has the strides of k, and so on. */
    int64_t dq, dk, dv, dout, dbias;
    /* Must be zero, in this struct and all structs below; reserved for later versions. The structs from attn_band to
     * attn_blocks, which are parts of attn_problem, have no such fields and do not change in 1.x: what later versions
     * add to them becomes a field of attn_problem. */
    int64_t reserved[4];
} attn_dim;

/* Query i attends to key j only if lo <= j - i <= hi. i and j are the indices along the two dims that the band
 * names. INT64_MIN and INT64_MAX mean no limit. A causal mask is {.lo = INT64_MIN, .hi = 0} (top-left). With .hi =
 * Tk - Tq it is bottom-right, so that the last query attends to the last key. */
typedef struct attn_band {
    int query_dim, key_dim;
    int64_t lo, hi;
} attn_band;

typedef enum attn_border {
    ATTN_BORDER_MASK = 0, /* taps outside of the axis are masked */
    /* taps outside of the axis are visible keys with k = v = 0, whose scores keep bias and tables */
    ATTN_BORDER_ZERO,
    ATTN_BORDER_SHIFT /* a window that exceeds the axis is moved inwards until it fits, as in neighbourhood attention */
} attn_border;

/* A window along an axis. The length of the KEY dim is the number of taps. Tap t of query i is at position
 *     i * step + t * dilation + offset        of an axis of `size` positions.
 * In k, v and mask, the KEY dim has a stride per position, and the QUERY dim has the stride 0. In bias and weights, the
 * KEY dim has a stride per tap. Bands and relative tables of the two dims use the position of the tap as j, and i *
 * step as i. If a window is shifted, its taps keep their residue modulo dilation, and size must be at least taps *
 * dilation. */
typedef struct attn_window {
    int query_dim, key_dim;
    int64_t size;
    int64_t step;     /* 0 means 1 */
    int64_t dilation; /* 0 means 1 */
    int64_t offset;   /* offset of the first tap; if it is -(taps/2)*dilation, the window is centred on the query */
    attn_border border;
} attn_window;

typedef enum attn_relative_kind {
    ATTN_RELATIVE_QUERY = 0, /* score += sum_c q_c table[d,c] */
    ATTN_RELATIVE_KEY,       /* score += sum_c k_c table[d,c] */
    ATTN_RELATIVE_VALUE      /* v_c += table[d,c], for this pair of query and key */
} attn_relative_kind;

/* A table whose row d = j - i + offset is used for query i and key j. Scores are scaled after the terms of tables are
 * added. The i-th relative of a problem reads attn_arrays.table[i]. Its gradient is written to dtable[i], with the same
 * strides. (Shaw et al. 2018, arXiv:1803.02155; Ramachandran et al. 2019, arXiv:1906.05909; Wang et al. 2020,
 * arXiv:2003.07853.) */
typedef struct attn_relative {
    attn_relative_kind kind;
    int query_dim, key_dim;
    int64_t offset;
    int64_t rows; /* number of rows of the table; every d that a pair can reach must be in [0, rows) */
    int64_t row_stride;
    /* strides of the BATCH and CONTRACT dims, or of the BATCH and VALUE dims if the kind is VALUE */
    int64_t stride[ATTN_MAX_DIMS];
    /* The table covers channels begin to end - 1 of the last CONTRACT or VALUE dim, which is the innermost. The
     * table's first channel is `begin`. If `begin` and `end` are 0, the table covers all channels of the dim. */
    int64_t begin, end;
} attn_relative;

/* Requests weights only for chosen indices of a BATCH or QUERY dim. The weights array then has length `n` along this
 * dim. */
typedef struct attn_pick {
    int dim;
    int64_t n;
    const int64_t *index; /* chosen indices; read only while the plan is made */
} attn_pick;

/* Sequences of different lengths that are stored one after another without padding (the cu_seqlens layout).  Index s of
 * `batch_dim`, a BATCH dim, is the number of a sequence. Sequence s has the queries [q_offsets[s], q_offsets[s + 1])
 * and the keys [k_offsets[s], k_offsets[s + 1]) of the packed positions. The lengths of `query_dim` and `key_dim` are
 * the maxima over all sequences. Along `batch_dim` q, k, v, o, lse and their gradients have stride 0. Index i of
 * `query_dim` is position q_offsets[s] + i of q, o, lse, dq and dout. Index j of `key_dim` is position k_offsets[s] + j
 * of k, v, dk and dv. Bias, mask, lens, weights, bands and dropout are indexed by (s, i, j), as if each sequence were
 * padded. Rows and keys past a sequence's length do not exist. They cost no time, their outputs are not written, their
 * weights are 0, and mask_fill does not count them. A sequence has the same output bits as when it is computed alone,
 * or padded in a batch-invariant context. There is one exception. The longest sequence decides whether AMX or the
 * solver for single queries is used, which can change the last bits. */
typedef struct attn_packed {
    int batch_dim, query_dim, key_dim;
    int64_t queries, keys; /* total number of packed positions; no offset may be larger */
    /* true: query i of a sequence counts in bands as query i + (the sequence's keys) - (the sequence's queries). So
     * the sequence's last query is aligned with its last key, and hi = 0 means causal bottom-right. */
    bool align_ends;
} attn_packed;

/* A trainable bias that is read through an index, as for T5's buckets or the relative positions in Swin's windows.
 * The strides of QUERY and KEY dims for `bias` give the place of a pair's entry in arrays.bias_index. The entry is a
 * row number of arrays.bias. This row is added to the pair's score. With strides of -1 and 1, the index has one
 * entry per distance, which needs linear memory. With the strides of a matrix, it has one entry per pair. Strides of
 * BATCH dims apply to the table, so that each head can have its own rows. */
typedef struct attn_bias_index {
    int64_t rows; /* number of rows of the table; entries are in [0, rows) */
    int64_t row_stride;
} attn_bias_index;

/* A block mask. Query i attends to key j only if the byte of block (i / queries, j / keys) is not 0. i and j are the
 * indices along the two dims that the struct names. If the byte of a block is 0, the block costs no work. Bands, lens
 * and the mask apply in addition. Windows and packed sequences cannot have a block mask. Block-sparse attention and
 * FlexAttention's BlockMask (arXiv:2412.05496) use the same form. */
typedef struct attn_blocks {
    int query_dim, key_dim;
    int64_t queries, keys; /* number of queries and keys in a block; the last blocks may be smaller */
} attn_blocks;

/* Bits of attn_problem.flags. They enable optional operands and outputs. */
enum {
    ATTN_WITH_BIAS = 1 << 0, /* uses arrays.bias */
    /* uses arrays.mask, one byte for each entry; nonzero means that the query attends to the key */
    ATTN_WITH_MASK = 1 << 1,
    ATTN_WITH_LENS = 1 << 2,   /* uses arrays.lens (int32); keys of lens_dim at or past the length are masked */
    ATTN_WITH_PACKED = 1 << 3, /* uses arrays.q_offsets and arrays.k_offsets (int32); see attn_problem.packed */
    /* Uses arrays.sinks. The sink s of a row enters the row's sum like a key of score s and value 0 (Xiao et al. 2023,
     * arXiv:2309.17453). gpt-oss has one sink per head. The log-sum-exp contains the sink, and weights and o become
     * smaller. If a row has no keys, its output is 0 and lse = s. A sink of -inf has no effect. Sinks are for softmax
     * only, without mask_fill. */
    ATTN_WITH_SINKS = 1 << 4,
    /* Uses arrays.dlse, the gradient of the log-sum-exp, in the backward pass. Merging partial attentions gives such
     * a gradient. For softmax only. It is ignored in the forward pass, and for a row without keys. */
    ATTN_WITH_DLSE = 1 << 5,
    ATTN_WITH_BIAS_INDEX = 1 << 6, /* with ATTN_WITH_BIAS: uses arrays.bias_index; see attn_problem.bias_index */
    /* uses arrays.blocks, one byte for each block, where nonzero means visible; see attn_problem.blocks */
    ATTN_WITH_BLOCKS = 1 << 7,
    /* arrays.k and arrays.v are bf16, and q and o are f32, so that a KV cache needs half of the memory. Only for the
     * forward pass of F32 problems without weights. */
    ATTN_WITH_BF16_KEYS = 1 << 8,
    ATTN_WITH_ALL = (1 << 16) - 1, /* bits of all operands, including bits that later versions may add */
    ATTN_WANT_LSE = 1 << 16,       /* the forward pass writes arrays.lse */
    /* the forward pass writes arrays.weights; they are before dropout unless weights_dropped is true */
    ATTN_WANT_WEIGHTS = 1 << 17,
    /* in the backward pass, this bit and the following bits select the gradients to compute */
    ATTN_WANT_DQ = 1 << 18,
    ATTN_WANT_DK = 1 << 19,
    ATTN_WANT_DV = 1 << 20,
    ATTN_WANT_DBIAS = 1 << 21,
    ATTN_WANT_DTABLES = 1 << 22,
    ATTN_WANT_DW = 1 << 23,
    ATTN_WANT_DSINKS = 1 << 24
};

typedef enum attn_direction { ATTN_DIRECTION_FORWARD = 0, ATTN_DIRECTION_BACKWARD } attn_direction;

/* An attention problem. Initialize it with zeros, and then fill it. Zero always means the default, except for dim
 * numbers, where 0 is the first dim. Dim numbers are lens_dim and the dims of bands, windows, tables, picks, packed
 * and blocks. */
typedef struct attn_problem {
    int ndims;
    attn_dim dims[ATTN_MAX_DIMS];
    /* The type of q, k, v, o and their gradients. Exception: with ATTN_WITH_BF16_KEYS, k and v are bf16. Bias,
     * tables, w, sinks, lse and weights are f64 if dtype is F64, and otherwise f32. */
    attn_dtype dtype;
    attn_direction direction;
    attn_score score;
    /* factor of the scores; 0: 1 / sqrt(product of the lengths of the CONTRACT dims) for DOT, and 1 for other scores */
    double scale;
    double width; /* width of the distance kernels; 0 means 1 */
    /* If not 0, a score x = scale * (score + tables) becomes softcap * tanh(x / softcap). This happens before the
     * bias and the masks. So a bias or a mask_fill is not capped. The value must be between 1e-30 and 1e30. (Gemma
     * 2, arXiv:2408.00118.) */
    double softcap;
    attn_normalization normalization;
    unsigned flags; /* sum of the bits ATTN_WITH_* and ATTN_WANT_* */
    int lens_dim;   /* KEY dim that arrays.lens limits */
    attn_packed packed;
    /* used with ATTN_WITH_BIAS_INDEX; the table's gradient has the table's strides, and is never accumulated */
    attn_bias_index bias_index;
    attn_blocks blocks;
    int nbands;
    attn_band bands[ATTN_MAX_BANDS];
    int nwindows;
    attn_window windows[ATTN_MAX_WINDOWS];
    int nrelatives;
    attn_relative relatives[ATTN_MAX_RELATIVE];
    int npicks;
    attn_pick picks[ATTN_MAX_PICKS];
    /* The finite score that a masked key gets, such as -1e6 in Dive into Deep Learning or -10000 in ESM. With this
     * score, a row without keys gives the mean of all values. If 0, masked keys are left out, and a row without keys
     * gives zero output, lse -inf and zero gradients. */
    double mask_fill;
    /* probability p that a normalized weight is dropped, 0 <= p < 1; other weights are multiplied by 1/(1-p) */
    double dropout;
    /* seed of dropout; `seed` and `stream` together determine which positions are dropped, in the same way in every
     * solver */
    uint64_t seed;
    uint64_t stream;
    bool weights_dropped; /* true: weights are written after dropout; false: before dropout */
    bool accumulate;      /* true: the backward pass adds to the gradients instead of overwriting them */
    bool own_grad_strides;
    /* If not 0, only the k largest scores of a row enter its softmax. If scores are equal, the lower key index is
     * taken first. The other keys of the row are masked and have no gradient. Only visible keys count, and sinks do
     * not count. If a row has at most k visible keys, or a NaN among its scores, it keeps all its keys. The
     * log-sum-exp is over the kept keys. For softmax only. */
    int64_t top_k;
    /* Sum of the bits ATTN_WITH_BIAS, ATTN_WITH_MASK and ATTN_WITH_BLOCKS of the operands that have a single element,
     * which all queries and keys read. Without its bit, an operand whose strides are all 0 is refused, because its
     * strides were probably forgotten. */
    uint64_t broadcast;
    /* b of ATTN_NORMALIZATION_SIGMOID if own_sigmoid_bias is true; otherwise b = -log(n). n is the number of keys of the
     * problem, or of the packed sequence, and of a window's taps. Masks, bands and lens do not change n, so that all
     * rows have the same b. A decoder whose cache grows must set b, because its keys are fewer than those of the prompt
     * that it continues. b is added after the softcap and the bias. One b for each head is a bias with a stride along
     * the heads' dim only, with b = 0 here; its gradient is dbias. */
    double sigmoid_bias;
    bool own_sigmoid_bias;
    int64_t reserved[12];
} attn_problem;

/* The arrays of one execution. Unused arrays may be NULL. Outputs must not overlap any other array. The forward pass
 * reads q, k, v and, if requested, bias, mask, lens, w, w2, sinks, blocks and table. It writes o and, if requested,
 * lse and weights. The backward pass reads the same inputs, o, lse, dout and, if requested, dlse. It writes the
 * requested gradients. If an operand is broadcast (stride 0) or read several times (windows, tables, a bias by
 * distance), its gradient is the sum over all its uses. A bias by distance does not support `accumulate`. */
typedef struct attn_arrays {
    const void *q, *k, *v;
    const void *bias;
    const uint8_t *mask;
    const int32_t *lens;
    /* Offsets of packed sequences, which are sequences + 1 numbers with 0 <= q_offsets[s] <= q_offsets[s + 1] <=
     * packed.queries. No sequence may be longer than the dim. The same holds for k_offsets with packed.keys. Both
     * pointers may be the same array. */
    const int32_t *q_offsets, *k_offsets;
    /* address of the entry of query 0 and key 0; if strides are negative, other entries precede it */
    const int32_t *bias_index;
    const void *w, *w2;
    const void *sinks;
    const uint8_t *blocks;
    const void *table[ATTN_MAX_RELATIVE];
    void *o;
    void *lse;
    void *weights;
    const void *dout;
    const void *dlse; /* gradient of lse, which has the strides of lse */
    void *dq, *dk, *dv;
    void *dbias;
    void *dw, *dw2;
    void *dsinks;
    void *dtable[ATTN_MAX_RELATIVE];
    uint64_t seed_offset; /* added to problem.seed, so that one plan can use a different seed in each training step */
    const void *reserved[16];
} attn_arrays;

/* ------------------------------------------------------------------------------------------------ plan */

typedef enum attn_effort {
    ATTN_ESTIMATE = 0, /* rules choose the solver */
    /* runs each solver that accepts the problem on scratch arrays, and remembers the fastest */
    ATTN_MEASURE
} attn_effort;

typedef struct attn_plan_options {
    /* Maximum number of threads; 0 means the context's number. A small problem runs on fewer threads. But if
     * `solver` is set, exactly this number is used. */
    int threads;
    attn_effort effort;
    /* name of the solver to use; NULL: the best solver. If the named solver refuses the problem, the status is
     * ATTN_ERROR_UNSUPPORTED, and the error gives the reason. */
    const char *solver;
    int64_t reserved[4];
} attn_plan_options;

/* A plan is immutable. Destroy it before its context and before its allocator. */
typedef struct attn_plan attn_plan;

/* Checks `problem` and plans it.  `options` may be NULL.  The problem is copied.
 * ATTN_ERROR_ARGUMENT or ATTN_ERROR_SHAPE: the problem is wrong, and the context's error says which dim and why.
 * Examples are negative or overflowing sizes, strides in a role that an operand does not have, an output whose elements
 * would overlap, and an impossible window. ATTN_ERROR_UNSUPPORTED; ATTN_ERROR_MEMORY. *plan is NULL on failure. */
ATTN_API attn_status attn_plan_create(attn_plan **plan, attn_context *context, const attn_problem *problem,
                                      const attn_plan_options *options);
/* Destroys a plan. NULL is allowed. Any thread may call this function, but only after all executions of the plan
 * have ended. */
ATTN_API void attn_plan_destroy(attn_plan *plan);

/* Returns the bytes of scratch memory that an execution uses. The size does not depend on the number of keys, with
 * four exceptions. The reference solver needs its own amount. In the solver `blocked` (float64), each thread keeps
 * the keys and values of one batch index and, with top_k, about 6 k numbers for each query of a block. A bias_index
 * needs one number for each of its entries and each index of the table's BATCH dims, and twice as many in the
 * backward pass. With `accumulate`, each broadcast gradient of q, k, v and bias needs one copy. Its terms are summed
 * in the copy, so that the caller's array is rounded only once. */
ATTN_API size_t attn_plan_workspace(const attn_plan *plan);
/* Returns the multiplications and additions of one execution. As usual, each pair of a query and a key counts 2 for
 * each score channel and 2 for each value channel, unless the structure of the problem masks the pair. The backward
 * pass has 2.5 times as many. Packed sequences count as if all had the same length. A block mask counts as if all
 * blocks were visible. */
ATTN_API double attn_plan_flops(const attn_plan *plan);
/* Returns the name of the chosen solver, a constant string. */
ATTN_API const char *attn_plan_solver(const attn_plan *plan);
/* Writes one line with the name of the chosen solver to `text`. If `verbose` is true, the text also says why each
 * other solver was not chosen. If the text does not fit into `size` bytes with its final 0, it is cut. Returns the
 * length of the uncut text. */
ATTN_API size_t attn_plan_describe(const attn_plan *plan, bool verbose, char *text, size_t size);

/* Runs the plan. `workspace` has attn_plan_workspace() bytes and is aligned to 64 bytes. If it is NULL, the plan's own
 * workspace is used. Several threads may execute one plan at once if each thread passes its own workspace. If they
 * pass NULL, the second thread gets ATTN_ERROR_BUSY. ATTN_ERROR_ARGUMENT: an array that the problem needs is NULL, a
 * workspace is not aligned, an output is the same array as another array (other overlaps are not detected), offsets of
 * packed sequences are not in order, or an entry of bias_index is not a row of the table. On error nothing is
 * allocated or written. If several executions fail at once, each returns its own status. The context's error describes
 * one of them, and may be read only when no execution runs. An execution that begins while no other runs clears it.
 * The results have the same bits for any number of threads. */
ATTN_API attn_status attn_plan_execute(const attn_plan *plan, const attn_arrays *arrays, void *workspace);

/* The arrays of an execution, except its tables and weights. A row X(NAME, field, strides, written) defines
 * ATTN_ARRAY_NAME, which is the number of the array attn_arrays.field. `strides` is the field of attn_dim that holds
 * the array's strides. It is n if the array has no strides and is contiguous. `written` is NEVER, FORWARD or
 * BACKWARD, the pass in which the array is an output. Later versions add rows at the end, so that no number changes. */
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

/* The numbers of the arrays, which no later version of 1.x changes. The i-th relative has the table
 * ATTN_ARRAY_TABLE + i and the table's gradient ATTN_ARRAY_DTABLE + i. The rows of ATTN_ARRAYS follow, beginning with
 * ATTN_ARRAY_Q. ATTN_ARRAY_COUNT alone grows, if a row is added. */
typedef enum attn_array {
    ATTN_ARRAY_TABLE = 0,
    ATTN_ARRAY_DTABLE = ATTN_ARRAY_TABLE + ATTN_MAX_RELATIVE,
    ATTN_ARRAY_LAST_DTABLE = ATTN_ARRAY_DTABLE + ATTN_MAX_RELATIVE - 1,
    ATTN_ARRAYS(ATTN_ARRAY_VALUE) ATTN_ARRAY_COUNT
} attn_array;

/* The elements [low, high) of an array that an execution reads or writes, counted from the caller's pointer. If no
 * stride is negative, `low` is 0. If a dim has length 0, `low` equals `high`. */
typedef struct attn_span {
    attn_dtype dtype;
    bool output;
    int64_t low, high;
} attn_span;

/* Sets *span to the range of elements of an array. If the plan does not use the array, returns false and an empty
 * span. arrays.weights has no number. Its size is the product of the lengths of its dims, where a picked dim has as
 * many as its picks. */
ATTN_API bool attn_plan_span(const attn_plan *plan, attn_array array, attn_span *span);

/* Returns the name of the i-th solver. The best solver is first, and the reference solver is last. Returns NULL past
 * the end. */
ATTN_API const char *attn_solver_name(int i);

/* Export and import wisdom, which is the list of the solvers that ATTN_MEASURE found fastest, as lines of text.
 * Export writes to the caller's buffer like attn_plan_describe. Import reads the lines into the context. If a line
 * is malformed, the result is ATTN_ERROR_FORMAT, and the error names the line. */
ATTN_API size_t attn_wisdom_export(const attn_context *context, char *text, size_t size);
ATTN_API attn_status attn_wisdom_import(attn_context *context, const char *text);

/* ---------------------------------------------------------------------------------------- usual problems */

typedef enum attn_layout {
    ATTN_LAYOUT_BTHD = 0, /* [B,T,H,D]: heads are inside of the channels, as in the output of a linear layer */
    ATTN_LAYOUT_BHTD      /* [B,H,T,D] */
} attn_layout;

typedef enum attn_causal { ATTN_CAUSAL_NONE = 0, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_BOTTOM_RIGHT } attn_causal;

/* Multi-head attention. All arrays are contiguous in `layout`, with one exception. `q_row`, `k_row`, `v_row` and
 * `o_row` let q, k, v and o be parts of a packed matrix. In BTHD, they are the number of elements from one token to
 * the next, and 0 means H*D. */
typedef struct attn_heads {
    int64_t batch, heads, queries, keys, dim;
    /* number of heads of keys and values, which divides `heads`; 0 means `heads`; other numbers are for
     * grouped-query attention */
    int64_t kv_heads;
    int64_t dim_value; /* number of channels of a value; 0 means `dim` */
    attn_layout layout;
    int64_t q_row, k_row, v_row, o_row;
    attn_causal causal;
    int lens_per;     /* 0: no lengths; 1: lens[B]; 2: lens[B,Tq] */
    bool key_padding; /* true: the mask has shape [B,Tk], where nonzero means that queries attend to the key */
    /* Packed sequences. `batch` is their number, and `queries` and `keys` are the lengths of the longest sequence.
     * In BTHD, q and o are [packed_queries,H,D], and k and v are [packed_keys,Hkv,D]. In BHTD, q is
     * [H,packed_queries,D], and so on. lse is [H,packed_queries]. With BOTTOM_RIGHT, the end of each sequence's
     * queries is aligned with the end of its keys. */
    bool packed;
    int64_t packed_queries, packed_keys;
    int64_t reserved[4];
} attn_heads;
/* Fills a problem. Its dims are, in this order: batch, (kv) head, [group], query, key, contract, value. lse is
 * [B,H,Tq] and weights are [B,H,Tq,Tk]. `problem` is overwritten. The caller may change it after this call. On
 * failure, attn_context_error(NULL) is the reason, and planning the problem fails, too. ATTN_ERROR_SHAPE: kv_heads
 * does not divide heads. ATTN_ERROR_ARGUMENT: heads or dim below 1, another size below 0, a size above 2^40, arrays of
 * more than 2^60 elements, or an unknown lens_per, causal or layout. */
ATTN_API attn_status attn_problem_heads(attn_problem *problem, const attn_heads *heads);

/* Attention along one axis of a contiguous array (axial attention, Ho et al. 2019). x is [n0, ..., n(rank-1)] with the
 * channels (heads * dim) along `channel_axis`. All axes except `axis` and `channel_axis` are BATCH dims. */
typedef struct attn_axis {
    int rank; /* at most 8 */
    int64_t shape[8];
    int axis, channel_axis;
    int64_t heads; /* number of heads, which divides shape[channel_axis]; the channels of a head are adjacent */
    attn_causal causal;
    int64_t reserved[4];
} attn_axis;
/* Fills a problem for the axis. attn_context_error(NULL) is the reason of a failure. ATTN_ERROR_SHAPE: heads does not
 * divide the channels. ATTN_ERROR_ARGUMENT: rank is not 2 to 8, an axis does not exist or is the channel axis, a
 * length is negative, the array has more than 2^60 elements, or heads or the channels are below 1. */
ATTN_API attn_status attn_problem_axis(attn_problem *problem, const attn_axis *axis);

/* Fills a problem for tied rows of an alignment. q, k, v and o are [R,C,B,H,D]. All rows share one map [H,B,C,C],
 * with the scale 1/sqrt(D*R) (Rao et al. 2021, MSA Transformer). attn_context_error(NULL) is the reason of a failure.
 * ATTN_ERROR_ARGUMENT: heads or dim below 1, another size below 0, a size above 2^40, or arrays of more than 2^60
 * elements. */
ATTN_API attn_status attn_problem_tied_rows(attn_problem *problem, int64_t rows, int64_t cols, int64_t batch,
                                            int64_t heads, int64_t dim);

/* A window over a 2-D image. q, k, v and o are [B,Y,X,H,D], with channels last. */
typedef struct attn_window2d {
    int64_t batch, height, width, heads, dim;
    int64_t window_y, window_x; /* number of taps along each axis */
    int64_t step, dilation;     /* 0 means 1; if step is above 1, the grid of q and o is smaller: ceil(size/step) */
    attn_border border;
    int64_t reserved[4];
} attn_window2d;
/* Fills a problem for the window. attn_context_error(NULL) is the reason of a failure. ATTN_ERROR_ARGUMENT: heads, dim
 * or a side of the window below 1, another size, step or dilation below 0, one of them above 2^40, arrays of more than
 * 2^60 elements, or an unknown border. */
ATTN_API attn_status attn_problem_window2d(attn_problem *problem, const attn_window2d *window);

/* The shape of partial attentions. Attention over two parts of the keys is merged into attention over both:
 *
 *     lse = log(exp(lse1) + exp(lse2))        o = exp(lse1 - lse) o1 + exp(lse2 - lse) o2
 *
 * The parts of a problem with ATTN_NORMALIZATION_NONE are added instead: o = o1 + o2, lse = 0. Parts of a problem with
 * ATTN_NORMALIZATION_HARDMAX are refused, because the stored largest scores are rounded and do not tell which part has
 * the larger one. So are parts of ATTN_NORMALIZATION_SIGMOID, which have no log-sum-exp: their outputs are added, if all
 * parts have the same sigmoid_bias. The log-sum-exps do not tell the normalization, so that the caller must set it.
 *
 * More than two parts are merged one after another, because o may be o1 or o2, and lse may be lse1 or lse2. o1, o2 and
 * o are [B,T,H,D] or [B,H,T,D]. The log-sum-exps are [B,H,T], in f64 if the type is ATTN_F64, and otherwise in f32. */
typedef struct attn_partials {
    int64_t batch, heads, queries, dim; /* dim: number of channels of a value */
    attn_layout layout;
    attn_dtype dtype;                 /* F32, BF16 or F64 */
    attn_normalization normalization; /* of the problem of the parts; zero-initialized: SOFTMAX */
    int64_t reserved[4];
} attn_partials;
/* Merges the outputs o [B,T,H,D] and log-sum-exps of two parts. ATTN_ERROR_SHAPE: a negative or too large size.
 * ATTN_ERROR_UNSUPPORTED: another type, HARDMAX or SIGMOID. ATTN_ERROR_ARGUMENT: an unknown layout or normalization, or NULL.
 */
ATTN_API attn_status attn_partials_merge(attn_context *context, const attn_partials *shape, const void *o1,
                                         const void *lse1, const void *o2, const void *lse2, void *o, void *lse);

/* The arrays of attn_partials_backward. This function computes the gradients of the parts from the gradients of o
 * and lse. The backward problem of each part takes these results as dout and, with ATTN_WITH_DLSE, as dlse. With NONE
 * the results are dout, and dlse is 0. The errors are those of attn_partials_merge. */
typedef struct attn_partials_arrays {
    const void *o1, *lse1, *o2, *lse2;
    const void *dout, *dlse; /* dlse may be NULL, and the gradient of lse is then 0 */
    void *do1, *dlse1, *do2, *dlse2;
    const void *reserved[4]; /* must be NULL */
} attn_partials_arrays;
ATTN_API attn_status attn_partials_backward(attn_context *context, const attn_partials *shape,
                                            const attn_partials_arrays *arrays);

/* Makes a problem from text, for benchmarks, tests and reports: FORM[:FEATURE[,FEATURE]...].
 *
 * FORM is one of these; N stands for a number, [] marks optional parts, and letters may be in any order:
 *     bNhNqNkNdN[gN][vN]     multi-head attention: batch, heads, queries, keys, channels of a head; g key and value
 *                            heads (h), v channels of a value (d).  Without b, h: 1; without k: as q
 *     add bNhNqNkNdN[gN][vN] the same with additive scores
 *     axisNxNcNhN            along one axis of an array of any 1 to 7 lengths and c channels in all, heads h
 *     tiedNxNhNdN[bN]        tied rows of an alignment: rows x columns
 *     windowNxNwN[xN]hNdN[bN][sN][lN]   a window of w x w taps over an image; s step, l dilation
 * FEATURE is one of
 *     bf16 f64               the type; else f32
 *     causal causal-br       keys up to the query's position; br, bottom-right: the last query attends the last key
 *     band=LO..HI            keys from i + LO to i + HI only
 *     lens lensq             lengths, one for each index of the first dim, or also for each query
 *     packed=N               (multi-head) b packed sequences of N queries in all, at most q each; keys in proportion
 *     pad mask               boolean masks over [first dim, keys] and over [queries, keys]
 *     blocks=N               a mask of blocks of N queries and N keys, a quarter of them visible, broadcast over batch
 *     bias biask biasd       an additive bias for each score, for each key, or by head and distance
 *     buckets=N              as biasd, but distances share N numbers a head, through an index
 *     rel                    relative positions in the score: a table of channels along the last query and key dims
 *                            or, with a window, two tables, each for half of a head's channels
 *     dropout=P fill=X scale=X softcap=X   mask_fill, scale and softcap as in attn_problem
 *     lse                    forward: the log-sum-exp as well
 *     sinks                  a sink for each index of the batch dims but the first: for each head
 *     dlse                   backward: a gradient of the log-sum-exp as well
 *     dot additive concat gaussian boxcar constant triangular   the score: any `name` of ATTN_SCORES
 *     over-n kernel-sum hardmax none sigmoid   another normalization
 *     sigmoid-bias=X         with sigmoid: b; else -log(keys)
 *     topk=N                 only the N largest scores of a row are visible
 *     bthd bhtd              (multi-head) the layout; else bthd
 *     row col axis=N first   (axis) along the last axis of lengths, the first, or the N-th; the channels in front
 *                            of all; else row, and the channels last
 *     zero mask-border shift (window) the border; else mask-border
 * So "b2h8q512k512d64:causal,bf16", "axis256x256c64h8:col", "window256x256w7h8d8:zero,rel".
 *
 * With ATTN_DIRECTION_BACKWARD the problem requests the gradient of each of its operands.  `problem` is overwritten.
 * ATTN_ERROR_ARGUMENT: the context's error says at which character and why. Sizes and features are checked when the
 * problem is planned. */
ATTN_API attn_status attn_problem_parse(attn_problem *problem, attn_context *context, const char *text,
                                        attn_direction direction);

/* Measures the rate of multiply-adds on registers, for the context's instruction set, in 10^9 operations per second.
 * `threads` threads run at once; 0 means the context's number. The measurement takes about 20 ms. ATTN_F32 and
 * ATTN_BF16 give the same rate, because bf16 numbers are summed in f32. For other types, or if threads is below 0,
 * returns 0 and sets an error in the context. */
ATTN_API double attn_machine_peak(attn_context *context, attn_dtype dtype, int threads);

#ifdef __cplusplus
}
#endif
#endif
