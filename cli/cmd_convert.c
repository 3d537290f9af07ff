/* SPDX-License-Identifier: MIT
 * attn convert: converts foreign checkpoints to attn's own format. */
#include "commands.h"
#include "foreign.h"
#include "source.h"

#include "apps/checkpoint/vit.h"
#include "apps/checkpoint/convert.h"
#include "attn/msa.h"
#include "apps/msa/msa.h"
#include "io/names/names.h"

#include <string.h>

static const cli_option options[] = {
    CLI_WRITES(TEXT, "out", 'o', "DIR", "",
               "the directory that gets config.json and model.safetensors; or NAME.safetensors"),
    CLI_TEXT("regression", 0, "FILE", "",
             "MSA Transformer: the contact regression; default: the file in the checkpoint's folder"),
    CLI_INT("heads", 0, "0", 0, 65536,
            "Vision Transformer: its number of heads, which no tensor shows; default: what config.json says"),
    CLI_TEXT("mean", 0, "X,X,X", "0.5,0.5,0.5",
             "Vision Transformer: means to subtract from its pixels, which run from 0 to 1; default, if --std is not "
             "given: what preprocessor_config.json or config.json says"),
    CLI_TEXT("std", 0, "X,X,X", "0.5,0.5,0.5", "Vision Transformer: standard deviations to divide its pixels by"),
    CLI_TEXT("arch", 'a', "NAME", "",
             "the architecture, for a checkpoint that does not name one; attn list prints their names"),
    CLI_TEXT("config", 'c', "JSON", "{}", "its settings: a JSON object, or the path of a file that holds one"),
    CLI_NAMES,
    CLI_FLAG("dry_run", 0, "list what fits, what is missing and what is left over, and write nothing"),
};

static const char *const usage[] = {"CHECKPOINT -o DIR",
                                    "CHECKPOINT --arch NAME --config JSON -o DIR",
                                    "CHECKPOINT --names FILE -o DIR",
                                    "CHECKPOINT -o NAME.safetensors",
                                    "CHECKPOINT --dry-run [--arch NAME --config JSON] [--names FILE]",
                                    NULL};

static const char description[] =
    "CHECKPOINT is what PyTorch saved (.pt, .pth, .bin), a .safetensors file, or a folder of Hugging Face's. DIR gets "
    "config.json and model.safetensors, which load faster and hold no pickle:\n"
    "\n"
    "  ESM-MSA-1b, ESM-MSA-1   with the contact regression, for attn contacts, embed, score, show\n"
    "  Vision Transformers     of Hugging Face or timm, for attn classify and show\n"
    "  Marian's translators    a directory with decoder.yml, as OPUS-MT's archives are: in Hugging Face's MarianMT "
    "form\n"
    "  a training with --lora  its adapter merged with its weights\n"
    "  anything else           with --arch and --config, for attn run; its tensors must have that architecture's "
    "names, or a names file must rename them\n"
    "\n"
    "--dry-run writes nothing: it lists every tensor with the parameter that it would fill, what is missing with the "
    "tensor most like it, and rules to begin a names file with.\n"
    "\n"
    "With -o NAME.safetensors every tensor is written with its values and its type, whatever model it belongs to; "
    "but int8 with scales becomes f32, and integers of a type that attn does not have become wider ones.\n"
    "\n"
    "--precision bf16 or int8 stores the weights of linear layers in 2 bytes or in 1, of a directory in attn's own "
    "form too. With the same --precision, later commands give the same results as from the weights in 4 bytes.";

static const char *const examples[] = {
    "attn convert esm_msa1b_t12_100M_UR50S.pt -o msa1b",
    "attn convert vit-base-patch16-224 -o vit-base",
    "attn convert mine.pt --arch transformer --config config.json -o mine",
    "attn convert mine.pt --arch transformer --config config.json --dry-run",
    "attn convert vit-base --precision int8 -o vit-base-int8",
    "attn convert anything.pt -o anything.safetensors",
    NULL,
};

/* Refuses options that have no effect on a conversion of this kind. */
static int refuse_unused(const cli_call *cli, bool vit, bool msa, bool named)
{
    const struct {
        const char *option, *what;
        bool used;
    } limited[] = {
        {"heads", "to a Vision Transformer of Hugging Face or timm; for other models --config sets the heads", vit},
        {"mean", "to a Vision Transformer of Hugging Face or timm", vit},
        {"std", "to a Vision Transformer of Hugging Face or timm", vit},
        {"regression", "to an MSA Transformer", msa},
        {"config", "with --arch or --names", named}};
    for (size_t i = 0; i < sizeof limited / sizeof *limited; i++)
        if (cli_given(cli, limited[i].option) && !limited[i].used)
            return cli_fail(CLI_BAD, "--%s applies only %s", limited[i].option, limited[i].what);
    return CLI_OK;
}

