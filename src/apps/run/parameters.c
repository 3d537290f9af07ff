/* SPDX-License-Identifier: MIT
 *
 * The parameters of a run: which of them are frozen, their learning rates, the adapters that are trained in their
 * place, where their first values come from, and their averages. */
#include "apps/run/internal.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "base/real.h"
#include "io/file.h"
#include "io/json_writer.h"
#include "io/names/pattern.h"
#include "io/tensors/adapter.h"
#include "io/tensors/array.h"
#include "nn/layers.h"
#include "tensor/tensor.h"
#include "train/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------- patterns */

/* Returns the length of the whole name, all of which a pattern must match. */
static size_t whole_name(const char *name)
{
    return strlen(name);
}

/* Returns the length of the module's name, which is the parameter's name without ".weight". If the name has another
 * ending, returns 0, so that no pattern matches it. */
static size_t module_name(const char *name)
{
    static const char ending[] = ".weight";
    size_t n = strlen(name), m = sizeof ending - 1;
    return n > m && strcmp(name + n - m, ending) == 0 ? n - m : 0;
}

/* Calls part(user, i) for each parameter i whose name matches the pattern `text` of `size` bytes. `length` returns how
 * much of the name must match. ATTN_ERROR_ARGUMENT: the pattern is invalid or matches no parameter. */
static attn_status for_matching(const attn__run *run, const char *setting, const char *text, size_t size,
                                size_t (*length)(const char *name), void (*part)(void *user, int64_t i), void *user)
{
    attn_named_list *list = attn_model_parameters(run->model);
    attn__pattern *pattern;
    const char *wrong;
    bool any = false;
    attn_status status = attn__pattern_create(&pattern, run->context, text, size, &wrong);
    if (status == ATTN_ERROR_FORMAT)
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "%s: \"%.*s\": %s", setting,
                          (int)(size < 200 ? size : 200), text, wrong);
    for (int64_t i = 0; status == ATTN_OK && i < list->n; i++) {
        const char *name = list->items[i].name;
        size_t n = length(name);
        if (n > 0 && attn__pattern_matches(pattern, name, n, NULL)) {
            part(user, i);
            any = true;
        }
    }
    attn__pattern_destroy(run->context, pattern);
    if (status == ATTN_OK && !any)
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "%s: no %s of the model matches \"%.*s\"", setting,
                          length == module_name ? "layer" : "parameter", (int)(size < 200 ? size : 200), text);
    return status;
}

/* ---------------------------------------------------------------------------------------------- frozen */

static void freeze(void *user, int64_t i)
{
    const attn__run *run = user;
    attn_tensor_set_requires_grad(attn_model_parameters(run->model)->items[i].tensor, false);
}

attn_status attn__run_freeze(const attn__run *run)
{
    const char *text = attn_config_text(run->settings, "freeze", "");
    if (!*text)
        return ATTN_OK;
    attn_status status = for_matching(run, "freeze", text, strlen(text), whole_name, freeze, (void *)(uintptr_t)run);
    if (status == ATTN_OK && attn__run_parameters(run) == 0)
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "freeze: \"%.200s\" leaves nothing to train", text);
    return status;
}

/* ----------------------------------------------------------------------------------------------- rates */

typedef struct rate {
    const attn__run *run;
    double factor;
} rate;

static void set_rate(void *user, int64_t i)
{
    const rate *r = user;
    attn_optimizer_set_factor(attn_training_optimizer(r->run->training), i, r->factor);
}

/* Sets the learning rates that the setting "rates" contains, in the form "PATTERN=X PATTERN=X". If two patterns
 * match a parameter, the later one counts. */
attn_status attn__run_set_rates(const attn__run *run)
{
    const char *at = attn_config_text(run->settings, "rates", "");
    attn_status status = ATTN_OK;
    for (at += strspn(at, " "); *at && status == ATTN_OK; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        const char *equals = at + size;
        rate r = {.run = run, .factor = NAN};
        char *end = NULL;
        while (equals > at && *equals != '=')
            equals--;
        if (equals > at)
            r.factor = attn__real_of_text(equals + 1, &end);
        if (!(r.factor >= 0 && r.factor <= 1e6) || end != at + size)
            return attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                              "rates: \"%.*s\" is not PATTERN=FACTOR with a factor from 0 to 1000000",
                              (int)(size < 200 ? size : 200), at);
        status = for_matching(run, "rates", at, (size_t)(equals - at), whole_name, set_rate, &r);
        at += size;
    }
    return status;
}

