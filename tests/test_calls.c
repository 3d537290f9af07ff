/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests the rule of attn_context_status for every function of the library that can fail. A successful call after the
 * failure of another leaves ATTN_OK and no text. A call that fails leaves its own status and text. The first error of
 * calls that take a tape is kept until attn_tape_reset. A function that is added to the library must be added to one of
 * the tables below.
 */
#include "support/faults.h"
#include "support/fixture.h"
#include "support/scratch.h"

#include "attn/classify.h"
#include "attn/detect.h"
#include "attn/encode.h"
#include "attn/generate.h"
#include "attn/image.h"
#include "attn/io.h"
#include "attn/msa.h"
#include "attn/product.h"
#include "attn/trainer.h"
#include "attn/translate.h"

#include <stdio.h>
#include <string.h>

typedef struct world {
    faults memory;
    attn_context *c;
    attn_tape *tape;
    attn_tensor *x, *ids, *loss; /* x [2,4] needs a gradient, ids are I32 [2], loss is a result of the tape */
    attn_tensor *other;          /* [3,5] */
    attn_config *config;
    attn_model *model, *seq2seq;
    attn_translator *translator;
    attn_optimizer *optimizer;
    attn_plan *plan;
    attn_problem problem;
    attn_checkpoint *checkpoint;
    attn_named_list list; /* of x */
    char folder[64], weights[96], array[96], picture[96];
} world;

static const char pairs[] = "go .\tva !\nhi .\tsalut !\nrun !\tcours !\nwow !\toh !\n";

static attn_tensor *fresh(world *w, attn_dtype dtype, int rank, int64_t a, int64_t b)
{
    attn_tensor *x;
    assert_int_equal(attn_tensor_create(&x, w->c, dtype, rank, (int64_t[]){a, b}), ATTN_OK);
    return x;
}

/* Makes the tape's result again, because attn_backward consumes it. */
static void rewind_tape(world *w)
{
    attn_tape_reset(w->tape, &(attn_tape_options){.record = true});
    w->loss = attn_mean(w->tape, attn_reshape(w->tape, w->x, 1, (int64_t[]){-1}), 0);
    assert_non_null(w->loss);
}

static void in_folder(world *w, char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/%s", w->folder, name);
}

static void open_models(world *w)
{
    attn_config *config;
    assert_int_equal(attn_config_create(&config, w->c), ATTN_OK);
    attn_config_set_int(config, "dim", 4);
    attn_config_set_int(config, "heads", 2);
    assert_ok(w->c, attn_model_create(&w->model, w->c, "self-attention", config, NULL));
    attn_config_destroy(config);
    assert_int_equal(attn_config_create(&config, w->c), ATTN_OK);
    attn_config_set_int(config, "epochs", 1);
    attn_config_set_int(config, "num_hiddens", 8);
    attn_config_set_real(config, "valid", 0);
    attn_config_set_real(config, "test", 0);
    char directory[96];
    in_folder(w, directory, sizeof directory, "translator");
    attn_trainer_job job = {
        .kind = "translate", .text = pairs, .text_size = sizeof pairs - 1, .directory = directory, .settings = config};
    assert_ok(w->c, attn_train(w->c, &job));
    attn_config_destroy(config);
    assert_ok(w->c, attn_translator_load(&w->translator, w->c, directory, NULL));
    assert_ok(w->c, attn_model_load(&w->seq2seq, w->c, directory, NULL));
}

static void open_world(world *w)
{
    static const unsigned char black[3];
    attn_image image = {1, 1, 3, (unsigned char *)black};
    *w = (world){0};
    scratch_open(w->folder);
    w->c = faults_context(&w->memory);
    in_folder(w, w->weights, sizeof w->weights, "w.safetensors");
    in_folder(w, w->array, sizeof w->array, "x.npy");
    in_folder(w, w->picture, sizeof w->picture, "x.png");
    assert_ok(w->c, attn_tape_create(&w->tape, w->c));
    w->x = fresh(w, ATTN_F32, 2, 2, 4);
    w->other = fresh(w, ATTN_F32, 2, 3, 5);
    w->ids = fresh(w, ATTN_I32, 1, 2, 0);
    attn_tensor_set_requires_grad(w->x, true);
    w->list.context = w->c;
    assert_ok(w->c, attn_named_add(&w->list, "x", w->x));
    assert_ok(w->c, attn_config_create(&w->config, w->c));
    assert_ok(w->c, attn_safetensors_write(&w->list, w->weights, NULL));
    assert_ok(w->c, attn_npy_write(w->x, w->c, w->array));
    assert_ok(w->c, attn_image_write(w->c, &image, w->picture));
    assert_ok(w->c, attn_checkpoint_open(&w->checkpoint, w->c, w->weights, NULL, NULL));
    assert_ok(w->c, attn_optimizer_create(&w->optimizer, w->c, &w->list, NULL));
    assert_ok(w->c, attn_problem_parse(&w->problem, w->c, "q4d4", ATTN_DIRECTION_FORWARD));
    assert_ok(w->c, attn_plan_create(&w->plan, w->c, &w->problem, NULL));
    open_models(w);
    rewind_tape(w);
}

static void close_world(world *w)
{
    char command[128];
    attn_translator_destroy(w->translator);
    attn_model_destroy(w->seq2seq);
    attn_model_destroy(w->model);
    attn_plan_destroy(w->plan);
    attn_optimizer_destroy(w->optimizer);
    attn_checkpoint_close(w->checkpoint);
    attn_config_destroy(w->config);
    attn_named_clear(&w->list);
    attn_tape_destroy(w->tape);
    attn_tensor_destroy(w->x);
    attn_tensor_destroy(w->other);
    attn_tensor_destroy(w->ids);
    attn_context_destroy(w->c);
    assert_int_equal(w->memory.held, 0);
    snprintf(command, sizeof command, "rm -r %s/translator", w->folder);
    assert_int_equal(system(command), 0);
    scratch_close(w->folder);
}

