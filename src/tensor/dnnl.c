/* SPDX-License-Identifier: MIT
 * The one seam to oneDNN: matrix products, and convolutions in its own layouts. */
#include "tensor/dnnl.h"

#include "base/integers.h"
#include "base/pool.h"
#include "tensor/op.h"

#ifdef ATTN_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* oneDNN's products may leave the upper halves of registers in use, and then every instruction of the older kind waits
 * for the one before it: loops of the library that the compiler makes of these are five times slower. */
static void leave_uppers_clean(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroupper" ::
                             : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                               "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"); /* whose upper halves it clears */
#endif
}

attn__dnnl_threads attn__dnnl_use_threads(int threads)
{
    leave_uppers_clean();
#ifdef _OPENMP
    attn__dnnl_threads before = {omp_get_max_threads(), omp_get_dynamic() != 0};
    threads = attn__pool_inside() ? 1 : threads;
    if (before.dynamic)
        omp_set_dynamic(0);
    threads = (int)attn__least(threads, omp_get_thread_limit());
    if (before.count != threads)
        omp_set_num_threads(threads);
    return before;
#else
    return (attn__dnnl_threads){.count = threads};
#endif
}

void attn__dnnl_end_threads(attn__dnnl_threads before)
{
    leave_uppers_clean();
#ifdef _OPENMP
    if (omp_get_max_threads() != before.count)
        omp_set_num_threads(before.count);
    if (before.dynamic)
        omp_set_dynamic(1);
#else
    (void)before;
#endif
}

static bool product_rows(const attn__gemm_args *g, int64_t begin, int64_t m)
{
    const float *a = (const float *)g->a + begin * (g->transpose_a ? 1 : g->lda);
    return dnnl_sgemm(g->transpose_a ? 'T' : 'N', g->transpose_b ? 'T' : 'N', m, g->n, g->k, 1.0f, a, g->lda, g->b,
                      g->ldb, g->add ? 1.0f : 0.0f, (float *)g->c + begin * g->ldc, g->ldc) == dnnl_success;
}

/* From some sixteen rows on oneDNN copies a transposed B first, which costs more than it gains while there
 * are few rows: 16 rows of 512 by 512 take 110 us at once, 27 us in parts. */
static int64_t rows_at_once(const attn__gemm_args *g)
{
    enum { PART = 12, FEW = 64 };
    return g->transpose_b && g->m > PART && g->m <= FEW ? PART : g->m;
}

int64_t attn__dnnl_product(int threads, const attn__gemm_args *g)
{
    attn__dnnl_threads before = attn__dnnl_use_threads(threads);
    int64_t part = rows_at_once(g), row = 0;
    while (row < g->m && product_rows(g, row, g->m - row < part ? g->m - row : part))
        row += g->m - row < part ? g->m - row : part;
    attn__dnnl_end_threads(before);
    return row;
}
#else
int64_t attn__dnnl_product(int threads, const attn__gemm_args *g)
{
    (void)threads;
    (void)g;
    return 0;
}
#endif

/* Later major versions describe operations in another way. */
#if defined ATTN_HAVE_DNNL && DNNL_VERSION_MAJOR == 2

/* The arrays of a convolution, in the order in which they are described. */
enum { SRC, WEIGHTS, BIAS, DST, ARRAYS };

typedef struct conv_run {
    attn_tape *tape;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t plain[ARRAYS]; /* as the library has it */
    dnnl_memory_t memory[ARRAYS];     /* as oneDNN wants it */
    dnnl_memory_t outside[ARRAYS];    /* where that differs: the library's array */
    attn__hold copies[ARRAYS];
} conv_run;

static bool fine(dnnl_status_t status)
{
    return status == dnnl_success;
}

