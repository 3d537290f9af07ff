/* SPDX-License-Identifier: MIT
 * Merges low-rank adapters into the weights while the weights are read. */
#include "io/tensors/adapter.h"

#include "io/file.h"
#include "io/names/names.h"
#include "io/directory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "base_model.model.", factor_a[] = ".lora_A.weight", factor_b[] = ".lora_B.weight";

/* ------------------------------------------------------------------------------------------------- files */

bool attn__adapter_is_in(const char *directory)
{
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
    return attn__file_in(directory, names, sizeof names / sizeof *names) != NULL;
}

/* Returns whether the adapter's initialization left the base model's weights unchanged. peft's other initializations
 * change them and are not supported. */
static bool keeps_base(const attn_config *config)
{
    static const char *const known[] = {"gaussian", "eva", "orthogonal", NULL};
    const attn_config_value *value = attn_config_get(config, "init_lora_weights");
    if (!value || value->type != ATTN_CONFIG_TYPE_TEXT)
        return true;
    for (int i = 0; known[i]; i++)
        if (strcmp(value->text, known[i]) == 0)
            return true;
    return false;
}

/* Returns whether Python treats the value as true. This is the case for true, for a nonzero number and for a text
 * that is not empty. */
static bool is_true(const attn_config_value *value)
{
    switch (value->type) {
    case ATTN_CONFIG_TYPE_NULL:
        return false;
    case ATTN_CONFIG_TYPE_BOOL:
        return value->boolean;
    case ATTN_CONFIG_TYPE_INT:
        return value->integer != 0;
    case ATTN_CONFIG_TYPE_REAL:
        return value->real != 0;
    case ATTN_CONFIG_TYPE_TEXT:
        return value->text[0] != '\0';
    default:
        return value->n > 0;
    }
}

static bool is_set(const attn_config *config, const char *key)
{
    const attn_config_value *value = attn_config_get(config, key);
    return value && is_true(value);
}

/* Returns whether a key of the adapter's config may be ignored. Such a key does not affect the merged weights, or other
 * code reads it. */
static bool is_harmless(const char *key)
{
    static const char *const harmless[] = {"auto_mapping",
                                           "base_model_name_or_path",
                                           "bias",
                                           "corda_config",
                                           "eva_config",
                                           "exclude_modules",
                                           "inference_mode",
                                           "init_lora_weights",
                                           "layers_pattern",
                                           "layers_to_transform",
                                           "loftq_config",
                                           "lora_alpha",
                                           "lora_dropout",
                                           "lora_ga_config",
                                           "megatron_core",
                                           "modules_to_save",
                                           "peft_type",
                                           "peft_version",
                                           "qalora_group_size",
                                           "r",
                                           "revision",
                                           "runtime_config",
                                           "target_modules",
                                           "task_type",
                                           "use_rslora"};
    size_t length = strcspn(key, ".");
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strlen(harmless[i]) == length && strncmp(harmless[i], key, length) == 0)
            return true;
    return false;
}

/* Refuses a config that has an unknown key with an effect. Each variant of peft has its own key, and an adapter of an
 * unknown variant would be merged incorrectly. */
static attn_status check_keys(const attn__adapter *adapter, const char *path)
{
    const attn_config *config = adapter->config;
    for (int64_t i = 0; i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        /* a key with a dot is a member of an object; this object is not empty, so it has an effect */
        bool nested = strchr(key, '.') != NULL;
        if (strncmp(key, "rank_pattern.", 13) == 0 || strncmp(key, "alpha_pattern.", 14) == 0)
            return attn__fail(adapter->context, ATTN_ERROR_UNSUPPORTED,
                              "%s: \"%.60s\" gives some layers a rank or alpha of their own, which is not supported",
                              path, key);
        if (!is_harmless(key) && (nested || is_true(attn_config_get(config, key))))
            return attn__fail(adapter->context, ATTN_ERROR_UNSUPPORTED,
                              "%s: the setting \"%.60s\" is not supported, since it may change what the adapter does",
                              path, key);
    }
    return ATTN_OK;
}

static attn_status check_config(const attn__adapter *adapter, const char *path)
{
    const attn_config *config = adapter->config;
    const char *type = attn_config_text(config, "peft_type", "");
    if (strcmp(type, "LORA") != 0)
        return attn__fail(adapter->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: \"peft_type\" is \"%.40s\"; only LORA is supported", path, type);
    if (!(attn_config_real(config, "r", 0) >= 1))
        return attn__fail(adapter->context, ATTN_ERROR_FORMAT, "%s: \"r\", the rank, is missing or less than 1", path);
    if (!isfinite(attn_config_real(config, "lora_alpha", NAN)))
        return attn__fail(adapter->context, ATTN_ERROR_FORMAT, "%s: \"lora_alpha\" is missing or not a finite number",
                          path);
    if (!keeps_base(config))
        return attn__fail(adapter->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: \"init_lora_weights\" is \"%.40s\", which changes the base weights and is not supported",
                          path, attn_config_text(config, "init_lora_weights", ""));
    return check_keys(adapter, path);
}

