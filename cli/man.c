/* SPDX-License-Identifier: MIT
 * The manual page attn(1), in roff's man macros, from the tables. */
#include "command.h"

#include <string.h>

/* Text in which roff finds nothing to interpret. */
static void escape(FILE *file, const char *text, bool line_start)
{
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", file);
        if (*text == '\\')
            fputs("\\e", file);
        else if (*text == '-')
            fputs("\\-", file);
        else
            fputc(*text, file);
        line_start = *text == '\n';
    }
}

static void line(FILE *file, const char *text)
{
    escape(file, text, true);
    fputc('\n', file);
}

static void paragraphs(FILE *file, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        for (size_t i = 0; i < length; i++) {
            char one[2] = {text[i], '\0'};
            escape(file, one, i == 0);
        }
        fputc('\n', file);
        text += length;
        if (strncmp(text, "\n\n", 2) == 0)
            fputs(".PP\n", file);
        text += strspn(text, "\n");
    }
}

static void option_entry(FILE *file, const cli_option *option)
{
    char name[64], value[128];
    const attn_key *key = &option->key;
    fputs(".TP\n\\fB", file);
    if (option->letter)
        fprintf(file, "\\-%c\\fR, \\fB", option->letter);
    fputs("\\-\\-", file);
    escape(file, cli_option_spell(option, name), false);
    fputs("\\fR", file);
    if (cli_option_value(option, value)[0]) {
        fputs(" \\fI", file);
        escape(file, value, false);
        fputs("\\fR", file);
    }
    fputc('\n', file);
    escape(file, key->doc, true);
    if (key->type != ATTN_VALUE_BOOL && key->otherwise && key->otherwise[0]) {
        fputs(" (default ", file);
        escape(file, key->otherwise, false);
        fputc(')', file);
    }
    fputc('\n', file);
}

static void command_section(FILE *file, const cli_command *command)
{
    cli_option option;
    fprintf(file, ".SS attn %s\n", command->name);
    for (int i = 0; command->usage[i]; i++) {
        fprintf(file, "%s\\fBattn %s\\fR ", i ? ".br\n" : "", command->name);
        line(file, command->usage[i]);
    }
    fputs(".PP\n", file);
    paragraphs(file, command->description);
    for (int i = 0; cli_option_at(command, i, &option); i++) {
        if (cli_option_group(command, i) < 2)
            option_entry(file, &option);
    }
    fputs(".PP\n.nf\n", file);
    for (int i = 0; command->examples[i]; i++)
        line(file, command->examples[i]);
    fputs(".fi\n", file);
}

void cli_man_page(FILE *file)
{
    cli_option option;
    fprintf(file, ".TH ATTN 1 \"\" \"attn %s\" \"User Commands\"\n", attn_version());
    fputs(".SH NAME\nattn \\- train attention networks, use them, and see what they attend to\n"
          ".SH SYNOPSIS\n\\fBattn\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIWORD\\fR...]\n.SH COMMANDS\n",
          file);
    for (int i = 0; cli_commands[i]; i++)
        command_section(file, cli_commands[i]);
    fputs(".SH COMMON OPTIONS\n", file);
    for (int i = 0; cli_option_at(NULL, i, &option); i++)
        option_entry(file, &option);
    fputs(".SH EXIT STATUS\n", file);
    for (int i = 0; cli_exit_codes[i]; i += 2) {
        fprintf(file, ".TP\n\\fB%s\\fR\n", cli_exit_codes[i]);
        line(file, cli_exit_codes[i + 1]);
    }
    fputs(".SH ENVIRONMENT\n", file);
    for (int i = 0; cli_environment[i]; i += 2) {
        fprintf(file, ".TP\n\\fB%s\\fR\n", cli_environment[i]);
        line(file, cli_environment[i + 1]);
    }
}
