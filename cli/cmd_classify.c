/* SPDX-License-Identifier: MIT
 * attn classify: classifies pictures. */
#include "classified.h"
#include "commands.h"
#include "failures.h"
#include "foreign.h"

#include "attn/classify.h"
#include "dist/join.h"
#include "apps/classifier/classifier.h"

#include <stdlib.h>

static const cli_option options[] = {
    CLI_INT("top", 't', "5", 1, 1e6, "print this many classes, the likeliest first"),
    CLI_CLASSIFIED_OPTIONS,
    CLI_NAMES_LONG,
    CLI_STRICT_OPTION,
};

static const char *const usage[] = {"DIR IMAGE...", NULL};

static const char description[] =
    "Reads PNG, JPEG, WebP, BMP and PNM pictures of any size, cuts out the middle in the proportions that the "
    "classifier was trained with, resizes it (bicubic, anti-aliased), and prints the most probable classes with "
    "their probabilities: one line a picture, tabs between. A picture whose border, brightness or contrast is "
    "outside the range of all training pictures gets a warning: its prediction is a guess. MNIST's "
    "and Fashion-MNIST's items are bright on black; --invert helps with an item on white. Started by mpirun, the "
    "pictures are spread over its processes.";

static const char *const examples[] = {"attn classify clothes shirt.png", "attn classify clothes *.png --top 1 --json",
                                       NULL};

static void print_one(const attn_classifier *classifier, const char *name, const attn_prediction *guesses, int64_t top)
{
    cli_print("%s", name);
    for (int64_t i = 0; i < top; i++)
        cli_print("\t%s %.4f", attn_classifier_class_name(classifier, guesses[i].label), guesses[i].probability);
    putchar('\n');
}

static void json_one(attn_json *json, const attn_classifier *classifier, const char *name,
                     const attn_prediction *guesses, int64_t top)
{
    attn_json_object(json, NULL);
    attn_json_text(json, "image", name);
    attn_json_array(json, "classes");
    for (int64_t i = 0; i < top; i++) {
        attn_json_object(json, NULL);
        attn_json_text(json, "class", attn_classifier_class_name(classifier, guesses[i].label));
        attn_json_int(json, "label", guesses[i].label);
        attn_json_real(json, "probability", guesses[i].probability);
        attn_json_end(json);
    }
    attn_json_end(json);
    attn_json_end(json);
}

typedef struct question {
    const cli_call *cli;
    attn_classifier *classifier;
    attn_prediction *guesses;
    int64_t top;
    attn_json *json; /* JSON output; NULL: plain text */
} question;

static attn_status compare(const question *q, const char *path, const attn_image *image)
{
    attn_likeness l;
    attn_status status = attn_classifier_compare(q->classifier, image, &l);
    if (status == ATTN_OK && l.unlike)
        cli_note(q->cli, "warning: %s is unlike every picture of the training: its %s is %.2f, theirs %.2f to %.2f%s",
                 path, l.unlike, l.found, l.min, l.max,
                 l.inverted && !cli_flag(q->cli, "invert") ? "; its negative would fit: try --invert" : "");
    return status;
}

/* Classifies one picture and prints the result at once, so that a later bad picture cannot prevent this. */
static int classify(void *user, int i)
{
    const question *q = user;
    const cli_call *cli = q->cli;
    const char *path = cli->words[i + 1];
    attn_image image = {0};
    attn_status status = cli_classified_read(cli, path, &image);
    if (status == ATTN_OK)
        status = compare(q, path, &image);
    if (status == ATTN_OK)
        status = attn_classifier_classify(q->classifier, &image, 1, q->top, q->guesses);
    attn_image_free(cli->context, &image);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    if (q->json)
        json_one(q->json, q->classifier, path, q->guesses, q->top);
    else
        print_one(q->classifier, path, q->guesses, q->top);
    return CLI_OK;
}

static int answer(cli_call *cli, attn_classifier *classifier)
{
    int64_t top = cli_int(cli, "top"), classes = attn_classifier_class_count(classifier);
    top = top < classes ? top : classes;
    attn_prediction *guesses = calloc((size_t)top, sizeof *guesses);
    attn_json json;
    if (!guesses)
        return cli_fail(CLI_FAILED, "out of memory");
    attn_json_begin(&json, cli->context, true);
    attn_json_array(&json, NULL);
    question q = {cli, classifier, guesses, top, cli->json ? &json : NULL};
    cli_failures failures = {.cli = cli, .things = "files"};
    int code = CLI_OK;
    if (!cli->json)
        code = cli_spread(cli, cli->nwords - 1, cli->words + 1, classify, &q);
    /* Only one process writes the output, because it is a single JSON array. */
    else if (attn_ranks_rank(cli->context) == 0)
        for (int i = 0; i + 1 < cli->nwords && code == CLI_OK; i++)
            code = cli_failures_note(&failures, classify(&q, i), cli->words[i + 1]);
    attn_json_end(&json);
    free(guesses);
    if (!cli->json || code != CLI_OK) {
        attn_json_free(&json);
        return code;
    }
    code = cli_print_json(cli, &json);
    return code == CLI_OK ? cli_failures_end(&failures) : code;
}

static int load_and_answer(cli_call *cli)
{
    attn_classifier *classifier = NULL;
    int code = CLI_OK;
    if (cli_int(cli, "channels") == 2) /* All ranks make the same decision here, so they all return. */
        return cli_fail(CLI_BAD, "--channels is 2; allowed: 0, 1, 3");
    if (attn_classifier_load(&classifier, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        code = cli_failed(cli, NULL);
    code = cli_ranks_agree(cli, code);
    if (code == CLI_OK)
        code = answer(cli, classifier);
    attn_classifier_destroy(classifier);
    return code;
}

static int run(cli_call *cli)
{
    attn_context_set_inference(cli->context, true);
    int code = cli_ranks_join(cli);
    return cli_ranks_leave(cli, code == CLI_OK ? load_and_answer(cli) : code);
}

const cli_command cli_classify = {
    "classify", "classify pictures", usage, description, CLI_OPTIONS(options), NULL, examples, 2, -1, run,
};
