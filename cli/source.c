/* SPDX-License-Identifier: MIT
 *
 * Finds the data of a command.
 */
#include "source.h"
#include "apps/translator/translator.h"

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
