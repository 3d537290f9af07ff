/* SPDX-License-Identifier: MIT */
#include "apps/run/lora.h"

#include "apps/checkpoint/model_directory.h"
#include "apps/run/parts.h"
#include "nn/layers.h"
#include "io/json_writer.h"
#include "base/context.h"
#include "io/tensors/adapter.h"
#include "io/tensors/array.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

static const char prefix[] = "base_model.model.", weight[] = ".weight";

typedef struct adapted {
    int64_t parameter; /* index of the adapted weight among the model's parameters */
    attn__low_rank low_rank;
    /* the weight plus its adapter; it replaces the weight while adapters are merged; NULL until it is needed */
    attn_tensor *merged;
} adapted;

struct attn__run_lora {
    adapted *items;
    int64_t n;
    bool *base;
    int64_t nbase; /* number of the model's parameters without the factors of adapters */
    bool folded;
};

static attn_named *parameter_at(const attn__run *run, int64_t i)
{
    return &attn_model_parameters(run->model)->items[i];
}

bool attn__run_lora_is_base(const attn__run *run, int64_t i)
{
    return run->lora && i < run->lora->nbase && run->lora->base[i];
}

/* ------------------------------------------------------------------------------------------ what is frozen */

/* Reports whether this parameter is new. The table run->taken tells for each parameter whether it comes from the
 * checkpoint. */
static bool began_anew(const attn__run *run, const char *name)
{
    size_t size = strlen(name);
    const char *line = run->taken.size ? run->taken.data : "";
    for (; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *shape = line + strcspn(line, "\t\n");
        if ((size_t)(shape - line) != size || strncmp(line, name, size) != 0 || *shape != '\t')
            continue;
        const char *how = shape + 1 + strcspn(shape + 1, "\t\n");
        return strncmp(how, "\tanew", 5) == 0;
    }
    return false;
}

static void keep_whole(void *user, int64_t i)
{
    const attn__run *run = user;
    run->lora->base[i] = false;
}

/* Chooses the parameters that belong to the frozen base. New parameters, and those that the setting "lora_whole"
 * names, are trained. Buffers do not belong to the base either, because they change without being trained. */
static attn_status choose_base(attn__run *run)
{
    const char *whole = attn_config_text(run->settings, "lora_whole", "");
    for (int64_t i = 0; i < run->lora->nbase; i++) {
        const attn_named *p = parameter_at(run, i);
        run->lora->base[i] = attn_tensor_requires_grad(p->tensor) && !began_anew(run, p->name);
    }
    return *whole ? attn__run_matching(run, "lora_whole", whole, strlen(whole), keep_whole, run) : ATTN_OK;
}

/* Reads the parameters of the base for a resumed run. These are the parameters that the run's checkpoint does not
 * have. */
static attn_status read_base(attn__run *run)
{
    char path[ATTN__PATH], name[512];
    attn_checkpoint *checkpoint = NULL;
    attn_checkpoint_entry entry;
    attn_status status = attn__path(run->context, path, run->directory, "base.safetensors");
    if (status == ATTN_OK)
        status = attn_weights_load(attn_model_parameters(run->model), path, NULL, NULL, NULL);
    if (status == ATTN_OK)
        status = attn__path(run->context, path, run->directory, "checkpoint.safetensors");
    if (status == ATTN_OK)
        status = attn_checkpoint_open(&checkpoint, run->context, path, NULL, NULL);
    for (int64_t i = 0; status == ATTN_OK && i < run->lora->nbase; i++) {
        bool there = false;
        snprintf(name, sizeof name, "p.%s", parameter_at(run, i)->name);
        for (int64_t k = 0; !there && attn_checkpoint_at(checkpoint, k, &entry); k++)
            there = strcmp(entry.name, name) == 0;
        run->lora->base[i] = !there;
    }
    attn_checkpoint_close(checkpoint);
    return status;
}

/* ------------------------------------------------------------------------------------------------ factors */

/* Returns the length of the module's name in the name of a weight. In "blks.0.attention.W_q.weight" the module is
 * "blks.0.attention.W_q". If the name is not that of a weight, returns 0. */
static int module_length(const char *name)
{
    size_t n = strlen(name), m = sizeof weight - 1;
    return n > m && strcmp(name + n - m, weight) == 0 ? (int)(n - m) : 0;
}

static void add_adapted(void *user, int64_t i)
{
    const attn__run *run = user;
    run->lora->items[run->lora->n++] = (adapted){.parameter = i};
}

/* Makes the two factors of an adapter. As in peft, A has the initial values of a linear layer in PyTorch, and B is
 * zero. */