attn_status attn__adapter_open(attn__adapter *adapter, attn_context *context, const char *directory)
{
    char *config = attn__join(context, directory, "adapter_config.json");
    *adapter = (attn__adapter){.context = context, .path = attn__join(context, directory, "adapter_model.safetensors")};
    attn_status status =
        config && adapter->path ? attn_config_read(&adapter->config, context, config) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = check_config(adapter, config);
    if (status == ATTN_OK)
        status = attn__file_map(&adapter->input, context, adapter->path);
    attn__free(context, config);
    return status;
}

void attn__adapter_close(attn__adapter *adapter)
{
    attn__file_unmap(&adapter->input);
    attn_config_destroy(adapter->config);
    attn__free(adapter->context, adapter->path);
    *adapter = (attn__adapter){.context = adapter->context};
}

const char *attn__adapter_base(const attn__adapter *adapter)
{
    return attn_config_text(adapter->config, "base_model_name_or_path", "");
}

/* ----------------------------------------------------------------------------------------------- merging */

typedef struct merging {
    const attn__adapter *adapter;
    attn__findings *base;
    attn__arrays own;
    const attn__array **names;
    const attn__array **pairs;
    int64_t nbase;
} merging;

static attn_status fail(const merging *m, const char *name, const char *what)
{
    return attn__fail(m->adapter->context, ATTN_ERROR_FORMAT, "%s: \"%.200s\" %s", m->adapter->path, name, what);
}

static attn__array *find(const attn__array *const *sorted, int64_t n, const char *name)
{
    const attn__array wanted = {.name = (char *)(uintptr_t)name}, *key = &wanted;
    const attn__array *const *found =
        n > 0 ? bsearch(&key, sorted, (size_t)n, sizeof *sorted, attn__array_by_name) : NULL;
    return found ? (attn__array *)(uintptr_t)*found : NULL;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* Copies an array as row-major f32 to memory of the base model's findings. */
static attn_status as_f32(const merging *m, const attn__array *from, attn__array *to)
{
    *to = *from;
    to->origin = from->name;
    to->element = ATTN__F32;
    if (!attn__array_is_real(from))
        return fail(m, from->name,
                    from->element == ATTN__BOOL ? "has elements of type bool; expected floating-point numbers"
                                                : "has elements of an integer type; expected floating-point numbers");
    attn_status status = attn__findings_reals(m->base, to);
    return status == ATTN_OK ? attn__array_copy(&m->own, from, ATTN_F32, (void *)(uintptr_t)to->data) : status;
}

void attn__low_rank_add(float *w, const float *a, const float *b, const int64_t sizes[3], float scale)
{
    const int64_t out = sizes[0], in = sizes[1], rank = sizes[2];
    for (int64_t i = 0; i < out; i++)
        for (int64_t r = 0; r < rank; r++) {
            float factor = scale * b[i * rank + r];
            for (int64_t j = 0; j < in; j++)
                w[i * in + j] += factor * a[r * in + j];
        }
}

static attn_status fail_shapes(const merging *m, const attn__array *w, const attn__array *a, const attn__array *b)
{
    char tw[128], ta[128], tb[128];
    attn__array_shape_text(tw, w->rank, w->shape);
    attn__array_shape_text(ta, a->rank, a->shape);
    attn__array_shape_text(tb, b->rank, b->shape);
    return attn__fail(
        m->adapter->context, ATTN_ERROR_SHAPE,
        "%s: \"%.200s\" %s and its lora_B %s do not fit the weights \"%.200s\" %s; expected lora_A [r,in] and "
        "lora_B [out,r] for weights [out,in]",
        m->adapter->path, a->name, ta, tb, w->name, tw);
}

static attn_status merge_pair(const merging *m, const attn__array *a, const char *weight)
{
    enum { MOST_RANK = 4096 };
    char name[1100];
    attn__array *w = find(m->names, m->nbase, weight), whole, left, right;
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(a->name) - sizeof factor_a + 1), a->name, factor_b);
    const attn__array *b = find(m->pairs, m->own.n, name);
    if (!b)
        return fail(m, a->name, "has no matching lora_B");
    if (!w)
        return fail(m, a->name, "is for a tensor that the base weights do not have");
    int64_t rank = a->rank > 0 ? a->shape[0] : 0;
    if (w->rank != 2 || a->rank != 2 || b->rank != 2 || a->shape[1] != w->shape[1] || b->shape[0] != w->shape[0] ||
        b->shape[1] != rank || rank < 1 || rank > MOST_RANK)
        return fail_shapes(m, w, a, b);
    const attn_config *config = m->adapter->config;
    double alpha = attn_config_real(config, "lora_alpha", 0);
    double scale = alpha / (is_set(config, "use_rslora") ? sqrt((double)rank) : (double)rank);
    attn_status status = as_f32(m, w, &whole);
    if (status == ATTN_OK)
        status = as_f32(m, a, &left);
    if (status == ATTN_OK)
        status = as_f32(m, b, &right);
    if (status != ATTN_OK)
        return status;
    attn__low_rank_add((float *)(uintptr_t)whole.data, (const float *)(const void *)left.data,
                       (const float *)(const void *)right.data, (int64_t[]){w->shape[0], w->shape[1], rank},
                       (float)scale);
    whole.origin = w->origin;
    *w = whole;
    return ATTN_OK;
}

