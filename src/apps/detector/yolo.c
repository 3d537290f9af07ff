/* SPDX-License-Identifier: MIT
 *
 * Reads folders of images with YOLO's text files of boxes.
 */
#include "apps/detector/boxes_files.h"
#include "apps/images/source.h"
#include "base/integers.h"
#include "base/real.h"
#include "data/lines.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/yaml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASSES = 100000, MOST_BYTES = 64 << 20, MOST_LINE = 1 << 20 };

/* ----------------------------------------------------------------------------------------------- a line */

/* The values of a line: a class, and the four values of a box or the points of a polygon. */
typedef struct values {
    double first[5];
    double low[2], high[2]; /* least and largest x and y of the points of a polygon */
    int64_t n;
} values;

static bool parse_line(const char *line, values *v)
{
    char *end = NULL;
    *v = (values){.low = {INFINITY, INFINITY}, .high = {-INFINITY, -INFINITY}};
    for (const char *number = line + strspn(line, " \t"); *number; number = end + strspn(end, " \t")) {
        double x = attn__real_of_text(number, &end);
        if (end == number || (v->n > 0 && number == line) || !isfinite(x))
            return false;
        if (v->n < 5)
            v->first[v->n] = x;
        if (v->n > 0) {
            int axis = v->n % 2 == 0;
            v->low[axis] = x < v->low[axis] ? x : v->low[axis];
            v->high[axis] = x > v->high[axis] ? x : v->high[axis];
        }
        v->n++;
        line = end;
    }
    return v->n == 5 || (v->n >= 7 && v->n % 2 == 1);
}

static attn_status fail_line(const attn__input *text, int64_t number, const char *what, const char *line)
{
    return attn__fail(text->context, ATTN_ERROR_FORMAT, "%s:%lld: \"%.60s\": %s", text->name, (long long)number, line,
                      what);
}

static attn_status add_line(attn__box_set *set, const attn__input *text, int64_t number, const char *line,
                            const attn__boxed_image *image)
{
    const double edge = 0.01; /* what rounding may add to the values, as in Ultralytics' reader */
    values v;
    if (!parse_line(line, &v))
        return fail_line(text, number,
                         "the line must be \"class cx cy width height\", or a class and the points of a polygon", line);
    if (v.first[0] < 0 || v.first[0] >= MOST_CLASSES || v.first[0] != floor(v.first[0]))
        return fail_line(text, number, "the class must be an integer from 0", line);
    if (set->ncategories > 0 && v.first[0] >= (double)set->ncategories) {
        char what[80];
        snprintf(what, sizeof what, "the class must be less than %lld, the number of classes",
                 (long long)set->ncategories);
        return fail_line(text, number, what, line);
    }
    bool polygon = v.n > 5;
    double width = v.first[3], height = v.first[4], x = v.first[1] - width / 2, y = v.first[2] - height / 2;
    bool inside = v.low[0] >= -edge && v.low[1] >= -edge && v.high[0] <= 1 + edge && v.high[1] <= 1 + edge;
    if (!inside)
        return fail_line(text, number, "the box must lie in the image, from 0 to 1 of its width and height", line);
    if (!polygon && (width < 0 || height < 0))
        return fail_line(text, number, "the width and height of a box must not be negative", line);
    if (polygon) {
        x = v.low[0];
        y = v.low[1];
        width = v.high[0] - x;
        height = v.high[1] - y;
    }
    double across = (double)image->width, down = (double)image->height;
    attn__object object = {.id = set->nobjects + 1, .image = image->id, .category = (int64_t)v.first[0]};
    object.box = (attn__box){x * across, y * down, width * across, height * down};
    object.area = object.box.width * object.box.height;
    return attn__box_set_add_object(set, &object);
}