/* ------------------------------------------------------------------------------------------------ the calls
 *
 * Each function calls one function of the library, so that it fails if `bad` is true. Where only a lack of memory makes
 * a function fail, no memory is left. */

typedef attn_status call(world *w, bool bad);

static attn_status of(world *w, const void *result)
{
    return result ? ATTN_OK : attn_context_status(w->c);
}

#define PATH(good) (bad ? "no/such/file" : (good))

static attn_status tensor_create(world *w, bool bad)
{
    attn_tensor *x;
    attn_status status = attn_tensor_create(&x, w->c, ATTN_F32, bad ? 99 : 1, (int64_t[]){1});
    attn_tensor_destroy(x);
    return status;
}

static attn_status tensor_wrap(world *w, bool bad)
{
    attn_tensor *x;
    float number = 0;
    attn_status status = attn_tensor_wrap(&x, w->c, ATTN_F32, 1, (int64_t[]){1}, bad ? NULL : &number);
    attn_tensor_destroy(x);
    return status;
}

static attn_status tensor_share(world *w, bool bad)
{
    attn_tensor *x;
    attn_status status = attn_tensor_share(&x, w->x);
    attn_tensor_destroy(x);
    return status;
}

static attn_status named_add(world *w, bool bad)
{
    attn_named_list list = {.context = w->c};
    attn_status status = attn_named_add(&list, "x", w->x);
    attn_named_clear(&list);
    return status;
}

static attn_status tape_create(world *w, bool bad)
{
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, w->c);
    attn_tape_destroy(tape);
    return status;
}

static attn_status config_create(world *w, bool bad)
{
    attn_config *config;
    attn_status status = attn_config_create(&config, w->c);
    attn_config_destroy(config);
    return status;
}

static attn_status config_set(world *w, bool bad)
{
    return attn_config_set(w->config, bad ? "" : "k", &(attn_config_value){.type = ATTN_CONFIG_TYPE_INT});
}

static attn_status config_set_int(world *w, bool bad)
{
    return attn_config_set_int(w->config, bad ? "" : "k", 1);
}

static attn_status config_set_real(world *w, bool bad)
{
    return attn_config_set_real(w->config, bad ? "" : "k", 1);
}

static attn_status config_set_bool(world *w, bool bad)
{
    return attn_config_set_bool(w->config, bad ? "" : "k", true);
}

static attn_status config_set_text(world *w, bool bad)
{
    return attn_config_set_text(w->config, bad ? "" : "k", "v");
}

static attn_status config_parse(world *w, bool bad)
{
    attn_config *config = NULL;
    attn_status status = attn_config_parse(&config, w->c, bad ? "{x" : "{}", 2, "settings");
    attn_config_destroy(config);
    return status;
}

static attn_status config_read(world *w, bool bad)
{
    char path[128];
    attn_config *config = NULL;
    in_folder(w, path, sizeof path, "translator/config.json");
    attn_status status = attn_config_read(&config, w->c, PATH(path));
    attn_config_destroy(config);
    return status;
}

static attn_status file_read(world *w, bool bad)
{
    attn_bytes bytes = {0};
    attn_status status = attn_file_read(&bytes, w->c, PATH(w->weights), 0);
    attn_bytes_free(w->c, &bytes);
    return status;
}

static attn_status file_write(world *w, bool bad)
{
    char path[96];
    in_folder(w, path, sizeof path, "a file");
    return attn_file_write(w->c, PATH(path), "x", 1);
}

static attn_status name_map_read(world *w, bool bad)
{
    attn_name_map *names;
    attn_status status = attn_name_map_read(&names, w->c, PATH("bert-huggingface"));
    attn_name_map_destroy(names);
    return status;
}

static attn_status weights_read(world *w, bool bad)
{
    attn_named_list list = {.context = w->c, .owns = true};
    attn_status status = attn_weights_read(&list, PATH(w->weights), NULL, NULL, NULL);
    attn_named_clear(&list);
    return status;
}

static attn_status weights_parse(world *w, bool bad)
{
    static const char empty[] = "\2\0\0\0\0\0\0\0{}";
    attn_named_list list = {.context = w->c, .owns = true};
    attn_status status = attn_weights_parse(&list, empty, bad ? 3 : sizeof empty - 1, "bytes", NULL, NULL, NULL);
    attn_named_clear(&list);
    return status;
}

static attn_status weights_load(world *w, bool bad)
{
    return attn_weights_load(&w->list, PATH(w->weights), NULL, NULL, NULL);
}

static attn_status weights_assign(world *w, bool bad)
{
    attn_named_list none = {.context = w->c};
    return attn_weights_assign(&w->list, bad ? &none : &w->list, NULL, NULL);
}

static attn_status checkpoint_open(world *w, bool bad)
{
    attn_checkpoint *checkpoint;
    attn_status status = attn_checkpoint_open(&checkpoint, w->c, PATH(w->weights), NULL, NULL);
    attn_checkpoint_close(checkpoint);
    return status;
}

static attn_status checkpoint_tensor(world *w, bool bad)
{
    attn_tensor *x;
    attn_status status = attn_checkpoint_tensor(&x, w->checkpoint, bad ? 7 : 0);
    attn_tensor_destroy(x);
    return status;
}

static attn_status safetensors_write(world *w, bool bad)
{
    return attn_safetensors_write(&w->list, PATH(w->weights), NULL);
}

static attn_status npy_read(world *w, bool bad)
{
    attn_tensor *x = NULL;
    attn_status status = attn_npy_read(&x, w->c, PATH(w->array));
    attn_tensor_destroy(x);
    return status;
}

