/* SPDX-License-Identifier: MIT
 *
 * parity_tool DIR - writes the library's results into the folder of a parity case (tests/parity/README.md): logits,
 * loss and the gradient of every parameter. If the case has inputs.safetensors (tests/parity/layers.py), it writes
 * every output of the architecture and the gradients of its inputs and parameters. If the case also has
 * targets.safetensors (tests/parity/detr.py), it writes the terms of a detector's loss and the gradients.
 *
 * parity_tool --tokens DIR - prints the ids of each line of standard input in the source vocabulary of the translator
 * in that directory.
 *
 * If it fails, it writes the reason to standard error and exits with code 1. */
#include "attn/io.h"
#include "attn/models.h"
#include "attn/tensor.h"
#include "apps/translator/translator.h"
#include "io/directory.h"
#include "models/kind.h"
#include "tensor/parts.h"
#include "train/detection_loss.h"

#include <stdio.h>
#include <string.h>

typedef struct parity_case {
    attn_context *context;
    const char *folder;
    attn_config *config;
    attn_dtype reals;
    attn_model *model;
    attn_tape *tape;
    attn_tensor *src, *lens, *tgt, *labels;
} parity_case;

static const char *path_of(const parity_case *c, const char *name, char path[1024])
{
    snprintf(path, 1024, "%s/%s", c->folder, name);
    return path;
}

static attn_status build(parity_case *c)
{
    char path[1024];
    attn_config *own = NULL;
    attn_status status = attn_config_read(&c->config, c->context, path_of(c, "config.json", path));
    const char *name = status == ATTN_OK ? attn_config_text(c->config, "architecture", "") : "";
    const attn_architecture *architecture = attn_architecture_find(name);
    if (status == ATTN_OK)
        status = attn_config_create(&own, c->context);
    if (status == ATTN_OK && architecture)
        status = attn_architecture_select(architecture, c->config, own);
    /* A case can set "dtype" to f64. The model then runs in float64, which shows a wrong formula that the rounding
     * of float32 would hide. */
    bool twice = status == ATTN_OK && strcmp(attn_config_text(c->config, "dtype", "f32"), "f64") == 0;
    c->reals = twice ? ATTN_F64 : ATTN_F32;
    if (status == ATTN_OK)
        status = attn_model_create(&c->model, c->context, name, own, &(attn_model_options){.dtype = c->reals});
    attn_config_destroy(own);
    if (status == ATTN_OK && attn_model_parameters(c->model)->n > 0) {
        status = attn_weights_load(attn_model_parameters(c->model), path_of(c, "weights.safetensors", path), NULL, NULL,
                                   NULL);
    }
    return status;
}

static attn_status read_batch(parity_case *c)
{
    const struct {
        const char *name;
        attn_tensor **tensor;
    } files[] = {
        {"src.npy", &c->src}, {"src_valid_len.npy", &c->lens}, {"tgt_in.npy", &c->tgt}, {"labels.npy", &c->labels}};
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < sizeof files / sizeof *files; i++) {
        char path[1024];
        status = attn_npy_read(files[i].tensor, c->context, path_of(c, files[i].name, path));
    }
    return status;
}

/* Writes the gradients of the list's tensors to the file `name`, except for tensors without a gradient. */
static attn_status write_gradients(const parity_case *c, const attn_named_list *of, const char *name)
{
    char path[1024];
    attn_named_list list = {.context = c->context};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < of->n; i++) {
        attn_tensor *grad = attn_tensor_grad(of->items[i].tensor);
        if (attn_tensor_requires_grad(of->items[i].tensor) && grad)
            status = attn_named_add(&list, of->items[i].name, grad);
    }
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path_of(c, name, path), NULL);
    attn_named_clear(&list);
    return status;
}

static attn_status run_translator(parity_case *c)
{
    char path[1024];
    attn_cross_entropy_options options = {.use_ignore_index = true,
                                          .ignore_index = attn_config_int(c->config, "tgt_pad", -1)};
    attn_status status = read_batch(c);
    if (status != ATTN_OK)
        return status;
    attn_tensor *logits = attn_seq2seq_forward(c->model, c->tape, c->src, c->lens, c->tgt, NULL);
    if (!logits)
        return attn_context_status(c->context);
    /* The logits are written before the loss is computed, because the loss overwrites them. */
    status = attn_npy_write(logits, c->context, path_of(c, "out_logits.npy", path));
    attn_tensor *loss = attn_cross_entropy(c->tape, logits, c->labels, &options);
    if (!loss || status != ATTN_OK)
        return attn_context_status(c->context);
    status = attn_npy_write(loss, c->context, path_of(c, "out_loss.npy", path));
    if (status == ATTN_OK)
        status = attn_backward(c->tape, loss);
    return status == ATTN_OK ? write_gradients(c, attn_model_parameters(c->model), "out_grads.safetensors") : status;
}

