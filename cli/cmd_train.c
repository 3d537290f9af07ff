/* SPDX-License-Identifier: MIT
 *
 * attn train translate, classify, images, msa, detect: trains a model. This file has the commands for all kinds of
 * training.
 */
#include "commands.h"
#include "source.h"
#include "training.h"

#include "apps/detector/training.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ what was read, in words */

static void note_translate(const cli_training *t)
{
    const cli_call *cli = t->cli;
    char a[32], b[32], c[32];
    cli_note(cli, "%s pairs to train on, %s for validation, %s kept for testing",
             cli_count(cli_training_size(t, "train_pairs"), a), cli_count(cli_training_size(t, "valid_pairs"), b),
             cli_count(cli_training_size(t, "test_pairs"), c));
    cli_note(cli, "vocabularies of %s source and %s target tokens", cli_count(cli_training_size(t, "source_words"), a),
             cli_count(cli_training_size(t, "target_words"), b));
    int64_t unlike = cli_training_size(t, "left_out_unlike"), twice = cli_training_size(t, "left_out_duplicates");
    if (unlike + twice > 0)
        cli_note(cli,
                 "%s pairs were left out of the training part because their lengths differ too much, %s as duplicates",
                 cli_count(unlike, a), cli_count(twice, b));
    if (cli_training_size(t, "mixed_pairs") > 0)
        cli_note(cli, "%s of the pairs to train on are those of --mix",
                 cli_count(cli_training_size(t, "mixed_pairs"), a));
    if (cli_training_size(t, "judged_pairs") > 0)
        cli_note(cli, "%s sentences of the validation part are translated after each epoch",
                 cli_count(cli_training_size(t, "judged_pairs"), a));
}

/* `what` is the text before the size, and `then` is the text after it. */
static void note_pictures(const cli_training *t, const char *what, const char *then)
{
    const cli_call *cli = t->cli;
    char a[32], b[32], c[32], frames[48] = "";
    bool videos = cli_training_size(t, "frames") > 1;
    if (videos)
        snprintf(frames, sizeof frames, "%lld frames of ", (long long)cli_training_size(t, "frames"));
    cli_note(cli, "%s %s to train on, %s for validation, %s kept for testing",
             cli_count(cli_training_size(t, "train_images"), a), videos ? "videos" : "images",
             cli_count(cli_training_size(t, "valid_images"), b), cli_count(cli_training_size(t, "test_images"), c));
    cli_note(cli, "%s%s%lld x %lld pixels, %s%s", what, frames, (long long)cli_training_size(t, "width"),
             (long long)cli_training_size(t, "height"), cli_training_size(t, "channels") == 1 ? "grey" : "in colour",
             then);
}

static void note_classify(const cli_training *t)
{
    char classes[64];
    snprintf(classes, sizeof classes, "%lld classes of ", (long long)cli_training_size(t, "classes"));
    note_pictures(t, classes, "");
}

static void note_images(const cli_training *t)
{
    char levels[64];
    snprintf(levels, sizeof levels, ", %lld levels", (long long)cli_training_size(t, "levels"));
    note_pictures(t, "", levels);
}

static void note_msa(const cli_training *t)
{
    char a[32], b[32], c[32];
    int64_t n = cli_training_size(t, "train_alignments");
    cli_note(t->cli, "%s alignment%s to train on, %s for validation; %s sequences", cli_count(n, a), n == 1 ? "" : "s",
             cli_count(cli_training_size(t, "valid_alignments"), b), cli_count(cli_training_size(t, "sequences"), c));
}

