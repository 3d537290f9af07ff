/* SPDX-License-Identifier: MIT
 * Finds a command of the program's table. */
#include "command.h"

#include <string.h>

const cli_command *cli_command_find(const char *name)
{
    for (int i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}

/* Writes the commands of two words that begin with `word` to `members`, for an error message. Returns false if there
 * are none. */
static bool is_family(const char *word, char *members, size_t size)
{
    size_t length = strlen(word);
    members[0] = '\0';
    for (int i = 0; cli_commands[i]; i++) {
        const char *name = cli_commands[i]->name;
        if (strncmp(name, word, length) == 0 && name[length] == ' ')
            snprintf(members + strlen(members), size - strlen(members), "%sattn %s", members[0] ? ", " : "", name);
    }
    return members[0] != '\0';
}

int cli_command_refuse(const char *word)
{
    char members[256];
    if (is_family(word, members, sizeof members))
        return cli_fail(CLI_BAD, "\"%s\" is only the first word of a command; the commands are: %s", word, members);
    attn_nearest nearest = {.word = word};
    for (int i = 0; cli_commands[i]; i++) {
        char first[64];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(cli_commands[i]->name, " "), cli_commands[i]->name);
        attn_nearest_offer(&nearest, first);
    }
    if (attn_nearest_found(&nearest))
        return cli_fail(CLI_BAD, "there is no command \"%.60s\"; did you mean \"%s\"?", word, nearest.best);
    return cli_fail(CLI_BAD, "there is no command \"%.60s\"; attn --help lists the commands", word);
}
