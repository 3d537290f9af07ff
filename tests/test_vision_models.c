/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests whole networks over images. Networks must have their published sizes, and checkpoints of Vision Transformers
 * are loaded with the names of other programs.
 */
#include "support/fixture.h"
#include "support/scratch.h"
#include "support/tensors.h"

#include "attn/classify.h"
#include "attn/trainer.h"
#include "apps/checkpoint/convert.h"
#include "apps/checkpoint/vit_config.h"
#include "io/images/image.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static attn_model *make_by(attn_context *context, const char *architecture, const char *json,
                           const attn_model_options *options)
{
    attn_config *config = NULL;
    attn_model *model = NULL;
    assert_int_equal(attn_config_parse(&config, context, json, strlen(json), "test"), ATTN_OK);
    if (attn_model_create(&model, context, architecture, config, options) != ATTN_OK)
        fail_msg("%s", attn_context_error(context));
    attn_config_destroy(config);
    return model;
}

static attn_model *make(attn_context *context, const char *architecture, const char *json)
{
    return make_by(context, architecture, json, &(attn_model_options){.seed = 5});
}

/* Returns the number of elements of all tensors, or of trained tensors, which excludes running statistics. */
static int64_t numbers_of(const char *architecture, const char *json, bool trained)
{
    attn_context *context = test_context();
    attn_model *model = make_by(context, architecture, json, &(attn_model_options){.blank = true});
    const attn_named_list *list = attn_model_parameters(model);
    int64_t n = 0;
    for (int64_t i = 0; i < list->n; i++)
        n += !trained || attn_tensor_requires_grad(list->items[i].tensor) ? attn_tensor_size(list->items[i].tensor) : 0;
    attn_model_destroy(model);
    end_context(context);
    return n;
}

static int64_t count(const char *architecture, const char *json)
{
    return numbers_of(architecture, json, true);
}

static int64_t size_of(const char *architecture, const char *json)
{
    return numbers_of(architecture, json, false);
}

/* The expected sizes are published, or come from the code of the originals. */
static void networks_have_the_published_sizes(void **state)
{
    assert_int_equal(count("vit",
                           "{\"img_size\": 224, \"num_hiddens\": 768, \"mlp_num_hiddens\": 3072, \"num_heads\": 12, "
                           "\"num_blks\": 12, \"use_bias\": true, \"num_classes\": 1000}"),
                     86567656);
    /* The model of Dive into Deep Learning is for 96 x 96 pixels. */
    assert_int_equal(count("vit", "{\"in_channels\": 1}"), 6457866);
    assert_int_equal(count("sasa-resnet", "{\"depth\": 26}"), 10342632);
    assert_int_equal(count("sasa-resnet", "{\"depth\": \"38\"}"), 14190632);
    assert_int_equal(count("sasa-resnet", "{\"depth\": 50}"), 18038632);
    assert_int_equal(count("sasa-resnet", "{\"stem\": \"small\", \"num_classes\": 10}"), 8306442);
    /* 6 matrices of 3 x 64 and 12 vectors of 64 replace 9408 weights of 7 x 7. */
    assert_int_equal(count("sasa-resnet", "{\"stem\": \"attention\"}"), 10342632 - 9408 + 6 * 3 * 64 + 12 * 64);
    assert_int_equal(count("axial-resnet", "{}"), 5944936); /* this is Axial-ResNet-26-S */
    assert_int_equal(count("resnet", "{\"backbone\": \"resnet18\"}"), 11689512);
    assert_int_equal(count("resnet", "{\"backbone\": \"resnet34\"}"), 21797672);
    assert_int_equal(count("resnet", "{}"), 25557032);
    assert_int_equal(count("resnet", "{\"backbone\": \"resnet101\"}"), 44549160);
    assert_int_equal(count("detr", "{}"), 41302368); /* The stem and the first stage are not trained. */
    assert_int_equal(count("detr", "{\"frozen_stages\": 0, \"dilation\": true}"), 41524768);
    assert_int_equal(size_of("detr", "{}"), 41631008); /* The size includes the frozen norms. */
    assert_int_equal(size_of("detr", "{\"backbone\": \"resnet101\"}"), 60675360);
}

/* Depths are numbers. A text such as "38" is accepted, and becomes a number in the config. */
static void only_known_depths_are_taken(void **state)
{
    attn_context *context = *state;
    attn_model *model = make(context, "sasa-resnet", "{\"depth\": \"26\", \"width\": 8}");
    assert_int_equal(attn_config_int(attn_model_config(model), "depth", 0), 26);
    attn_model_destroy(model);
    static const char *const wrong[] = {"27", "\"27\"", "26.5", "true"};
    for (int i = 0; i < 4; i++) {
        char json[64];
        attn_config *config = NULL;
        snprintf(json, sizeof json, "{\"depth\": %s}", wrong[i]);
        assert_int_equal(attn_config_parse(&config, context, json, strlen(json), "test"), ATTN_OK);
        assert_int_equal(attn_model_create(&model, context, "sasa-resnet", config, NULL), ATTN_ERROR_ARGUMENT);
        assert_non_null(strstr(attn_context_error(context),
                               i < 2 ? "depth is 27; allowed: 26, 38, 50" : "depth must be an integer"));
        attn_config_destroy(config);
        attn_context_clear_error(context);
    }
}

/* Checks the column of the table that each pair reads. Columns have the order of the original's files. */
static void positions_are_numbered_as_in_the_original(void **state)
{
    enum { L = 5 };
    attn_context *context = *state;
    attn_model *model = make(context, "position-sensitive-attention",
                             "{\"in_planes\": 4, \"out_planes\": 4, \"groups\": 2, \"kernel_size\": 5}");
    const attn_tensor *index = attn_named_find(attn_model_parameters(model), "flatten_index");
    assert_int_equal(attn_tensor_size(index), L * L);
    for (int i = 0; i < L; i++)
        for (int j = 0; j < L; j++)
            assert_true(test_at(index, i * L + j) == i - j + L - 1);
    attn_model_destroy(model);
}

/* Returns the output `name` of a model for a picture, or NULL if the model does not have it. */
static attn_tensor *output_of(attn_model *model, attn_tape *tape, attn_tensor *x, const char *name)
{
    attn_context *context = attn_tape_context(tape);
    attn_named_list in = {.context = context}, out = {.context = context};
    attn_named_add(&in, "x", x);
    attn_named_add(&out, name, NULL);
    assert_int_equal(attn_model_forward(model, tape, &in, &out), ATTN_OK);
    attn_tensor *y = attn_named_find(&out, name);
    attn_named_clear(&in);
    attn_named_clear(&out);
    return y;
}

/* With 26 layers, 2 blocks attend at the stem's resolution, 2 at half of it, 4 at a quarter and none at an eighth,
 * because the first block of a stage attends before it halves the resolution. With 38 layers, the stages have 2, 3,
 * 5 and 2 blocks. The weights of each window sum to 1. */
