/* SPDX-License-Identifier: MIT
 * A MarianMT model's parameters under the names that Hugging Face gives them. */
#include "apps/marian.h"

#include "base/context.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

const char *const attn__marian_files[] = {
    "config.json",           "generation_config.json",  "vocab.json", "target_vocab.json", "source.spm", "target.spm",
    "tokenizer_config.json", "special_tokens_map.json", NULL};

/* Of a layer's parameter, "encoder.blks.block3.ffn.dense1.weight". */
static bool block_name(const char *own, char *to, size_t size)
{
    int layer, used = 0;
    bool decoder = sscanf(own, "decoder.blks.block%d.%n", &layer, &used) == 1 && used > 0;
    if (!decoder && (sscanf(own, "encoder.blks.block%d.%n", &layer, &used) != 1 || used == 0))
        return false;
    const char *part = own + used, *dot = strrchr(part, '.');
    for (int i = 0; dot && attn__marian_parts[i][0]; i++) {
        const char *known = attn__marian_parts[i][1 + decoder];
        if (known && strlen(known) == (size_t)(dot - part) && strncmp(known, part, (size_t)(dot - part)) == 0)
            return snprintf(to, size, "model.%s.layers.%d.%s%s", decoder ? "decoder" : "encoder", layer,
                            attn__marian_parts[i][0], dot) > 0;
    }
    return false;
}

static void their_name(const char *own, bool shared, char *to, size_t size)
{
    static const char *const names[][2] = {{"encoder.embedding.weight", "model.encoder.embed_tokens.weight"},
                                           {"decoder.embedding.weight", "model.decoder.embed_tokens.weight"},
                                           {"decoder.dense.weight", "lm_head.weight"},
                                           {"decoder.dense.bias", "final_logits_bias"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(own, names[i][0]) == 0) {
            snprintf(to, size, "%s", i == 0 && shared ? "model.shared.weight" : names[i][1]);
            return;
        }
    if (!block_name(own, to, size))
        snprintf(to, size, "%s", own);
}

attn_status attn__marian_write(attn_context *context, const attn_config *config, const attn_named_list *parameters,
                               const char *path)
{
    bool shared = strcmp(attn_config_text(config, "tie", ""), "all") == 0;
    attn_named_list list = {.context = context};
    attn_tensor *bias = NULL; /* [1,V] there, [V] here */
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < parameters->n && status == ATTN_OK; i++) {
        char name[512];
        attn_tensor *tensor = parameters->items[i].tensor;
        their_name(parameters->items[i].name, shared, name, sizeof name);
        if (strcmp(name, "final_logits_bias") == 0 && !bias) {
            status = attn_tensor_create(&bias, context, attn_tensor_dtype(tensor), 2,
                                        (int64_t[]){1, attn_tensor_size(tensor)});
            if (status == ATTN_OK)
                memcpy(attn_tensor_data(bias), attn_tensor_data(tensor), attn__tensor_bytes(tensor));
            tensor = bias;
        }
        if (status == ATTN_OK)
            status = attn_named_add(&list, name, tensor);
    }
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, NULL);
    attn_named_clear(&list);
    attn_tensor_destroy(bias);
    return status;
}
