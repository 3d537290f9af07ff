/* SPDX-License-Identifier: MIT
 *
 * attn version: prints the version of the program, its build options, and the machine.
 */
#include "commands.h"
#include "build_info.h"
#include "base/cpu.h"

static const cli_option options[] = {
    CLI_FLAG("build", 0, "also the compiler, its flags, the build's settings, the libraries and the instruction sets"),
};

static const char *const usage[] = {"", NULL};
static const char description[] =
    "Prints the version, the threads and the instruction set in use, and the sets that this machine has. With --build "
    "also what an error report needs: the compiler and its version, the flags and settings of the build, the libraries "
    "that it was built with and their versions, and the instruction sets that it has kernels for.";
static const char *const examples[] = {"attn version", "attn version --build --json",
                                       "ATTN_ISA=avx2 attn version --threads 1", NULL};

typedef struct pair {
    const char *name, *value;
} pair;

#define ROW(name, value) {name, value},
static const pair settings[] = {BUILD_SETTINGS(ROW){NULL, NULL}};
static const pair libraries[] = {BUILD_LIBRARIES(ROW){NULL, NULL}};
#undef ROW

/* Returns true if the program contains kernels for the instruction set. The machine may lack the set. */
static bool is_built(attn__isa isa)
{
#if defined(__x86_64__)
    return isa == ATTN_ISA_AMX ? ATTN__COMPILES_AMX : isa != ATTN_ISA_NEON;
#elif defined(__aarch64__)
    return isa == ATTN_ISA_SCALAR || isa == ATTN_ISA_NEON;
#else
    return isa == ATTN_ISA_SCALAR;
#endif
}

/* --------------------------------------------------------------------------------------------------- JSON */

static void put_pairs(attn_json *json, const char *key, const pair *pairs)
{
    attn_json_object(json, key);
    for (int i = 0; pairs[i].name; i++)
        attn_json_text(json, pairs[i].name, pairs[i].value);
    attn_json_end(json);
}

static void put_build(attn_json *json)
{
    attn_json_object(json, "build");
    attn_json_text(json, "compiler", BUILD_COMPILER);
    attn_json_text(json, "type", BUILD_TYPE);
    attn_json_text(json, "flags", BUILD_FLAGS);
    put_pairs(json, "settings", settings);
    put_pairs(json, "libraries", libraries);
    attn_json_array(json, "isas");
    for (int isa = ATTN_ISA_COUNT - 1; isa >= 0; isa--)
        if (is_built((attn__isa)isa))
            attn_json_text(json, NULL, attn__isa_text((attn__isa)isa));
    attn_json_end(json);
    attn_json_end(json);
}

static int print_json(const cli_call *cli)
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
    if (cli_flag(cli, "build"))
        put_build(&json);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

/* --------------------------------------------------------------------------------------------------- text */

static void print_build(void)
{
    const char *before = "";
    printf("compiler %s\nbuild %s (%s)\nsettings", BUILD_COMPILER, BUILD_TYPE, BUILD_FLAGS);
    for (int i = 0; settings[i].name; i++)
        printf(" %s=%s", settings[i].name, settings[i].value);
    printf("\nlibraries ");
    for (int i = 0; libraries[i].name; i++, before = ", ")
        printf("%s%s %s", before, libraries[i].name, libraries[i].value);
    printf("\nkernels for ");
    before = "";
    for (int isa = ATTN_ISA_COUNT - 1; isa >= 0; isa--)
        if (is_built((attn__isa)isa)) {
            printf("%s%s", before, attn__isa_text((attn__isa)isa));
            before = ", ";
        }
    putchar('\n');
}

static int run(cli_call *cli)
{
    if (cli->json)
        return print_json(cli);
    printf("attn %s\ninstruction set %s (this machine has:", attn_version(), attn_context_isa(cli->context));
    for (int i = 0; attn_isa_name(i); i++)
        printf("%s %s", i ? "," : "", attn_isa_name(i));
    printf(")\nthreads %d\n", attn_context_threads(cli->context));
    if (cli_flag(cli, "build"))
        print_build();
    return CLI_OK;
}

const cli_command cli_version = {
    "version",
    "print the version, how it was built and what it runs on",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    0,
    run,
};