static void note_detect(const cli_training *t)
{
    char a[32], b[32], c[32], size[32] = "as they are";
    cli_note(t->cli, "%s pictures to train on, %s for validation; %s objects of %lld classes",
             cli_count(cli_training_size(t, "train_images"), a), cli_count(cli_training_size(t, "valid_images"), b),
             cli_count(cli_training_size(t, "objects"), c), (long long)cli_training_size(t, "classes"));
    if (cli_training_size(t, "size") > 0)
        snprintf(size, sizeof size, "%lld pixels", (long long)cli_training_size(t, "size"));
    cli_note(t->cli, "short side of the pictures: %s; %lld queries", size, (long long)cli_training_size(t, "queries"));
    int64_t left_out = cli_training_size(t, "left_out");
    if (left_out > 0)
        cli_note(t->cli,
                 "%s object%s left out: crowds, boxes without area in the picture, classes that the model lacks, "
                 "pictures that the annotations do not list",
                 cli_count(left_out, a), left_out == 1 ? " is" : "s are");
}

/* Warns if the model seems to have learned nothing: its accuracy is less than two standard deviations above
 * 1/classes, the accuracy of guessing. */
static void warn(const cli_training *training)
{
    double found = training->last.metric, guessed = 1 / (double)cli_training_size(training, "classes");
    double chance = sqrt(guessed * (1 - guessed) / (double)cli_training_size(training, "valid_images"));
    /* If there was no validation, `found` is NaN, and this condition is false. */
    if (training->last.steps > 0 && found < guessed + 2 * chance)
        cli_note(training->cli,
                 "warning: %.1f %% of %lld validation pictures are recognized, guessing finds %.1f %%: the classifier "
                 "has learned next to nothing; more --epochs, a --warmup that fits, another --rate or --model may help",
                 100 * found, (long long)cli_training_size(training, "valid_images"), 100 * guessed);
}

/* Warns if the boxes are right by chance at most. */
static void warn_boxes(const cli_training *training)
{
    double found = training->last.metric; /* NaN without a validation */
    if (training->last.steps > 0 && found >= 0 && found < ATTN__DETECTOR_NOISE)
        cli_note(training->cli,
                 "warning: the average precision is %.4f: the detector finds next to nothing; more --epochs, --from a "
                 "published model or another --rate may help",
                 found);
}

/* ------------------------------------------------------------------------------------------------- the kinds */

typedef struct kind {
    const char *name;
    const char *things;     /* unit of speed */
    const char *measure;    /* the metric that a validation has in addition to the loss; NULL: none */
    const char *metrics[2]; /* names of attn_progress.metric and metric2 in --json; NULL: not written */
    const char *made;
    void (*note)(const cli_training *training);
    void (*warn)(const cli_training *training); /* prints warnings at the end; may be NULL */
    /* name, in attn_trainer_plan.sizes, of the size of the part that attn eval uses by default */
    const char *test;
    /* suggested commands; each has a text before the directory and a text after it */
    const char *tries[3][2];
    bool pairs;
} kind;

static const kind kinds[] = {
    {.name = "translate",
     .things = "tokens",
     .measure = "BLEU",
     .metrics = {"valid_bleu", "valid_chrf"},
     .made = "translator",
     .note = note_translate,
     .test = "test_pairs",
     .tries = {{"translate ", " \"...\""}, {"eval ", ""}, {"show ", " \"...\" -o attention.png"}},
     .pairs = true},
    {.name = "classify",
     .things = "images",
     .measure = "accuracy",
     .metrics = {"valid_accuracy"},
     .made = "classifier",
     .note = note_classify,
     .warn = warn,
     .test = "test_images",
     .tries = {{"classify ", " picture.png"}, {"eval ", ""}, {"show ", " picture.png -o attention.png"}}},
    {.name = "images",
     .things = "images",
     .made = "model",
     .note = note_images,
     .test = "test_images",
     .tries = {{"generate ", " -o sheet.png"}, {"eval ", ""}}},
    {.name = "msa", .things = "residues", .measure = "accuracy", .made = "model", .note = note_msa},
    {.name = "detect",
     .things = "images",
     .measure = "AP",
     .metrics = {"valid_ap", "valid_ap50"},
     .made = "detector",
     .note = note_detect,
     .warn = warn_boxes,
     .tries = {{"detect picture.png --model ", " -o found"}}},
};

static const kind *kind_of(const char *name)
{
    size_t i = 0;
    while (strcmp(kinds[i].name, name) != 0)
        i++;
    return &kinds[i];
}