/* ---------------------------------------------------------------------------------- any architecture */

/* Adds the loss of `logits` and `boxes` to *loss, and its terms to the list `terms`. The terms' names begin with
 * `prefix`. */
static attn_status add_loss(parity_case *c, attn_tensor *logits, attn_tensor *boxes, const attn__targets *targets,
                            const int64_t *query, attn_tensor **loss, const char *prefix, attn_named_list *terms)
{
    const attn__detection_loss_options options = {.query = query};
    attn__detection_terms parts;
    attn_tensor *own = attn__detection_loss(c->tape, logits, boxes, targets, &options, &parts);
    if (!own)
        return attn_context_status(c->context);
    const struct {
        const char *name;
        attn_tensor *term;
    } list[] = {{"classes", parts.classes}, {"l1", parts.l1}, {"giou", parts.giou}};
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < sizeof list / sizeof *list; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", prefix, list[i].name);
        status = attn_named_add(terms, name, list[i].term);
    }
    *loss = *loss ? attn_add(c->tape, *loss, own) : own;
    return status;
}

enum { MOST_OBJECTS = 256 };

/* Computes a detector's loss, its terms and its gradients. `given` has the tensors of targets.safetensors: begin
 * [images + 1], classes [n], boxes [n,4], and query, which has the assigned queries of all decoder blocks in order. */
static attn_status run_detector(parity_case *c, const attn_named_list *given, const attn_named_list *outputs)
{
    int64_t begin[MOST_OBJECTS + 1], query[MOST_OBJECTS];
    int32_t classes[MOST_OBJECTS];
    const attn_tensor *b = attn_named_find(given, "begin"), *q = attn_named_find(given, "query"),
                      *k = attn_named_find(given, "classes");
    for (int64_t i = 0; i < attn_tensor_size(b); i++)
        begin[i] = (int64_t)((const double *)attn_tensor_data(b))[i];
    for (int64_t i = 0; i < attn_tensor_size(q); i++)
        query[i] = (int64_t)((const double *)attn_tensor_data(q))[i];
    for (int64_t i = 0; i < attn_tensor_size(k); i++)
        classes[i] = (int32_t)((const double *)attn_tensor_data(k))[i];
    const attn__targets targets = {attn_tensor_size(b) - 1, begin, classes,
                                   attn_tensor_data(attn_named_find(given, "boxes"))};
    char path[1024];
    attn_named_list terms = {.context = c->context};
    attn_tensor *loss = NULL;
    attn_status status = add_loss(c, attn_named_find(outputs, "aux_logits"), attn_named_find(outputs, "aux_boxes"),
                                  &targets, query, &loss, "aux_", &terms);
    if (status == ATTN_OK)
        status = add_loss(c, attn_named_find(outputs, "pred_logits"), attn_named_find(outputs, "pred_boxes"), &targets,
                          query + attn_tensor_size(q) - attn_tensor_size(k), &loss, "", &terms);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&terms, path_of(c, "out_terms.safetensors", path), NULL);
    if (status == ATTN_OK)
        status = attn_backward(c->tape, loss);
    attn_named_clear(&terms);
    return status;
}

/* Reads targets.safetensors and computes the detector's loss, its terms and its gradients. */
static attn_status run_targets(parity_case *c, const attn_named_list *outputs)
{
    char path[1024];
    attn_named_list given = {.context = c->context, .owns = true};
    attn_status status = attn_weights_read(&given, path_of(c, "targets.safetensors", path),
                                           &(attn_weights_options){.reals = ATTN_F64}, NULL, NULL);
    const attn_tensor *query = attn_named_find(&given, "query"), *begin = attn_named_find(&given, "begin");
    if (status == ATTN_OK && (attn_tensor_size(query) > MOST_OBJECTS || attn_tensor_size(begin) > MOST_OBJECTS))
        status = ATTN_ERROR_ARGUMENT;
    if (status == ATTN_OK)
        status = run_detector(c, &given, outputs);
    attn_named_clear(&given);
    return status;
}

/* Reads the gradient of the first output from dout.npy, and computes the gradients of the model. */
static attn_status run_backward(parity_case *c, const attn_named_list *outputs)
{
    char path[1024];
    attn_tensor *dout = NULL;
    attn_status status = attn_npy_read(&dout, c->context, path_of(c, "dout.npy", path));
    if (status == ATTN_OK && attn_tensor_requires_grad(outputs->items[0].tensor))
        status = attn_backward_from(c->tape, outputs->items[0].tensor, dout);
    attn_tensor_destroy(dout);
    return status;
}

