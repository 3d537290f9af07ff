/* SPDX-License-Identifier: MIT
 *
 * command.h - the framework of the command line program: subcommands, their options, and the data of a run.
 *
 * A command is one file, cmd_NAME.c, that ends with its cli_command; commands.c lists all commands. Each command has
 * one table of options, which serves parsing, --help, the man page and the shells' completion. An option is described
 * by the library's attn_setting, so the settings of a training are options without a second table. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "io/directory.h"
#include "io/json_writer.h"
#include "base/nearest.h"
#include "attn/io.h"
#include "attn/translate.h"

#include <stdio.h>

/* Exit codes; help.c documents them. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_BAD = 2, CLI_INTERRUPTED = 130 };

/* key.name has '_' where the user writes '-'. key.type BOOL is a flag; TEXTS may be given several times. */
typedef struct cli_option {
    attn_setting key;
    char letter;       /* letter of the short form; 0: none */
    const char *value; /* placeholder of its value in help; NULL: by type */
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
    const char *name;         /* words as typed: "translate", "train translate" */
    const char *summary;      /* one-line description */
    const char *const *usage; /* usage after the name, one form an entry; NULL-terminated */
    const char *description;  /* paragraphs separated by an empty line; lines that start with a space are not wrapped */
    const cli_option *options;
    int noptions;
    const char *trains;          /* name of the attn_trainer whose settings are also options; NULL: none */
    const char *const *examples; /* NULL-terminated */
    /* minimum and maximum number of words in addition to the options; most < 0: any number */
    int min, max;
    int (*run)(cli_call *cli); /* runs the command and returns the exit code */
} cli_command;

#define CLI_OPTIONS(array) (array), (int)(sizeof(array) / sizeof *(array))

/* The data of one run of a command. */
struct cli_call {
    const cli_command *command;
    attn_context *context;       /* made with the requested number of threads */
    attn_context *parse_context; /* owner of the memory of `given` */
    attn_config *given;          /* the given options, by key name */
    int nwords;
    const char **words; /* borrowed from argv */
    bool json, quiet;
};

/* ---------------------------------------------------------------------------------------- commands.c */

extern const cli_command *const cli_commands[]; /* NULL-terminated, in the order of the overview */
const cli_command *cli_command_find(const char *name);
/* Prints that no command has this name, and suggests a similar one; returns an exit code. */
int cli_command_refuse(const char *name);

/* ----------------------------------------------------------------------------------------- options.c */

/* The i-th option of a command: first its own, then settings, then the options of every command. False past the end.
 * `command` may be NULL: only the common options. */
bool cli_option_at(const cli_command *command, int i, cli_option *option);
/* The group of the i-th option: 0, 1 or 2, in this order. */
int cli_option_group(const cli_command *command, int i);
/* The option's name as the user writes it, without dashes, into `out` of 64 bytes; returns `out`. */
const char *cli_option_spell(const cli_option *option, char *out);
/* The placeholder of its value: "N", "FILE", "adam|sgd"; "" for flags.  In `out` of 128 bytes; returns `out`. */
const char *cli_option_value(const cli_option *option, char *out);

enum { CLI_PARSED = -1 }; /* CLI_OK to go on; else an exit code: help was requested, or the error has been printed */
int cli_parse(cli_call *cli, int argc, char **argv);

bool cli_given(const cli_call *cli, const char *name);
/* The given value, or the table's default. */
bool cli_flag(const cli_call *cli, const char *name);
int64_t cli_int(const cli_call *cli, const char *name);
double cli_real(const cli_call *cli, const char *name);
const char *cli_text(const cli_call *cli, const char *name);
/* All values of an option that may be given several times; NULL if there are none. */
const attn_config_value *cli_many(const cli_call *cli, const char *name);

/* ---------------------------------------------------------------------------------------------- say.c */

