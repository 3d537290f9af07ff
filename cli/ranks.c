/* SPDX-License-Identifier: MIT
 *
 * Runs a command in the processes that mpirun started. Only one of them prints.
 */
#include "command.h"

#include "dist/join.h"

#include <errno.h>
#include <string.h>

int cli_ranks_join(const cli_call *cli)
{
    if (attn_ranks_join(cli->context) != ATTN_OK)
        return cli_failed(cli, NULL);
    /* Only rank 0 prints errors, including those of other ranks. */
    bool silent = attn_ranks_rank(cli->context) > 0;
    if (silent)
        cli_watch_end();
    if (!silent || (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr)))
        return CLI_OK;
    return cli_fail(CLI_FAILED, "/dev/null: %s", strerror(errno));
}

static attn_status status_of(const cli_call *cli, int code)
{
    attn_status status = attn_context_status(cli->context);
    if (code == CLI_OK || (status != ATTN_OK && cli_exit_code(status) == code))
        return code == CLI_OK ? ATTN_OK : status;
    /* Such an exit code is a failure of the command itself, and every rank returns it. */
    return code == CLI_INTERRUPTED ? ATTN_ERROR_INTERRUPTED
           : code == CLI_BAD       ? ATTN_ERROR_ARGUMENT
                                   : ATTN_ERROR_INTERNAL;
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
