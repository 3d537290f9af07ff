/* SPDX-License-Identifier: MIT
 * attn version: of what program this is, on what machine. */
#include "commands.h"

static const char *const usage[] = {"", NULL};
static const char description[] = "Prints the version, the threads and the instruction set in use, and the sets that "
                                  "this machine has.";
static const char *const examples[] = {"attn version", "ATTN_ISA=avx2 attn version --threads 1", NULL};

static int run(cli_call *cli)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "version", attn_version());
    attn_json_text(&json, "isa", attn_context_isa(cli->context));
    attn_json_int(&json, "threads", attn_context_threads(cli->context));
    attn_json_array(&json, "isas");
    for (int i = 0; attn_isa_name(i); i++)
        attn_json_text(&json, NULL, attn_isa_name(i));
    attn_json_end(&json);
    attn_json_end(&json);
    if (cli->json)
        return cli_print_json(cli, &json);
    attn_json_free(&json);
    printf("attn %s\ninstruction set %s (this machine has:", attn_version(), attn_context_isa(cli->context));
    for (int i = 0; attn_isa_name(i); i++)
        printf("%s %s", i ? "," : "", attn_isa_name(i));
    printf(")\nthreads %d\n", attn_context_threads(cli->context));
    return CLI_OK;
}

const cli_command cli_version = {
    "version", "print the version and what it runs on", usage, description, NULL, 0, NULL, examples, 0, 0, run,
};