/* "attn: ..." as one line on stderr; returns `code`. */
int cli_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *cli_last_failure(void); /* the last message of cli_fail, without "attn: "; NULL: none yet */
/* Prints the context's error, after `where` and ": " (NULL: alone); returns the exit code of its status. */
int cli_failed(const cli_call *cli, const char *where);
/* Clears the error of an attempt that may fail. Does not clear an error of memory, which leaves the outcome unknown. */
void cli_forgive(const cli_call *cli);
int cli_exit_code(attn_status status);
/* Prints a line on stderr, unless --quiet is set. */
void cli_note(const cli_call *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a line on stderr, even with --quiet: a request was not fully carried out. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As printf, for text with names, classes or sentences from files: control characters in them are not sent to a
 * terminal. */
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* True if output was lost for lack of memory. */
bool cli_print_lost(void);
/* Prints finished JSON to stdout and frees it; returns an exit code. */
int cli_print_json(const cli_call *cli, attn_json *json);
/* "1234567" as "1,234,567", and bytes as "4.7 MB", in `out` of 32 bytes; return `out`. */
const char *cli_count(int64_t n, char *out);
const char *cli_bytes(double n, char *out);
/* The number of terminal columns of a text: code points that are not combining accents. */
int cli_width(const char *text);
/* Prints `text` padded with spaces to `width` columns; a longer text is cut and ends in "…". */
void cli_print_cell(FILE *file, const char *text, int width);

/* --------------------------------------------------------------------------------------------- help.c */

void cli_help_overview(FILE *file); /* attn without arguments: a description and first examples */
void cli_help_all(FILE *file);      /* attn --help */
void cli_help_command(FILE *file, const cli_command *command);
/* Pairs of a name and its meaning; NULL-terminated. */
extern const char *const cli_exit_codes[], *const cli_environment[];
/* Prints wrapped paragraphs. `indent` spaces precede each line except the first, which starts at column `column`. */
void cli_help_wrap(FILE *file, const char *text, int indent, int column);

/* ------------------------------------------------------------------------------------------- ranks.c */

/* Joins the processes that mpirun started (dist/join.h); afterwards all ranks but rank 0 print nothing. Returns an exit
 * code. */
int cli_ranks_join(const cli_call *cli);
/* Called before ranks divide work. Returns the same code on all ranks: the code of a failed rank, else `code`. */
int cli_ranks_agree(const cli_call *cli, int code);
/* Leaves the group of ranks. Returns `code`, or the code of another rank's failure, which rank 0 prints. */
int cli_ranks_leave(const cli_call *cli, int code);

/* ------------------------------------------------------------------------------------------- spread.c */

/* Calls one(user, i) for each of n files. If one fails, the others still run, the names of failed files are printed at
 * the end, and the exit code is CLI_BAD (failures.h). With several ranks, one rank processes each file, and rank 0
 * prints the output of all in the order of the files. */
int cli_spread(const cli_call *cli, int n, const char *const *names, int (*one)(void *user, int i), void *user);

/* ------------------------------------------------------------------------------------------- watch.c */

/* Between begin and end, progress is printed periodically: the finished part of the work and the remaining time. The
 * first line comes after about five seconds without output, later ones at least every 25 seconds. A separate thread
 * prints them. */
void cli_watch_begin(attn_context *context, int tick); /* milliseconds of a tick: 2000 */
void cli_watch_end(void);
void cli_watch_said(void);           /* call this when something was just printed on standard error */
void cli_watch_waits(bool for_user); /* true while waiting for input, which is no work */
/* Reports `done` of `total` things of the command's own loop, outside of the library's progress. Call it with 0 of
 * `total` at the beginning and with total 0 at the end. */
void cli_watch_work(const char *things, int64_t done, int64_t total);
/* Called for each progress report of the library from here on; NULL: not called any more. */
void cli_watch_show(void (*show)(void *user, int64_t done, int64_t total), void *user);

/* ------------------------------------------------------------------------------------------ clock.c */

double cli_seconds(void); /* seconds of a monotonic clock, from an arbitrary start */

/* ----------------------------------------------------------------------------------- man.c, completion.c */

void cli_man_page(FILE *file, const cli_command *command); /* NULL: the page of attn(1) itself */
bool cli_completion(FILE *file, const char *shell);        /* false: unknown shell */

#endif
