/* SPDX-License-Identifier: MIT
 * Completion of command lines by shells, from the tables. */
#include "command.h"

#include <string.h>

/* Words that may follow what has been typed so far: the first words of commands, or the second ones of `first`. */
static void command_words(FILE *file, const char *first, const char *separator)
{
    const char *last = "";
    size_t skip = first ? strlen(first) + 1 : 0;
    for (int i = 0; cli_commands[i]; i++) {
        const char *name = cli_commands[i]->name;
        if (first && (strncmp(name, first, skip - 1) != 0 || name[skip - 1] != ' '))
            continue;
        size_t length = strcspn(name + skip, " ");
        if (strncmp(last, name + skip, length) != 0 || last[length] == '\0')
            fprintf(file, "%.*s%s", (int)length, name + skip, separator);
        last = name + skip;
    }
}

static void option_words(FILE *file, const cli_command *command)
{
    cli_option option;
    char name[64];
    for (int i = 0; cli_option_at(command, i, &option); i++)
        fprintf(file, "--%s ", cli_option_spell(&option, name));
}

/* ------------------------------------------------------------------------------------- bash and zsh */

/* Values of options that have choices, one case each. */
static void bash_choices(FILE *file, const cli_command *command)
{
    cli_option option;
    char name[64];
    for (int i = 0; cli_option_at(command, i, &option); i++) {
        if (!option.key.choices)
            continue;
        fprintf(file, "    '%s --%s') words='", command->name, cli_option_spell(&option, name));
        for (int c = 0; option.key.choices[c]; c++)
            fprintf(file, "%s%s", c ? " " : "", option.key.choices[c]);
        fputs("' ;;\n", file);
    }
}

static void bash(FILE *file)
{
    fputs("# completion of attn for bash; made by attn help --completion bash\n_attn() {\n"
          "    local current=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" words=\n"
          "    local command=\"${COMP_WORDS[1]}\"\n"
          "    [ \"$command\" = train ] && [ \"$COMP_CWORD\" -gt 2 ] && command=\"train ${COMP_WORDS[2]}\"\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='",
          file);
    command_words(file, NULL, " ");
    fputs("'\n    elif [ \"$COMP_CWORD\" -eq 2 ] && [ \"$command\" = train ]; then\n        words='", file);
    command_words(file, "train", " ");
    fputs("'\n    else\n    case \"$command $before\" in\n", file);
    for (int i = 0; cli_commands[i]; i++)
        bash_choices(file, cli_commands[i]);
    fputs("    *) case \"$current\" in -*) case \"$command\" in\n", file);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(file, "        '%s') words='", cli_commands[i]->name);
        option_words(file, cli_commands[i]);
        fputs("' ;;\n", file);
    }
    fputs("        esac ;; esac ;;\n    esac\n    fi\n"
          "    [ -n \"$words\" ] && COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "    return 0\n}\n"
          "complete -o default -F _attn attn\n",
          file);
}

/* zsh runs the bash function. */
static void zsh(FILE *file)
{
    fputs("#compdef attn\nautoload -U +X bashcompinit && bashcompinit\n", file);
    bash(file);
}

/* --------------------------------------------------------------------------------------------- fish */

/* In single quotes, where only \ and ' mean something. */
static void fish_text(FILE *file, const char *text)
{
    fputc('\'', file);
    for (; *text; text++)
        fprintf(file, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('\'', file);
}

static void fish_options(FILE *file, const cli_command *command)
{
    cli_option option;
    char name[64];
    const char *word = strrchr(command->name, ' ') ? strrchr(command->name, ' ') + 1 : command->name;
    const char *first = strchr(command->name, ' ') ? "train" : NULL;
    for (int i = 0; cli_option_at(command, i, &option); i++) {
        if (first)
            fprintf(file, "complete -c attn -n '__fish_seen_subcommand_from %s; and __fish_seen_subcommand_from %s'",
                    first, word);
        else
            fprintf(file,
                    "complete -c attn -n 'not __fish_seen_subcommand_from train; and __fish_seen_subcommand_from %s'",
                    word);
        fprintf(file, " -l %s", cli_option_spell(&option, name));
        if (option.letter)
            fprintf(file, " -s %c", option.letter);
        if (option.key.type != ATTN_VALUE_BOOL)
            fputs(" -r", file);
        if (option.key.choices) {
            fputs(" -f -a '", file);
            for (int c = 0; option.key.choices[c]; c++)
                fprintf(file, "%s%s", c ? " " : "", option.key.choices[c]);
            fputc('\'', file);
        }
        fputs(" -d ", file);
        fish_text(file, option.key.doc);
        fputc('\n', file);
    }
}

static void fish(FILE *file)
{
    fputs("# completion of attn for fish; made by attn help --completion fish\n"
          "complete -c attn -n __fish_use_subcommand -f -a '",
          file);
    command_words(file, NULL, " ");
    fputs("'\ncomplete -c attn -n '__fish_seen_subcommand_from train' -f -a '", file);
    command_words(file, "train", " ");
    fputs("'\n", file);
    for (int i = 0; cli_commands[i]; i++)
        fish_options(file, cli_commands[i]);
}

bool cli_completion(FILE *file, const char *shell)
{
    static const struct shell {
        const char *name;
        void (*print)(FILE *file);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(file);
            return true;
        }
    }
    return false;
}
