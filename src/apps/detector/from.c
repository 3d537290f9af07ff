/* SPDX-License-Identifier: MIT
 *
 * Starts the fine-tuning of a detector from the parameters of a checkpoint. If the classes differ, the head is new.
 */
#include "apps/detector/training.h"

#include "apps/checkpoint/warm_start.h"
#include "base/context.h"
#include "models/kind.h"

#include <string.h>
#include <strings.h>

static attn_status list_categories(attn__classes *own, attn_context *context, const attn__box_set *set)
{
    int64_t n = set->ncategories;
    int64_t *ids = attn__alloc(context, attn__size_mul((size_t)n, sizeof *ids));
    const char **names = attn__alloc(context, attn__size_mul((size_t)n, sizeof *names));
    *own = (attn__classes){n, ids, names};
    for (int64_t i = 0; ids && names && i < n; i++) {
        ids[i] = set->categories[i].id;
        names[i] = set->categories[i].name;
    }
    return ids && names ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* Reports whether `all` contains each class of `some`, with the same id and name. Names are compared ignoring case. */
static bool has_all(const attn__classes *all, const attn__classes *some)
{
    for (int64_t i = 0; i < some->n; i++) {
        int64_t at = 0;
        while (at < all->n && all->ids[at] != some->ids[i])
            at++;
        if (at == all->n || strcasecmp(all->names[at], some->names[i]) != 0)
            return false;
    }
    return true;
}

attn_status attn__detector_start_begin(attn__detector_start *start, attn_context *context, const attn_config *settings,
                                       const attn__box_set *set)
{
    const char *from = attn_config_text(settings, "from", NULL), *names = attn_config_text(settings, "names", NULL);
    *start = (attn__detector_start){.view = attn__detr_view};
    start->view.size = start->view.longest = 0;
    attn_status status = list_categories(&start->own, context, set);
    if (status == ATTN_OK && from)
        status = attn__detector_open(&start->foreign, context, from, names, NULL, &start->classes, &start->view);
    if (status != ATTN_OK)
        return status;
    start->keeps = from && has_all(&start->classes, &start->own);
    start->classes = start->keeps ? start->classes : start->own;
    if (attn_config_get(settings, "size")) {
        start->view.size = attn_config_int(settings, "size", 0);
        start->view.longest = 0;
    }
    start->view.longest = attn_config_int(settings, "longest", start->view.longest);
    return ATTN_OK;
}

void attn__detector_start_end(attn__detector_start *start, attn_context *context)
{
    attn__foreign_end(&start->foreign);
    attn__free(context, (void *)(uintptr_t)start->own.ids);
    attn__free(context, (void *)(uintptr_t)start->own.names);
}

static attn_status build(attn_model **model, attn_context *context, const attn__detector_start *start,
                         const attn_config *settings)
{
    const attn_architecture *architecture = attn__foreign_architecture(&start->foreign);
    attn_config *config = NULL;
    attn_status status = attn_config_create(&config, context);
    if (status == ATTN_OK)
        status = attn_architecture_select(architecture, start->foreign.config, config);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "num_classes", start->classes.n);
    if (status == ATTN_OK)
        status = attn_config_set(config, "dropout", attn_config_get(settings, "dropout"));
    if (status == ATTN_OK) {
        attn_model_options options = {.seed = (uint64_t)attn_config_int(settings, "seed", 1)};
        status = attn_model_create(model, context, architecture->name, config, &options);
    }
    attn_config_destroy(config);
    return status;
}

attn_status attn__detector_start_model(attn_model **model, attn_context *context, const attn__detector_start *start,
                                       const attn_config *settings, attn_bytes *table)
{
    *model = NULL;
    const attn__warm_start warm = {.context = context,
                                   .path = start->foreign.weights,
                                   .names = start->foreign.names,
                                   .outputs = start->classes.n + 1,
                                   .fresh = start->keeps ? NULL : "class_embed."};
    attn_status status = build(model, context, start, settings);
    if (status == ATTN_OK)
        status = attn__warm_start_fill(&warm, attn_model_parameters(*model));
    return status == ATTN_OK ? attn__warm_start_tell(&warm, *model, table) : status;
}
