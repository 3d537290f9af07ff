/* SPDX-License-Identifier: MIT
 *
 * Reads and writes a detector's directory, and reads foreign checkpoints of detectors.
 */
#include "apps/detector/detector.h"

#include "apps/checkpoint/detr_settings.h"
#include "apps/checkpoint/foreign_model.h"
#include "apps/checkpoint/model_config.h"
#include "apps/checkpoint/plain_settings.h"
#include "base/context.h"
#include "data/lines.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/names/names.h"

#include <stdio.h>
#include <string.h>

static const char architecture[] = "detr", unnamed[] = "N/A";

/* ---------------------------------------------------------------------------------- settings of config.json */

attn_status attn__detector_describe(attn_config *config, const attn__classes *classes, const attn__picture_view *view)
{
    const attn_config_value ids = {.type = ATTN_CONFIG_TYPE_INTS, .n = classes->n, .integers = classes->ids};
    const attn_config_value names = {.type = ATTN_CONFIG_TYPE_TEXTS, .n = classes->n, .texts = classes->names};
    attn_status status = attn_config_set(config, "class_ids", &ids);
    if (status == ATTN_OK)
        status = attn_config_set(config, "class_names", &names);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "size", view->size);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "longest", view->longest);
    for (int i = 0; i < 6 && status == ATTN_OK; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s.%d", i < 3 ? "mean" : "std", i % 3);
        status = attn_config_set_real(config, key, (double)(i < 3 ? view->mean[i] : view->std[i - 3]));
    }
    return status;
}

static const attn_setting own_keys[] = {
    {"class_ids", ATTN_CONFIG_TYPE_INTS, NULL, (double)INT64_MIN, (double)INT64_MAX, NULL, "ids of the classes"},
    {"class_names", ATTN_CONFIG_TYPE_TEXTS, NULL, 0, 0, NULL, "names of the classes"},
    {"size", ATTN_CONFIG_TYPE_INT, NULL, 0, 65536, NULL, "pixels of a picture's short side; 0: as it is"},
    {"longest", ATTN_CONFIG_TYPE_INT, NULL, 0, 1e6, NULL, "pixels of its long side, at most; 0: any"},
    {"mean.0", ATTN_CONFIG_TYPE_REAL, NULL, 0, 1, NULL, "of red"},
    {"mean.1", ATTN_CONFIG_TYPE_REAL, NULL, 0, 1, NULL, "of green"},
    {"mean.2", ATTN_CONFIG_TYPE_REAL, NULL, 0, 1, NULL, "of blue"},
    {"std.0", ATTN_CONFIG_TYPE_REAL, NULL, 1e-6, 1, NULL, "of red"},
    {"std.1", ATTN_CONFIG_TYPE_REAL, NULL, 1e-6, 1, NULL, "of green"},
    {"std.2", ATTN_CONFIG_TYPE_REAL, NULL, 1e-6, 1, NULL, "of blue"},
};

attn_status attn__detector_read(const attn_config *config, attn_context *context, const char *path,
                                attn__classes *classes, attn__picture_view *view)
{
    int64_t outputs = attn_config_int(config, "num_classes", ATTN__COCO_OUTPUTS);
    static const attn__keys table = {.keys = own_keys, .n = sizeof own_keys / sizeof *own_keys};
    attn__keys_options of_file = {.name = path, .refusal = ATTN_ERROR_FORMAT, .select = true};
    attn_config *checked;
    attn_status status = attn__keys_resolve(&checked, context, &table, config, &of_file);
    if (status != ATTN_OK)
        return status;
    view->size = attn_config_int(checked, "size", 0);
    view->longest = attn_config_int(checked, "longest", 0);
    for (int i = 0; i < 3; i++) {
        char mean[8], std[8];
        snprintf(mean, sizeof mean, "mean.%d", i);
        snprintf(std, sizeof std, "std.%d", i);
        view->mean[i] = (float)attn_config_real(checked, mean, 0);
        view->std[i] = (float)attn_config_real(checked, std, 1);
    }
    attn_config_destroy(checked);
    const attn_config_value *ids = attn_config_get(config, "class_ids"),
                            *names = attn_config_get(config, "class_names");
    *classes = (attn__classes){ids->n, ids->integers, names->texts};
    if (ids->n != outputs || names->n != outputs)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: found %lld class_ids and %lld class_names; expected %lld of each, one for each class",
                          path, (long long)ids->n, (long long)names->n, (long long)outputs);
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------ what others leave out */

/* State of finding the ids and names of a checkpoint's classes. `text` holds the contents of a file with one class
 * name per line. */
typedef struct naming {
    attn_context *context;
    int64_t n;
    int64_t *ids;
    const char **names;
    char *numbers; /* memory for names of n classes; used if a class has no other name than its number */
    attn_bytes text;
} naming;

enum { DIGITS = 24 };

