/* SPDX-License-Identifier: MIT
 * labels: no-isa no-asan no-tsan
 *
 * Runs every architecture on inputs of every size. A run gives a result and gradients, or an error with a message.
 * `test_models_sizes all` runs every length from 0 to 130 with and without the vector instructions of this machine,
 * which use different kernels, tiles and remainders. Both runs must accept the same sizes and give the same numbers.
 * `test_models_sizes all NAME...` runs only these architectures. The shapes of inputs come from the registry, in the
 * form "(b,t,dim)". A letter or word of a shape is the value of the config's key of that name or, if there is no such
 * key, a value that the test chooses. Some lengths are invalid on purpose.
 */
#include "support/fixture.h"
#include "support/scratch.h"
#include "support/small_models.h"

#include "apps/checkpoint/convert.h"
#include "models/kind.h"
#include "tensor/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 130 };
static const int64_t some[] = {0, 1, 2, 3, 5, 8, 9, 17, 33, LONGEST};
static bool all_sizes;
static char **only; /* NULL-terminated names of architectures; NULL: every architecture */

typedef struct run {
    attn_context *context;
    attn_model *model;
    attn_tape *tape;
    small_filling fill;
    bool optional;  /* true: optional inputs and outputs are used */
    bool inference; /* true: no gradients are computed */
    /* The first output of the last run, and then the gradients of the run's inputs. */
    double *numbers;
    int64_t n, room;
} run;

static void add_input(run *r, const attn_port *port, attn_named_list *inputs)
{
    int64_t shape[ATTN_MAX_RANK];
    int rank = small_model_shape(&r->fill, port->shape, shape);
    attn_tensor *x;
    assert_int_equal(attn_tensor_create(&x, r->context, port->integer ? ATTN_I32 : ATTN_F32, rank, shape), ATTN_OK);
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        if (port->integer)
            ((int32_t *)attn_tensor_data(x))[i] = (int32_t)(i % 3);
        else
            ((float *)attn_tensor_data(x))[i] = (float)(i * 7 % 11 - 5) / 4;
    attn_tensor_set_requires_grad(x, !port->integer);
    assert_int_equal(attn_named_add(inputs, port->name, x), ATTN_OK);
}

/* Computes the gradients from the first output, unless this output needs no gradient. */
static void go_back(run *r, attn_tensor *y)
{
    attn_tensor *ones;
    if (!attn_tensor_requires_grad(y))
        return;
    assert_int_equal(attn_tensor_create(&ones, r->context, ATTN_F32, attn_tensor_rank(y), attn_tensor_shape(y)),
                     ATTN_OK);
    for (int64_t i = 0; i < attn_tensor_size(ones); i++)
        ((float *)attn_tensor_data(ones))[i] = 1;
    if (attn_backward_from(r->tape, y, ones) != ATTN_OK)
        fail_msg("%s: forward passed, backward: %s", attn_model_architecture(r->model)->name,
                 attn_context_error(r->context));
    attn_tensor_destroy(ones);
}

static void keep(run *r, const attn_tensor *x)
{
    int64_t size = x && attn_tensor_dtype(x) == ATTN_F32 ? attn_tensor_size(x) : 0;
    if (r->n + size > r->room) {
        r->room = 2 * (r->n + size);
        r->numbers = realloc(r->numbers, (size_t)r->room * sizeof *r->numbers);
        assert_non_null(r->numbers);
    }
    for (int64_t i = 0; i < size; i++)
        r->numbers[r->n++] = (double)((const float *)attn_tensor_data(x))[i];
}

