/* SPDX-License-Identifier: MIT
 * attn list: the architectures that models are built from. */
#include "commands.h"
#include "parameters.h"

#include <string.h>

static const char *const usage[] = {"[NAME]", NULL};

static const char description[] =
    "Without NAME: every architecture in one line. With NAME: its settings, inputs, outputs, and the parameters of a "
    "model with default settings (what has no default, as the size of a vocabulary, is 100 there).";

static const char *const examples[] = {"attn list", "attn list transformer", "attn list transformer --json", NULL};

static const char *type_name(attn_value_type type)
{
    static const char *const names[] = {
        [ATTN_VALUE_NULL] = "none",   [ATTN_VALUE_BOOL] = "true or false", [ATTN_VALUE_INT] = "integer",
        [ATTN_VALUE_REAL] = "number", [ATTN_VALUE_TEXT] = "text",          [ATTN_VALUE_INTS] = "integers",
        [ATTN_VALUE_TEXTS] = "texts"};
    return names[type];
}

/* A model with defaults; NULL if it cannot be built so. */
static attn_model *default_build(const cli_call *cli, const attn_architecture *architecture)
{
    static const int64_t FILLER = 100;
    attn_config *config;
    attn_model *model = NULL;
    attn_status status = attn_config_create(&config, cli->context);
    for (int i = 0; status == ATTN_OK && i < architecture->nkeys; i++) {
        const attn_key *key = &architecture->keys[i];
        if (!key->otherwise && key->type == ATTN_VALUE_INT)
            status = attn_config_set_int(config, key->name, FILLER);
    }
    if (status == ATTN_OK)
        status = attn_model_create(&model, cli->context, architecture->name, config, NULL);
    if (config)
        attn_config_destroy(config);
    attn_context_clear(cli->context);
    return status == ATTN_OK ? model : NULL;
}

/* ------------------------------------------------------------------------------------------ for people */

static void print_key(const attn_key *key)
{
    char doc[512];
    int used = snprintf(doc, sizeof doc, "%s (%s", key->doc, type_name(key->type));
    for (int i = 0; key->choices && key->choices[i] && used < (int)sizeof doc; i++)
        used += snprintf(doc + used, sizeof doc - (size_t)used, "%s%s", i ? ", " : ": ", key->choices[i]);
    if (used < (int)sizeof doc)
        snprintf(doc + used, sizeof doc - (size_t)used, "%s%s)",
                 !key->otherwise     ? "; required"
                 : key->otherwise[0] ? "; default "
                                     : "",
                 key->otherwise ? key->otherwise : "");
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

static void print_architecture(const cli_call *cli, const attn_architecture *a)
{
    printf("%s: %s\n%s\n\nSettings\n", a->name, a->summary, a->source);
    for (int i = 0; i < a->nkeys; i++)
        print_key(&a->keys[i]);
    print_ports("Inputs", a->inputs, a->ninputs);
    print_ports("Outputs", a->outputs, a->noutputs);
    attn_model *model = default_build(cli, a);
    if (model && attn_model_parameters(model)->n > 0) {
        char count[32];
        puts("\nParameters");
        cli_parameters_print(attn_model_parameters(model));
        printf("  %s numbers in all\n", cli_count(cli_parameters_total(attn_model_parameters(model)).trained, count));
    }
    attn_model_destroy(model);
}

/* -------------------------------------------------------------------------------------------- as JSON */

static void json_keys(attn_json *json, const attn_architecture *a)
{
    attn_json_array(json, "settings");
    for (int i = 0; i < a->nkeys; i++) {
        const attn_key *key = &a->keys[i];
        attn_json_object(json, NULL);
        attn_json_text(json, "name", key->name);
        attn_json_text(json, "type", type_name(key->type));
        attn_json_bool(json, "required", !key->otherwise);
        attn_json_text(json, "default", key->otherwise);
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

static void json_architecture(const cli_call *cli, attn_json *json, const attn_architecture *a, bool parameters)
{
    attn_json_object(json, NULL);
    attn_json_text(json, "name", a->name);
    attn_json_text(json, "summary", a->summary);
    attn_json_text(json, "source", a->source);
    json_keys(json, a);
    json_ports(json, "inputs", a->inputs, a->ninputs);
    json_ports(json, "outputs", a->outputs, a->noutputs);
    attn_model *model = parameters ? default_build(cli, a) : NULL;
    if (model)
        cli_parameters_json(json, attn_model_parameters(model));
    attn_model_destroy(model);
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
            json_architecture(cli, &json, a, false);
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

static int refuse(const char *name)
{
    cli_nearest nearest = {.word = name};
    for (int i = 0; i < attn_architecture_count(); i++)
        cli_nearest_offer(&nearest, attn_architecture_at(i)->name);
    if (cli_nearest_found(&nearest))
        return cli_fail(CLI_BAD, "there is no architecture \"%.60s\"; did you mean \"%s\"?", name, nearest.best);
    return cli_fail(CLI_BAD, "there is no architecture \"%.60s\"; attn list names them", name);
}

static int run(cli_call *cli)
{
    if (cli->nwords == 0)
        return list_all(cli);
    const attn_architecture *a = attn_architecture_find(cli->words[0]);
    if (!a)
        return refuse(cli->words[0]);
    if (!cli->json) {
        print_architecture(cli, a);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    json_architecture(cli, &json, a, true);
    return cli_print_json(cli, &json);
}

const cli_command cli_list = {
    "list", "list the architectures and what they are built from", usage, description, NULL, 0, NULL, examples, 0, 1,
    run,
};
