/* SPDX-License-Identifier: MIT
 * A command that several processes run together, as mpirun starts it: one of them speaks. */
#include "command.h"

#include "attn/ranks.h"

int cli_ranks_join(const cli_call *cli)
{
    if (attn_ranks_join(cli->context) != ATTN_OK)
        return cli_failed(cli, NULL);
    /* Rank 0 tells what goes wrong on the others, too. */
    bool silent = attn_ranks_rank(cli->context) > 0;
    return !silent || (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr)) ? CLI_OK : CLI_FAILED;
}

static attn_status status_of(const cli_call *cli, int code)
{
    attn_status status = attn_context_status(cli->context);
    if (code == CLI_OK)
        return ATTN_OK;
    if (code == CLI_INTERRUPTED)
        return ATTN_INTERRUPTED;
    return status != ATTN_OK ? status : ATTN_ARGUMENT;
}

int cli_ranks_agree(const cli_call *cli, int code)
{
    if (attn_ranks_size(cli->context) < 2 ||
        attn_ranks_agree(cli->context, status_of(cli, code), cli_last_failure()) == ATTN_OK)
        return code;
    return code == CLI_OK ? cli_failed(cli, NULL) : code;
}

int cli_ranks_leave(const cli_call *cli, int code)
{
    code = cli_ranks_agree(cli, code);
    attn_ranks_leave(cli->context);
    return code;
}
