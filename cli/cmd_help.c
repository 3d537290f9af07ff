/* SPDX-License-Identifier: MIT
 *
 * attn help: prints help on a command, the man page, or completion for shells.
 */
#include "commands.h"

#include <string.h>

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

static const cli_option options[] = {
    CLI_FLAG("man", 0, "print the manual page of COMMAND, or of attn, in roff"),
    CLI_CHOICE("completion", shells, "", "print the script by which this shell completes attn's command lines"),
    CLI_FLAG("names", 0, "print the name of every command, one a line"),
};

static const char *const usage[] = {"[COMMAND]", "--man [COMMAND]", "--completion bash|zsh|fish", "--names", NULL};
static const char description[] =
    "Explains COMMAND, or lists the commands. The manual pages and the completions, which make install installs, are "
    "made from the same tables as this help.";
static const char *const examples[] = {
    "attn help translate",
    "attn help --man > attn.1 && man ./attn.1",
    "attn help --man train translate | man -l -",
    "attn help --completion bash > ~/.local/share/bash-completion/completions/attn",
    NULL,
};

/* Prints the help of all commands that begin with the word `first`, such as "train" or "bench". Returns false if
 * there are none. */
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

static void print_names(void)
{
    for (int i = 0; cli_commands[i]; i++)
        puts(cli_commands[i]->name);
}

/* Prints the help of the command that the words name, or of all commands that begin with the word. */
static int explain(const cli_call *cli)
{
    char name[128];
    bool man = cli_flag(cli, "man");
    snprintf(name, sizeof name, "%s%s%s", cli->words[0], cli->nwords > 1 ? " " : "",
             cli->nwords > 1 ? cli->words[1] : "");
    const cli_command *command = cli_command_find(name);
    if (command && man)
        cli_man_page(stdout, command);
    else if (command)
        cli_help_command(stdout, command);
    else if (man || !explain_group(name))
        return cli_command_refuse(name);
    return CLI_OK;
}

static int run(cli_call *cli)
{
    if (cli_given(cli, "completion"))
        cli_completion(stdout, cli_text(cli, "completion"));
    else if (cli_flag(cli, "names"))
        print_names();
    else if (cli->nwords > 0)
        return explain(cli);
    else if (cli_flag(cli, "man"))
        cli_man_page(stdout, NULL);
    else
        cli_help_all(stdout);
    return CLI_OK;
}

const cli_command cli_help = {
    "help", "explain a command; print the man page", usage, description, CLI_OPTIONS(options), NULL, examples, 0, 2,
    run,
};
