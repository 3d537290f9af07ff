/* SPDX-License-Identifier: MIT
 *
 * Reads the files of MNIST and of CIFAR-10 in a folder.
 */
#include "apps/images/source.h"

#include "base/context.h"

#include <stdio.h>
#include <string.h>

/* `bytes.name` is the path of the file. */
typedef struct whole_file {
    attn_bytes content;
    char *path;
    attn_named_bytes bytes;
} whole_file;

static attn_status read_file(whole_file *f, attn_context *context, const char *folder, const char *name)
{
    *f = (whole_file){.path = attn__join(context, folder, name)};
    attn_status status = f->path ? attn_file_read(&f->content, context, f->path, (size_t)4 << 30) : ATTN_ERROR_MEMORY;
    f->bytes = (attn_named_bytes){f->content.data, f->content.size, f->path};
    return status;
}

static void free_file(whole_file *f, attn_context *context)
{
    attn_bytes_free(context, &f->content);
    attn__free(context, f->path);
}

/* ---------------------------------------------------------------------------------------------- names */

/* Reads class names from a file with one name per line. */
static attn_status read_class_names(attn__image_source *s, const char *folder, const char *name)
{
    whole_file f;
    attn_status status = read_file(&f, s->context, folder, name);
    const char *at = f.content.data;
    while (status == ATTN_OK && at && *at) {
        size_t length = strcspn(at, "\r\n");
        if (length > 0)
            status = attn__class_add(s, at, length);
        at += length + strspn(at + length, "\r\n");
    }
    free_file(&f, s->context);
    return status;
}

static bool ends_in(const char *name, const char *ending)
{
    size_t a = strlen(name), b = strlen(ending);
    return a >= b && strcmp(name + a - b, ending) == 0;
}

/* Sets the names of the classes. They are read from classes.txt, or from CIFAR's own batches.meta.txt. If neither
 * file exists, the names are numbers. */
static attn_status name_classes(attn__image_source *s, const char *folder, const attn_entries *names,
                                const attn__image_wish *wish)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < names->n && s->nclasses == 0 && status == ATTN_OK; i++) {
        const char *n = names->names[i];
        if (strcmp(n, "classes.txt") == 0 || strcmp(n, "batches.meta.txt") == 0 || ends_in(n, "class_names.txt"))
            status = read_class_names(s, folder, n);
    }
    int64_t most = s->test ? attn_image_set_classes(s->test) : 0, classes = attn_image_set_classes(s->train);
    classes = classes > most ? classes : most;
    classes = classes > wish->nclasses ? classes : wish->nclasses;
    if (status == ATTN_OK && s->nclasses > 0 && s->nclasses < classes)
        return attn__fail(s->context, ATTN_ERROR_FORMAT,
                          "%s: the data have %lld class names, but labels from 0 to %lld", folder,
                          (long long)s->nclasses, (long long)classes - 1);
    for (int64_t i = 0; status == ATTN_OK && s->nclasses < classes; i++) {
        char text[24];
        int length = snprintf(text, sizeof text, "%lld", (long long)i);
        status = attn__class_add(s, text, (size_t)length);
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------- shapes */

static bool fits(const attn_image_set *set, const attn__image_wish *wish)
{
    attn_image_shape s = attn_image_set_shape(set), w = wish->shape;
    return (w.width == 0 || (w.width == s.width && w.height == s.height)) &&
           (w.channels == 0 || w.channels == s.channels);
}

/* Replaces *set by a set in which all images have the requested form. */
static attn_status bring(attn__image_source *s, attn_image_set **set, const attn__image_wish *wish)
{
    attn_image_set *to = NULL;
    attn_image_shape shape = attn_image_set_shape(*set);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < attn_image_set_size(*set); i++) {
        attn_image from = {shape.width, shape.height, (int)shape.channels, NULL}, coloured = {0}, *use = &from;
        from.pixels = (unsigned char *)(uintptr_t)attn_image_set_pixels(*set, i);
        if (wish->shape.channels > 0 && wish->shape.channels != shape.channels) {
            status = attn_image_convert(&coloured, s->context, &from, (int)wish->shape.channels);
            use = &coloured;
        }
        if (status == ATTN_OK)
            status = attn__image_source_add(s, &to, wish, &(attn__clip){.n = 1, .frames = use},
                                            attn_image_set_label(*set, i), (uint64_t)i, "", "");
        attn_image_free(s->context, &coloured);
    }
    attn_image_set_destroy(*set);
    *set = to;
    return status;
}

