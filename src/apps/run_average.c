/* SPDX-License-Identifier: MIT
 * The average of a run's weights. */
#include "apps/run_average.h"

#include "apps/run_lora.h"
#include "base/context.h"
#include "tensor/tensor.h"

#include <string.h>

attn_status attn__run_average_begin(attn__run *run)
{
    const attn_named_list *parameters = attn_model_parameters(run->model);
    run->average = (attn_named_list){.context = run->context, .owns = true};
    if (!(attn_config_real(run->settings, "ema", 0) > 0))
        return ATTN_OK;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < parameters->n && status == ATTN_OK; i++) {
        const attn_tensor *p = parameters->items[i].tensor;
        attn_tensor *copy = NULL;
        bool same = attn__run_lora_is_base(run, i); /* it never changes: no second one in memory */
        status = same ? attn_tensor_share(&copy, p)
                      : attn_tensor_create(&copy, run->context, attn_tensor_dtype(p), attn_tensor_rank(p),
                                           attn_tensor_shape(p));
        if (status == ATTN_OK && !same)
            memcpy(attn_tensor_data(copy), attn_tensor_data(p), attn__tensor_bytes(p));
        if (status == ATTN_OK && (status = attn_named_add(&run->average, parameters->items[i].name, copy)) != ATTN_OK)
            attn_tensor_destroy(copy);
    }
    return status;
}

void attn__run_average_step(attn__run *run, int64_t steps)
{
    const attn_named_list *parameters = attn_model_parameters(run->model);
    /* A share of the steps so far at first: else the random start would weigh exp(-steps (1 - decay)) for long. */
    double most = attn_config_real(run->settings, "ema", 0), rising = (double)(1 + steps) / (double)(10 + steps);
    float keep = (float)(rising < most ? rising : most);
    for (int64_t i = 0; i < run->average.n; i++) {
        attn_tensor *to = run->average.items[i].tensor;
        const float *from = attn_tensor_data(parameters->items[i].tensor);
        if (from == (const float *)attn_tensor_data(to))
            continue;
        if (attn_tensor_dtype(to) != ATTN_F32) { /* counters and the like are not averaged */
            memcpy(attn_tensor_data(to), from, attn__tensor_bytes(to));
            continue;
        }
        float *mean = attn_tensor_data(to);
        int64_t n = attn_tensor_size(to);
        for (int64_t k = 0; k < n; k++)
            mean[k] += (1 - keep) * (from[k] - mean[k]);
    }
}

/* Only where they lie: ranks may share the parameters' memory. */
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
