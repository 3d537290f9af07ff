/* SPDX-License-Identifier: MIT
 *
 * Finds the data of a command.
 */
#include "source.h"
#include "apps/translator/translator.h"
#include "base/context.h"

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

static void tell(void *user, int64_t line, const char *error)
{
    enum { SHOWN = 10 }; /* number of faulty lines that are printed one by one */
    cli_failures *failures = user;
    char name[32];
    if (line == 0) {
        cli_note(failures->cli, "%s", error);
        return;
    }
    snprintf(name, sizeof name, "line %lld", (long long)line);
    if (failures->failed < SHOWN)
        cli_fail(CLI_BAD, "%s: left out", error);
    cli_failures_note(failures, CLI_BAD, name);
}

void cli_source_goes_on(attn_pairs_source *source, cli_failures *failures)
{
    if (!cli_flag(failures->cli, "strict"))
        source->bad = (attn_pairs_bad){tell, failures};
}

attn_config *cli_config_in(const cli_call *cli, const char *directory, const char *name)
{
    char *path = attn__join(cli->context, directory, name);
    attn_config *config = NULL;
    if (!path || attn_config_read(&config, cli->context, path) != ATTN_OK) {
        cli_forgive(cli);
        config = NULL;
    }
    attn__free(cli->context, path);
    return config;
}

attn_config *cli_training_of(const cli_call *cli)
{
    return cli_config_in(cli, cli->words[0], "training.json");
}