static void windows_of_a_residual_network(void **state)
{
    attn_context *context = *state;
    static const int64_t blocks[2][4] = {{2, 2, 4, 0}, {3, 3, 5, 1}}, sides[4] = {11, 5, 2, 1};
    for (int d = 0; d < 2; d++) {
        attn_context_clear_error(context);
        attn_tape *tape;
        attn_tape_create(&tape, context);
        attn_model *model = make(context, "sasa-resnet",
                                 d ? "{\"depth\": 38, \"stem\": \"small\", \"width\": 4, "
                                     "\"num_heads\": 2, \"kernel_size\": 3, \"in_channels\": 1, \"num_classes\": 3}"
                                   : "{\"stem\": \"small\", \"width\": 4, \"num_heads\": 2, \"kernel_size\": 3, "
                                     "\"in_channels\": 1, \"num_classes\": 3, \"padding\": \"mask\"}");
        attn_tensor *x = test_random(tape, ATTN_F32, 4, (int64_t[]){1, 1, 11, 11}, 3);
        for (int g = 0; g < 4; g++) {
            char name[16];
            snprintf(name, sizeof name, "windows_%d", g + 1);
            attn_tensor *w = output_of(model, tape, x, name);
            assert_non_null(w);
            assert_int_equal(attn_tensor_length(w, 0), blocks[d][g]);
            assert_int_equal(attn_tensor_length(w, 3), blocks[d][g] ? sides[g] : 0);
            for (int64_t i = 0; i < attn_tensor_size(w); i += 9) {
                double sum = 0;
                for (int64_t k = 0; k < 9; k++)
                    sum += test_at(w, i + k);
                assert_true(fabs(sum - 1) < 1e-5);
            }
        }
        attn_model_destroy(model);
        attn_tape_destroy(tape);
    }
}

/* ------------------------------------------------------------------------------------------- gradients */

static double weighted(const attn_tensor *logits)
{
    double sum = 0;
    for (int64_t i = 0; i < attn_tensor_size(logits); i++)
        sum += (double)(i + 1) / 7 * test_at(logits, i);
    return sum;
}

static double loss_of(attn_model *model, attn_tape *tape, attn_tensor *x)
{
    attn_tape_reset(tape, NULL);
    return weighted(output_of(model, tape, x, "logits"));
}

/* The tolerance is 1e-6 of the largest gradient, but at least 1e-9. */
static void compare_with_differences(attn_model *model, attn_tape *tape, attn_tensor *x, attn_tensor *p,
                                     const char *name, const double *gradient)
{
    const double step = 1e-5;
    double largest = 1e-3, off = 0;
    for (int64_t i = 0; i < attn_tensor_size(p); i++) {
        double value = test_at(p, i);
        test_set(p, i, value + step);
        double above = loss_of(model, tape, x);
        test_set(p, i, value - step);
        double below = loss_of(model, tape, x);
        test_set(p, i, value);
        largest = fmax(largest, fabs(gradient[i]));
        off = fmax(off, fabs((above - below) / (2 * step) - gradient[i]));
    }
    if (off > 1e-6 * largest)
        fail_msg("%s: a gradient is off by %g of %g", name, off, largest);
}

static void gradients_of_an_axial_classifier(void **state)
{
    enum { MOST = 512 };
    static double kept[64][MOST];
    attn_context *context = *state;
    attn_config *config = NULL;
    attn_model *model = NULL;
    attn_tape *tape;
    attn_tensor *x;
    static const char json[] = "{\"img_size\": 6, \"patch_size\": 2, \"in_channels\": 2, \"num_hiddens\": 6, "
                               "\"mlp_num_hiddens\": 5, \"num_heads\": 2, \"num_blks\": 1, \"num_classes\": 3}";
    assert_int_equal(attn_config_parse(&config, context, json, strlen(json), "test"), ATTN_OK);
    assert_int_equal(attn_model_create(&model, context, "axial-classifier", config,
                                       &(attn_model_options){.seed = 9, .dtype = ATTN_F64}),
                     ATTN_OK);
    attn_config_destroy(config);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    assert_int_equal(attn_tensor_create(&x, context, ATTN_F64, 4, (int64_t[]){2, 2, 6, 6}), ATTN_OK);
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        test_set(x, i, sin(1.7 * (double)i));
    const attn_named_list *list = attn_model_parameters(model);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    attn_tensor *logits = output_of(model, tape, x, "logits");
    attn_tensor *c = attn_tape_tensor(tape, ATTN_F64, 2, (int64_t[]){2, 3}, NULL);
    for (int64_t i = 0; i < 6; i++)
        test_set(c, i, (double)(i + 1) / 7);
    attn_tensor *loss = attn_sum(tape, attn_reshape(tape, attn_mul(tape, logits, c), 1, (int64_t[]){6}), 0);
    assert_int_equal(attn_backward(tape, loss), ATTN_OK);
    assert_true(list->n <= 64);
    for (int64_t i = 0; i < list->n; i++) {
        attn_tensor *p = list->items[i].tensor;
        assert_true(attn_tensor_size(p) <= MOST);
        assert_non_null(attn_tensor_grad(p));
        for (int64_t j = 0; j < attn_tensor_size(p); j++)
            kept[i][j] = test_at(attn_tensor_grad(p), j);
    }
    for (int64_t i = 0; i < list->n; i++)
        compare_with_differences(model, tape, x, list->items[i].tensor, list->items[i].name, kept[i]);
    attn_tensor_destroy(x);
    attn_tape_destroy(tape);
    attn_model_destroy(model);
}

/* ------------------------------------------------------------------------------------------- checkpoints */

/* Names of the parameters of a model with one block. timm's files have queries, keys and values in one tensor. */
static const char *const hf_names[][2] = {
    {"cls_token", "vit.embeddings.cls_token"},
    {"pos_embedding", "vit.embeddings.position_embeddings"},
    {"patch_embedding.conv.weight", "vit.embeddings.patch_embeddings.projection.weight"},
    {"patch_embedding.conv.bias", "vit.embeddings.patch_embeddings.projection.bias"},
    {"blks.0.ln1.weight", "vit.encoder.layer.0.layernorm_before.weight"},
    {"blks.0.ln1.bias", "vit.encoder.layer.0.layernorm_before.bias"},
    {"blks.0.attention.W_q.weight", "vit.encoder.layer.0.attention.attention.query.weight"},
    {"blks.0.attention.W_q.bias", "vit.encoder.layer.0.attention.attention.query.bias"},
    {"blks.0.attention.W_k.weight", "vit.encoder.layer.0.attention.attention.key.weight"},
    {"blks.0.attention.W_k.bias", "vit.encoder.layer.0.attention.attention.key.bias"},
    {"blks.0.attention.W_v.weight", "vit.encoder.layer.0.attention.attention.value.weight"},
    {"blks.0.attention.W_v.bias", "vit.encoder.layer.0.attention.attention.value.bias"},
    {"blks.0.attention.W_o.weight", "vit.encoder.layer.0.attention.output.dense.weight"},
    {"blks.0.attention.W_o.bias", "vit.encoder.layer.0.attention.output.dense.bias"},
    {"blks.0.ln2.weight", "vit.encoder.layer.0.layernorm_after.weight"},
    {"blks.0.ln2.bias", "vit.encoder.layer.0.layernorm_after.bias"},
    {"blks.0.mlp.dense1.weight", "vit.encoder.layer.0.intermediate.dense.weight"},
    {"blks.0.mlp.dense1.bias", "vit.encoder.layer.0.intermediate.dense.bias"},
    {"blks.0.mlp.dense2.weight", "vit.encoder.layer.0.output.dense.weight"},
    {"blks.0.mlp.dense2.bias", "vit.encoder.layer.0.output.dense.bias"},
    {"head.0.weight", "vit.layernorm.weight"},
    {"head.0.bias", "vit.layernorm.bias"},
    {"head.1.weight", "classifier.weight"},
    {"head.1.bias", "classifier.bias"},
};
static const char *const timm_names[][2] = {
    {"cls_token", "cls_token"},
    {"pos_embedding", "pos_embed"},
    {"patch_embedding.conv.weight", "patch_embed.proj.weight"},
    {"patch_embedding.conv.bias", "patch_embed.proj.bias"},
    {"blks.0.ln1.weight", "blocks.0.norm1.weight"},
    {"blks.0.ln1.bias", "blocks.0.norm1.bias"},
    {"blks.0.attention.W_o.weight", "blocks.0.attn.proj.weight"},
    {"blks.0.attention.W_o.bias", "blocks.0.attn.proj.bias"},
    {"blks.0.ln2.weight", "blocks.0.norm2.weight"},
    {"blks.0.ln2.bias", "blocks.0.norm2.bias"},
    {"blks.0.mlp.dense1.weight", "blocks.0.mlp.fc1.weight"},
    {"blks.0.mlp.dense1.bias", "blocks.0.mlp.fc1.bias"},
    {"blks.0.mlp.dense2.weight", "blocks.0.mlp.fc2.weight"},
    {"blks.0.mlp.dense2.bias", "blocks.0.mlp.fc2.bias"},
    {"head.0.weight", "norm.weight"},
    {"head.0.bias", "norm.bias"},
    {"head.1.weight", "head.weight"},
    {"head.1.bias", "head.bias"},
};