/* Row-major, whatever the rank. */
static bool describe(dnnl_memory_desc_t *md, int rank, const dnnl_dims_t dims)
{
    static const dnnl_format_tag_t tags[] = {dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    return fine(dnnl_memory_desc_init_by_tag(md, rank, dims, dnnl_f32, tags[rank - 1]));
}

static bool describe_arrays(conv_run *r, const attn__conv_args *a)
{
    int n = a->spatial, grouped = a->groups > 1;
    dnnl_dims_t src = {a->batch, a->groups * a->in}, dst = {a->batch, a->groups * a->out};
    dnnl_dims_t weights = {a->out, a->in}, bias = {a->groups * a->out};
    if (grouped) {
        weights[0] = a->groups;
        weights[1] = a->out;
        weights[2] = a->in;
    }
    for (int i = 0; i < n; i++) {
        src[2 + i] = a->grid.in[3 - n + i];
        dst[2 + i] = a->grid.out[3 - n + i];
        weights[2 + grouped + i] = a->grid.kernel[3 - n + i];
    }
    return describe(&r->plain[SRC], 2 + n, src) && describe(&r->plain[DST], 2 + n, dst) &&
           describe(&r->plain[WEIGHTS], 2 + n + grouped, weights) && describe(&r->plain[BIAS], 1, bias);
}

/* The operation with the layouts left to oneDNN, which likes channels in blocks of a vector. */
static bool describe_operation(conv_run *r, const attn__conv_args *a)
{
    dnnl_dims_t stride = {0}, padding = {0};
    for (int i = 0; i < a->spatial; i++) {
        stride[i] = a->grid.stride[3 - a->spatial + i];
        padding[i] = a->grid.padding[3 - a->spatial + i];
    }
    dnnl_memory_desc_t any[ARRAYS];
    dnnl_convolution_desc_t op;
    dnnl_status_t status;
    for (int i = 0; i < ARRAYS; i++)
        if (!fine(dnnl_memory_desc_init_by_tag(&any[i], r->plain[i].ndims, r->plain[i].dims, dnnl_f32,
                                               i == BIAS ? dnnl_a : dnnl_format_tag_any)))
            return false;
    /* The backward passes want the forward one's description as a hint. */
    status = dnnl_convolution_forward_desc_init(&op, dnnl_forward_training, dnnl_convolution_direct, &any[SRC],
                                                &any[WEIGHTS], a->bias ? &any[BIAS] : NULL, &any[DST], stride, padding,
                                                padding);
    dnnl_primitive_desc_t forward = NULL;
    if (!fine(status) || !fine(dnnl_primitive_desc_create(&forward, &op, NULL, r->engine, NULL)))
        return false;
    if (a->pass == ATTN__CONV_FORWARD) {
        r->description = forward;
        return true;
    }
    if (a->pass == ATTN__CONV_INPUT)
        status = dnnl_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &any[SRC], &any[WEIGHTS],
                                                          &any[DST], stride, padding, padding);
    else
        status = dnnl_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, &any[SRC], &any[WEIGHTS],
                                                             NULL, &any[DST], stride, padding, padding);
    bool done = fine(status) && fine(dnnl_primitive_desc_create(&r->description, &op, NULL, r->engine, forward));
    dnnl_primitive_desc_destroy(forward);
    return done;
}

static bool copy_between(conv_run *r, int array, bool to_library)
{
    dnnl_memory_t from = to_library ? r->memory[array] : r->outside[array];
    dnnl_memory_t to = to_library ? r->outside[array] : r->memory[array];
    const dnnl_memory_desc_t *from_md, *to_md;
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t copy = NULL;
    bool done = fine(dnnl_memory_get_memory_desc(from, &from_md)) && fine(dnnl_memory_get_memory_desc(to, &to_md)) &&
                fine(dnnl_reorder_primitive_desc_create(&description, from_md, r->engine, to_md, r->engine, NULL)) &&
                fine(dnnl_primitive_create(&copy, description));
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    done = done && fine(dnnl_primitive_execute(copy, r->stream, 2, args));
    if (copy)
        dnnl_primitive_destroy(copy);
    if (description)
        dnnl_primitive_desc_destroy(description);
    return done;
}

