/* SPDX-License-Identifier: MIT
 *
 * Lists options, parses the command line into a config, and reads values from this config.
 */
#include "command.h"

#include "attn/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const precisions[] = {"default", "f32", "fma", "bf16", "int8", NULL};

static const cli_option common[] = {
    CLI_INT("seed", 0, "1", 0, 9e15, "seed of everything random"),
    CLI_INT("threads", 0, "0", 0, 1024, "threads to use; 0: ATTN_THREADS, OMP_NUM_THREADS or all usable cores"),
    CLI_CHOICE(
        "precision", precisions, "default",
        "number format of matrix products: f32, fma (f32 by multiply-adds alone), bf16, int8 (not for training); "
        "default: that of the training that is resumed, else ATTN_PRECISION, else f32"),
    CLI_FLAG("json", 0, "print the result as JSON"),
    CLI_FLAG("quiet", 'q', "no notes and no progress on standard error"),
    CLI_FLAG("help", 'h', "print this and stop"),
};
enum { COMMON = sizeof common / sizeof *common };

/* ------------------------------------------------------------------------------------------ enumerating */

static bool in_common(const char *name)
{
    for (int i = 0; i < COMMON; i++)
        if (strcmp(common[i].key.name, name) == 0)
            return true;
    return false;
}

/* Finds the i-th setting of a command's training. Settings that are also common options, such as seed, are left out. */
static bool setting_at(const cli_command *command, int i, cli_option *option, int *count)
{
    int shown = 0;
    const attn_trainer *trainer = command && command->trains ? attn_trainer_find(command->trains) : NULL;
    const attn_setting *keys = trainer ? trainer->keys : NULL;
    for (int k = 0; trainer && k < trainer->nkeys; k++) {
        if (in_common(keys[k].name))
            continue;
        if (shown++ == i) {
            *option = (cli_option){.key = keys[k]};
            return true;
        }
    }
    *count = shown;
    return false;
}

/* Finds the i-th common option. Options that the command replaces by its own option of the same name are left out,
 * such as --threads of bench. */
static bool common_at(const cli_command *command, int i, cli_option *option)
{
    for (int c = 0; c < COMMON; c++) {
        bool own = false;
        for (int k = 0; command && k < command->noptions; k++)
            own = own || strcmp(command->options[k].key.name, common[c].key.name) == 0;
        if (own || i-- > 0)
            continue;
        *option = common[c];
        return true;
    }
    return false;
}

bool cli_option_at(const cli_command *command, int i, cli_option *option)
{
    int own = command ? command->noptions : 0, settings = 0;
    if (i < own) {
        *option = command->options[i];
        return true;
    }
    if (setting_at(command, i - own, option, &settings))
        return true;
    return common_at(command, i - own - settings, option);
}

int cli_option_group(const cli_command *command, int i)
{
    cli_option option;
    int settings;
    if (command && i < command->noptions)
        return 0;
    return setting_at(command, command ? i - command->noptions : i, &option, &settings) ? 1 : 2;
}

