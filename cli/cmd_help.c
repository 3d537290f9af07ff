/* SPDX-License-Identifier: MIT
 * attn help: help on a command, the man page, completion for shells. */
#include "commands.h"

#include <string.h>

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

static const cli_option options[] = {
    CLI_FLAG("man", 0, "print the manual page, in roff"),
    CLI_CHOICE("completion", shells, "", "print what this shell needs to complete attn's command lines"),
};

static const char *const usage[] = {"[COMMAND]", "--man", "--completion bash|zsh|fish", NULL};
static const char description[] =
    "Explains COMMAND, or lists the commands. The manual page and the completions are made "
    "from the same tables as everything else here.";
static const char *const examples[] = {
    "attn help translate",
    "attn help --man > attn.1 && man ./attn.1",
    "attn help --completion bash > ~/.local/share/bash-completion/completions/attn",
    NULL,
};

/* "train" and "bench" are the first words of several commands: all of them are explained. */
static bool explain_group(const char *first)
{
    size_t length = strlen(first);
    bool any = false;
    for (int i = 0; cli_commands[i]; i++) {
        if (strncmp(cli_commands[i]->name, first, length) != 0 || cli_commands[i]->name[length] != ' ')
            continue;
        if (any)
            puts("");
        cli_help_command(stdout, cli_commands[i]);
        any = true;
    }
    return any;
}

static int run(cli_call *cli)
{
    char name[128];
    if (cli_flag(cli, "man"))
        cli_man_page(stdout);
    else if (cli_given(cli, "completion"))
        cli_completion(stdout, cli_text(cli, "completion"));
    else if (cli->nwords == 0)
        cli_help_all(stdout);
    else {
        snprintf(name, sizeof name, "%s%s%s", cli->words[0], cli->nwords > 1 ? " " : "",
                 cli->nwords > 1 ? cli->words[1] : "");
        const cli_command *command = cli_command_find(name);
        if (command)
            cli_help_command(stdout, command);
        else if (!explain_group(name))
            return cli_fail(CLI_BAD, "there is no command \"%s\"; attn --help lists them", name);
    }
    return CLI_OK;
}

const cli_command cli_help = {
    "help", "explain a command; print the man page", usage, description, CLI_OPTIONS(options), NULL, examples, 0, 2,
    run,
};
