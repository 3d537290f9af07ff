/* SPDX-License-Identifier: MIT
 *
 * Computes one matrix product with the operations of a tape, and lists the products that are measured.
 */
#include "product.h"

#include "base/context.h"
#include "tensor/compute_in.h"
#include "tensor/tape_state.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *shape, *model;
} list[] = {
    {"1576,2304,768t", "ViT-B/16, 8 pictures"},  {"1576,768,768t", "ViT-B/16, 8 pictures"},
    {"1576,3072,768t", "ViT-B/16, 8 pictures"},  {"1576,768,3072t", "ViT-B/16, 8 pictures"},
    {"197,2304,768t", "ViT-B/16, one picture"},  {"197,768,768t", "ViT-B/16, one picture"},
    {"197,3072,768t", "ViT-B/16, one picture"},  {"197,768,3072t", "ViT-B/16, one picture"},
    {"768,3072,1576a", "ViT-B/16, gradients"},   {"3072,768,1576a", "ViT-B/16, gradients"},
    {"1576,3072,768", "ViT-B/16, gradients"},    {"1576,768,3072", "ViT-B/16, gradients"},
    {"8192,768,768t", "MSA-1b, 64 x 128"},       {"8192,3072,768t", "MSA-1b, 64 x 128"},
    {"8192,768,3072t", "MSA-1b, 64 x 128"},      {"1024,512,512t", "Transformer of 512"},
    {"1024,2048,512t", "Transformer of 512"},    {"1024,512,2048t", "Transformer of 512"},
    {"1024,10000,512t", "Transformer of 512"},   {"512,2048,1024a", "Transformer of 512"},
    {"1280,256,256t", "d2l's Transformer"},      {"1280,64,256t", "d2l's Transformer"},
    {"256,256,1280a", "d2l's Transformer"},      {"64,1024,576", "64 channels of an image"},
    {"20000,64,64t", "64 channels of an image"}, {"64,576,1024t", "64 channels of an image"},
    {"16,4096,4096t", "tall, wide, small, odd"}, {"4096,16,4096", "tall, wide, small, odd"},
    {"64,64,64", "tall, wide, small, odd"},      {"100,100,100t", "tall, wide, small, odd"},
    {"333,777,555", "tall, wide, small, odd"},   {"4096,4096,4096", "large"},
};

const char *bench_product_at(int i, const char **model)
{
    if (i < 0 || i >= (int)(sizeof list / sizeof *list))
        return NULL;
    *model = list[i].model;
    return list[i].shape;
}

bool bench_product_parse(bench_product_shape *shape, const char *text)
{
    int64_t *const sizes[] = {&shape->m, &shape->n, &shape->k};
    for (int i = 0; i < 3; i++) {
        char *end;
        if (*text < '0' || *text > '9')
            return false;
        *sizes[i] = strtoll(text, &end, 10);
        if (*sizes[i] < 1 || *sizes[i] > BENCH_PRODUCT_MOST || (i < 2 && *end != ','))
            return false;
        text = i < 2 ? end + 1 : end;
    }
    shape->transpose_a = *text == 'a';
    shape->packed = *text == 'p';
    shape->transpose_b = *text == 't' || shape->packed;
    return text[shape->transpose_a || shape->transpose_b] == '\0';
}

/* Packs a copy of the weights, because packing destroys the numbers of the packed tensor. */
static attn_status open_weights(bench_product *p, attn_context *context, const int64_t shape[2], float *b)
{
    if (!p->shape.packed)
        return attn_tensor_wrap(&p->b, context, ATTN_F32, 2, shape, b);
    attn_status status = attn_tensor_create(&p->b, context, ATTN_F32, 2, shape);
    if (status != ATTN_OK)
        return status;
    memcpy(attn_tensor_data(p->b), b, (size_t)attn_tensor_size(p->b) * sizeof *b);
    return attn_tensor_pack_weights(p->b, p->precision);
}

attn_status bench_product_open(bench_product *p, attn_context *context, const bench_product_shape *shape, float *a,
                               float *b)
{
    *p = (bench_product){.shape = *shape, .precision = attn_context_precision(context)};
    const int64_t left[] = {shape->transpose_a ? shape->k : shape->m, shape->transpose_a ? shape->m : shape->k};
    const int64_t right[] = {shape->transpose_b ? shape->n : shape->k, shape->transpose_b ? shape->k : shape->n};
    attn_status status = attn_tape_create(&p->tape, context);
    if (status == ATTN_OK)
        status = attn_tensor_wrap(&p->a, context, ATTN_F32, 2, left, a);
    return status == ATTN_OK ? open_weights(p, context, right, b) : status;
}

attn_status bench_product_run(bench_product *p)
{
    bool linear = p->shape.transpose_b;
    attn_tape_reset(p->tape, &(attn_tape_options){0});
    attn_tape_compute_in(p->tape, p->precision);
    p->result = linear ? attn_linear(p->tape, p->a, p->b, NULL, ATTN_ACTIVATION_IDENTITY)
                       : attn_matmul(p->tape, p->a, p->b, p->shape.transpose_a, false);
    return attn__result_status(attn_tape_context(p->tape), p->result);
}

void bench_product_close(bench_product *p)
{
    attn_tape_destroy(p->tape);
    attn_tensor_destroy(p->a);
    attn_tensor_destroy(p->b);
    *p = (bench_product){0};
}