/* Checks that the name begins with peft's prefix. *name becomes the part of the name after the prefix. */
static attn_status check_name(const merging *m, const attn__array *own, const char **name)
{
    *name = own->name + sizeof prefix - 1;
    if (strlen(own->name) > 1000 || strncmp(own->name, prefix, sizeof prefix - 1) != 0)
        return fail(m, own->name, "is not a name that peft writes");
    if (strstr(*name, ".lora_") && !ends_with(*name, factor_a) && !ends_with(*name, factor_b))
        return fail(m, own->name, "belongs to a kind of adapter that is not supported");
    return ATTN_OK;
}

/* Merges an array of the adapter: a pair of low-rank factors is added to its weight, and any other array replaces the
 * base model's array. */
static attn_status use(const merging *m, const attn__array *own)
{
    char other[1100];
    const char *name;
    attn_status status = check_name(m, own, &name);
    if (status != ATTN_OK)
        return status;
    if (ends_with(name, factor_a)) {
        snprintf(other, sizeof other, "%.*s.weight", (int)(strlen(name) - sizeof factor_a + 1), name);
        return merge_pair(m, own, other);
    }
    if (ends_with(name, factor_b)) {
        snprintf(other, sizeof other, "%.*s%s", (int)(strlen(own->name) - sizeof factor_b + 1), own->name, factor_a);
        return find(m->pairs, m->own.n, other) ? ATTN_OK : fail(m, own->name, "has no matching lora_A");
    }
    attn__array *old = find(m->names, m->nbase, name);
    if (old) {
        char *kept = old->name;
        *old = *own;
        old->name = kept;
    }
    return ATTN_OK;
}

/* Adds the adapter's tensors that the base model does not have. This must be done last, because adding a tensor moves
 * the base model's arrays, and the sorted pointers to them become invalid. */
static attn_status add_new(const merging *m)
{
    attn_context *context = m->adapter->context;
    bool *is_new = attn__alloc_zero(context, (size_t)m->own.n + 1);
    attn_status status = is_new ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; status == ATTN_OK && i < m->own.n; i++) {
        const char *name = m->own.items[i].name + sizeof prefix - 1;
        is_new[i] = !strstr(name, ".lora_") && !find(m->names, m->nbase, name);
    }
    for (int64_t i = 0; status == ATTN_OK && i < m->own.n; i++) {
        attn__array made = m->own.items[i];
        if (!is_new[i])
            continue;
        made.name = attn__strdup(context, made.name + sizeof prefix - 1);
        status = made.name ? attn__arrays_add(&m->base->arrays, &made) : ATTN_ERROR_MEMORY;
    }
    attn__free(context, is_new);
    return status;
}

attn_status attn__adapter_merge(const attn__adapter *adapter, attn__findings *findings)
{
    attn__findings found = {.arrays = {.context = adapter->context, .file = adapter->path}};
    found.arrays.backing = adapter->input.size;
    findings->arrays.backing = attn__size_add(findings->arrays.backing, adapter->input.size);
    attn_status status = attn__safetensors_find(&found, &adapter->input);
    merging m = {.adapter = adapter, .base = findings, .own = found.arrays, .nbase = findings->arrays.n};
    if (status == ATTN_OK) {
        m.names = attn__arrays_sorted(&findings->arrays);
        m.pairs = attn__arrays_sorted(&found.arrays);
        status = m.names && m.pairs ? ATTN_OK : ATTN_ERROR_MEMORY;
    }
    for (int64_t i = 0; status == ATTN_OK && i < m.own.n; i++)
        status = use(&m, &m.own.items[i]);
    if (status == ATTN_OK)
        status = add_new(&m);
    attn__free(adapter->context, m.names);
    attn__free(adapter->context, m.pairs);
    if (status == ATTN_OK)
        status = attn__findings_note(findings, "with the low-rank adapter of %s", adapter->path);
    attn__findings_clear(&found);
    return status;
}