static attn_status make_factors(const attn__run *run, adapted *item)
{
    const attn_named *p = parameter_at(run, item->parameter);
    attn_tensor *w = p->tensor;
    int64_t rank = attn_config_int(run->settings, "lora", 1), out = w->shape[0], in = w->shape[1];
    attn_nn_builder builder = {.context = run->context,
                               .parameters = attn_model_parameters(run->model),
                               .dtype = attn_tensor_dtype(w),
                               .seed = (uint64_t)attn_config_int(run->settings, "seed", 1)};
    attn_nn_pushf(&builder, "%.*s", module_length(p->name), p->name);
    item->low_rank =
        (attn__low_rank){.a = attn_nn_parameter(&builder, "lora_A.weight", 2, (int64_t[]){rank, in},
                                                (attn_nn_initializer){.start = ATTN_INIT_KAIMING_UNIFORM}),
                         .b = attn_nn_parameter(&builder, "lora_B.weight", 2, (int64_t[]){out, rank},
                                                (attn_nn_initializer){.start = ATTN_INIT_ZEROS}),
                         .scale = attn_config_real(run->settings, "lora_alpha", (double)rank) / (double)rank};
    w->low_rank = &item->low_rank;
    return attn__call_status(run->context);
}

static attn_status make_adapters(attn__run *run)
{
    const char *on = attn_config_text(run->settings, "lora_on", "");
    attn_status status = attn__run_matching_modules(run, "lora_on", on, strlen(on), add_adapted, run);
    for (int64_t i = 0; status == ATTN_OK && i < run->lora->n; i++) {
        const attn_named *p = parameter_at(run, run->lora->items[i].parameter);
        if (!p->tensor->linear)
            status = attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                                "lora_on: \"%s\" is not the weight of a linear layer", p->name);
        else if (!attn__run_lora_is_base(run, run->lora->items[i].parameter))
            status = attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                                "lora_on: \"%s\" is initialized anew or trained whole: it needs no adapter", p->name);
    }
    for (int64_t i = 0; status == ATTN_OK && i < run->lora->n; i++)
        status = make_factors(run, &run->lora->items[i]);
    return status;
}

attn_status attn__run_lora_begin(attn__run *run)
{
    static const char *const with[] = {"lora_on", "lora_alpha", "lora_whole"};
    bool asked = attn_config_get(run->settings, "lora") != NULL;
    for (int i = 0; !asked && i < 3; i++)
        if (attn_config_get(run->settings, with[i]))
            return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "%s needs lora, the rank of the adapters", with[i]);
    if (!asked)
        return ATTN_OK;
    if (!attn_config_get(run->settings, "from"))
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "lora needs from, the checkpoint to adapt");
    if (!attn_config_get(run->settings, "lora_on"))
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "lora needs lora_on, the linear layers that get adapters");
    size_t n = (size_t)attn_model_parameters(run->model)->n;
    run->lora = attn__alloc_zero(run->context, sizeof *run->lora);
    if (!run->lora)
        return ATTN_ERROR_MEMORY;
    run->lora->nbase = (int64_t)n;
    run->lora->base = attn__alloc_zero(run->context, n + 1);
    run->lora->items = attn__alloc_zero(run->context, attn__size_mul(n + 1, sizeof *run->lora->items));
    attn_status status = run->lora->base && run->lora->items ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = run->resume ? read_base(run) : choose_base(run);
    for (int64_t i = 0; status == ATTN_OK && i < run->lora->nbase; i++)
        if (run->lora->base[i])
            attn_tensor_set_requires_grad(parameter_at(run, i)->tensor, false);
    return status == ATTN_OK ? make_adapters(run) : status;
}

void attn__run_lora_end(attn__run *run)
{
    if (!run->lora)
        return;
    for (int64_t i = 0; run->lora->items && i < run->lora->n; i++) {
        parameter_at(run, run->lora->items[i].parameter)->tensor->low_rank = NULL;
        attn_tensor_destroy(run->lora->items[i].merged);
    }
    attn__free(run->context, run->lora->items);
    attn__free(run->context, run->lora->base);
    attn__free(run->context, run->lora);
    run->lora = NULL;
}

/* ------------------------------------------------------------------------------------------------ folding */

