/* SPDX-License-Identifier: MIT
 *
 * Processes many files one by one, or divides them among the processes that mpirun started. The printed output is the
 * same in both cases.
 */
#include "failures.h"

#include "dist/join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT, ERR, STREAMS };
typedef struct caught {
    FILE *file[STREAMS];
    int kept[STREAMS]; /* copy of the stream's original descriptor; -1: the stream is not captured */
} caught;

static FILE *stream_of(int i)
{
    return i == OUT ? stdout : stderr;
}

/* If a stream cannot be captured, returns false and sets errno. */
static bool catch_begin(caught *c)
{
    bool done = true;
    *c = (caught){.kept = {-1, -1}};
    for (int i = 0; i < STREAMS && done; i++) {
        fflush(stream_of(i));
        c->file[i] = tmpfile();
        c->kept[i] = c->file[i] ? dup(fileno(stream_of(i))) : -1;
        done = c->kept[i] >= 0 && dup2(fileno(c->file[i]), fileno(stream_of(i))) >= 0;
    }
    return done;
}

static void release(caught *c)
{
    for (int i = 0; i < STREAMS; i++) {
        fflush(stream_of(i));
        if (c->kept[i] >= 0) {
            dup2(c->kept[i], fileno(stream_of(i)));
            close(c->kept[i]);
        }
    }
}

/* Makes a text that holds an exit code, the length of the first stream's output, and the output of both streams. After
 * an error, prints a message with the item's name and returns NULL. */
static char *catch_text(const caught *c, const char *name, int code, size_t *size)
{
    long length[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        length[i] = fseek(c->file[i], 0, SEEK_END) == 0 ? ftell(c->file[i]) : 0;
        length[i] = length[i] > 0 ? length[i] : 0;
    }
    size_t head = sizeof code + sizeof *length;
    *size = head + (size_t)length[OUT] + (size_t)length[ERR];
    char *text = calloc(*size + 1, 1), *at = text;
    if (!text) {
        cli_fail(CLI_FAILED, "%s: no memory for the %zu bytes of its output", name, *size);
        return NULL;
    }
    memcpy(at, &code, sizeof code);
    memcpy(at + sizeof code, &length[OUT], sizeof *length);
    at += head;
    for (int i = 0; i < STREAMS; i++) {
        rewind(c->file[i]);
        size_t read = fread(at, 1, (size_t)length[i], c->file[i]);
        if (read < (size_t)length[i]) {
            free(text);
            cli_fail(CLI_FAILED, "%s: its output cannot be read back from the temporary file", name);
            return NULL;
        }
        at += length[i];
    }
    return text;
}

/* Prints both streams of a text of catch_text. Returns its exit code. */
static int tell(const char *text, size_t size)
{
    int code = CLI_FAILED;
    long out = 0;
    size_t head = sizeof code + sizeof out;
    memcpy(&code, text, sizeof code);
    memcpy(&out, text + sizeof code, sizeof out);
    fwrite(text + head, 1, (size_t)out, stdout);
    fflush(stdout);
    fwrite(text + head + out, 1, size - head - (size_t)out, stderr);
    return code;
}

/* *code is the item's exit code. Returns CLI_OK unless capturing failed. */
static int run_caught(int (*one)(void *user, int i), void *user, int i, const char *name, char **text, size_t *size,
                      int *code)
{
    caught c;
    bool done = catch_begin(&c);
    int error = errno;
    *code = done ? one(user, i) : CLI_FAILED;
    release(&c);
    *text = done ? catch_text(&c, name, *code, size) : NULL;
    for (int k = 0; k < STREAMS; k++)
        if (c.file[k])
            fclose(c.file[k]);
    if (!done)
        return cli_fail(CLI_FAILED, "%s: cannot create a temporary file for its output: %s", name, strerror(error));
    return *text ? CLI_OK : CLI_FAILED;
}

/* Sends the output of each item to rank 0, in the order of the items. Call it after every rank has run its own
 * items. */
static int deliver(const cli_call *cli, int n, const char *const *names, char **texts, size_t *sizes)
{
    cli_failures failures = {.cli = cli, .things = "files"};
    attn_context *context = cli->context;
    int rank = attn_ranks_rank(context), ranks = attn_ranks_size(context), code = CLI_OK;
    for (int i = 0; i < n && code == CLI_OK; i++) {
        bool mine = i % ranks == rank;
        char *text = mine ? texts[i] : NULL;
        size_t size = mine ? sizes[i] : 0;
        if (attn_ranks_text(context, i % ranks, &text, &size) != ATTN_OK)
            return cli_failed(cli, NULL);
        code = cli_failures_note(&failures, tell(text, size), names[i]);
        if (!mine)
            attn_ranks_text_free(context, text);
    }
    return code == CLI_OK ? cli_failures_end(&failures) : code;
}

static int run_here(const cli_call *cli, int n, const char *const *names, int (*one)(void *user, int i), void *user)
{
    cli_failures failures = {.cli = cli, .things = "files"};
    int code = CLI_OK;
    for (int i = 0; i < n && code == CLI_OK; i++) {
        if (n > 1)
            cli_watch_work("files", i, n);
        code = cli_failures_note(&failures, one(user, i), names[i]);
    }
    return code == CLI_OK ? cli_failures_end(&failures) : code;
}

int cli_spread(const cli_call *cli, int n, const char *const *names, int (*one)(void *user, int i), void *user)
{
    int rank = attn_ranks_rank(cli->context), ranks = attn_ranks_size(cli->context), code = CLI_OK;
    if (ranks == 1)
        return run_here(cli, n, names, one, user);
    cli_failures mine = {.cli = cli};
    char **texts = calloc((size_t)n, sizeof *texts);
    size_t *sizes = calloc((size_t)n, sizeof *sizes);
    bool room = texts && sizes;
    int trouble = room ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
    for (int i = rank; room && i < n && code == CLI_OK && trouble == CLI_OK; i += ranks) {
        trouble = run_caught(one, user, i, names[i], &texts[i], &sizes[i], &code);
        code = cli_failures_note(&mine, code, names[i]);
    }
    code = cli_ranks_agree(cli, trouble);
    if (code == CLI_OK && room)
        code = deliver(cli, n, names, texts, sizes);
    for (int i = 0; i < n && texts; i++)
        free(texts[i]);
    free(texts);
    free(sizes);
    return code;
}
