/* SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: SipHash, a fast short-input PRF, 2012).
 * It hashes group names and dedupe ids with the queue's key, so that no outsider can produce a
 * collision. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The first half of the output alone. */
uint64_t shmq_siphash_first(uint64_t key, const void *bytes, size_t size);

void shmq_siphash(uint64_t key, const void *bytes, size_t size, uint64_t hash[2]);
