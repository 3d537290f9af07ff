/* SPDX-License-Identifier: MIT */
#include "apps/run/parts.h"

#include "apps/checkpoint/model_directory.h"
#include "apps/run/lora.h"
#include "base/context.h"
#include "base/real.h"
#include "io/file.h"
#include "io/names/pattern.h"
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

/* Returns the length of the whole name, all of which a pattern must match. */
static size_t whole_name(const char *name)
{
    return strlen(name);
}

/* Returns the length of the module's name, which is the parameter's name without ".weight". If the name has another
 * ending, returns 0, so that no pattern matches it. */
static size_t module_name(const char *name)
{
    static const char ending[] = ".weight";
    size_t n = strlen(name), m = sizeof ending - 1;
    return n > m && strcmp(name + n - m, ending) == 0 ? n - m : 0;
}

static attn_status for_matching(const attn__run *run, const char *setting, const char *text, size_t size,
                                size_t (*length)(const char *name), void (*part)(void *user, int64_t i), void *user)
{
    attn_named_list *list = attn_model_parameters(run->model);
    attn__pattern *pattern;
    const char *wrong;
    bool any = false;
    attn_status status = attn__pattern_create(&pattern, run->context, text, size, &wrong);
    if (status == ATTN_ERROR_FORMAT)
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "%s: \"%.*s\": %s", setting,
                          (int)(size < 200 ? size : 200), text, wrong);
    for (int64_t i = 0; status == ATTN_OK && i < list->n; i++) {
        const char *name = list->items[i].name;
        size_t n = length(name);
        if (n > 0 && attn__pattern_matches(pattern, name, n, NULL)) {
            part(user, i);
            any = true;
        }
    }
    attn__pattern_destroy(run->context, pattern);
    if (status == ATTN_OK && !any)
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "%s: no %s of the model matches \"%.*s\"", setting,
                          length == module_name ? "layer" : "parameter", (int)(size < 200 ? size : 200), text);
    return status;
}

attn_status attn__run_matching(const attn__run *run, const char *setting, const char *text, size_t size,
                               void (*part)(void *user, int64_t i), void *user)
{
    return for_matching(run, setting, text, size, whole_name, part, user);
}

attn_status attn__run_matching_modules(const attn__run *run, const char *setting, const char *text, size_t size,
                                       void (*part)(void *user, int64_t i), void *user)
{
    return for_matching(run, setting, text, size, module_name, part, user);
}

/* ---------------------------------------------------------------------------------------------- frozen */

static void freeze(void *user, int64_t i)
{
    const attn__run *run = user;
    attn_tensor_set_requires_grad(attn_model_parameters(run->model)->items[i].tensor, false);
}

attn_status attn__run_freeze(const attn__run *run)
{
    const char *text = attn_config_text(run->settings, "freeze", "");
    if (!*text)
        return ATTN_OK;
    attn_status status = attn__run_matching(run, "freeze", text, strlen(text), freeze, (void *)(uintptr_t)run);
    if (status == ATTN_OK && attn__run_parameters(run) == 0)
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "freeze: \"%.200s\" leaves nothing to train", text);
    return status;
}

/* ----------------------------------------------------------------------------------------------- rates */

typedef struct rate {
    const attn__run *run;
    double factor;
} rate;

static void set_rate(void *user, int64_t i)
{
    const rate *r = user;
    attn_optimizer_set_factor(attn_training_optimizer(r->run->training), i, r->factor);
}

/* Sets the learning rates that the setting "rates" contains, in the form "PATTERN=X PATTERN=X". If two patterns
 * match a parameter, the later one counts. */
attn_status attn__run_set_rates(const attn__run *run)
{
    const char *at = attn_config_text(run->settings, "rates", "");
    attn_status status = ATTN_OK;
    for (at += strspn(at, " "); *at && status == ATTN_OK; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        const char *equals = at + size;
        rate r = {.run = run, .factor = NAN};
        char *end = NULL;
        while (equals > at && *equals != '=')
            equals--;
        if (equals > at)
            r.factor = attn__real_of_text(equals + 1, &end);
        if (!(r.factor >= 0 && r.factor <= 1e6) || end != at + size)
            return attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                              "rates: \"%.*s\" is not PATTERN=X, X from 0 to a million times the rate",
                              (int)(size < 200 ? size : 200), at);
        status = attn__run_matching(run, "rates", at, (size_t)(equals - at), set_rate, &r);
        at += size;
    }
    return status;
}

/* ----------------------------------------------------------------------------------------------- taken */

attn_status attn__run_write_taken(const attn__run *run)
{
    static const char head[] = "parameter\tshape\tfrom\n";
    char path[ATTN__PATH];
    attn__output output;
    if (run->taken.size == 0)
        return ATTN_OK;
    attn_status status = attn__path(run->context, path, run->directory, "fine-tuning.tsv");
    if (status == ATTN_OK)
        status = attn__output_begin(&output, run->context, path);
    if (status != ATTN_OK)
        return status;
    attn_bytes factors = {0};
    status = attn__run_lora_tell(run, &factors);
    attn__output_write(&output, head, sizeof head - 1);
    attn__output_write(&output, run->taken.data, run->taken.size);
    if (factors.size > 0)
        attn__output_write(&output, factors.data, factors.size);
    attn_bytes_free(run->context, &factors);
    attn_status written = attn__output_end(&output);
    return status == ATTN_OK ? written : status;
}