static int convert_msa(const cli_call *cli)
{
    attn_msa *msa;
    const char *regression = cli_text(cli, "regression");
    attn_msa_load_options how = {.regression = *regression ? regression : NULL};
    if (attn_msa_load(&msa, cli->context, cli->words[0], &how) != ATTN_OK)
        return cli_failed(cli, NULL);
    if (!attn_msa_has_regression(msa))
        cli_note(cli, "note: there is no contact regression in the folder of %s: the model will not predict contacts",
                 cli->words[0]);
    int code = attn_msa_save(msa, cli_text(cli, "out")) == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
    attn_msa_destroy(msa);
    return code;
}

static bool read_three(const char *text, float *values)
{
    char rest;
    return sscanf(text, "%f,%f,%f%c", &values[0], &values[1], &values[2], &rest) == 3;
}

static void tell_passed(const cli_call *cli)
{
    attn_checkpoint *plain = NULL, *weights = NULL;
    attn_name_map *names = NULL;
    const char *name = NULL;
    attn_status status = attn_checkpoint_open(&plain, cli->context, cli->words[0], NULL, NULL);
    if (status == ATTN_OK)
        status = attn_name_map_detect(&name, plain, NULL, NULL);
    attn_checkpoint_close(plain);
    if (status == ATTN_OK)
        status = attn_name_map_read(&names, cli->context, name);
    attn_weights_options how = {.names = names};
    if (status == ATTN_OK)
        status = attn_checkpoint_open(&weights, cli->context, cli->words[0], &how, NULL);
    if (status == ATTN_OK)
        cli_notes(cli, attn_checkpoint_notes(weights));
    attn_checkpoint_close(weights);
    attn_name_map_destroy(names);
}

static int read_scale(const cli_call *cli, attn_pixel_scale *scale)
{
    static const char *const names[] = {"mean", "std"};
    float *const into[] = {scale->mean, scale->std};
    for (int i = 0; i < 2; i++) {
        if (!read_three(cli_text(cli, names[i]), into[i]))
            return cli_fail(CLI_BAD, "--%s: \"%.60s\" is not three numbers with commas between, such as 0.5,0.5,0.5",
                            names[i], cli_text(cli, names[i]));
        for (int c = 0; c < 3; c++)
            /* Standard deviations must be above 0, because pixels are divided by them. */
            if (!(into[i][c] >= (float)i * 1e-6f && into[i][c] <= 1))
                return cli_fail(CLI_BAD, "--%s: number %d is %g; it must be %s to 1", names[i], c + 1,
                                (double)into[i][c], i ? "1e-06" : "0");
    }
    return CLI_OK;
}

/* Writes the three numbers of a setting to `text`: "0.5" if they are equal, and otherwise a list such as "(0.485,
 * 0.456, 0.406)". */
static const char *three_text(const attn_config *config, const char *name, char *text, size_t size)
{
    double values[3];
    for (int i = 0; i < 3; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s.%d", name, i);
        values[i] = attn_config_real(config, key, i ? values[0] : 0);
    }
    bool same = !(values[0] < values[1] || values[0] > values[1] || values[0] < values[2] || values[0] > values[2]);
    if (same)
        snprintf(text, size, "%.6g", values[0]);
    else
        snprintf(text, size, "(%.6g, %.6g, %.6g)", values[0], values[1], values[2]);
    return text;
}

/* Prints how many classes have no name in the checkpoint's files, if only some classes have one. */
static void tell_classes(const cli_call *cli, const attn_config *config)
{
    const attn_config_value *names = attn_config_get(config, "class_names");
    long long unnamed = 0, n = names ? (long long)names->n : 0;
    for (long long i = 0; i < n; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", i);
        unnamed += strcmp(names->texts[i], number) == 0;
    }
    if (unnamed > 0 && unnamed < n)
        cli_note(cli, "note: config.json names %lld of %lld classes; the other %lld are named by their numbers",
                 n - unnamed, n, unnamed);
}

