/* SPDX-License-Identifier: MIT
 *
 * attn list: lists the architectures.
 */
#include "commands.h"
#include "model_config.h"
#include "parameters.h"
#include "models/kind.h"

#include <string.h>

static const cli_option options[] = {
    CLI_TEXT("config", 'c', "JSON", "",
             "settings to show the parameters for: a JSON object, or the path of a file that holds one"),
    CLI_FLAG("all", 'a', "everything about every architecture"),
};

static const char *const usage[] = {"[ARCHITECTURE [--config JSON]]", "--all", NULL};

static const char description[] =
    "Without ARCHITECTURE: every architecture in one line. With one: its settings, inputs, outputs, and the "
    "parameters of a model with the given settings, or with its defaults (settings without a default get a sample "
    "value: 64, 4 heads, kernels of 7, 2 layers, lists of 8 and 8). With --all: the same for every architecture.";

static const char *const examples[] = {"attn list",
                                       "attn list transformer",
                                       "attn list --all | less",
                                       "attn list self-attention --config '{\"dim\": 512, \"heads\": 8}'",
                                       "attn list transformer --json",
                                       NULL};

static const char *type_name(const attn_setting *key)
{
    static const char *const names[] = {[ATTN_CONFIG_TYPE_NULL] = "none",   [ATTN_CONFIG_TYPE_BOOL] = "true or false",
                                        [ATTN_CONFIG_TYPE_INT] = "integer", [ATTN_CONFIG_TYPE_REAL] = "number",
                                        [ATTN_CONFIG_TYPE_TEXT] = "text",   [ATTN_CONFIG_TYPE_INTS] = "integers",
                                        [ATTN_CONFIG_TYPE_TEXTS] = "texts", [ATTN_CONFIG_TYPE_REALS] = "numbers"};
    if (key->min < key->max && key->type == ATTN_CONFIG_TYPE_INTS)
        return "integer or integers";
    if (key->min < key->max && key->type == ATTN_CONFIG_TYPE_REALS)
        return "number or numbers";
    return names[key->type];
}

/* Builds a model with the given settings, or else with sample settings. If the architecture has no sample settings,
 * returns CLI_OK and sets *model to NULL. */
static int build(const cli_call *cli, const attn_architecture *architecture, attn_model **model)
{
    attn_config *config = NULL;
    bool given = cli_given(cli, "config");
    attn_status status =
        given ? cli_model_config_read(cli, &config) : cli_model_config_sample(cli, architecture, &config);
    *model = NULL;
    if (status == ATTN_OK)
        status = attn_model_create(model, cli->context, architecture->name, config,
                                   /* The parameters stay zero, because only their names and shapes are printed. */
                                   &(attn_model_options){.blank = true});
    attn_config_destroy(config);
    if (status == ATTN_ERROR_MEMORY || (status != ATTN_OK && given))
        return cli_failed(cli, NULL);
    attn_context_clear_error(cli->context);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------ for people */

static void print_key(const attn_setting *key)
{
    char doc[512];
    int used = snprintf(doc, sizeof doc, "%s (%s", key->doc, type_name(key));
    for (int i = 0; key->choices && key->choices[i] && used < (int)sizeof doc; i++)
        used += snprintf(doc + used, sizeof doc - (size_t)used, "%s%s", i ? ", " : ": ", key->choices[i]);
    if (used < (int)sizeof doc)
        snprintf(doc + used, sizeof doc - (size_t)used, "%s%s)",
                 !key->default_text     ? "; required"
                 : key->default_text[0] ? "; default "
                                        : "",
                 key->default_text ? key->default_text : "");
    printf("  %-20s ", key->name);
    cli_help_wrap(stdout, doc, 23, 23);
}

static void print_ports(const char *head, const attn_port *ports, int n)
{
    printf("\n%s\n", head);
    for (int i = 0; i < n; i++) {
        char doc[512];
        snprintf(doc, sizeof doc, "%s %s%s%s", ports[i].shape, ports[i].doc ? ports[i].doc : "",
                 ports[i].integer ? "; integers" : "", ports[i].optional ? "; optional" : "");
        printf("  %-20s ", ports[i].name);
        cli_help_wrap(stdout, doc, 23, 23);
    }
}

/* Prints the parameters, after a line with the settings of their model, such as "dim 64, heads 4". */
static void print_parameters(const attn_model *model)
{
    const attn_config *config = attn_model_config(model);
    char text[256], count[32];
    fputs("\nParameters with", stdout);
    for (int64_t i = 0; i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        cli_print("%s %s %s", i ? "," : "", key, cli_value_text(attn_config_get(config, key), text, sizeof text));
    }
    puts(attn_config_size(config) ? "" : " no settings");
    cli_parameters_print(attn_model_parameters(model));
    printf("  %s numbers in all\n", cli_count(cli_parameters_total(attn_model_parameters(model)).trained, count));
}

static void print_architecture(const attn_architecture *a, const attn_model *model)
{
    printf("%s: %s\n%s\n\nSettings\n", a->name, a->summary, a->source);
    for (int i = 0; i < a->nkeys; i++)
        print_key(&a->keys[i]);
    print_ports("Inputs", a->inputs, a->ninputs);
    print_ports("Outputs", a->outputs, a->noutputs);
    if (model && attn_model_parameters(model)->n > 0)
        print_parameters(model);
}

/* -------------------------------------------------------------------------------------------- as JSON */

static void json_keys(attn_json *json, const attn_architecture *a)
{
    attn_json_array(json, "settings");
    for (int i = 0; i < a->nkeys; i++) {
        const attn_setting *key = &a->keys[i];
        attn_json_object(json, NULL);
        attn_json_text(json, "name", key->name);
        attn_json_text(json, "type", type_name(key));
        attn_json_bool(json, "required", !key->default_text);
        attn_json_text(json, "default", key->default_text);
        attn_json_array(json, "choices");
        for (int j = 0; key->choices && key->choices[j]; j++)
            attn_json_text(json, NULL, key->choices[j]);
        attn_json_end(json);
        attn_json_text(json, "doc", key->doc);
        attn_json_end(json);
    }
    attn_json_end(json);
}

static void json_ports(attn_json *json, const char *name, const attn_port *ports, int n)
{
    attn_json_array(json, name);
    for (int i = 0; i < n; i++) {
        attn_json_object(json, NULL);
        attn_json_text(json, "name", ports[i].name);
        attn_json_text(json, "shape", ports[i].shape);
        attn_json_bool(json, "integer", ports[i].integer);
        attn_json_bool(json, "optional", ports[i].optional);
        attn_json_text(json, "doc", ports[i].doc);
        attn_json_end(json);
    }
    attn_json_end(json);
}

static void json_architecture(attn_json *json, const attn_architecture *a, const attn_model *model)
{
    attn_json_object(json, NULL);
    attn_json_text(json, "name", a->name);
    attn_json_text(json, "summary", a->summary);
    attn_json_text(json, "source", a->source);
    json_keys(json, a);
    json_ports(json, "inputs", a->inputs, a->ninputs);
    json_ports(json, "outputs", a->outputs, a->noutputs);
    if (model) {
        attn_json_config(json, "config", attn_model_config(model));
        cli_parameters_json(json, attn_model_parameters(model));
    }
    attn_json_end(json);
}

/* -------------------------------------------------------------------------------------------- the command */

static int list_all(const cli_call *cli)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_array(&json, NULL);
    for (int i = 0; i < attn_architecture_count(); i++) {
        const attn_architecture *a = attn_architecture_at(i);
        if (cli->json)
            json_architecture(&json, a, NULL);
        else {
            printf("%-28s ", a->name);
            cli_help_wrap(stdout, a->summary, 29, 29);
        }
    }
    attn_json_end(&json);
    if (cli->json)
        return cli_print_json(cli, &json);
    attn_json_free(&json);
    return CLI_OK;
}

