/* SPDX-License-Identifier: MIT
 *
 * Reads folders of images with YOLO's text files of boxes.
 */
#include "apps/detector/boxes_files.h"
#include "apps/run/image_source.h"
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

enum { MOST_CLASSES = 100000, MOST_BYTES = 64 << 20, MOST_LINE = 1024 };

/* ----------------------------------------------------------------------------------------------- a line */

/* Parses a line with five values: the class, and the four values of the box. */
static bool parse_line(const char *line, double numbers[5])
{
    char *end = NULL;
    for (int i = 0; i < 5; i++) {
        const char *number = line + strspn(line, " \t");
        numbers[i] = attn__real_of_text(number, &end);
        if (end == number || (i > 0 && number == line) || !isfinite(numbers[i]))
            return false;
        line = end;
    }
    return line[strspn(line, " \t")] == '\0';
}

static attn_status fail_line(const attn__input *text, int64_t number, const char *what, const char *line)
{
    return attn__fail(text->context, ATTN_ERROR_FORMAT, "%s:%lld: %s: \"%.60s\"", text->name, (long long)number, what,
                      line);
}

static attn_status add_line(attn__box_set *set, const attn__input *text, int64_t number, const char *line,
                            const attn__boxed_image *image)
{
    double v[5];
    if (!parse_line(line, v))
        return fail_line(text, number, "must be \"class cx cy width height\"", line);
    if (v[0] < 0 || v[0] >= MOST_CLASSES || v[0] != floor(v[0]))
        return fail_line(text, number, "the class must be an integer from 0", line);
    for (int i = 1; i < 5; i++) {
        if (v[i] < 0 || v[i] > 1.01)
            return fail_line(text, number, "the box must be relative to the image, 0 to 1", line);
    }
    double width = (double)image->width, height = (double)image->height;
    attn__object object = {.id = set->nobjects + 1, .image = image->id, .category = (int64_t)v[0]};
    object.box = (attn__box){(v[1] - v[3] / 2) * width, (v[2] - v[4] / 2) * height, v[3] * width, v[4] * height};
    object.area = object.box.width * object.box.height;
    return attn__box_set_add_object(set, &object);
}

attn_status attn__yolo_parse(attn__box_set *set, const attn__input *text, int64_t image, int64_t width, int64_t height)
{
    attn__boxed_image about = {.id = image, .width = width, .height = height};
    const char *begin;
    size_t at = 0, length;
    attn_status status = ATTN_OK;
    for (int64_t i = 1;
         status == ATTN_OK && attn__next_line((const char *)text->data, text->size, &at, &begin, &length); i++) {
        char line[MOST_LINE];
        snprintf(line, sizeof line, "%.*s", (int)attn__min((int64_t)length, MOST_LINE), begin);
        if (length >= MOST_LINE)
            return fail_line(text, i, "the line is too long", line);
        if (line[strspn(line, " \t")])
            status = add_line(set, text, i, line, &about);
    }
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

static attn_status find_folders(folders *f, attn_context *context, const char *path)
{
    f->context = context;
    const char *part = find_images(path);
    if (part) {
        size_t size = strlen(path) + 1;
        f->images = attn__strdup(context, path);
        f->base = attn__strdup(context, part > path ? path : ".");
        f->labels = attn__alloc(context, size);
        if (!f->images || !f->base || !f->labels)
            return ATTN_ERROR_MEMORY;
        if (part > path)
            f->base[part - path] = '\0';
        snprintf(f->labels, size, "%.*slabels%s", (int)(part - path), path, part + strlen("images"));
        return ATTN_OK;
    }
    char *inside = attn__join(context, path, "images");
    if (!inside)
        return ATTN_ERROR_MEMORY;
    f->images = attn__is_directory(inside) ? inside : attn__strdup(context, path);
    if (f->images != inside)
        attn__free(context, inside);
    f->base = attn__strdup(context, path);
    f->labels = attn__join(context, path, "labels");
    return f->images && f->base && f->labels ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* ------------------------------------------------------------------------------------------------ names */

static attn_status add_name(attn__box_set *set, const char *path, const json_t *value)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    if (!json_is_string(value) && !json_is_integer(value))
        return attn__fail(set->context, ATTN_ERROR_FORMAT, "%s: names[%lld] must be text", path,
                          (long long)set->ncategories);
    return attn__box_set_add_category(set, set->ncategories, json_is_string(value) ? json_string_value(value) : number);
}

/* Adds the class names in `names`, which is a list of names or a mapping from class numbers to names. */
static attn_status add_names(attn__box_set *set, const char *path, const json_t *names)
{
    attn_status status = ATTN_OK;
    size_t n = json_is_array(names) ? json_array_size(names) : json_object_size(names);
    if (n == 0)
        return attn__fail(set->context, ATTN_ERROR_FORMAT, "%s: \"names\" must be the names of the classes", path);
    for (size_t i = 0; status == ATTN_OK && i < n; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        const json_t *name = json_is_array(names) ? json_array_get(names, i) : json_object_get(names, key);
        status = name ? add_name(set, path, name)
                      : attn__fail(set->context, ATTN_ERROR_FORMAT, "%s: \"names\" lacks class %zu", path, i);
    }
    return status;
}

static attn_status read_yaml_names(attn__box_set *set, const char *path)
{
    attn__input text;
    json_t *root = NULL;
    attn_status status = attn__file_map(&text, set->context, path);
    if (status == ATTN_OK)
        status = attn__yaml_parse(&root, &text, 8, MOST_CLASSES);
    if (status == ATTN_OK)
        status = add_names(set, path, json_object_get(root, "names"));
    json_decref(root);
    attn__file_unmap(&text);
    return status;
}

static attn_status read_text_names(attn__box_set *set, const char *path)
{
    attn_bytes text = {0};
    attn_status status = attn_file_read(&text, set->context, path, MOST_BYTES);
    const char *line;
    size_t at = 0, length;
    while (status == ATTN_OK && attn__next_line(text.data, text.size, &at, &line, &length)) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)attn__min((int64_t)length, sizeof name), line);
        if (name[0])
            status = attn__box_set_add_category(set, set->ncategories, name);
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

