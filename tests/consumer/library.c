/* SPDX-License-Identifier: MIT
 *
 * A program that uses the library above the engine: it links a function of models, files, pictures and applications.
 */
#include <attn/plot.h>
#include <attn/trainer.h>
#include <attn/translate.h>
#include <stdio.h>
int main(void)
{
    attn_context *context;
    attn_translator *translator;
    attn_bytes picture = {0};
    if (attn_context_create(&context, NULL) != ATTN_OK ||
        attn_translator_load(&translator, context, "/nowhere", NULL) != ATTN_ERROR_NOT_FOUND ||
        attn_train(context, &(attn_trainer_job){.kind = "no such kind"}) == ATTN_OK || !attn_architecture_at(0))
        return 1;
    const float weight = 1;
    const attn_panel panel = {.rows = 1, .cols = 1, .values = &weight};
    const attn_panel_row row = {.n = 1, .panels = &panel};
    const attn_heatmaps maps = {.n = 1, .rows = &row};
    attn_status status = attn_heatmaps_render(&picture, context, &maps, ATTN_PLOT_SVG);
    if (status != ATTN_OK)
        printf("%s\n", attn_context_error(context));
    attn_bytes_free(context, &picture);
    attn_context_destroy(context);
    return status != ATTN_OK && status != ATTN_ERROR_UNSUPPORTED;
}
