/* SPDX-License-Identifier: MIT */
#include "base/cgroup.h"

#include "base/integers.h"
#include "base/system.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the first line of the file DIR/NAME. Returns false if the file does not exist or is empty. */
static bool first_line(const char *dir, const char *name, char line[64])
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = length < (int)sizeof path ? fopen(path, "r") : NULL;
    bool read = file && fgets(line, 64, file);
    if (file)
        fclose(file);
    return read;
}

/* Converts a quota to whole cores, rounded up. The process may use `quota` microseconds of CPU time in each `period`
 * microseconds. Returns 0 if either value means that there is no limit. */
static int cores_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    return (int)attn__min(quota / period + (quota % period > 0), INT_MAX);
}

static int quota_of_v2(const char *dir)
{
    char line[64];
    long long quota, period;
    if (!first_line(dir, "cpu.max", line) || sscanf(line, "%lld %lld", &quota, &period) != 2) /* "max" means no limit */
        return 0;
    return cores_of(quota, period);
}

static int quota_of_v1(const char *dir)
{
    char quota[64], period[64];
    if (!first_line(dir, "cpu.cfs_quota_us", quota) || !first_line(dir, "cpu.cfs_period_us", period))
        return 0;
    return cores_of(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

/* Returns the smaller of two limits, where 0 means no limit. */
static int least_limit(int a, int b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Returns the smallest CPU limit of the group and its parents up to the root of the hierarchy. Directories that do not
 * exist are skipped, because in a container the group's path may be a path of the host. */
static int quota_up(const char *mount, const char *group, int (*quota_of)(const char *dir))
{
    char dir[PATH_MAX];
    size_t root = strlen(mount);
    int cores = 0;
    if (snprintf(dir, sizeof dir, "%s%s", mount, group) >= (int)sizeof dir)
        return 0;
    for (;;) {
        cores = least_limit(cores, quota_of(dir));
        char *slash = strrchr(dir + root, '/');
        if (!slash)
            return cores;
        *slash = '\0';
    }
}

/* Returns whether "cpu" is in a list like "cpu,cpuacct". */
static bool names_cpu(const char *list)
{
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == 3 && strncmp(list, "cpu", 3) == 0)
            return true;
    return false;
}

/* Returns the limit for a line of /proc/self/cgroup, which is "4:cpu,cpuacct:/group" in version 1 and "0::/group" in
 * version 2. */
static int quota_of_line(const char *root, char *line)
{
    char mount[PATH_MAX];
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group || strlen(root) > PATH_MAX / 4 || strlen(line) > PATH_MAX / 4)
        return 0;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    controllers++;
    if (!*controllers) {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
        return quota_up(mount, group, quota_of_v2);
    }
    if (!names_cpu(controllers))
        return 0;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controllers);
    int cores = quota_up(mount, group, quota_of_v1);
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
    return least_limit(cores, quota_up(mount, group, quota_of_v1));
}

int attn__cgroup_cores(const char *root)
{
    char path[PATH_MAX], line[PATH_MAX];
    int cores = 0;
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        cores = least_limit(cores, quota_of_line(root, line));
    fclose(file);
    return cores;
}

/* Returns how many processes the launcher started on this machine. Returns 1 if there is no launcher or the number
 * is unknown. */
static int launched_here(void)
{
    static const char *const counts[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *value = getenv(counts[i]);
        long here = value ? strtol(value, NULL, 10) : 0;
        if (here > 1)
            return (int)attn__min(here, INT_MAX);
    }
    return 1;
}

int attn__process_cores(int usable, int quota)
{
    int here = launched_here();
    /* If the launcher has bound this process to some cores, `usable` is already its share and is not divided. The
     * quota is always divided, because all processes share one quota. */
    int cores = usable == attn__online_cores() ? usable / here : usable;
    if (quota > 0)
        cores = (int)attn__min(cores, quota / here);
    return (int)attn__max(cores, 1);
}