attn_status attn__yolo_parse(attn__box_set *set, const attn__input *text, int64_t image, int64_t width, int64_t height)
{
    attn__boxed_image about = {.id = image, .width = width, .height = height};
    const char *begin;
    size_t at = 0, length, room = (size_t)attn__min((int64_t)text->size, MOST_LINE) + 1;
    char *line = attn__alloc(text->context, room);
    attn_status status = line ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 1;
         status == ATTN_OK && attn__next_line((const char *)text->data, text->size, &at, &begin, &length); i++) {
        snprintf(line, room, "%.*s", (int)attn__min((int64_t)length, MOST_LINE), begin);
        if (length >= MOST_LINE)
            status = fail_line(text, i, "the line is too long; at most 1048575 bytes are supported", line);
        else if (line[strspn(line, " \t")])
            status = add_line(set, text, i, line, &about);
    }
    attn__free(text->context, line);
    return status;
}

/* ---------------------------------------------------------------------------------------------- folders */

typedef struct folders {
    attn_context *context;
    char *images, *labels, *base; /* images, labels: the two folders; base: the folder that contains both */
} folders;

static void folders_free(folders *f)
{
    attn__free(f->context, f->images);
    attn__free(f->context, f->labels);
    attn__free(f->context, f->base);
}

/* Returns the address of the last component "images" in a path. Returns NULL if the path has no such component. */
static const char *find_images(const char *path)
{
    static const char word[] = "images";
    const char *found = NULL;
    for (const char *at = path; (at = strstr(at, word)); at++) {
        char before = at > path ? at[-1] : '/', after = at[sizeof word - 1];
        if (before == '/' && (after == '/' || after == '\0'))
            found = at;
    }
    return found;
}

/* Writes the folders of labels/ beside images/, where `part` is the address of images in the path. */
static attn_status take_component(folders *f, const char *path, const char *part)
{
    size_t size = strlen(path) + 1;
    f->images = attn__strdup(f->context, path);
    f->base = attn__strdup(f->context, part > path ? path : ".");
    f->labels = attn__alloc(f->context, size);
    if (!f->images || !f->base || !f->labels)
        return ATTN_ERROR_MEMORY;
    if (part > path)
        f->base[part - path] = '\0';
    snprintf(f->labels, size, "%.*slabels%s", (int)(part - path), path, part + strlen("images"));
    return ATTN_OK;
}

/* Finds the folders: images/ and labels/ in the path; or, if the path itself has a component images, the path where
 * this component is labels; or the path and labels/ in it. A folder above all of them may be called images as well. */
static attn_status find_folders(folders *f, attn_context *context, const char *path)
{
    f->context = context;
    char *images = attn__join(context, path, "images"), *labels = attn__join(context, path, "labels");
    attn_status status = images && labels ? ATTN_OK : ATTN_ERROR_MEMORY;
    const char *part = status == ATTN_OK ? find_images(path) : NULL;
    bool is_inside = status == ATTN_OK && attn__is_directory(images);
    if (status == ATTN_OK && !is_inside && !attn__is_directory(labels)) {
        char *darknet = attn__join(context, path, "obj_train_data"); /* of CVAT: the pictures and their text files */
        if (!darknet)
            status = ATTN_ERROR_MEMORY;
        else if (attn__is_directory(darknet)) {
            attn__free(context, images);
            images = darknet;
            is_inside = true;
        } else {
            attn__free(context, darknet);
        }
    }
    bool taken = part && !is_inside;
    if (status == ATTN_OK && taken)
        status = take_component(f, path, part);
    if (status == ATTN_OK && taken && !attn__is_directory(f->labels) && attn__is_directory(labels)) {
        folders_free(f);
        *f = (folders){.context = context};
        taken = false;
    }
    if (status == ATTN_OK && !taken) {
        f->images = attn__strdup(context, is_inside ? images : path);
        f->base = attn__strdup(context, path);
        f->labels = attn__strdup(context, labels);
        status = f->images && f->base && f->labels ? ATTN_OK : ATTN_ERROR_MEMORY;
    }
    attn__free(context, images);
    attn__free(context, labels);
    return status;
}

/* ------------------------------------------------------------------------------------------------ names */