static bool try_once(run *r)
{
    const attn_architecture *a = attn_model_architecture(r->model);
    attn_named_list inputs = {.context = r->context, .owns = true}, outputs = {.context = r->context};
    for (int i = 0; i < a->ninputs; i++)
        if (!a->inputs[i].optional || r->optional)
            add_input(r, &a->inputs[i], &inputs);
    for (int i = 0; i < a->noutputs && r->optional; i++)
        assert_int_equal(attn_named_add(&outputs, a->outputs[i].name, NULL), ATTN_OK);
    attn_tape_reset(r->tape, &(attn_tape_options){.record = !r->inference});
    attn_status status = attn_model_forward(r->model, r->tape, &inputs, &outputs);
    bool taken = status == ATTN_OK;
    if (taken) {
        attn_tensor *y = attn_named_find(&outputs, a->outputs[0].name);
        if (!y)
            fail_msg("%s at %lld, %lld: no error and no output", a->name, (long long)r->fill.first,
                     (long long)r->fill.others);
        go_back(r, y);
        r->n = 0;
        keep(r, y);
        for (int64_t i = 0; i < inputs.n; i++)
            keep(r, attn_tensor_grad(inputs.items[i].tensor));
    } else if (strlen(attn_context_error(r->context)) < 8 || status == ATTN_ERROR_INTERNAL) {
        fail_msg("%s at %lld, %lld: status %d says \"%s\"", a->name, (long long)r->fill.first,
                 (long long)r->fill.others, status, attn_context_error(r->context));
    }
    attn_context_clear_error(r->context);
    attn_tape_reset(r->tape, NULL);
    attn_named_clear(&outputs);
    attn_named_clear(&inputs);
    return taken;
}

/* Rounding errors grow with the sizes, but a wrongly computed remainder gives errors as large as the numbers. Without
 * gradients, the runs must have the same bits. */
static void compare(const run *a, const run *b)
{
    const char *name = attn_model_architecture(a->model)->name;
    double largest = 0, worst = 0;
    if (a->n != b->n)
        fail_msg("%s at %lld, %lld: %lld numbers and %lld", name, (long long)a->fill.first, (long long)a->fill.others,
                 (long long)a->n, (long long)b->n);
    for (int64_t i = 0; i < a->n; i++) {
        if (isnan(a->numbers[i]) != isnan(b->numbers[i]))
            fail_msg("%s at %lld, %lld: NaN one way only", name, (long long)a->fill.first, (long long)a->fill.others);
        largest = fmax(largest, fabs(b->numbers[i]));
        worst = fmax(worst, fabs(a->numbers[i] - b->numbers[i]));
    }
    if (worst > (a->inference ? 0 : 1e-4 * fmax(largest, 1)))
        fail_msg("%s at %lld, %lld: %g apart where the largest is %g", name, (long long)a->fill.first,
                 (long long)a->fill.others, worst, largest);
}

/* Returns whether the inputs have the same shapes, with two ways to fill the letters. */
static bool same_inputs(const run *r, small_filling a, small_filling b)
{
    const attn_architecture *of = attn_model_architecture(r->model);
    for (int i = 0; i < of->ninputs; i++) {
        int64_t shape[ATTN_MAX_RANK], other[ATTN_MAX_RANK];
        const int rank = small_model_shape(&a, of->inputs[i].shape, shape);
        if (small_model_shape(&b, of->inputs[i].shape, other) != rank ||
            memcmp(shape, other, (size_t)rank * sizeof *shape) != 0)
            return false;
    }
    return true;
}

/* Runs the model with each way to fill the letters of its shapes. Returns how many of the 16 ways it accepted. A way that
 * gives the inputs of an earlier way is not run again. `twin` may be NULL. */
