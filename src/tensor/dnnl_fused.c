/* SPDX-License-Identifier: MIT
 * Products by oneDNN with what follows them done while the result is still in registers. */
#include "tensor/dnnl.h"

#include "tensor/op.h"

#ifdef ATTN_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#endif

/* Later major versions describe operations in another way. */
#if defined ATTN_HAVE_DNNL && DNNL_VERSION_MAJOR == 2
/* Everything that one call of oneDNN's matmul wants, to be destroyed in any case. */
typedef struct matmul {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_post_ops_t after;
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t shape[4]; /* a, b, c, bias */
    dnnl_memory_t memory[4];
} matmul;

enum { MM_A, MM_B, MM_C, MM_BIAS };

static bool describe(dnnl_memory_desc_t *shape, attn_dtype dtype, int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    dnnl_dims_t dims = {rows, cols}, strides = {row, col};
    return dnnl_memory_desc_init_by_strides(shape, 2, dims, dtype == ATTN_BF16 ? dnnl_bf16 : dnnl_f32, strides) ==
           dnnl_success;
}

static bool describe_shapes(matmul *m, const attn__fused_args *g)
{
    return describe(&m->shape[MM_A], g->in, g->m, g->k, g->k, 1) && describe(&m->shape[MM_B], g->in, g->k, g->n, 1, g->ldb) &&
           describe(&m->shape[MM_C], g->out, g->m, g->n, g->n, 1) && describe(&m->shape[MM_BIAS], ATTN_F32, 1, g->n, g->n, 1);
}

/* What follows the product while its result is still in registers. */
static bool describe_after(matmul *m, const attn__fused_args *g)
{
    return dnnl_primitive_attr_create(&m->attributes) == dnnl_success &&
           dnnl_post_ops_create(&m->after) == dnnl_success &&
           (!g->add || dnnl_post_ops_append_sum(m->after, 1) == dnnl_success) &&
           (!g->gelu || dnnl_post_ops_append_eltwise(m->after, 1, dnnl_eltwise_gelu_erf, 0, 0) == dnnl_success) &&
           dnnl_primitive_attr_set_post_ops(m->attributes, m->after) == dnnl_success;
}

static bool make_primitive(matmul *m, const attn__fused_args *g)
{
    dnnl_matmul_desc_t d;
    return dnnl_matmul_desc_init(&d, &m->shape[MM_A], &m->shape[MM_B], g->bias ? &m->shape[MM_BIAS] : NULL,
                                 &m->shape[MM_C]) == dnnl_success &&
           dnnl_primitive_desc_create(&m->description, &d, m->attributes, m->engine, NULL) == dnnl_success &&
           dnnl_primitive_create(&m->primitive, m->description) == dnnl_success; /* oneDNN keeps the code it makes */
}

static bool execute(matmul *m, const attn__fused_args *g)
{
    const void *data[] = {g->a, g->b, g->c, g->bias};
    int places[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS}, n = g->bias ? 4 : 3;
    dnnl_exec_arg_t arguments[4];
    for (int i = 0; i < n; i++) {
        if (dnnl_memory_create(&m->memory[i], &m->shape[i], m->engine, (void *)(uintptr_t)data[i]) != dnnl_success)
            return false;
        arguments[i] = (dnnl_exec_arg_t){places[i], m->memory[i]};
    }
    return dnnl_primitive_execute(m->primitive, m->stream, n, arguments) == dnnl_success &&
           dnnl_stream_wait(m->stream) == dnnl_success;
}

static void clear(matmul *m)
{
    for (int i = 0; i < 4; i++)
        dnnl_memory_destroy(m->memory[i]);
    dnnl_primitive_destroy(m->primitive);
    dnnl_primitive_desc_destroy(m->description);
    dnnl_post_ops_destroy(m->after);
    dnnl_primitive_attr_destroy(m->attributes);
    dnnl_stream_destroy(m->stream);
    dnnl_engine_destroy(m->engine);
}

bool attn__gemm_fused(const attn_tape *tape, const attn__fused_args *args)
{
    matmul m = {0};
    int before = attn__dnnl_use_threads(tape->context->threads);
    bool done = dnnl_engine_create(&m.engine, dnnl_cpu, 0) == dnnl_success &&
                dnnl_stream_create(&m.stream, m.engine, dnnl_stream_default_flags) == dnnl_success &&
                describe_shapes(&m, args) && describe_after(&m, args) && make_primitive(&m, args) && execute(&m, args);
    clear(&m);
    attn__dnnl_use_threads(before);
    return done;
}
#else
bool attn__gemm_fused(const attn_tape *tape, const attn__fused_args *args)
{
    (void)tape;
    (void)args;
    return false;
}
#endif