static void tell_classifier(const cli_call *cli)
{
    char mean[64], std[64];
    attn_config *config = cli_config_in(cli, cli_text(cli, "out"), "config.json");
    if (!config)
        return;
    int64_t to = attn_config_int(config, "resize_to", 0);
    bool squash = strcmp(attn_config_text(config, "resize", ""), "squash") == 0;
    cli_note(cli, "pixels are scaled by (x - %s) / %s, and pictures resized by %s interpolation%s",
             three_text(config, "mean", mean, sizeof mean), three_text(config, "std", std, sizeof std),
             attn_config_text(config, "interpolation", "bicubic"), squash ? ", without keeping their proportions" : "");
    if (to > 0)
        cli_note(cli, "pictures are resized to %lld pixels, and %lld are cut out of the middle", (long long)to,
                 (long long)attn_config_int(config, "input.width", 0));
    tell_classes(cli, config);
    attn_config_destroy(config);
}

static int convert_vit(const cli_call *cli)
{
    attn_pixel_scale scale;
    attn_vit_options how = {.num_heads = cli_int(cli, "heads")};
    bool scaled = cli_given(cli, "mean") || cli_given(cli, "std");
    int code = read_scale(cli, &scale);
    if (code != CLI_OK)
        return code;
    if (attn_vit_convert(cli->context, cli->words[0], &how, scaled ? &scale : NULL, cli_text(cli, "out")) != ATTN_OK)
        return cli_failed(cli, NULL);
    tell_passed(cli);
    tell_classifier(cli);
    return CLI_OK;
}

static int convert_named(const cli_call *cli, const cli_foreign *foreign)
{
    attn_model *model = NULL;
    attn_bytes report = {0};
    attn_model_options blank = {.blank = true};
    attn_weights_options how = {.names = foreign->names};
    if (!foreign->arch)
        return cli_fail(CLI_BAD, "--names: the file has no line \"arch NAME\"; give --arch NAME");
    attn_status status = attn_model_create(&model, cli->context, foreign->arch, foreign->config, &blank);
    if (status == ATTN_OK)
        status = attn_weights_load(attn_model_parameters(model), cli->words[0], &how, NULL, &report);
    if (status == ATTN_OK)
        status = attn_model_save(model, cli_text(cli, "out"));
    int code = status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
    if (code == CLI_OK)
        cli_notes(cli, report.data);
    attn_bytes_free(cli->context, &report);
    attn_model_destroy(model);
    return code;
}

static int convert_tensors(const cli_call *cli)
{
    attn_bytes report = {0};
    int64_t n;
    char count[32];
    attn_status status = attn_weights_convert(cli->context, cli->words[0], cli_text(cli, "out"), &n, &report);
    cli_notes(cli, report.data);
    attn_bytes_free(cli->context, &report);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    cli_note(cli, "%s tensors, with their numbers", cli_count(n, count));
    return CLI_OK;
}

/* Returns the type in which weights are stored. DEFAULT means that each weight keeps its type. */
static attn_precision stored_precision(const cli_call *cli)
{
    attn_precision precision;
    return attn_precision_find(&precision, cli_text(cli, "precision")) ? precision : ATTN_PRECISION_DEFAULT;
}

static const char translator_keeps[] = "--precision is not supported for a translator in MarianMT's form";

/* Reports whether the identified path is a directory in MarianMT's form, of Hugging Face. */
static bool is_marianmt(const attn__identity *is)
{
    return is->form != ATTN__FORM_OWN && strcmp(is->type, "marian") == 0;
}

static int convert_known(const cli_call *cli, attn__identity *is)
{
    attn_checkpoint_kind kind;
    bool adapter = is->adapter && is->named[0], own = is->form == ATTN__FORM_OWN, marianmt = is_marianmt(is);
    if ((adapter || own || marianmt) && refuse_unused(cli, false, false, false) != CLI_OK)
        return CLI_BAD;
    if (adapter)
        return attn_model_merge_adapter(cli->context, cli->words[0], cli_text(cli, "out")) == ATTN_OK
                   ? CLI_OK
                   : cli_failed(cli, NULL);
    if (own && stored_precision(cli))
        return CLI_OK;
    if (marianmt && stored_precision(cli))
        return cli_fail(CLI_BAD, translator_keeps);
    if (own || marianmt)
        return cli_fail(
            CLI_BAD,
            "%s is in %s form already, which attn's commands read; -o NAME.safetensors writes its tensors alone",
            cli->words[0], own ? "attn's own" : "MarianMT's");
    if (attn__checkpoint_kind(&kind, is) != ATTN_OK)
        return cli_failed(cli, NULL);
    if (kind == ATTN_CHECKPOINT_OTHER)
        return cli_fail(
            CLI_BAD,
            "%s: its tensor names match neither an MSA Transformer of ESM nor a Vision Transformer of Hugging Face "
            "or timm; give --arch and --config, or -o NAME.safetensors to write its tensors alone",
            cli->words[0]);
    bool msa = kind == ATTN_CHECKPOINT_MSA;
    if (refuse_unused(cli, !msa && kind != ATTN_CHECKPOINT_MARIAN, msa, false) != CLI_OK)
        return CLI_BAD;
    if (kind == ATTN_CHECKPOINT_MARIAN && stored_precision(cli))
        return cli_fail(CLI_BAD, translator_keeps);
    if (kind == ATTN_CHECKPOINT_MARIAN)
        return attn_marian_convert(cli->context, cli->words[0], cli_text(cli, "out")) == ATTN_OK
                   ? CLI_OK
                   : cli_failed(cli, NULL);
    return msa ? convert_msa(cli) : convert_vit(cli);
}

