/* The processes of a namespace, and which of them live.
 *
 * A process has a number in its namespace, which is never reused. For as long as it lives it has a
 * record lock (fcntl(2)) on the byte of that number in the namespace's file, which Python opens and
 * locks: shmq/host/namespace/namespace.py. The kernel releases the lock at the process's death and keeps
 * it across PID namespaces. A process loses all its record locks when it closes any descriptor of
 * the file, so the core neither opens nor closes that file. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Numbers of processes begin here: the bytes before have other locks. */
#define SHMQ_FIRST_PROCESS ((1ull << 60) + 2)

/* This process in one namespace. Private memory, filled in by Python, and never freed. In the child
 * of a fork `number` is 0 until the child has one of its own: it has none of the parent's locks. */
struct shmq_process {
    _Atomic uint64_t number; /* stored last; 0: it has none                            */
    _Atomic uint64_t first;  /* the first number of the namespace's file               */
    _Atomic int fd;          /* the namespace's file, whose first 8 bytes are the next
                                number; closed only while `number` is 0                */
};

/* This process's number, if the namespace's file has not been removed by hand; else 0. */
uint64_t shmq_current_number(const struct shmq_process *self);

/* Whether the process of that number is dead. False also if that is unknown: without a number
 * of our own, or if the number is from another file, because someone removed this one or the one
 * before it by hand. No process ever had a number before SHMQ_FIRST_PROCESS. */
bool shmq_has_died(const struct shmq_process *self, uint64_t number);

/* The PID of the process of that number, as this process's PID namespace has it; 0 if it has none
 * here, or is dead. */
uint32_t shmq_pid_of(const struct shmq_process *self, uint64_t number);

/* Whether a thread of that process runs, or waits for a CPU or a disk, so that it will continue by
 * itself. A stopped process will not. True for the caller's own, and for one that lives and has no PID here. */
bool shmq_is_at_work(const struct shmq_process *self, uint64_t number);