static attn_status merge(const attn__run *run, adapted *item)
{
    attn_tensor *w = parameter_at(run, item->parameter)->tensor;
    const attn__low_rank *l = &item->low_rank;
    attn_status status =
        item->merged ? ATTN_OK : attn_tensor_create(&item->merged, run->context, w->dtype, w->rank, w->shape);
    if (status != ATTN_OK)
        return status;
    memcpy(attn_tensor_data(item->merged), attn_tensor_data(w), attn__tensor_bytes(w));
    attn__low_rank_add(attn_tensor_data(item->merged), attn_tensor_data(l->a), attn_tensor_data(l->b),
                       (int64_t[]){w->shape[0], w->shape[1], l->a->shape[0]}, (float)l->scale);
    return ATTN_OK;
}

/* Exchanges the addresses of two tensors' data. The contents are not exchanged, because ranks may share the memory
 * of the parameters. */
static void exchange(attn_tensor *a, attn_tensor *b)
{
    attn__storage *storage = a->storage;
    void *data = a->data;
    a->storage = b->storage;
    a->data = b->data;
    b->storage = storage;
    b->data = data;
}

attn_status attn__run_lora_fold(attn__run *run, bool fold)
{
    attn_status status = ATTN_OK;
    if (!run->lora || run->lora->folded == fold)
        return ATTN_OK;
    for (int64_t i = 0; fold && status == ATTN_OK && i < run->lora->n; i++)
        status = merge(run, &run->lora->items[i]);
    if (status != ATTN_OK)
        return status;
    for (int64_t i = 0; i < run->lora->n; i++) {
        adapted *item = &run->lora->items[i];
        attn_tensor *w = parameter_at(run, item->parameter)->tensor;
        exchange(w, item->merged);
        w->low_rank = fold ? NULL : &item->low_rank;
    }
    run->lora->folded = fold;
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------- files */

static attn_status write_config(const attn__run *run)
{
    char path[ATTN__PATH];
    attn_json json;
    const char *text;
    int64_t rank = attn_config_int(run->settings, "lora", 1);
    attn_json_begin(&json, run->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "peft_type", "LORA");
    attn_json_text(&json, "base_model_name_or_path", "base.safetensors");
    attn_json_int(&json, "r", rank);
    attn_json_real(&json, "lora_alpha", attn_config_real(run->settings, "lora_alpha", (double)rank));
    attn_json_array(&json, "target_modules");
    for (int64_t i = 0; i < run->lora->n; i++) {
        char module[512];
        const char *name = parameter_at(run, run->lora->items[i].parameter)->name;
        snprintf(module, sizeof module, "%.*s", module_length(name), name);
        attn_json_text(&json, NULL, module);
    }
    attn_json_end(&json);
    attn_json_text(&json, "bias", "none");
    attn_json_bool(&json, "inference_mode", true);
    attn_json_end(&json);
    attn_status status = attn_json_finish(&json, &text);
    if (status == ATTN_OK)
        status = attn__path(run->context, path, run->directory, "adapter_config.json");
    if (status == ATTN_OK)
        status = attn_file_write(run->context, path, text, strlen(text));
    attn_json_free(&json);
    return status;
}

attn_status attn__run_lora_write_base(const attn__run *run)
{
    char path[ATTN__PATH];
    attn_named_list list = {.context = run->context};
    attn_status status = attn__path(run->context, path, run->directory, "base.safetensors");
    for (int64_t i = 0; i < run->lora->nbase && status == ATTN_OK; i++)
        status = attn_named_add(&list, parameter_at(run, i)->name, parameter_at(run, i)->tensor);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, NULL);
    attn_named_clear(&list);
    return status == ATTN_OK ? write_config(run) : status;
}

attn_status attn__run_lora_save(const attn__run *run, const attn_named_list *parameters)
{
    char path[ATTN__PATH];
    attn_named_list list = {.context = run->context};
    attn_status status = attn__path(run->context, path, run->directory, "adapter_model.safetensors");
    for (int64_t i = 0; i < parameters->n && status == ATTN_OK; i++) {
        char name[512];
        if (attn__run_lora_is_base(run, i))
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, parameters->items[i].name);
        status = attn_named_add(&list, name, parameters->items[i].tensor);
    }
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, NULL);
    attn_named_clear(&list);
    return status;
}

attn_status attn__run_lora_tell(const attn__run *run, attn_bytes *table)
{
    const attn_named_list *list = attn_model_parameters(run->model);
    attn_status status = ATTN_OK;
    for (int64_t i = run->lora ? run->lora->nbase : list->n; i < list->n && status == ATTN_OK; i++) {
        char shape[128];
        attn__array_shape_text(shape, attn_tensor_rank(list->items[i].tensor),
                               attn_tensor_shape(list->items[i].tensor));
        status = attn__bytes_appendf(run->context, table, "%s\t%s\tanew: low-rank\n", list->items[i].name, shape);
    }
    return status;
}
