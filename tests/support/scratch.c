/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/scratch.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void scratch_open(char path[64])
{
    strcpy(path, "/tmp/attn-test-XXXXXX");
    if (!mkdtemp(path)) {
        perror(path);
        exit(1);
    }
}

int scratch_close(const char *path)
{
    int files = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        bool inside = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
        files += unlink(name) == 0 ? 1 : inside ? scratch_close(name) : 0;
    }
    if (folder)
        closedir(folder);
    rmdir(path);
    return files;
}
