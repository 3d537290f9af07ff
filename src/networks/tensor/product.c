/* SPDX-License-Identifier: MIT
 * Public products of matrices (product.h), by src/engine/gemm. */
#include "attn/product.h"

#include "base/bf16.h"
#include "base/context.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/product.h"
#include "kernels/elementwise/elementwise.h"

#include <string.h>

enum { ALIGN = 64 };
static const int64_t MOST = (int64_t)1 << 40; /* largest size */

/* ----------------------------------------------------------------------------------------- packed matrices */

/* What precedes the numbers of a packed matrix. It takes a whole cache line, so that the numbers are aligned. */
typedef struct head {
    char magic[8];
    uint64_t layout; /* attn__gemm_packed_layout */
    int64_t k, n;
    int32_t dtype;  /* of the product (gemm.h) */
    int32_t slices; /* 1: f32 rows of the transposed matrix and, behind them, their slices; 0: panels */
    int32_t unused[6];
} head;
_Static_assert(sizeof(head) == ALIGN, "numbers follow the head and are aligned");

static const char magic[sizeof((head *)0)->magic + 1] = "attnpack";

static attn_status check_precision(attn_context *context, attn_precision precision)
{
    return attn__check_choice(context, "precision", (int)precision, ATTN_PRECISION_INT8);
}

static attn_dtype type_of(attn_precision precision, attn_dtype dtype)
{
    return precision == ATTN_PRECISION_INT8   ? ATTN_I32
           : precision == ATTN_PRECISION_BF16 ? ATTN_BF16
           : dtype == ATTN_F64                ? ATTN_F64
                                              : ATTN_F32;
}

static attn_status fail_dtype(attn_context *context, const char *name, attn_dtype dtype)
{
    const char *text = attn_dtype_name(dtype);
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "product: %s is of the type %s; f32, bf16 and f64 are supported",
                      name, text ? text : "unknown");
}

/* Returns the bytes of a matrix of float, rounded up so that what follows it is aligned. */
static size_t floats(int64_t a, int64_t b)
{
    size_t bytes = attn__size_mul(attn__size_mul((size_t)a, (size_t)b), sizeof(float));
    return bytes > SIZE_MAX - ALIGN ? SIZE_MAX : (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_supported(attn_dtype dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_BF16 || dtype == ATTN_F64;
}

/* A packed matrix. Products that slices do not compute, and unpacking, read its rows. */
typedef struct packed_matrix {
    attn__weights weights;
    float *rows; /* [n,k] if the matrix is packed as slices, otherwise NULL */
} packed_matrix;

/* Describes a matrix [k,n] that is packed at `data`, or is going to be. */
static packed_matrix place_packed(const attn_context *context, attn_dtype type, bool slices, int64_t k, int64_t n,
                                  void *data)
{
    packed_matrix x = {.weights = {.dtype = type, .slices = slices, .n = n, .k = k}};
    if (slices) {
        x.rows = data;
        x.weights.data = (char *)data + floats(n, k);
    } else {
        attn__weights_place(&x.weights, context->isa, data);
    }
    return x;
}

/* Reports whether a matrix should be packed as slices, with which products in f32 are faster on AMX. */
static bool wants_slices(const attn_context *context, attn_precision precision, attn_dtype type, int64_t k, int64_t n)
{
    return precision == ATTN_PRECISION_F32 && attn__weights_for(type, context->isa, n, k).slices;
}

static attn_status check_packed_size(attn_context *context, attn_precision precision, attn_dtype dtype, int64_t k,
                                     int64_t n)
{
    if (check_precision(context, precision) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (precision == ATTN_PRECISION_DEFAULT)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "product: the default precision packs nothing; give f32, fma, bf16 or int8");
    if (k < 1 || n < 1 || k > MOST || n > MOST)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "product: a packed matrix is %lld x %lld; both sizes must be 1 to 2^40", (long long)k,
                          (long long)n);
    if (k > ((int64_t)1 << 57) / n)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "product: a packed matrix of %lld x %lld is too large; at most 2^57 elements are supported",
                          (long long)k, (long long)n);
    if (!is_supported(dtype))
        return fail_dtype(context, "b", dtype);
    if (dtype == ATTN_F64 && precision != ATTN_PRECISION_F32 && precision != ATTN_PRECISION_FMA)
        return attn__fail(
            context, ATTN_ERROR_UNSUPPORTED,
            "product: a matrix of f64 cannot be packed for the precision %s; it can be packed for f32 and fma",
            attn_precision_name(precision));
    if (precision == ATTN_PRECISION_INT8 && !attn__int8_sums(k))
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "product: k is %lld; in int8 it must be at most %d, so that the sums fit in 32 bits",
                          (long long)k, (int)ATTN__INT8_MOST_SUMMANDS);
    return ATTN_OK;
}

