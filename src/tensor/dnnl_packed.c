/* SPDX-License-Identifier: MIT
 * Linear layers by oneDNN: weights packed first, and what follows the product done while its result is in registers. */
#include "tensor/dnnl.h"

#include "tensor/op.h"

#include <string.h>

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

static bool fine(dnnl_status_t status)
{
    return status == dnnl_success;
}

static dnnl_data_type_t type_of(attn_dtype dtype)
{
    return dtype == ATTN_BF16 ? dnnl_bf16 : dnnl_f32;
}

static bool describe(dnnl_memory_desc_t *shape, attn_dtype dtype, int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    dnnl_dims_t dims = {rows, cols}, strides = {row, col};
    return fine(dnnl_memory_desc_init_by_strides(shape, 2, dims, type_of(dtype), strides));
}

/* B's layout is oneDNN's choice: blocks of 64 columns, whatever the number of rows. */
static bool describe_shapes(matmul *m, const attn__fused_args *g)
{
    dnnl_dims_t dims = {g->k, g->n};
    return describe(&m->shape[MM_A], g->in, g->m, g->k, g->k, 1) &&
           fine(dnnl_memory_desc_init_by_tag(&m->shape[MM_B], 2, dims, type_of(g->in), dnnl_format_tag_any)) &&
           describe(&m->shape[MM_C], g->out, g->m, g->n, g->n, 1) &&
           describe(&m->shape[MM_BIAS], ATTN_F32, 1, g->n, g->n, 1);
}

/* What follows the product while its result is still in registers. */
static bool describe_after(matmul *m, const attn__fused_args *g)
{
    return fine(dnnl_primitive_attr_create(&m->attributes)) && fine(dnnl_post_ops_create(&m->after)) &&
           (!g->add || fine(dnnl_post_ops_append_sum(m->after, 1))) &&
           (!g->gelu || fine(dnnl_post_ops_append_eltwise(m->after, 1, dnnl_eltwise_gelu_erf, 0, 0))) &&
           fine(dnnl_primitive_attr_set_post_ops(m->attributes, m->after));
}

static bool begin(matmul *m, const attn__fused_args *g)
{
    dnnl_matmul_desc_t d;
    return fine(dnnl_engine_create(&m->engine, dnnl_cpu, 0)) &&
           fine(dnnl_stream_create(&m->stream, m->engine, dnnl_stream_default_flags)) && describe_shapes(m, g) &&
           describe_after(m, g) &&
           fine(dnnl_matmul_desc_init(&d, &m->shape[MM_A], &m->shape[MM_B], g->bias ? &m->shape[MM_BIAS] : NULL,
                                      &m->shape[MM_C])) &&
           fine(dnnl_primitive_desc_create(&m->description, &d, m->attributes, m->engine, NULL));
}

static void end(matmul *m)
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

/* ------------------------------------------------------------------------------------------------- packing */

/* Packed weights begin with their description; the numbers follow at a multiple of a cache line. */
enum { LINE = 64, DESCRIPTION = (sizeof(dnnl_memory_desc_t) + LINE - 1) / LINE * LINE };

static bool copy_packed(matmul *m, const attn__fused_args *g, const dnnl_memory_desc_t *packed_shape, void *data)
{
    dnnl_memory_desc_t plain;
    dnnl_memory_t from = NULL, to = NULL;
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t copy = NULL;
    bool done =
        describe(&plain, ATTN_F32, g->k, g->n, 1, g->ldb) &&
        fine(dnnl_memory_create(&from, &plain, m->engine, (void *)(uintptr_t)g->b)) &&
        fine(dnnl_memory_create(&to, packed_shape, m->engine, data)) &&
        fine(dnnl_reorder_primitive_desc_create(&description, &plain, m->engine, packed_shape, m->engine, NULL)) &&
        fine(dnnl_primitive_create(&copy, description));
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    done = done && fine(dnnl_primitive_execute(copy, m->stream, 2, args)) && fine(dnnl_stream_wait(m->stream));
    dnnl_primitive_destroy(copy);
    dnnl_primitive_desc_destroy(description);
    dnnl_memory_destroy(from);
    dnnl_memory_destroy(to);
    return done;
}