static int list_everything(const cli_call *cli)
{
    attn_json json;
    int code = CLI_OK;
    attn_json_begin(&json, cli->context, true);
    attn_json_array(&json, NULL);
    for (int i = 0; i < attn_architecture_count() && code == CLI_OK; i++) {
        const attn_architecture *a = attn_architecture_at(i);
        attn_model *model;
        code = build(cli, a, &model);
        if (code == CLI_OK && cli->json)
            json_architecture(&json, a, model);
        else if (code == CLI_OK) {
            fputs(i ? "\n\n" : "", stdout);
            print_architecture(a, model);
        }
        attn_model_destroy(model);
    }
    attn_json_end(&json);
    if (code == CLI_OK && cli->json)
        return cli_print_json(cli, &json);
    attn_json_free(&json);
    return code;
}

static int refuse(const char *name)
{
    attn_nearest nearest = {.word = name};
    for (int i = 0; i < attn_architecture_count(); i++)
        attn_nearest_offer(&nearest, attn_architecture_at(i)->name);
    if (attn_nearest_found(&nearest))
        return cli_fail(CLI_BAD, "there is no architecture \"%.60s\"; did you mean \"%s\"?", name, nearest.best);
    return cli_fail(CLI_BAD, "there is no architecture \"%.60s\"; attn list prints the names", name);
}

static int list_one(const cli_call *cli, const attn_architecture *a)
{
    attn_model *model;
    int code = build(cli, a, &model);
    if (code != CLI_OK)
        return code;
    if (cli->json) {
        attn_json json;
        attn_json_begin(&json, cli->context, true);
        json_architecture(&json, a, model);
        code = cli_print_json(cli, &json);
    } else {
        print_architecture(a, model);
    }
    attn_model_destroy(model);
    return code;
}

static int run(cli_call *cli)
{
    if (cli->nwords == 0 && cli_given(cli, "config"))
        return cli_fail(CLI_BAD, "--config needs the NAME of an architecture");
    if (cli_flag(cli, "all"))
        return cli->nwords == 0 ? list_everything(cli) : cli_fail(CLI_BAD, "--all cannot be used with a NAME");
    if (cli->nwords == 0)
        return list_all(cli);
    const attn_architecture *a = attn_architecture_find(cli->words[0]);
    return a ? list_one(cli, a) : refuse(cli->words[0]);
}

const cli_command cli_list = {
    "list",
    "list the architectures and what they are built from",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    1,
    run,
};
