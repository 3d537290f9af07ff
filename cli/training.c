/* SPDX-License-Identifier: MIT
 *
 * Runs a training from the command.
 */
#include "training.h"

#include "dist/join.h"
#include "base/context.h"
#include "config/keys.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t stop_asked;
static bool hangup_watched;

static void ask_to_stop(int number)
{
    (void)number;
    stop_asked = 1;
}

/* Installs the handler for stop signals. It is removed after its first signal, so that a second signal ends the
 * program. */
static void watch_signals(bool among_ranks)
{
    /* Among ranks, the handler stays, because mpirun may send its signal twice. If necessary, mpirun kills the
     * program itself. */
    struct sigaction action = {.sa_handler = ask_to_stop, .sa_flags = among_ranks ? 0 : (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    stop_asked = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction hangup;
    /* Under nohup, SIGHUP stays ignored. */
    hangup_watched = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN;
    if (hangup_watched)
        sigaction(SIGHUP, &action, NULL);
}

/* Returns true if a stop was requested. When one process ends, mpirun sends SIGTERM to the others, so a process that
 * waits for another one must check this. */
static bool is_stop_asked(void *user)
{
    (void)user;
    return stop_asked != 0;
}

static void forget_signals(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (hangup_watched)
        signal(SIGHUP, SIG_DFL);
}

/* --------------------------------------------------------------------------------------------- a training */

void cli_training_begin(cli_training *training, const cli_call *cli, const char *kind, const char *things,
                        const char *measure)
{
    *training = (cli_training){.cli = cli, .kind = kind, .bad = training->bad};
    cli_progress_begin(&training->progress, cli->quiet, things, measure);
    watch_signals(attn_ranks_size(cli->context) > 1);
    attn_ranks_set_stop(cli->context, is_stop_asked, NULL);
}

void cli_training_keep_sizes(cli_training *training, const attn_config *sizes)
{
    enum { MOST = sizeof training->sizes / sizeof *training->sizes };
    for (int64_t i = 0; i < attn_config_size(sizes) && training->nsizes < MOST; i++) {
        const char *name = attn_config_key(sizes, i);
        snprintf(training->sizes[training->nsizes].name, sizeof training->sizes->name, "%s", name);
        training->sizes[training->nsizes++].value = attn_config_int(sizes, name, 0);
    }
}

int64_t cli_training_size(const cli_training *training, const char *name)
{
    for (int i = 0; i < training->nsizes; i++)
        if (strcmp(training->sizes[i].name, name) == 0)
            return training->sizes[i].value;
    return 0;
}

void cli_training_left_out(void *user, int64_t line, const char *error)
{
    const cli_training *training = user;
    training->bad.tell(training->bad.user, line, error);
}

void cli_training_passed_over(const cli_call *cli, int64_t n, bool alignments, const char *first)
{
    char count[32];
    if (n > 0)
        cli_note(cli, "%s %s%s skipped, %s%s%s", cli_count(n, count), n > 1 ? "files" : "file",
                 alignments ? (n > 1 ? " are" : " is") : (n > 1 ? " or folders are" : " or folder is"),
                 alignments ? "not an alignment by name or content"
                            : "neither a picture by name nor a folder of the expected form",
                 first ? ": the first is " : "", first ? first : "");
}

/* Prints how many parameters a fine-tuning took from its checkpoint, and the names of all others. */
static void note_taken(const cli_call *cli, const char *table)
{
    int taken = 0;
    for (const char *line = table; *line; line += *line == '\n') {
        int length = (int)strcspn(line, "\n");
        const char *name = line, *shape = memchr(line, '\t', (size_t)length);
        const char *how = shape ? memchr(shape + 1, '\t', (size_t)(line + length - shape - 1)) : NULL;
        if (how && strncmp(how + 1, "taken", 5) != 0)
            cli_note(cli, "  %-32.*s %-16.*s %.*s", (int)(shape - name), name, (int)(how - shape - 1), shape + 1,
                     (int)(line + length - how - 1), how + 1);
        else
            taken++;
        line += length;
    }
    cli_note(cli, "  %d parameters are the checkpoint's; fine-tuning.tsv has every one", taken);
}

void cli_training_announce(cli_training *training, const attn_trainer_plan *plan)
{
    char count[32];
    cli_training_passed_over(training->cli, cli_training_size(training, "passed_over"),
                             strcmp(training->kind, "msa") == 0, plan->passed_first);
    if (plan->taken)
        note_taken(training->cli, plan->taken);
    training->parameters = plan->parameters;
    training->epochs = plan->epochs;
    training->first_epoch = plan->first_epoch;
    training->warmup = attn_config_int(plan->settings, "warmup", 0);
    training->keeps_last = strcmp(attn_config_text(plan->settings, "keep", "best"), "last") == 0;
    if (plan->warmup_fitted)
        cli_note(training->cli, "the rate rises for %s step%s, a tenth of the run (--warmup N changes this)",
                 cli_count(training->warmup, count), training->warmup == 1 ? "" : "s");
    cli_note(training->cli, "the model has %s parameters", cli_count(plan->parameters, count));
    if (plan->first_epoch > plan->epochs)
        cli_note(training->cli, "all %lld epochs are done already", (long long)plan->epochs);
    else if (plan->first_epoch > 1)
        cli_note(training->cli, "resuming in epoch %lld of %lld", (long long)plan->first_epoch,
                 (long long)plan->epochs);
    if (plan->first_epoch <= plan->epochs)
        cli_watch_work("steps", 0, (plan->epochs - plan->first_epoch + 1) * plan->steps_per_epoch);
}

/* Warns if a run ends before its warm-up ends, because the learning rate then never reaches the requested value. */
static void warn_warmup(const cli_training *training, int64_t steps)
{
    char warmup[32], all[32];
    if (training->warmup >= steps)
        cli_note(training->cli,
                 "warning: the rate rises for %s steps and the run has %s: it ends before the rate is reached; "
                 "--warmup %lld would be a tenth of the run",
                 cli_count(training->warmup, warmup), cli_count(steps, all), (long long)(steps + 9) / 10);
}

bool cli_training_progress(void *user, const attn_progress *at)
{
    cli_training *training = user;
    bool first = training->last.steps == 0;
    if (first)
        cli_watch_work(NULL, 0, 0);
    if (first && training->warmup > 0)
        warn_warmup(training, training->epochs * at->steps);
    training->last = *at;
    if (at->epoch_ends && at->improved)
        training->best_epoch = at->epoch;
    cli_progress_show(&training->progress, at);
    return !stop_asked;
}

int cli_training_end(cli_training *training, attn_status status, const char *directory)
{
    forget_signals();
    cli_watch_work(NULL, 0, 0);
    /* The ranks no longer check for a request to stop. Otherwise one rank could stop while the others continue. */
    attn_ranks_set_stop(training->cli->context, NULL, NULL);
    cli_progress_end(&training->progress);
    if (status == ATTN_OK && training->last.steps == 0 && training->first_epoch <= training->epochs)
        cli_note(training->cli,
                 "no epoch is trained: --patience has ended this training; raise it, or set it to 0, to train further");
    if (status == ATTN_OK)
        return CLI_OK;
    if (status == ATTN_ERROR_INTERRUPTED)
        return cli_fail(CLI_INTERRUPTED, "stopped and saved; go on with: attn train %s --out %s --resume",
                        training->kind, directory);
    return cli_failed(training->cli, NULL);
}

/* --------------------------------------------------------------------------------------------- settings */

static attn_status read_settings(const cli_call *cli, attn_config **settings)
{
    const attn_trainer *trainer = attn_trainer_find(cli->command->trains);
    attn_status status = attn_config_create(settings, cli->context);
    for (int i = 0; status == ATTN_OK && i < trainer->nkeys; i++) {
        const attn_config_value *value = attn_config_get(cli->given, trainer->keys[i].name);
        if (value)
            status = attn_config_set(*settings, trainer->keys[i].name, value);
    }
    return status;
}

int cli_training_run(cli_call *cli, int (*train)(cli_call *cli, const attn_config *settings))
{
    attn_config *settings = NULL;
    int code = cli_ranks_join(cli);
    if (code == CLI_OK)
        code = read_settings(cli, &settings) == ATTN_OK ? train(cli, settings) : cli_failed(cli, NULL);
    attn_config_destroy(settings);
    return cli_ranks_leave(cli, code);
}

/* Returns true if a resumed training may change the setting, such as the number of epochs or the interval of saving. */
static bool may_change(const char *key)
{
    static const char *const keys[] = {"epochs", "patience", "save_every"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

int cli_training_unchanged(const cli_call *cli, const attn_config *settings, const char *directory)
{
    char name[64], *path = attn__join(cli->context, directory, "training.json");
    attn_config *stored = NULL;
    attn_status status = path ? attn_config_read(&stored, cli->context, path) : ATTN_ERROR_MEMORY;
    attn__free(cli->context, path);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    for (int64_t i = 0; code == CLI_OK && i < attn_config_size(settings); i++) {
        const char *key = attn_config_key(settings, i);
        const attn_config_value *then = attn_config_get(stored, key);
        cli_option option = {.key = {.name = key}};
        if (!may_change(key) && (!then || !attn_config_value_equal(then, attn_config_get(settings, key))))
            code = cli_fail(CLI_BAD,
                            "--%s: the training in %s began with another value, and a resumed training keeps "
                            "its settings",
                            cli_option_spell(&option, name), directory);
    }
    attn_config_destroy(stored);
    return code;
}

/* ----------------------------------------------------------------------------------------------- results */

void cli_training_print(const cli_training *training)
{
    if (training->keeps_last && training->last.valid_loss > 0)
        printf(" (validation loss %.3f after the last epoch)", training->last.valid_loss);
    else if (training->best_epoch > 0 && training->last.best_loss > 0)
        printf(" (validation loss %.3f, epoch %lld)", training->last.best_loss, (long long)training->best_epoch);
}

/* A NaN becomes null; it means that there was no validation. */
void cli_training_json(attn_json *json, const cli_training *training)
{
    const attn_progress *last = &training->last;
    attn_json_int(json, "parameters", training->parameters);
    attn_json_int(json, "epochs", training->epochs);
    attn_json_int(json, "steps", last->all_steps);
    attn_json_real(json, "loss", last->loss);
    attn_json_real(json, "valid_loss", last->valid_loss);
    attn_json_real(json, "best_loss", last->best_loss);
    char rate[64];
    snprintf(rate, sizeof rate, "%s_per_second", training->progress.things);
    attn_json_real(json, rate, last->tokens_per_second);
    attn_json_real(json, "seconds", last->seconds);
    if (attn_ranks_size(training->cli->context) > 1) {
        attn_json_int(json, "processes", attn_ranks_size(training->cli->context));
        attn_json_real(json, "exchange_seconds", last->exchange_seconds);
    }
}
