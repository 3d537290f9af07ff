/* SPDX-License-Identifier: MIT
 *
 * Finds the files of a data set of boxes, and of the parts of one that is divided.
 */
#include "apps/detector/boxes_files.h"
#include "apps/images/source.h"
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
    char *folder = status == ATTN_OK ? attn__path_parent(context, file) : NULL;
    if (status == ATTN_OK && !folder)
        status = ATTN_ERROR_MEMORY;
    const char *text = json_string_value(entry);
    if (folder && entry && !json_is_null(entry) && !text)
        status = attn__fail(context, ATTN_ERROR_UNSUPPORTED, "%s: \"%s\" must be one folder; lists are not supported",
                            file, part);
    if (status == ATTN_OK && text && *text) {
        *found = folder_of_entry(context, folder, json_string_value(json_object_get(root, "path")), text, &status);
        if (status == ATTN_OK && !*found)
            status =
                attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: \"%s\" is %s, which does not exist", file, part, text);
        else if (status == ATTN_OK && !attn__is_directory(*found))
            status = attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                                "%s: \"%s\" is %s, which is not a folder; lists are not supported", file, part, text);
    }
    attn__free(context, folder);
    json_decref(root);
    return status;
}

static bool has_pictures(attn_context *context, const char *folder, attn_status *status)
{
    attn_entries files = {0};
    bool has = false;
    if (*status == ATTN_OK)
        *status = attn_directory_list(&files, context, folder, false);
    for (int64_t i = 0; i < files.n && !has; i++)
        has = attn__is_image_name(files.names[i]);
    attn_entries_free(context, &files);
    return has;
}

/* Reports whether a folder is a data set of its own. In Ultralytics' layout images/ has no pictures but a folder for
 * each part, so that the folder's data.yaml divides it. */
static bool is_whole(attn_context *context, const char *folder, bool yaml, attn_status *status)
{
    char *coco = coco_in(context, folder, status), *images = existing(context, folder, "images", status),
         *labels = existing(context, folder, "labels", status);
    bool parted = yaml && images && attn__is_directory(images) && !has_pictures(context, images, status) &&
                  !has_pictures(context, folder, status);
    bool whole = coco || (!parted && (images || labels));
    attn__free(context, coco);
    attn__free(context, images);
    attn__free(context, labels);
    return whole;
}

static bool is_yaml(const char *path)
{
    size_t n = strlen(path);
    return !attn__is_directory(path) &&
           ((n > 5 && strcmp(path + n - 5, ".yaml") == 0) || (n > 4 && strcmp(path + n - 4, ".yml") == 0));
}

/* Finds the folder of a part. If the data set is not divided, *divided stays false. *found may stay NULL: the part is
 * missing. *yaml becomes the file that names the folder, or NULL. The caller frees both. */
static attn_status find_part(char **found, char **yaml, bool *divided, attn_context *context, const char *path,
                             const char *part)
{
    attn_status status = ATTN_OK;
    *found = *yaml = NULL;
    *divided = is_yaml(path);
    if (*divided) {
        *yaml = attn__strdup(context, path);
        return *yaml ? find_in_yaml(found, context, path, part) : ATTN_ERROR_MEMORY;
    }
    if (!attn__is_directory(path))
        return ATTN_OK;
    char *file = existing(context, path, "data.yaml", &status);
    bool whole = status == ATTN_OK && is_whole(context, path, file, &status);
    char *train = whole ? NULL : existing(context, path, "train", &status);
    *divided = train && attn__is_directory(train);
    if (status == ATTN_OK && *divided) {
        *found = existing(context, path, part, &status);
        if (!*found && strcmp(part, "val") == 0)
            *found = existing(context, path, "valid", &status);
    } else if (status == ATTN_OK && file && !whole) {
        *divided = true;
        status = find_in_yaml(found, context, file, part);
        *yaml = file;
        file = NULL;
    }
    attn__free(context, file);
    attn__free(context, train);
    return status;
}

static attn_status read_whole(attn__box_set **set, attn_context *context, const char *path, const char *yaml)
{
    attn_status status = ATTN_OK;
    if (!attn__is_directory(path))
        return attn__coco_read(set, context, path);
    char *inside = coco_in(context, path, &status);
    if (status == ATTN_OK)
        status = inside ? attn__coco_read(set, context, inside) : attn__yolo_read(set, context, path, yaml);
    attn__free(context, inside);
    return status;
}

attn_status attn__boxes_read(attn__box_set **set, attn_context *context, const char *path, const char *part,
                             bool *divided)
{
    char *found = NULL, *yaml = NULL;
    bool is_divided = false;
    *set = NULL;
    attn_status status = find_part(&found, &yaml, &is_divided, context, path, part);
    if (status == ATTN_OK && is_divided && !found)
        status = attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: the data set has no part \"%s\"", path, part);
    if (status == ATTN_OK)
        status = read_whole(set, context, found ? found : path, yaml);
    if (divided)
        *divided = is_divided;
    attn__free(context, found);
    attn__free(context, yaml);
    return status;
}

attn_status attn__boxes_have_part(bool *has, attn_context *context, const char *path, const char *part)
{
    char *found = NULL, *yaml = NULL;
    bool divided = false;
    attn_status status = find_part(&found, &yaml, &divided, context, path, part);
    *has = found != NULL;
    attn__free(context, found);
    attn__free(context, yaml);
    return status;
}
