/* SPDX-License-Identifier: MIT
 *
 * Prints the output of the command. Errors and notes are single lines on stderr. The output may also be JSON or
 * readable counts.
 */
#include "command.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 2048 };

static char last_failure[LINE];

/* Replaces control characters, including U+0080 to U+009F, by spaces, because they could control a terminal. Names,
 * classes and sentences may come from untrusted files. Line ends or tabs stay if `kept` has them. */
static void disarm(char *text, const char *kept)
{
    for (char *c = text; *c; c++) {
        unsigned char first = (unsigned char)c[0], second = (unsigned char)c[1];
        if ((first < 0x20 && !strchr(kept, first)) || first == 0x7f)
            *c = ' ';
        else if (first == 0xc2 && second >= 0x80 && second < 0xa0)
            c[0] = c[1] = ' ';
    }
}

/* Formats a message as one line, even if it quotes a file name or a sentence of several lines. */
static void print_line(char line[LINE], const char *format, va_list arguments)
{
    vsnprintf(line, LINE, format, arguments);
    disarm(line, "");
    fprintf(stderr, "attn: %s\n", line);
    cli_watch_said();
}

int cli_fail(int code, const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    va_start(arguments, format);
    print_line(last_failure, format, arguments);
    va_end(arguments);
    return code;
}

const char *cli_last_failure(void)
{
    return last_failure[0] ? last_failure : NULL;
}

void cli_note(const cli_call *cli, const char *format, ...)
{
    if (cli->quiet)
        return;
    char line[LINE];
    va_list arguments;
    va_start(arguments, format);
    print_line(line, format, arguments);
    va_end(arguments);
}

void cli_notes(const cli_call *cli, const char *notes)
{
    for (const char *line = notes; line && *line; line += strspn(line, "\n")) {
        int length = (int)strcspn(line, "\n");
        cli_note(cli, "%.*s", length, line);
        line += length;
    }
}

void cli_warn(const char *format, ...)
{
    char line[LINE];
    va_list arguments;
    va_start(arguments, format);
    print_line(line, format, arguments);
    va_end(arguments);
}

int cli_exit_code(attn_status status)
{
    switch (status) {
    case ATTN_OK:
        return CLI_OK;
    case ATTN_ERROR_MEMORY:
    case ATTN_ERROR_BUSY:
    case ATTN_ERROR_INTERNAL:
        return CLI_FAILED;
    case ATTN_ERROR_INTERRUPTED:
        return CLI_INTERRUPTED;
    default:
        return CLI_BAD;
    }
}

int cli_failed(const cli_call *cli, const char *where)
{
    attn_status status = attn_context_status(cli->context);
    const char *error = attn_context_error(cli->context);
    if (!error[0])
        error = attn_status_text(status);
    /* An error without a status is an error in the program itself. */
    int code = status == ATTN_OK ? CLI_FAILED : cli_exit_code(status);
    return where ? cli_fail(code, "%s: %s", where, error) : cli_fail(code, "%s", error);
}

void cli_forgive(const cli_call *cli)
{
    if (attn_context_status(cli->context) != ATTN_ERROR_MEMORY)
        attn_context_clear_error(cli->context);
}

int cli_print_json(const cli_call *cli, attn_json *json)
{
    const char *text;
    int code = CLI_OK;
    if (attn_json_finish(json, &text) == ATTN_OK)
        fputs(text, stdout);
    else
        code = cli_failed(cli, NULL);
    attn_json_free(json);
    return code;
}

static bool lost;

bool cli_print_lost(void)
{
    return lost;
}

void cli_print(const char *format, ...)
{
    va_list arguments, again;
    char few[LINE], *text = few;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(few, sizeof few, format, arguments);
    if (n >= LINE) {
        text = malloc((size_t)n + 1);
        if (text)
            vsnprintf(text, (size_t)n + 1, format, again);
    }
    va_end(again);
    va_end(arguments);
    lost = lost || n < 0 || !text;
    if (n >= 0 && text) {
        disarm(text, "\n\t");
        fputs(text, stdout);
    }
    if (text != few)
        free(text);
}

const char *cli_count(int64_t n, char *out)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), to = 0;
    for (int i = 0; i < length; i++) {
        out[to++] = digits[i];
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && isdigit((unsigned char)digits[i]))
            out[to++] = ',';
    }
    out[to] = '\0';
    return out;
}

const char *cli_bytes(double n, char *out)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    size_t unit = 0;
    while (n >= 1000 && unit + 1 < sizeof units / sizeof *units) {
        n /= 1000;
        unit++;
    }
    snprintf(out, 32, n < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", n, units[unit]);
    return out;
}

/* Returns the length of the character at `text` in bytes, which is at least 1. *columns is its width. */
static size_t character(const char *text, int *columns)
{
    const unsigned char *t = (const unsigned char *)text;
    size_t n = 1;
    while ((t[n] & 0xc0) == 0x80)
        n++;
    /* Accents U+0300 to U+036F have no width, because they combine with the previous character. */
    *columns = (t[0] == 0xcc || (t[0] == 0xcd && t[1] < 0xb0)) ? 0 : 1;
    return n;
}

int cli_width(const char *text)
{
    int width = 0, columns;
    while (*text) {
        text += character(text, &columns);
        width += columns;
    }
    return width;
}

void cli_print_cell(FILE *file, const char *text, int width)
{
    int all = cli_width(text), room = all > width ? width - 1 : width, used = 0, columns;
    while (*text) {
        size_t n = character(text, &columns);
        if (used + columns > room)
            break;
        char one[8] = "";
        memcpy(one, text, n < sizeof one ? n : sizeof one - 1);
        disarm(one, "");
        fputs(one, file);
        text += n;
        used += columns;
    }
    if (all > width) {
        fputs("…", file);
        used++;
    }
    fprintf(file, "%*s", width - used, "");
}
