/* Descriptors 0, 1 and 2 belong to the program. The kernel assigns the lowest free number, so a
 * file opened while one of them is closed would receive whatever the program later prints. */
#pragma once

/* Occupies those of 0, 1 and 2 that are closed. Call it before everything that opens a descriptor.
 * The placeholder has O_PATH and O_CLOEXEC: reads, writes and polls still fail with EBADF, and
 * programs that are executed still get a closed descriptor. It stays, because a placeholder that is
 * closed later could be a file of the program by then (dup2(2)). */
void shmq_reserve_standard(void);
