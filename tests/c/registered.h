/* This process, registered in a namespace's file of the test's own, as Python does it. */
#pragma once

#include "base/process.h"

/* Registers the process at the first call. The child of a fork gets a number of its own. */
struct shmq_process *registered(void);

/* The number that the next process will get. */
uint64_t next_number(void);

/* A number that was given out, of a process that is dead. */
uint64_t dead_number(void);