attn_status attn_product_packed_size(size_t *bytes, attn_context *context, attn_precision precision, attn_dtype dtype,
                                     int64_t k, int64_t n)
{
    ATTN__CALL(context);
    *bytes = 0;
    attn_status status = check_packed_size(context, precision, dtype, k, n);
    if (status != ATTN_OK)
        return status;
    attn__weights w = {.dtype = type_of(precision, dtype), .n = n, .k = k};
    size_t panels = attn__weights_bytes(&w, context->isa), slices = 0;
    if ((w.slices = wants_slices(context, precision, w.dtype, k, n)))
        slices = floats(n, k) + attn__weights_bytes(&w, context->isa);
    *bytes = sizeof(head) + (panels > slices ? panels : slices); /* slices may turn out not to be faster */
    return ATTN_OK;
}

static bool is_aligned(const void *memory)
{
    return memory && (uintptr_t)memory % ALIGN == 0;
}

static attn_status open_packed(attn_context *context, const void *packed, packed_matrix *x)
{
    const head *h = packed;
    if (!is_aligned(packed))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: the packed matrix is not aligned to %d bytes", ALIGN);
    if (memcmp(h->magic, magic, sizeof h->magic) != 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: there is no packed matrix at this address");
    if (h->layout != attn__gemm_packed_layout((attn_dtype)h->dtype, context->isa) ||
        (h->slices && !attn__slices_for(context->isa)))
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "product: the matrix was packed by another kind of machine or for another instruction set "
                          "than %s; pack it again",
                          attn_context_isa(context));
    *x = place_packed(context, (attn_dtype)h->dtype, h->slices, h->k, h->n, (char *)(uintptr_t)packed + sizeof(head));
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------- conversion */

/* Converts a matrix of F32 or BF16 to rows of float, or rows of float to such a matrix. */
typedef struct conversion {
    attn_matrix x;
    int64_t columns;
    float *rows;
} conversion;

static void to_rows(void *user, int64_t begin, int64_t end)
{
    const conversion *z = user;
    for (int64_t i = begin; i < end; i++) {
        float *row = z->rows + i * z->columns;
        int64_t first = i * z->x.row, column = z->x.column;
        if (z->x.dtype == ATTN_BF16)
            for (int64_t j = 0; j < z->columns; j++)
                row[j] = attn__from_bf16(((const uint16_t *)z->x.data)[first + j * column]);
        else
            for (int64_t j = 0; j < z->columns; j++)
                row[j] = ((const float *)z->x.data)[first + j * column];
    }
}

static void from_rows(void *user, int64_t begin, int64_t end)
{
    const conversion *z = user;
    for (int64_t i = begin; i < end; i++) {
        const float *row = z->rows + i * z->columns;
        int64_t first = i * z->x.row, column = z->x.column;
        if (z->x.dtype == ATTN_BF16)
            for (int64_t j = 0; j < z->columns; j++)
                ((uint16_t *)z->x.data)[first + j * column] = attn__to_bf16(row[j]);
        else
            for (int64_t j = 0; j < z->columns; j++)
                ((float *)z->x.data)[first + j * column] = row[j];
    }
}

static void convert(const attn_context *context, attn_matrix x, int64_t rows, int64_t columns, float *memory,
                    void (*run)(void *user, int64_t begin, int64_t end))
{
    enum { NUMBERS = 16384 }; /* minimum number of elements that a thread converts */
    conversion z = {x, columns, memory};
    attn__parallel_range(context->threads, rows, 1 + NUMBERS / (columns + 1), run, &z);
}

/* ------------------------------------------------------------------------------------ packing, unpacking */

static attn__gemm_operand operand_b(const attn_matrix *b)
{
    return (attn__gemm_operand){
        .data = b->data, .outer = b->column, .inner = b->row, .batch = b->batch, .bf16 = b->dtype == ATTN_BF16};
}

/* Packs panels of a matrix b [k,n], whose transpose is `turned`. */
static attn_status pack_panels(attn_context *context, attn_dtype type, const attn_matrix *b, const attn_matrix *turned,
                               int64_t k, int64_t n, void *data)
{
    packed_matrix x = place_packed(context, type, false, k, n, data);
    attn__gemm_operand operand = operand_b(b);
    /* int8 is packed from rows of float */
    bool converts = type == ATTN_I32 && (b->row != 1 || b->dtype != ATTN_F32);
    size_t rows = converts ? floats(n, k) : 0;
    char *scratch = attn__context_scratch(context, attn__size_add(rows, attn__weights_workspace(&x.weights)));
    if (!scratch)
        return ATTN_ERROR_MEMORY;
    if (converts) {
        convert(context, *turned, n, k, (float *)(void *)scratch, to_rows);
        operand = attn__matrix(scratch, k, 1);
    }
    attn__weights_pack(&x.weights, &operand, false, context->isa, context->threads, scratch + rows);
    attn__context_scratch_end(context);
    return ATTN_OK;
}

attn_status attn_product_pack(attn_context *context, attn_precision precision, const attn_matrix *b, int64_t k,
                              int64_t n, void *packed)
{
    ATTN__CALL(context);
    attn_status status = check_packed_size(context, precision, b->dtype, k, n);
    if (status != ATTN_OK)
        return status;
    if (!is_aligned(packed))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: the packed matrix is not aligned to %d bytes", ALIGN);
    if (!b->data)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: b has no data");
    attn_dtype type = type_of(precision, b->dtype);
    attn_matrix turned = {.data = b->data, .dtype = b->dtype, .row = b->column, .column = b->row};
    head h = {.layout = attn__gemm_packed_layout(type, context->isa), .k = k, .n = n, .dtype = (int32_t)type};
    memcpy(h.magic, magic, sizeof h.magic);
    void *data = (char *)packed + sizeof h;
    if (wants_slices(context, precision, type, k, n)) {
        memset(packed, 0, sizeof h); /* until there is another, there is no packed matrix */
        packed_matrix x = place_packed(context, type, true, k, n, data);
        attn__gemm_operand rows = attn__matrix(x.rows, k, 1);
        convert(context, turned, n, k, x.rows, to_rows);
        h.slices = attn__weights_pack(&x.weights, &rows, false, context->isa, context->threads, NULL);
    }
    status = h.slices ? ATTN_OK : pack_panels(context, type, b, &turned, k, n, data);
    if (status == ATTN_OK)
        memcpy(packed, &h, sizeof h);
    return status;
}

typedef struct unpacking {
    const packed_matrix *packed;
    attn__isa isa;
    const int64_t *columns;
    attn_matrix to;
    char *rows; /* a row of numbers for each part of the range */
    int64_t row_bytes, part;
} unpacking;

static void store_column(const unpacking *u, const void *row, int64_t j)
{
    for (int64_t i = 0; i < u->packed->weights.k; i++) {
        int64_t at = i * u->to.row + j * u->to.column;
        if (u->to.dtype == ATTN_F64)
            ((double *)u->to.data)[at] = ((const double *)row)[i];
        else if (u->to.dtype == ATTN_BF16)
            ((uint16_t *)u->to.data)[at] = attn__to_bf16(((const float *)row)[i]);
        else
            ((float *)u->to.data)[at] = ((const float *)row)[i];
    }
}

static void unpack_range(void *user, int64_t begin, int64_t end)
{
    const unpacking *u = user;
    void *row = u->rows + begin / u->part * u->row_bytes;
    bool direct = u->to.row == 1 && u->to.dtype != ATTN_BF16;
    for (int64_t j = begin; j < end; j++) {
        int64_t column = u->columns ? u->columns[j] : j;
        void *to = direct ? (char *)u->to.data + j * u->to.column * (int64_t)attn_dtype_size(u->to.dtype) : row;
        if (u->packed->rows)
            memcpy(to, u->packed->rows + column * u->packed->weights.k, (size_t)u->packed->weights.k * sizeof(float));
        else
            attn__weights_row(&u->packed->weights, u->isa, column, to);
        if (!direct)
            store_column(u, row, j);
    }
}

attn_status attn_product_unpack(attn_context *context, const void *packed, const int64_t *columns, int64_t count,
                                const attn_matrix *to)
{
    ATTN__CALL(context);
    packed_matrix x = {0};
    attn_status status = open_packed(context, packed, &x);
    if (status != ATTN_OK)
        return status;
    const attn__weights w = x.weights;
    bool is_double = w.dtype == ATTN_F64;
    if (is_double ? to->dtype != ATTN_F64 : to->dtype != ATTN_F32 && to->dtype != ATTN_BF16)
        return fail_dtype(context, "the unpacked matrix", to->dtype);
    if (count == 0)
        return ATTN_OK;
    if (!to->data || (w.k > 1 && to->row == 0) || (count > 1 && to->column == 0))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: the unpacked matrix has %s",
                          to->data ? "a stride of 0" : "no data");
    if (count < 0 || (!columns && count > w.n))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "product: %lld columns are requested, but the packed matrix has %lld", (long long)count,
                          (long long)w.n);
    for (int64_t j = 0; columns && j < count; j++)
        if (columns[j] < 0 || columns[j] >= w.n)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "product: columns[%lld] is %lld; the packed matrix has the columns 0 to %lld",
                              (long long)j, (long long)columns[j], (long long)w.n - 1);
    int64_t part = attn__ceil_div(count, context->threads), size = is_double ? sizeof(double) : sizeof(float);
    unpacking u = {&x, context->isa, columns, *to, NULL, attn__round_up(w.k * size, ALIGN), part};
    u.rows = attn__context_scratch(context, attn__size_mul((size_t)u.row_bytes, (size_t)context->threads));
    if (!u.rows)
        return ATTN_ERROR_MEMORY;
    attn__parallel_range(context->threads, count, part, unpack_range, &u);
    attn__context_scratch_end(context);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ checks */

