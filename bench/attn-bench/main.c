/* SPDX-License-Identifier: MIT
 * attn-bench: measures speed. `attn bench` runs it, and its commands have the names that they have there. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words)
        return cli_fail(CLI_FAILED, "out of memory");
    words[0] = argv[0];
    words[1] = "bench";
    if (argc > 1)
        memcpy(words + 2, argv + 1, ((size_t)argc - 1) * sizeof *words);
    int code = cli_main(argc > 0 ? argc + 1 : 2, words);
    free(words);
    return code;
}
