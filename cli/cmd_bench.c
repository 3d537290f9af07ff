/* SPDX-License-Identifier: MIT
 * attn bench: starts attn-bench, which is a program of its own. */
#define _POSIX_C_SOURCE 200809L
#include "commands.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char program[] = "attn-bench";

int cli_bench_start(char **words)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof program);
    char *end = NULL;
    if (length > 0) {
        path[length] = '\0';
        end = strrchr(path, '/');
    }
    if (end) { /* the one beside this program */
        memcpy(end + 1, program, sizeof program);
        execv(path, words);
    }
    if (!end || errno == ENOENT)
        execvp(program, words);
    return cli_fail(CLI_FAILED, "attn bench cannot start %s, which is installed with attn's development files: %s",
                    end ? path : program, strerror(errno));
}

static const char *const usage[] = {"attend|products|train ...", "--sets ...", NULL};
static const char description[] =
    "Starts attn-bench, which is installed with attn's development files. It measures attention, matrix products, "
    "training steps, and all of them on every instruction set of the machine. attn bench --help, attn bench attend "
    "--help and so on explain them.";
static const char *const examples[] = {"attn bench attend", "attn bench --sets", NULL};

/* It is never run: main starts attn-bench, which parses the options. */
const cli_command cli_bench = {
    "bench", "measure speed (with attn-bench)", usage, description, NULL, 0, NULL, examples, 0, -1, NULL,
};
