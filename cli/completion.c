/* SPDX-License-Identifier: MIT
 *
 * Writes completions of command lines for bash, zsh and fish from the tables of the commands. They complete commands,
 * options, options' lists of values, and architectures. All other words complete to files, which is the shells'
 * default.
 */
#include "command.h"

#include "attn/models.h"

#include <string.h>

/* ---------------------------------------------------------------------------------- what may follow */

/* Writes the possible words after the typed words. If `first` is NULL, these are the first words of all commands.
 * Otherwise they are the second words after `first`. */
static void command_words(FILE *file, const char *first, const char *separator)
{
    const char *last = "";
    size_t skip = first ? strlen(first) + 1 : 0;
    for (int i = 0; cli_commands[i]; i++) {
        const char *name = cli_commands[i]->name;
        if (first && (strncmp(name, first, skip - 1) != 0 || name[skip - 1] != ' '))
            continue;
        size_t length = strcspn(name + skip, " ");
        if (strncmp(last, name + skip, length) != 0 || (last[length] != ' ' && last[length] != '\0'))
            fprintf(file, "%.*s%s", (int)length, name + skip, separator);
        last = name + skip;
    }
}

/* Copies the i-th word that begins several commands, such as "train" or "bench", to `out`. Returns false past the
 * last word. If the word is also a command itself, its first argument is an option. */
static bool group_at(int i, char out[64])
{
    const char *last = "";
    for (int c = 0; cli_commands[c]; c++) {
        const char *name = cli_commands[c]->name;
        size_t length = strcspn(name, " ");
        if (!name[length] || (strncmp(last, name, length) == 0 && last[length] == ' '))
            continue;
        last = name;
        if (i-- > 0)
            continue;
        snprintf(out, 64, "%.*s", (int)length, name);
        return true;
    }
    return false;
}

static void architectures(FILE *file)
{
    for (int i = 0; attn_architecture_at(i); i++)
        fprintf(file, "%s%s", i ? " " : "", attn_architecture_at(i)->name);
}

/* Writes the values of an option, separated by spaces. Returns false if the option has no list of values. */
static bool option_choices(FILE *file, const cli_option *option)
{
    const char *const *choices = option->key.choices;
    if (!choices && !(option->value && strcmp(option->value, "ARCHITECTURE") == 0))
        return false;
    for (int c = 0; file && choices && choices[c]; c++)
        fprintf(file, "%s%s", c ? " " : "", choices[c]);
    if (file && !choices)
        architectures(file);
    return true;
}

/* Writes the possible values of a command's words. They are listed in its first usage line, as in "[ARCHITECTURE",
 * "[COMMAND]" or "[d2l|large]". */
static bool word_choices(FILE *file, const cli_command *command)
{
    const char *word = command->usage[0] + strspn(command->usage[0], "[");
    size_t length = strcspn(word, " ].");
    bool architecture = strncmp(word, "ARCHITECTURE", length) == 0 && length == 12;
    bool name = strncmp(word, "COMMAND", length) == 0 && length == 7;
    /* M,N,K[t|p] is not a list of values, although it has a '|'. */
    bool listed = memchr(word, '|', length) != NULL && !memchr(word, '[', length);
    if (file && architecture)
        architectures(file);
    if (file && name)
        command_words(file, NULL, " ");
    for (size_t i = 0; file && listed && i < length; i++)
        fputc(word[i] == '|' ? ' ' : word[i], file);
    return architecture || name || listed;
}

static bool takes_file(const cli_option *option)
{
    return option->value && (strstr(option->value, "FILE") || strstr(option->value, "DIR") ||
                             strstr(option->value, "PATH") || strstr(option->value, "FOLDER"));
}

/* ---------------------------------------------------------------------------------------------- bash */

static void bash_values(FILE *file, const cli_command *command)
{
    cli_option option;
    char name[64];
    for (int i = 0; cli_option_at(command, i, &option); i++) {
        if (!option_choices(NULL, &option))
            continue;
        fprintf(file, "    '%s --%s'", command->name, cli_option_spell(&option, name));
        if (option.letter)
            fprintf(file, " | '%s -%c'", command->name, option.letter);
        fputs(") words='", file);
        option_choices(file, &option);
        fputs("' ;;\n", file);
    }
}

static void bash_options(FILE *file, const cli_command *command)
{
    cli_option option;
    char name[64];
    fprintf(file, "        '%s') words='", command->name);
    for (int i = 0; cli_option_at(command, i, &option); i++)
        fprintf(file, "--%s ", cli_option_spell(&option, name));
    fputs("' ;;\n", file);
}