static attn_status add_name(attn__box_set *set, const char *path, const json_t *value)
{
    if (!json_is_string(value))
        return attn__fail(set->context, ATTN_ERROR_FORMAT, "%s: names[%lld] must be text, not %s", path,
                          (long long)set->ncategories,
                          json_is_number(value)                           ? "a number"
                          : json_is_array(value) || json_is_object(value) ? "a list or a mapping"
                                                                          : "true, false or null");
    return attn__box_set_add_category(set, set->ncategories, json_string_value(value));
}

/* Adds the class names in `names`, which is a list of names or a mapping from class numbers to names. */
static attn_status add_names(attn__box_set *set, const char *path, const json_t *names)
{
    attn_status status = ATTN_OK;
    size_t n = json_is_array(names) ? json_array_size(names) : json_object_size(names);
    if (n == 0)
        return attn__fail(
            set->context, ATTN_ERROR_FORMAT,
            "%s: \"names\" is %s; expected the names of the classes, as a list or as a mapping from numbers", path,
            !names                                          ? "missing"
            : json_is_array(names) || json_is_object(names) ? "empty"
                                                            : "no list");
    for (size_t i = 0; status == ATTN_OK && i < n; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        const json_t *name = json_is_array(names) ? json_array_get(names, i) : json_object_get(names, key);
        status = name ? add_name(set, path, name)
                      : attn__fail(set->context, ATTN_ERROR_FORMAT, "%s: \"names\" has no name for class %zu", path, i);
    }
    return status;
}

attn_status attn__data_yaml_read(json_t **root, attn_context *context, const char *path)
{
    attn__input text;
    *root = NULL;
    attn_status status = attn__file_map(&text, context, path);
    if (status == ATTN_OK)
        status = attn__yaml_parse_texts(root, &text, 8, MOST_CLASSES);
    attn__file_unmap(&text);
    return status;
}

/* The number of a line is the class, so an empty line is a class without a name. Empty lines at the end are none. */
static attn_status read_text_names(attn__box_set *set, const char *path)
{
    attn_bytes text = {0};
    attn_status status = attn_file_read(&text, set->context, path, MOST_BYTES);
    const char *line;
    size_t at = 0, length, end = text.size;
    while (end > 0 && strchr(" \t\r\n", text.data[end - 1]))
        end--;
    while (status == ATTN_OK && attn__next_line(text.data, end, &at, &line, &length)) {
        size_t room = length + 24; /* of a name, or of the number of a class */
        char *name = attn__alloc(set->context, room);
        if (!name)
            status = ATTN_ERROR_MEMORY;
        else if (length > 0)
            snprintf(name, room, "%.*s", (int)length, line);
        else
            snprintf(name, room, "%lld", (long long)set->ncategories);
        if (status == ATTN_OK)
            status = attn__box_set_add_category(set, set->ncategories, name);
        attn__free(set->context, name);
    }
    attn_bytes_free(set->context, &text);
    return status;
}

/* Adds a class for each number, from 0 to the largest class in the labels. The name of a class is its number. */
static attn_status number_classes(attn__box_set *set)
{
    int64_t n = 0;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < set->nobjects; i++)
        n = attn__max(n, set->objects[i].category + 1);
    for (int64_t k = 0; status == ATTN_OK && k < n; k++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)k);
        status = attn__box_set_add_category(set, k, number);
    }
    return status;
}

/* Reports whether an entry of data.yaml, such as ../train/images, names a folder inside the folder `name`. */
static bool names_folder(const json_t *entry, const char *name)
{
    const char *path = json_string_value(entry);
    size_t size = strlen(name);
    for (const char *at = path; at && size > 0 && (at = strstr(at, name)); at++)
        if ((at == path || at[-1] == '/') && (at[size] == '/' || at[size] == '\0'))
            return true;
    return false;
}

/* Reports whether the data.yaml above a folder is that of the folder's own data set, as in Roboflow's layout: it names
 * the folder as one of the parts. */