static attn_status read_names(attn__box_set *set, const folders *f)
{
    const struct {
        const char *folder, *file;
    } places[] = {{f->base, "data.yaml"},
                  {f->base, "classes.txt"},
                  {f->images, "data.yaml"},
                  {f->images, "classes.txt"},
                  {f->labels, "classes.txt"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *path = attn__join(set->context, places[i].folder, places[i].file);
        if (!path)
            return ATTN_ERROR_MEMORY;
        bool there = attn_file_exists(path), yaml = strstr(places[i].file, ".yaml");
        attn_status status = !there ? ATTN_OK : yaml ? read_yaml_names(set, path) : read_text_names(set, path);
        attn__free(set->context, path);
        if (there)
            return status;
    }
    return number_classes(set);
}

/* ----------------------------------------------------------------------------------------------- images */

static attn_status add_labels(attn__box_set *set, const char *folder, const char *file, const attn_image *image)
{
    const char *ending = strrchr(file, '.');
    size_t stem = ending ? (size_t)(ending - file) : strlen(file);
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
        status = attn__file_map(&text, set->context, path);
        if (status == ATTN_OK)
            status = attn__yolo_parse(set, &text, set->nimages, image->width, image->height);
        attn__file_unmap(&text);
    }
    attn__free(set->context, path);
    return status;
}

static attn_status add_image(attn__box_set *set, const folders *f, const char *file)
{
    attn_image image = {0};
    char *path = attn__join(set->context, f->images, file);
    if (!path)
        return ATTN_ERROR_MEMORY;
    attn_status status = attn_image_read(&image, set->context, path, NULL);
    if (status == ATTN_OK)
        status = attn__box_set_add_image(set, set->nimages + 1, image.width, image.height, file);
    if (status == ATTN_OK)
        status = add_labels(set, f->labels, file, &image);
    attn_image_free(set->context, &image);
    attn__free(set->context, path);
    return status;
}

static attn_status add_images(attn__box_set *set, const folders *f)
{
    attn_entries files = {0};
    attn_status status = attn_directory_list(&files, set->context, f->images, false);
    for (int64_t i = 0; status == ATTN_OK && i < files.n; i++) {
        if (attn__is_image_name(files.names[i]))
            status = add_image(set, f, files.names[i]);
        if (status == ATTN_OK)
            status = attn__work(set->context, "images", i + 1, files.n);
    }
    attn_entries_free(set->context, &files);
    if (status == ATTN_OK && set->nimages == 0)
        return attn__fail(set->context, ATTN_ERROR_FORMAT, "%s: has no images", f->images);
    if (status == ATTN_OK && !attn__is_directory(f->labels))
        return attn__fail(set->context, ATTN_ERROR_NOT_FOUND,
                          "%s: has no boxes: neither annotations.json nor a folder %s", f->base, f->labels);
    return status;
}

static attn_status fill(attn__box_set *set, folders *f)
{
    attn_status status = add_images(set, f);
    if (status == ATTN_OK)
        status = read_names(set, f);
    if (status == ATTN_OK)
        status = attn__box_set_finish(set, f->labels);
    set->folder = f->images;
    f->images = NULL;
    return status;
}

attn_status attn__yolo_read(attn__box_set **set, attn_context *context, const char *path)
{
    folders f = {0};
    *set = NULL;
    attn_status status = find_folders(&f, context, path);
    if (status == ATTN_OK)
        status = attn__box_set_create(set, context);
    if (status == ATTN_OK)
        status = fill(*set, &f);
    if (status != ATTN_OK) {
        attn__box_set_destroy(*set);
        *set = NULL;
    }
    folders_free(&f);
    return status;
}

attn_status attn__boxes_read(attn__box_set **set, attn_context *context, const char *path)
{
    *set = NULL;
    if (!attn__is_directory(path))
        return attn__coco_read(set, context, path);
    char *inside = attn__join(context, path, "annotations.json");
    if (!inside)
        return ATTN_ERROR_MEMORY;
    attn_status status =
        attn_file_exists(inside) ? attn__coco_read(set, context, inside) : attn__yolo_read(set, context, path);
    attn__free(context, inside);
    return status;
}
