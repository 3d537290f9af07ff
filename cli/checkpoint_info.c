/* SPDX-License-Identifier: MIT
 *
 * Implements `attn info` for a checkpoint. The tensors of any model can be printed.
 */
#include "checkpoint_info.h"
#include "foreign.h"
#include "model_config.h"
#include "number.h"
#include "parameters.h"
#include "apps/checkpoint/detr_settings.h"
#include "io/names/names.h"
#include "models/kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------------- values */

/* Returns the square root of the sum of squares. `largest` sets a power of two by which numbers are scaled, so that
 * squares neither overflow nor underflow. */
static double norm_of(const attn_tensor *t, double largest)
{
    if (largest == 0 || !isfinite(largest))
        return largest;
    double sum = 0;
    int power = ilogb(largest);
    for (int64_t i = 0; i < attn_tensor_size(t); i++) {
        double x = ldexp(cli_number_at(t, i), -power);
        sum += isnan(x) ? 0 : x * x;
    }
    return ldexp(sqrt(sum), power);
}

cli_values cli_values_of(const attn_tensor *t)
{
    cli_values v = {.min = INFINITY, .max = -INFINITY};
    for (int64_t i = 0; i < attn_tensor_size(t); i++) {
        double x = cli_number_at(t, i);
        v.nans += isnan(x);
        v.min = x < v.min ? x : v.min;
        v.max = x > v.max ? x : v.max;
    }
    if (v.max < v.min) /* no element is finite */
        return (cli_values){.min = NAN, .max = NAN, .nans = v.nans};
    v.norm = norm_of(t, fmax(fabs(v.min), fabs(v.max)));
    return v;
}

static attn_status values_at(const attn_checkpoint *weights, int64_t i, cli_values *values)
{
    attn_tensor *tensor;
    attn_status status = attn_checkpoint_tensor(&tensor, weights, i);
    if (status == ATTN_OK)
        *values = cli_values_of(tensor);
    attn_tensor_destroy(tensor);
    return status;
}

/* --------------------------------------------------------------------------------------- architectures */

static bool has_kind(const attn_named_list *parameters, const char *kind)
{
    char own[300];
    for (int64_t i = 0; i < parameters->n; i++)
        if (strcmp(cli_name_kind(parameters->items[i].name, own, sizeof own), kind) == 0)
            return true;
    return false;
}

/* Counts tensors that have the name of a parameter of the architecture. Two names are equal if they differ only in
 * their numbers, such as layer numbers. */
static int64_t count_kinds(const cli_call *cli, const attn_checkpoint *weights, const attn_architecture *architecture)
{
    attn_config *config = NULL;
    attn_model *model = NULL;
    attn_checkpoint_entry e;
    int64_t n = 0;
    char kind[300];
    attn_status status = cli_model_config_sample(cli, architecture, &config);
    if (status == ATTN_OK)
        status =
            attn_model_create(&model, cli->context, architecture->name, config, &(attn_model_options){.blank = true});
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(weights, i, &e); i++)
        n += has_kind(attn_model_parameters(model), cli_name_kind(e.name, kind, sizeof kind));
    if (status != ATTN_OK)
        cli_forgive(cli);
    attn_model_destroy(model);
    attn_config_destroy(config);
    return n;
}

bool cli_print_other_network(const attn_checkpoint *weights)
{
    const char *tensor, *other = attn__detr_other(weights, &tensor);
    if (other)
        printf("\nThis is %s, which attn does not support.\n", other);
    return other != NULL;
}

/* Prints each architecture whose parameter names occur in more than half of the file's tensors. Also prints a
 * built-in names file that has rules for more than half of the tensors. */
static attn_status print_fitting(const cli_call *cli, const attn_checkpoint *weights, int64_t tensors)
{
    const char *builtin;
    int64_t known;
    bool any = false;
    if (cli_print_other_network(weights))
        return ATTN_OK;
    attn_status status = attn_name_map_detect(&builtin, weights, &known, NULL);
    puts("\nArchitectures with these tensor names");
    for (int i = 0; status == ATTN_OK && i < attn_architecture_count(); i++) {
        const attn_architecture *architecture = attn_architecture_at(i);
        int64_t n = count_kinds(cli, weights, architecture);
        if (2 * n > tensors) {
            printf("  %-28s %lld of %lld tensors\n", architecture->name, (long long)n, (long long)tensors);
            any = true;
        }
    }
    if (status == ATTN_OK && builtin && 2 * known > tensors)
        printf("  --names %-20s %lld of %lld tensors\n", builtin, (long long)known, (long long)tensors);
    else if (!any)
        puts("  none; attn convert --dry-run --arch NAME compares the checkpoint with an architecture");
    return status;
}