static attn_status npy_write(world *w, bool bad)
{
    return attn_npy_write(w->x, w->c, PATH(w->array));
}

static attn_status image_read(world *w, bool bad)
{
    attn_image image = {0};
    attn_status status = attn_image_read(&image, w->c, PATH(w->picture), NULL);
    attn_image_free(w->c, &image);
    return status;
}

static attn_status image_write(world *w, bool bad)
{
    unsigned char grey[1] = {0};
    return attn_image_write(w->c, &(attn_image){1, 1, 1, grey}, PATH(w->picture));
}

static attn_status image_fit(world *w, bool bad)
{
    unsigned char grey[1] = {0};
    attn_image image = {0};
    attn_status status =
        attn_image_fit(&image, w->c, &(attn_image){1, 1, 1, grey}, bad ? 0 : 2, 2, ATTN_IMAGE_FILTER_BILINEAR);
    attn_image_free(w->c, &image);
    return status;
}

static attn_status plot_format_from_path(world *w, bool bad)
{
    attn_plot_format format;
    return attn_plot_format_from_path(&format, w->c, bad ? "x.txt" : "x.html");
}

static attn_status heatmaps_render(world *w, bool bad)
{
    attn_bytes bytes = {0};
    attn_panel panel = {.rows = 1, .cols = 1, .values = (float[]){1}};
    attn_panel_row row = {.n = 1, .panels = &panel};
    attn_status status =
        attn_heatmaps_render(&bytes, w->c, &(attn_heatmaps){.n = bad ? 0 : 1, .rows = &row}, ATTN_PLOT_HTML);
    attn_bytes_free(w->c, &bytes);
    return status;
}

static attn_status contact_map_render(world *w, bool bad)
{
    attn_bytes bytes = {0};
    attn_contact_map map = {.n = bad ? 0 : 1, .probabilities = (float[]){1}};
    attn_status status = attn_contact_map_render(&bytes, w->c, &map, ATTN_PLOT_SVG);
    attn_bytes_free(w->c, &bytes);
    return status;
}

static attn_status explorer_render(world *w, bool bad)
{
    attn_bytes bytes = {0};
    const float weight = 1, *weights = &weight;
    attn_explorer_map map = {.layers = 1, .heads = 1, .rows = 1, .cols = 1, .weights = &weights};
    attn_status status = attn_explorer_render(&bytes, w->c, &(attn_explorer){.n = bad ? 0 : 1, .maps = &map});
    attn_bytes_free(w->c, &bytes);
    return status;
}

static attn_status overlays_render(world *w, bool bad)
{
    attn_bytes bytes = {0};
    unsigned char grey[1] = {0};
    attn_overlay item = {.width = 1, .height = 1, .channels = 1, .pixels = grey, .rows = 1, .cols = 1};
    attn_status status =
        attn_overlays_render(&bytes, w->c, &(attn_overlays){.n = bad ? 0 : 1, .items = &item}, ATTN_PLOT_SVG);
    attn_bytes_free(w->c, &bytes);
    return status;
}

static attn_status curves_render(world *w, bool bad)
{
    attn_bytes bytes = {0};
    attn_curve curve = {.n = 2, .x = (double[]){0, 1}, .y = (double[]){0, 1}};
    attn_status status =
        attn_curves_render(&bytes, w->c, &(attn_curves){.n = bad ? 0 : 1, .curves = &curve}, ATTN_PLOT_SVG);
    attn_bytes_free(w->c, &bytes);
    return status;
}

static attn_status optimizer_create(world *w, bool bad)
{
    attn_optimizer *optimizer = NULL;
    attn_status status =
        attn_optimizer_create(&optimizer, w->c, &w->list, &(attn_optimizer_options){.beta1 = bad ? 7 : 0});
    attn_optimizer_destroy(optimizer);
    return status;
}

static attn_status optimizer_step(world *w, bool bad)
{
    return attn_optimizer_step(w->optimizer, 0, NULL);
}

static attn_status bleu_corpus(world *w, bool bad)
{
    attn_bleu bleu;
    return attn_bleu_corpus(&bleu, w->c, (const char *[]){"a"}, (const char *[]){"a"}, (int64_t[]){bad ? 0 : 1}, 1);
}

static attn_status chrf_corpus(world *w, bool bad)
{
    double chrf;
    return attn_chrf_corpus(&chrf, w->c, (const char *[]){"a"}, (const char *[]){"a"}, (int64_t[]){bad ? 0 : 1}, 1);
}

static attn_status train(world *w, bool bad)
{
    char directory[96];
    in_folder(w, directory, sizeof directory, "translator");
    attn_trainer_job job = {.kind = "translate", .text = pairs, .text_size = sizeof pairs - 1, .directory = directory};
    job.resume = !bad; /* the training is complete, so nothing remains to be done */
    return attn_train(w->c, &job);
}

static attn_status trainer_settings(world *w, bool bad)
{
    attn_config *settings = NULL;
    attn_status status = attn_trainer_settings(&settings, w->c, bad ? "nothing" : "translate", NULL);
    attn_config_destroy(settings);
    return status;
}

static attn_status translator_load(world *w, bool bad)
{
    char directory[96];
    attn_translator *translator = NULL;
    in_folder(w, directory, sizeof directory, "translator");
    attn_status status = attn_translator_load(&translator, w->c, PATH(directory), NULL);
    attn_translator_destroy(translator);
    return status;
}

static attn_status translator_translate(world *w, bool bad)
{
    attn_translation result = {0};
    attn_status status =
        attn_translator_translate(w->translator, (const char *[]){bad ? "\xff" : "go ."}, 1, NULL, &result);
    attn_translations_free(w->c, &result, status == ATTN_OK ? 1 : 0);
    return status;
}

