/* Futexes in shared memory: sleeping while a word has a value, and waking the sleepers. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define SHMQ_BLIND_SLEEP 20000000ll  /* ns: a slice if one of the words cannot wake      */

/* Sleeps while *word == value, at most `ns`. SHMQ_OK: woken, or the value differs. */
int shmq_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns);

/* The same for two words: sleeps while both have these values. Where the kernel cannot do that, it
 * sleeps on the first one for SHMQ_BLIND_SLEEP at most. */
int shmq_futex_wait_two(_Atomic uint32_t *const words[2], const uint32_t values[2], int64_t ns);

/* Wakes all threads that sleep so. */
void shmq_futex_wake(_Atomic uint32_t *word);

/* The same for threads that sleep for different reasons, each with some of 32 bits: a wakeup reaches
 * those that have one of its bits. A process that wakes raises the word first. */
int shmq_futex_wait_bits(_Atomic uint32_t *word, uint32_t value, uint32_t bits, int64_t ns);
void shmq_futex_wake_bits(_Atomic uint32_t *word, uint32_t bits);