/* An array as oneDNN wants it: the library's own memory where the layouts agree, else a copy. */
static bool bring(conv_run *r, int array, float *data, dnnl_query_t what, bool is_result)
{
    const dnnl_memory_desc_t *wanted =
        array == BIAS ? &r->plain[BIAS] : dnnl_primitive_desc_query_md(r->description, what, 0);
    if (!wanted)
        return false;
    if (dnnl_memory_desc_equal(wanted, &r->plain[array]))
        return fine(dnnl_memory_create(&r->memory[array], wanted, r->engine, data));
    r->copies[array] = attn__scratch(r->tape, dnnl_memory_desc_get_size(wanted));
    return r->copies[array].data &&
           fine(dnnl_memory_create(&r->memory[array], wanted, r->engine, r->copies[array].data)) &&
           fine(dnnl_memory_create(&r->outside[array], &r->plain[array], r->engine, data)) &&
           (is_result || copy_between(r, array, false));
}

/* Names of the arrays in each pass: what oneDNN calls them as arguments and when asked for their layouts. */
static const struct {
    int argument[ARRAYS], result;
    dnnl_query_t layout[ARRAYS];
} passes[] = {
    [ATTN__CONV_FORWARD] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
                            DST,
                            {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_undef, dnnl_query_dst_md}},
    [ATTN__CONV_INPUT] = {{DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_DST},
                          SRC,
                          {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_undef, dnnl_query_diff_dst_md}},
    [ATTN__CONV_WEIGHTS] = {{DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, 0, DNNL_ARG_DIFF_DST},
                            WEIGHTS,
                            {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_undef, dnnl_query_diff_dst_md}},
};

static bool run(conv_run *r, const attn__conv_args *a)
{
    float *const data[ARRAYS] = {a->x, a->w, a->pass == ATTN__CONV_FORWARD ? a->bias : NULL, a->y};
    int result = passes[a->pass].result, n = 0;
    dnnl_exec_arg_t args[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        if (i == BIAS && !data[BIAS])
            continue;
        if (!bring(r, i, data[i], passes[a->pass].layout[i], i == result))
            return false;
        args[n++] = (dnnl_exec_arg_t){passes[a->pass].argument[i], r->memory[i]};
    }
    return fine(dnnl_primitive_create(&r->primitive, r->description)) &&
           fine(dnnl_primitive_execute(r->primitive, r->stream, n, args)) &&
           (!r->outside[result] || copy_between(r, result, true)) && fine(dnnl_stream_wait(r->stream));
}

static void finish(conv_run *r)
{
    for (int i = 0; i < ARRAYS; i++) {
        if (r->memory[i])
            dnnl_memory_destroy(r->memory[i]);
        if (r->outside[i])
            dnnl_memory_destroy(r->outside[i]);
        attn__scratch_release(r->copies[i]);
    }
    if (r->primitive)
        dnnl_primitive_destroy(r->primitive);
    if (r->description)
        dnnl_primitive_desc_destroy(r->description);
    if (r->stream)
        dnnl_stream_destroy(r->stream);
    if (r->engine)
        dnnl_engine_destroy(r->engine);
}

bool attn__dnnl_convolve(attn_tape *tape, const attn__conv_args *args)
{
    conv_run r = {.tape = tape};
    attn__dnnl_threads before = attn__dnnl_use_threads(tape->context->threads);
    bool done = fine(dnnl_engine_create(&r.engine, dnnl_cpu, 0)) &&
                fine(dnnl_stream_create(&r.stream, r.engine, dnnl_stream_default_flags)) && describe_arrays(&r, args) &&
                describe_operation(&r, args) && run(&r, args);
    finish(&r);
    attn__dnnl_end_threads(before);
    return done;
}
#else
bool attn__dnnl_convolve(attn_tape *tape, const attn__conv_args *args)
{
    (void)tape;
    (void)args;
    return false;
}
#endif