static attn_status check_matrix(attn_context *context, const char *name, const attn_matrix *x, bool empty,
                                attn_dtype wanted)
{
    if (!is_supported(x->dtype))
        return fail_dtype(context, name, x->dtype);
    if (!empty && !x->data)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: %s has no data", name);
    if ((x->dtype == ATTN_F64) != (wanted == ATTN_F64))
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "product: %s is %s and c is %s; both must be f64, or neither", name,
                          attn_dtype_name(x->dtype), attn_dtype_name(wanted));
    return ATTN_OK;
}

static attn_status check_sizes(attn_context *context, const attn_product *p)
{
    const int64_t sizes[] = {p->m, p->n, p->k, p->batch};
    const char *names[] = {"m", "n", "k", "batch"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 0 || sizes[i] > MOST)
            return attn__fail(context, ATTN_ERROR_SHAPE, "product: %s is %lld; it must be 0 to 2^40", names[i],
                              (long long)sizes[i]);
    return ATTN_OK;
}

static attn_status check_after(attn_context *context, const attn_product *p, bool empty)
{
    const attn_matrix *after[] = {&p->factor, &p->residual};
    const char *names[] = {"factor", "residual"};
    bool any = p->bias || p->activation != ATTN_ACTIVATION_IDENTITY || p->factor.data || p->residual.data;
    if (p->bias && p->c.dtype != ATTN_F64 && p->bias_dtype != ATTN_F32 && p->bias_dtype != ATTN_BF16)
        return fail_dtype(context, "bias", p->bias_dtype);
    if (p->bias && p->c.dtype == ATTN_F64 && p->bias_dtype == ATTN_BF16)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "product: bias is bf16 and c is f64; if c is f64, the bias must be f64 too");
    if (!attn__activation_exists((int)p->activation))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: activation is %d; it must be between 0 and %d",
                          (int)p->activation, (int)ATTN_ACTIVATION_SILU);
    if (p->add && any)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "product: add cannot be used together with bias, activation, factor or residual");
    for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
        if (!after[i]->data || empty)
            continue;
        if (after[i]->dtype != p->c.dtype)
            return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "product: %s is %s and c is %s; the types must be equal",
                              names[i], attn_dtype_name(after[i]->dtype), attn_dtype_name(p->c.dtype));
        if (after[i]->column != 1)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "product: the elements of a row of %s are %lld apart; they must be adjacent", names[i],
                              (long long)after[i]->column);
    }
    return ATTN_OK;
}

