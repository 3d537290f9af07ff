/* SPDX-License-Identifier: MIT
 *
 * Reads images from folders. There is one folder for each class.
 */
#include "apps/images/source.h"

#include "base/context.h"
#include "base/hash.h"
#include "base/rng.h"
#include "io/file.h"

#include <string.h>
#include <strings.h>

bool attn__is_image_name(const char *name)
{
    static const char *const endings[] = {".png",  ".jpg", ".jpeg", ".jfif", ".jpe", ".jif",
                                          ".webp", ".bmp", ".dib",  ".ppm",  ".pgm", ".pnm"};
    const char *ending = attn__path_extension(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(ending, endings[i]) == 0)
            return true;
    return false;
}

/* Returns the key by which an image is assigned to a part. The key depends only on the class and the file name. So
 * the image stays in its part if the folder is moved or other files are added. */
static uint64_t key_of(const char *class_name, const char *name)
{
    return attn__mix64(attn__hash_text(attn__hash_text(ATTN__HASH_BEGIN, class_name), name));
}

/* Description of the folders that are read, for error messages. */
#define KNOWN_FOLDERS "expected train/CLASS/ with test/, val/, valid/ or validation/ beside train/, or CLASS/ alone"

typedef struct walk {
    attn__image_source *source;
    const attn__image_wish *wish;
    attn_image_set **set;
    char *first; /* path of the first file, which decided the shape of all images */
} walk;

/* Called after a file or video was added. Keeps its path if it is the first one. Otherwise frees the path. */
static void keep_first(walk *w, char *path, attn_status status)
{
    if (status == ATTN_OK && !w->first)
        w->first = path;
    else
        attn__free(w->source->context, path);
}

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
        status = attn__image_source_add(w->source, w->set, w->wish, &(attn__clip){.n = 1, .frames = &image}, label,
                                        key_of(class_name, name), path, w->first);
    attn_image_free(context, &image);
    keep_first(w, path, status);
    return status;
}

static attn_status pass_over(attn__image_source *s, const char *folder, const char *name)
{
    if (s->passed_over++ > 0)
        return ATTN_OK;
    s->passed_first = attn__join(s->context, folder, name);
    return s->passed_first ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status add_video(walk *w, const char *folder, const char *name)
{
    attn_context *context = w->source->context;
    attn__clip clip = {.context = context};
    char *path = attn__join(context, folder, name);
    if (!path)
        return ATTN_ERROR_MEMORY;
    attn_status status =
        attn__clip_of_folder(&clip, context, path, (int)w->wish->shape.channels, w->wish->shape.width > 0);
    if (status == ATTN_OK)
        status = attn__image_source_add(w->source, w->set, w->wish, &clip, 0, key_of(name, ""), path, w->first);
    if (status == ATTN_OK && clip.passed > 0) {
        status = pass_over(w->source, path, clip.passed_first);
        w->source->passed_over += clip.passed - 1;
    }
    attn__clip_free(&clip);
    keep_first(w, path, status);
    return status;
}

static attn_status add_class(walk *w, const char *folder, const char *class_name, int32_t label)
{
    attn_context *context = w->source->context;
    attn_entries names = {0};
    char *path = attn__join(context, folder, class_name);
    attn_status status = path ? attn__directory_read(&names, context, path, false) : ATTN_ERROR_MEMORY;
    int64_t count = 0;
    for (int64_t i = 0; status == ATTN_OK && i < names.n; i++) {
        if (attn__is_image_name(names.names[i])) {
            count++;
            status = add_file(w, path, names.names[i], class_name, label);
        } else {
            status = pass_over(w->source, path, names.names[i]);
        }
    }
    if (status == ATTN_OK && count == 0)
        status = attn__fail(
            context, ATTN_ERROR_FORMAT,
            "%s: this class folder has no .png, .jpg, .jpeg, .jfif, .webp, .bmp, .ppm, .pgm or .pnm files; " KNOWN_FOLDERS,
            path);
    attn_entries_free(context, &names);
    attn__free(context, path);
    return status;
}

static bool has_images(const attn_entries *names)
{
    bool has = false;
    for (int64_t i = 0; i < names->n; i++)
        has = has || attn__is_image_name(names->names[i]);
    return has;
}

/* Lists the folders in a folder. If `unlabelled` is true, and the folder contains pictures but no folders, the list
 * has the folder itself, as ".". */
static attn_status classes_of(attn_entries *classes, attn_context *context, const char *folder, bool unlabelled)
{
    attn_status status = attn__directory_read(classes, context, folder, false);
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

/* Checks that a folder has the same classes as the training part. If not, the error names a class that one of the
 * two lacks. */
static attn_status compare_classes(attn__image_source *s, const attn_entries *classes, const char *folder)
{
    for (int64_t i = 0; i < s->nclasses || i < classes->n; i++) {
        const char *known = i < s->nclasses ? s->classes[i] : NULL, *here = i < classes->n ? classes->names[i] : NULL;
        int order = !known ? 1 : !here ? -1 : strcmp(known, here);
        if (order < 0)
            return attn__fail(s->context, ATTN_ERROR_FORMAT,
                              "%s: the class folder \"%.80s\" of the training part is missing here", folder, known);
        if (order > 0)
            return attn__fail(s->context, ATTN_ERROR_FORMAT,
                              "%s/%s: the training part has no class folder of this name", folder, here);
    }
    return ATTN_OK;
}

static attn_status read_part(attn__image_source *s, const char *folder, const attn__image_wish *wish,
                             attn_image_set **set)
{
    attn_entries classes;
    walk w = {.source = s, .wish = wish, .set = set};
    attn_status status = classes_of(&classes, s->context, folder, wish->unlabelled && !wish->videos);
    if (status == ATTN_OK && classes.n == 0)
        status = attn__fail(s->context, ATTN_ERROR_FORMAT,
                            wish->videos ? "%s: the folder has no folders of frames"
                                         : "%s: the folder has no class folders; " KNOWN_FOLDERS,
                            folder);
    if (status == ATTN_OK && s->nclasses > 0 && !wish->unlabelled)
        status = compare_classes(s, &classes, folder);
    bool first = s->nclasses == 0;
    for (int64_t i = 0; status == ATTN_OK && first && i < classes.n; i++)
        status = attn__class_add(s, classes.names[i], strlen(classes.names[i]));
    for (int64_t i = 0; status == ATTN_OK && i < classes.n; i++)
        status = wish->videos ? add_video(&w, folder, classes.names[i])
                              : add_class(&w, folder, classes.names[i], (int32_t)i);
    attn_entries_free(s->context, &classes);
    attn__free(s->context, w.first);
    return status;
}

static const char *const train_names[] = {"train", NULL};
/* names of a test folder, in the order in which they are tried */
static const char *const held_names[] = {"test", "val", "valid", "validation", NULL};

/* Reports whether `name`, the name of `folder`, is `expected`. If the two names differ in case, the folder may also be
 * a class. The function then returns true only if the folder contains folders. */
static bool is_folder_of_name(const attn__image_source *s, const char *folder, const char *name, const char *expected,
                              attn_status *status)
{
    attn_entries inside = {0};
    if (strcasecmp(name, expected) != 0 || !attn__is_directory(folder))
        return false;
    if (strcmp(name, expected) != 0)
        *status = classes_of(&inside, s->context, folder, false);
    bool found = *status == ATTN_OK && (inside.n > 0 || strcmp(name, expected) == 0);
    attn_entries_free(s->context, &inside);
    return found;
}

/* Returns the path of the first folder in `path` that has one of the names. The caller frees it. Returns NULL if no
 * such folder exists. If there is an error, sets *status and returns NULL. */
static char *find_folder(const attn__image_source *s, const char *path, const attn_entries *names,
                         const char *const *wanted, attn_status *status)
{
    for (size_t i = 0; wanted[i]; i++)
        for (int64_t k = 0; k < names->n && *status == ATTN_OK; k++) {
            char *folder = attn__join(s->context, path, names->names[k]);
            if (folder && is_folder_of_name(s, folder, names->names[k], wanted[i], status))
                return folder;
            *status = folder ? *status : ATTN_ERROR_MEMORY;
            attn__free(s->context, folder);
        }
    return NULL;
}

/* Counts the folders next to train/ that are not read. */
static attn_status count_unread(attn__image_source *s, const char *path, const attn_entries *names, const char *train,
                                const char *held)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < names->n && status == ATTN_OK; i++) {
        char *folder = attn__join(s->context, path, names->names[i]);
        bool unread =
            folder && attn__is_directory(folder) && strcmp(folder, train) != 0 && (!held || strcmp(folder, held) != 0);
        status = !folder ? ATTN_ERROR_MEMORY : unread ? pass_over(s, path, names->names[i]) : ATTN_OK;
        attn__free(s->context, folder);
    }
    return status;
}

