/* SPDX-License-Identifier: MIT
 * Images in folders, one a class. */
#include "apps/image_source.h"

#include "base/context.h"
#include "base/hash.h"
#include "base/rng.h"
#include "io/file.h"

#include <string.h>
#include <strings.h>

static bool is_image(const char *name)
{
    static const char *const endings[] = {".png",  ".jpg", ".jpeg", ".jfif", ".jpe", ".jif",
                                          ".webp", ".bmp", ".dib",  ".ppm",  ".pgm", ".pnm"};
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending && i < sizeof endings / sizeof *endings; i++) {
        if (strcasecmp(ending, endings[i]) == 0)
            return true;
    }
    return false;
}

/* By class and name, so that an image keeps its part wherever the folder stands and whatever else is in it. */
static uint64_t key_of(const char *class_name, const char *name)
{
    return attn__mix64(attn__hash_text(attn__hash_text(ATTN__HASH_BEGIN, class_name), name));
}

/* One reading of a folder of class folders. */
typedef struct walk {
    attn__image_source *source;
    const attn__image_wish *wish;
    attn_image_set **set;
    char *first; /* the file that made the set */
} walk;

static attn_status add_file(walk *w, const char *folder, const char *name, const char *class_name, int32_t label)
{
    attn_context *context = w->source->context;
    attn_image image = {0};
    char *path = attn__join(context, folder, name);
    if (!path)
        return ATTN_ERROR_MEMORY;
    attn_image_options options = {.channels = (int)w->wish->shape.channels};
    attn_status status = attn_image_read(&image, context, path, &options);
    if (status == ATTN_OK)
        status =
            attn__image_source_add(w->source, w->set, w->wish, &image, label, key_of(class_name, name), path, w->first);
    attn_image_free(context, &image);
    if (status == ATTN_OK && !w->first)
        w->first = path;
    else
        attn__free(context, path);
    return status;
}

static attn_status add_class(walk *w, const char *folder, const char *class_name, int32_t label)
{
    attn_context *context = w->source->context;
    attn__names names = {0};
    char *path = attn__join(context, folder, class_name);
    attn_status status = path ? attn__names_read(&names, context, path) : ATTN_ERROR_MEMORY;
    int64_t count = 0;
    for (int64_t i = 0; status == ATTN_OK && i < names.n; i++) {
        if (is_image(names.names[i])) {
            count++;
            status = add_file(w, path, names.names[i], class_name, label);
        } else if (w->source->passed_over++ == 0) {
            w->source->passed_first = attn__join(context, path, names.names[i]);
            status = w->source->passed_first ? ATTN_OK : ATTN_ERROR_MEMORY;
        }
    }
    if (status == ATTN_OK && count == 0)
        status = attn__fail(context, ATTN_ERROR_FORMAT,
                            "%s: no .png, .jpg, .jpeg, .jfif, .webp, .bmp, .ppm, .pgm or .pnm files", path);
    attn__names_free(&names, context);
    attn__free(context, path);
    return status;
}

static bool has_images(const attn__names *names)
{
    bool has = false;
    for (int64_t i = 0; i < names->n; i++)
        has = has || is_image(names->names[i]);
    return has;
}

/* The folders in a folder; where labels mean nothing, the folder itself if it has pictures and no folders. */
static attn_status classes_of(attn__names *classes, attn_context *context, const char *folder, bool unlabelled)
{
    attn_status status = attn__names_read(classes, context, folder);
    bool itself = unlabelled && has_images(classes);
    int64_t kept = 0;
    for (int64_t i = 0; status == ATTN_OK && i < classes->n; i++) {
        char *path = attn__join(context, folder, classes->names[i]), *name = classes->names[i];
        if (!path)
            return ATTN_ERROR_MEMORY;
        if (attn__is_directory(path)) {
            classes->names[i] = classes->names[kept];
            classes->names[kept++] = name;
        }
        attn__free(context, path);
    }
    for (int64_t i = kept; status == ATTN_OK && i < classes->n; i++)
        attn__free(context, classes->names[i]);
    classes->n = status == ATTN_OK ? kept : classes->n;
    if (status == ATTN_OK && kept == 0 && itself) {
        classes->names[0] = attn__strdup(context, ".");
        classes->n = classes->names[0] ? 1 : 0;
        status = classes->n ? ATTN_OK : ATTN_ERROR_MEMORY;
    }
    return status;
}