static int try_size(run *r, run *twin, int64_t n)
{
    small_filling fills[16];
    bool took[16];
    int taken = 0;
    /* 33 is tried along each axis, because some networks halve an image five times */
    int64_t m = n <= 9 || n == 33 ? n : 3;
    for (int variant = 0; variant < 16; variant++) {
        const int64_t batch = variant & 8 ? n % 2 : 2;
        fills[variant] = (small_filling){.config = attn_model_config(r->model),
                                         .batch = batch,
                                         .channels = variant & 1,
                                         .first = variant & 2 ? m : n,
                                         .others = variant & 2 ? n : m};
        int earlier = variant & 4;
        while (earlier < variant && ((earlier ^ variant) & 4 || !same_inputs(r, fills[earlier], fills[variant])))
            earlier++;
        if (earlier == variant) {
            r->fill = fills[variant];
            r->optional = variant & 4;
            took[variant] = try_once(r);
            if (twin) {
                twin->fill = fills[variant];
                twin->optional = r->optional;
                assert_int_equal(try_once(twin), took[variant]);
                if (took[variant])
                    compare(r, twin);
            }
        }
        took[variant] = took[earlier];
        taken += took[variant];
    }
    return taken;
}

static int try_sizes(run *r, run *twin)
{
    int taken = 0;
    if (twin) {
        for (int64_t n = 0; n <= LONGEST; n++)
            taken += try_size(r, twin, n);
        return taken;
    }
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        taken += try_size(r, NULL, some[i]);
    return taken;
}

static void begin(run *r, const attn_architecture *a, const char *isa, attn_precision precision)
{
    const attn_context_options options = {.threads = 1, .isa = isa, .precision = precision};
    *r = (run){0};
    assert_int_equal(attn_context_create(&r->context, &options), ATTN_OK);
    attn_config *config = small_model_config(r->context, a);
    assert_ok(r->context, attn_model_create(&r->model, r->context, a->name, config, NULL));
    attn_config_destroy(config);
    assert_int_equal(attn_tape_create(&r->tape, r->context), ATTN_OK);
}

static void end(run *r)
{
    attn_tape_destroy(r->tape);
    attn_model_destroy(r->model);
    end_context(r->context);
    free(r->numbers);
}

static bool is_wanted(const char *name)
{
    char **wanted = only;
    while (*wanted && strcmp(*wanted, name) != 0)
        wanted++;
    return *wanted || !*only;
}

static void every_architecture_takes_or_refuses_every_size(void **state)
{
    for (int i = 0; i < attn_architecture_count(); i++) {
        const attn_architecture *a = attn_architecture_at(i);
        run r, twin;
        if (!is_wanted(a->name))
            continue;
        begin(&r, a, NULL, ATTN_PRECISION_DEFAULT);
        begin(&twin, a, "scalar", ATTN_PRECISION_DEFAULT);
        int taken = try_sizes(&r, all_sizes ? &twin : NULL);
        if (taken < 8)
            fail_msg("%s took the inputs %d times only", a->name, taken);
        if (all_sizes)
            print_message("%s: %d of %d inputs taken\n", a->name, taken, 16 * (LONGEST + 1));
        end(&twin);
        end(&r);
    }
}

/* ----------------------------------------------------------------------------------------------- stored */

/* Stores the model's weights in a precision and loads them into `twin`. Returns false if the model refuses the
 * precision. */
static bool store(const run *r, run *twin, attn_precision precision, bool *smaller)
{
    char folder[64], small[128];
    attn_checkpoint *weights;
    attn_checkpoint_entry entry;
    scratch_open(folder);
    snprintf(small, sizeof small, "%s/model.safetensors", folder);
    assert_int_equal(attn_model_save(r->model, folder), ATTN_OK);
    if (attn_model_quantize(r->context, folder, folder, precision) != ATTN_OK) {
        if (precision != ATTN_PRECISION_INT8 || !strstr(attn_context_error(r->context), "store the weights as bf16"))
            fail_msg("%s: %s", attn_model_architecture(r->model)->name, attn_context_error(r->context));
        assert_int_equal(scratch_close(folder), 2);
        return false;
    }
    if (attn_weights_load(attn_model_parameters(twin->model), small, NULL, NULL, NULL) != ATTN_OK)
        fail_msg("%s: %s", attn_model_architecture(r->model)->name, attn_context_error(twin->context));
    assert_int_equal(attn_checkpoint_open(&weights, r->context, small, NULL, NULL), ATTN_OK);
    for (int64_t i = 0; attn_checkpoint_at(weights, i, &entry); i++) {
        *smaller |= strcmp(entry.type, "i8") == 0 || strcmp(entry.type, "bf16") == 0;
        if (strcmp(entry.type, "i8") == 0)
            assert_int_equal(entry.bytes, entry.count + 4 * entry.shape[0]);
    }
    attn_checkpoint_close(weights);
    assert_int_equal(scratch_close(folder), 2);
    return true;
}