static attn_status finish(attn__image_source *s, const char *path, const attn_entries *names,
                          const attn__image_wish *wish)
{
    attn_status status = name_classes(s, path, names, wish);
    if (status == ATTN_OK && s->train && !fits(s->train, wish))
        status = bring(s, &s->train, wish);
    if (status == ATTN_OK && s->test && !fits(s->test, wish))
        status = bring(s, &s->test, wish);
    return status;
}

/* ------------------------------------------------------------------------------------------------ IDX */

static const char *starting_with(const attn_entries *names, const char *start)
{
    for (int64_t i = 0; i < names->n; i++)
        if (strncmp(names->names[i], start, strlen(start)) == 0)
            return names->names[i];
    return NULL;
}

static attn_status read_pair(attn__image_source *s, const char *path, const attn_entries *names, const char *part,
                             int64_t classes, attn_image_set **set)
{
    char images[32], labels[32];
    whole_file i, l = {0};
    snprintf(images, sizeof images, "%s-images", part);
    snprintf(labels, sizeof labels, "%s-labels", part);
    const char *image_name = starting_with(names, images), *label_name = starting_with(names, labels);
    if (!image_name && !label_name)
        return ATTN_OK;
    if (!image_name || !label_name)
        return attn__fail(s->context, ATTN_ERROR_NOT_FOUND,
                          "%s: the folder has %s, but no file whose name begins with %s", path,
                          image_name ? image_name : label_name, image_name ? labels : images);
    attn_status status = read_file(&i, s->context, path, image_name);
    if (status == ATTN_OK)
        status = read_file(&l, s->context, path, label_name);
    if (status == ATTN_OK)
        status = attn_image_set_of_idx(set, s->context, &i.bytes, &l.bytes, classes);
    free_file(&i, s->context);
    free_file(&l, s->context);
    return status;
}

attn_status attn__read_idx(attn__image_source *s, const char *path, const attn_entries *names,
                           const attn__image_wish *wish, bool *found)
{
    attn_status status = read_pair(s, path, names, "train", wish->nclasses, &s->train);
    int64_t classes = wish->nclasses ? wish->nclasses : s->train ? attn_image_set_classes(s->train) : 0;
    if (status == ATTN_OK)
        status = read_pair(s, path, names, "t10k", classes, &s->test);
    *found = s->train || s->test;
    if (status != ATTN_OK || !*found)
        return status;
    if (!s->train) { /* a second pair of files is the test part; if there is only one pair, it is split later */
        s->train = s->test;
        s->test = NULL;
    }
    return finish(s, path, names, wish);
}

/* ---------------------------------------------------------------------------------------------- CIFAR */

static attn_status add_records(attn__image_source *s, const char *path, const char *name, int64_t classes,
                               attn_image_set **set)
{
    whole_file f;
    attn_status status = read_file(&f, s->context, path, name);
    if (status == ATTN_OK && !*set)
        status = attn_image_set_create(set, s->context, (attn_image_shape){32, 32, 3, 1});
    if (status == ATTN_OK)
        status = attn_image_set_add_cifar(*set, s->context, &f.bytes, classes);
    free_file(&f, s->context);
    return status;
}

attn_status attn__read_cifar(attn__image_source *s, const char *path, const attn_entries *names,
                             const attn__image_wish *wish, bool *found)
{
    attn_status status = ATTN_OK;
    /* The training part is read first, because the labels of the test part must be among its labels. */
    for (int testing = 0; testing < 2; testing++) {
        int64_t classes = wish->nclasses ? wish->nclasses : testing && s->train ? attn_image_set_classes(s->train) : 0;
        for (int64_t i = 0; status == ATTN_OK && i < names->n; i++) {
            const char *n = names->names[i];
            if (!ends_in(n, ".bin") && !ends_in(n, ".bin.gz"))
                continue;
            bool wanted = testing ? strstr(n, "test") != NULL : strstr(n, "train") || strstr(n, "data_batch");
            if (wanted)
                status = add_records(s, path, n, classes, testing ? &s->test : &s->train);
        }
    }
    *found = s->train != NULL;
    return status == ATTN_OK && *found ? finish(s, path, names, wish) : status;
}