/* --------------------------------------------------------------------------------------------- printing */

static attn_status print_tensors(const cli_call *cli, const attn_checkpoint *weights, int64_t *tensors)
{
    char shape[128], bytes[32], count[32];
    double size = 0;
    int64_t numbers = 0;
    bool values = cli_flag(cli, "values");
    attn_checkpoint_entry e;
    attn_status status = ATTN_OK;
    printf("  %-52s %-20s %-5s %10s%s\n", "tensor", "shape", "type", "bytes",
           values ? "            min            max           norm   NaN" : "");
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(weights, i, &e); i++) {
        cli_values v;
        cli_print("  %-52s %-20s %-5s %10s", e.name, cli_shape_text(e.rank, e.shape, shape), e.type,
                  cli_bytes((double)e.bytes, bytes));
        if (values)
            status = values_at(weights, i, &v);
        if (values && status == ATTN_OK)
            cli_print(" %14.6g %14.6g %14.6g %5lld", v.min, v.max, v.norm, (long long)v.nans);
        putchar('\n');
        size += (double)e.bytes;
        numbers += e.count;
        ++*tensors;
    }
    printf("\n%lld tensors, %s numbers, %s\n", (long long)*tensors, cli_count(numbers, count), cli_bytes(size, bytes));
    return status;
}

static void print_metadata(const attn_config *metadata)
{
    char text[200];
    if (attn_config_size(metadata) > 0)
        puts("\nMetadata");
    for (int64_t i = 0; i < attn_config_size(metadata) && i < 60; i++) {
        const char *key = attn_config_key(metadata, i);
        cli_print("  %-40s %s\n", key, cli_value_text(attn_config_get(metadata, key), text, sizeof text));
    }
    if (attn_config_size(metadata) > 60)
        printf("  and %lld more\n", (long long)attn_config_size(metadata) - 60);
}

static attn_status write_json(const cli_call *cli, const attn_checkpoint *weights, attn_json *json)
{
    attn_checkpoint_entry e;
    attn_status status = ATTN_OK;
    attn_json_begin(json, cli->context, true);
    attn_json_object(json, NULL);
    attn_json_text(json, "file", attn_checkpoint_path(weights));
    attn_json_array(json, "tensors");
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(weights, i, &e); i++) {
        cli_values v;
        attn_json_object(json, NULL);
        attn_json_text(json, "name", e.name);
        attn_json_text(json, "type", e.type);
        attn_json_array(json, "shape");
        for (int k = 0; k < e.rank; k++)
            attn_json_int(json, NULL, e.shape[k]);
        attn_json_end(json);
        attn_json_int(json, "bytes", (int64_t)e.bytes);
        if (cli_flag(cli, "values") && (status = values_at(weights, i, &v)) == ATTN_OK) {
            attn_json_real(json, "min", v.min);
            attn_json_real(json, "max", v.max);
            attn_json_real(json, "norm", v.norm);
            attn_json_int(json, "nans", v.nans);
        }
        attn_json_end(json);
    }
    attn_json_end(json);
    attn_json_end(json);
    return status;
}

int cli_checkpoint_info(const cli_call *cli, const char *path)
{
    attn_config *metadata = NULL;
    attn_checkpoint *weights = NULL;
    attn_json json;
    int64_t tensors = 0;
    const char *file = cli_text(cli, "names");
    attn_weights_options how = {.allow_extra = true, .keep_types = true};
    attn_name_map *names = NULL;
    attn_status status = attn_config_create(&metadata, cli->context);
    if (status == ATTN_OK && *file)
        status = attn_name_map_read(&names, cli->context, file);
    how.names = names;
    if (status == ATTN_OK)
        status = attn_checkpoint_open(&weights, cli->context, path, &how, metadata);
    how.names = NULL;
    attn_name_map_destroy(names);
    int code = CLI_OK;
    if (status == ATTN_OK)
        cli_notes(cli, attn_checkpoint_notes(weights));
    if (status == ATTN_OK && cli->json) {
        status = write_json(cli, weights, &json);
        if (status == ATTN_OK)
            code = cli_print_json(cli, &json);
        else
            attn_json_free(&json);
    } else if (status == ATTN_OK) {
        cli_print("%s\n\n", attn_checkpoint_path(weights));
        status = print_tensors(cli, weights, &tensors);
        print_metadata(metadata);
        if (status == ATTN_OK)
            status = print_fitting(cli, weights, tensors);
    }
    if (status != ATTN_OK)
        code = cli_failed(cli, NULL);
    attn_checkpoint_close(weights);
    attn_config_destroy(metadata);
    return code;
}
