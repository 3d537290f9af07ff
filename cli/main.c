/* SPDX-License-Identifier: MIT
 * attn. */
#include "commands.h"

#include <string.h>

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return cli_bench_start(argv + 1);
    return cli_main(argc, argv);
}