static attn_status check_packed(attn_context *context, const attn_product *p, int64_t batch, packed_matrix *x)
{
    const attn__weights *w = &x->weights;
    attn_status status = open_packed(context, p->packed, x);
    if (status != ATTN_OK)
        return status;
    if (batch > 1)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "product: a packed matrix cannot be used for a batch of %lld", (long long)batch);
    if (w->k != p->k || w->n != p->n)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "product: k x n is %lld x %lld, but the packed matrix is %lld x %lld", (long long)p->k,
                          (long long)p->n, (long long)w->k, (long long)w->n);
    if (w->dtype != type_of(p->precision, p->c.dtype))
        return attn__fail(
            context, ATTN_ERROR_ARGUMENT,
            "product: the matrix is packed as %s, but the precision is %s; pack it again for this precision",
            w->dtype == ATTN_I32 ? "int8" : attn_dtype_name(w->dtype),
            attn_precision_name(p->precision ? p->precision : ATTN_PRECISION_F32));
    return ATTN_OK;
}

static attn_status check(attn_context *context, const attn_product *p, int64_t batch, packed_matrix *packed)
{
    bool empty = p->m == 0 || p->n == 0 || batch == 0, no_sum = empty || p->k == 0;
    attn_status status = check_sizes(context, p);
    if (status == ATTN_OK)
        status = check_precision(context, p->precision);
    if (status == ATTN_OK)
        status = check_matrix(context, "c", &p->c, empty, p->c.dtype);
    if (status == ATTN_OK)
        status = check_matrix(context, "a", &p->a, no_sum, p->c.dtype);
    if (status == ATTN_OK && !p->packed)
        status = check_matrix(context, "b", &p->b, no_sum, p->c.dtype);
    if (status == ATTN_OK)
        status = check_after(context, p, empty);
    if (status != ATTN_OK)
        return status;
    if ((p->m > 1 && p->c.row == 0) || (p->n > 1 && p->c.column == 0) || (batch > 1 && p->c.batch == 0))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: c has a stride of 0, so its elements overlap");
    if (p->c.dtype == ATTN_F64 && p->n > 1 && p->c.column != 1)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "product: the elements of a row of c are %lld apart; in f64 they must be adjacent",
                          (long long)p->c.column);
    if (p->c.dtype == ATTN_F64 && p->precision > ATTN_PRECISION_FMA)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "product: f64 numbers cannot be multiplied in the precision %s",
                          attn_precision_name(p->precision));
    if (p->packed)
        return check_packed(context, p, batch, packed);
    if (p->precision == ATTN_PRECISION_INT8)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "product: int8 needs a packed matrix");
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------------- products */