static const char small[] = "{\"img_size\": 8, \"patch_size\": 4, \"num_hiddens\": 128, \"mlp_num_hiddens\": 12, "
                            "\"num_heads\": 2, \"num_blks\": 1, \"use_bias\": true, \"num_classes\": 3, "
                            "\"layer_norm_eps\": 1e-6}";

static void rename_all(attn_named_list *to, const attn_named_list *from, const char *const names[][2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        attn_tensor *tensor = attn_named_find(from, names[i][0]);
        assert_non_null(tensor);
        assert_int_equal(attn_named_add(to, names[i][1], tensor), ATTN_OK);
    }
}

static void pack(attn_tape *tape, attn_named_list *to, const attn_named_list *from, const char *what)
{
    attn_tensor *parts[3];
    char name[64];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "blks.0.attention.W_%c.%s", "qkv"[i], what);
        parts[i] = attn_named_find(from, name);
    }
    snprintf(name, sizeof name, "blocks.0.attn.qkv.%s", what);
    assert_int_equal(attn_named_add(to, name, attn_concat(tape, parts, 3, 0)), ATTN_OK);
}

static attn_tensor *logits_of_image(attn_model *model, attn_tape *tape, int64_t height, int64_t width)
{
    attn_context *context = attn_model_context(model);
    attn_named_list in = {.context = context}, out = {.context = context};
    attn_named_add(&in, "x", test_random(tape, ATTN_F32, 4, (int64_t[]){2, 3, height, width}, 9));
    assert_ok(context, attn_model_forward(model, tape, &in, &out));
    attn_tensor *logits = attn_named_find(&out, "logits");
    attn_named_clear(&in);
    attn_named_clear(&out);
    return logits;
}

static attn_tensor *logits_of(attn_model *model, attn_tape *tape, int64_t side)
{
    return logits_of_image(model, tape, side, side);
}

typedef struct fixture {
    attn_context *context;
    attn_tape *tape;
    attn_model *model;
    attn_named_list renamed;
    char folder[64], file[128];
} fixture;

static int begin(void **state)
{
    static fixture f;
    f = (fixture){.context = test_context()};
    f.renamed.context = f.context;
    attn_tape_create(&f.tape, f.context);
    attn_tape_reset(f.tape, &(attn_tape_options){0});
    f.model = make(f.context, "vit", small);
    attn_named_list *own = attn_model_parameters(f.model);
    /* Random numbers replace the zero biases, so that every parameter matters. */
    for (int64_t i = 0; i < own->n; i++) {
        attn_tensor *t = own->items[i].tensor,
                    *r = test_random(f.tape, ATTN_F32, attn_tensor_rank(t), attn_tensor_shape(t), (uint64_t)i + 50);
        for (int64_t j = 0; j < attn_tensor_size(t); j++)
            test_set(t, j, test_at(t, j) + 0.1 * test_at(r, j));
    }
    scratch_open(f.folder);
    snprintf(f.file, sizeof f.file, "%s/model.safetensors", f.folder);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    fixture *f = *state;
    (void)scratch_close(f->folder);
    attn_named_clear(&f->renamed);
    attn_model_destroy(f->model);
    attn_tape_destroy(f->tape);
    end_context(f->context);
    return 0;
}

static void load_and_compare(fixture *f, const char *path, const attn_vit_options *options)
{
    attn_model *loaded = NULL;
    assert_ok(f->context, attn_vit_load(&loaded, f->context, path, options));
    attn_tensor *logits = logits_of(loaded, f->tape, 8);
    assert_true(test_distance(logits, logits_of(f->model, f->tape, 8)) == 0);
    attn_model_destroy(loaded);
}

static void hugging_face_checkpoints_load(void **state)
{
    fixture *f = *state;
    static const char config[] = "{\"architectures\": [\"ViTForImageClassification\"], \"num_attention_heads\": 2, "
                                 "\"layer_norm_eps\": 1e-6, \"hidden_act\": \"gelu\", \"id2label\": {\"0\": \"cat\"}}";
    char path[128];
    rename_all(&f->renamed, attn_model_parameters(f->model), hf_names, sizeof hf_names / sizeof *hf_names);
    assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
    attn_model *loaded = NULL;
    assert_refused(f->context, attn_vit_load(&loaded, f->context, f->folder, NULL), ATTN_ERROR_NOT_FOUND,
                   "config.json");
    snprintf(path, sizeof path, "%s/config.json", f->folder);
    assert_int_equal(attn_file_write(f->context, path, config, sizeof config - 1), ATTN_OK);
    load_and_compare(f, f->folder, NULL);
    load_and_compare(f, f->file, NULL);
    /* With images of another size, the model has the same parameters, and interpolates its positions when it runs. */
    attn_model *larger = NULL;
    assert_int_equal(attn_vit_load(&larger, f->context, f->file, &(attn_vit_options){.img_size = {20, 20}}), ATTN_OK);
    char json[512];
    snprintf(json, sizeof json, "%.*s, \"interpolate_positions\": true}", (int)(sizeof small - 2), small);
    attn_model *fitting = make(f->context, "vit", json);
    const attn_named_list *own = attn_model_parameters(f->model);
    assert_int_equal(attn_weights_assign(attn_model_parameters(fitting), own, NULL, NULL), ATTN_OK);
    assert_true(test_distance(logits_of(larger, f->tape, 20), logits_of(fitting, f->tape, 20)) < 1e-6);
    attn_model_destroy(fitting);
    attn_model_destroy(larger);
}

static void write_timm(fixture *f)
{
    const attn_named_list *own = attn_model_parameters(f->model);
    rename_all(&f->renamed, own, timm_names, sizeof timm_names / sizeof *timm_names);
    pack(f->tape, &f->renamed, own, "weight");
    pack(f->tape, &f->renamed, own, "bias");
    assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
}

static void write_beside(fixture *f, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    if (text)
        assert_int_equal(attn_file_write(f->context, path, text, strlen(text)), ATTN_OK);
    else
        unlink(path);
}

