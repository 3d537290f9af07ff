/* SPDX-License-Identifier: MIT
 * Collects the inputs of a batch that failed. */
#include "failures.h"

#include <string.h>

static void add_name(cli_failures *f, const char *name)
{
    size_t used = strlen(f->names), length = strlen(name);
    if (f->unnamed > 0 || used + length + 3 > sizeof f->names)
        f->unnamed++;
    else
        snprintf(f->names + used, sizeof f->names - used, "%s%s", used ? ", " : "", name);
}

int cli_failures_note(cli_failures *failures, int code, const char *name)
{
    failures->tried++;
    if (code == CLI_OK)
        return CLI_OK;
    failures->failed++;
    add_name(failures, name);
    if (code != CLI_BAD || cli_flag(failures->cli, "strict"))
        return code;
    cli_forgive(failures->cli); /* Without this call, the error would be reported again for the next input. */
    return CLI_OK;
}

int cli_failures_end(const cli_failures *failures)
{
    char more[48] = "";
    if (failures->failed == 0)
        return CLI_OK;
    if (failures->unnamed > 0)
        snprintf(more, sizeof more, " and %lld more", (long long)failures->unnamed);
    if (failures->tried > 1)
        cli_fail(CLI_BAD, "%lld of %lld %s failed: %s%s", (long long)failures->failed, (long long)failures->tried,
                 failures->things, failures->names, more);
    return CLI_BAD;
}