static attn_status translator_render_attention(world *w, bool bad)
{
    attn_bytes page = {0};
    attn_status status =
        attn_translator_render_attention(w->translator, bad ? "" : "go .", 0, ATTN_PLOT_HTML, &page, NULL);
    attn_bytes_free(w->c, &page);
    return status;
}

static attn_status model_create(world *w, bool bad)
{
    attn_model *model;
    attn_status status = attn_model_create(&model, w->c, bad ? "nothing" : "self-attention",
                                           bad ? NULL : attn_model_config(w->model), NULL);
    attn_model_destroy(model);
    return status;
}

static attn_status model_save(world *w, bool bad)
{
    char directory[96];
    in_folder(w, directory, sizeof directory, bad ? "x.png/translator" : "translator");
    return attn_model_save(w->seq2seq, directory);
}

static attn_status model_load(world *w, bool bad)
{
    char directory[96];
    attn_model *model = NULL;
    in_folder(w, directory, sizeof directory, "translator");
    attn_status status = attn_model_load(&model, w->c, PATH(directory), NULL);
    attn_model_destroy(model);
    return status;
}

static attn_status seq2seq_translate(world *w, bool bad)
{
    attn_hypothesis result = {0};
    attn_tensor *src = fresh(w, ATTN_I32, 2, 1, 3);
    attn_beam_search_options options = {.bos = 1, .eos = 2, .max_len = 3, .beam = 2, .nbest = bad ? 9 : 1};
    attn_status status = attn_seq2seq_translate(w->seq2seq, src, NULL, &options, &result);
    attn_hypotheses_free(w->c, &result, status == ATTN_OK ? 1 : 0);
    attn_tensor_destroy(src);
    return status;
}

static attn_status plan_create(world *w, bool bad)
{
    attn_plan *plan;
    attn_status status = attn_plan_create(&plan, w->c, bad ? &(attn_problem){.ndims = -1} : &w->problem, NULL);
    attn_plan_destroy(plan);
    return status;
}

static attn_status plan_execute(world *w, bool bad)
{
    float x[16] = {0}, o[16];
    return attn_plan_execute(w->plan, &(attn_arrays){.q = x, .k = x, .v = bad ? NULL : x, .o = o}, NULL);
}

static attn_status wisdom_import(world *w, bool bad)
{
    char text[256];
    assert_true(attn_wisdom_export(w->c, text, sizeof text) < sizeof text);
    return attn_wisdom_import(w->c, bad ? "no wisdom\n" : text);
}

static attn_status problem_parse(world *w, bool bad)
{
    attn_problem problem;
    return attn_problem_parse(&problem, w->c, bad ? "nothing" : "q4d4", ATTN_DIRECTION_FORWARD);
}

static attn_status partials_merge(world *w, bool bad)
{
    float x = 0, o, lse;
    attn_partials shape = {.batch = 1, .heads = 1, .queries = 1, .dim = 1};
    return attn_partials_merge(w->c, &shape, &x, &x, bad ? NULL : &x, &x, &o, &lse);
}

static attn_status partials_backward(world *w, bool bad)
{
    float x = 0, g[4];
    attn_partials shape = {.batch = 1, .heads = 1, .queries = 1, .dim = 1};
    attn_partials_arrays arrays = {.o1 = &x, .lse1 = &x, .o2 = &x, .lse2 = &x, .dout = bad ? NULL : &x};
    arrays.do1 = g, arrays.dlse1 = g + 1, arrays.do2 = g + 2, arrays.dlse2 = g + 3;
    return attn_partials_backward(w->c, &shape, &arrays);
}

static attn_status machine_peak(world *w, bool bad)
{
    double peak = attn_machine_peak(w->c, bad ? ATTN_I32 : ATTN_F32, 1);
    return peak > 0 ? ATTN_OK : attn_context_status(w->c);
}

/* Calls that only fail here, because they need a directory with a model of that kind. */

static attn_status translator_lexicon(world *w, bool bad)
{
    attn_lexicon *lexicon = NULL;
    attn_status status = attn_translator_lexicon(&lexicon, w->translator, "no/such/file");
    attn_lexicon_destroy(lexicon);
    return status;
}

static attn_status classifier_load(world *w, bool bad)
{
    attn_classifier *classifier = NULL;
    attn_status status = attn_classifier_load(&classifier, w->c, "no/such/file", NULL);
    attn_classifier_destroy(classifier);
    return status;
}

static attn_status generator_load(world *w, bool bad)
{
    attn_generator *generator = NULL;
    attn_status status = attn_generator_load(&generator, w->c, "no/such/file", NULL);
    attn_generator_destroy(generator);
    return status;
}

static attn_status msa_load(world *w, bool bad)
{
    attn_msa *msa = NULL;
    attn_status status = attn_msa_load(&msa, w->c, "no/such/file", NULL);
    attn_msa_destroy(msa);
    return status;
}

static attn_status detector_load(world *w, bool bad)
{
    attn_detector *detector = NULL;
    attn_status status = attn_detector_load(&detector, w->c, "no/such/file", NULL);
    attn_detector_destroy(detector);
    return status;
}

static attn_status trainer_of(world *w, bool bad)
{
    const attn_trainer *trainer = NULL;
    attn_status status = attn_trainer_of(&trainer, w->c, bad ? "no/such/file" : w->folder, NULL);
    assert_null(trainer); /* the folder has files, but no config.json */
    return status;
}

static attn_status msa_family_parse(world *w, bool bad)
{
    const char *text = bad ? ">a\nMK\n>b\nM\n" : ">a\nMKV\n>b\nM-V\n";
    attn_msa_family family;
    attn_status status = attn_msa_family_parse(&family, w->c, text, strlen(text), "two.fasta", NULL);
    if (status == ATTN_OK)
        assert_true(family.rows == 2 && family.cols == 4 && family.sequences == 2 && family.tokens[6] == 30 &&
                    strcmp(family.query, "MKV") == 0 && family.numbers[2] == 3);
    attn_msa_family_free(w->c, &family);
    return status;
}