static void timm_checkpoints_load(void **state)
{
    fixture *f = *state;
    const attn_named_list *own = attn_model_parameters(f->model);
    const attn_vit_options heads = {.num_heads = 2};
    write_timm(f);
    load_and_compare(f, f->file, &heads);
    /* Positions must be resized as timm does. */
    attn_model *larger = NULL;
    float resized[25 * 128];
    const float *places = attn_tensor_data(attn_named_find(own, "pos_embedding")), *found;
    attn_vit_options large = {.num_heads = 2, .img_size = {20, 20}};
    assert_int_equal(attn_vit_load(&larger, f->context, f->file, &large), ATTN_OK);
    assert_int_equal(attn__resize_map(f->context, places + 128, (int64_t[]){2, 2}, resized, (int64_t[]){5, 5}, 128),
                     ATTN_OK);
    found = attn_tensor_data(attn_named_find(attn_model_parameters(larger), "pos_embedding"));
    assert_memory_equal(found, places, 128 * sizeof *found);
    assert_memory_equal(found + 128, resized, sizeof resized);
    attn_model_destroy(larger);
    attn_named_add(&f->renamed, "blocks.0.ls1.gamma", attn_named_find(own, "blks.0.ln1.bias"));
    assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
    assert_refused(f->context, attn_vit_load(&larger, f->context, f->file, &heads), ATTN_ERROR_UNSUPPORTED,
                   "blocks.0.ls1.gamma");
    assert_null(larger);
    attn_context_clear_error(f->context);
}

/* The number of heads does not follow from the width, because several models have this width. */
static void number_of_heads_comes_from_config_or_metadata(void **state)
{
    static const struct {
        const char *config;      /* text of config.json; NULL: there is no config.json */
        const char *key, *value; /* one entry of the weights' metadata */
        int64_t heads;           /* expected number of heads; 0: the model is refused */
    } cases[] = {
        {NULL, "x", "y", 0},
        {"{\"model_args\": {\"num_heads\": 4}}", "x", "y", 4},
        {"{\"architecture\": \"vit_tiny_patch4_8\"}", "x", "y", 3},
        {"{\"architecture\": \"vit_base_patch4_8\"}", "x", "y", 0},
        {"{\"architecture\": \"vit_tiny_patch4_8\", \"model_args\": {\"num_heads\": 6}}", "x", "y", 6},
        {NULL, "arch", "deit_tiny_patch4_8", 3},
        {NULL, "args.model", "vit_tiny_patch4_8.augreg", 3},
        {"{\"architecture\": \"vit\", \"num_heads\": 2}", "x", "y", 0},
    };
    fixture *f = *state;
    static const char wide[] = "{\"img_size\": 8, \"patch_size\": 4, \"num_hiddens\": 192, \"mlp_num_hiddens\": 12, "
                               "\"num_heads\": 3, \"num_blks\": 1, \"use_bias\": true, \"num_classes\": 3}";
    attn_model_destroy(f->model);
    f->model = make(f->context, "vit", wide);
    write_timm(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_model *loaded = NULL;
        attn_config *saved;
        assert_int_equal(attn_config_create(&saved, f->context), ATTN_OK);
        attn_config_set_text(saved, cases[i].key, cases[i].value);
        assert_int_equal(attn_safetensors_write(&f->renamed, f->file, saved), ATTN_OK);
        attn_config_destroy(saved);
        write_beside(f, "config.json", cases[i].config);
        attn_status status = attn_vit_load(&loaded, f->context, f->file, NULL);
        if (status != (cases[i].heads ? ATTN_OK : ATTN_ERROR_ARGUMENT))
            fail_msg("case %zu: %s", i, attn_context_error(f->context));
        if (cases[i].heads)
            assert_int_equal(attn_config_int(attn_model_config(loaded), "num_heads", 0), cases[i].heads);
        else
            assert_says(f->context, "attn convert --heads sets it");
        attn_context_clear_error(f->context);
        attn_model_destroy(loaded);
    }
}

/* The names of published plain models give the number of heads, if their width is that of the weights. */
static void heads_of_known_names(void **state)
{
    static const struct {
        const char *name;
        int64_t width, heads; /* 0: the model is refused */
    } cases[] = {
        {"vit_tiny_patch16_224", 192, 3},    {"deit_small_patch16_224", 384, 6}, {"vit_base_patch32_384", 768, 12},
        {"vit_large_patch16_224", 1024, 16}, {"vit_huge_patch14_224", 1280, 16}, {"vit_giant_patch14_224", 1408, 16},
        {"vit_gigantic_patch14", 1664, 16},  {"vit_large_patch16_224", 1280, 0}, {"swin_base_patch4_window7", 768, 0}};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn__vit_config v;
        int64_t heads;
        assert_int_equal(attn__vit_config_open(&v, f->context, f->folder), ATTN_OK);
        attn_config_set_text(v.is.saved, "arch", cases[i].name);
        assert_int_equal(attn__vit_heads(&v, cases[i].width, &heads), cases[i].heads ? ATTN_OK : ATTN_ERROR_ARGUMENT);
        assert_int_equal(heads, cases[i].heads);
        attn_context_clear_error(f->context);
        attn__vit_config_close(&v);
    }
}

/* Tests settings that contradict the shapes of tensors. timm resizes positions to the size in config.json, but
 * Hugging Face does not. */
static void settings_that_contradict_the_tensors(void **state)
{
    static const struct {
        bool timm;
        const char *config;
        int64_t size; /* 0: the model is refused with an error that contains `words` */
        const char *words;
    } cases[] = {
        {false, "{\"num_attention_heads\": 2, \"image_size\": 8}", 8, ""},
        {false, "{\"num_attention_heads\": 2, \"image_size\": [8, 8]}", 8, ""},
        {false, "{\"num_attention_heads\": 2, \"image_size\": 10}", 0, "pictures of 10 x 10 pixels"},
        {false, "{\"num_attention_heads\": 2, \"image_size\": [4, 8]}", 0, "pictures of 4 x 8 pixels"},
        {false, "{\"num_attention_heads\": 2, \"image_size\": 16}", 0,
         "2 x 2 patches of 4 pixels; expected square pictures of 8"},
        {false, "{\"num_attention_heads\": 2, \"image_size\": -8}", 0, "pictures of -8 x -8 pixels"},
        {false, "{\"num_attention_heads\": 2, \"patch_size\": 2}", 0,
         "\"patch_size\" is 2, but the shapes of the tensors give 4"},
        {false, "{\"num_attention_heads\": 2, \"num_hidden_layers\": 3}", 0, "\"num_hidden_layers\" is 3"},
        {false, "{\"num_attention_heads\": 2, \"qkv_bias\": false}", 0, "\"qkv_bias\" is \"false\""},
        {false, "{\"num_attention_heads\": 2, \"hidden_size\": 64}", 0, "\"hidden_size\" is 64"},
        {true, "{\"pretrained_cfg\": {\"input_size\": [3, 8, 8]}}", 8, ""},
        {true, "{\"pretrained_cfg\": {\"input_size\": [3, 12, 12]}}", 12, ""},
        {true, "{\"model_args\": {\"img_size\": 16}, \"pretrained_cfg\": {\"input_size\": [3, 8, 8]}}", 16, ""},
        {true, "{\"pretrained_cfg\": {\"input_size\": [3, 8, 16]}}", 0, "pictures of 8 x 16 pixels"},
        {true, "{\"pretrained_cfg\": {\"input_size\": [3, 10, 10]}}", 0, "pictures of 10 x 10 pixels"},
        {true, "{\"global_pool\": \"avg\"}", 0, "\"global_pool\" is \"avg\""},
        {true, "{\"global_pool\": \"token\", \"model_args\": {\"global_pool\": \"avg\", \"fc_norm\": false}}", 0,
         "\"model_args.global_pool\" is \"avg\""},
        {true, "{\"model_args\": {\"global_pool\": \"max\"}}", 0, "\"model_args.global_pool\" is \"max\""},
        {true, "{\"model_args\": {\"global_pool\": \"token\", \"act_layer\": \"gelu\"}}", 8, ""},
        {true, "{\"model_args\": {\"act_layer\": \"relu\"}}", 0, "\"model_args.act_layer\" is \"relu\""},
        {true, "{\"model_args\": {\"norm_layer\": \"rmsnorm\"}}", 0, "\"model_args.norm_layer\" is \"rmsnorm\""},
        {true, "{\"architecture\": \"vit_base_patch16_clip_quickgelu_224\"}", 0, "has quickgelu"},
        {true, "{\"architecture\": \"vit_base_patch16_gap_224\"}", 0, "has a mean over the patches"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_model *loaded = NULL;
        const attn_vit_options heads = {.num_heads = cases[i].timm ? 2 : 0};
        attn_named_clear(&f->renamed);
        f->renamed.context = f->context;
        if (cases[i].timm)
            write_timm(f);
        else
            rename_all(&f->renamed, attn_model_parameters(f->model), hf_names, sizeof hf_names / sizeof *hf_names);
        assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
        write_beside(f, "config.json", cases[i].config);
        if ((attn_vit_load(&loaded, f->context, f->file, &heads) == ATTN_OK) != (cases[i].size > 0))
            fail_msg("case %zu: %s", i, attn_context_error(f->context));
        if (cases[i].size)
            assert_int_equal(attn_config_int(attn_model_config(loaded), "img_size", 0), cases[i].size);
        else if (!strstr(attn_context_error(f->context), cases[i].words))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, attn_context_error(f->context), cases[i].words);
        attn_context_clear_error(f->context);
        attn_model_destroy(loaded);
    }
}

