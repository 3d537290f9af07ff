/* SPDX-License-Identifier: MIT
 *
 * Runs Vision Transformers for the benchmarks.
 */
#include "vit.h"

const bench_vit_shape bench_vit_base = {224, 16, 768, 3072, 12, 12, 1000, 1, true, BENCH_VIT_FORWARD};
const bench_vit_shape bench_vit_d2l = {96, 16, 512, 2048, 8, 2, 10, 1, false, BENCH_VIT_TRAIN};

static attn_status make_model(bench_vit *v)
{
    const bench_vit_shape *s = &v->shape;
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"img_size", s->side},       {"patch_size", s->patch}, {"num_hiddens", s->hiddens},
                 {"mlp_num_hiddens", s->mlp}, {"num_heads", s->heads},  {"num_blks", s->blocks},
                 {"num_classes", s->classes}};
    attn_config *config;
    attn_status status = attn_config_create(&config, v->context);
    for (size_t i = 0; status == ATTN_OK && i < sizeof sizes / sizeof *sizes; i++)
        status = attn_config_set_int(config, sizes[i].key, sizes[i].value);
    if (status == ATTN_OK)
        status = attn_config_set_bool(config, "use_bias", s->bias);
    if (status == ATTN_OK)
        status = attn_model_create(&v->model, v->context, "vit", config, &(attn_model_options){.seed = 1});
    if (status == ATTN_OK && s->pass == BENCH_VIT_INFER)
        status = attn_model_pack_weights(v->model);
    attn_config_destroy(config);
    return status;
}

attn_status bench_vit_open(bench_vit *v, attn_context *context, const bench_vit_shape *shape)
{
    const int64_t pictures[] = {shape->batch, 3, shape->side, shape->side};
    v->shape = *shape;
    v->context = context;
    attn_status status = make_model(v);
    if (status == ATTN_OK)
        status = attn_tensor_create(&v->x, context, ATTN_F32, 4, pictures);
    if (status == ATTN_OK)
        status = attn_tensor_create(&v->labels, context, ATTN_I32, 1, pictures);
    if (status == ATTN_OK)
        status = attn_tape_create(&v->tape, context);
    if (status != ATTN_OK)
        return status;
    for (int64_t i = 0; i < attn_tensor_size(v->x); i++)
        ((float *)attn_tensor_data(v->x))[i] = (float)((i * 7919) % 1000) / 500 - 1;
    for (int64_t i = 0; i < shape->batch; i++)
        ((int32_t *)attn_tensor_data(v->labels))[i] = (int32_t)(i % shape->classes);
    return ATTN_OK;
}

attn_status bench_vit_run(bench_vit *v)
{
    bool train = v->shape.pass == BENCH_VIT_TRAIN;
    attn_named_list inputs = {.context = v->context}, outputs = {.context = v->context};
    attn_tape_reset(v->tape, &(attn_tape_options){.record = train, .train = train, .seed = 1});
    attn_status status = attn_named_add(&inputs, "x", v->x);
    if (status == ATTN_OK)
        status = attn_model_forward(v->model, v->tape, &inputs, &outputs);
    if (status == ATTN_OK && train) {
        attn_tensor *loss = attn_cross_entropy(v->tape, outputs.items[0].tensor, v->labels, NULL);
        status = loss ? attn_backward(v->tape, loss) : attn_context_status(v->context);
    }
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    return status;
}

void bench_vit_close(bench_vit *v)
{
    attn_tape_destroy(v->tape);
    attn_tensor_destroy(v->labels);
    attn_tensor_destroy(v->x);
    attn_model_destroy(v->model);
    *v = (bench_vit){0};
}

double bench_vit_flops(const bench_vit_shape *s)
{
    double d = (double)s->hiddens, grid = (double)s->side / (double)s->patch, tokens = grid * grid + 1;
    double patch = 2 * grid * grid * 3 * (double)(s->patch * s->patch) * d;
    double block = 2 * tokens * (4 * d * d + 2 * d * (double)s->mlp) + 4 * tokens * tokens * d;
    double forward = (double)s->batch * (patch + (double)s->blocks * block + 2 * d * (double)s->classes);
    return forward * (s->pass == BENCH_VIT_TRAIN ? 3 : 1);
}