/* Checks the precision before anything is written, so that a wrong precision does not change an existing directory. */
static int check_precision(const cli_call *cli, const cli_foreign *foreign, attn__identity *is)
{
    attn_checkpoint_kind kind = ATTN_CHECKPOINT_OTHER;
    const char *name = foreign->arch;
    bool asks = !name && is->form != ATTN__FORM_OWN && !is_marianmt(is);
    if (asks && attn__checkpoint_kind(&kind, is) != ATTN_OK)
        return cli_failed(cli, NULL);
    if (kind == ATTN_CHECKPOINT_MSA)
        name = "msa-transformer";
    const attn_architecture *architecture = name ? attn_architecture_find(name) : NULL;
    if (architecture && !attn_architecture_quantizes(architecture, stored_precision(cli)))
        return cli_fail(CLI_BAD, "some linear layers of \"%s\" cannot be stored as int8; use --precision bf16", name);
    return CLI_OK;
}

static int write_out(const cli_call *cli, const cli_foreign *foreign, attn__identity *is)
{
    static const char ending[] = ".safetensors";
    const char *out = cli_text(cli, "out");
    size_t n = strlen(out), m = sizeof ending - 1;
    bool tensors = n > m && strcmp(out + n - m, ending) == 0, named = *cli_text(cli, "arch") || foreign->names;
    if (!*out)
        return cli_fail(CLI_BAD,
                        "convert needs --out with a directory or NAME.safetensors, or --dry-run, which writes nothing");
    if (tensors && named)
        return cli_fail(CLI_BAD, "with %s the output must be a directory, such as -o %.*s",
                        *cli_text(cli, "arch") ? "--arch" : "--names", (int)(n - m), out);
    if ((tensors || named) && refuse_unused(cli, false, false, named) != CLI_OK)
        return CLI_BAD;
    if (tensors && stored_precision(cli))
        return cli_fail(CLI_BAD, "with --precision the output must be a directory, such as -o %.*s", (int)(n - m), out);
    int code = stored_precision(cli) ? check_precision(cli, foreign, is) : CLI_OK;
    if (code == CLI_OK && !tensors)
        code = cli_claim_in(cli, out, (const char *const[]){"config.json", "model.safetensors", NULL});
    if (code == CLI_OK)
        code = tensors ? convert_tensors(cli) : named ? convert_named(cli, foreign) : convert_known(cli, is);
    if (code == CLI_OK && stored_precision(cli)) {
        bool own = !named && is->form == ATTN__FORM_OWN && !is->adapter;
        const char *from = own ? cli->words[0] : out;
        if (attn_model_quantize(cli->context, from, out, stored_precision(cli)) != ATTN_OK)
            code = cli_failed(cli, NULL);
    }
    if (code == CLI_OK)
        cli_print("%s\n", out);
    return code;
}

static int run(cli_call *cli)
{
    cli_foreign foreign;
    attn_precision precision = stored_precision(cli);
    if (precision != ATTN_PRECISION_DEFAULT && precision != ATTN_PRECISION_BF16 && precision != ATTN_PRECISION_INT8)
        return cli_fail(CLI_BAD,
                        "--precision is %s; it must be bf16 or int8 (without --precision, weights keep their type)",
                        cli_text(cli, "precision"));
    attn__identity is = {0};
    attn_status status = cli_foreign_read(cli, &foreign);
    if (status == ATTN_OK)
        status = attn__identify(&is, cli->context, cli->words[0]);
    if (status == ATTN_OK)
        status = cli_foreign_measure(cli, &foreign, cli->words[0]);
    int code = status != ATTN_OK          ? cli_failed(cli, NULL)
               : cli_flag(cli, "dry_run") ? cli_dry_run(cli, &foreign, cli->words[0])
                                          : write_out(cli, &foreign, &is);
    attn__identity_end(&is);
    cli_foreign_free(&foreign);
    return code;
}

const cli_command cli_convert = {
    "convert",
    "convert a checkpoint from elsewhere to attn's own form",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    1,
    1,
    run,
};
