/* SPDX-License-Identifier: MIT
 *
 * Writes the manual pages from the tables, in roff's man macros. attn(1) is the main page. Each command has its own
 * page attn-COMMAND(1), as in git, because a single page would be forty screens long.
 */
#include "command.h"

#include <ctype.h>
#include <string.h>

/* Writes text with escapes, so that roff prints it unchanged. */
static void escape(FILE *file, const char *text, bool line_start)
{
    static const struct {
        char plain;
        const char *named;
    } special[] = {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    for (; *text; text++) {
        const char *named = NULL;
        for (size_t i = 0; i < sizeof special / sizeof *special; i++)
            named = *text == special[i].plain ? special[i].named : named;
        if (line_start && *text == '.')
            fputs("\\&", file);
        if (named)
            fputs(named, file);
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

/* Only lines that begin with a space keep their line breaks. */
static void paragraphs(FILE *file, const char *text)
{
    bool plain = false;
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (length > 0 && plain != (*text == ' ')) {
            fputs(plain ? ".EE\n.PP\n" : ".PP\n.EX\n", file);
            plain = !plain;
        } else if (length == 0 && !plain && text[1] != ' ')
            fputs(".PP\n", file);
        for (size_t i = 0; i < length; i++)
            escape(file, (char[]){text[i], '\0'}, i == 0);
        if (length > 0)
            fputc('\n', file);
        text += length;
        text += *text == '\n';
    }
    if (plain)
        fputs(".EE\n", file);
}

static void option_entry(FILE *file, const cli_option *option)
{
    char name[64], value[128];
    const attn_setting *key = &option->key;
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
    if (key->type != ATTN_CONFIG_TYPE_BOOL && key->default_text && key->default_text[0]) {
        fputs(" (default ", file);
        escape(file, key->default_text, false);
        fputc(')', file);
    }
    fputc('\n', file);
}

static void option_sections(FILE *file, const cli_command *command)
{
    static const char *const heads[] = {"OPTIONS", "SETTINGS", "COMMON OPTIONS"};
    cli_option option;
    int last = -1;
    for (int i = 0; cli_option_at(command, i, &option); i++) {
        int group = cli_option_group(command, i);
        if (group != last)
            fprintf(file, ".SH %s\n", heads[group]);
        last = group;
        option_entry(file, &option);
    }
}

static void pairs(FILE *file, const char *head, const char *const *texts)
{
    fprintf(file, ".SH %s\n", head);
    for (int i = 0; texts[i]; i += 2) {
        fputs(".TP\n\\fB", file);
        escape(file, texts[i], false);
        fputs("\\fR\n", file);
        line(file, texts[i + 1]);
    }
}

/* Writes the name of a page, such as "attn-train-translate". If `title` is true, the name is in capitals. */
static void page_name(const cli_command *command, bool title, char out[64])
{
    snprintf(out, 64, "attn%s%s", command ? "-" : "", command ? command->name : "");
    for (char *c = out; *c; c++)
        *c = *c == ' ' ? '-' : title ? (char)toupper((unsigned char)*c) : *c;
}

/* Writes the head of a page. It has no date, because a date would make two builds differ. */
static void begin(FILE *file, const cli_command *command, const char *summary)
{
    char name[64], title[64];
    page_name(command, false, name);
    page_name(command, true, title);
    fprintf(file, ".\\\" Made by attn help --man.\n.TH %s 1 \"\" \"attn %s\" \"User Commands\"\n.SH NAME\n", title,
            attn_version());
    escape(file, name, false);
    fputs(" \\- ", file);
    line(file, summary);
    fputs(".SH SYNOPSIS\n", file);
}

static void reference(FILE *file, const cli_command *command, const char *after)
{
    char name[64];
    page_name(command, false, name);
    fputs(".BR ", file);
    escape(file, name, false);
    fprintf(file, " (1)%s\n", after);
}

static void see_also(FILE *file, const cli_command *command)
{
    size_t group = command ? strcspn(command->name, " ") : 0;
    fputs(".SH SEE ALSO\n", file);
    for (int i = 0; command && cli_commands[i]; i++) {
        const char *name = cli_commands[i]->name;
        bool near = command->name[group] && strncmp(name, command->name, group + 1) == 0;
        if (near && cli_commands[i] != command)
            reference(file, cli_commands[i], ",");
    }
    if (command)
        reference(file, NULL, "");
    fputs(command ? ".PP\n" : "", file);
    fputs("The guides in attn's documentation directory, on most systems /usr/share/doc/attn.\n", file);
}

static void command_page(FILE *file, const cli_command *command)
{
    begin(file, command, command->summary);
    for (int i = 0; command->usage[i]; i++) {
        fprintf(file, "%s\\fBattn %s\\fR%s", i ? ".br\n" : "", command->name, command->usage[i][0] ? " " : "");
        line(file, command->usage[i]);
    }
    fputs(".SH DESCRIPTION\n", file);
    paragraphs(file, command->description);
    option_sections(file, command);
    fputs(".SH EXAMPLES\n.EX\n", file);
    for (int i = 0; command->examples[i]; i++)
        line(file, command->examples[i]);
    fputs(".EE\n", file);
    pairs(file, "EXIT STATUS", cli_exit_codes);
    pairs(file, "ENVIRONMENT", cli_environment);
    see_also(file, command);
}

static void overview_page(FILE *file)
{
    begin(file, NULL, "train attention networks, use them, and see what they attend to");
    fputs("\\fBattn\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIWORD\\fR...]\n.SH DESCRIPTION\n"
          "Trains translators, classifiers and generators of images and models of protein families whose layers are\n"
          "attention, reads published weights, computes with them near the machine\\(aqs limit, and draws what they\n"
          "attend to.\n"
          ".SH COMMANDS\nEach has a page of its own.\n",
          file);
    for (int i = 0; cli_commands[i]; i++) {
        fputs(".TP\n", file);
        reference(file, cli_commands[i], "");
        line(file, cli_commands[i]->summary);
    }
    option_sections(file, NULL);
    pairs(file, "EXIT STATUS", cli_exit_codes);
    pairs(file, "ENVIRONMENT", cli_environment);
    see_also(file, NULL);
}

void cli_man_page(FILE *file, const cli_command *command)
{
    if (command)
        command_page(file, command);
    else
        overview_page(file);
}