/* Weights that are stored in fewer bytes must give the same bits as f32 weights that are used in the same precision. */
static void stored_weights_give_the_same_bits(void **state)
{
    static const attn_precision kinds[] = {ATTN_PRECISION_BF16, ATTN_PRECISION_INT8};
    for (int i = 0; i < 2 * attn_architecture_count(); i++) {
        const attn_architecture *a = attn_architecture_at(i / 2);
        run r, twin;
        bool smaller = false;
        int taken = 0;
        if (!is_wanted(a->name))
            continue;
        begin(&r, a, NULL, kinds[i % 2]);
        begin(&twin, a, NULL, kinds[i % 2]);
        r.inference = twin.inference = true;
        if (store(&r, &twin, kinds[i % 2], &smaller)) {
            for (int64_t n = 1; n <= 33 && taken == 0; n += n < 9 ? 1 : 8)
                taken = try_size(&r, &twin, n);
            assert_true(taken > 0);
        }
        if (strcmp(a->name, "vit") == 0 || strcmp(a->name, "transformer") == 0)
            assert_true(smaller);
        end(&twin);
        end(&r);
    }
}

static const char *stored_type(attn_context *context, const char *path, const char *name)
{
    attn_checkpoint *weights;
    attn_checkpoint_entry entry;
    static char type[8];
    type[0] = '\0';
    assert_int_equal(attn_checkpoint_open(&weights, context, path, NULL, NULL), ATTN_OK);
    for (int64_t i = 0; attn_checkpoint_at(weights, i, &entry); i++)
        if (strcmp(entry.name, name) == 0)
            snprintf(type, sizeof type, "%s", entry.type);
    attn_checkpoint_close(weights);
    return type;
}