static attn_status msa_family_read(world *w, bool bad)
{
    char path[128];
    attn_msa_family family;
    in_folder(w, path, sizeof path, "family.a3m");
    assert_int_equal(attn_file_write(w->c, path, ">a\nMKV\n>b\nMiKV\n", 15), ATTN_OK);
    attn_status status = attn_msa_family_read(&family, w->c, path, &(attn_msa_family_options){.depth = bad ? -1 : 1});
    assert_true(status != ATTN_OK || (family.rows == 1 && family.sequences == 2));
    attn_msa_family_free(w->c, &family);
    return status;
}

static attn_status multiply(world *w, bool bad)
{
    float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1}, c[4];
    attn_product product = {
        .m = bad ? -1 : 2, .n = 2, .k = 3, .a = {a, ATTN_F32, 3, 1, 0}, .b = {b, ATTN_F32, 2, 1, 0}};
    product.c = (attn_matrix){c, ATTN_F32, 2, 1, 0};
    attn_status status = attn_multiply(w->c, &product);
    assert_true(status != ATTN_OK || (c[0] == 4 && c[1] == 5 && c[2] == 10 && c[3] == 11));
    return status;
}

static attn_status normalize_rows(world *w, bool bad)
{
    float x[4] = {1, 3, 4, 8}, y[4] = {0};
    const attn_row_norm norm = {.rows = bad ? -1 : 2, .n = 2, .x = {x, ATTN_F32, 2, 1, 0}, .y = {y, ATTN_F32, 2, 1, 0}};
    attn_status status = attn_normalize_rows(w->c, &norm);
    assert_true(status != ATTN_OK || (y[0] == -1 && y[1] == 1 && y[2] == -1 && y[3] == 1));
    return status;
}

static attn_status product_packed_size(world *w, bool bad)
{
    size_t bytes = 0;
    attn_status status = attn_product_packed_size(&bytes, w->c, ATTN_PRECISION_F32, ATTN_F32, bad ? 0 : 3, 2);
    assert_true(status != ATTN_OK || bytes >= 24);
    return status;
}

/* Packs the identity [2,2], which is found again in its columns. */
static attn_status product_pack(world *w, bool bad)
{
    float b[4] = {1, 0, 0, 1};
    size_t bytes;
    attn_matrix matrix = {b, bad ? ATTN_I32 : ATTN_F32, 2, 1, 0};
    assert_int_equal(attn_product_packed_size(&bytes, w->c, ATTN_PRECISION_F32, ATTN_F32, 2, 2), ATTN_OK);
    void *packed = aligned_alloc(64, (bytes + 63) / 64 * 64);
    attn_status status = attn_product_pack(w->c, ATTN_PRECISION_F32, &matrix, 2, 2, packed);
    free(packed);
    return status;
}

static attn_status product_unpack(world *w, bool bad)
{
    float b[4] = {1, 2, 3, 4}, to[2] = {0};
    size_t bytes;
    int64_t column = bad ? 2 : 1;
    assert_int_equal(attn_product_packed_size(&bytes, w->c, ATTN_PRECISION_F32, ATTN_F32, 2, 2), ATTN_OK);
    void *packed = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_int_equal(attn_product_pack(w->c, ATTN_PRECISION_F32, &(attn_matrix){b, ATTN_F32, 2, 1, 0}, 2, 2, packed),
                     ATTN_OK);
    attn_status status = attn_product_unpack(w->c, packed, &column, 1, &(attn_matrix){to, ATTN_F32, 1, 1, 0});
    assert_true(status != ATTN_OK || (to[0] == 2 && to[1] == 4));
    free(packed);
    return status;
}

static attn_status coco_evaluate(world *w, bool bad)
{
    static const char text[] =
        "{\"images\":[{\"id\":1,\"width\":9,\"height\":9}],\"categories\":[{\"id\":2,\"name\":\"cup\"}],"
        "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":2,\"bbox\":[1,1,4,4]}]}";
    const attn_coco_detection found[] = {
        {.image = 1, .category = 2, .left = 1, .top = 1, .width = 4, .height = 4, .score = 0.5},
        {.image = bad ? 7 : 1, .category = 3, .width = 1, .height = 1, .score = 0.9}};
    char path[128];
    attn_coco_result result;
    in_folder(w, path, sizeof path, "annotations.json");
    assert_int_equal(attn_file_write(w->c, path, text, sizeof text - 1), ATTN_OK);
    attn_status status = attn_coco_evaluate(&result, w->c, path, NULL, found, 2);
    if (status == ATTN_OK)
        assert_true(result.measures[0] > 0.999 && result.n == 1 && strcmp(result.categories[0].name, "cup") == 0 &&
                    result.categories[0].objects == 1 && result.left_out == 1 && result.detections == 1);
    attn_coco_result_free(w->c, &result);
    return status;
}

static attn_status encoder_load(world *w, bool bad)
{
    attn_encoder *encoder = NULL;
    attn_status status = attn_encoder_load(&encoder, w->c, "no/such/file", NULL);
    attn_encoder_destroy(encoder);
    return status;
}

static attn_status encoder_wrap(world *w, bool bad)
{
    attn_encoder *encoder = NULL;
    attn_status status = attn_encoder_wrap(&encoder, w->model, "no/such/file");
    attn_encoder_destroy(encoder);
    return status;
}

/* Calls that take a tape. */

static attn_status backward(world *w, bool bad)
{
    return attn_backward(w->tape, bad ? w->other : w->loss);
}

