/* SPDX-License-Identifier: MIT
 * A MarianMT model's parameters under the names that Hugging Face gives them. */
#include "apps/marian.h"

#include "io/weights.h"

#include <string.h>

const char *const attn__marian_files[] = {
    "config.json",           "generation_config.json",  "vocab.json", "target_vocab.json", "source.spm", "target.spm",
    "tokenizer_config.json", "special_tokens_map.json", NULL};

attn_status attn__marian_write(attn_context *context, const attn_config *config, const attn_named_list *parameters,
                               const char *path)
{
    bool shared = strcmp(attn_config_text(config, "tie", ""), "all") == 0;
    attn_named_list list = {.context = context, .owns = true};
    attn_names *names;
    attn_status status =
        attn_names_read(&names, context, shared ? "to-marian-huggingface" : "to-marian-huggingface-two");
    attn_weights_options how = {.names = names, .keep_types = true};
    if (status == ATTN_OK)
        status = attn__weights_named(&list, parameters, path, &how);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, NULL);
    attn_named_clear(&list);
    attn_names_destroy(names);
    return status;
}