/* Checks the positions of a model of 2 x 6 patches for pictures of another size. If `timm` is true, they are resized
 * when the model is loaded, and otherwise when it runs. */
static void expect_positions(fixture *f, bool timm, const attn_vit_options *options)
{
    attn_model *loaded = NULL;
    const int64_t rows = options->img_size[0] / 4, cols = options->img_size[1] / 2, width = 128;
    const attn_named_list *own = attn_model_parameters(f->model);
    assert_ok(f->context, attn_vit_load(&loaded, f->context, f->file, options));
    const float *found = attn_tensor_data(attn_named_find(attn_model_parameters(loaded), "pos_embedding"));
    if (timm) {
        float resized[18 * 128];
        const float *places = attn_tensor_data(attn_named_find(own, "pos_embedding"));
        assert_int_equal(
            attn__resize_map(f->context, places + width, (int64_t[]){2, 6}, resized, (int64_t[]){rows, cols}, width),
            ATTN_OK);
        assert_memory_equal(found, places, (size_t)width * sizeof *found);
        assert_memory_equal(found + width, resized, (size_t)(rows * cols * width) * sizeof *found);
    } else {
        char json[512];
        snprintf(json, sizeof json, "{\"img_size\": [8, 12], \"patch_size\": [4, 2], \"interpolate_positions\": true%s",
                 strstr(small, ", \"num_hiddens\""));
        attn_model *fitting = make(f->context, "vit", json);
        assert_int_equal(attn_weights_assign(attn_model_parameters(fitting), own, NULL, NULL), ATTN_OK);
        assert_true(test_distance(logits_of_image(loaded, f->tape, options->img_size[0], options->img_size[1]),
                                  logits_of_image(fitting, f->tape, options->img_size[0], options->img_size[1])) <
                    1e-6);
        attn_model_destroy(fitting);
    }
    attn_model_destroy(loaded);
}

/* Converts the checkpoint to a classifier's directory for pictures of 24 x 4 pixels and checks it. */
static void expect_converted(fixture *f, const attn_vit_options *options)
{
    char made[64];
    attn_classifier *classifier = NULL;
    unsigned char pixels[24 * 4 * 3] = {9};
    attn_image image = {.width = 4, .height = 24, .channels = 3, .pixels = pixels};
    attn_prediction guess;
    attn_bytes page = {0};
    scratch_open(made);
    assert_ok(f->context, attn_vit_convert(f->context, f->file, options, NULL, made));
    assert_ok(f->context, attn_classifier_load(&classifier, f->context, made, NULL));
    assert_int_equal(attn_classifier_shape(classifier).height, 24);
    assert_int_equal(attn_classifier_shape(classifier).width, 4);
    assert_ok(f->context, attn_classifier_classify(classifier, &image, 1, 1, &guess));
    assert_ok(f->context, attn_classifier_render_attention(classifier, &image, NULL, ATTN_PLOT_HTML, &page, &guess));
    attn_bytes_free(f->context, &page);
    attn_classifier_destroy(classifier);
    scratch_close(made);
}

/* Tests pictures or patches that are not square. The model's settings must have the numbers of rows and columns of
 * the positions. */
static void oblong_checkpoints_load(void **state)
{
    static const struct {
        bool timm;
        const char *config, *words; /* words: part of the error if the case is refused */
    } cases[] = {
        {false,
         "{\"num_attention_heads\": 2, \"layer_norm_eps\": 1e-6, \"image_size\": [8, 12], \"patch_size\": [4, 2]}",
         NULL},
        {true, "{\"pretrained_cfg\": {\"input_size\": [3, 8, 12]}}", NULL},
        {true, "{\"model_args\": {\"img_size\": [8, 12]}}", NULL},
        {true, "{\"model_args\": {\"img_size\": [8, 16]}}",
         "the patches are not square (4 x 2 pixels), so a config.json must give"},
        {true, "{}", "so a config.json must give an image size that makes the 12 patches"},
    };
    fixture *f = *state;
    char json[512];
    snprintf(json, sizeof json, "{\"img_size\": [8, 12], \"patch_size\": [4, 2]%s", strstr(small, ", \"num_hiddens\""));
    attn_model_destroy(f->model);
    f->model = make(f->context, "vit", json);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_model *loaded = NULL;
        attn_vit_options options = {.num_heads = cases[i].timm ? 2 : 0};
        attn_named_clear(&f->renamed);
        f->renamed.context = f->context;
        if (cases[i].timm)
            write_timm(f);
        else
            rename_all(&f->renamed, attn_model_parameters(f->model), hf_names, sizeof hf_names / sizeof *hf_names);
        assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
        write_beside(f, "config.json", cases[i].config);
        if ((attn_vit_load(&loaded, f->context, f->file, &options) == ATTN_OK) != !cases[i].words)
            fail_msg("case %zu: %s", i, attn_context_error(f->context));
        if (cases[i].words && !strstr(attn_context_error(f->context), cases[i].words))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, attn_context_error(f->context), cases[i].words);
        attn_context_clear_error(f->context);
        if (!loaded)
            continue;
        assert_true(test_distance(logits_of_image(loaded, f->tape, 8, 12), logits_of_image(f->model, f->tape, 8, 12)) ==
                    0);
        attn_model_destroy(loaded);
        options.img_size[0] = options.img_size[1] = 12;
        expect_positions(f, cases[i].timm, &options);
        options.img_size[0] = 24;
        options.img_size[1] = 4;
        expect_positions(f, cases[i].timm, &options);
        expect_converted(f, &options);
    }
}

