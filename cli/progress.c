/* SPDX-License-Identifier: MIT
 *
 * Shows the progress bar of a training.
 */
#include "progress.h"

#include "command.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Seconds between two updates of the bar, and between two lines if there is no terminal. At these intervals, drawing
 * costs little compared with the training steps. */
static const double EVERY_SECONDS = 0.1, SILENCE = 15;

void cli_progress_begin(cli_progress *progress, bool quiet, const char *things, const char *measure)
{
    *progress = (cli_progress){
        .quiet = quiet, .terminal = isatty(STDERR_FILENO) != 0, .things = things, .measure = measure, .last = -1};
}

static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* Formats a duration as "1:02:03" or "2:03", or as "" if it is not known. */
void cli_time_text(double seconds, char *out, size_t size)
{
    out[0] = '\0';
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e8)
        return;
    long s = lround(seconds);
    if (s >= 3600)
        snprintf(out, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%ld:%02ld", s / 60, s % 60);
}

static void rate_text(double rate, const char *things, char *out, size_t size)
{
    if (rate >= 99950)
        snprintf(out, size, "%.0fk %s/s", rate / 1000, things);
    else if (rate >= 1000)
        snprintf(out, size, "%.1fk %s/s", rate / 1000, things);
    else
        snprintf(out, size, "%.0f %s/s", rate, things);
}

/* Formats the values of a training, such as "loss 1.234, valid 1.5, accuracy 0.912, 12.3k images/s, 0:12 left". */
static void figures(const cli_progress *progress, const attn_progress *at, char *out, size_t size)
{
    char left[32], rate[48], valid[32] = "", measure[64] = "";
    cli_time_text(at->seconds_left, left, sizeof left);
    rate_text(at->tokens_per_second, progress->things, rate, sizeof rate);
    if (!isnan(at->valid_loss))
        snprintf(valid, sizeof valid, ", valid %.3f", at->valid_loss);
    if (progress->measure && !isnan(at->metric))
        snprintf(measure, sizeof measure, ", %s %.4f", progress->measure, at->metric);
    snprintf(out, size, "loss %.3f%s%s, %s%s%s%s", at->loss, valid, measure, rate, left[0] ? ", " : "", left,
             left[0] ? " left" : "");
}

static double share_done(const attn_progress *at)
{
    double all = (double)at->epochs * (double)at->steps;
    double share = all > 0 ? (double)at->all_steps / all : 1;
    return share < 1 ? share : 1;
}

static void draw(cli_progress *progress, const attn_progress *at)
{
    enum { LEAST = 4, MOST = 40 };
    char text[240], bar[MOST + 1];
    double share = share_done(at);
    figures(progress, at, text, sizeof text);
    char head[64];
    snprintf(head, sizeof head, "epoch %lld/%lld", (long long)at->epoch, (long long)at->epochs);
    int room = columns() - (int)strlen(head) - (int)strlen(text) - 12;
    int width = room > MOST ? MOST : room;
    if (width >= LEAST) {
        int full = (int)(share * width);
        for (int i = 0; i < width; i++)
            bar[i] = i < full ? '=' : i == full ? '>' : ' ';
        bar[width] = '\0';
        fprintf(stderr, "\r\033[K%s [%s] %3.0f%%  %s", head, bar, 100 * share, text);
    } else {
        char line[320];
        snprintf(line, sizeof line, "%s %.0f%% %s", head, 100 * share, text);
        fprintf(stderr, "\r\033[K%.*s", columns() - 1, line);
    }
    fflush(stderr);
    cli_watch_said();
    progress->drawn = true;
    progress->last = cli_seconds();
}

/* Prints progress without a terminal: a line for each epoch, and a line after SILENCE seconds without output. The
 * thread in watch.c waits longer. */
static void print_line(cli_progress *progress, const attn_progress *at)
{
    double now = cli_seconds();
    if (progress->last < 0)
        progress->last = now;
    if (!at->epoch_ends && now - progress->last < SILENCE)
        return;
    progress->last = now;
    char text[240];
    figures(progress, at, text, sizeof text);
    fprintf(stderr, "epoch %lld/%lld", (long long)at->epoch, (long long)at->epochs);
    if (at->epoch_ends)
        fprintf(stderr, ": %s%s\n", text, at->improved && !isnan(at->valid_loss) ? ", best yet" : "");
    else
        fprintf(stderr, ", %.0f %% of all: %s\n", 100 * share_done(at), text);
    cli_watch_said();
}

void cli_progress_show(cli_progress *progress, const attn_progress *at)
{
    if (progress->quiet)
        return;
    if (!progress->terminal) {
        print_line(progress, at);
        return;
    }
    if (at->epoch_ends || progress->last < 0 || cli_seconds() - progress->last >= EVERY_SECONDS)
        draw(progress, at);
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->drawn)
        fputc('\n', stderr);
    progress->drawn = false;
}
