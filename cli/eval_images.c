/* SPDX-License-Identifier: MIT
 *
 * Implements `attn eval` for a classifier: accuracy over all images and by class, and the confusion matrix.
 */
#include "eval_images.h"
#include "training.h"
#include "foreign.h"

#include "attn/classify.h"
#include "apps/classifier/classifier.h"

/* Maximum number of classes for a table. More classes would be too wide to read. */
enum { SHOWN_CLASSES = 20 };

/* Counts the images of class c, and the images that were predicted as class c. */
static void sums(const attn_classifier_score *s, int64_t c, int64_t *there, int64_t *said)
{
    *there = *said = 0;
    for (int64_t i = 0; i < s->classes; i++) {
        *there += s->confusion[c * s->classes + i];
        *said += s->confusion[i * s->classes + c];
    }
}

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

static void print_classes(const attn_classifier *classifier, const attn_classifier_score *s)
{
    puts("\nclass                  images  recall  precision");
    for (int64_t c = 0; c < s->classes; c++) {
        int64_t there, said, right = s->confusion[c * s->classes + c];
        sums(s, c, &there, &said);
        cli_print_cell(stdout, attn_classifier_class_name(classifier, c), 20);
        printf(" %8lld  %6.3f  %9.3f\n", (long long)there, share(right, there), share(right, said));
    }
}

static void print_confusion(const attn_classifier *classifier, const attn_classifier_score *s)
{
    puts("\nTaken for (columns, in the order of the rows)");
    for (int64_t c = 0; c < s->classes; c++) {
        cli_print_cell(stdout, attn_classifier_class_name(classifier, c), 20);
        for (int64_t i = 0; i < s->classes; i++)
            printf(" %5lld", (long long)s->confusion[c * s->classes + i]);
        putchar('\n');
    }
}

static void print_score(const attn_classifier *classifier, const char *part, const attn_classifier_score *s)
{
    char images[32], rate[32];
    printf("part          %s, %s images\n", part, cli_count(s->images, images));
    printf("accuracy      %.4f\n", share(s->correct, s->images));
    printf("loss          %.4f nats an image\n", s->loss);
    printf("speed         %s images a second\n", cli_count((int64_t)s->images_per_second, rate));
    print_classes(classifier, s);
    if (s->classes <= SHOWN_CLASSES)
        print_confusion(classifier, s);
}

static int print_json(const cli_call *cli, const attn_classifier *classifier, const char *part,
                      const attn_classifier_score *s)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "part", part);
    attn_json_int(&json, "images", s->images);
    attn_json_int(&json, "right", s->correct);
    attn_json_real(&json, "accuracy", share(s->correct, s->images));
    attn_json_real(&json, "loss", s->loss);
    attn_json_real(&json, "images_per_second", s->images_per_second);
    attn_json_array(&json, "classes");
    for (int64_t c = 0; c < s->classes; c++) {
        attn_json_object(&json, NULL);
        attn_json_text(&json, "class", attn_classifier_class_name(classifier, c));
        attn_json_array(&json, "taken_for");
        for (int64_t i = 0; i < s->classes; i++)
            attn_json_int(&json, NULL, s->confusion[c * s->classes + i]);
        attn_json_end(&json);
        attn_json_end(&json);
    }
    attn_json_end(&json);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

int cli_eval_images(const cli_call *cli, const char *data, attn_split part, const char *part_name)
{
    attn_classifier *classifier;
    attn_classifier_score score;
    if (attn_classifier_load(&classifier, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    if (attn_classifier_evaluate(classifier, data, part, &score) != ATTN_OK)
        code = cli_failed(cli, NULL);
    else
        cli_training_passed_over(cli, score.passed_over, false, NULL);
    if (code == CLI_OK && cli->json)
        code = print_json(cli, classifier, part_name, &score);
    else if (code == CLI_OK)
        print_score(classifier, part_name, &score);
    attn_classifier_score_free(cli->context, &score);
    attn_classifier_destroy(classifier);
    return code;
}