static void suggest(const cli_training *t, const char *directory)
{
    const kind *k = kind_of(t->kind);
    for (int i = 0; i < 3 && k->tries[i][0]; i++) {
        bool untested = strcmp(k->tries[i][0], "eval ") == 0 && cli_training_size(t, k->test) == 0;
        printf("%s%s %s%s%s\n", i ? "      " : "Try:  ", cli_self(), k->tries[i][0], directory,
               untested ? " --part valid" : k->tries[i][1]);
    }
}

/* --------------------------------------------------------------------------------------------------- a training */

static void begin(void *user, const attn_trainer_plan *plan)
{
    cli_training *training = user;
    cli_training_keep_sizes(training, plan->sizes);
    kind_of(training->kind)->note(training);
    cli_training_announce(training, plan);
}

int cli_train(const cli_call *cli, attn_trainer_job *job, cli_training *training)
{
    const kind *k = kind_of(job->kind);
    job->begin = begin;
    job->progress = cli_training_progress;
    cli_training_begin(training, cli, job->kind, k->things, k->measure);
    job->user = training;
    return cli_training_end(training, attn_train(cli->context, job), job->directory);
}

/* A NaN becomes null; it means that there was no validation. */
static int print_json(const cli_call *cli, const cli_training *training, const char *directory)
{
    const kind *k = kind_of(training->kind);
    const double values[] = {training->last.metric, training->last.metric2};
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    for (int i = 0; i < training->nsizes; i++)
        attn_json_int(&json, training->sizes[i].name, training->sizes[i].value);
    for (int i = 0; i < 2 && k->metrics[i]; i++)
        attn_json_real(&json, k->metrics[i], values[i]);
    cli_training_json(&json, training);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int print_result(const cli_call *cli, const cli_training *training, const char *directory)
{
    if (kind_of(training->kind)->warn)
        kind_of(training->kind)->warn(training);
    if (cli->json)
        return print_json(cli, training, directory);
    printf("The %s is in %s", kind_of(training->kind)->made, directory);
    cli_training_print(training);
    puts(".");
    if (!cli->quiet)
        suggest(training, directory);
    return CLI_OK;
}

/* Sets the job's data to sentence pairs from a file or the phrasebook. A line that is not a pair is skipped and
 * counted in `bad`. */
static void take_pairs(attn_trainer_job *job, const char *data, cli_training *training, cli_failures *bad)
{
    attn_pairs_source source = cli_source_of(data);
    cli_source_goes_on(&source, bad);
    job->data = source.path;
    job->text = source.text;
    job->text_size = source.size;
    if (source.bad.tell) {
        training->bad = source.bad;
        job->left_out = cli_training_left_out;
    }
}

static int train(cli_call *cli, const attn_config *settings)
{
    /* The files of all kinds of trainings. If a training writes another file over an input, it is refused then. */
    static const char *const files[] = {"config.json",
                                        "model.safetensors",
                                        "training.json",
                                        "history.tsv",
                                        "checkpoint.safetensors",
                                        "fine-tuning.tsv",
                                        "source.spm",
                                        "target.spm",
                                        "source.vocab",
                                        "target.vocab",
                                        "low_score.json",
                                        "adapter_model.safetensors",
                                        "adapter_config.json",
                                        "base.safetensors",
                                        NULL};
    const char *data = cli_text(cli, "data"), *name = cli->command->trains;
    bool pairs = kind_of(name)->pairs;
    cli_training training = {0};
    cli_failures bad = {.cli = cli, .things = "sentence pairs"};
    attn_trainer_job job = {
        .kind = name, .directory = cli_text(cli, "out"), .settings = settings, .resume = cli_flag(cli, "resume")};
    if (pairs)
        take_pairs(&job, data, &training, &bad);
    else if (data[0])
        job.data = data;
    if (job.resume)
        cli_guard_own(cli, job.directory);
    int code = job.resume ? CLI_OK : cli_claim_in(cli, job.directory, files);
    if (code != CLI_OK)
        return code;
    if (!job.data && !job.text && !job.resume)
        return cli_fail(CLI_BAD, "train %s needs --data, %s%s", name, attn_trainer_find(name)->data,
                        pairs ? " (--data phrasebook for the sentences attn carries)" : "");
    code = job.resume ? cli_training_unchanged(cli, settings, job.directory) : CLI_OK;
    if (code == CLI_OK)
        code = cli_train(cli, &job, &training);
    if (code == CLI_OK)
        code = print_result(cli, &training, job.directory);
    bad.tried += cli_training_size(&training, "train_pairs") + cli_training_size(&training, "valid_pairs") +
                 cli_training_size(&training, "test_pairs");
    return code == CLI_OK && pairs ? cli_failures_end(&bad) : code;
}

static int run(cli_call *cli)
{
    return cli_training_run(cli, train);
}

/* ------------------------------------------------------------------------------------------------ the commands */

#define DATA(value, doc) CLI_TEXT("data", 0, value, "", doc)
#define OUT(what)        CLI_WRITES(TEXT, "out", 'o', "DIR", NULL, "the directory that gets the " what)
#define RESUME           CLI_FLAG("resume", 0, "resume a training that was stopped or killed")

static const cli_option translate_options[] = {
    DATA("FILE", "sentence pairs, plain or gzip; \"phrasebook\": the English-French one that attn carries"),
    OUT("translator"),
    RESUME,
    CLI_STRICT_OPTION,
};

static const char *const translate_usage[] = {"--data FILE --out DIR [SETTING...]", "--out DIR --resume", NULL};

static const char translate_description[] =
    "FILE holds one pair a line: the sentence, a tab, its translation; whatever follows a second tab is ignored. A "
    "line that is not a pair is left out and named, and the exit status is 2 at the end. With 4,000 pairs or more, "
    "sentences are split into pieces of words, with case and punctuation kept (--vocabulary); with fewer they are put "
    "into lower case and split into words. Part of the pairs is kept for validation (the parameters that do best on it "
    "are the ones kept) and part for testing (attn eval); all translations of one sentence stay on one side.\n"
    "\n"
    "DIR gets config.json, model.safetensors, source.spm and target.spm (of words: source.vocab and target.vocab), "
    "which are the translator, and training.json, checkpoint.safetensors and history.tsv, which a training needs to go "
    "on. Ctrl-C finishes the step, saves and stops; --resume then ends in the same bits as a training that was not "
    "stopped, whatever the number of threads. A resumed training keeps its data and settings: they need not be given "
    "again. --epochs, --patience and --save-every may be changed, to train for longer.\n"
    "\n"
    "With --from a training begins with another translator, a directory of attn's or a MarianMT or OPUS-MT model, "
    "whose model and vocabularies it keeps. A MarianMT or OPUS-MT model stays in MarianMT's form, which transformers "
    "reads. --mix adds pairs of older data, so that what was learned from them is not lost.\n"
    "\n"
    "--guided-alignment names a file of word alignments, a line for each pair of FILE: '0-0 2-1' means that word 0 of "
    "the translation comes from word 0 of the sentence and word 1 from word 2. Words are separated by spaces; a line "
    "may be empty. attn align --alignments writes such a file, and so does fast_align (source-target). The decoder's "
    "attention to the source (of its last layer, the mean of the heads) learns to follow the alignments, and the "
    "training loss has a part for it. Pairs of --mix have no alignments.\n"
    "\n"
    "Defaults below are those of the Transformer. bahdanau (a recurrent model with attention) and --compat d2l have "
    "some of their own. training.json has the values that were used.";

static const char *const translate_examples[] = {
    "attn train translate --data fra.txt.gz --out en-fr --epochs 15",
    "attn train translate --data pairs.tsv --out small --num-hiddens 128 --num-blks 2",
    "attn train translate --data pairs.tsv --out rnn --model bahdanau",
    "attn train translate --data questions.tsv --out asks --from en-fr --rate 0.0002 --mix fra.tsv=0.5",
    "attn train translate --data law.tsv --out law --from opus-mt-en-fr --rate 0.00005",
    "attn train translate --data pairs.tsv --guided-alignment pairs.align --out guided",
    "attn train translate --out en-fr --resume",
    NULL,
};

static const cli_option classify_options[] = {
    DATA("FOLDER", "labelled images: IDX files, CIFAR-10's records, or folders of images, one a class"),
    OUT("classifier"),
    RESUME,
};

static const char *const classify_usage[] = {"--data FOLDER --out DIR [--model MODEL] [SETTING...]",
                                             "--out DIR --resume", NULL};

static const char classify_description[] =
    "FOLDER holds train-images*, train-labels*, t10k-images* and t10k-labels* (MNIST's IDX files, plain or gzip), or "
    "CIFAR-10's *.bin, or train/CLASS/ and test/CLASS/ with PNG, JPEG, WebP, BMP or PNM files, or CLASS/ alone. Part "
    "of the training images is kept for validation; where there is no test part, part is kept for that (attn eval). "
    "Images are brought to mean 0 and deviation 1 by channel, and mirrored and moved at random while training.\n"
    "\n"
    "DIR gets config.json and model.safetensors, which are the classifier, and training.json, checkpoint.safetensors "
    "and history.tsv, which a training needs to go on. Ctrl-C finishes the step, saves and stops; --resume then ends "
    "in the same bits as a training that was not stopped, whatever the number of threads.\n"
    "\n"
    "Defaults below are those of vit; the other models have some of their own, and training.json has the settings that "
    "were used.";

static const char *const classify_examples[] = {
    "attn train classify --data fashion_mnist --out clothes",
    "attn train classify --data photos --out photos-vit --size 64 --channels 3 --patch 8",
    "attn train classify --data photos --out photos-high --size 96x64 --channels 3 --patch 16x8",
    "attn train classify --data fashion_mnist --out clothes-sasa --model sasa --epochs 5",
    "attn train classify --data digits --out digits --from clothes --freeze 'blks\\.[0-3]\\..*'",
    "attn train classify --out clothes --resume",
    NULL,
};

static const cli_option images_options[] = {
    DATA("FOLDER",
         "images: IDX files, CIFAR-10's records, or PNG, JPEG, WebP, BMP and PNM files; videos: folders of those, or "
         "a .npy"),
    OUT("model"),
    RESUME,
};

static const char *const images_usage[] = {"--data FOLDER --out DIR [SETTING...]", "--out DIR --resume", NULL};

static const char images_description[] =
    "Trains a distribution over images, the axial transformer (Ho et al. 2019), which predicts the probability of each "
    "value of a number, given all numbers before it. The loss is the bits that a number costs (bits per dimension); an "
    "untrained model costs log2 of the levels, 8 for 256.\n"
    "\n"
    "FOLDER holds train-images*, train-labels*, t10k-images* and t10k-labels* (MNIST's IDX files, plain or gzip), or "
    "CIFAR-10's *.bin, or PNG, JPEG, WebP, BMP and PNM files, in folders or not. Folders named train and test are the "
    "two parts. With --video each folder of pictures is a video, its frames in the order of their names; a file .npy "
    "of (videos, frames, channels, height, width) holds videos too. All videos must have as many frames. Labels are "
    "ignored. Part of the training images is kept for validation; where there is no test part, part is kept for that "
    "(attn eval).\n"
    "\n"
    "The validated and saved model is a moving average of the weights (--ema).\n"
    "\n"
    "DIR gets config.json and model.safetensors, which are the model, and training.json, checkpoint.safetensors and "
    "history.tsv, which a training needs to go on. Ctrl-C finishes the step, saves and stops; --resume then ends in "
    "the same bits as a training that was not stopped, whatever the number of threads.";

static const char *const images_examples[] = {
    "attn train images --data fashion_mnist --out drawn --size 14 --levels 8",
    "attn train images --data photos --out photos-16 --size 16 --channels 3 --dim 128 --epochs 50",
    "attn train images --data clips --video --out moving",
    "attn train images --out drawn --resume",
    NULL,
};

static const cli_option msa_options[] = {
    DATA("DIR", "a folder of alignments: a3m, FASTA, a2m, Stockholm or Clustal, plain or gzip"),
    OUT("model"),
    RESUME,
};

static const char *const msa_usage[] = {"--data DIR --out DIR [SETTING...]", "--out DIR --resume", NULL};

static const char msa_description[] =
    "Trains an MSA Transformer (Rao et al. 2021) by masked language modelling: of an alignment the query and some "
    "other rows are seen, some residues are masked, and the model predicts them. Some of the alignments are kept for "
    "validation; the parameters that do best on them are the ones kept.\n"
    "\n"
    "DIR gets config.json and model.safetensors, which are the model, and training.json, checkpoint.safetensors and "
    "history.tsv, which a training needs to go on. Ctrl-C finishes the step, saves and stops; --resume then ends in "
    "the same bits as a training that was not stopped, whatever the number of threads.";

static const char *const msa_examples[] = {
    "attn train msa --data alignments --out small-msa",
    "attn train msa --data alignments --out wide-msa --layers 6 --embed-dim 256 --max-tokens 8192 --epochs 50",
    "attn train msa --out small-msa --resume",
    NULL,
};

static const cli_option detect_options[] = {
    DATA("PATH",
         "COCO's annotations, a folder with annotations.json, or a folder of images/ and labels/ as YOLO has it"),
    OUT("detector"),
    RESUME,
};

static const char *const detect_usage[] = {"--data PATH --out DIR [SETTING...]", "--out DIR --resume", NULL};

static const char detect_description[] =
    "Trains a DETR (Carion et al. 2020): a residual network, and a Transformer whose queries are boxes. In each "
    "picture each object is assigned one query, such that the costs of class, distance and overlap are the least (the "
    "Hungarian method), and the other queries learn that there is no object. After each epoch COCO's average precision "
    "of the validation part is printed (AP, and AP50 in history.tsv), by which the best parameters are kept.\n"
    "\n"
    "PATH is a file of COCO's annotations, whose pictures are in its folder or in --images; crowds and boxes without "
    "area are left out. Or a folder: of images/ and labels/ with YOLO's text files. Part of the pictures is kept for "
    "validation, or --valid-data names its annotations.\n"
    "\n"
    "With --from a training begins with another detector: a directory of attn's or of Hugging Face's, or a .pth file "
    "of DETR's authors. Where its classes lack one of the data's, by id and name, the classes are those of the data, "
    "in the order of their ids, and their layer begins anew; fine-tuning.tsv lists where each parameter comes from. "
    "Its backbone learns at a tenth of the rate (--rates).\n"
    "\n"
    "DIR gets config.json and model.safetensors, which are the detector, and training.json, checkpoint.safetensors and "
    "history.tsv, which a training needs to go on. Ctrl-C finishes the step, saves and stops; --resume then ends in "
    "the same bits as a training that was not stopped, whatever the number of threads.";

static const char *const detect_examples[] = {
    "attn train detect --data shapes --out found --stem small --width 32 --hidden 128 --queries 25",
    "attn train detect --data birds.json --out birds --from detr-r50.pth --accumulate 4 --batch 2",
    "attn train detect --out found --resume",
    NULL,
};

#define TRAINING(kind, summary)                                                                                        \
    {                                                                                                                  \
        "train " #kind, summary, kind##_usage, kind##_description, CLI_OPTIONS(kind##_options), #kind,                 \
            kind##_examples, 0, 0, run                                                                                 \
    }

const cli_command cli_train_translate = TRAINING(translate, "train a translator on sentence pairs");
const cli_command cli_train_classify = TRAINING(classify, "train a classifier of images");
const cli_command cli_train_images = TRAINING(images, "train a model that draws images");
const cli_command cli_train_msa = TRAINING(msa, "train a language model of protein alignments");
const cli_command cli_train_detect = TRAINING(detect, "train a detector of objects");