const char *cli_option_spell(const cli_option *option, char *out)
{
    snprintf(out, 64, "%s", option->key.name);
    for (char *c = out; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return out;
}

const char *cli_option_value(const cli_option *option, char *out)
{
    const attn_setting *key = &option->key;
    out[0] = '\0';
    if (option->value)
        snprintf(out, 128, "%s", option->value);
    else if (key->choices)
        for (int i = 0; key->choices[i]; i++)
            snprintf(out + strlen(out), 128 - strlen(out), "%s%s", i ? "|" : "", key->choices[i]);
    else if (key->type != ATTN_CONFIG_TYPE_BOOL)
        snprintf(out, 128, "%s",
                 key->type == ATTN_CONFIG_TYPE_INT    ? "N"
                 : key->type == ATTN_CONFIG_TYPE_INTS ? "N|HEIGHTxWIDTH"
                 : key->type == ATTN_CONFIG_TYPE_REAL ? "X"
                                                      : "TEXT");
    return out;
}

/* -------------------------------------------------------------------------------------------- finding */

static bool same_name(const char *typed, size_t length, const char *name)
{
    if (strlen(name) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if ((typed[i] == '_' ? '-' : typed[i]) != (name[i] == '_' ? '-' : name[i]))
            return false;
    return true;
}

static bool find_long(const cli_command *command, const char *typed, size_t length, cli_option *option)
{
    for (int i = 0; cli_option_at(command, i, option); i++)
        if (same_name(typed, length, option->key.name))
            return true;
    return false;
}

static bool find_letter(const cli_command *command, char letter, cli_option *option)
{
    for (int i = 0; cli_option_at(command, i, option); i++)
        if (option->letter == letter)
            return true;
    return false;
}

static int refuse_unknown(const cli_command *command, const char *typed, size_t length)
{
    char word[64], spelled[64];
    snprintf(word, sizeof word, "%.*s", (int)(length < 63 ? length : 63), typed);
    attn_nearest nearest = {.word = word};
    cli_option option;
    for (int i = 0; cli_option_at(command, i, &option); i++)
        attn_nearest_offer(&nearest, cli_option_spell(&option, spelled));
    if (attn_nearest_found(&nearest))
        return cli_fail(CLI_BAD, "%s has no option --%s; did you mean --%s?", command->name, word, nearest.best);
    return cli_fail(CLI_BAD, "%s has no option --%s; attn %s --help lists the options", command->name, word,
                    command->name);
}

/* -------------------------------------------------------------------------------------------- values */

static int parse_number(const cli_option *option, const char *name, const char *text, attn_config_value *value)
{
    const attn_setting *key = &option->key;
    bool whole = key->type == ATTN_CONFIG_TYPE_INT;
    char *end;
    errno = 0;
    value->type = key->type;
    if (whole) {
        value->integer = strtoll(text, &end, 10);
        value->real = (double)value->integer;
    } else
        value->real = strtod(text, &end);
    if (end == text || *end || errno == ERANGE)
        return cli_fail(CLI_BAD, "--%s: \"%s\" is not a %snumber", name, text, whole ? "whole " : "");
    bool any = !(key->min < 0) && !(key->min > 0) && !(key->max < 0) && !(key->max > 0);
    if (!any && !(value->real >= key->min && value->real <= key->max))
        return cli_fail(CLI_BAD, "--%s cannot be %s; it must be between %.15g and %.15g", name, text, key->min,
                        key->max);
    return CLI_PARSED;
}

/* Parses one side "96", or height and width "96x64". */
static int parse_sides(const cli_option *option, const char *name, const char *text, attn_config_value *value,
                       int64_t sides[2])
{
    const char *cross = strchr(text, 'x');
    cli_option side = *option;
    side.key.type = ATTN_CONFIG_TYPE_INT;
    for (int i = 0; i < 2; i++) {
        char number[32];
        const char *from = i && cross ? cross + 1 : text;
        int length = i == 0 && cross ? (int)(cross - text) : (int)strlen(from);
        snprintf(number, sizeof number, "%.*s", length, from);
        if (cross && (length == 0 || length > 20))
            return cli_fail(CLI_BAD, "--%s: \"%s\" is neither a number nor HEIGHTxWIDTH", name, text);
        int code = parse_number(&side, name, cross ? number : text, value);
        if (code != CLI_PARSED)
            return code;
        sides[i] = value->integer;
    }
    if (sides[0] != sides[1])
        *value = (attn_config_value){.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = sides};
    return CLI_PARSED;
}

static int parse_text(const cli_option *option, const char *name, const char *text, attn_config_value *value)
{
    char list[128];
    const char *const *choices = option->key.choices;
    *value = (attn_config_value){.type = ATTN_CONFIG_TYPE_TEXT, .text = text};
    /* Refuses an empty value, which usually comes from an unset shell variable. No file has an empty name. */
    if (!text[0] && !choices)
        return cli_fail(CLI_BAD, "--%s must not be empty", name);
    for (int i = 0; choices && choices[i]; i++)
        if (strcmp(choices[i], text) == 0)
            return CLI_PARSED;
    return choices ? cli_fail(CLI_BAD, "--%s cannot be \"%s\"; it must be one of %s", name, text,
                              cli_option_value(option, list))
                   : CLI_PARSED;
}

static int parse_flag(const char *name, const char *text, attn_config_value *value)
{
    bool yes = !text || strcmp(text, "true") == 0;
    *value = (attn_config_value){.type = ATTN_CONFIG_TYPE_BOOL, .boolean = yes};
    if (!yes && strcmp(text, "false") != 0)
        return cli_fail(CLI_BAD, "--%s is a switch: it takes no value, or =true or =false", name);
    return CLI_PARSED;
}

static attn_status set_many(cli_call *cli, const char *key, const char *text)
{
    enum { MOST = 64 };
    const char *texts[MOST];
    const attn_config_value *before = attn_config_get(cli->given, key);
    int64_t n = 0;
    for (; before && n < before->n && n < MOST - 1; n++)
        texts[n] = before->texts[n];
    texts[n++] = text;
    attn_config_value value = {.type = ATTN_CONFIG_TYPE_TEXTS, .n = n, .texts = texts};
    return attn_config_set(cli->given, key, &value);
}

static int set_option(cli_call *cli, const cli_option *option, const char *text)
{
    char name[64];
    int64_t sides[2];
    attn_config_value value = {0};
    int code = CLI_PARSED;
    cli_option_spell(option, name);
    if (option->key.type == ATTN_CONFIG_TYPE_BOOL)
        code = parse_flag(name, text, &value);
    else if (option->key.type == ATTN_CONFIG_TYPE_INT || option->key.type == ATTN_CONFIG_TYPE_REAL)
        code = parse_number(option, name, text, &value);
    else if (option->key.type == ATTN_CONFIG_TYPE_INTS)
        code = parse_sides(option, name, text, &value, sides);
    else
        code = parse_text(option, name, text, &value);
    if (code != CLI_PARSED)
        return code;
    attn_status status = option->key.type == ATTN_CONFIG_TYPE_TEXTS
                             ? set_many(cli, option->key.name, text)
                             : attn_config_set(cli->given, option->key.name, &value);
    return status == ATTN_OK ? CLI_PARSED : cli_fail(cli_exit_code(status), "%s", attn_status_text(status));
}

/* ------------------------------------------------------------------------------------------ the line */

/* Parses an option "--name" or "--name=value" at argv[*i]. If the value is the next word, *i advances to this word. */
static int parse_long(cli_call *cli, int argc, char **argv, int *i)
{
    const char *typed = argv[*i] + 2, *equals = strchr(typed, '=');
    size_t length = equals ? (size_t)(equals - typed) : strlen(typed);
    cli_option option;
    if (!find_long(cli->command, typed, length, &option))
        return refuse_unknown(cli->command, typed, length);
    const char *text = equals ? equals + 1 : NULL;
    if (!text && option.key.type != ATTN_CONFIG_TYPE_BOOL) {
        if (*i + 1 >= argc)
            return cli_fail(CLI_BAD, "--%s needs a value", typed);
        text = argv[++*i];
    }
    return set_option(cli, &option, text);
}

/* Parses short options at argv[*i]: "-o", "-oVALUE", or several flags such as "-qh". */
static int parse_short(cli_call *cli, int argc, char **argv, int *i)
{
    for (const char *letter = argv[*i] + 1; *letter; letter++) {
        cli_option option;
        if (!find_letter(cli->command, *letter, &option))
            return cli_fail(
                CLI_BAD,
                "%s has no option -%c; attn %s --help lists the options (put words that start with - after --)",
                cli->command->name, *letter, cli->command->name);
        if (option.key.type == ATTN_CONFIG_TYPE_BOOL) {
            int code = set_option(cli, &option, NULL);
            if (code != CLI_PARSED)
                return code;
            continue;
        }
        if (!letter[1] && *i + 1 >= argc)
            return cli_fail(CLI_BAD, "-%c needs a value", *letter);
        return set_option(cli, &option, letter[1] ? letter + 1 : argv[++*i]);
    }
    return CLI_PARSED;
}

static int check_words(const cli_call *cli)
{
    const cli_command *command = cli->command;
    if (cli->nwords < command->min)
        return cli_fail(CLI_BAD, "usage: attn %s %s (attn %s --help says more)", command->name, command->usage[0],
                        command->name);
    if (command->max >= 0 && cli->nwords > command->max)
        return cli_fail(CLI_BAD, "%s: unexpected argument \"%s\"; put a sentence in quotes", command->name,
                        cli->words[command->max]);
    cli_option option;
    char name[64];
    for (int i = 0; cli_option_at(command, i, &option); i++) {
        if (!option.key.default_text && !attn_config_get(cli->given, option.key.name))
            return cli_fail(CLI_BAD, "%s needs --%s (attn %s --help says more)", command->name,
                            cli_option_spell(&option, name), command->name);
    }
    return CLI_PARSED;
}

int cli_parse(cli_call *cli, int argc, char **argv)
{
    bool options = true;
    for (int i = 0; i < argc; i++) {
        int code = CLI_PARSED;
        if (options && strcmp(argv[i], "--") == 0)
            options = false;
        else if (options && strncmp(argv[i], "--", 2) == 0)
            code = parse_long(cli, argc, argv, &i);
        else if (options && argv[i][0] == '-' && argv[i][1])
            code = parse_short(cli, argc, argv, &i);
        else
            cli->words[cli->nwords++] = argv[i];
        if (code != CLI_PARSED)
            return code;
        if (attn_config_bool(cli->given, "help", false)) {
            cli_help_command(stdout, cli->command);
            return CLI_OK;
        }
    }
    cli->json = cli_flag(cli, "json");
    cli->quiet = cli_flag(cli, "quiet");
    return check_words(cli);
}

/* -------------------------------------------------------------------------------------------- reading */

bool cli_given(const cli_call *cli, const char *name)
{
    return attn_config_get(cli->given, name) != NULL;
}

static const char *otherwise(const cli_call *cli, const char *name)
{
    cli_option option;
    if (!find_long(cli->command, name, strlen(name), &option) || !option.key.default_text)
        return "";
    return option.key.default_text;
}

bool cli_flag(const cli_call *cli, const char *name)
{
    return attn_config_bool(cli->given, name, strcmp(otherwise(cli, name), "true") == 0);
}

int64_t cli_int(const cli_call *cli, const char *name)
{
    return attn_config_int(cli->given, name, strtoll(otherwise(cli, name), NULL, 10));
}

double cli_real(const cli_call *cli, const char *name)
{
    return attn_config_real(cli->given, name, strtod(otherwise(cli, name), NULL));
}

const char *cli_text(const cli_call *cli, const char *name)
{
    return attn_config_text(cli->given, name, otherwise(cli, name));
}

const attn_config_value *cli_many(const cli_call *cli, const char *name)
{
    return attn_config_get(cli->given, name);
}
