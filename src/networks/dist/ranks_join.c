/* SPDX-License-Identifier: MIT
 * Detects whether mpirun started this process, and opens the module for MPI.
 */
#include "dist/ranks.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef ATTN_MODULE_DIR
#define ATTN_MODULE_DIR "/usr/local/lib/attn"
#endif
#ifndef ATTN_MODULE_FROM_BIN
#define ATTN_MODULE_FROM_BIN "../lib/attn"
#endif
static const char module_name[] = "attn-mpi.so";

/* Returns the value, as a number, of the first variable in the list that is set. Returns 0 if none is set. */
static long number_in(const char *const *names)
{
    for (; *names; names++) {
        const char *value = getenv(*names);
        if (value && *value)
            return strtol(value, NULL, 10);
    }
    return 0;
}

/* Returns the number of processes that the launcher started, or 0 if there was no launcher. Supports Open MPI,
 * MPICH, MPIs derived from MPICH, and PMIx. */
static long launched(void)
{
    static const char *const own[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", NULL};
    /* PMIx itself does not give the number of processes in an environment variable, but srun and flux run, which use
     * PMIx, do. */
    static const char *const with_pmix[] = {"SLURM_STEP_NUM_TASKS", "FLUX_JOB_SIZE", "SLURM_NTASKS", NULL};
    long size = number_in(own);
    if (size > 0 || !getenv("PMIX_RANK"))
        return size;
    size = number_in(with_pmix);
    return size > 0 ? size : LONG_MAX;
}

/* Writes path i of the paths where the MPI module is looked for. These are the user's setting, the folder of the
 * program, a folder relative to that folder (in an unpacked archive), and the folder of the installation. After the
 * last path it writes "". */
static void candidate(int i, char path[PATH_MAX])
{
    const char *given = getenv("ATTN_MPI_MODULE");
    char program[PATH_MAX / 2];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = '\0';
    path[0] = '\0';
    if (given && *given)
        snprintf(path, PATH_MAX, "%s", i == 0 ? given : "");
    else if (i == 0)
        snprintf(path, PATH_MAX, "%s/%s", program, module_name);
    else if (i == 1)
        snprintf(path, PATH_MAX, "%s/%s/%s", program, ATTN_MODULE_FROM_BIN, module_name);
    else if (i == 2)
        snprintf(path, PATH_MAX, "%s/%s", ATTN_MODULE_DIR, module_name);
}

static attn_status open_module(attn_context *context, const attn__ranks_ops **ops)
{
    char path[PATH_MAX], why[300] = "not found";
    void *module = NULL;
    for (int i = 0; !module; i++) {
        candidate(i, path);
        if (!path[0])
            break;
        /* RTLD_GLOBAL is needed because Open MPI's plug-ins search the global symbols for MPI's functions. */
        if (access(path, R_OK) == 0 && !(module = dlopen(path, RTLD_NOW | RTLD_GLOBAL)))
            snprintf(why, sizeof why, "%s", dlerror());
    }
    if (!module)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "mpirun started this process, but %s cannot be loaded: %s",
                          module_name, why);
    void *symbol = dlsym(module, ATTN__RANKS_ENTRY);
    attn__ranks_entry entry;
    memcpy(&entry, &symbol, sizeof entry); /* ISO C cannot convert an object pointer to a function pointer */
    *ops = entry ? entry() : NULL;
    if (*ops && (*ops)->version == ATTN__RANKS_VERSION)
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED, "%s belongs to another version of attn", path);
}

attn_status attn_ranks_join(attn_context *context)
{
    const attn__ranks_ops *ops = NULL;
    long size = launched();
    if (context->ranks || size < 2)
        return ATTN_OK;
    attn_status status = open_module(context, &ops);
    if (status != ATTN_OK || !ops)
        return status;
    status = attn__ranks_join_with(context, ops);
    if (status != ATTN_OK || size == LONG_MAX || attn_ranks_size(context) == size)
        return status;
    /* If mpirun started several processes but MPI finds another number, the program uses another MPI than mpirun. This
     * is an error, because each process would then train alone and write to the same directory. */
    int found = attn_ranks_size(context);
    attn_ranks_leave(context);
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                      "mpirun started %ld processes, but %s finds %d; %s must be built for mpirun's MPI", size,
                      ops->name, found, module_name);
}
