/* SPDX-License-Identifier: MIT
 *
 * parameters.h - prints a model's parameters as text and as JSON.
 */
#ifndef CLI_PARAMETERS_H
#define CLI_PARAMETERS_H

#include "command.h"

typedef struct cli_totals {
    /* numbers of tensors, of elements of trained parameters, and of elements of other tensors */
    int64_t tensors, trained, buffers;
    double bytes;
} cli_totals;
cli_totals cli_parameters_total(const attn_named_list *list);
void cli_parameters_print(const attn_named_list *list);
void cli_parameters_json(attn_json *json, const attn_named_list *list);
/* Writes a value to `out` as in a config file. Returns `out`. */
const char *cli_value_text(const attn_config_value *value, char *out, size_t size);

#endif