static bool is_of_parent(const json_t *root, const folders *f)
{
    static const char *const parts[] = {"train", "val", "valid", "test"};
    char *real = realpath(f->base, NULL);
    bool is = false;
    for (size_t i = 0; real && i < sizeof parts / sizeof *parts; i++)
        is = is || names_folder(json_object_get(root, parts[i]), attn__path_last(real));
    free(real); /* NOLINT: realpath allocates it */
    return is;
}

/* Reads the names of a data.yaml. One from `above` the folders counts only if it names the folder. */
static attn_status read_yaml_names(attn__box_set *set, const folders *f, const char *path, bool above, bool *found)
{
    json_t *root;
    attn_status status = attn__data_yaml_read(&root, set->context, path);
    *found = status == ATTN_OK && (!above || is_of_parent(root, f));
    if (*found)
        status = add_names(set, path, json_object_get(root, "names"));
    json_decref(root);
    return status;
}

/* Reads the names of the classes. If there are none, the set has no category afterwards. `yaml` is the file that named
 * the folder, or NULL. */
static attn_status read_names(attn__box_set *set, const folders *f, const char *yaml)
{
    const struct {
        const char *folder, *file;
        bool yaml, above;
    } places[] = {{f->base, "data.yaml", true, false},          {f->base, "classes.txt", false, false},
                  {f->images, "data.yaml", true, false},        {f->images, "classes.txt", false, false},
                  {f->labels, "classes.txt", false, false},     {f->base, "obj.names", false, false},
                  {f->images, "_darknet.labels", false, false}, {f->base, "../data.yaml", true, true}};
    bool found = false;
    attn_status status = yaml ? read_yaml_names(set, f, yaml, false, &found) : ATTN_OK;
    for (size_t i = 0; i < sizeof places / sizeof *places && status == ATTN_OK && !found; i++) {
        char *path = attn__join(set->context, places[i].folder, places[i].file);
        if (!path)
            return ATTN_ERROR_MEMORY;
        found = attn_file_exists(path);
        if (found)
            status =
                places[i].yaml ? read_yaml_names(set, f, path, places[i].above, &found) : read_text_names(set, path);
        attn__free(set->context, path);
    }
    return status;
}

/* ----------------------------------------------------------------------------------------------- images */

static attn_status add_labels(attn__box_set *set, const char *folder, const char *file, const attn_image *image,
                              int64_t *found)
{
    size_t stem = attn__path_stem(file);
    char *name = attn__alloc(set->context, stem + sizeof ".txt");
    if (!name)
        return ATTN_ERROR_MEMORY;
    snprintf(name, stem + sizeof ".txt", "%.*s.txt", (int)stem, file);
    char *path = attn__join(set->context, folder, name);
    attn__free(set->context, name);
    if (!path)
        return ATTN_ERROR_MEMORY;
    attn__input text;
    attn_status status = ATTN_OK;
    if (attn_file_exists(path)) {
        ++*found;
        status = attn__file_map(&text, set->context, path);
        if (status == ATTN_OK)
            status = attn__yolo_parse(set, &text, set->nimages, image->width, image->height);
        attn__file_unmap(&text);
    }
    attn__free(set->context, path);
    return status;
}

static attn_status add_image(attn__box_set *set, const folders *f, const char *file, int64_t *labelled)
{
    attn_image image = {0};
    char *path = attn__join(set->context, f->images, file);
    if (!path)
        return ATTN_ERROR_MEMORY;
    attn_status status = attn_image_read(&image, set->context, path, NULL);
    if (status == ATTN_OK)
        status = attn__box_set_add_image(set, set->nimages + 1, image.width, image.height, file);
    if (status == ATTN_OK)
        status = add_labels(set, f->labels, file, &image, labelled);
    attn_image_free(set->context, &image);
    attn__free(set->context, path);
    return status;
}

/* Checks that a folder inside images/ is no part of a data set: parts must not be mixed. */
static attn_status check_part(attn_context *context, const folders *f, const char *folder)
{
    static const char *const parts[] = {"train", "val", "valid", "validation", "test", "train2017", "val2017"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(folder, parts[i]) == 0)
            return attn__fail(
                context, ATTN_ERROR_FORMAT,
                "%s: the folder has a subfolder %s, which looks like a part of a data set; give the folder of one part, "
                "or a data.yaml that names the parts",
                f->images, folder);
    return ATTN_OK;
}

