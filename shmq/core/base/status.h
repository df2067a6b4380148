/* Status codes of the core's functions. shmq/native/_core.pyx maps them to exceptions. */
#pragma once

enum shmq_status {
    SHMQ_OK = 0,
    SHMQ_FULL,         /* no slot, or no room in the arena                             */
    SHMQ_EMPTY,        /* no message is available now                                  */
    SHMQ_TOO_LARGE,    /* can never fit                                                */
    SHMQ_STALE,        /* the receipt, or the slot, is no longer the caller's          */
    SHMQ_DUPLICATE,    /* the dedupe id was taken before                               */
    SHMQ_NO_SPACE,     /* /dev/shm is full                                             */
    SHMQ_DELETED,      /* the queue was deleted                                        */
    SHMQ_BUSY,         /* the lock was not free within the given time                  */
    SHMQ_DAMAGED,      /* the segment contradicts itself                               */
    SHMQ_TRUNCATED,    /* the segment is smaller than its header says                  */
    SHMQ_INCOMPATIBLE, /* another layout version                                       */
    SHMQ_NOT_READY,    /* its creator has not finished                                 */
    SHMQ_CROWDED,      /* no entry is free                                             */
    SHMQ_INTERRUPTED,  /* a signal came during a sleep                                 */
    SHMQ_TIMED_OUT,    /* a sleep reached its timeout                                  */
    SHMQ_INHERITED,    /* the lock was taken from a dead holder: repair what it guards */
    SHMQ_UNREGISTERED, /* this process has no number in the namespace, so takes no lock */
    SHMQ_FENCED,       /* another process acts for the name now                        */
    SHMQ_UNCLAIMED,    /* no process acts for the name                                 */
};
