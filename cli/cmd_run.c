/* SPDX-License-Identifier: MIT
 * attn run: runs any architecture, or one attention problem, on arrays from .npy files. */
#include "commands.h"
#include "foreign.h"
#include "run_problem.h"

#include "apps/checkpoint/convert.h"
#include "apps/encoder/encoder.h"
#include "io/file.h"

#include <string.h>

static const cli_option options[] = {
    CLI_TEXT("arch", 'a', "ARCHITECTURE", "",
             "the architecture; attn list names them; default: what the names file says"),
    CLI_TEXT("config", 'c', "JSON", "{}", "its settings: a JSON object, or the path of a file that holds one"),
    CLI_TEXT("weights", 'w', "FILE", "",
             "its parameters, safetensors, PyTorch's .pt or NumPy's .npz, or a directory of attn's or of a published "
             "encoder, whose config.json then says architecture and settings; default: fresh ones from --seed"),
    CLI_NAMES,
    CLI_TEXT("problem", 'p', "PROBLEM", "",
             "run a single attention instead of a model, written as for attn bench attend"),
    CLI_MANY("input", 'i', "NAME=FILE", "an input, a .npy file; give the option once for each"),
    CLI_WRITES(TEXTS, "output", 'o', "NAME=FILE", "", "an output to write, a .npy file; give the option once for each"),
};

static const char *const usage[] = {
    "--arch NAME [--config JSON] [--weights FILE] --input NAME=FILE... --output NAME=FILE...",
    "--weights DIR --input NAME=FILE... --output NAME=FILE...",
    "--problem PROBLEM --input NAME=FILE... --output NAME=FILE...", NULL};

static const char description[] =
    "Builds a model, runs it on the inputs and writes the requested outputs. attn list NAME prints the inputs and "
    "outputs of an architecture. Prints the shape of each output.\n"
    "\n"
    "With --problem the engine runs a single attention; attn bench attend --help tells how one is written. The arrays "
    "have the names of attn_arrays in attn.h. Inputs are q, k, v and, by the problem's features, bias, mask, lens, "
    "sinks, blocks, bias_index, q_offsets, k_offsets, w, w2, table0, table1. Outputs are o and lse, and the gradients "
    "dq, dk, dv, dbias, dsinks, dw, dw2, dtable0, dtable1, for which dout is an input too (and dlse by the feature of "
    "that name). A bias by distance and its index begin with the first key seen from the last query. An error names an "
    "input that is missing, and its shape.";

static const char *const examples[] = {
    "attn run --arch self-attention --config '{\"dim\": 64, \"heads\": 4}' \\",
    "         --input x=x.npy --output weights=weights.npy",
    "attn run --arch transformer --config config.json --weights model.safetensors \\",
    "         --input tokens=src.npy --input tgt_tokens=tgt.npy --output logits=logits.npy",
    "attn run --problem b1h8q512k512d64:causal,softcap=30 --input q=q.npy --input k=k.npy \\",
    "         --input v=v.npy --output o=o.npy",
    NULL,
};

/* Splits "NAME=FILE". Copies the name to `name` and returns the file. If the text has another form, returns NULL. */
static const char *split(const char *text, char *name, size_t size)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1] || (size_t)(equals - text) >= size)
        return NULL;
    memcpy(name, text, (size_t)(equals - text));
    name[equals - text] = '\0';
    return equals + 1;
}

static int bad_form(const char *option, const char *text)
{
    return cli_fail(CLI_BAD, "--%s: \"%s\" does not have the form NAME=FILE", option, text);
}

/* Prints a report about weights. For refused weights, this is the number of faulty parameters, and a line for each
 * parameter that is missing, extra or of another shape. For accepted weights, it is the notes about skipped tensors. */
static void tell_report(const cli_call *cli, attn_status status, const attn_bytes *report)
{
    if (status == ATTN_OK) {
        cli_notes(cli, report->data);
        return;
    }
    for (const char *line = report->data; line && *line; line += strspn(line, "\n")) {
        int length = (int)strcspn(line, "\n");
        cli_fail(CLI_BAD, "%.*s", length, line);
        line += length;
    }
}

static int load_weights(const cli_call *cli, attn_model *model, const attn_name_map *names, const char *path)
{
    attn_bytes report = {0};
    attn_weights_options how = {.names = names};
    attn_status status = attn_weights_load(attn_model_parameters(model), path, &how, NULL, &report);
    int code = status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
    tell_report(cli, status, &report);
    attn_bytes_free(cli->context, &report);
    return code;
}

/* Reports whether the path is a directory whose config.json says all that a model needs: of attn, or of a published
 * encoder. */
static bool is_described(const cli_call *cli, const char *path)
{
    attn__identity is;
    bool described = attn__identify(&is, cli->context, path) == ATTN_OK &&
                     (is.form == ATTN__FORM_OWN || (is.directory && is.product == ATTN__PRODUCT_ENCODER));
    attn__identity_end(&is);
    return described;
}