/* timm saves the arguments of a training with the weights. They have the same effect as config.json. */
static void trainings_of_another_form_are_refused(void **state)
{
    static const struct {
        const char *key, *value;
        attn_status status;
    } cases[] = {{"args.gp", "token", ATTN_OK},
                 {"args.gp", "avg", ATTN_ERROR_UNSUPPORTED},
                 {"args.model_kwargs.global_pool", "avg", ATTN_ERROR_UNSUPPORTED},
                 {"args.model_kwargs.act_layer", "relu", ATTN_ERROR_UNSUPPORTED},
                 {"args.model", "vit_base_patch16_clip_quickgelu_224", ATTN_ERROR_UNSUPPORTED}};
    fixture *f = *state;
    write_timm(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_model *loaded = NULL;
        attn_config *saved;
        assert_int_equal(attn_config_create(&saved, f->context), ATTN_OK);
        attn_config_set_text(saved, cases[i].key, cases[i].value);
        assert_int_equal(attn_safetensors_write(&f->renamed, f->file, saved), ATTN_OK);
        attn_config_destroy(saved);
        attn_status status = attn_vit_load(&loaded, f->context, f->file, &(attn_vit_options){.num_heads = 2});
        assert_int_equal(status, cases[i].status);
        assert_true(status == ATTN_OK || strstr(attn_context_error(f->context), cases[i].value));
        attn_context_clear_error(f->context);
        attn_model_destroy(loaded);
    }
}

/* Tests means, standard deviations and the filter, from files of either family. */
static void pictures_are_prepared_as_the_files_say(void **state)
{
    static const struct {
        bool timm;
        const char *config, *preparation;
        double mean, std; /* numbers of the first channel; std = 0: the file is refused */
        const char *filter;
        const char *resize;
        int64_t to;
    } cases[] = {
        {false, "{\"num_attention_heads\": 2}", "{\"resample\": 3, \"size\": {\"height\": 8, \"width\": 8}}", 0.5, 0.5,
         "bicubic", "squash", 0},
        {false, "{\"num_attention_heads\": 2}", "{\"resample\": 3, \"size\": 8}", 0.5, 0.5, "bicubic", "squash", 0},
        {false, "{\"num_attention_heads\": 2}", "{\"resample\": 3, \"size\": {\"shortest_edge\": 8}}", 0.5, 0.5,
         "bicubic", "cover", 0},
        {false, "{\"num_attention_heads\": 2}",
         "{\"resample\": 3, \"size\": {\"height\": 10, \"width\": 10}, \"do_center_crop\": true, \"crop_size\": 8}",
         0.5, 0.5, "bicubic", "squash", 10},
        {false, "{\"num_attention_heads\": 2}",
         "{\"resample\": 3, \"size\": {\"shortest_edge\": 10}, \"do_center_crop\": true, \"crop_size\": "
         "{\"height\": 8, \"width\": 8}}",
         0.5, 0.5, "bicubic", "cover", 10},
        {false, "{\"num_attention_heads\": 2}",
         "{\"image_processor_type\": \"CLIPImageProcessor\", \"resample\": 3, \"size\": 10, \"crop_size\": 8}", 0.5,
         0.5, "bicubic", "cover", 10},
        {false, "{\"num_attention_heads\": 2}", "{\"size\": {\"height\": 10, \"width\": 10}}", 0, 0,
         "resizes to 10 x 10 and cuts out 10 x 10 for a model of 8 x 8", NULL, 0},
        {false, "{\"num_attention_heads\": 2}", "{\"size\": 10, \"do_center_crop\": true, \"crop_size\": 9}", 0, 0,
         "cuts out 9 x 9", NULL, 0},
        {false, "{\"num_attention_heads\": 2}", "{\"do_resize\": false, \"do_center_crop\": true}", 0, 0,
         "without \"do_resize\"", NULL, 0},
        {false, "{\"num_attention_heads\": 2}", "{\"size\": {\"shortest_edge\": 8, \"longest_edge\": 16}}", 0, 0,
         "longest_edge", NULL, 0},
        {false, "{\"num_attention_heads\": 2}", NULL, 0.5, 0.5, "bicubic", "cover", 0},
        {false, "{\"num_attention_heads\": 2}",
         "{\"image_mean\": [0.485, 0.456, 0.406], \"image_std\": [0.229, 0.224, 0.225], \"resample\": 3}", 0.485, 0.229,
         "bicubic", "squash", 0},
        {false, "{\"num_attention_heads\": 2}",
         "{\"image_mean\": [0, 0, 0], \"image_std\": [1, 1, 1], \"resample\": 2}", 0, 1, "bilinear", "squash", 0},
        {false, "{\"num_attention_heads\": 2}", "{\"do_normalize\": false, \"rescale_factor\": 0.00392156862745098}", 0,
         1, "bilinear", "squash", 0},
        {false, "{\"num_attention_heads\": 2}",
         "{\"do_rescale\": false, \"image_mean\": [127.5], \"image_std\": [127.5], \"resample\": 3}", 0.5, 0.5,
         "bicubic", "squash", 0},
        {false, "{\"num_attention_heads\": 2}", "{\"resample\": 1}", 0, 0, "lanczos interpolation", NULL, 0},
        {false, "{\"num_attention_heads\": 2}", "{\"image_mean\": [123, 117, 104]}", 0, 0,
         "the mean that is subtracted from pixels is 123; it must be 0 to 1; attn convert --mean sets it", NULL, 0},
        {true,
         "{\"pretrained_cfg\": {\"mean\": [0.25, 0.5, 0.5], \"std\": [0.125, 1, 1], \"interpolation\": \"bilinear\"}}",
         NULL, 0.25, 0.125, "bilinear", "cover", 0},
        {true, "{\"pretrained_cfg\": {\"mean\": [0, 0, 0], \"std\": [1, 1, 1], \"interpolation\": \"bicubic\"}}", NULL,
         0, 1, "bicubic", "cover", 0},
        {true, "{\"pretrained_cfg\": {\"interpolation\": \"random\"}}", NULL, 0, 0, "random interpolation", NULL, 0},
    };
    fixture *f = *state;
    char made[64], path[128];
    scratch_open(made);
    snprintf(path, sizeof path, "%s/config.json", made);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_vit_options heads = {.num_heads = 2};
        attn_config *config = NULL;
        attn_named_clear(&f->renamed);
        f->renamed.context = f->context;
        if (cases[i].timm)
            write_timm(f);
        else
            rename_all(&f->renamed, attn_model_parameters(f->model), hf_names, sizeof hf_names / sizeof *hf_names);
        assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
        write_beside(f, "config.json", cases[i].config);
        write_beside(f, "preprocessor_config.json", cases[i].preparation);
        attn_status status = attn_vit_convert(f->context, f->folder, &heads, NULL, made);
        if ((status == ATTN_OK) != (cases[i].std > 0))
            fail_msg("case %zu: %s", i, attn_context_error(f->context));
        if (status != ATTN_OK) {
            if (!strstr(attn_context_error(f->context), cases[i].filter))
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, attn_context_error(f->context), cases[i].filter);
            attn_context_clear_error(f->context);
            continue;
        }
        assert_int_equal(attn_config_read(&config, f->context, path), ATTN_OK);
        assert_true(fabs(attn_config_real(config, "mean.0", -1) - cases[i].mean) < 1e-7);
        assert_true(fabs(attn_config_real(config, "std.0", -1) - cases[i].std) < 1e-7);
        assert_string_equal(attn_config_text(config, "interpolation", "bicubic"), cases[i].filter);
        assert_int_equal(attn_config_int(config, "resize_to", 0), cases[i].to);
        assert_string_equal(attn_config_text(config, "resize", "cover"), cases[i].resize);
        attn_config_destroy(config);
    }
    scratch_close(made);
}