/* Arguments of the epilogue, which runs after the sums of a product are complete. */
typedef struct epilogue {
    attn__elementwise_fn run, add, binary;
    const char *bias;
    int64_t element; /* bytes of an element of `bias` and of the sums */
    int kind;
    attn_matrix factor, residual;
} epilogue;

/* Multiplies c by a part of a row of x, or adds it. */
static void combine(const epilogue *e, float *c, const attn_matrix *x, int64_t at, int64_t n, bool multiplies)
{
    if (x->dtype == ATTN_F32) {
        attn__elementwise_args args = {.x = c,
                                       .x2 = (const float *)x->data + at,
                                       .y = c,
                                       .kind = ATTN__BINARY_MUL,
                                       .rank = 1,
                                       .shape = {n},
                                       .stride_x = {1},
                                       .stride_x2 = {1},
                                       .stride_y = {1}};
        (multiplies ? e->binary : e->add)(&args, 0, n);
        return;
    }
    const uint16_t *narrow = (const uint16_t *)x->data + at;
    if (multiplies)
        for (int64_t i = 0; i < n; i++)
            c[i] *= attn__from_bf16(narrow[i]);
    else
        for (int64_t i = 0; i < n; i++)
            c[i] += attn__from_bf16(narrow[i]);
}

static void finish(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    const epilogue *e = user;
    attn__elementwise_args args = {
        .x = e->bias ? e->bias + column * e->element : NULL, .y = c, .n = n, .kind = e->kind};
    if (e->bias || e->kind)
        e->run(&args, 0, 1);
    int64_t at_factor = row * e->factor.row + column, at_residual = row * e->residual.row + column;
    double *wide = c;
    if (e->factor.data && e->factor.dtype == ATTN_F64)
        for (int64_t i = 0; i < n; i++)
            wide[i] *= ((const double *)e->factor.data)[at_factor + i];
    else if (e->factor.data)
        combine(e, c, &e->factor, at_factor, n, true);
    if (e->residual.data && e->residual.dtype == ATTN_F64)
        for (int64_t i = 0; i < n; i++)
            wide[i] += ((const double *)e->residual.data)[at_residual + i];
    else if (e->residual.data)
        combine(e, c, &e->residual, at_residual, n, false);
}