/* Which class is missing on one of the sides. */
static attn_status compare_classes(attn__image_source *s, const attn__names *classes, const char *folder)
{
    for (int64_t i = 0; i < s->nclasses || i < classes->n; i++) {
        const char *known = i < s->nclasses ? s->classes[i] : NULL, *here = i < classes->n ? classes->names[i] : NULL;
        int order = !known ? 1 : !here ? -1 : strcmp(known, here);
        if (order < 0)
            return attn__fail(s->context, ATTN_ERROR_FORMAT,
                              "%s: the class folder \"%.80s\" is missing, which training has", folder, known);
        if (order > 0)
            return attn__fail(s->context, ATTN_ERROR_FORMAT, "%s/%s: a class that training does not have", folder,
                              here);
    }
    return ATTN_OK;
}

static attn_status read_part(attn__image_source *s, const char *folder, const attn__image_wish *wish,
                             attn_image_set **set)
{
    attn__names classes;
    walk w = {.source = s, .wish = wish, .set = set};
    attn_status status = classes_of(&classes, s->context, folder, wish->unlabelled);
    if (status == ATTN_OK && classes.n == 0)
        status = attn__fail(s->context, ATTN_ERROR_FORMAT, "%s: no class folders", folder);
    if (status == ATTN_OK && s->nclasses > 0 && !wish->unlabelled)
        status = compare_classes(s, &classes, folder);
    bool first = s->nclasses == 0;
    for (int64_t i = 0; status == ATTN_OK && first && i < classes.n; i++)
        status = attn__class_add(s, classes.names[i], strlen(classes.names[i]));
    for (int64_t i = 0; status == ATTN_OK && i < classes.n; i++)
        status = add_class(&w, folder, classes.names[i], (int32_t)i);
    attn__names_free(&classes, s->context);
    attn__free(s->context, w.first);
    return status;
}

/* ATTN_ERROR_FORMAT where a folder test/ or val/ stands alone and holds folders itself: what is kept apart, not a
 * class. */
static attn_status refuse_alone(const attn__image_source *s, const char *path, const char *name)
{
    attn__names inside = {0};
    char *folder = attn__join(s->context, path, name);
    attn_status status = folder ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && attn__is_directory(folder))
        status = classes_of(&inside, s->context, folder, false);
    if (status == ATTN_OK && inside.n > 0)
        status = attn__fail(s->context, ATTN_ERROR_FORMAT,
                            "%s: there is %s/ with class folders in it, but no train/ beside it", path, name);
    attn__names_free(&inside, s->context);
    attn__free(s->context, folder);
    return status;
}

/* Class folders at once; or, where labels mean nothing, pictures. */
static attn_status read_alone(attn__image_source *s, const char *path, const attn__names *names,
                              const attn__image_wish *wish, bool *found)
{
    attn_status status = refuse_alone(s, path, "test");
    if (status == ATTN_OK)
        status = refuse_alone(s, path, "val");
    *found = wish->unlabelled && has_images(names);
    for (int64_t i = 0; i < names->n && !*found && status == ATTN_OK; i++) {
        char *folder = attn__join(s->context, path, names->names[i]);
        status = folder ? ATTN_OK : ATTN_ERROR_MEMORY;
        *found = folder && attn__is_directory(folder);
        attn__free(s->context, folder);
    }
    return status == ATTN_OK && *found ? read_part(s, path, wish, &s->train) : status;
}

/* train/ with test/ or val/ beside it, or all in one. */
attn_status attn__read_folders(attn__image_source *s, const char *path, const attn__names *names,
                               const attn__image_wish *wish, bool *found)
{
    char *train = attn__join(s->context, path, "train"), *test = attn__join(s->context, path, "test");
    char *val = attn__join(s->context, path, "val");
    attn_status status = train && test && val ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && attn__is_directory(train)) {
        const char *held = attn__is_directory(test) ? test : attn__is_directory(val) ? val : NULL;
        *found = true;
        status = read_part(s, train, wish, &s->train);
        if (status == ATTN_OK && held)
            status = read_part(s, held, wish, &s->test);
    } else if (status == ATTN_OK) {
        status = read_alone(s, path, names, wish, found);
    }
    attn__free(s->context, train);
    attn__free(s->context, test);
    attn__free(s->context, val);
    return status;
}
