/* SPDX-License-Identifier: MIT
 *
 * Implements non-local blocks. The convolutions leave the channels before the spatial axes, [B,C,N]. The attention
 * engine reads and writes this layout by strides.
 */
#include "nn/spatial.h"
#include "base/context.h"
#include "nn/named.h"

static void conv_init(attn_nn_conv *conv, attn_nn_builder *builder, const char *name, int spatial, int64_t in,
                      int64_t out, bool zero)
{
    attn__nn_conv_named(conv, builder, name,
                        &(attn_nn_conv_options){
                            .spatial = spatial, .in_channels = in, .out_channels = out, .bias = true, .zero = zero});
}

/* Initializes the output W, which is a convolution, or a convolution followed by a batch norm. The last layer of W
 * starts at zero. */
static void out_init(attn_nn_non_local *layer, attn_nn_builder *builder, int64_t in)
{
    conv_init(&layer->w, builder, layer->batch_norm ? "W.0" : "W", layer->spatial, layer->inter, in,
              !layer->batch_norm);
    if (layer->batch_norm)
        attn__nn_batch_norm_named(&layer->norm, builder, "W.1", in, true);
}

void attn_nn_non_local_init(attn_nn_non_local *layer, attn_nn_builder *builder, int64_t in, int64_t inter, int spatial,
                            attn_nn_pairwise pairwise, bool sub_sample, bool batch_norm)
{
    inter = inter > 0 ? inter : in > 1 ? in / 2 : 1;
    *layer = (attn_nn_non_local){
        .pairwise = pairwise, .spatial = spatial, .inter = inter, .sub_sample = sub_sample, .batch_norm = batch_norm};
    conv_init(&layer->g, builder, sub_sample ? "g.0" : "g", spatial, in, inter, false);
    out_init(layer, builder, in);
    if (pairwise != ATTN_PAIRWISE_GAUSSIAN) {
        conv_init(&layer->theta, builder, "theta", spatial, in, inter, false);
        conv_init(&layer->phi, builder, sub_sample ? "phi.0" : "phi", spatial, in, inter, false);
    }
    if (pairwise == ATTN_PAIRWISE_CONCAT) {
        attn_nn_initializer fill = {.start = builder->policy == ATTN_POLICY_TORCH ? ATTN_INIT_KAIMING_UNIFORM
                                                                                  : ATTN_INIT_XAVIER_UNIFORM};
        /* The parameter has four axes in every case, because the original uses a 2-D convolution over the pairs,
         * even if the block has 1 or 3 spatial axes. */
        attn_nn_push(builder, "concat_project.0");
        layer->concat = attn_nn_parameter(builder, "weight", 4, (int64_t[]){1, 2 * inter, 1, 1}, fill);
        attn_nn_pop(builder);
    }
}

/* Applies max pooling with stride 2 along every axis except the frames of a video. */
static attn_tensor *pooled(const attn_nn_non_local *layer, attn_tape *tape, attn_tensor *x)
{
    int64_t kernel[3] = {layer->spatial == 3 ? 1 : 2, 2, 2};
    return layer->sub_sample ? attn_max_pool(tape, x, layer->spatial, kernel, NULL, NULL) : x;
}

static int64_t positions(const attn_tensor *x)
{
    int64_t n = 1;
    for (int i = 2; i < attn_tensor_rank(x); i++)
        n *= attn_tensor_length(x, i);
    return n;
}

static void describe(attn_problem *p, const attn_nn_non_local *layer, int64_t batch, int64_t channels, int64_t n,
                     int64_t nk)
{
    static const attn_normalization normalize[] = {ATTN_NORMALIZATION_SOFTMAX, ATTN_NORMALIZATION_SOFTMAX,
                                                   ATTN_NORMALIZATION_MEAN, ATTN_NORMALIZATION_MEAN};
    int64_t ci = layer->inter;
    *p = (attn_problem){.ndims = 5,
                        .scale = 1,
                        .normalization = normalize[layer->pairwise],
                        .score = layer->concat ? ATTN_SCORE_CONCAT : ATTN_SCORE_DOT};
    p->dims[0] = (attn_dim){.role = ATTN_ROLE_BATCH,
                            .n = batch,
                            .q = channels * n,
                            .k = channels * nk,
                            .v = ci * nk,
                            .o = ci * n,
                            .lse = n,
                            .weights = n * nk};
    p->dims[1] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = n, .q = 1, .o = 1, .lse = 1, .weights = nk};
    p->dims[2] = (attn_dim){.role = ATTN_ROLE_KEY, .n = nk, .k = 1, .v = 1, .weights = 1};
    p->dims[3] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = channels, .q = n, .k = nk, .w = layer->concat ? 1 : 0};
    p->dims[4] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = ci, .v = nk, .o = n};
}

/* Sets the two vectors of the score of ATTN_PAIRWISE_CONCAT. Its product w . [theta, phi] is w1 . theta + w2 . phi,
 * where w1 is the first half of w and w2 the second half. Therefore the original's array of all pairs [N,Nk,2C] is
 * not needed. */
static void set_vectors(const attn_nn_non_local *layer, attn_tape *tape, attn_attention *a)
{
    attn_tensor *all = attn_reshape(tape, layer->concat, 1, (int64_t[]){-1});
    a->w = attn_slice(tape, all, 0, 0, layer->inter);
    a->w2 = attn_slice(tape, all, 0, layer->inter, 2 * layer->inter);
}

static attn_tensor *attend(const attn_nn_non_local *layer, attn_tape *tape, attn_tensor *x, attn_tensor **weights)
{
    bool embedded = layer->pairwise != ATTN_PAIRWISE_GAUSSIAN;
    attn_tensor *g = pooled(layer, tape, attn_nn_conv_forward(&layer->g, tape, x));
    attn_tensor *theta = embedded ? attn_nn_conv_forward(&layer->theta, tape, x) : x;
    attn_tensor *phi = pooled(layer, tape, embedded ? attn_nn_conv_forward(&layer->phi, tape, x) : x);
    if (!g || !theta || !phi)
        return NULL;
    int64_t batch = attn_tensor_length(x, 0), n = positions(x), nk = positions(g);
    attn_attention a = {.q = {theta, 0},
                        .k = {phi, 0},
                        .v = {g, 0},
                        .rank = attn_tensor_rank(x),
                        .shape = {batch, layer->inter},
                        .weights = weights,
                        .weights_rank = 3,
                        .weights_shape = {batch, n, nk}};
    for (int i = 2; i < a.rank; i++)
        a.shape[i] = attn_tensor_length(x, i);
    describe(&a.problem, layer, batch, attn_tensor_length(theta, 1), n, nk);
    a.problem.dtype = attn_tensor_dtype(x);
    if (layer->concat) {
        set_vectors(layer, tape, &a);
        if (!a.w || !a.w2)
            return NULL;
    }
    return attn_attend(tape, &a);
}

attn_tensor *attn_nn_non_local_forward(const attn_nn_non_local *layer, attn_tape *tape, attn_tensor *x,
                                       attn_tensor **weights)
{
    attn_tensor *y = attn_nn_conv_forward(&layer->w, tape, attend(layer, tape, x, weights));
    return attn_add(tape, x, layer->batch_norm ? attn_nn_batch_norm_forward(&layer->norm, tape, y) : y);
}
