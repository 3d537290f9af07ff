/* SPDX-License-Identifier: MIT */
#include "apps/run/average.h"

#include "apps/run/lora.h"
#include "base/context.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

static int64_t epochs_of(const attn__run *run)
{
    int64_t epochs = attn_config_int(run->settings, "average", 1);
    return epochs > 1 ? epochs : 0;
}

/* Adds copies of the parameters to a list. The name of a copy is `prefix` followed by the parameter's name. */
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

/* Exchanges the tensors' addresses and not their contents, because ranks may share the memory of the parameters. */
void attn__run_average_swap(attn__run *run)
{
    const attn_named_list *parameters = attn_model_parameters(run->model);
    for (int64_t i = 0; i < run->average.n; i++) {
        attn_tensor *a = run->average.items[i].tensor, *b = parameters->items[i].tensor;
        attn__storage *storage = a->storage;
        void *data = attn_tensor_data(a);
        a->storage = b->storage;
        a->data = attn_tensor_data(b);
        b->storage = storage;
        b->data = data;
    }
}