static attn_status backward_many(world *w, bool bad)
{
    const attn_tensor *grad = fresh(w, ATTN_F32, 0, 0, 0);
    attn_status status = attn_backward_many(w->tape, &w->loss, &grad, bad ? 0 : 1);
    attn_tensor_destroy((attn_tensor *)grad);
    return status;
}

static attn_status model_forward(world *w, bool bad)
{
    attn_named_list in = {.context = w->c}, out = in;
    attn_tensor *x = attn_tape_tensor(w->tape, ATTN_F32, 3, (int64_t[]){1, 2, 4}, NULL);
    attn_status status = attn_named_add(&in, bad ? "nothing" : "x", x);
    if (status == ATTN_OK)
        status = attn_model_forward(w->model, w->tape, &in, &out);
    attn_named_clear(&in);
    attn_named_clear(&out);
    return status;
}

static attn_status seq2seq_forward(world *w, bool bad)
{
    attn_tensor *ids = attn_tape_tensor(w->tape, ATTN_I32, 2, (int64_t[]){1, 2}, NULL);
    return of(w, attn_seq2seq_forward(w->seq2seq, w->tape, bad ? w->x : ids, NULL, ids, NULL));
}

static attn_status attend(world *w, bool bad)
{
    attn_attention a = {
        .q = {.tensor = w->x}, .k = {.tensor = w->x}, .v = {.tensor = w->x}, .rank = 2, .shape = {2, 4}};
    assert_int_equal(
        attn_problem_heads(&a.problem,
                           &(attn_heads){.batch = 1, .heads = 1, .queries = 2, .keys = bad ? 9 : 2, .dim = 4}),
        ATTN_OK);
    return of(w, attn_attend(w->tape, &a));
}

static attn_status convolve(world *w, bool bad)
{
    attn_tensor *x = attn_tape_tensor(w->tape, ATTN_F32, 3, (int64_t[]){1, 2, 4}, NULL);
    return of(w, attn_convolve(w->tape, x, x, NULL, &(attn_conv){.spatial = bad ? 7 : 1}));
}

static attn_status max_pool(world *w, bool bad)
{
    attn_tensor *x = attn_tape_tensor(w->tape, ATTN_F32, 3, (int64_t[]){1, 2, 4}, NULL);
    return of(w, attn_max_pool(w->tape, x, bad ? 7 : 1, (int64_t[]){2, 1, 1, 1, 1, 1, 1}, NULL, NULL));
}

static attn_status avg_pool(world *w, bool bad)
{
    attn_tensor *x = attn_tape_tensor(w->tape, ATTN_F32, 3, (int64_t[]){1, 2, 4}, NULL);
    return of(w, attn_avg_pool(w->tape, x, bad ? 7 : 1, (int64_t[]){2, 1, 1, 1, 1, 1, 1}, NULL));
}

static attn_status batch_norm(world *w, bool bad)
{
    attn_tensor *v = bad ? w->other : attn_tape_tensor(w->tape, ATTN_F32, 1, (int64_t[]){4}, NULL);
    return of(w, attn_batch_norm(w->tape, w->x, v, v, v, v, 0.1, 1e-5));
}

static attn_status layer_norm(world *w, bool bad)
{
    attn_tensor *v = bad ? w->other : attn_tape_tensor(w->tape, ATTN_F32, 1, (int64_t[]){4}, NULL);
    return of(w, attn_layer_norm(w->tape, w->x, v, v, 1e-5));
}

static attn_status channel_norm(world *w, bool bad)
{
    attn_tensor *v = bad ? w->other : attn_tape_tensor(w->tape, ATTN_F32, 1, (int64_t[]){4}, NULL);
    return of(w, attn_channel_norm(w->tape, w->x, 1, v, v, 1e-5, ATTN_NORM_VARIANCE));
}

static attn_status gru(world *w, bool bad)
{
    attn_tensor *x = attn_tape_tensor(w->tape, ATTN_F32, 3, (int64_t[]){1, 1, 1}, NULL);
    attn_tensor *m = attn_tape_tensor(w->tape, ATTN_F32, 2, (int64_t[]){3, 1}, NULL);
    attn_tensor *b = attn_tape_tensor(w->tape, ATTN_F32, 1, (int64_t[]){3}, NULL);
    return of(w, attn_gru(w->tape, bad ? w->other : x, NULL, m, m, b, b));
}

/* An operation whose call is one expression, with `y` in place of an operand that fits. */
#define OPERATION(name, expression)                                                                                    \
    static attn_status name(world *w, bool bad)                                                                        \
    {                                                                                                                  \
        attn_tensor *x = w->x, *y = bad ? w->other : x;                                                                \
        int axis = bad ? 7 : 0;                                                                                        \
        (void)x, (void)y, (void)axis;                                                                                  \
        return of(w, expression);                                                                                      \
    }
