/* SPDX-License-Identifier: MIT
 *
 * vit.h - runs Vision Transformers on random pictures, for `attn bench` and bench/vit_probe.c. vit_probe.c is
 * compiled together with vit.c.
 */
#ifndef BENCH_VIT_H
#define BENCH_VIT_H

#include "attn/models.h"

typedef enum bench_vit_pass {
    BENCH_VIT_FORWARD,
    BENCH_VIT_INFER, /* inference with weights that were packed once (attn_model_pack_weights) */
    BENCH_VIT_TRAIN  /* forward, cross-entropy and backward, without an optimizer */
} bench_vit_pass;

typedef struct bench_vit_shape {
    int64_t side, patch, hiddens, mlp, heads, blocks, classes, batch;
    bool bias;
    bench_vit_pass pass;
} bench_vit_shape;

/* ViT-B/16 on 224 x 224 pixels with 1,000 classes, and the ViT of Dive into Deep Learning. The caller sets `batch`
 * and `pass`. */
extern const bench_vit_shape bench_vit_base, bench_vit_d2l;

typedef struct bench_vit {
    bench_vit_shape shape;
    attn_context *context;
    attn_model *model;
    attn_tape *tape;
    attn_tensor *x, *labels;
} bench_vit;

/* `v` must be zero before the call. The caller must close it, even after a failure. */
attn_status bench_vit_open(bench_vit *v, attn_context *context, const bench_vit_shape *shape);
attn_status bench_vit_run(bench_vit *v);
void bench_vit_close(bench_vit *v);
/* Returns the number of operations of a forward pass: 2 for each weight and token, and 4 for each channel and pair
 * of tokens. A training step has three times as many. */
double bench_vit_flops(const bench_vit_shape *shape);

#endif
