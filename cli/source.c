/* SPDX-License-Identifier: MIT
 * Where the data of a command lies. */
#include "source.h"

#include <string.h>

attn_pairs_source cli_source_of(const char *data)
{
    attn_pairs_source source = {0};
    if (strcmp(data, "phrasebook") == 0)
        source.text = attn_phrasebook(&source.size);
    else if (data[0])
        source.path = data;
    return source;
}

attn_config *cli_training_of(const cli_call *cli)
{
    char path[4096];
    attn_config *training = NULL;
    int length = snprintf(path, sizeof path, "%s/training.json", cli->words[0]);
    if (length < 0 || length >= (int)sizeof path || attn_config_read(&training, cli->context, path) != ATTN_OK) {
        cli_forgive(cli);
        training = NULL;
    }
    return training;
}
