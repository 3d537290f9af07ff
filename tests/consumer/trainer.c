/* SPDX-License-Identifier: MIT
 *
 * trainer.h: a translator is trained from eight pairs of sentences, and its training is resumed. The argument is the
 * folder of the model. */
#include <attn/trainer.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

typedef struct run {
    int64_t steps, epochs, pairs;
    double first_loss, last_loss;
} run;

static void begin(void *user, const attn_trainer_plan *plan)
{
    ((run *)user)->pairs = attn_config_int(plan->sizes, "train_pairs", -1);
}

static bool progress(void *user, const attn_progress *now)
{
    run *run = user;
    if (now->epoch_ends) {
        run->epochs++;
        run->last_loss = now->loss;
        if (run->epochs == 1)
            run->first_loss = now->loss;
    } else
        run->steps++;
    return true;
}

int main(int argc, char **argv)
{
    char directory[4096];
    snprintf(directory, sizeof directory, "%s/translator", argc > 1 ? argv[1] : ".");
    static const char text[] = "the cat sleeps\tle chat dort\nthe dog sleeps\tle chien dort\n"
                               "the cat eats\tle chat mange\nthe dog eats\tle chien mange\n"
                               "a cat sleeps\tun chat dort\na dog sleeps\tun chien dort\n"
                               "a cat eats\tun chat mange\na dog eats\tun chien mange\n";
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    CHECK(attn_trainer_find("translate") && !attn_trainer_find("sing"));

    attn_config *settings, *all;
    CHECK(attn_config_create(&settings, context) == ATTN_OK);
    CHECK(attn_config_set_int(settings, "num_hiddens", 16) == ATTN_OK);
    CHECK(attn_config_set_int(settings, "num_blks", 1) == ATTN_OK);
    CHECK(attn_config_set_int(settings, "batch", 4) == ATTN_OK);
    CHECK(attn_config_set_int(settings, "epochs", 3) == ATTN_OK);
    CHECK(attn_config_set_real(settings, "valid", 0) == ATTN_OK);
    CHECK(attn_config_set_real(settings, "test", 0) == ATTN_OK);
    CHECK(attn_trainer_settings(&all, context, "translate", settings) == ATTN_OK);
    CHECK(attn_config_int(all, "num_hiddens", 0) == 16 && attn_config_get(all, "rate")); /* with the defaults */

    run first = {0}, second = {0};
    attn_trainer_job job = {.kind = "translate", .text = text, .text_size = strlen(text), .directory = directory};
    job.settings = settings;
    job.begin = begin;
    job.progress = progress;
    job.user = &first;
    CHECK(attn_train(context, &job) == ATTN_OK);
    CHECK(first.pairs == 8 && first.epochs == 3 && first.steps == 3 * 8 / 4);
    CHECK(isfinite(first.first_loss) && first.last_loss < first.first_loss);
    const attn_trainer *kind;
    CHECK(attn_trainer_of(&kind, context, directory, NULL) == ATTN_OK && strcmp(kind->kind, "translate") == 0);

    /* The directory has a model now, so that only a resumed run may write there: 5 epochs are 2 more. */
    CHECK(attn_train(context, &job) == ATTN_ERROR_ARGUMENT);
    job.resume = true;
    job.user = &second;
    CHECK(attn_config_set_int(settings, "epochs", 5) == ATTN_OK);
    CHECK(attn_train(context, &job) == ATTN_OK);
    CHECK(second.epochs == 2 && second.last_loss < first.last_loss);

    CHECK(attn_config_set_int(settings, "layers", 5) == ATTN_OK);
    attn_config *none;
    CHECK(attn_trainer_settings(&none, context, "translate", settings) == ATTN_ERROR_ARGUMENT);
    printf("trainer: loss %.3f to %.3f; %s\n", first.first_loss, second.last_loss, attn_context_error(context));
    attn_config_destroy(all);
    attn_config_destroy(settings);
    attn_context_destroy(context);
    return 0;
}