OPERATION(tape_tensor, attn_tape_tensor(w->tape, ATTN_F32, bad ? 99 : 1, (int64_t[]){1}, NULL))
OPERATION(reshape, attn_reshape(w->tape, x, 1, (int64_t[]){bad ? 7 : 8}))
OPERATION(permute, attn_permute(w->tape, x, (int[]){axis, 1}))
OPERATION(concat, attn_concat(w->tape, (attn_tensor *[]){x, y}, 2, 0))
OPERATION(slice, attn_slice(w->tape, x, axis, 0, 1))
OPERATION(index_select, attn_index_select(w->tape, x, bad ? x : w->ids))
OPERATION(cast, attn_cast(w->tape, x, bad ? ATTN_BF16 : ATTN_F64))
OPERATION(interpolate, attn_interpolate(w->tape, x, axis, 3, ATTN_INTERPOLATE_LINEAR))
OPERATION(add, attn_add(w->tape, x, y))
OPERATION(sub, attn_sub(w->tape, x, y))
OPERATION(mul, attn_mul(w->tape, x, y))
OPERATION(affine, attn_affine(w->tape, bad ? w->ids : x, 2, 1))
OPERATION(sum, attn_sum(w->tape, x, axis))
OPERATION(mean, attn_mean(w->tape, x, axis))
OPERATION(activate, attn_activate(w->tape, x, (attn_activation)(bad ? 99 : 1)))
OPERATION(softmax, attn_softmax(w->tape, x, bad ? x : NULL, 0))
OPERATION(linear, attn_linear(w->tape, x, y, NULL, ATTN_ACTIVATION_IDENTITY))
OPERATION(matmul, attn_matmul(w->tape, x, y, false, true))
OPERATION(embedding, attn_embedding(w->tape, x, bad ? x : w->ids, 1, NULL, 0))
OPERATION(dropout, attn_dropout(w->tape, x, bad ? 1 : 0.5))
OPERATION(cross_entropy, attn_cross_entropy(w->tape, x, bad ? x : w->ids, NULL))

/* ----------------------------------------------------------------------------------------------- the table */

enum { BY_MEMORY = 1, ON_TAPE = 2, FAILS_ONLY = 4, SUCCEEDS_ONLY = 8 };

#define ROW(name, kind)                                                                                                \
    {                                                                                                                  \
        "attn_" #name, name, kind                                                                                      \
    }
static const struct entry {
    const char *name;
    call *call;
    int kind;
} entries[] = {
    ROW(tensor_create, 0),
    ROW(tensor_wrap, 0),
    ROW(tensor_share, BY_MEMORY),
    ROW(named_add, BY_MEMORY),
    ROW(tape_create, BY_MEMORY),
    ROW(config_create, BY_MEMORY),
    ROW(config_set, 0),
    ROW(config_set_int, 0),
    ROW(config_set_real, 0),
    ROW(config_set_bool, 0),
    ROW(config_set_text, 0),
    ROW(config_parse, 0),
    ROW(config_read, 0),
    ROW(file_read, 0),
    ROW(file_write, 0),
    ROW(name_map_read, 0),
    ROW(weights_read, 0),
    ROW(weights_parse, 0),
    ROW(weights_load, 0),
    ROW(weights_assign, 0),
    ROW(checkpoint_open, 0),
    ROW(checkpoint_tensor, 0),
    ROW(safetensors_write, 0),
    ROW(npy_read, 0),
    ROW(npy_write, 0),
    ROW(image_read, 0),
    ROW(image_write, 0),
    ROW(image_fit, 0),
    ROW(plot_format_from_path, 0),
    ROW(heatmaps_render, 0),
    ROW(contact_map_render, 0),
    ROW(explorer_render, 0),
    ROW(overlays_render, 0),
    ROW(curves_render, 0),
    ROW(optimizer_create, 0),
    ROW(optimizer_step, SUCCEEDS_ONLY),
    ROW(bleu_corpus, 0),
    ROW(chrf_corpus, 0),
    ROW(train, 0),
    ROW(trainer_settings, 0),
    ROW(trainer_of, 0),
    ROW(translator_load, 0),
    ROW(translator_translate, 0),
    ROW(translator_render_attention, 0),
    ROW(translator_lexicon, FAILS_ONLY),
    ROW(classifier_load, FAILS_ONLY),
    ROW(generator_load, FAILS_ONLY),
    ROW(msa_load, FAILS_ONLY),
    ROW(msa_family_parse, 0),
    ROW(msa_family_read, 0),
    ROW(detector_load, FAILS_ONLY),
    ROW(coco_evaluate, 0),
    ROW(multiply, 0),
    ROW(normalize_rows, 0),
    ROW(product_packed_size, 0),
    ROW(product_pack, 0),
    ROW(product_unpack, 0),
    ROW(encoder_load, FAILS_ONLY),
    ROW(encoder_wrap, FAILS_ONLY),
    ROW(model_create, 0),
    ROW(model_save, 0),
    ROW(model_load, 0),
    ROW(seq2seq_translate, 0),
    ROW(plan_create, 0),
    ROW(plan_execute, 0),
    ROW(wisdom_import, 0),
    ROW(problem_parse, 0),
    ROW(partials_merge, 0),
    ROW(partials_backward, 0),
    ROW(machine_peak, 0),
    ROW(backward, ON_TAPE),
    ROW(backward_many, ON_TAPE),
    ROW(model_forward, ON_TAPE),
    ROW(seq2seq_forward, ON_TAPE),
    ROW(attend, ON_TAPE),
    ROW(convolve, ON_TAPE),
    ROW(max_pool, ON_TAPE),
    ROW(avg_pool, ON_TAPE),
    ROW(batch_norm, ON_TAPE),
    ROW(layer_norm, ON_TAPE),
    ROW(channel_norm, ON_TAPE),
    ROW(gru, ON_TAPE),
    ROW(tape_tensor, ON_TAPE),
    ROW(reshape, ON_TAPE),
    ROW(permute, ON_TAPE),
    ROW(concat, ON_TAPE),
    ROW(slice, ON_TAPE),
    ROW(index_select, ON_TAPE),
    ROW(cast, ON_TAPE),
    ROW(interpolate, ON_TAPE),
    ROW(add, ON_TAPE),
    ROW(sub, ON_TAPE),
    ROW(mul, ON_TAPE),
    ROW(affine, ON_TAPE),
    ROW(sum, ON_TAPE),
    ROW(mean, ON_TAPE),
    ROW(activate, ON_TAPE),
    ROW(softmax, ON_TAPE),
    ROW(linear, ON_TAPE),
    ROW(matmul, ON_TAPE),
    ROW(embedding, ON_TAPE),
    ROW(dropout, ON_TAPE),
    ROW(cross_entropy, ON_TAPE),
};
enum { ENTRIES = sizeof entries / sizeof *entries };

