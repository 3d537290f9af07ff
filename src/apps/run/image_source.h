/* SPDX-License-Identifier: MIT
 *
 * image_source.h - reads labelled images from a folder with any supported kind of data, and videos from folders of
 * frames or from an array.
 */
#ifndef ATTN_APPS_IMAGE_SOURCE_H
#define ATTN_APPS_IMAGE_SOURCE_H

#include "attn/config.h"
#include "attn/image.h"
#include "data/images.h"
#include "io/images/image.h"

/* The requested form of the images. If the shape is zero, images are unchanged and must all have the same form. */
typedef struct attn__image_wish {
    attn_image_shape shape;
    bool videos;                 /* each folder is a video whose pictures are frames; an array always contains videos */
    attn__image_fitting fitting; /* how images are resized */
    const char *const *classes;  /* class names that the folder must have, in this order; NULL: any */
    int64_t nclasses;            /* labels must be less than this number; 0: any label */
    bool unlabelled;             /* labels are not used, so pictures need no class folders */
} attn__image_wish;

typedef struct attn__image_source {
    attn_context *context;
    attn_image_set *train, *test; /* test: NULL if the data has no separate test part */
    char **classes;
    int64_t nclasses;
    /* number of files in class folders whose names do not end like a picture's, and of folders next to train/ that
     * are not read */
    int64_t passed_over;
    char *passed_first; /* path of the first file or folder that was not read; NULL: there is none */
} attn__image_source;

/* Reads the images. Every error names the file. */
attn_status attn__image_source_read(attn__image_source *source, attn_context *context, const char *path,
                                    const attn__image_wish *wish);
void attn__image_source_free(attn__image_source *source);
/* Splits the source by the keys "seed", "valid" and "test" of a training's settings or of a config.json. Each part
 * may be NULL. Destroy the parts before the source is freed. If the data has its own test part, this part is used
 * whole. Otherwise "test" is the share of the test part. */
attn_status attn__image_source_split(const attn__image_source *source, const attn_config *settings,
                                     attn_image_set **train, attn_image_set **valid, attn_image_set **test);
/* Makes a set of all images, including those of a separate test part. Destroy the set before the source is freed. */
attn_status attn__image_source_whole(const attn__image_source *source, attn_image_set **whole);

/* ------------------------------------------------------------------------------------------- one video */

/* A video: its frames in order. */
typedef struct attn__clip {
    attn_context *context;
    int64_t n;
    attn_image *frames;
    int64_t passed;     /* number of files in the folder whose names do not end like a picture's */
    char *passed_first; /* name of the first of these files; NULL: there is none */
} attn__clip;
void attn__clip_free(attn__clip *clip);
/* Reads the pictures of a folder in the order of their names, where digits are compared as numbers. With `channels` 1
 * or 3, they are converted to that number of channels. ATTN_ERROR_FORMAT: there are fewer than two pictures.
 * ATTN_ERROR_FORMAT also without `sized`, if pictures have different sizes or channels. Free the clip on failure too.
 */
attn_status attn__clip_of_folder(attn__clip *clip, attn_context *context, const char *folder, int channels, bool sized);
/* Reads video `number`, from 0, of an array (frames, channels, height, width) or (videos, frames, channels, height,
 * width) of bytes or of real numbers from 0 to 1. ATTN_ERROR_FORMAT: the array has another shape or type, or the video
 * has only one frame. */
attn_status attn__clip_of_array(attn__clip *clip, attn_context *context, const attn_tensor *array, const char *name,
                                int64_t number);
/* Reads one picture as the first frame of a video. */
attn_status attn__clip_of_picture(attn__clip *clip, attn_context *context, const char *path);
/* Reads a folder of frames, or an array if the path ends in .npy. */
attn_status attn__clip_read(attn__clip *clip, attn_context *context, const char *path, int64_t number);
bool attn__is_array(const char *path); /* Reports whether the path ends in .npy. */

/* ----------------------------------------------------------------------- between the files of this reader */

/* The sorted names in a folder, except __MACOSX and names that begin with a dot. */
typedef struct attn__names {
    char **names;
    int64_t n;
} attn__names;
attn_status attn__names_read(attn__names *names, attn_context *context, const char *folder);
void attn__names_free(attn__names *names, attn_context *context);

/* Reports whether a file's name ends like a picture's, such as .png. */
bool attn__is_image_name(const char *name);
/* Returns "folder/name", which the caller frees, or NULL without memory. */
char *attn__join(attn_context *context, const char *folder, const char *name);
attn_status attn__class_add(attn__image_source *source, const char *name, size_t length);
/* Adds a picture or the frames of a video to *set, converted to the requested form. The first picture or video
 * creates the set and decides its shape. `first` is the path of the first file, for messages. */
attn_status attn__image_source_add(attn__image_source *source, attn_image_set **set, const attn__image_wish *wish,
                                   const attn__clip *clip, int32_t label, uint64_t key, const char *name,
                                   const char *first);

/* Read one kind of data each. *found is false if the folder contains another kind. */
attn_status attn__read_idx(attn__image_source *source, const char *path, const attn__names *names,
                           const attn__image_wish *wish, bool *found);
attn_status attn__read_cifar(attn__image_source *source, const char *path, const attn__names *names,
                             const attn__image_wish *wish, bool *found);
attn_status attn__read_folders(attn__image_source *source, const char *path, const attn__names *names,
                               const attn__image_wish *wish, bool *found);
/* Reads videos from a .npy file. */
attn_status attn__read_array(attn__image_source *source, const char *path, const attn__image_wish *wish);

#endif