/* Weights that are stored in bf16 keep their values exactly, and are quantized to int8 like f32 weights. */
static void bf16_weights_are_quantized_like_f32(void **state)
{
    static const char name[] = "blks.0.attention.W_q.weight";
    char folder[64], file[128];
    run r, twin;
    scratch_open(folder);
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    begin(&r, attn_architecture_find("vit"), NULL, ATTN_PRECISION_INT8);
    begin(&twin, attn_architecture_find("vit"), NULL, ATTN_PRECISION_INT8);
    r.inference = twin.inference = true;
    assert_int_equal(attn_model_save(r.model, folder), ATTN_OK);
    assert_int_equal(attn_model_quantize(r.context, folder, folder, ATTN_PRECISION_BF16), ATTN_OK);
    assert_string_equal(stored_type(r.context, file, name), "bf16");
    assert_int_equal(attn_weights_load(attn_model_parameters(r.model), file, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(attn_model_quantize(r.context, folder, folder, ATTN_PRECISION_INT8), ATTN_OK);
    assert_string_equal(stored_type(r.context, file, name), "i8");
    assert_int_equal(attn_weights_load(attn_model_parameters(twin.model), file, NULL, NULL, NULL), ATTN_OK);
    assert_true(try_size(&r, &twin, 8) > 0);
    assert_int_equal(scratch_close(folder), 2);
    end(&twin);
    end(&r);
}

/* ----------------------------------------------------------------------------------------------- packed */

/* Returns the bytes of the parameters that are stored as plain numbers. *all is the bytes of all parameters. */
static size_t plain_bytes(const attn_model *model, size_t *all)
{
    const attn_named_list *list = attn_model_parameters(model);
    size_t plain = 0;
    *all = 0;
    for (int64_t i = 0; i < list->n; i++) {
        size_t bytes = (size_t)attn_tensor_size(list->items[i].tensor) * sizeof(float);
        plain += attn_tensor_data(list->items[i].tensor) ? bytes : 0;
        *all += bytes;
    }
    return plain;
}

static void same_as_packed(run *r, run *packed)
{
    int taken = 0;
    r->inference = packed->inference = true;
    for (int64_t n = 1; n <= 33 && taken < 48; n += n < 9 ? 1 : 8)
        taken += try_size(r, packed, n);
    assert_true(taken > 0);
}

static void needs_no_plain_weights(const attn_model *model, attn_precision precision)
{
    static const char *const mostly[] = {"axial-classifier", "multi-head-attention", "detr-ffn", NULL};
    const char *name = attn_model_architecture(model)->name;
    size_t all, plain = plain_bytes(model, &all);
    for (int i = 0; mostly[i]; i++)
        if (strcmp(mostly[i], name) == 0 && 2 * plain > all)
            fail_msg("%s: %zu of %zu bytes are as they were", name, plain, all);
    if (all_sizes)
        print_message("%s %s: %zu of %zu bytes as they were\n", name, attn_precision_name(precision), plain, all);
}

/* Weights packed once must give the same bits as weights that each product packs. */
static void packed_weights_give_the_same_bits(void **state)
{
    for (int i = 0; i < 3 * attn_architecture_count(); i++) {
        const attn_architecture *a = attn_architecture_at(i / 3);
        const attn_precision kinds[] = {ATTN_PRECISION_F32, ATTN_PRECISION_BF16, ATTN_PRECISION_INT8};
        run r, packed;
        if (!is_wanted(a->name))
            continue;
        begin(&r, a, NULL, kinds[i % 3]);
        begin(&packed, a, NULL, kinds[i % 3]);
        for (int again = 0; again < 2; again++)
            assert_int_equal(attn_model_pack_weights(packed.model), ATTN_OK);
        if (kinds[i % 3] != ATTN_PRECISION_F32 || strcmp(attn_context_isa(r.context), "amx") != 0) {
            same_as_packed(&r, &packed);
            needs_no_plain_weights(packed.model, kinds[i % 3]);
        }
        end(&packed);
        end(&r);
    }
}

/* Loads the model from a directory, into a context for inference only. */
static void load_packed(run *r, const attn_architecture *a, attn_precision precision, const char *folder)
{
    const attn_context_options options = {.threads = 1, .precision = precision};
    *r = (run){0};
    assert_int_equal(attn_context_create(&r->context, &options), ATTN_OK);
    attn_context_set_inference(r->context, true);
    if (attn_model_load(&r->model, r->context, folder, NULL) != ATTN_OK)
        fail_msg("%s: %s", a->name, attn_context_error(r->context));
    assert_int_equal(attn_tape_create(&r->tape, r->context), ATTN_OK);
}

/* Tests weights that are packed while they are read, from f32 or from fewer bytes. */
static void weights_are_packed_as_they_are_read(void **state)
{
    static const attn_precision kinds[] = {ATTN_PRECISION_BF16, ATTN_PRECISION_INT8};
    for (int i = 0; i < 4 * attn_architecture_count(); i++) {
        const attn_architecture *a = attn_architecture_at(i / 4);
        const attn_precision precision = kinds[i % 2];
        char folder[64];
        run r, packed;
        if (!is_wanted(a->name))
            continue;
        scratch_open(folder);
        begin(&r, a, NULL, precision);
        assert_int_equal(attn_model_save(r.model, folder), ATTN_OK);
        bool fewer = i % 4 > 1;
        if (!fewer || attn_model_quantize(r.context, folder, folder, precision) == ATTN_OK) {
            load_packed(&packed, a, precision, folder);
            same_as_packed(&r, &packed);
            needs_no_plain_weights(packed.model, precision);
            end(&packed);
        }
        attn_context_clear_error(r.context);
        assert_int_equal(scratch_close(folder), 2);
        end(&r);
    }
}

/* Saves a model of which nearly all bytes are weights of linear layers. Returns the number of their bytes. */
static size_t save_large(const char *folder)
{
    static const struct {
        const char *key;
        int64_t value;
    } settings[] = {{"img_size", 8},          {"patch_size", 4},  {"num_hiddens", 192},
                    {"mlp_num_hiddens", 768}, {"num_heads", 4},   {"num_blks", 3},
                    {"num_classes", 10},      {"emb_dropout", 0}, {"blk_dropout", 0}};
    attn_context *context;
    attn_config *config;
    attn_model *model;
    size_t all;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    assert_int_equal(attn_config_create(&config, context), ATTN_OK);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        assert_int_equal(attn_config_set_int(config, settings[i].key, settings[i].value), ATTN_OK);
    assert_ok(context, attn_model_create(&model, context, "vit", config, NULL));
    assert_int_equal(attn_model_save(model, folder), ATTN_OK);
    (void)plain_bytes(model, &all);
    attn_model_destroy(model);
    attn_config_destroy(config);
    end_context(context);
    return all;
}

/* While a model is loaded, from f32 or from fewer bytes, memory never holds more than the packed weights and one
 * weight in f32. */
static void loading_holds_one_weight_in_f32_at_a_time(void **state)
{
    static const attn_precision kinds[] = {ATTN_PRECISION_BF16, ATTN_PRECISION_INT8};
    for (int i = 0; i < 4; i++) {
        char folder[64];
        size_t peak, most;
        run packed;
        scratch_open(folder);
        const size_t all = save_large(folder);
        if (i < 2) {
            attn_context *context;
            assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
            assert_int_equal(attn_model_quantize(context, folder, folder, kinds[i]), ATTN_OK);
            end_context(context);
        }
        load_packed(&packed, attn_architecture_find("vit"), kinds[i % 2], folder);
        attn_context_memory(packed.context, NULL, &peak, NULL);
        most = i % 2 ? all / 2 : all * 3 / 4;
        if (peak > most)
            fail_msg("%s: %zu bytes for weights of %zu in f32", attn_precision_name(kinds[i % 2]), peak, all);
        assert_int_equal(scratch_close(folder), 2);
        end(&packed);
    }
}

/* Tests calls that a model with packed weights refuses. */
static void packed_models_only_infer(void **state)
{
    char folder[64];
    run r, packed;
    begin(&r, attn_architecture_find("vit"), NULL, ATTN_PRECISION_BF16);
    scratch_open(folder);
    assert_int_equal(attn_model_save(r.model, folder), ATTN_OK);
    load_packed(&packed, attn_model_architecture(r.model), ATTN_PRECISION_BF16, folder);
    assert_refused(packed.context, attn_model_save(packed.model, folder), ATTN_ERROR_ARGUMENT, "packed the weights");
    assert_int_equal(attn_weights_load(attn_model_parameters(packed.model), folder, NULL, NULL, NULL),
                     ATTN_ERROR_ARGUMENT);
    packed.fill = (small_filling){.config = attn_model_config(r.model), .batch = 2, .first = 33, .others = 33};
    bool taken = false;
    for (int64_t n = 1; n <= 33 && !taken; n++) {
        packed.fill.first = packed.fill.others = n;
        packed.inference = true;
        taken = try_once(&packed);
    }
    assert_true(taken);
    packed.inference = false;
    assert_false(try_once(&packed));
    assert_int_equal(scratch_close(folder), 2);
    end(&packed);
    end(&r);
}

static void same_parameters(const attn_model *a, const attn_model *b)
{
    const attn_named_list *one = attn_model_parameters(a), *two = attn_model_parameters(b);
    assert_int_equal(one->n, two->n);
    for (int64_t i = 0; i < one->n; i++) {
        const attn_tensor *x = one->items[i].tensor, *y = two->items[i].tensor;
        assert_string_equal(one->items[i].name, two->items[i].name);
        assert_int_equal(attn_tensor_size(x), attn_tensor_size(y));
        assert_int_equal(attn_tensor_dtype(x), attn_tensor_dtype(y));
        assert_memory_equal(attn_tensor_data(x), attn_tensor_data(y),
                            (size_t)attn_tensor_size(x) * attn_dtype_size(attn_tensor_dtype(x)));
    }
}

static void load_and_compare(const run *r, const char *path, const attn_model_load_options *options)
{
    attn_model *loaded;
    if (attn_model_load(&loaded, r->context, path, options) != ATTN_OK)
        fail_msg("%s: %s", path, attn_context_error(r->context));
    assert_ptr_equal(attn_model_architecture(loaded), attn_model_architecture(r->model));
    same_parameters(r->model, loaded);
    attn_model_destroy(loaded);
}

static void not_loaded(const run *r, const char *path, const attn_model_load_options *options, attn_status status,
                       const char *part)
{
    attn_model *loaded;
    assert_refused(r->context, attn_model_load(&loaded, r->context, path, options), status, part);
    assert_null(loaded);
}

/* A directory names its model, but a file of weights does not, so that the settings must be given. The error names a
 * missing file. */
static void a_saved_model_is_loaded(void **state)
{
    char folder[64], file[128];
    run r;
    begin(&r, attn_architecture_find("vit"), NULL, ATTN_PRECISION_F32);
    scratch_open(folder);
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    assert_int_equal(attn_model_save(r.model, folder), ATTN_OK);
    const attn_config *config = attn_model_config(r.model);
    load_and_compare(&r, folder, NULL);
    load_and_compare(&r, folder, &(attn_model_load_options){.config = config, .architecture = "vit"});
    load_and_compare(&r, file, &(attn_model_load_options){.config = config, .architecture = "vit"});
    not_loaded(&r, "nowhere", NULL, ATTN_ERROR_NOT_FOUND, "nowhere");
    not_loaded(&r, file, NULL, ATTN_ERROR_ARGUMENT, "does not describe its model");
    not_loaded(&r, file, &(attn_model_load_options){.config = config}, ATTN_ERROR_ARGUMENT,
               "the architecture is unknown");
    not_loaded(&r, folder, &(attn_model_load_options){.architecture = "tit"}, ATTN_ERROR_NOT_FOUND, "tit");
    not_loaded(&r, folder, &(attn_model_load_options){.reserved = {0, 1}}, ATTN_ERROR_ARGUMENT, "reserved");
    not_loaded(&r, folder, &(attn_model_load_options){.dtype = ATTN_BF16}, ATTN_ERROR_ARGUMENT, "bf16");
    attn_model *wide;
    assert_int_equal(attn_model_load(&wide, r.context, folder, &(attn_model_load_options){.dtype = ATTN_F64}), ATTN_OK);
    assert_int_equal(attn_model_dtype(wide), ATTN_F64);
    attn_model_destroy(wide);
    assert_int_equal(scratch_close(folder), 2);
    end(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {TEST(every_architecture_takes_or_refuses_every_size),
                                       TEST(stored_weights_give_the_same_bits),
                                       TEST(bf16_weights_are_quantized_like_f32),
                                       TEST(packed_weights_give_the_same_bits),
                                       TEST(weights_are_packed_as_they_are_read),
                                       TEST(loading_holds_one_weight_in_f32_at_a_time),
                                       TEST(packed_models_only_infer),
                                       TEST(a_saved_model_is_loaded)};
    all_sizes = argc > 1 && strcmp(argv[1], "all") == 0;
    only = argv + (all_sizes ? 2 : argc);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