/* Functions of abi/attn.symbols without a row. They cannot fail, or have no context (tested in test_attend_usual and
 * test_base), or need a trained model of their kind or packed weights. */
static const char others[] =
    " set_openmp architecture_at architecture_find bytes_free checkpoint_at checkpoint_close classifier_class_name "
    "coco_measure_name coco_result_free detector_class_id detector_class_name detector_destroy detector_queries "
    "generator_frames msa_family_free "
    "classifier_destroy config_bool config_destroy config_get config_int config_key config_real config_size "
    "config_text context_clear_error context_create context_destroy context_error context_isa context_memory "
    "context_precision context_set_inference context_set_progress context_status context_threads dtype_name "
    "dtype_size encoder_about encoder_destroy encoder_model encoder_rows encoder_text_free generator_destroy hypotheses_free image_free image_planes isa_name lexicon_destroy "
    "model_architecture model_config model_context model_destroy model_parameters msa_destroy name_map_destroy "
    "named_clear named_find optimizer_destroy optimizer_set_steps optimizer_state optimizer_steps plan_describe "
    "plan_destroy plan_flops plan_solver plan_span plan_workspace precision_find precision_name schedule_rate "
    "solver_name status_text tape_destroy tape_reset tensor_data tensor_destroy tensor_drop_grad tensor_dtype "
    "tensor_grad tensor_length tensor_rank tensor_requires_grad tensor_set_requires_grad tensor_shape tensor_size "
    "trainer_at trainer_find translations_free translator_destroy version wisdom_export "
    /* without a context */
    "problem_axis problem_heads problem_tied_rows problem_window2d "
    /* need a model */
    "classifier_classify classifier_render_attention detector_detect detector_render_attention encoder_contacts "
    "encoder_logits encoder_prompt encoder_run encoder_tokens generator_complete generator_draw model_pack_weights "
    "msa_estimate msa_run translator_pack_weights ";

static void every_function_has_a_row(void **state)
{
    char line[128], word[128];
    FILE *file = fopen("abi/attn.symbols", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "attn_", 5) != 0)
            continue;
        bool found = false;
        for (int i = 0; i < ENTRIES && !found; i++)
            found = strcmp(entries[i].name, line) == 0;
        snprintf(word, sizeof word, " %s ", line + 5);
        if (found == (strstr(others, word) != NULL))
            fail_msg("%s is in %s of the tables", line, found ? "both" : "none");
    }
    fclose(file);
}

/* Makes the call fail or succeed. Returns its status. */
static attn_status run(world *w, const struct entry *e, bool bad)
{
    w->memory.fail_at = bad && (e->kind & BY_MEMORY) ? w->memory.calls + 1 : 0;
    attn_status status = e->call(w, bad);
    w->memory.fail_at = 0;
    return status;
}

static void fail_another_call(world *w)
{
    attn_bytes none;
    assert_int_equal(attn_file_read(&none, w->c, "another/file", 0), ATTN_ERROR_NOT_FOUND);
    assert_non_null(strstr(attn_context_error(w->c), "another/file"));
}

static void check(const world *w, const struct entry *e, const char *when, attn_status status, bool bad)
{
    attn_status told = attn_context_status(w->c);
    const char *text = attn_context_error(w->c);
    bool another = strstr(text, "another/file") != NULL;
    if ((status != ATTN_OK) != bad || told != status || (text[0] != '\0') != bad || another ||
        status == ATTN_ERROR_INTERNAL)
        fail_msg("%s, %s: returns %d; the context has %d \"%s\"", e->name, when, (int)status, (int)told, text);
}

static void each_call_leaves_its_own_status(void **state)
{
    world w;
    open_world(&w);
    for (int i = 0; i < ENTRIES; i++) {
        const struct entry *e = &entries[i];
        rewind_tape(&w);
        if (!(e->kind & FAILS_ONLY)) {
            fail_another_call(&w);
            check(&w, e, "after a failure", run(&w, e, false), false);
        }
        if (e->kind & SUCCEEDS_ONLY)
            continue;
        rewind_tape(&w);
        fail_another_call(&w);
        attn_status status = run(&w, e, true);
        check(&w, e, "failing", status, true);
        assert_int_equal(tensor_create(&w, false), ATTN_OK);
        check(&w, e, "before a success", e->kind & ON_TAPE ? status : ATTN_OK, e->kind & ON_TAPE);
        attn_tape_reset(w.tape, NULL);
        check(&w, e, "before a reset", ATTN_OK, false);
    }
    close_world(&w);
}

/* The idiom of docs/c.md: several operations, other calls between them, and one check at the end. */
static void a_chain_of_operations_reports_its_first_error(void **state)
{
    world w;
    open_world(&w);
    fail_another_call(&w);
    attn_tensor *h = attn_add(w.tape, w.x, w.other);
    attn_named_list in = {.context = w.c}, out = in;
    assert_int_equal(attn_named_add(&in, "x", h), ATTN_OK);
    assert_int_equal(attn_model_forward(w.model, w.tape, &in, &out), ATTN_ERROR_SHAPE);
    h = attn_mul(w.tape, attn_named_find(&out, "out"), w.x);
    attn_named_clear(&in);
    attn_named_clear(&out);
    assert_null(attn_mean(w.tape, h, 0));
    assert_int_not_equal(attn_backward(w.tape, NULL), ATTN_OK);
    assert_refused(w.c, attn_context_status(w.c), ATTN_ERROR_SHAPE, "[2,4] and [3,5]");
    close_world(&w);
}

RUN_TESTS(TEST(every_function_has_a_row), TEST(each_call_leaves_its_own_status),
          TEST(a_chain_of_operations_reports_its_first_error))