/* A converted checkpoint, and a checkpoint that a classifier reads itself, must give the same logits and class names. */
static void expect_classifier(fixture *f, const char *path)
{
    attn_classifier *classifier = NULL;
    const attn_trainer *trainer = NULL;
    assert_ok(f->context, attn_classifier_load(&classifier, f->context, path, NULL));
    attn_tensor *logits = logits_of(attn_classifier_model(classifier), f->tape, 8);
    assert_true(test_distance(logits, logits_of(f->model, f->tape, 8)) == 0);
    assert_string_equal(attn_classifier_class_name(classifier, 0), "0");
    assert_string_equal(attn_classifier_class_name(classifier, 1), "tench");
    assert_int_equal(attn_classifier_shape(classifier).width, 8);
    assert_ok(f->context, attn_trainer_of(&trainer, f->context, path, NULL));
    assert_string_equal(trainer ? trainer->kind : "none", "classify");
    attn_classifier_destroy(classifier);
}

static void checkpoints_become_classifiers(void **state)
{
    fixture *f = *state;
    static const char labels[] =
        "{\"num_attention_heads\": 2, \"layer_norm_eps\": 1e-6, \"id2label\": {\"1\": \"tench\"}}";
    char path[128], made[64];
    attn_checkpoint_kind kind;
    scratch_open(made);
    snprintf(path, sizeof path, "%s/config.json", f->folder);
    rename_all(&f->renamed, attn_model_parameters(f->model), hf_names, sizeof hf_names / sizeof *hf_names);
    assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
    assert_int_equal(attn_file_write(f->context, path, labels, sizeof labels - 1), ATTN_OK);
    for (int i = 0; i < 2; i++) {
        const char *from = i ? f->file : f->folder;
        assert_int_equal(attn_checkpoint_kind_of(&kind, f->context, from), ATTN_OK);
        assert_int_equal(kind, ATTN_CHECKPOINT_VIT);
        attn_pixel_scale scale = {{0.25f, 0.5f, 0.5f}, {1, 1, 0.125f}};
        assert_int_equal(attn_vit_convert(f->context, from, NULL, &scale, made), ATTN_OK);
        expect_classifier(f, made);
        expect_classifier(f, from);
    }
    assert_int_equal(attn_checkpoint_kind_of(&kind, f->context, "tests/data/pt/msa_tiny.pt"), ATTN_OK);
    assert_int_equal(kind, ATTN_CHECKPOINT_MSA);
    assert_int_equal(attn_checkpoint_kind_of(&kind, f->context, "tests/data/pt/linear.pt"), ATTN_OK);
    assert_int_equal(kind, ATTN_CHECKPOINT_OTHER);
    assert_int_equal(attn_checkpoint_kind_of(&kind, f->context, "no/such.pt"), ATTN_ERROR_NOT_FOUND);
    attn_context_clear_error(f->context);
    assert_int_equal(scratch_close(made), 2);
}

/* A wide picture is classified, evaluated and drawn like a picture that was squashed before. */
static void pictures_are_squashed_where_the_files_say_so(void **state)
{
    fixture *f = *state;
    char made[64], data[64], path[128];
    unsigned char pixels[20 * 8 * 3];
    attn_image wide = {.width = 20, .height = 8, .channels = 3, .pixels = pixels}, squashed = {0};
    attn_classifier *classifier = NULL;
    attn_prediction guesses[6];
    attn_classifier_score score;
    attn_bytes page = {0};
    double loss = 0;
    for (int i = 0; i < 20 * 8 * 3; i++)
        pixels[i] = (unsigned char)(i % 60 * 4 + i / 60);
    scratch_open(made);
    scratch_open(data);
    rename_all(&f->renamed, attn_model_parameters(f->model), hf_names, sizeof hf_names / sizeof *hf_names);
    assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
    write_beside(f, "config.json", "{\"num_attention_heads\": 2}");
    write_beside(f, "preprocessor_config.json",
                 "{\"resample\": 2, \"size\": 12, \"do_center_crop\": true, \"crop_size\": 8}");
    assert_int_equal(attn_vit_convert(f->context, f->file, NULL, NULL, made), ATTN_OK);
    assert_int_equal(attn_classifier_load(&classifier, f->context, made, NULL), ATTN_OK);
    assert_int_equal(attn_image_resize(&squashed, f->context, &wide, 12, 12, ATTN_IMAGE_FILTER_BILINEAR), ATTN_OK);
    assert_int_equal(attn_classifier_classify(classifier, &wide, 1, 3, guesses), ATTN_OK);
    assert_int_equal(attn_classifier_classify(classifier, &squashed, 1, 3, guesses + 3), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(guesses[i].label == guesses[i + 3].label);
        assert_true(fabs(guesses[i].probability - guesses[i + 3].probability) < 1e-7);
        loss -= log(guesses[i].probability) / 3;
        snprintf(path, sizeof path, "%s/%d", data, i);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/%d/a.png", data, i);
        assert_int_equal(attn_image_write(f->context, &wide, path), ATTN_OK);
    }
    assert_int_equal(attn_classifier_render_attention(classifier, &wide, NULL, ATTN_PLOT_HTML, &page, &guesses[3]),
                     ATTN_OK);
    assert_true(fabs(guesses[0].probability - guesses[3].probability) < 1e-6);
    attn_bytes_free(f->context, &page);
    assert_int_equal(attn_classifier_evaluate(classifier, data, ATTN_SPLIT_ALL, &score), ATTN_OK);
    assert_true(fabs(score.loss - loss) < 1e-6);
    attn_classifier_score_free(f->context, &score);
    attn_classifier_destroy(classifier);
    attn_image_free(f->context, &squashed);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%d", data, i);
        scratch_close(path);
    }
    scratch_close(data);
    scratch_close(made);
}

/* If NaN were accepted, it would look like the first class, and accuracy would count pictures of this class as
 * right. */