/* Adds the images in a folder inside the folder of images, "" for this folder itself, and those in its folders. */
static attn_status add_images_in(attn__box_set *set, const folders *f, const char *inside, bool nested, int depth,
                                 int64_t *labelled)
{
    enum { MOST_DEPTH = 16 };
    attn_entries lists[2] = {{0}}; /* files and folders */
    char *whole = attn__join(set->context, f->images, inside);
    attn_status status = whole ? attn_directory_list(lists, set->context, whole, false) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && nested && depth < MOST_DEPTH)
        status = attn_directory_list(lists + 1, set->context, whole, true);
    attn__free(set->context, whole);
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; status == ATTN_OK && i < lists[k].n; i++) {
            const char *name = lists[k].names[i];
            char *path = *inside ? attn__join(set->context, inside, name) : attn__strdup(set->context, name);
            if (!path)
                status = ATTN_ERROR_MEMORY;
            else if (k == 0 && attn__is_image_name(name))
                status = add_image(set, f, path, labelled);
            else if (k == 1)
                status = *inside ? ATTN_OK : check_part(set->context, f, name);
            if (status == ATTN_OK && k == 1)
                status = add_images_in(set, f, path, true, depth + 1, labelled);
            attn__free(set->context, path);
            if (status == ATTN_OK && !*inside)
                status = attn__work(set->context, "images", i + 1, lists[k].n);
        }
        attn_entries_free(set->context, lists + k);
    }
    return status;
}

static attn_status add_images(attn__box_set *set, folders *f)
{
    int64_t labelled = 0;
    bool beside = !attn__is_directory(f->labels); /* as of labelImg and CVAT: text files beside the pictures */
    char *labels = f->labels;
    if (beside && !(f->labels = attn__strdup(set->context, f->images))) {
        f->labels = labels;
        return ATTN_ERROR_MEMORY;
    }
    /* Folders beside the pictures may be of another kind, such as labels/ itself. */
    bool nested = find_images(f->images) && !beside && strncmp(f->images, f->labels, strlen(f->images)) != 0;
    attn_status status = add_images_in(set, f, "", nested, 0, &labelled);
    if (status == ATTN_OK && set->nimages == 0)
        status = attn__fail(set->context, ATTN_ERROR_FORMAT, "%s: the folder has no images", f->images);
    else if (status == ATTN_OK && beside && labelled == 0)
        status = attn__fail(set->context, ATTN_ERROR_NOT_FOUND,
                            "%s: the folder has no boxes: neither annotations.json nor a folder %s, and no text file "
                            "beside an image",
                            f->base, labels);
    else if (status == ATTN_OK && labelled == 0)
        status = attn__fail(set->context, ATTN_ERROR_NOT_FOUND,
                            "%s: the folder has no text file named like any of the %lld images of %s", f->labels,
                            (long long)set->nimages, f->images);
    if (beside)
        attn__free(set->context, labels);
    return status;
}

static attn_status fill(attn__box_set *set, folders *f, const char *yaml)
{
    attn_status status = read_names(set, f, yaml);
    if (status == ATTN_OK)
        status = add_images(set, f);
    if (status == ATTN_OK && set->ncategories == 0)
        status = number_classes(set);
    if (status == ATTN_OK)
        status = attn__box_set_finish(set, f->labels);
    set->folder = f->images;
    f->images = NULL;
    return status;
}

attn_status attn__yolo_read(attn__box_set **set, attn_context *context, const char *path, const char *yaml)
{
    folders f = {0};
    *set = NULL;
    attn_status status = find_folders(&f, context, path);
    if (status == ATTN_OK)
        status = attn__box_set_create(set, context);
    if (status == ATTN_OK)
        status = fill(*set, &f, yaml);
    if (status != ATTN_OK) {
        attn__box_set_destroy(*set);
        *set = NULL;
    }
    folders_free(&f);
    return status;
}
