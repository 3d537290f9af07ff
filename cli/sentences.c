/* SPDX-License-Identifier: MIT
 * Reads sentences from standard input. */
#include "sentences.h"
#include "data/sentences.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_check_sentence(const cli_call *cli, const char *text, size_t length, const char *where, int64_t number)
{
    char place[64];
    size_t needed;
    if (length > CLI_SENTENCE_BYTES)
        return cli_fail(CLI_BAD, "%s:%lld: the sentence is longer than %d bytes, the limit", where, (long long)number,
                        (int)CLI_SENTENCE_BYTES);
    if (memchr(text, '\0', length))
        return cli_fail(CLI_BAD, "%s:%lld: the sentence has a zero byte, so it is not text", where, (long long)number);
    snprintf(place, sizeof place, "%s:%lld", where, (long long)number);
    if (attn_text_normalize(cli->context, text, length, ATTN_COMPAT_NONE, NULL, 0, &needed) != ATTN_OK)
        return cli_failed(cli, place);
    return CLI_OK;
}

int cli_lines_begin(cli_lines *lines)
{
    /* The buffer always has room for a line of maximum length, its newline and a final 0. */
    *lines = (cli_lines){.capacity = 2 * CLI_SENTENCE_BYTES};
    lines->buffer = malloc(lines->capacity + 1);
    return lines->buffer ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
}

void cli_lines_end(cli_lines *lines)
{
    free(lines->buffer);
}

/* Makes room in the buffer and reads the available input. Waits only if nothing is available. */
static int fill(cli_lines *lines)
{
    memmove(lines->buffer, lines->buffer + lines->begin, lines->end - lines->begin);
    lines->end -= lines->begin;
    lines->begin = 0;
    ssize_t got;
    cli_watch_waits(true);
    do
        got = read(STDIN_FILENO, lines->buffer + lines->end, lines->capacity - lines->end);
    while (got < 0 && errno == EINTR);
    cli_watch_waits(false);
    if (got < 0)
        return cli_fail(CLI_BAD, "standard input: %s", strerror(errno));
    lines->ended = got == 0;
    lines->end += (size_t)got;
    return CLI_OK;
}

/* Returns the end of the next line, or NULL if the line has not arrived completely. */
static char *line_end(const cli_lines *lines)
{
    char *start = lines->buffer + lines->begin, *newline = memchr(start, '\n', lines->end - lines->begin);
    if (newline)
        return newline;
    bool last = lines->ended && lines->end > lines->begin, too_long = lines->end - lines->begin > CLI_SENTENCE_BYTES;
    return last || too_long ? lines->buffer + lines->end : NULL;
}

/* Marks the line that ends at `end` as processed. If the line was cut because it is too long, the rest of it
 * remains. */
static void go_behind(cli_lines *lines, const char *end)
{
    lines->number++;
    lines->in_line = end == lines->buffer + lines->end && !lines->ended;
    lines->begin = (size_t)(end - lines->buffer) + (end < lines->buffer + lines->end);
}

static int leave_line(cli_lines *lines)
{
    int code = CLI_OK;
    while (lines->in_line && code == CLI_OK) {
        const char *newline = memchr(lines->buffer + lines->begin, '\n', lines->end - lines->begin);
        lines->in_line = !newline && !lines->ended;
        lines->begin = newline ? (size_t)(newline - lines->buffer) + 1 : lines->end;
        if (lines->in_line)
            code = fill(lines);
    }
    return code;
}

int cli_lines_next(cli_lines *lines, const cli_call *cli, const char **texts, int most, int *n)
{
    *n = 0;
    lines->bad = false;
    int code = leave_line(lines);
    while (code == CLI_OK && !line_end(lines) && !lines->ended)
        code = fill(lines);
    if (code != CLI_OK)
        return code;
    for (char *end; *n < most && (end = line_end(lines)) != NULL;) {
        char *start = lines->buffer + lines->begin;
        size_t length = (size_t)(end - start);
        length -= length > 0 && start[length - 1] == '\r';
        bool good = length <= CLI_SENTENCE_BYTES && !memchr(start, '\0', length);
        size_t needed;
        good = good && attn_text_normalize(cli->context, start, length, ATTN_COMPAT_NONE, NULL, 0, &needed) == ATTN_OK;
        if (!good)
            attn_context_clear_error(cli->context);
        if (!good && *n > 0) /* The good lines before a bad line are returned first. */
            return CLI_OK;
        if (!good) {
            code = cli_check_sentence(cli, start, length, "standard input", lines->number + 1);
            attn_context_clear_error(cli->context);
            lines->bad = true;
            go_behind(lines, end);
            return code;
        }
        texts[(*n)++] = start;
        go_behind(lines, end);
        start[length] = '\0';
    }
    return CLI_OK;
}

void cli_json_sample(attn_json *json, const char *source, const char *reference, const char *prediction)
{
    attn_json_text(json, "source", source);
    attn_json_text(json, "reference", reference);
    attn_json_text(json, "prediction", prediction);
}