static void bash_words(FILE *file, const cli_command *command)
{
    if (!word_choices(NULL, command))
        return;
    fprintf(file, "        '%s') words='", command->name);
    word_choices(file, command);
    fputs("' ;;\n", file);
}

/* Bash splits words at "=", so "--model=b" arrives as three words. */
static void bash(FILE *file)
{
    char group[64];
    fputs("# completion of attn for bash; made by attn help --completion bash\n_attn() {\n"
          "    local current=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" words=\n"
          "    local command=\"${COMP_WORDS[1]}\"\n"
          "    if [ \"$current\" = = ]; then\n        current=\n"
          "    elif [ \"$before\" = = ] && [ \"$COMP_CWORD\" -gt 2 ]; then\n"
          "        before=\"${COMP_WORDS[COMP_CWORD-2]}\"\n    fi\n"
          "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='",
          file);
    command_words(file, NULL, " ");
    fputs("'\n", file);
    for (int i = 0; group_at(i, group); i++) {
        fprintf(file,
                "    elif [ \"$COMP_CWORD\" -eq 2 ] && [ \"$command\" = %s ] && [[ \"$current\" != -* ]]; then\n"
                "        words='",
                group);
        command_words(file, group, " ");
        fputs("'\n", file);
    }
    fputs("    else\n    case \"$command\" in ", file);
    for (int i = 0; group_at(i, group); i++)
        fprintf(file, "%s%s", i ? " | " : "", group);
    fputs(") [[ \"${COMP_WORDS[2]}\" != -* ]] && command=\"$command ${COMP_WORDS[2]}\" ;; esac\n"
          "    case \"$command $before\" in\n",
          file);
    for (int i = 0; cli_commands[i]; i++)
        bash_values(file, cli_commands[i]);
    fputs("    *) case \"$current\" in\n    -*) case \"$command\" in\n", file);
    for (int i = 0; cli_commands[i]; i++)
        bash_options(file, cli_commands[i]);
    fputs("        esac ;;\n    *) case \"$command\" in\n", file);
    for (int i = 0; cli_commands[i]; i++)
        bash_words(file, cli_commands[i]);
    fputs("        esac ;;\n    esac ;;\n    esac\n    fi\n"
          "    [ -n \"$words\" ] && COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "    return 0\n}\n"
          "complete -o default -F _attn attn\n",
          file);
}

/* ----------------------------------------------------------------------------------------------- zsh */

/* Writes text for use in single quotes, with a backslash before each character of `marked`. */
static void zsh_text(FILE *file, const char *text, const char *marked)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", file);
        else
            fprintf(file, strchr(marked, *text) ? "\\%c" : "%c", *text);
}

static void zsh_option(FILE *file, const cli_option *option)
{
    char name[64], value[128];
    bool flag = option->key.type == ATTN_CONFIG_TYPE_BOOL, many = option->key.type == ATTN_CONFIG_TYPE_TEXTS;
    cli_option_spell(option, name);
    fputs(" \\\n            ", file);
    if (option->letter && many)
        fprintf(file, "'*'{-%c+,--%s=}", option->letter, name);
    else if (option->letter)
        fprintf(file, "'(-%c --%s)'{-%c%s,--%s%s}", option->letter, name, option->letter, flag ? "" : "+", name,
                flag ? "" : "=");
    else
        fprintf(file, "%s--%s%s", many ? "'*'" : "", name, flag ? "" : "=");
    fputs("'[", file);
    zsh_text(file, option->key.doc, "[]\\");
    fputc(']', file);
    if (!flag) {
        fputc(':', file);
        zsh_text(file, option_choices(NULL, option) ? name : cli_option_value(option, value), ":\\");
        fputs(takes_file(option) ? ":_files" : option_choices(NULL, option) ? ":(" : ": ", file);
        if (option_choices(file, option))
            fputc(')', file);
    }
    fputc('\'', file);
}

static void zsh_command(FILE *file, const cli_command *command)
{
    cli_option option;
    fprintf(file, "    '%s')\n        _arguments -s", command->name);
    for (int i = 0; cli_option_at(command, i, &option); i++)
        zsh_option(file, &option);
    if (word_choices(NULL, command)) {
        fputs(" \\\n            '*:word:(", file);
        word_choices(file, command);
        fputs(")' ;;\n", file);
    } else
        fputs(" \\\n            '*:file:_files' ;;\n", file);
}

/* Writes the words of commands with their descriptions: the second words after `group`, or the first words if
 * `group` is NULL. */