/* ----------------------------------------------------------------------------------------------- adapters */

static const char adapter_prefix[] = "base_model.model.";

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
    return *whole ? for_matching(run, "lora_whole", whole, strlen(whole), whole_name, keep_whole, run) : ATTN_OK;
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
    attn_nn_pushf(&builder, "%.*s", (int)module_name(p->name), p->name);
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
    attn_status status = for_matching(run, "lora_on", on, strlen(on), module_name, add_adapted, run);
    for (int64_t i = 0; status == ATTN_OK && i < run->lora->n; i++) {
        const attn_named *p = parameter_at(run, run->lora->items[i].parameter);
        if (!p->tensor->linear)
            status = attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                                "lora_on: \"%s\" is not the weight of a linear layer", p->name);
        else if (!attn__run_lora_is_base(run, run->lora->items[i].parameter))
            status = attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                                "lora_on: \"%s\" needs no adapter, because it is initialized anew or trained whole",
                                p->name);
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
            return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "the setting %s needs lora, the rank of the adapters",
                              with[i]);
    if (!asked)
        return ATTN_OK;
    if (!attn_config_get(run->settings, "from"))
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                          "the setting lora needs the setting from, the checkpoint to adapt");
    if (!attn_config_get(run->settings, "lora_on"))
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                          "the setting lora needs lora_on, the linear layers that get adapters");
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

static attn_status write_adapter_config(const attn__run *run)
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
        snprintf(module, sizeof module, "%.*s", (int)module_name(name), name);
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
    return status == ATTN_OK ? write_adapter_config(run) : status;
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
        snprintf(name, sizeof name, "%s%s", adapter_prefix, parameters->items[i].name);
        status = attn_named_add(&list, name, parameters->items[i].tensor);
    }
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, NULL);
    attn_named_clear(&list);
    return status;
}

/* Adds the lines about the adapters' factors to the table of fine-tuning.tsv. */
static attn_status tell_factors(const attn__run *run, attn_bytes *table)
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

/* ----------------------------------------------------------------------------------------------- taken */

attn_status attn__run_write_taken(const attn__run *run)
{
    static const char head[] = "parameter\tshape\tfrom\n";
    char path[ATTN__PATH];
    attn__output output;
    if (run->taken.size == 0)
        return ATTN_OK;
    attn_status status = attn__path(run->context, path, run->directory, "fine-tuning.tsv");
    if (status == ATTN_OK)
        status = attn__output_begin(&output, run->context, path);
    if (status != ATTN_OK)
        return status;
    attn_bytes factors = {0};
    status = tell_factors(run, &factors);
    attn__output_write(&output, head, sizeof head - 1);
    attn__output_write(&output, run->taken.data, run->taken.size);
    if (factors.size > 0)
        attn__output_write(&output, factors.data, factors.size);
    attn_bytes_free(run->context, &factors);
    attn_status written = attn__output_end(&output);
    return status == ATTN_OK ? written : status;
}

/* ----------------------------------------------------------------------------------------------- averages */

static int64_t epochs_of(const attn__run *run)
{
    int64_t epochs = attn_config_int(run->settings, "average", 1);
    return epochs > 1 ? epochs : 0;
}

/* The name of a copy is `prefix` followed by the parameter's name. */
static attn_status add_copies(attn_named_list *list, const attn__run *run, const char *prefix)
{
    const attn_named_list *parameters = attn_model_parameters(run->model);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < parameters->n && status == ATTN_OK; i++) {
        const attn_tensor *p = parameters->items[i].tensor;
        attn_tensor *copy = NULL;
        char name[512];
        snprintf(name, sizeof name, "%s%s", prefix, parameters->items[i].name);
        /* a frozen tensor is not copied but shared, because it never changes */
        bool same = attn__run_lora_is_base(run, i);
        status = same ? attn_tensor_share(&copy, p)
                      : attn_tensor_create(&copy, run->context, attn_tensor_dtype(p), attn_tensor_rank(p),
                                           attn_tensor_shape(p));
        if (status == ATTN_OK && !same)
            memcpy(attn_tensor_data(copy), attn_tensor_data(p), attn__tensor_bytes(p));
        if (status == ATTN_OK && (status = attn_named_add(list, name, copy)) != ATTN_OK)
            attn_tensor_destroy(copy);
    }
    return status;
}

