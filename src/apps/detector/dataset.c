/* SPDX-License-Identifier: MIT
 *
 * Finds the files of a data set of boxes, and of the parts of one that is divided.
 */
#include "apps/detector/boxes_files.h"
#include "apps/run/image_source.h"
#include "base/context.h"
#include "io/directory.h"
#include "io/file.h"

#include <string.h>

/* Returns the path of a name in a folder if it exists, or NULL. Without memory, *status becomes ATTN_ERROR_MEMORY. */
static char *existing(attn_context *context, const char *folder, const char *name, attn_status *status)
{
    if (*status != ATTN_OK)
        return NULL;
    char *path = name[0] == '/' ? attn__strdup(context, name) : attn__join(context, folder, name);
    if (!path)
        *status = ATTN_ERROR_MEMORY;
    if (path && attn_file_exists(path))
        return path;
    attn__free(context, path);
    return NULL;
}

/* Returns the annotations of COCO in a folder, or NULL. */
static char *coco_in(attn_context *context, const char *folder, attn_status *status)
{
    char *path = existing(context, folder, "annotations.json", status);
    return path ? path : existing(context, folder, "_annotations.coco.json", status);
}

/* Returns the folder that an entry of data.yaml names. It is relative to the entry `path`, or to the file's folder.
 * Roboflow writes ../train/images for train/images. */
static char *folder_of_entry(attn_context *context, const char *folder, const char *root, const char *entry,
                             attn_status *status)
{
    char *base = root && *root ? existing(context, folder, root, status) : NULL;
    char *path = base ? existing(context, base, entry, status) : NULL;
    if (!path)
        path = existing(context, folder, entry, status);
    if (!path && strncmp(entry, "../", 3) == 0)
        path = existing(context, folder, entry + 3, status);
    attn__free(context, base);
    return path;
}

static attn_status find_in_yaml(char **found, attn_context *context, const char *file, const char *part)
{
    json_t *root = NULL;
    attn_status status = attn__data_yaml_read(&root, context, file);
    const json_t *entry = json_object_get(root, part);
    if (!entry && strcmp(part, "val") == 0)
        entry = json_object_get(root, "valid");
    char *folder = status == ATTN_OK ? attn__strdup(context, file) : NULL;
    if (status == ATTN_OK && !folder)
        status = ATTN_ERROR_MEMORY;
    if (folder) {
        char *slash = strrchr(folder, '/');
        strcpy(slash ? slash + (slash == folder) : folder, slash ? "" : "."); /* NOLINT: a path of a file is longer */
    }
    const char *text = json_string_value(entry);
    if (folder && entry && !json_is_null(entry) && !text)
        status = attn__fail(context, ATTN_ERROR_UNSUPPORTED, "%s: \"%s\" must be one folder; lists are not supported",
                            file, part);
    if (status == ATTN_OK && text && *text) {
        *found = folder_of_entry(context, folder, json_string_value(json_object_get(root, "path")), text, &status);
        if (status == ATTN_OK && !*found)
            status = attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: \"%s\": there is no %s", file, part, text);
        else if (status == ATTN_OK && !attn__is_directory(*found))
            status = attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                                "%s: \"%s\": %s is not a folder; lists are not supported", file, part, text);
    }
    attn__free(context, folder);
    json_decref(root);
    return status;
}

static bool is_yaml(const char *path)
{
    size_t n = strlen(path);
    return !attn__is_directory(path) &&
           ((n > 5 && strcmp(path + n - 5, ".yaml") == 0) || (n > 4 && strcmp(path + n - 4, ".yml") == 0));
}

/* Finds the folder of a part. If the data set is not divided, *divided stays false. *found may stay NULL: the part is
 * missing. */
static attn_status find_part(char **found, bool *divided, attn_context *context, const char *path, const char *part)
{
    attn_status status = ATTN_OK;
    *found = NULL;
    *divided = is_yaml(path);
    if (*divided)
        return find_in_yaml(found, context, path, part);
    if (!attn__is_directory(path))
        return ATTN_OK;
    static const char *const own[] = {"annotations.json", "_annotations.coco.json", "images", "labels"};
    bool whole = false;
    for (size_t i = 0; i < sizeof own / sizeof *own && status == ATTN_OK; i++) {
        char *there = existing(context, path, own[i], &status);
        whole = whole || there;
        attn__free(context, there);
    }
    char *yaml = whole ? NULL : existing(context, path, "data.yaml", &status);
    char *train = whole ? NULL : existing(context, path, "train", &status);
    *divided = train && attn__is_directory(train);
    if (status == ATTN_OK && *divided) {
        *found = existing(context, path, part, &status);
        if (!*found && strcmp(part, "val") == 0)
            *found = existing(context, path, "valid", &status);
    } else if (status == ATTN_OK && yaml) {
        *divided = true;
        status = find_in_yaml(found, context, yaml, part);
    }
    attn__free(context, yaml);
    attn__free(context, train);
    return status;
}

static attn_status read_whole(attn__box_set **set, attn_context *context, const char *path)
{
    attn_status status = ATTN_OK;
    if (!attn__is_directory(path))
        return attn__coco_read(set, context, path);
    char *inside = coco_in(context, path, &status);
    if (status == ATTN_OK)
        status = inside ? attn__coco_read(set, context, inside) : attn__yolo_read(set, context, path);
    attn__free(context, inside);
    return status;
}

attn_status attn__boxes_read(attn__box_set **set, attn_context *context, const char *path, const char *part,
                             bool *divided)
{
    char *found = NULL;
    bool is_divided = false;
    *set = NULL;
    attn_status status = find_part(&found, &is_divided, context, path, part);
    if (status == ATTN_OK && is_divided && !found)
        status = attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: the data set has no part \"%s\"", path, part);
    if (status == ATTN_OK)
        status = read_whole(set, context, found ? found : path);
    if (divided)
        *divided = is_divided;
    attn__free(context, found);
    return status;
}

attn_status attn__boxes_have_part(bool *has, attn_context *context, const char *path, const char *part)
{
    char *found = NULL;
    bool divided = false;
    attn_status status = find_part(&found, &divided, context, path, part);
    *has = found != NULL;
    attn__free(context, found);
    return status;
}