/* How a product is computed: the problem, and the matrices that are converted before and after it. */
typedef struct running {
    attn_context *context;
    const attn_product *p;
    attn__gemm_problem g;
    epilogue after;
    bool converts_a, converts_c, converts_bias;
    size_t a_bytes, c_bytes, bias_bytes;
} running;

static void describe(running *r, const packed_matrix *packed, int64_t batch)
{
    const attn_product *p = r->p;
    bool by_weights = p->packed && !(packed->rows && p->precision == ATTN_PRECISION_FMA);
    bool is_double = p->c.dtype == ATTN_F64, int8 = p->precision == ATTN_PRECISION_INT8;
    /* int8 and slices read rows of float. Slices write rows of float. */
    bool slices = by_weights && packed->weights.slices;
    r->converts_a = (int8 || slices) && (p->a.column != 1 || p->a.dtype != ATTN_F32);
    r->converts_c =
        !is_double && p->n > 0 && ((p->c.column != 1 && p->n > 1) || (p->c.dtype == ATTN_BF16 && (p->add || slices)));
    r->a_bytes = r->converts_a ? floats(p->m, p->k) : 0;
    r->c_bytes = r->converts_c ? floats(attn__max(batch, 1) * p->m, p->n) : 0;
    const attn__elementwise_fn *loops = attn__elementwise_for(is_double, r->context->isa)->run;
    r->converts_bias = p->bias && p->bias_dtype == ATTN_BF16;
    r->bias_bytes = r->converts_bias ? floats(1, p->n) : 0;
    r->after = (epilogue){.run = loops[ATTN__ELEMENTWISE_BIAS_ACTIVATE],
                          .add = loops[ATTN__ELEMENTWISE_ADD],
                          .binary = loops[ATTN__ELEMENTWISE_BINARY],
                          .bias = p->bias,
                          .element = is_double ? sizeof(double) : sizeof(float),
                          .kind = (int)p->activation,
                          .factor = p->factor,
                          .residual = p->residual};
    bool plain = !p->bias && p->activation == ATTN_ACTIVATION_IDENTITY && !p->factor.data && !p->residual.data;
    attn_dtype type = type_of(p->precision, p->c.dtype);
    r->g = (attn__gemm_problem){.dtype = int8 ? ATTN_F32 : type,
                                .batch = batch,
                                .m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .a = {.data = p->a.data,
                                      .outer = p->a.row,
                                      .inner = p->a.column,
                                      .batch = p->a.batch,
                                      .bf16 = p->a.dtype == ATTN_BF16},
                                .b = p->packed ? attn__matrix(packed->rows, p->k, 1) : operand_b(&p->b),
                                .weights = by_weights ? &packed->weights : NULL,
                                .int8 = int8,
                                .c = p->c.data,
                                .ldc = p->c.row,
                                .c_batch = batch > 1 ? p->c.batch : 1,
                                .c_bf16 = p->c.dtype == ATTN_BF16 && !r->converts_c,
                                .add = p->add,
                                .finish = plain ? NULL : finish,
                                .user = &r->after};
    if (r->converts_a)
        r->g.a = attn__matrix(NULL, p->k, 1);
    if (r->converts_c) {
        r->g.ldc = p->n;
        r->g.c_batch = p->m * p->n;
    }
}

