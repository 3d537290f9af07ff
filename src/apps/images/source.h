/* SPDX-License-Identifier: MIT
 *
 * source.h - reads labelled images from a folder, which may contain any supported kind of data. Also reads
 * videos, from folders of frames or from an array.
 */
#ifndef ATTN_APPS_IMAGES_SOURCE_H
#define ATTN_APPS_IMAGES_SOURCE_H

#include "io/directory.h"
#include "attn/config.h"
#include "attn/image.h"
#include "data/images.h"
#include "io/images/image.h"

/* The form of the images that the caller requests. If the shape is zero, images are not converted, and all of them
 * must have the same form. */
typedef struct attn__image_wish {
    attn_image_shape shape;
    /* true: each folder is a video, and its pictures are the frames; arrays contain videos in any case */
    bool videos;
    attn__image_fitting fitting;
    /* names of the classes, which the folder must have in this order; NULL: all names are accepted */
    const char *const *classes;
    int64_t nclasses; /* labels must be less than this number; 0: all labels are accepted */
    bool unlabelled;  /* true: labels are not used, so pictures need not be in folders of classes */
} attn__image_wish;

typedef struct attn__image_source {
    attn_context *context;
    attn_image_set *train, *test; /* training part, and test part; the test part is NULL if the data has none */
    char **classes;
    int64_t nclasses;
    /* number of files and folders that were not read: files in class folders whose names do not end like a
     * picture's, and folders next to train/ */
    int64_t passed_over;
    char *passed_first; /* path of the first file or folder that was not read; NULL: there is none */
} attn__image_source;

/* Every error names the file. */
attn_status attn__image_source_read(attn__image_source *source, attn_context *context, const char *path,
                                    const attn__image_wish *wish);
void attn__image_source_free(attn__image_source *source);
/* Splits the images as the keys "seed", "valid" and "test" require. `settings` are those of a training or of a
 * config.json. If a pointer to a part is NULL, this part is not made. The parts must be destroyed before the source is
 * freed. If the data has a test part, the whole test part is used. Otherwise "test" is the share of images for the test
 * part. */
attn_status attn__image_source_split(const attn__image_source *source, const attn_config *settings,
                                     attn_image_set **train, attn_image_set **valid, attn_image_set **test);
/* Makes a set of all images, including those of a separate test part. The set must be destroyed before the source is
 * freed. */
attn_status attn__image_source_whole(const attn__image_source *source, attn_image_set **whole);

/* ------------------------------------------------------------------------------------------- one video */

typedef struct attn__clip {
    attn_context *context;
    int64_t n;
    attn_image *frames;
    /* number of files in the folder that are not read, because their names do not end like a picture's */
    int64_t passed;
    char *passed_first; /* name of the first file that is not read; NULL: all files are read */
} attn__clip;
void attn__clip_free(attn__clip *clip);
/* Reads the pictures of a folder as the frames of a video. They are sorted by name, and digits in names are compared as
 * numbers. If `channels` is 1 or 3, the frames are converted to this number of channels. ATTN_ERROR_FORMAT: there are
 * fewer than two pictures, or `sized` is false and the pictures differ in size or channels. The clip must be freed even
 * on failure.
 */
attn_status attn__clip_of_folder(attn__clip *clip, attn_context *context, const char *folder, int channels, bool sized);
/* The array has the shape (frames, channels, height, width) or (videos, frames, channels, height, width). `number` is
 * the index of the video. Elements are bytes, or reals from 0 to 1. ATTN_ERROR_FORMAT: the array has another shape or
 * type, or the video has only one frame. */
attn_status attn__clip_of_array(attn__clip *clip, attn_context *context, const attn_tensor *array, const char *name,
                                int64_t number);
/* Reads one picture as a video of one frame. */
attn_status attn__clip_of_picture(attn__clip *clip, attn_context *context, const char *path);
/* If the path ends in .npy, it is an array, otherwise a folder of frames. */
attn_status attn__clip_read(attn__clip *clip, attn_context *context, const char *path, int64_t number);
bool attn__is_array(const char *path); /* Reports whether the path ends in .npy. */

/* ----------------------------------------------------------------------- between the files of this reader */

/* Reports whether a file's name ends like a picture's, such as .png. */
bool attn__is_image_name(const char *name);
attn_status attn__class_add(attn__image_source *source, const char *name, size_t length);
/* Adds a picture, or the frames of a video, to *set, converted to the requested form. If *set is NULL, it is created
 * with the shape of this picture or video. `first` is the path of the first file, for messages. */
attn_status attn__image_source_add(attn__image_source *source, attn_image_set **set, const attn__image_wish *wish,
                                   const attn__clip *clip, int32_t label, uint64_t key, const char *name,
                                   const char *first);

/* Each of these functions reads one kind of data. If the folder contains another kind, *found becomes false. */
attn_status attn__read_idx(attn__image_source *source, const char *path, const attn_entries *names,
                           const attn__image_wish *wish, bool *found);
attn_status attn__read_cifar(attn__image_source *source, const char *path, const attn_entries *names,
                             const attn__image_wish *wish, bool *found);
attn_status attn__read_folders(attn__image_source *source, const char *path, const attn_entries *names,
                               const attn__image_wish *wish, bool *found);
/* Reads videos from a .npy file. */
attn_status attn__read_array(attn__image_source *source, const char *path, const attn__image_wish *wish);

#endif
