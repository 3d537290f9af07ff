/* SPDX-License-Identifier: MIT
 *
 * cgroup.h - the CPU time that Linux's control groups (a container's limit, a service's CPUQuota) leave to this
 * process, and its share of the cores among those that mpirun started.
 */
#ifndef ATTN_BASE_CGROUP_H
#define ATTN_BASE_CGROUP_H

/* Returns the smallest CPU quota of the process's group and its parent groups, in cores, rounded up. Returns 0 if there
 * is no quota or the quota is unknown. Reads ROOT/proc/self/cgroup, and the files that it names below
 * ROOT/sys/fs/cgroup (versions 1 and 2). Root is "" except in tests. */
int attn__cgroup_cores(const char *root);

/* Returns this process's share of the cores if mpirun started several processes here without binding them. `usable` is
 * the number of cores in the affinity mask, and `quota` the cgroup's limit (0: unlimited). The share is at least 1. */
int attn__process_cores(int usable, int quota);

#endif