/* Converts each matrix of C to rows of float, or from them. */
static void convert_c(const running *r, int64_t batch, void (*run)(void *user, int64_t begin, int64_t end))
{
    const attn_product *p = r->p;
    attn_matrix c = p->c;
    for (int64_t t = 0; t < batch; t++) {
        convert(r->context, c, p->m, p->n, (float *)r->g.c + t * p->m * p->n, run);
        c.data = (char *)c.data + c.batch * (int64_t)attn_dtype_size(c.dtype);
    }
}

static attn_status run(running *r, int64_t batch)
{
    const attn_product *p = r->p;
    attn_context *context = r->context;
    attn__product product;
    attn__product_plan(&product, &r->g, context->isa, context->threads);
    size_t bytes = attn__size_add(attn__size_add(r->a_bytes, r->c_bytes), attn__product_workspace(&product));
    char *scratch = attn__context_scratch(context, attn__size_add(bytes, r->bias_bytes));
    if (!scratch)
        return ATTN_ERROR_MEMORY;
    if (r->converts_bias) {
        float *bias = (float *)(void *)scratch;
        attn_matrix row = {.data = (void *)(uintptr_t)p->bias, .dtype = ATTN_BF16, .column = 1};
        convert(context, row, 1, p->n, bias, to_rows);
        r->after.bias = (const char *)bias;
        scratch += r->bias_bytes;
    }
    if (r->converts_a) {
        convert(context, p->a, p->m, p->k, (float *)(void *)scratch, to_rows);
        r->g.a.data = scratch;
    }
    if (r->converts_c)
        r->g.c = scratch + r->a_bytes;
    if (r->converts_c && p->add)
        convert_c(r, batch, to_rows);
    if (r->converts_a || r->converts_c)
        attn__product_plan(&product, &r->g, context->isa, context->threads);
    attn__product_run(&product, scratch + r->a_bytes + r->c_bytes);
    if (r->converts_c)
        convert_c(r, batch, from_rows);
    return ATTN_OK;
}

static void advance(attn_matrix *x)
{
    if (x->data)
        x->data = (char *)x->data + x->batch * (int64_t)attn_dtype_size(x->dtype);
}

attn_status attn_multiply(attn_context *context, const attn_product *product)
{
    ATTN__CALL(context);
    packed_matrix packed = {0};
    attn_product one = *product;
    int64_t batch = product->batch ? product->batch : 1;
    attn_status status = ATTN__CHECK_RESERVED(context, product, attn_product);
    if (status == ATTN_OK)
        status = check(context, product, batch, &packed);
    if (status != ATTN_OK || product->m == 0 || product->n == 0)
        return status;
    /* The epilogue is not told the matrix of the batch, so that matrices after the sum need a product for each. */
    int64_t at_once = product->factor.data || product->residual.data ? 1 : batch;
    for (int64_t t = 0; t < batch && status == ATTN_OK; t += at_once) {
        running r = {.context = context, .p = &one};
        describe(&r, &packed, at_once);
        status = run(&r, at_once);
        attn_matrix *const all[] = {&one.a, &one.b, &one.c, &one.factor, &one.residual};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            advance(all[i]);
    }
    attn__context_scratch_end(context);
    return status;
}