static int make_model(const cli_call *cli, attn_model **model)
{
    cli_foreign foreign;
    const char *weights = cli_text(cli, "weights");
    int code = CLI_OK;
    *model = NULL;
    attn_status status = cli_foreign_read(cli, &foreign);
    bool own =
        status == ATTN_OK && *weights && !foreign.names && !cli_given(cli, "config") && is_described(cli, weights);
    attn_model_options options_of = {.seed = (uint64_t)cli_int(cli, "seed"), .blank = *weights != '\0'};
    if (status == ATTN_OK && *weights)
        status = cli_foreign_measure(cli, &foreign, weights);
    if (status == ATTN_OK && own)
        status =
            attn_model_load(model, cli->context, weights, &(attn_model_load_options){.architecture = foreign.arch});
    else if (status == ATTN_OK && !foreign.arch)
        code = cli_fail(
            CLI_BAD,
            "no architecture is given; give --arch NAME, or a names file with the line \"arch NAME\" (attn list prints "
            "the names)");
    else if (status == ATTN_OK)
        status = attn_model_create(model, cli->context, foreign.arch, foreign.config, &options_of);
    if (status != ATTN_OK)
        code = cli_failed(cli, NULL);
    if (code == CLI_OK && *weights && !own)
        code = load_weights(cli, *model, foreign.names, weights);
    cli_foreign_free(&foreign);
    return code;
}

static int read_inputs(const cli_call *cli, attn_named_list *inputs)
{
    const attn_config_value *given = cli_many(cli, "input");
    for (int64_t i = 0; given && i < given->n; i++) {
        char name[128];
        attn_tensor *tensor;
        const char *path = split(given->texts[i], name, sizeof name);
        if (!path)
            return bad_form("input", given->texts[i]);
        if (attn_npy_read(&tensor, cli->context, path) != ATTN_OK)
            return cli_failed(cli, NULL);
        if (attn_named_add(inputs, name, tensor) != ATTN_OK) {
            attn_tensor_destroy(tensor);
            return cli_failed(cli, NULL);
        }
    }
    return CLI_OK;
}

/* Adds the names of the requested outputs to the list, without tensors. This makes the model compute optional
 * outputs, too. */
static int ask_outputs(const cli_call *cli, attn_named_list *outputs)
{
    const attn_config_value *requests = cli_many(cli, "output");
    for (int64_t i = 0; requests && i < requests->n; i++) {
        char name[128];
        const char *path = split(requests->texts[i], name, sizeof name);
        if (!path)
            return bad_form("output", requests->texts[i]);
        if (attn_named_add(outputs, name, NULL) != ATTN_OK)
            return cli_failed(cli, NULL);
    }
    return CLI_OK;
}

static int write_outputs(const cli_call *cli, const attn_named_list *outputs)
{
    const attn_config_value *requests = cli_many(cli, "output");
    for (int64_t i = 0; requests && i < requests->n; i++) {
        char name[128];
        const char *path = split(requests->texts[i], name, sizeof name);
        const attn_tensor *tensor = attn_named_find(outputs, name);
        if (!tensor)
            return cli_fail(CLI_BAD, "--output: there is no output \"%s\"; attn list %s prints the names", name,
                            cli_text(cli, "arch"));
        if (attn_npy_write(tensor, cli->context, path) != ATTN_OK)
            return cli_failed(cli, NULL);
    }
    return CLI_OK;
}

static int print_shapes(const cli_call *cli, const attn_named_list *outputs)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    for (int64_t i = 0; i < outputs->n; i++) {
        const attn_tensor *tensor = outputs->items[i].tensor;
        if (!tensor)
            continue;
        attn_json_array(&json, outputs->items[i].name);
        if (!cli->json)
            cli_print("%s", outputs->items[i].name);
        for (int d = 0; d < attn_tensor_rank(tensor); d++) {
            attn_json_int(&json, NULL, attn_tensor_length(tensor, d));
            if (!cli->json)
                printf("%s%lld", d ? " x " : "  ", (long long)attn_tensor_length(tensor, d));
        }
        attn_json_end(&json);
        if (!cli->json)
            printf("  %s\n", attn_dtype_name(attn_tensor_dtype(tensor)));
    }
    attn_json_end(&json);
    if (cli->json)
        return cli_print_json(cli, &json);
    attn_json_free(&json);
    return CLI_OK;
}

static int run(cli_call *cli)
{
    attn_model *model = NULL;
    attn_tape *tape = NULL;
    bool problem = *cli_text(cli, "problem");
    attn_context_set_inference(cli->context, true);
    attn_named_list inputs = {.context = cli->context, .owns = true}, outputs = {.context = cli->context};
    if (problem &&
        (*cli_text(cli, "arch") || *cli_text(cli, "weights") || *cli_text(cli, "names") || cli_given(cli, "config")))
        return cli_fail(CLI_BAD, "--problem cannot be used with --arch, --config, --weights or --names");
    int code = problem ? CLI_OK : make_model(cli, &model);
    if (code == CLI_OK && model && attn_model_pack_weights(model) != ATTN_OK)
        code = cli_failed(cli, NULL);
    if (code == CLI_OK)
        code = read_inputs(cli, &inputs);
    if (code == CLI_OK)
        code = ask_outputs(cli, &outputs);
    if (code == CLI_OK && attn_tape_create(&tape, cli->context) != ATTN_OK)
        code = cli_failed(cli, NULL);
    if (code == CLI_OK && problem)
        code = cli_run_problem(cli, &inputs, &outputs);
    else if (code == CLI_OK && attn_model_forward(model, tape, &inputs, &outputs) != ATTN_OK)
        code = cli_failed(cli, NULL);
    if (code == CLI_OK)
        code = write_outputs(cli, &outputs);
    if (code == CLI_OK)
        code = print_shapes(cli, &outputs);
    attn_named_clear(&outputs);
    if (tape)
        attn_tape_destroy(tape);
    attn_named_clear(&inputs);
    attn_model_destroy(model);
    return code;
}

const cli_command cli_run = {
    "run",
    "run any architecture on arrays from .npy files",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    0,
    run,
};
