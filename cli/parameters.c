/* SPDX-License-Identifier: MIT
 *
 * Prints a model's parameters.
 */
#include "parameters.h"

#include <string.h>

cli_totals cli_parameters_total(const attn_named_list *list)
{
    cli_totals totals = {.tensors = list->n};
    for (int64_t i = 0; i < list->n; i++) {
        const attn_tensor *tensor = list->items[i].tensor;
        int64_t size = attn_tensor_size(tensor);
        *(attn_tensor_requires_grad(tensor) ? &totals.trained : &totals.buffers) += size;
        totals.bytes += (double)size * (double)attn_dtype_size(attn_tensor_dtype(tensor));
    }
    return totals;
}

/* Writes a shape such as "512 x 64" to `out`. Returns `out`. */
static const char *shape_text(const attn_tensor *tensor, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < attn_tensor_rank(tensor) && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i ? " x " : "",
                                 (long long)attn_tensor_length(tensor, i));
    return out;
}

void cli_parameters_print(const attn_named_list *list)
{
    int width = 4;
    for (int64_t i = 0; i < list->n; i++) {
        int length = (int)strlen(list->items[i].name);
        width = length > width ? length : width;
    }
    for (int64_t i = 0; i < list->n; i++) {
        const attn_tensor *tensor = list->items[i].tensor;
        char shape[128], count[32];
        cli_print("  %-*s  %-14s %12s  %s%s\n", width, list->items[i].name, shape_text(tensor, shape, sizeof shape),
                  cli_count(attn_tensor_size(tensor), count), attn_dtype_name(attn_tensor_dtype(tensor)),
                  attn_tensor_requires_grad(tensor) ? "" : ", not trained");
    }
}

void cli_parameters_json(attn_json *json, const attn_named_list *list)
{
    attn_json_array(json, "parameters");
    for (int64_t i = 0; i < list->n; i++) {
        const attn_tensor *tensor = list->items[i].tensor;
        attn_json_object(json, NULL);
        attn_json_text(json, "name", list->items[i].name);
        attn_json_array(json, "shape");
        for (int d = 0; d < attn_tensor_rank(tensor); d++)
            attn_json_int(json, NULL, attn_tensor_length(tensor, d));
        attn_json_end(json);
        attn_json_text(json, "dtype", attn_dtype_name(attn_tensor_dtype(tensor)));
        attn_json_bool(json, "trained", attn_tensor_requires_grad(tensor));
        attn_json_end(json);
    }
    attn_json_end(json);
}

static void list_text(const attn_config_value *value, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int64_t i = 0; i < value->n && used < size; i++) {
        const char *comma = i ? ", " : "";
        used += (size_t)(value->type == ATTN_CONFIG_TYPE_REALS
                             ? snprintf(out + used, size - used, "%s%.10g", comma, value->reals[i])
                         : value->type == ATTN_CONFIG_TYPE_INTS
                             ? snprintf(out + used, size - used, "%s%lld", comma, (long long)value->integers[i])
                             : snprintf(out + used, size - used, "%s%s", comma, value->texts[i]));
    }
    if (used < size)
        snprintf(out + used, size - used, "]");
}

const char *cli_value_text(const attn_config_value *value, char *out, size_t size)
{
    switch (value->type) {
    case ATTN_CONFIG_TYPE_BOOL:
        snprintf(out, size, "%s", value->boolean ? "true" : "false");
        break;
    case ATTN_CONFIG_TYPE_INT:
        snprintf(out, size, "%lld", (long long)value->integer);
        break;
    case ATTN_CONFIG_TYPE_REAL:
        snprintf(out, size, "%.10g", value->real);
        break;
    case ATTN_CONFIG_TYPE_TEXT:
        snprintf(out, size, "%s", value->text);
        break;
    case ATTN_CONFIG_TYPE_NULL:
        snprintf(out, size, "none");
        break;
    default:
        list_text(value, out, size);
    }
    return out;
}