attn_status attn__run_average_begin(attn__run *run)
{
    int64_t epochs = epochs_of(run);
    bool moving = attn_config_real(run->settings, "ema", 0) > 0;
    run->average = (attn_named_list){.context = run->context, .owns = true};
    run->snapshots = (attn_named_list){.context = run->context, .owns = true};
    attn_status status = moving || epochs > 0 ? add_copies(&run->average, run, "") : ATTN_OK;
    for (int64_t i = 0; i < epochs && status == ATTN_OK; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "s%d.", (int)i);
        status = add_copies(&run->snapshots, run, prefix);
    }
    return status;
}

void attn__run_average_end(attn__run *run)
{
    attn_named_clear(&run->average);
    attn_named_clear(&run->snapshots);
}

void attn__run_average_step(attn__run *run, int64_t steps)
{
    const attn_named_list *parameters = attn_model_parameters(run->model);
    /* The decay is smaller at first. Otherwise the average would keep a share of exp(-steps (1 - d)) of the random
     * initial weights for too long, where d is the setting "ema". */
    double most = attn_config_real(run->settings, "ema", 0), rising = (double)(1 + steps) / (double)(10 + steps);
    float keep = (float)(rising < most ? rising : most);
    for (int64_t i = 0; i < run->average.n && most > 0; i++) {
        attn_tensor *to = run->average.items[i].tensor;
        const float *from = attn_tensor_data(parameters->items[i].tensor);
        if (from == (const float *)attn_tensor_data(to))
            continue;
        /* tensors of integers, such as counters, are copied instead of averaged */
        if (attn_tensor_dtype(to) != ATTN_F32) {
            memcpy(attn_tensor_data(to), from, attn__tensor_bytes(to));
            continue;
        }
        float *mean = attn_tensor_data(to);
        int64_t n = attn_tensor_size(to);
        for (int64_t k = 0; k < n; k++)
            mean[k] += (1 - keep) * (from[k] - mean[k]);
    }
}

/* Sets tensor i of the average to the mean over the last `known` epochs. The epochs are added in the order of their
 * slots, so that a resumed run computes the same sum. */
static void average_one(const attn__run *run, int64_t i, int64_t known)
{
    attn_tensor *to = run->average.items[i].tensor;
    int64_t n = attn_tensor_size(to), parameters = run->average.n;
    float *mean = attn_tensor_data(to);
    for (int64_t k = 0; k < n; k++) {
        double sum = 0;
        for (int64_t s = 0; s < known; s++)
            sum += (double)((const float *)attn_tensor_data(run->snapshots.items[s * parameters + i].tensor))[k];
        mean[k] = (float)(sum / (double)known);
    }
}

void attn__run_average_epoch(attn__run *run)
{
    const attn_named_list *parameters = attn_model_parameters(run->model);
    int64_t epochs = epochs_of(run), epoch = attn__run_epoch(run), known = epoch + 1 < epochs ? epoch + 1 : epochs;
    for (int64_t i = 0; i < parameters->n && epochs > 0; i++) {
        const attn_tensor *from = parameters->items[i].tensor;
        attn_tensor *to = run->snapshots.items[epoch % epochs * parameters->n + i].tensor;
        /* skip the frozen base of an adapter, which shares its memory with the average and never changes */
        if (attn_tensor_data(to) == attn_tensor_data(from))
            continue;
        memcpy(attn_tensor_data(to), attn_tensor_data(from), attn__tensor_bytes(from));
        if (attn_tensor_dtype(from) == ATTN_F32)
            average_one(run, i, known);
        else
            memcpy(attn_tensor_data(run->average.items[i].tensor), attn_tensor_data(from), attn__tensor_bytes(from));
    }
}

const attn_named_list *attn__run_average_kept(const attn__run *run)
{
    bool known = run->average.n > 0 && (epochs_of(run) == 0 || attn__run_epoch(run) > 0);
    return known ? &run->average : attn_model_parameters(run->model);
}

void attn__run_average_swap(attn__run *run)
{
    const attn_named_list *parameters = attn_model_parameters(run->model);
    for (int64_t i = 0; i < run->average.n; i++)
        exchange(run->average.items[i].tensor, parameters->items[i].tensor);
}
