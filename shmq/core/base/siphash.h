/* SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: SipHash, a fast short-input
 * PRF, 2012): the names of groups and the dedupe ids, keyed by the queue's id, so that
 * nobody outside can make two of them collide. */
#ifndef SHMQ_BASE_SIPHASH_H
#define SHMQ_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

void shmq_siphash(uint64_t key, const void *bytes, size_t size, uint64_t hash[2]);

#endif
