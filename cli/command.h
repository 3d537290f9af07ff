/* SPDX-License-Identifier: MIT
 *
 * command.h - the frame of the command: subcommands, their options, and what a run of one is given.
 *
 * A command is one file, cmd_NAME.c, that ends with its cli_command; commands.c lists them.  One table of options
 * a command serves parsing, --help, the man page and the shells' completion.  An option is a key as the library
 * describes its settings (attn_setting), so that a training's settings are options without being written twice.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "io/directory.h"
#include "io/json_writer.h"
#include "base/nearest.h"
#include "attn/io.h"
#include "attn/translate.h"

#include <stdio.h>

/* Exit codes; help.c tells them to the user. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_BAD = 2, CLI_INTERRUPTED = 130 };

/* key.name has '_' where the user writes '-'.  key.type BOOL is a flag; TEXTS may be given several times. */
typedef struct cli_option {
    attn_setting key;
    char letter;       /* of the short form; 0: none */
    const char *value; /* what stands for its value in help; NULL: by type */
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
    const char *name;         /* as typed: "translate", "train translate" */
    const char *summary;      /* one line */
    const char *const *usage; /* what follows the name, one form an entry; NULL-terminated */
    const char *description;  /* paragraphs parted by an empty line; lines that start with a space stay */
    const cli_option *options;
    int noptions;
    const char *trains;          /* the attn_trainer whose settings are further options; NULL: none */
    const char *const *examples; /* NULL-terminated */
    int min, max;                /* words in addition to the options; most < 0: any number */
    int (*run)(cli_call *cli);   /* returns the exit code */
} cli_command;

#define CLI_OPTIONS(array) (array), (int)(sizeof(array) / sizeof *(array))

/* A run of a command. */
struct cli_call {
    const cli_command *command;
    attn_context *context;       /* with the requested threads */
    attn_context *parse_context; /* of `given` */
    attn_config *given;          /* options as given, by key name */
    int nwords;
    const char **words; /* borrowed from argv */
    bool json, quiet;
};

/* ---------------------------------------------------------------------------------------- commands.c */

extern const cli_command *const cli_commands[]; /* NULL-terminated, in the order of the overview */
const cli_command *cli_command_find(const char *name);
/* Prints that no command has this name, and which one may be meant; an exit code. */
int cli_command_refuse(const char *name);

/* ----------------------------------------------------------------------------------------- options.c */

/* The i-th option of a command: its own, then settings, then those that every command has.  False past the
 * end.  `command` may be NULL: only the common ones. */
bool cli_option_at(const cli_command *command, int i, cli_option *option);
/* Which of the three groups it is in: 0, 1 or 2. */
int cli_option_group(const cli_command *command, int i);
/* The option's name as the user writes it, without dashes, into `out` of 64 bytes; returns `out`. */
const char *cli_option_spell(const cli_option *option, char *out);
/* The placeholder of its value: "N", "FILE", "adam|sgd"; "" for flags.  In `out` of 128 bytes; returns `out`. */
const char *cli_option_value(const cli_option *option, char *out);

enum { CLI_PARSED = -1 }; /* else an exit code: help was requested, or the error has been printed */
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
const char *cli_last_failure(void); /* what cli_fail printed last, without "attn: "; NULL: nothing yet */
/* The context's error, after `where` and ": " (NULL: alone); returns the exit code of its status. */
int cli_failed(const cli_call *cli, const char *where);
/* Forgets the error of something that was only tried, unless memory ran out: then the outcome is unknown. */
void cli_forgive(const cli_call *cli);
int cli_exit_code(attn_status status);
/* A line on stderr, unless --quiet. */
void cli_note(const cli_call *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line on stderr, with --quiet too: something is not done as requested. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As printf, for text with names, classes or sentences in it: no control characters of theirs reach a terminal. */
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Something was not printed for lack of memory. */
bool cli_print_lost(void);
/* Prints finished JSON to stdout and frees it; returns an exit code. */
int cli_print_json(const cli_call *cli, attn_json *json);
/* "1234567" as "1,234,567", and bytes as "4.7 MB", in `out` of 32 bytes; return `out`. */
const char *cli_count(int64_t n, char *out);
const char *cli_bytes(double n, char *out);
/* Columns that a text takes on a terminal: code points that are no accents of the one before. */
int cli_width(const char *text);
/* `text` and spaces up to `width` columns; a longer one is cut and ends in "…". */
void cli_print_cell(FILE *file, const char *text, int width);

/* --------------------------------------------------------------------------------------------- help.c */

void cli_help_overview(FILE *file); /* attn alone: what it is, and first examples */
void cli_help_all(FILE *file);      /* attn --help */
void cli_help_command(FILE *file, const cli_command *command);
/* A name and what it means, in turn; NULL-terminated. */
extern const char *const cli_exit_codes[], *const cli_environment[];
/* Paragraphs, wrapped; `indent` spaces before each line but the first, which starts at column `column`. */
void cli_help_wrap(FILE *file, const char *text, int indent, int column);

/* ------------------------------------------------------------------------------------------- ranks.c */

/* Joins the processes that mpirun started (dist/join.h); all but rank 0 are silent from then on.  An exit code. */
int cli_ranks_join(const cli_call *cli);
/* Called before ranks divide work.  Returns the same on all of them: a failed rank's code, else `code`. */
int cli_ranks_agree(const cli_call *cli, int code);
/* Parts from them: `code`, or that of another's failure, which rank 0 tells. */
int cli_ranks_leave(const cli_call *cli, int code);

/* ------------------------------------------------------------------------------------------- spread.c */

/* one(user, i) for each of n files.  Where one fails, the others are done, the names of those that failed are printed
 * at the end, and the exit code is CLI_BAD (failures.h).  Among ranks each file is done by one of them, and rank 0
 * prints what each printed, in the files' order. */
int cli_spread(const cli_call *cli, int n, const char *const *names, int (*one)(void *user, int i), void *user);

/* ------------------------------------------------------------------------------------------- watch.c */

/* Between begin and end, progress is printed periodically: how far the work is and how long it will take, after some
 * five seconds without a word, and at least every 25 seconds.  A thread of its own speaks where the command has been
 * silent. */
void cli_watch_begin(attn_context *context, int tick); /* milliseconds of a tick: 2000 */
void cli_watch_end(void);
void cli_watch_said(void);           /* something was just printed on standard error */
void cli_watch_waits(bool for_user); /* true: for input, which is no work */
/* `done` of `total` things are done, of a loop of the command's own, which precedes the library's count.  0 of
 * `total` at its begin; total 0 at its end. */
void cli_watch_work(const char *things, int64_t done, int64_t total);
/* Called for each report of the library from here on; NULL: no more. */
void cli_watch_show(void (*show)(void *user, int64_t done, int64_t total), void *user);

/* ------------------------------------------------------------------------------------------ clock.c */

double cli_seconds(void); /* of a monotonic clock, from some time on */

/* ----------------------------------------------------------------------------------- man.c, completion.c */

void cli_man_page(FILE *file, const cli_command *command); /* NULL: attn(1) itself */
bool cli_completion(FILE *file, const char *shell);        /* false: no such shell */

#endif
