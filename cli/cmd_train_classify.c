/* SPDX-License-Identifier: MIT
 * attn train classify: learns to tell classes of images apart. */
#include "commands.h"
#include "training.h"

#include "attn/classify.h"

#include <math.h>
#include <string.h>

static const cli_option options[] = {
    CLI_TEXT("data", 0, "FOLDER", "",
             "labelled images: IDX files, CIFAR-10's records, or folders of images, one a class"),
    CLI_TEXT("out", 'o', "DIR", NULL, "the directory that gets the classifier"),
    CLI_FLAG("resume", 0, "go on where a training that was stopped or killed left off"),
};

static const char *const usage[] = {"--data FOLDER --out DIR [--model MODEL] [SETTING...]", "--out DIR --resume", NULL};

static const char description[] =
    "FOLDER holds train-images*, train-labels*, t10k-images* and t10k-labels* (MNIST's IDX files, plain or gzip), or "
    "CIFAR-10's *.bin, or train/CLASS/ and test/CLASS/ with PNG, JPEG, WebP, BMP or PNM files, or CLASS/ alone. Part of the training "
    "images is kept for validation; where there is no test part, part is kept for that (attn eval). Images are brought "
    "to mean 0 and deviation 1 by channel, and mirrored and moved at random while training.\n"
    "\n"
    "DIR gets config.json and model.safetensors, which are the classifier, and training.json, checkpoint.safetensors and "
    "history.tsv, which a training needs to go on. Ctrl-C finishes the step, saves and stops; --resume then ends in the "
    "same bits as a training that was not stopped, whatever the number of threads.\n"
    "\n"
    "Defaults below are those of vit; the other models have some of their own, and training.json has the settings "
    "that were used.";

static const char *const examples[] = {
    "attn train classify --data fashion_mnist --out clothes",
    "attn train classify --data photos --out photos-vit --size 64 --channels 3 --patch 8",
    "attn train classify --data fashion_mnist --out clothes-sasa --model sasa --epochs 5",
    "attn train classify --data digits --out digits --from clothes --freeze 'blks\\.[0-3]\\..*'",
    "attn train classify --out clothes --resume",
    NULL,
};

typedef struct classifier_training {
    cli_training common;
    attn_classifier_run_info plan; /* its settings are not kept */
} classifier_training;

static void begin(void *user, const attn_classifier_run_info *plan)
{
    classifier_training *training = user;
    const cli_call *cli = training->common.cli;
    char train[32], valid[32], test[32];
    training->plan = *plan;
    training->plan.settings = NULL;
    training->plan.taken = NULL;
    training->plan.passed_first = NULL;
    cli_note(cli, "%s images to train on, %s for validation, %s kept for testing", cli_count(plan->train_images, train),
             cli_count(plan->valid_images, valid), cli_count(plan->test_images, test));
    cli_note(cli, "%lld classes of %lld x %lld pixels, %s", (long long)plan->classes, (long long)plan->shape.width,
             (long long)plan->shape.height, plan->shape.channels == 1 ? "grey" : "in colour");
    cli_training_passed_over(cli, plan->passed_over, plan->passed_first);
    if (plan->taken)
        cli_training_taken(cli, plan->taken);
    cli_training_announce(&training->common, CLI_TRAINING_PLAN(plan));
}

/* NaN, where there was no validation, becomes null. */
static int print_json(const cli_call *cli, const classifier_training *training, const char *directory)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    attn_json_int(&json, "train_images", training->plan.train_images);
    attn_json_int(&json, "valid_images", training->plan.valid_images);
    attn_json_int(&json, "test_images", training->plan.test_images);
    attn_json_int(&json, "classes", training->plan.classes);
    attn_json_real(&json, "valid_accuracy", training->common.last.metric);
    cli_training_json(&json, &training->common);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

/* Within two standard deviations of naming any class, nothing has been learned that shows. */
static void warn(const cli_call *cli, const classifier_training *training)
{
    double found = training->common.last.metric, guessed = 1 / (double)training->plan.classes;
    double chance = sqrt(guessed * (1 - guessed) / (double)training->plan.valid_images);
    if (training->common.last.steps > 0 && found < guessed + 2 * chance) /* false of NaN: there was no validation */
        cli_note(
            cli,
            "warning: %.1f %% of %lld validation pictures are recognized, guessing finds %.1f %%: the classifier has learned "
            "next to nothing; more --epochs, a --warmup that fits, another --rate or --model may help",
            100 * found, (long long)training->plan.valid_images, 100 * guessed);
}

static int train(cli_call *cli, const attn_config *settings)
{
    const char *directory = cli_text(cli, "out"), *data = cli_text(cli, "data");
    classifier_training training = {0};
    attn_classifier_job job = {.data = data[0] ? data : NULL,
                               .directory = directory,
                               .settings = settings,
                               .resume = cli_flag(cli, "resume"),
                               .begin = begin,
                               .progress = cli_training_progress, /* reads `common`, the first member */
                               .user = &training};
    if (!job.data && !job.resume)
        return cli_fail(CLI_BAD, "train classify needs --data FOLDER");
    int code = job.resume ? cli_training_unchanged(cli, settings, directory) : CLI_OK;
    if (code != CLI_OK)
        return code;
    cli_training_begin(&training.common, cli, "train classify", "images", "accuracy");
    attn_status status = attn_classifier_train(cli->context, &job);
    code = cli_training_end(&training.common, status, directory);
    if (code != CLI_OK)
        return code;
    warn(cli, &training);
    if (cli->json)
        return print_json(cli, &training, directory);
    printf("The classifier is in %s", directory);
    cli_training_print(&training.common);
    puts(".");
    if (!cli->quiet)
        printf(
            "Try:  attn classify %s picture.png\n      attn eval %s\n      attn show %s picture.png -o attention.png\n",
            directory, directory, directory);
    return CLI_OK;
}

static int run(cli_call *cli)
{
    return cli_training_run(cli, train);
}

const cli_command cli_train_classify = {
    "train classify",
    "train a classifier of images",
    usage,
    description,
    CLI_OPTIONS(options),
    attn_classifier_keys,
    examples,
    0,
    0,
    run,
};
