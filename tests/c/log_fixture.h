/* Partitions to test: segments in memory that end with the test. */
#pragma once

#include "harness.h"

#include "stream/log.h"

/* A partition with these options, of a ring of 64 KiB unless they say otherwise. */
struct shmq_log *new_log(const struct shmq_log_options *options);
#define NEW_LOG(...) new_log(&(struct shmq_log_options){__VA_ARGS__})

/* One more handle of it, as another process has one. */
struct shmq_log *another_log(struct shmq_log *log);

/* Ends all of them. */
void end_logs(void);

/* Appends a record of `bytes` bytes that are all its number in the partition, modulo 251; its
 * offset. It must succeed. */
uint64_t append_bytes(struct shmq_log *log, uint32_t bytes);

/* Appends as many such records in one piece; the status. */
int append_piece(struct shmq_log *log, uint32_t count, uint32_t bytes, uint64_t *first);

/* The same by the short path of values alone; whether that appended them. */
bool append_short(struct shmq_log *log, uint32_t count, uint32_t bytes, uint64_t *first);

/* Reads up to `limit` records from `offset` on, and checks every byte of them; how many. */
uint64_t read_some(struct shmq_log *log, uint64_t offset, uint64_t limit);

struct shmq_log_bounds bounds_of(struct shmq_log *log);