static attn_status begin_naming(naming *m, attn_context *context, int64_t n)
{
    *m = (naming){.context = context, .n = n};
    m->ids = attn__alloc(context, attn__size_mul((size_t)n, sizeof *m->ids));
    m->names = attn__alloc(context, attn__size_mul((size_t)n, sizeof *m->names));
    m->numbers = attn__alloc(context, attn__size_mul((size_t)n, DIGITS));
    for (int64_t i = 0; m->ids && m->names && m->numbers && i < n; i++) {
        m->ids[i] = i;
        m->names[i] = m->numbers + i * DIGITS;
        snprintf(m->numbers + i * DIGITS, DIGITS, "%lld", (long long)i);
    }
    return m->ids && m->names && m->numbers ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static void end_naming(naming *m)
{
    attn_bytes_free(m->context, &m->text);
    attn__free(m->context, m->ids);
    attn__free(m->context, m->names);
    attn__free(m->context, m->numbers);
}

/* Takes the names of the classes from the lines of a file. The end of each line is overwritten by 0. */
static attn_status name_by_lines(naming *m, const char *path)
{
    enum { MOST = 1 << 24 };
    attn_status status = attn_file_read(&m->text, m->context, path, MOST);
    size_t at = 0, length;
    const char *line;
    int64_t n = 0;
    while (status == ATTN_OK && attn__next_line(m->text.data, m->text.size, &at, &line, &length)) {
        if (n < m->n)
            m->names[n] = line;
        /* this write is always inside the text, because a zero follows the text's last byte */
        m->text.data[line + length - m->text.data] = '\0';
        n++;
    }
    if (status == ATTN_OK && n != m->n)
        status =
            attn__fail(m->context, ATTN_ERROR_FORMAT, "%s: the file has %lld names, but the model has %lld classes",
                       path, (long long)n, (long long)m->n);
    return status;
}

/* Takes the names of the classes from "id2label" in Hugging Face's config.json. If it is missing and the model has
 * as many outputs as COCO has ids, the names are those of COCO. */
static void name_by_config(naming *m, const attn_config *config)
{
    bool labelled = attn_config_get(config, "id2label.0") || attn_config_get(config, "id2label.1");
    for (int64_t i = 0; i < m->n; i++) {
        char key[40];
        snprintf(key, sizeof key, "id2label.%lld", (long long)i);
        const char *coco = m->n == ATTN__COCO_OUTPUTS ? attn__coco_name(i) : m->names[i];
        m->names[i] = labelled ? attn_config_text(config, key, unnamed) : coco ? coco : unnamed;
    }
}

static attn_status complete_classes(attn_config *config, attn_context *context, const char *class_names,
                                    const attn__picture_view *view)
{
    naming m;
    const attn_config_value *ids = attn_config_get(config, "class_ids");
    bool own = ids && ids->type == ATTN_CONFIG_TYPE_INTS;
    attn_status status = begin_naming(&m, context, attn_config_int(config, "num_classes", ATTN__COCO_OUTPUTS));
    if (status == ATTN_OK && class_names)
        status = name_by_lines(&m, class_names);
    else if (status == ATTN_OK)
        name_by_config(&m, config);
    for (int64_t i = 0; status == ATTN_OK && own && i < m.n && i < ids->n; i++)
        m.ids[i] = ids->integers[i];
    if (status == ATTN_OK)
        status = attn__detector_describe(config, &(attn__classes){m.n, m.ids, m.names}, view);
    end_naming(&m);
    return status;
}

/* Reads the view from Hugging Face's preprocessor_config.json, which is in the same directory as config.json. If the
 * file does not exist, the view is DETR's own. */
static attn_status read_view(attn__picture_view *view, attn_context *context, const char *settings)
{
    char path[ATTN__PATH];
    attn_config *p = NULL;
    *view = attn__detr_view;
    attn_status status = attn__settings_beside(&p, context, settings, "preprocessor_config.json", path);
    if (status != ATTN_OK || !p)
        return status;
    static const char *const sides[] = {"size.height",     "size.width",     "size.max_height", "size.max_width",
                                        "pad_size.height", "pad_size.width", "pad_size"};
    for (size_t i = 0; i < sizeof sides / sizeof *sides && status == ATTN_OK; i++) {
        const attn_config_value *value = attn_config_get(p, sides[i]);
        if (value && value->type != ATTN_CONFIG_TYPE_NULL)
            status = attn__fail(
                context, ATTN_ERROR_UNSUPPORTED,
                "%s: \"%s\" is set, which is not supported; pictures must be resized by their short and long side "
                "(\"shortest_edge\", \"longest_edge\") without padding",
                path, sides[i]);
    }
    const char *filter = attn__preparation_filter(p, "bilinear");
    bool resized = attn_config_bool(p, "do_resize", true);
    if (status == ATTN_OK && resized && strcmp(filter, "bilinear") != 0)
        status =
            attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                       "%s: \"resample\" is %s interpolation; only bilinear interpolation is supported", path, filter);
    view->size = attn_config_int(p, "size.shortest_edge", attn_config_int(p, "size", view->size));
    view->longest = attn_config_int(p, "size.longest_edge", attn_config_int(p, "max_size", view->longest));
    if (!resized)
        view->size = view->longest = 0;
    attn__preparation_read(p, view->mean, view->std);
    attn_config_destroy(p);
    return status;
}

