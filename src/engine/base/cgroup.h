/* SPDX-License-Identifier: MIT
 *
 * cgroup.h - the number of cores that this process may use. The number is limited by Linux's control groups (a
 * container's limit, a service's CPUQuota) and by the other processes that mpirun started on this machine.
 */
#ifndef ATTN_BASE_CGROUP_H
#define ATTN_BASE_CGROUP_H

/* Returns the smallest CPU quota of the process's group and its parent groups, in cores, rounded up. Returns 0 if there
 * is no quota or the quota is unknown. Reads ROOT/proc/self/cgroup, and the files of the groups listed there, below
 * ROOT/sys/fs/cgroup (versions 1 and 2 of cgroups). `root` is "" except in tests. */
int attn__cgroup_cores(const char *root);

/* Returns this process's share of the cores if mpirun started several processes on this machine without binding them
 * to cores. `usable` is the number of cores in the affinity mask. `quota` is the cgroup's limit in cores (0:
 * unlimited). The share is at least 1. */
int attn__process_cores(int usable, int quota);

#endif
