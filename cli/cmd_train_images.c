/* SPDX-License-Identifier: MIT
 * attn train images: learns to draw images. */
#include "commands.h"
#include "training.h"

#include "attn/generate.h"

static const cli_option options[] = {
    CLI_TEXT("data", 0, "FOLDER", "", "images: IDX files, CIFAR-10's records, or PNG, JPEG, WebP, BMP and PNM files"),
    CLI_TEXT("out", 'o', "DIR", NULL, "the directory that gets the model"),
    CLI_FLAG("resume", 0, "go on where a training that was stopped or killed left off"),
};

static const char *const usage[] = {"--data FOLDER --out DIR [SETTING...]", "--out DIR --resume", NULL};

static const char description[] =
    "Trains a distribution over images, the axial transformer (Ho et al. 2019), which predicts the probability of "
    "each value of a number, given all numbers before it. The loss is the bits that a number costs (bits per "
    "dimension); an untrained model costs log2 of the levels, 8 for 256.\n"
    "\n"
    "FOLDER holds train-images*, train-labels*, t10k-images* and t10k-labels* (MNIST's IDX files, plain or gzip), or "
    "CIFAR-10's *.bin, or PNG, JPEG, WebP, BMP and PNM files, in folders or not. Folders named train and test are the two parts. "
    "Labels are ignored. Part of the training images is kept for validation; where there is no test part, part is kept for that (attn eval).\n"
    "\n"
    "The validated and saved model is a moving average of the weights (--ema).\n"
    "\n"
    "DIR gets config.json and model.safetensors, which are the model, and training.json, checkpoint.safetensors and "
    "history.tsv, which a training needs to go on. Ctrl-C finishes the step, saves and stops; --resume then ends in the "
    "same bits as a training that was not stopped, whatever the number of threads.";

static const char *const examples[] = {
    "attn train images --data fashion_mnist --out drawn --size 14 --levels 8",
    "attn train images --data photos --out photos-16 --size 16 --channels 3 --dim 128 --epochs 50",
    "attn train images --out drawn --resume",
    NULL,
};

typedef struct generator_training {
    cli_training common;          /* first: cli_training_progress reads it */
    attn_generator_run_info plan; /* its settings are not kept */
} generator_training;

static void begin(void *user, const attn_generator_run_info *plan)
{
    generator_training *training = user;
    const cli_call *cli = training->common.cli;
    char train[32], valid[32], test[32];
    training->plan = *plan;
    training->plan.settings = NULL;
    training->plan.passed_first = NULL;
    cli_note(cli, "%s images to train on, %s for validation, %s kept for testing", cli_count(plan->train_images, train),
             cli_count(plan->valid_images, valid), cli_count(plan->test_images, test));
    cli_note(cli, "%lld x %lld pixels, %s, %lld levels", (long long)plan->shape.width, (long long)plan->shape.height,
             plan->shape.channels == 1 ? "grey" : "in colour", (long long)plan->levels);
    cli_training_passed_over(cli, plan->passed_over, plan->passed_first);
    cli_training_announce(&training->common, CLI_TRAINING_PLAN(plan));
}

static int print_json(const cli_call *cli, const generator_training *training, const char *directory)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    attn_json_int(&json, "train_images", training->plan.train_images);
    attn_json_int(&json, "valid_images", training->plan.valid_images);
    attn_json_int(&json, "test_images", training->plan.test_images);
    attn_json_int(&json, "levels", training->plan.levels);
    cli_training_json(&json, &training->common);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int train(cli_call *cli, const attn_config *settings)
{
    const char *directory = cli_text(cli, "out"), *data = cli_text(cli, "data");
    generator_training training = {.plan = {0}};
    attn_generator_job job = {.data = data[0] ? data : NULL,
                              .directory = directory,
                              .settings = settings,
                              .resume = cli_flag(cli, "resume"),
                              .begin = begin,
                              .progress = cli_training_progress,
                              .user = &training};
    if (!job.data && !job.resume)
        return cli_fail(CLI_BAD, "train images needs --data FOLDER");
    int code = job.resume ? cli_training_unchanged(cli, settings, directory) : CLI_OK;
    if (code != CLI_OK)
        return code;
    cli_training_begin(&training.common, cli, "train images", "images", NULL);
    code = cli_training_end(&training.common, attn_generator_train(cli->context, &job), directory);
    if (code != CLI_OK || cli->json)
        return code == CLI_OK ? print_json(cli, &training, directory) : code;
    printf("The model is in %s", directory);
    cli_training_print(&training.common);
    puts(".");
    if (!cli->quiet)
        printf("Try:  attn generate %s -o sheet.png\n      attn eval %s\n", directory, directory);
    return CLI_OK;
}

static int run(cli_call *cli)
{
    return cli_training_run(cli, train);
}

const cli_command cli_train_images = {
    "train images",
    "train a model that draws images",
    usage,
    description,
    CLI_OPTIONS(options),
    attn_generator_keys,
    examples,
    0,
    0,
    run,
};
