/* SPDX-License-Identifier: MIT
 * Finds the command, parses its options and runs it. */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Returns the command that argv[1] names, alone or together with argv[2]. *used is the number of these words. */
static const cli_command *named(int argc, char **argv, int *used)
{
    char both[128];
    if (argc > 2) {
        snprintf(both, sizeof both, "%s %s", argv[1], argv[2]);
        const cli_command *command = cli_command_find(both);
        *used = 2;
        if (command)
            return command;
    }
    *used = 1;
    return cli_command_find(argv[1]);
}

/* Creates the context and returns CLI_OK. On failure, prints the error and sets *context to NULL. */
static int make_context(attn_context **context, int threads, attn_precision precision)
{
    attn_status status =
        attn_context_create(context, &(attn_context_options){.threads = threads, .precision = precision});
    if (status == ATTN_OK)
        return CLI_OK;
    const char *isa = getenv("ATTN_ISA");
    if ((status == ATTN_ERROR_NOT_FOUND || status == ATTN_ERROR_UNSUPPORTED) && isa)
        return cli_fail(CLI_BAD, "ATTN_ISA=%s: %s; attn version lists the instruction sets that can be used", isa,
                        status == ATTN_ERROR_NOT_FOUND ? "there is no such instruction set"
                                                       : "this machine does not have this instruction set");
    const char *named = getenv("ATTN_PRECISION");
    if (status == ATTN_ERROR_ARGUMENT && precision == ATTN_PRECISION_DEFAULT && named)
        return cli_fail(CLI_BAD, "ATTN_PRECISION=%s: expected f32, fma, bf16 or int8", named);
    const char *batch_invariant = getenv("ATTN_BATCH_INVARIANT");
    if (status == ATTN_ERROR_ARGUMENT && batch_invariant && strcmp(batch_invariant, "0") != 0 &&
        strcmp(batch_invariant, "1") != 0)
        return cli_fail(CLI_BAD, "ATTN_BATCH_INVARIANT=%s: expected 0 or 1", batch_invariant);
    return cli_fail(cli_exit_code(status), "%s", attn_status_text(status));
}

static int parse_and_run(cli_call *cli, int argc, char **argv)
{
    int code = cli_parse(cli, argc, argv);
    if (code != CLI_PARSED)
        return code;
    /* DEFAULT is used if the user gave no precision. cli_parse has already checked a given precision. */
    attn_precision precision = ATTN_PRECISION_DEFAULT;
    attn_precision_find(&precision, cli_text(cli, "precision"));
    code = make_context(&cli->context, (int)cli_int(cli, "threads"), precision);
    if (code != CLI_OK)
        return code;
    code = cli_guard_begin(cli);
    if (code == CLI_OK) {
        if (!cli->quiet)
            cli_watch_begin(cli->context, 2000);
        code = cli->command->run(cli);
        cli_watch_end();
    }
    cli_guard_end(cli);
    return code;
}

static int run(const cli_command *command, int argc, char **argv)
{
    cli_call cli = {.command = command};
    int code = make_context(&cli.parse_context, 1, ATTN_PRECISION_F32);
    if (code != CLI_OK)
        return code;
    code = CLI_FAILED;
    cli.words = calloc((size_t)argc + 1, sizeof *cli.words);
    if (!cli.words || attn_config_create(&cli.given, cli.parse_context) != ATTN_OK)
        cli_fail(CLI_FAILED, "out of memory");
    else
        code = parse_and_run(&cli, argc, argv);
    attn_config_destroy(cli.given);
    attn_context_destroy(cli.context);
    attn_context_destroy(cli.parse_context);
    free(cli.words);
    return code;
}

/* Opens /dev/null at each closed standard descriptor, for the wrong direction, so that using the descriptor is still
 * an error. Otherwise the next opened file would get the descriptor, and output would be written into this file. */
static void hold_descriptors(void)
{
    for (int i = 0; i <= 2; i++)
        if (fcntl(i, F_GETFD) == -1 && errno == EBADF)
            /* open() returns i, because i is the lowest free number. */
            (void)!open("/dev/null", i == 0 ? O_WRONLY : O_RDONLY);
}

/* Flushes standard output, because a full disk is detected only when buffered output is written. A closed standard
 * output is an error only if the command prints. */
static int close_output(int code)
{
    bool failed = ferror(stdout) != 0;
    if (cli_print_lost())
        code = cli_fail(CLI_FAILED, "out of memory: not everything was printed");
    errno = 0;
    failed |= fflush(stdout) != 0;
    if (failed || (fclose(stdout) != 0 && errno != EBADF))
        return cli_fail(CLI_BAD, "standard output: %s", errno ? strerror(errno) : "not everything could be written");
    return code;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        cli_help_overview(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_help_all(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0)
        argv[1] += 2;
    if (argv[1][0] == '-')
        return cli_fail(
            CLI_BAD,
            "the command must come before its options: attn COMMAND [OPTION...]; attn --help lists the commands");
    int used;
    const cli_command *command = named(argc, argv, &used);
    return command ? run(command, argc - 1 - used, argv + 1 + used) : cli_command_refuse(argv[1]);
}

static const char *self = "attn";

const char *cli_self(void)
{
    return self;
}

int cli_main(int argc, char **argv)
{
    if (argc > 0 && strchr(argv[0], '/'))
        self = argv[0];
    setlocale(LC_NUMERIC, "C"); /* A library may have set the user's locale before main. */
    /* Writing a file above the size limit then fails with a message instead of ending the program. */
    signal(SIGXFSZ, SIG_IGN);
    hold_descriptors();
    return close_output(dispatch(argc, argv));
}
