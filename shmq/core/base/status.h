/* What the core's functions return. shmq/native/_core.pyx maps each to an exception. */
#ifndef SHMQ_BASE_STATUS_H
#define SHMQ_BASE_STATUS_H

enum shmq_status {
    SHMQ_OK = 0,
    SHMQ_FULL,         /* no slot, or no room in the arena                             */
    SHMQ_EMPTY,        /* no message can be had now                                    */
    SHMQ_TOO_LARGE,    /* can never fit                                                */
    SHMQ_STALE,        /* the receipt, or the slot, is no longer the caller's          */
    SHMQ_DUPLICATE,    /* the dedupe id was taken before                               */
    SHMQ_NO_SPACE,     /* /dev/shm is full                                             */
    SHMQ_DELETED,      /* the queue is gone                                            */
    SHMQ_BUSY,         /* the lock could not be had in the time given                  */
    SHMQ_DAMAGED,      /* the segment contradicts itself                               */
    SHMQ_TRUNCATED,    /* the segment is smaller than it says                          */
    SHMQ_INCOMPATIBLE, /* another layout version                                       */
    SHMQ_NOT_READY,    /* its maker has not finished                                   */
    SHMQ_CROWDED,      /* no attachment is free                                        */
    SHMQ_INTERRUPTED,  /* a signal came during a sleep                                 */
    SHMQ_TIMED_OUT,    /* a sleep ended by itself                                      */
};

#endif