/* Returns ATTN_ERROR_FORMAT if the folder `held` is a test part, but there is no train/. A folder that is named like
 * a test folder is a test part and not a class if it contains folders. */
static attn_status refuse_alone(const attn__image_source *s, const char *path, const char *held)
{
    attn_entries inside = {0};
    attn_status status = classes_of(&inside, s->context, held, false);
    if (status == ATTN_OK && inside.n > 0)
        status = attn__fail(s->context, ATTN_ERROR_FORMAT, "%s: the folder has %s/ with class folders, but no train/",
                            path, attn__path_last(held));
    attn_entries_free(s->context, &inside);
    return status;
}

/* Reads a folder that contains one folder per class. If labels are not used, it may also contain pictures directly. */
static attn_status read_alone(attn__image_source *s, const char *path, const attn_entries *names,
                              const attn__image_wish *wish, bool *found)
{
    attn_status status = ATTN_OK;
    *found = wish->unlabelled && !wish->videos && has_images(names);
    for (int64_t i = 0; i < names->n && !*found && status == ATTN_OK; i++) {
        char *folder = attn__join(s->context, path, names->names[i]);
        status = folder ? ATTN_OK : ATTN_ERROR_MEMORY;
        *found = folder && attn__is_directory(folder);
        attn__free(s->context, folder);
    }
    return status == ATTN_OK && *found ? read_part(s, path, wish, &s->train) : status;
}

/* Reads train/ and the test folder next to it. If there is no train/, reads one folder with all images. */
attn_status attn__read_folders(attn__image_source *s, const char *path, const attn_entries *names,
                               const attn__image_wish *wish, bool *found)
{
    attn_status status = ATTN_OK;
    char *train = find_folder(s, path, names, train_names, &status);
    char *held = find_folder(s, path, names, held_names, &status);
    if (status == ATTN_OK && train) {
        *found = true;
        status = read_part(s, train, wish, &s->train);
        if (status == ATTN_OK && held)
            status = read_part(s, held, wish, &s->test);
        if (status == ATTN_OK)
            status = count_unread(s, path, names, train, held);
    } else {
        if (status == ATTN_OK && held)
            status = refuse_alone(s, path, held);
        if (status == ATTN_OK)
            status = read_alone(s, path, names, wish, found);
    }
    attn__free(s->context, train);
    attn__free(s->context, held);
    return status;
}
