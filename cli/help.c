/* SPDX-License-Identifier: MIT
 *
 * Prints help texts for a terminal from the tables: the overview, and one page for each command.
 */
#include "command.h"

#include <string.h>

enum { WIDTH = 80, COLUMN = 28 };

const char *const cli_exit_codes[] = {
    "0",   "success",
    "1",   "a failure that is not yours: no memory, or an internal error",
    "2",   "bad usage or bad input: an unknown option, or a file that is missing, damaged or cannot be written",
    "130", "interrupted by Ctrl-C; a training was saved first",
    NULL,
};

const char *const cli_environment[] = {
    "ATTN_THREADS",
    "threads to use where --threads is not given",
    "ATTN_ISA",
    "the instruction set to use; attn version lists those of this machine",
    "ATTN_PRECISION",
    "the precision to use where --precision is not given",
    "ATTN_BATCH_INVARIANT",
    "1: a sequence gives the same bits alone and padded in a batch, at some cost in speed; see docs/numerics.md",
    NULL,
};

/* ------------------------------------------------------------------------------------------- wrapping */

/* Finds the next word of a paragraph. At the end of the paragraph, returns false and sets *text to the newline or to
 * the end of the text. */
static bool next_word(const char **text, const char **word, size_t *length)
{
    while (**text == ' ')
        ++*text;
    *word = *text;
    while (**text && **text != ' ' && **text != '\n')
        ++*text;
    *length = (size_t)(*text - *word);
    return *length > 0;
}

static void wrap_paragraph(FILE *file, const char **text, int indent, int column)
{
    const char *word;
    size_t length;
    bool first = true;
    while (next_word(text, &word, &length)) {
        if (!first && column + 1 + (int)length > WIDTH) {
            fprintf(file, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        fprintf(file, "%s%.*s", first ? "" : " ", (int)length, word);
        column += (int)length + !first;
        first = false;
    }
}

void cli_help_wrap(FILE *file, const char *text, int indent, int column)
{
    while (*text) {
        if (*text == ' ') {
            size_t length = strcspn(text, "\n");
            fprintf(file, "%.*s", (int)length, text);
            text += length;
        } else
            wrap_paragraph(file, &text, indent, column);
        if (!*text)
            break;
        text++;
        fputc('\n', file);
        if (*text && *text != '\n' && *text != ' ')
            fprintf(file, "%*s", indent, "");
        column = indent;
    }
    fputc('\n', file);
}

/* ------------------------------------------------------------------------------------------- options */

/* Writes the option's range as "least to most". A maximum of 1e6 or more counts as no limit: the range is then
 * "at least" a minimum above 0, or an empty text. */
static void range_text(const attn_setting *key, char *out, size_t size)
{
    out[0] = '\0';
    bool number =
        key->type == ATTN_CONFIG_TYPE_INT || key->type == ATTN_CONFIG_TYPE_INTS || key->type == ATTN_CONFIG_TYPE_REAL;
    if (!number || !(key->min < key->max))
        return;
    if (key->max >= 1e6 && key->min > 0)
        snprintf(out, size, "at least %g", key->min);
    else if (key->max < 1e6)
        snprintf(out, size, "%g to %g", key->min, key->max);
}

static void print_option(FILE *file, const cli_option *option)
{
    char name[64], value[128], left[256], range[64], doc[640];
    const attn_setting *key = &option->key;
    cli_option_spell(option, name);
    cli_option_value(option, value);
    int used = option->letter ? snprintf(left, sizeof left, "  -%c, --%s", option->letter, name)
                              : snprintf(left, sizeof left, "      --%s", name);
    snprintf(left + used, sizeof left - (size_t)used, "%s%s", value[0] ? " " : "", value);
    range_text(key, range, sizeof range);
    const char *otherwise = key->default_text ? key->default_text : "";
    if (key->type == ATTN_CONFIG_TYPE_BOOL) /* For a flag that is on by default, the help says how to turn it off. */
        otherwise = strcmp(otherwise, "true") == 0 ? "on; =false turns it off" : "";
    snprintf(doc, sizeof doc, "%s%s%s%s%s%s%s", key->doc, range[0] || otherwise[0] ? " (" : "", range,
             range[0] && otherwise[0] ? "; " : "", otherwise[0] ? "default " : "", otherwise,
             range[0] || otherwise[0] ? ")" : "");
    if ((int)strlen(left) + 2 > COLUMN)
        fprintf(file, "%s\n%*s", left, COLUMN, "");
    else
        fprintf(file, "%-*s", COLUMN, left);
    cli_help_wrap(file, doc, COLUMN, COLUMN);
}

static void print_options(FILE *file, const cli_command *command)
{
    static const char *const heads[] = {"Options:", "Settings:", "Common options:"};
    cli_option option;
    int last = -1;
    for (int i = 0; cli_option_at(command, i, &option); i++) {
        int group = cli_option_group(command, i);
        if (group != last)
            fprintf(file, "\n%s\n", heads[group]);
        last = group;
        print_option(file, &option);
    }
}

/* Prints pairs of a name and its meaning, one pair per line. */
static void print_pairs(FILE *file, const char *head, const char *const *pairs, int indent)
{
    fprintf(file, "\n%s\n", head);
    for (int i = 0; pairs[i]; i += 2) {
        fprintf(file, "  %-*s", indent - 2, pairs[i]);
        cli_help_wrap(file, pairs[i + 1], indent, indent);
    }
}

static void print_exit_codes(FILE *file)
{
    print_pairs(file, "Exit status:", cli_exit_codes, 7);
}

void cli_help_command(FILE *file, const cli_command *command)
{
    fprintf(file, "attn %s - %s\n\nUsage:\n", command->name, command->summary);
    for (int i = 0; command->usage[i]; i++)
        fprintf(file, "  attn %s %s\n", command->name, command->usage[i]);
    fputc('\n', file);
    cli_help_wrap(file, command->description, 0, 0);
    print_options(file, command);
    fputs("\nExamples:\n", file);
    for (int i = 0; command->examples[i]; i++)
        fprintf(file, "  %s\n", command->examples[i]);
    print_exit_codes(file);
}

/* ------------------------------------------------------------------------------------------- overview */

static const struct {
    const char *first, *name;
} groups[] = {{"train translate", "sentences"},
              {"train classify", "pictures"},
              {"contacts", "protein families"},
              {"eval", "any model and weights"},
              {"bench", "speed"},
              {"version", "this program"}};

static void print_commands(FILE *file)
{
    fputs("\nCommands:\n", file);
    for (int i = 0; cli_commands[i]; i++) {
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            if (strcmp(cli_commands[i]->name, groups[g].first) == 0)
                fprintf(file, " %s:\n", groups[g].name);
        fprintf(file, "  %-17s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    }
}

void cli_help_overview(FILE *file)
{
    fputs("attn - train attention networks, use them, and see what they attend to\n\n"
          "Try:\n"
          "  attn demo                                              train a small translator, draw its attention\n"
          "  attn translate out/demo \"Is the door open?\"            translate by it\n"
          "  attn show out/demo \"Is the door open?\" -o page.html    see what it attends to, in a browser\n"
          "  attn train translate --data pairs.tsv --out my-model   learn from your own sentences\n",
          file);
    print_commands(file);
    fputs("\nattn COMMAND --help explains a command.\n", file);
}

void cli_help_all(FILE *file)
{
    cli_help_overview(file);
    print_options(file, NULL);
    print_exit_codes(file);
    print_pairs(file, "Environment:", cli_environment, 24);
}
