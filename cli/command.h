/* SPDX-License-Identifier: MIT
 *
 * command.h - the framework of the command line program: subcommands, their options, and the data of a run.
 *
 * A command is one file, cmd_NAME.c, that ends with its cli_command. commands.c lists all commands. Each command has
 * one table of options, which is used for parsing, --help, the man page and the shells' completion. An option is
 * described by the library's attn_setting, so that the settings of a training become options without a second table. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "io/directory.h"
#include "io/json_writer.h"
#include "config/nearest.h"
#include "attn/io.h"
#include "attn/translate.h"

#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_BAD = 2, CLI_INTERRUPTED = 130 };

/* An option of a command. key.name has '_' where the user writes '-'. An option of type BOOL is a flag. An option of
 * type TEXTS may be given several times. */
typedef struct cli_option {
    attn_setting key;
    char letter;       /* letter of the short form; 0: none */
    const char *value; /* placeholder of the value in help; NULL: it follows from the type */
    bool writes;       /* the value is a file or directory that the command writes, or NAME=FILE */
} cli_option;

/* clang-format off */
#define CLI_OPTION(type, name, letter, value, otherwise, least, most, choices, doc)                                    \
    {{name, ATTN_CONFIG_TYPE_##type, otherwise, least, most, choices, doc}, letter, value, false}
/* An option of type TEXT or TEXTS that names an output. */
#define CLI_WRITES(type, name, letter, value, otherwise, doc)                                                          \
    {{name, ATTN_CONFIG_TYPE_##type, otherwise, 0, 0, NULL, doc}, letter, value, true}
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
typedef struct cli_guard cli_guard;

typedef struct cli_command {
    const char *name; /* the words that the user types: "translate", "train translate" */
    const char *summary;
    const char *const *usage; /* forms of use, without the name of the command; NULL-terminated */
    const char *description;  /* paragraphs, separated by empty lines; lines that begin with a space are not wrapped */
    const cli_option *options;
    int noptions;
    /* name of the attn_trainer whose settings become options of this command; NULL: none */
    const char *trains;
    const char *const *examples;
    /* minimum and maximum number of words that are not options; max < 0: no maximum */
    int min, max;
    int (*run)(cli_call *cli);
} cli_command;

#define CLI_OPTIONS(array) (array), (int)(sizeof(array) / sizeof *(array))

struct cli_call {
    const cli_command *command;
    attn_context *context; /* context with the requested number of threads */
    attn_context *parse_context;
    attn_config *given; /* values of the options that the user gave, by key name */
    int nwords;
    const char **words; /* words that are not options; they belong to argv */
    bool json, quiet;
    cli_guard *guard;
};

/* ---------------------------------------------------------------------------------------- program.c */

/* The program's commands, NULL-terminated, in the order of the overview. Each program defines its own. */
extern const cli_command *const cli_commands[];
/* Finds the command, runs it and returns the exit code of the program. */
int cli_main(int argc, char **argv);
/* Returns the command as it was started, such as "build/attn", or "attn" if the shell found it in PATH. So suggestions
 * can be typed. */
const char *cli_self(void);

/* ----------------------------------------------------------------------------------- command_find.c */

const cli_command *cli_command_find(const char *name);
/* Prints that no command has this name, and suggests a similar name. Returns an exit code. */
int cli_command_refuse(const char *name);

/* ----------------------------------------------------------------------------------------- options.c */

/* Finds the i-th option of a command: first its own options, then the settings of its training, then the options of
 * every command. Returns false past the end. If `command` is NULL, there are only the options of every command. */
bool cli_option_at(const cli_command *command, int i, cli_option *option);
/* Returns where the i-th option comes from: 0: the command's own options; 1: settings of a training; 2: options of
 * every command. */
int cli_option_group(const cli_command *command, int i);
/* Writes the option's name as the user types it, without dashes, to `out` of 64 bytes. Returns `out`. */
const char *cli_option_spell(const cli_option *option, char *out);
/* Writes the placeholder of the option's value to `out` of 128 bytes: "N", "FILE", "adam|sgd", or "" for flags.
 * Returns `out`. */
const char *cli_option_value(const cli_option *option, char *out);

/* Result of parsing if the command should run. Any other result is an exit code, because help was requested or an
 * error has been printed. */
enum { CLI_PARSED = -1 };
int cli_parse(cli_call *cli, int argc, char **argv);

bool cli_given(const cli_call *cli, const char *name);
/* Return the value that the user gave, or else the option's default. */
bool cli_flag(const cli_call *cli, const char *name);
int64_t cli_int(const cli_call *cli, const char *name);
double cli_real(const cli_call *cli, const char *name);
const char *cli_text(const cli_call *cli, const char *name);
/* Returns all values of an option that may be given several times, or NULL if it is not given. */
const attn_config_value *cli_many(const cli_call *cli, const char *name);

/* -------------------------------------------------------------------------------------------- guard.c */

/* Begins and ends the guard of a run, which refuses to overwrite an input and to write a file twice. It compares the
 * files of the command line and those that the library opens and writes. cli_guard_begin returns an exit code. */
int cli_guard_begin(cli_call *cli);
void cli_guard_end(cli_call *cli);
/* Announces that the command will write the file `path`. A command that writes several files claims them all before it
 * writes the first one; those that an option names are claimed already. `from` is the input whose result the file is,
 * for the error message; NULL: none. Refuses an input and a file that is claimed already. Returns an exit code. */
int cli_claim(const cli_call *cli, const char *path, const char *from);
/* Notes that the command will read the file `path`, which the command line does not name, such as a picture of a
 * folder. Refuses a claimed file. Does nothing if it is no regular file. Returns an exit code. */
int cli_reads(const cli_call *cli, const char *path);
/* Returns the absolute path without its first slash, and without "." and "..", which are removed without looking at
 * links. The caller frees it with attn__free. Returns NULL if there is no memory. */
char *cli_path_below_root(const cli_call *cli, const char *path);
/* Claims the files `names` in a directory. The list ends with NULL. */
int cli_claim_in(const cli_call *cli, const char *directory, const char *const *names);
/* Names the directory of a training, whose files the run may read and then write again. */
void cli_guard_own(const cli_call *cli, const char *directory);

/* ---------------------------------------------------------------------------------------------- say.c */

/* Prints "attn: " and the message as one line on stderr. Returns `code`. */
int cli_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns the last message of cli_fail without "attn: ", or NULL if there is none. */
const char *cli_last_failure(void);
/* Prints the context's error. If `where` is not NULL, `where` and ": " come first. Returns the exit code of the
 * error's status. */
int cli_failed(const cli_call *cli, const char *where);
/* Clears the error of a call that was allowed to fail. ATTN_ERROR_MEMORY is not cleared, because the call then has
 * no result. */
void cli_forgive(const cli_call *cli);
int cli_exit_code(attn_status status);
/* Prints a line on stderr, unless --quiet is set. */
void cli_note(const cli_call *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints each line of `notes`, such as those about skipped tensors, as a note. NULL is allowed. */
void cli_notes(const cli_call *cli, const char *notes);
/* Prints a line on stderr, even with --quiet. It warns that a request was carried out only in part. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints like printf, but without control characters. Use it for names, classes and sentences from files, because
 * their control characters could control the terminal. */
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool cli_print_lost(void);
/* Prints finished JSON to stdout and frees it. Returns an exit code. */
int cli_print_json(const cli_call *cli, attn_json *json);
/* Write a count such as "1,234,567", or bytes such as "4.7 MB", to `out` of 32 bytes. Return `out`. */
const char *cli_count(int64_t n, char *out);
const char *cli_bytes(double n, char *out);
/* Returns the width of a text in terminal columns: its number of code points without combining accents. */
int cli_width(const char *text);
/* Prints `text` padded with spaces to `width` columns. A longer text is cut and ends in "…". */
void cli_print_cell(FILE *file, const char *text, int width);

/* --------------------------------------------------------------------------------------------- help.c */

void cli_help_overview(FILE *file);
void cli_help_all(FILE *file);
void cli_help_command(FILE *file, const cli_command *command);
/* Pairs of a name and its meaning; NULL-terminated. */
extern const char *const cli_exit_codes[], *const cli_environment[];
/* The first line begins at column `column`, and all other lines are indented by `indent` spaces. */
void cli_help_wrap(FILE *file, const char *text, int indent, int column);

/* ------------------------------------------------------------------------------------------- ranks.c */

/* Joins the processes that mpirun started (dist/join.h). After this call, only rank 0 prints. Returns an exit code. */
int cli_ranks_join(const cli_call *cli);
/* Agrees on an exit code before ranks divide work. All ranks return the code of a rank that failed, or `code` if
 * none failed. */
int cli_ranks_agree(const cli_call *cli, int code);
/* Leaves the group of ranks. Returns `code`. If another rank failed, returns that rank's code, and rank 0 prints
 * that rank's error. */
int cli_ranks_leave(const cli_call *cli, int code);

/* ------------------------------------------------------------------------------------------- spread.c */

/* Calls one(user, i) for each of n files. After a failure, the other files are still processed, and the names of
 * failed files are printed at the end (failures.h). The exit code is then CLI_BAD. Several ranks share the files,
 * and rank 0 prints the output of all files in order. */
int cli_spread(const cli_call *cli, int n, const char *const *names, int (*one)(void *user, int i), void *user);

/* ------------------------------------------------------------------------------------------- watch.c */

/* Prints progress on stderr from a separate thread until cli_watch_end is called. A line has the finished share of
 * the work and the remaining time. If nothing else is printed, the first line comes after about five seconds, and
 * later lines come at least every 25 seconds. */
void cli_watch_begin(attn_context *context, int tick); /* length of a tick in milliseconds, usually 2000 */
void cli_watch_end(void);
void cli_watch_said(void); /* Tells the watch thread that the command has printed on standard error. */
/* Tells the watch thread that the command waits for input. This time does not count as work. */
void cli_watch_waits(bool for_user);
/* Reports that `done` of `total` things of a loop in the command are finished; a total of -1 is unknown. Call it with
 * done = 0 at the beginning, and with total = 0 at the end. The library reports its own progress. */
void cli_watch_work(const char *things, int64_t done, int64_t total);
/* Sets a function that is called for each progress report of the library; NULL: none. */
void cli_watch_show(void (*show)(void *user, int64_t done, int64_t total), void *user);

/* ------------------------------------------------------------------------------------------ clock.c */

double cli_seconds(void); /* Returns the seconds of a monotonic clock with an arbitrary origin. */

/* ----------------------------------------------------------------------------------- man.c, completion.c */

/* Prints the man page of a command, or attn(1) if `command` is NULL. */
void cli_man_page(FILE *file, const cli_command *command);
/* Returns false for an unknown shell. */
bool cli_completion(FILE *file, const char *shell);

#endif