static void nan_logits_are_refused_by_the_classifier(void **state)
{
    fixture *f = *state;
    char made[64], data[64], path[128];
    unsigned char pixels[8 * 8 * 3] = {0};
    attn_image image = {.width = 8, .height = 8, .channels = 3, .pixels = pixels};
    attn_classifier *classifier = NULL;
    attn_prediction guess;
    attn_classifier_score score;
    attn_bytes picture = {0};
    attn_pixel_scale scale = {{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};
    scratch_open(made);
    snprintf(path, sizeof path, "%s/config.json", f->folder);
    rename_all(&f->renamed, attn_model_parameters(f->model), hf_names, sizeof hf_names / sizeof *hf_names);
    test_set(attn_named_find(attn_model_parameters(f->model), "head.1.bias"), 1, (double)NAN);
    assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
    static const char config[] = "{\"num_attention_heads\": 2, \"layer_norm_eps\": 1e-6}";
    assert_int_equal(attn_file_write(f->context, path, config, sizeof config - 1), ATTN_OK);
    assert_int_equal(attn_vit_convert(f->context, f->file, NULL, &scale, made), ATTN_OK);
    assert_int_equal(attn_classifier_load(&classifier, f->context, made, NULL), ATTN_OK);
    assert_refused(f->context, attn_classifier_classify(classifier, &image, 1, 1, &guess), ATTN_ERROR_UNSUPPORTED,
                   "the weights hold NaN");
    assert_int_equal(attn_classifier_render_attention(classifier, &image, NULL, ATTN_PLOT_HTML, &picture, &guess),
                     ATTN_ERROR_UNSUPPORTED);
    scratch_open(data);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%d", data, i);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/%d/a.png", data, i);
        assert_int_equal(attn_image_write(f->context, &image, path), ATTN_OK);
    }
    if (attn_classifier_evaluate(classifier, data, ATTN_SPLIT_ALL, &score) != ATTN_ERROR_UNSUPPORTED)
        fail_msg("%s", attn_context_error(f->context));
    assert_says(f->context, "the weights hold NaN");
    assert_null(score.confusion);
    attn_context_clear_error(f->context);
    attn_classifier_destroy(classifier);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%d", data, i);
        scratch_close(path);
    }
    scratch_close(data);
    scratch_close(made);
}

static void a_fresh_head_for_other_classes(void **state)
{
    fixture *f = *state;
    const attn_named_list *own = attn_model_parameters(f->model);
    attn_model *loaded = NULL;
    size_t all = sizeof timm_names / sizeof *timm_names;
    /* this leaves out the head, and the biases of queries, keys and values */
    rename_all(&f->renamed, own, timm_names, all - 2);
    pack(f->tape, &f->renamed, own, "weight");
    assert_int_equal(attn_safetensors_write(&f->renamed, f->file, NULL), ATTN_OK);
    assert_refused(f->context, attn_vit_load(&loaded, f->context, f->file, NULL), ATTN_ERROR_ARGUMENT,
                   "the weights have no classifier");
    attn_vit_options seven = {.num_heads = 2, .num_classes = 7};
    assert_int_equal(attn_vit_load(&loaded, f->context, f->file, &seven), ATTN_OK);
    assert_int_equal(attn_tensor_length(logits_of(loaded, f->tape, 8), 1), 7);
    assert_true(test_at(attn_named_find(attn_model_parameters(loaded), "blks.0.attention.W_k.bias"), 3) == 0);
    attn_model_destroy(loaded);
    static const char text[] = "nothing of the kind";
    assert_int_equal(attn_file_write(f->context, f->file, text, sizeof text), ATTN_OK);
    assert_int_not_equal(attn_vit_load(&loaded, f->context, f->file, NULL), ATTN_OK);
    attn_context_clear_error(f->context);
}

static void expect_other_size(fixture *f, attn_model *model, int64_t height, int64_t width, const char *said)
{
    attn_named_list in = {.context = f->context}, out = {.context = f->context};
    attn_named_add(&in, "x", test_random(f->tape, ATTN_F32, 4, (int64_t[]){2, 3, height, width}, 9));
    assert_refused(f->context, attn_model_forward(model, f->tape, &in, &out), ATTN_ERROR_SHAPE, said);
    attn_named_clear(&in);
    attn_named_clear(&out);
}

/* An image of another size is refused, even if it has the same number of whole patches or of features. */
static void images_of_another_size_are_refused(void **state)
{
    static const struct {
        const char *architecture, *json, *said;
        int64_t height, width;
    } others[] = {
        {"axial-classifier",
         "{\"img_size\": 4, \"patch_size\": 2, \"in_channels\": 3, \"num_hiddens\": 8, \"num_heads\": 2}",
         "2 x 8 pixels, but img_size is 4", 2, 8},
        {"non-local-net", "{\"img_size\": 16, \"in_channels\": 3}", "8 x 32 pixels, but img_size is 16", 8, 32},
        {"axial-resnet", "{\"img_size\": 32, \"s\": 0.0625, \"groups\": 2}", "31 x 32 pixels, but img_size is 32", 31,
         32},
    };
    fixture *f = *state;
    expect_other_size(f, f->model, 8, 9, "8 x 9 pixels, but img_size is 8");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        attn_model *model = make(f->context, others[i].architecture, others[i].json);
        expect_other_size(f, model, others[i].height, others[i].width, others[i].said);
        attn_model_destroy(model);
    }
}

/* A batch without images gives logits without rows, as in other networks. */
static void batches_of_no_images(void **state)
{
    static const struct {
        const char *architecture, *json;
        int64_t side;
        const char *output;
    } all[] = {
        {"vit", "{\"img_size\": 8, \"patch_size\": 4, \"num_hiddens\": 8, \"num_heads\": 2}", 8, "logits"},
        {"non-local-net", "{\"img_size\": 16, \"in_channels\": 3}", 16, "logits"},
        {"generalized-attention", "{\"M\": 1, \"d\": 3, \"position_dim\": 4}", 5, "out"},
        {"generalized-attention",
         "{\"M\": 1, \"d\": 3, \"position_dim\": 4, \"factors\": [\"query-key\", \"relpos-only\"]}", 5, "out"},
        {"generalized-attention",
         "{\"M\": 1, \"d\": 3, \"position_dim\": 4, \"factors\": [\"key-only\", \"query-relpos\"]}", 5, "out"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        attn_named_list in = {.context = f->context}, out = {.context = f->context};
        attn_model *model = make(f->context, all[i].architecture, all[i].json);
        attn_named_add(&in, "x",
                       attn_tape_tensor(f->tape, ATTN_F32, 4, (int64_t[]){0, 3, all[i].side, all[i].side}, NULL));
        if (attn_model_forward(model, f->tape, &in, &out) != ATTN_OK)
            fail_msg("%s: %s", all[i].architecture, attn_context_error(f->context));
        assert_int_equal(attn_tensor_length(attn_named_find(&out, all[i].output), 0), 0);
        attn_named_clear(&in);
        attn_named_clear(&out);
        attn_model_destroy(model);
    }
}

#define TEST_PREPARED(name) cmocka_unit_test_setup_teardown(name, begin, end)
RUN_TESTS(TEST(networks_have_the_published_sizes), TEST_WITH_CONTEXT(only_known_depths_are_taken),
          TEST_WITH_CONTEXT(positions_are_numbered_as_in_the_original), TEST_PREPARED(heads_of_known_names),
          TEST_WITH_CONTEXT(windows_of_a_residual_network), TEST_WITH_CONTEXT(gradients_of_an_axial_classifier),
          TEST_PREPARED(hugging_face_checkpoints_load), TEST_PREPARED(timm_checkpoints_load),
          TEST_PREPARED(number_of_heads_comes_from_config_or_metadata),
          TEST_PREPARED(settings_that_contradict_the_tensors), TEST_PREPARED(oblong_checkpoints_load),
          TEST_PREPARED(trainings_of_another_form_are_refused), TEST_PREPARED(pictures_are_prepared_as_the_files_say),
          TEST_PREPARED(checkpoints_become_classifiers), TEST_PREPARED(pictures_are_squashed_where_the_files_say_so),
          TEST_PREPARED(nan_logits_are_refused_by_the_classifier), TEST_PREPARED(a_fresh_head_for_other_classes),
          TEST_PREPARED(images_of_another_size_are_refused), TEST_PREPARED(batches_of_no_images))