/* ----------------------------------------------------------------------------------------------- loading */

/* Sets the names file to the built-in one that matches the tensors. */
static attn_status detect_names(attn__identity *is, const char **names)
{
    attn_status status = attn__identify_tensors(is);
    if (status == ATTN_OK)
        status = attn__detr_check(is->context, is->tensors, is->path);
    if (status != ATTN_OK)
        return status;
    *names = is->tensor_names;
    if (*names && strncmp(*names, "detr-", strlen("detr-")) == 0)
        return ATTN_OK;
    if (*names)
        return attn__fail(is->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the tensors have the names of %s, and not those of DETR; a DETR with other names needs "
                          "--names FILE",
                          is->path, *names);
    return attn__fail(is->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: the tensors do not have the names of DETR; a DETR with other names needs --names FILE",
                      is->path);
}

/* Reads the classes and the view. A config.json of attn contains both. In other configs they may be missing. */
static attn_status complete(attn_config *config, attn_context *context, const char *settings, const char *class_names,
                            attn__classes *classes, attn__picture_view *view)
{
    bool own = attn_config_get(config, "class_names") != NULL;
    attn_status status =
        own ? attn__detector_read(config, context, settings, classes, view) : read_view(view, context, settings);
    if (status != ATTN_OK || (own && !class_names))
        return status;
    status = complete_classes(config, context, class_names, view);
    return status == ATTN_OK ? attn__detector_read(config, context, settings, classes, view) : status;
}

attn_status attn__detector_open(attn__foreign *foreign, attn_context *context, const char *path, const char *names,
                                const char *class_names, attn__classes *classes, attn__picture_view *view)
{
    attn__foreign_wish wish = {.names = names};
    attn_status status = attn__foreign_open(foreign, context, path);
    const attn__identity *is = &foreign->is;
    bool own = !names && is->named[0];
    if (status != ATTN_OK)
        return status;
    if (own)
        status = attn__product_check(context, path, is->config, ATTN__PRODUCT_DETECTOR);
    else if (!own && !names && is->type[0] && strcmp(is->type, "detr") != 0)
        status = attn__foreign_type_refuse(context, path, is->config);
    else if (!own && !names)
        status = detect_names(&foreign->is, &wish.names);
    wish.architecture = own ? NULL : architecture;
    if (status == ATTN_OK)
        status = attn__foreign_describe(foreign, &wish);
    return status == ATTN_OK ? complete(foreign->config, context, foreign->settings, class_names, classes, view)
                             : status;
}

static attn_status load(attn_detector *d, const char *path, const attn_detector_options *o)
{
    attn__foreign from;
    attn_status status = attn__detector_open(&from, d->context, path, o->names, o->class_names, &d->classes, &d->view);
    if (status == ATTN_OK)
        status = attn__foreign_model(&d->model, d->context, &from, NULL);
    d->config = from.config;
    from.config = NULL;
    attn__foreign_end(&from);
    if (status == ATTN_OK && o->size > 0)
        attn__view_resize(&d->view, o->size);
    return status == ATTN_OK ? attn_tape_create(&d->tape, d->context) : status;
}

attn_status attn_detector_load(attn_detector **detector, attn_context *context, const char *path,
                               const attn_detector_options *options)
{
    static const attn_detector_options defaults = {0};
    ATTN__CALL(context);
    *detector = NULL;
    if (ATTN__CHECK_RESERVED(context, options, attn_detector_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    options = options ? options : &defaults;
    if (options->size < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "attn_detector_options: size is %lld; it must not be negative",
                          (long long)options->size);
    attn_detector *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->context = context;
    attn_status status = load(made, path, options);
    if (status == ATTN_OK)
        *detector = made;
    else
        attn_detector_destroy(made);
    return status;
}

void attn_detector_destroy(attn_detector *d)
{
    if (!d)
        return;
    attn_tape_destroy(d->tape);
    attn_model_destroy(d->model);
    attn_config_destroy(d->config);
    attn__free(d->context, d);
}

const char *attn_detector_class_name(const attn_detector *d, int64_t i)
{
    return i >= 0 && i < d->classes.n ? d->classes.names[i] : NULL;
}

int64_t attn_detector_class_id(const attn_detector *d, int64_t i)
{
    return i >= 0 && i < d->classes.n ? d->classes.ids[i] : -1;
}