/* Computes all outputs of the model, and the gradients of its loss or of its first output. */
static attn_status run_outputs(parity_case *c, const attn_named_list *inputs, attn_named_list *outputs)
{
    char path[1024];
    const attn_architecture *a = attn_model_architecture(c->model);
    bool detects = attn_file_exists(path_of(c, "targets.safetensors", path));
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < a->noutputs; i++) {
        /* Optional outputs of heads are not written, because no parity case expects them. */
        bool of_a_head = a->outputs[i].optional && strstr(a->outputs[i].name, "logits") && !detects;
        of_a_head |= strcmp(attn_config_text(c->config, "layer", ""), "feed-forward") == 0 && i > 0; /* has no maps */
        of_a_head |= strcmp(a->outputs[i].name, "contacts") == 0 && !attn_config_bool(c->config, "tied", true);
        status = of_a_head ? ATTN_OK : attn_named_add(outputs, a->outputs[i].name, NULL);
    }
    for (int i = 0; i < a->ninputs; i++) {
        attn_tensor *x = attn_named_find(inputs, a->inputs[i].name);
        if (x && !a->inputs[i].integer)
            attn_tensor_set_requires_grad(x, true);
    }
    if (status == ATTN_OK)
        status = attn_model_forward(c->model, c->tape, inputs, outputs);
    if (status == ATTN_OK)
        status = attn_safetensors_write(outputs, path_of(c, "out_outputs.safetensors", path), NULL);
    if (status != ATTN_OK)
        return status;
    return detects ? run_targets(c, outputs) : run_backward(c, outputs);
}

static attn_status run_layer(parity_case *c)
{
    char path[1024];
    attn_named_list inputs = {.context = c->context, .owns = true}, outputs = {.context = c->context};
    attn_status status = attn_weights_read(&inputs, path_of(c, "inputs.safetensors", path),
                                           &(attn_weights_options){.reals = c->reals}, NULL, NULL);
    if (status == ATTN_OK)
        status = run_outputs(c, &inputs, &outputs);
    if (status == ATTN_OK)
        status = write_gradients(c, &inputs, "out_input_grads.safetensors");
    if (status == ATTN_OK)
        status = write_gradients(c, attn_model_parameters(c->model), "out_grads.safetensors");
    attn_tape_reset(c->tape, NULL);
    attn_named_clear(&outputs);
    attn_named_clear(&inputs);
    return status;
}

static attn_status run(parity_case *c)
{
    char path[1024];
    attn_status status = attn_tape_create(&c->tape, c->context);
    if (status != ATTN_OK)
        return status;
    /* With "train", normalizations use the statistics of the batch, and otherwise running statistics. */
    attn_tape_reset(c->tape,
                    &(attn_tape_options){.record = true, .train = attn_config_bool(c->config, "train", false)});
    return attn_file_exists(path_of(c, "inputs.safetensors", path)) ? run_layer(c) : run_translator(c);
}

static int print_tokens(const char *folder)
{
    enum { MOST = 65536 };
    static char line[MOST];
    static int32_t ids[MOST];
    attn_context *context;
    attn_translator *translator = NULL;
    if (attn_context_create(&context, NULL) != ATTN_OK)
        return 1;
    attn_status status = attn_translator_load(&translator, context, folder, NULL);
    while (status == ATTN_OK && fgets(line, sizeof line, stdin)) {
        int64_t n = 0;
        line[strcspn(line, "\n")] = '\0';
        status = attn_vocab_encode(attn_translator_vocab(translator, ATTN_SIDE_SOURCE), line,
                                   &(attn_encode_options){.steps = MOST}, ids, MOST, &n, NULL);
        for (int64_t i = 0; i < n; i++)
            printf("%d%s", (int)ids[i], i + 1 < n ? " " : "");
        puts("");
    }
    if (status != ATTN_OK)
        fprintf(stderr, "parity_tool: %s\n", attn_context_error(context));
    attn_translator_destroy(translator);
    attn_context_destroy(context);
    return status != ATTN_OK;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--tokens") == 0)
        return print_tokens(argv[2]);
    parity_case c = {.folder = argc == 2 ? argv[1] : NULL};
    if (!c.folder || attn_context_create(&c.context, NULL) != ATTN_OK) {
        fputs("usage: parity_tool [--tokens] DIR\n", stderr);
        return 1;
    }
    attn_status status = build(&c);
    status = status == ATTN_OK ? run(&c) : status;
    if (status != ATTN_OK)
        fprintf(stderr, "parity_tool: %s\n", attn_context_error(c.context));
    attn_tape_destroy(c.tape);
    attn_tensor_destroy(c.src);
    attn_tensor_destroy(c.lens);
    attn_tensor_destroy(c.tgt);
    attn_tensor_destroy(c.labels);
    attn_model_destroy(c.model);
    attn_config_destroy(c.config);
    attn_context_destroy(c.context);
    return status != ATTN_OK;
}
