/* SPDX-License-Identifier: MIT
 *
 * Keeps the files of a run apart: an output is never one of its inputs, and no file is written twice.
 *
 * Inputs are the words and option values that name files, and each file that the library opens. Outputs are the files
 * that a command claims before it writes the first of them, and each file that the library writes. A claim of an input
 * is refused, and so is opening a claimed file. Writing a file that was opened is refused even if it was not claimed.
 */
#include "command.h"

#include "base/context.h"
#include "io/file.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The meaning of a note about a file. A claim has two notes, because a link can lead to its file under another path. */
typedef enum role { INPUT, CLAIMED_FILE, CLAIMED_PATH, WRITTEN_PATH } note_role;

/* Identifies a file by its device and inode, with the name "". Identifies a path by the device and inode of the deepest
 * folder that exists, and the rest of the path. */
typedef struct key {
    dev_t device;
    ino_t inode;
    const char *name;
} file_key;

typedef struct note {
    struct note *next;
    note_role role;
    file_key key;
    char *path; /* as the user wrote it */
    char *from; /* of a claim: the input whose result it is; NULL: none */
} file_note;

struct cli_guard {
    pthread_mutex_t lock;
    file_note **buckets;
    size_t nbuckets, n;
    const char *own; /* directory whose files this run reads and writes again; NULL: none */
};

static const char no_memory[] = "out of memory";

/* ------------------------------------------------------------------------------------------------- the notes */

