/* SPDX-License-Identifier: MIT
 *
 * command.h - the framework of the command line program: subcommands, their options, and the data of a run.
 *
 * A command is one file, cmd_NAME.c, that ends with its cli_command. commands.c lists all commands. Each command has
 * one table of options, which is used for parsing, --help, the man page and the shells' completion. The library's
 * attn_setting describes an option. So the settings of a training become options without a second table. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "io/directory.h"
#include "io/json_writer.h"
#include "base/nearest.h"
#include "attn/io.h"
#include "attn/translate.h"

#include <stdio.h>

/* The exit codes, which help.c explains to the user. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_BAD = 2, CLI_INTERRUPTED = 130 };

/* An option of a command. key.name has '_' where the user writes '-'. If the type is BOOL, the option is a flag. If
 * the type is TEXTS, the option may be given several times. */
typedef struct cli_option {
    attn_setting key;
    char letter;       /* letter of the short form; 0: there is no short form */
    const char *value; /* placeholder of the value in help; NULL: the type determines the placeholder */
} cli_option;

/* clang-format off */
#define CLI_OPTION(type, name, letter, value, otherwise, least, most, choices, doc)                                    \
    {{name, ATTN_CONFIG_TYPE_##type, otherwise, least, most, choices, doc}, letter, value}
/* clang-format on */
#define CLI_FLAG(name, letter, doc)                   CLI_OPTION(BOOL, name, letter, NULL, "false", 0, 0, NULL, doc)
#define CLI_TEXT(name, letter, value, otherwise, doc) CLI_OPTION(TEXT, name, letter, value, otherwise, 0, 0, NULL, doc)
#define CLI_CHOICE(name, choices, otherwise, doc)     CLI_OPTION(TEXT, name, 0, NULL, otherwise, 0, 0, choices, doc)
#define CLI_MANY(name, letter, value, doc)            CLI_OPTION(TEXTS, name, letter, value, "", 0, 0, NULL, doc)
#define CLI_INT(name, letter, otherwise, least, most, doc)                                                             \
    CLI_OPTION(INT, name, letter, NULL, otherwise, least, most, NULL, doc)
/* clang-format off */
#define CLI_REAL(name, otherwise, least, most, doc)                                                                    \
    CLI_OPTION(REAL, name, 0, NULL, otherwise, least, most, NULL, doc)
/* clang-format on */

typedef struct cli_call cli_call;

typedef struct cli_command {
    const char *name;         /* the words that the user types: "translate", "train translate" */
    const char *summary;      /* one-line description */
    const char *const *usage; /* NULL-terminated forms of use, as they follow the name */
    const char *description;  /* paragraphs, separated by empty lines; lines that start with a space are not wrapped */
    const cli_option *options;
    int noptions;
    /* name of the attn_trainer whose settings become options of this command; NULL: none */
    const char *trains;
    const char *const *examples; /* NULL-terminated examples of use */
    /* minimum and maximum number of words, without options; most < 0: any number */
    int min, max;
    int (*run)(cli_call *cli); /* runs the command and returns the exit code */
} cli_command;

#define CLI_OPTIONS(array) (array), (int)(sizeof(array) / sizeof *(array))

/* The data of one run of a command. */
struct cli_call {
    const cli_command *command;
    attn_context *context;       /* context of the command, which has the requested number of threads */
    attn_context *parse_context; /* context that owns the memory of `given` */
    attn_config *given;          /* options that the user gave, by key name */
    int nwords;
    const char **words; /* words that are not options, borrowed from argv */
    bool json, quiet;
};

/* ---------------------------------------------------------------------------------------- commands.c */

extern const cli_command *const cli_commands[]; /* All commands, NULL-terminated, in the order of the overview. */
const cli_command *cli_command_find(const char *name);
/* Prints that there is no command of this name, and suggests a similar name. Returns an exit code. */
int cli_command_refuse(const char *name);

/* ----------------------------------------------------------------------------------------- options.c */

/* Finds the i-th option of a command. The command's own options come first, then the settings of its training, and
 * then the options that every command has. Returns false past the end. If `command` is NULL, only the last group
 * exists. */
bool cli_option_at(const cli_command *command, int i, cli_option *option);
/* Returns the group of the i-th option. 0: the command's own options; 1: settings of a training; 2: options that
 * every command has. */
int cli_option_group(const cli_command *command, int i);
/* Writes the option's name as the user writes it, without dashes, to `out` of 64 bytes. Returns `out`. */
const char *cli_option_spell(const cli_option *option, char *out);
/* Writes the placeholder of the option's value to `out` of 128 bytes: "N", "FILE", "adam|sgd", or "" for flags.
 * Returns `out`. */
const char *cli_option_value(const cli_option *option, char *out);

/* CLI_PARSED means that the command runs. Any other result is an exit code, because help was requested or an error
 * has been printed. */
enum { CLI_PARSED = -1 };
int cli_parse(cli_call *cli, int argc, char **argv);

bool cli_given(const cli_call *cli, const char *name);
/* Return the value that the user gave, or the default of the table. */
bool cli_flag(const cli_call *cli, const char *name);
int64_t cli_int(const cli_call *cli, const char *name);
double cli_real(const cli_call *cli, const char *name);
const char *cli_text(const cli_call *cli, const char *name);
/* Returns all values of an option that may be given several times. Returns NULL if the option is not given. */
const attn_config_value *cli_many(const cli_call *cli, const char *name);

/* ---------------------------------------------------------------------------------------------- say.c */

/* Prints "attn: " and the message as one line on stderr. Returns `code`. */
int cli_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns the last message of cli_fail without "attn: ". Returns NULL if cli_fail was not called yet. */
const char *cli_last_failure(void);
/* Prints the context's error. If `where` is not NULL, `where` and ": " come first. Returns the exit code of the
 * error's status. */
int cli_failed(const cli_call *cli, const char *where);
/* Clears the error of an attempt that may fail. If the error is ATTN_ERROR_MEMORY, it is not cleared, because the
 * result of the attempt is then unknown. */
void cli_forgive(const cli_call *cli);
int cli_exit_code(attn_status status);
/* Prints a line on stderr. If --quiet is set, prints nothing. */
void cli_note(const cli_call *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a line on stderr, even if --quiet is set. It warns that a request was carried out only in part. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints like printf, without control characters. Use it for all text with names, classes or sentences from files,
 * because a terminal must not receive control characters from files. */
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns true if output was lost because there was no memory. */
bool cli_print_lost(void);
/* Prints finished JSON to stdout and frees it. Returns an exit code. */
int cli_print_json(const cli_call *cli, attn_json *json);
/* Write a count such as "1,234,567", or bytes such as "4.7 MB", to `out` of 32 bytes. Return `out`. */
const char *cli_count(int64_t n, char *out);
const char *cli_bytes(double n, char *out);
/* Returns the number of terminal columns of a text. This is its number of code points without combining accents. */
int cli_width(const char *text);
/* Prints `text`, padded with spaces to `width` columns. If the text is longer, it is cut and ends in "…". */
void cli_print_cell(FILE *file, const char *text, int width);

/* --------------------------------------------------------------------------------------------- help.c */

/* Prints the help of attn without arguments, which is a description and first examples. */
void cli_help_overview(FILE *file);
void cli_help_all(FILE *file); /* Prints the help of `attn --help`. */
void cli_help_command(FILE *file, const cli_command *command);
/* NULL-terminated lists of pairs, which are a name and its meaning. */
extern const char *const cli_exit_codes[], *const cli_environment[];
/* Prints wrapped paragraphs. The first line starts at column `column`. `indent` spaces precede every other line. */
void cli_help_wrap(FILE *file, const char *text, int indent, int column);

/* ------------------------------------------------------------------------------------------- ranks.c */

/* Joins the processes that mpirun started (dist/join.h). After this call, only rank 0 prints. Returns an exit code. */
int cli_ranks_join(const cli_call *cli);
/* Agrees on an exit code before ranks divide work. All ranks return the same code. If a rank failed, it is the code
 * of this rank. Otherwise it is `code`. */
int cli_ranks_agree(const cli_call *cli, int code);
/* Leaves the group of ranks. Returns `code`. If another rank failed, returns its code, and rank 0 prints its error. */
int cli_ranks_leave(const cli_call *cli, int code);

/* ------------------------------------------------------------------------------------------- spread.c */

/* Calls one(user, i) for each of n files. If a file fails, the other files are still processed. The names of failed
 * files are printed at the end, and the exit code is CLI_BAD (failures.h). If there are several ranks, they share the
 * files. Rank 0 prints the output of all files, in their order. */
int cli_spread(const cli_call *cli, int n, const char *const *names, int (*one)(void *user, int i), void *user);

/* ------------------------------------------------------------------------------------------- watch.c */

/* Prints progress on stderr periodically until cli_watch_end is called. A line has the finished part of the work and
 * the remaining time. If nothing else is printed, the first line comes after about five seconds, and later lines
 * come at least every 25 seconds. A separate thread prints the lines. */
void cli_watch_begin(attn_context *context, int tick); /* `tick`: length of a tick in milliseconds, usually 2000 */
void cli_watch_end(void);
void cli_watch_said(void); /* Tells the watch that the command has printed on standard error. */
/* Tells the watch that the command waits for input. This time does not count as work. */
void cli_watch_waits(bool for_user);
/* Reports that `done` of `total` things of the command's own loop are finished. Call it with done 0 at the
 * beginning, and with total 0 at the end. The library's progress is reported separately. */
void cli_watch_work(const char *things, int64_t done, int64_t total);
/* Sets a function that is called for each progress report of the library. NULL means no function. */
void cli_watch_show(void (*show)(void *user, int64_t done, int64_t total), void *user);

/* ------------------------------------------------------------------------------------------ clock.c */

double cli_seconds(void); /* Returns the seconds of a monotonic clock, which starts at an arbitrary time. */

/* ----------------------------------------------------------------------------------- man.c, completion.c */

/* Prints the man page of a command. If `command` is NULL, prints attn(1). */
void cli_man_page(FILE *file, const cli_command *command);
/* Prints the completion script for a shell. Returns false if the shell is not known. */
bool cli_completion(FILE *file, const char *shell);

#endif
