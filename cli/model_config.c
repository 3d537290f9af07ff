/* SPDX-License-Identifier: MIT
 *
 * Determines the settings of a model: given settings or sample values.
 */
#include "model_config.h"

#include <string.h>

attn_status cli_model_config_read(const cli_call *cli, attn_config **config)
{
    const char *text = cli_text(cli, "config");
    *config = NULL;
    if (text[strspn(text, " \n\t")] == '{')
        return attn_config_parse(config, cli->context, text, strlen(text), "--config");
    return attn_config_read(config, cli->context, text);
}

/* Returns a sample value for a setting with a usual name. With these values, sizes divide each other, kernels are
 * odd, and models are small. */
static int64_t sample_number(const char *name)
{
    if (strcmp(name, "heads") == 0 || strcmp(name, "num_heads") == 0 || strcmp(name, "M") == 0)
        return 4;
    if (strstr(name, "kernel"))
        return 7;
    return strcmp(name, "depth") == 0 || strcmp(name, "num_layers") == 0 ? 2 : 64;
}

static attn_status set_sample(attn_config *config, const attn_setting *key)
{
    static const int64_t lengths[] = {8, 8};
    const attn_config_value list = {.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = lengths};
    if (key->type == ATTN_CONFIG_TYPE_INTS)
        return attn_config_set(config, key->name, &list);
    return key->type == ATTN_CONFIG_TYPE_INT ? attn_config_set_int(config, key->name, sample_number(key->name))
                                             : ATTN_OK;
}

attn_status cli_model_config_sample(const cli_call *cli, const attn_architecture *architecture, attn_config **config)
{
    attn_status status = attn_config_create(config, cli->context);
    for (int i = 0; status == ATTN_OK && i < architecture->nkeys; i++) {
        const attn_setting *key = &architecture->keys[i];
        /* "vocab_size" gets a value although it is optional, because a model needs either this size or one for each
         * side. */
        bool needed = !key->default_text || strcmp(key->name, "vocab_size") == 0;
        if (needed)
            status = set_sample(*config, key);
    }
    return status;
}