static void zsh_describe(FILE *file, const char *group)
{
    size_t skip = group ? strlen(group) + 1 : 0;
    char first[64];
    fputs("        local -a commands=(", file);
    for (int i = 0; !group && group_at(i, first); i++)
        if (!cli_command_find(first))
            fprintf(file, "'%s:one of several commands' ", first);
    for (int i = 0; cli_commands[i]; i++) {
        const char *name = cli_commands[i]->name;
        bool under = group && strncmp(name, group, skip - 1) == 0 && name[skip - 1] == ' ';
        if (group ? !under : strchr(name, ' ') != NULL)
            continue;
        fprintf(file, "'%s:", name + skip);
        zsh_text(file, cli_commands[i]->summary, "\\");
        fputs("' ", file);
    }
    fputs(")\n        _describe -t commands command commands\n        return\n", file);
}

static void zsh(FILE *file)
{
    char group[64];
    fputs("#compdef attn\n# completion of attn for zsh; made by attn help --completion zsh\n_attn() {\n"
          "    local command=${words[2]} used=1\n    if (( CURRENT == 2 )); then\n",
          file);
    zsh_describe(file, NULL);
    fputs("    fi\n    case $command in\n", file);
    for (int i = 0; group_at(i, group); i++) {
        fprintf(file, "    %s)\n        if [[ ${words[3]} != -* ]]; then\n        if (( CURRENT == 3 )); then\n",
                group);
        zsh_describe(file, group);
        fputs("        fi\n        command=\"$command ${words[3]}\" used=2\n        fi ;;\n", file);
    }
    fputs("    esac\n    shift $used words\n    (( CURRENT -= used ))\n    case $command in\n", file);
    for (int i = 0; cli_commands[i]; i++)
        zsh_command(file, cli_commands[i]);
    fputs("    esac\n}\n_attn \"$@\"\n", file);
}

/* ---------------------------------------------------------------------------------------------- fish */

/* Writes text in single quotes, where only \ and ' are special. */
static void fish_text(FILE *file, const char *text)
{
    fputc('\'', file);
    for (; *text; text++)
        fprintf(file, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('\'', file);
}

static void fish_option(FILE *file, const cli_command *command, const cli_option *option)
{
    char name[64];
    fprintf(file, "complete -c attn -n '__attn_is %s' -l %s", command->name, cli_option_spell(option, name));
    if (option->letter)
        fprintf(file, " -s %c", option->letter);
    if (option_choices(NULL, option)) {
        fputs(" -x -a '", file);
        option_choices(file, option);
        fputc('\'', file);
    } else if (option->key.type != ATTN_CONFIG_TYPE_BOOL)
        fputs(takes_file(option) ? " -r -F" : " -x", file);
    fputs(" -d ", file);
    fish_text(file, option->key.doc);
    fputc('\n', file);
}

static void fish_command(FILE *file, const cli_command *command)
{
    cli_option option;
    const char *space = strchr(command->name, ' ');
    if (space)
        fprintf(file, "complete -c attn -n '__attn_at %.*s' -f -a %s -d ", (int)(space - command->name), command->name,
                space + 1);
    else
        fprintf(file, "complete -c attn -n '__attn_at' -f -a %s -d ", command->name);
    fish_text(file, command->summary);
    fputc('\n', file);
    if (word_choices(NULL, command)) {
        fprintf(file, "complete -c attn -n '__attn_is %s' -f -a '", command->name);
        word_choices(file, command);
        fputs("'\n", file);
    }
    for (int i = 0; cli_option_at(command, i, &option); i++)
        fish_option(file, command, &option);
}

static void fish(FILE *file)
{
    char group[64];
    fputs("# completion of attn for fish; made by attn help --completion fish\n"
          "function __attn_is # the words begin with this command\n"
          "    set -l words (commandline -opc)\n    set -l last (math 1 + (count $argv))\n"
          "    test (count $words) -ge $last; and test \"$words[2..$last]\" = \"$argv\"\nend\n"
          "function __attn_at # this is all that was typed before\n"
          "    set -l words (commandline -opc)\n    test \"$words[2..-1]\" = \"$argv\"\nend\n",
          file);
    for (int i = 0; group_at(i, group); i++)
        if (!cli_command_find(group))
            fprintf(file, "complete -c attn -n '__attn_at' -f -a %s -d 'one of several commands'\n", group);
    for (int i = 0; cli_commands[i]; i++)
        fish_command(file, cli_commands[i]);
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