static size_t hash(note_role role, const file_key *key)
{
    uint64_t h = 1469598103934665603u ^ (uint64_t)role;
    h = (h ^ (uint64_t)key->device) * 1099511628211u;
    h = (h ^ (uint64_t)key->inode) * 1099511628211u;
    for (const char *c = key->name; *c; c++)
        h = (h ^ (unsigned char)*c) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

static const file_note *find(const cli_guard *guard, note_role role, const file_key *key)
{
    const file_note *at = guard->nbuckets ? guard->buckets[hash(role, key) % guard->nbuckets] : NULL;
    while (at && !(at->role == role && at->key.device == key->device && at->key.inode == key->inode &&
                   strcmp(at->key.name, key->name) == 0))
        at = at->next;
    return at;
}

static bool grow(cli_guard *guard)
{
    size_t n = guard->nbuckets ? 4 * guard->nbuckets : 64;
    file_note **buckets = calloc(n, sizeof *buckets);
    if (!buckets)
        return false;
    for (size_t i = 0; i < guard->nbuckets; i++) {
        for (file_note *at = guard->buckets[i], *next; at; at = next) {
            file_note **bucket = &buckets[hash(at->role, &at->key) % n];
            next = at->next;
            at->next = *bucket;
            *bucket = at;
        }
    }
    free(guard->buckets);
    guard->buckets = buckets;
    guard->nbuckets = n;
    return true;
}

static void free_note(file_note *note)
{
    if (note) {
        free((char *)(uintptr_t)note->key.name);
        free(note->path);
        free(note->from);
    }
    free(note);
}

/* Adds a note, unless there is one with this role and key. Returns false if there is no memory. */
static bool add(cli_guard *guard, note_role role, const file_key *key, const char *path, const char *from)
{
    if (find(guard, role, key))
        return true;
    if (guard->n >= guard->nbuckets && !grow(guard))
        return false;
    file_note *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return false;
    *fresh = (file_note){.role = role, .key = *key, .path = strdup(path), .from = from ? strdup(from) : NULL};
    fresh->key.name = strdup(key->name);
    if (!fresh->key.name || !fresh->path || (from && !fresh->from)) {
        free_note(fresh);
        return false;
    }
    file_note **bucket = &guard->buckets[hash(role, key) % guard->nbuckets];
    fresh->next = *bucket;
    *bucket = fresh;
    guard->n++;
    return true;
}

/* -------------------------------------------------------------------------------------------------- the keys */

static file_key key_of_file(const struct stat *about)
{
    return (file_key){about->st_dev, about->st_ino, ""};
}

/* Removes "", ".", "X/.." and ".." at the start from a path, without looking at links. */
static void simplify(char *path)
{
    char *to = path;
    for (const char *from = path, *end; *from; from = end + (*end == '/')) {
        end = from + strcspn(from, "/");
        size_t length = (size_t)(end - from);
        if (length == 0 || (length == 1 && from[0] == '.'))
            continue;
        if (length == 2 && from[0] == '.' && from[1] == '.') {
            for (to -= to > path; to > path && to[-1] != '/'; to--) {
            }
            continue;
        }
        memmove(to, from, length);
        to += length;
        if (*end == '/')
            *to++ = '/';
    }
    *to = '\0';
}

/* Finds the key of a path that is no symbolic link. *memory holds the name in the key and is freed by the caller.
 * Returns false if there is no memory. */
static bool key_of_path(const char *path, file_key *key, char **memory)
{
    struct stat about;
    size_t length = strlen(path);
    bool found = false;
    char *folder = *memory = strdup(path);
    if (!folder)
        return false;
    while (length > 0 && !found) {
        while (length > 0 && path[length - 1] == '/')
            length--;
        while (length > 0 && path[length - 1] != '/')
            length--;
        folder[length] = '\0';
        found = stat(length ? folder : ".", &about) == 0;
    }
    if (!found && stat(*path == '/' ? "/" : ".", &about) != 0)
        about = (struct stat){0};
    strcpy(folder, path + length); /* NOLINT: a part of the path */
    simplify(folder);
    *key = (struct key){about.st_dev, about.st_ino, folder};
    return true;
}

/* ---------------------------------------------------------------------------------- what the library reports */

static attn_status refuse(attn_context *context, const char *output, const char *input)
{
    return attn__fail(context, ATTN_ERROR_ARGUMENT, "the output %s would overwrite the input %s: choose another output",
                      output, input);
}

static bool is_own(const cli_guard *guard, attn_context *context, const char *path)
{
    struct stat own, folder;
    char *parent = guard->own ? attn__path_parent(context, path) : NULL;
    bool is = parent && stat(guard->own, &own) == 0 && stat(parent, &folder) == 0 && own.st_dev == folder.st_dev &&
              own.st_ino == folder.st_ino;
    attn__free(context, parent);
    return is;
}

static attn_status note_opened(cli_guard *guard, attn_context *context, const char *path, const struct stat *about)
{
    file_key file = key_of_file(about), place;
    char *memory, *target = NULL;
    attn_status status = attn__link_target(&target, context, path);
    if (status != ATTN_OK)
        return status;
    bool enough = key_of_path(target, &place, &memory);
    /* A file that this run has written may be read, and so may the files of the run that is resumed. */
    bool ours = enough && (find(guard, WRITTEN_PATH, &place) || is_own(guard, context, target));
    const file_note *claim = enough && !ours ? find(guard, CLAIMED_FILE, &file) : NULL;
    if (claim)
        status = refuse(context, claim->path, path);
    else if (!ours)
        enough = enough && add(guard, INPUT, &file, path, NULL);
    free(memory);
    attn__free(context, target);
    return enough ? status : attn__fail(context, ATTN_ERROR_MEMORY, no_memory);
}

static attn_status opened(void *user, attn_context *context, const char *path, const struct stat *about)
{
    cli_guard *guard = user;
    pthread_mutex_lock(&guard->lock);
    attn_status status = note_opened(guard, context, path, about);
    pthread_mutex_unlock(&guard->lock);
    return status;
}

static attn_status note_written(cli_guard *guard, attn_context *context, const char *path, const char *target)
{
    struct stat about;
    file_key place;
    char *memory;
    if (!key_of_path(target, &place, &memory))
        return attn__fail(context, ATTN_ERROR_MEMORY, no_memory);
    attn_status status = ATTN_OK;
    if (!find(guard, WRITTEN_PATH, &place)) {
        file_key file = {0};
        bool there = stat(target, &about) == 0;
        if (there)
            file = key_of_file(&about);
        const file_note *input = there ? find(guard, INPUT, &file) : NULL;
        if (input)
            status = refuse(context, path, input->path);
        else if (!add(guard, WRITTEN_PATH, &place, path, NULL))
            status = attn__fail(context, ATTN_ERROR_MEMORY, no_memory);
    }
    free(memory);
    return status;
}

static attn_status writes(void *user, attn_context *context, const char *path, const char *target)
{
    cli_guard *guard = user;
    pthread_mutex_lock(&guard->lock);
    attn_status status = note_written(guard, context, path, target);
    pthread_mutex_unlock(&guard->lock);
    return status;
}

/* ---------------------------------------------------------------------------------------------------- claims */

static attn_status claim(cli_guard *guard, attn_context *context, const char *path, const char *target,
                         const char *from)
{
    struct stat about;
    bool there = stat(target, &about) == 0;
    if (there && !S_ISREG(about.st_mode)) /* a device may be written twice, and a folder is not replaced */
        return ATTN_OK;
    file_key file = {0}, place;
    char *memory;
    if (!key_of_path(target, &place, &memory))
        return attn__fail(context, ATTN_ERROR_MEMORY, no_memory);
    if (there)
        file = key_of_file(&about);
    attn_status status = ATTN_OK;
    const file_note *input = there ? find(guard, INPUT, &file) : NULL, *twice = find(guard, CLAIMED_PATH, &place);
    if (!twice && there)
        twice = find(guard, CLAIMED_FILE, &file);
    /* an input that is given twice has the same result twice */
    bool same = twice && from && twice->from && strcmp(twice->from, from) == 0;
    if (input)
        status = refuse(context, path, input->path);
    else if (same)
        status = ATTN_OK;
    else if (twice && from && twice->from)
        status = attn__fail(context, ATTN_ERROR_ARGUMENT, "the results of %s and %s would both be written to %s",
                            twice->from, from, path);
    else if (twice)
        status = attn__fail(context, ATTN_ERROR_ARGUMENT, "the outputs %s and %s are the same file", twice->path, path);
    else if (!add(guard, CLAIMED_PATH, &place, path, from) || (there && !add(guard, CLAIMED_FILE, &file, path, from)))
        status = attn__fail(context, ATTN_ERROR_MEMORY, no_memory);
    free(memory);
    return status;
}

int cli_claim(const cli_call *cli, const char *path, const char *from)
{
    char *target = NULL;
    ATTN__CALL(cli->context);
    attn_status status = attn__standard_stream(path) >= 0 ? ATTN_OK : attn__link_target(&target, cli->context, path);
    pthread_mutex_lock(&cli->guard->lock);
    if (target)
        status = claim(cli->guard, cli->context, path, target, from);
    pthread_mutex_unlock(&cli->guard->lock);
    attn__free(cli->context, target);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

int cli_claim_in(const cli_call *cli, const char *directory, const char *const *names)
{
    int code = CLI_OK;
    for (int i = 0; names[i] && code == CLI_OK; i++) {
        char *path = attn__join(cli->context, directory, names[i]);
        code = path ? cli_claim(cli, path, NULL) : cli_failed(cli, NULL);
        attn__free(cli->context, path);
    }
    return code;
}

char *cli_path_below_root(const cli_call *cli, const char *path)
{
    char *here = *path == '/' ? NULL : getcwd(NULL, 0);
    char *whole = attn__join(cli->context, here ? here : "", path);
    free(here);
    if (whole)
        simplify(whole);
    return whole;
}

void cli_guard_own(const cli_call *cli, const char *directory)
{
    cli->guard->own = directory;
}

/* ------------------------------------------------------------------------------------------- the command line */

int cli_reads(const cli_call *cli, const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode))
        return CLI_OK;
    file_key file = key_of_file(&about);
    ATTN__CALL(cli->context);
    pthread_mutex_lock(&cli->guard->lock);
    const file_note *claimed = find(cli->guard, CLAIMED_FILE, &file);
    attn_status status = ATTN_OK;
    if (claimed)
        status = refuse(cli->context, claimed->path, path);
    else if (!add(cli->guard, INPUT, &file, path, NULL))
        status = attn__fail(cli->context, ATTN_ERROR_MEMORY, no_memory);
    pthread_mutex_unlock(&cli->guard->lock);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

/* Notes the inputs that a value may name: itself, and the parts of NAME=FILE, PATH=WEIGHT and NAME=FILE:CHAIN. */
static int note_value(const cli_call *cli, const char *text)
{
    const char *equals = strchr(text, '='), *starts[] = {text, equals ? equals + 1 : NULL};
    const char *stops[] = {text + strlen(text), strrchr(text, '='), strrchr(text, ':')};
    int code = CLI_OK;
    for (int i = 0; i < 6 && code == CLI_OK; i++) {
        const char *start = starts[i / 3], *stop = stops[i % 3];
        if (!start || !stop || stop <= start)
            continue;
        char *part = strndup(start, (size_t)(stop - start));
        code = part ? cli_reads(cli, part) : cli_fail(CLI_FAILED, no_memory);
        free(part);
    }
    return code;
}

/* Notes the texts of an option as inputs, or claims them as outputs. */
static int take_option(const cli_call *cli, const cli_option *option, bool claims)
{
    const attn_config_value *value = attn_config_get(cli->given, option->key.name);
    bool many = option->key.type == ATTN_CONFIG_TYPE_TEXTS;
    int64_t n = many ? (value ? value->n : 0) : option->key.type == ATTN_CONFIG_TYPE_TEXT;
    int code = CLI_OK;
    if (option->writes != claims || option->key.choices)
        return CLI_OK;
    for (int64_t i = 0; i < n && code == CLI_OK; i++) {
        const char *text = many ? value->texts[i] : cli_text(cli, option->key.name);
        const char *path = claims && many ? strchr(text, '=') : NULL;
        path = path ? path + 1 : text;
        bool standard = claims && strcmp(path, "-") == 0;
        if (standard && (!option->key.default_text || strcmp(option->key.default_text, "-") != 0))
            code = cli_fail(CLI_BAD, "--%s: the output must be a file, not standard output (-)", option->key.name);
        else if (claims && *path && !standard)
            code = cli_claim(cli, path, NULL);
        else if (!claims)
            code = note_value(cli, text);
    }
    return code;
}

static int note_command_line(const cli_call *cli)
{
    struct stat about;
    cli_option option;
    int code = CLI_OK;
    for (int i = 0; i < cli->nwords && code == CLI_OK; i++)
        code = note_value(cli, cli->words[i]);
    if (code == CLI_OK && fstat(STDIN_FILENO, &about) == 0 && S_ISREG(about.st_mode)) {
        file_key file = key_of_file(&about);
        code = add(cli->guard, INPUT, &file, "on standard input", NULL) ? CLI_OK : cli_fail(CLI_FAILED, no_memory);
    }
    for (int claims = 0; claims < 2; claims++)
        for (int i = 0; code == CLI_OK && cli_option_at(cli->command, i, &option); i++)
            code = take_option(cli, &option, claims);
    return code;
}

int cli_guard_begin(cli_call *cli)
{
    cli->guard = calloc(1, sizeof *cli->guard);
    if (!cli->guard)
        return cli_fail(CLI_FAILED, no_memory);
    pthread_mutex_init(&cli->guard->lock, NULL);
    cli->context->files_user = cli->guard;
    cli->context->opened = opened;
    cli->context->writes = writes;
    return note_command_line(cli);
}

void cli_guard_end(cli_call *cli)
{
    cli_guard *guard = cli->guard;
    if (!guard)
        return;
    cli->context->opened = NULL;
    cli->context->writes = NULL;
    for (size_t i = 0; i < guard->nbuckets; i++) {
        for (file_note *at = guard->buckets[i], *next; at; at = next) {
            next = at->next;
            free_note(at);
        }
    }
    free(guard->buckets);
    pthread_mutex_destroy(&guard->lock);
    free(guard);
    cli->guard = NULL;
}
