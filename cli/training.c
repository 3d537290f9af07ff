/* SPDX-License-Identifier: MIT
 * Running a training from the command. */
#include "training.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t stop_asked;
static bool hangup_watched;

static void ask_to_stop(int number)
{
    (void)number;
    stop_asked = 1;
}

/* The handler goes after its first signal, so that a second one ends the program.  It runs on a stack of its own:
 * where its frame was written below the stack pointer of oneDNN's generated code, a few of a hundred interrupted
 * runs ended with a corrupted heap. */
static void watch_signals(void)
{
    static char own_stack[65536];
    stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
    int flags = (int)SA_RESETHAND | (sigaltstack(&stack, NULL) == 0 ? SA_ONSTACK : 0);
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    stop_asked = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction hangup;
    hangup_watched = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN; /* nohup: it stays so */
    if (hangup_watched)
        sigaction(SIGHUP, &action, NULL);
}

static void forget_signals(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (hangup_watched)
        signal(SIGHUP, SIG_DFL);
}

static void begin(void *user, const attn_translator_plan *plan)
{
    cli_training *training = user;
    const cli_call *cli = training->cli;
    char train[32], valid[32], test[32], source[32], target[32], parameters[32];
    training->plan = *plan;
    training->keeps_last = strcmp(attn_config_text(plan->settings, "keep", "best"), "last") == 0;
    training->plan.settings = NULL;
    cli_note(cli, "%s pairs to train on, %s for validation, %s kept for testing", cli_count(plan->train_pairs, train),
             cli_count(plan->valid_pairs, valid), cli_count(plan->test_pairs, test));
    cli_note(cli, "%s source and %s target words known; the model has %s parameters",
             cli_count(plan->source_words, source), cli_count(plan->target_words, target),
             cli_count(plan->parameters, parameters));
    if (plan->first_epoch > plan->epochs)
        cli_note(cli, "all %lld epochs are done already", (long long)plan->epochs);
    else if (plan->first_epoch > 1)
        cli_note(cli, "going on in epoch %lld of %lld", (long long)plan->first_epoch, (long long)plan->epochs);
}

static bool progress(void *user, const attn_progress *at)
{
    cli_training *training = user;
    training->last = *at;
    if (at->epoch_ends && at->improved)
        training->best_epoch = at->epoch;
    cli_progress_show(&training->progress, at);
    return !stop_asked;
}

int cli_train(cli_call *cli, attn_translator_job *job, cli_training *training)
{
    *training = (cli_training){.cli = cli};
    job->progress = progress;
    job->begin = begin;
    job->user = training;
    cli_progress_begin(&training->progress, cli->quiet);
    watch_signals();
    attn_status status = attn_translator_train(cli->context, job);
    forget_signals();
    cli_progress_end(&training->progress);
    if (status == ATTN_OK)
        return CLI_OK;
    if (status == ATTN_INTERRUPTED)
        return cli_fail(CLI_INTERRUPTED, "stopped and saved; go on with: attn train translate --out %s --resume",
                        job->directory);
    return cli_failed(cli, NULL);
}