static attn_status pack(matmul *m, attn_tape *tape, const attn__fused_args *g, attn__packed *packed)
{
    const dnnl_memory_desc_t *shape = dnnl_primitive_desc_query_md(m->description, dnnl_query_weights_md, 0);
    if (!shape)
        return ATTN_UNSUPPORTED;
    attn__hold hold = attn__scratch(tape, DESCRIPTION + dnnl_memory_desc_get_size(shape));
    if (!hold.data)
        return ATTN_MEMORY;
    memcpy(hold.data, shape, sizeof *shape);
    *packed = (attn__packed){g->in, g->n, g->k, hold, .slices = false};
    if (copy_packed(m, g, shape, (char *)hold.data + DESCRIPTION))
        return ATTN_OK;
    attn__gemm_unpack(packed);
    return ATTN_UNSUPPORTED;
}

attn_status attn__dnnl_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            attn__packed *packed)
{
    enum { USUAL_ROWS = 1024 };
    matmul m = {0};
    attn__dnnl_threads before = attn__dnnl_use_threads(tape->context->threads);
    attn__fused_args args = {.in = dtype, .out = ATTN_F32, .m = USUAL_ROWS, .n = n, .k = k, .b = b, .ldb = ldb};
    *packed = (attn__packed){0};
    attn_status status = n > 0 && k > 0 && begin(&m, &args) ? pack(&m, tape, &args, packed) : ATTN_UNSUPPORTED;
    end(&m);
    attn__dnnl_end_threads(before);
    return status;
}

/* ------------------------------------------------------------------------------------------------- product */

static bool execute(matmul *m, const attn__fused_args *g, const attn__packed *packed)
{
    const void *data[] = {g->a, (const char *)packed->hold.data + DESCRIPTION, g->c, g->bias};
    int places[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS}, n = g->bias ? 4 : 3;
    dnnl_exec_arg_t arguments[4];
    for (int i = 0; i < n; i++) {
        const dnnl_memory_desc_t *shape = i == MM_B ? packed->hold.data : &m->shape[i];
        if (!fine(dnnl_memory_create(&m->memory[i], shape, m->engine, (void *)(uintptr_t)data[i])))
            return false;
        arguments[i] = (dnnl_exec_arg_t){places[i], m->memory[i]};
    }
    return fine(dnnl_primitive_create(&m->primitive, m->description)) && /* oneDNN keeps the code it makes */
           fine(dnnl_primitive_execute(m->primitive, m->stream, n, arguments)) && fine(dnnl_stream_wait(m->stream));
}

/* What was packed serves this product: oneDNN might want another layout for another number of rows. */
static bool serves(const matmul *m, const attn__fused_args *g)
{
    return g->packed && g->packed->hold.data &&
           dnnl_memory_desc_equal(dnnl_primitive_desc_query_md(m->description, dnnl_query_weights_md, 0),
                                  g->packed->hold.data);
}

attn_status attn__dnnl_fused(attn_tape *tape, const attn__fused_args *args)
{
    matmul m = {0};
    attn__packed own = {0};
    attn__dnnl_threads before = attn__dnnl_use_threads(tape->context->threads);
    attn_status status = begin(&m, args) ? ATTN_OK : ATTN_UNSUPPORTED;
    bool served = status == ATTN_OK && serves(&m, args);
    if (status == ATTN_OK && !served)
        status = pack(&m, tape, args, &own);
    if (status == ATTN_OK && !execute(&m, args, served ? args->packed : &own))
        status = ATTN_UNSUPPORTED;
    end(&m);
    attn__gemm_unpack(&own);
    attn__dnnl_end_threads(before);
    return status;
}
#else
attn_status attn__dnnl_pack(attn_tape *tape, attn_dtype dtype, const float *b, int64_t ldb, int64_t n, int64_t k,
                            attn__packed *packed)
{
    (void)tape;
    (void)dtype;
    (void)b;
    (void)ldb;
    (void)n;
    (void)k;
    *packed = (attn__packed){0};
    return ATTN_UNSUPPORTED;
}

attn_status attn__dnnl_fused(attn_tape *tape, const attn__fused_args *args)
{
    (void)tape;
    (void)args;
    return ATTN_UNSUPPORTED;
}
#endif
