/* Queues to test: segments in memory, between guard areas, that end with the test.
 *
 * Tests of one thread hold the lock from new_queue on, as the functions they call ask
 * for; tests of more begin with shmq_unlock. Time stands still at `now` until a test
 * moves it. */
#pragma once

#include "harness.h"

#include "queue/recover.h"
#include "queue/message.h"
#include "queue/transfer.h"
#include "queue/queue.h"

#define SECOND 1000000000ll
#define PROCESS 100 /* the process number of handle `n` is PROCESS + n */

extern int64_t now;

/* A queue with these options, and a handle that is attached to it. Zero is a default:
 * capacity 64, arena_bytes 64 KiB, visibility 30 s, priorities 3, bodies as large as the
 * arena. */
struct shmq_queue *new_queue(const struct shmq_options *options);
#define NEW_QUEUE(...) new_queue(&(struct shmq_options){__VA_ARGS__})

/* One more handle of the same queue. */
struct shmq_queue *another_handle(struct shmq_queue *q);

/* A handle of the queue, bound but not attached. */
struct shmq_queue *bare_handle(struct shmq_queue *q);

/* The machine has no memory left for the queue; it has some again. */
void starve(struct shmq_queue *q);
void feed(struct shmq_queue *q);

/* ---- a word for each step ---- */

/* Puts `text`; its sequence number. */
uint64_t put_text(struct shmq_queue *q, const char *text);

/* Puts a message of `bytes` bytes, which must succeed; its sequence number. */
uint64_t put_bytes(struct shmq_queue *q, uint64_t bytes);

/* Puts what the fields of struct shmq_put say, at `now`; the status. */
int put_status(struct shmq_queue *q, const struct shmq_put *put, uint64_t *seq);
#define PUT(q, ...) put_checked(q, &(struct shmq_put){__VA_ARGS__})
uint64_t put_checked(struct shmq_queue *q, const struct shmq_put *put);

/* Leases the next message as handed out; there must be one. */
struct shmq_view take_next(struct shmq_queue *q);

/* The sequence number of the next message, leased; 0 if there is none. */
uint64_t next_seq(struct shmq_queue *q);

/* Leases and acknowledges what is there: how many. */
uint64_t drain(struct shmq_queue *q);

/* Space for a body of `bytes`, to be filled. */
struct shmq_view reserve(struct shmq_queue *q, uint64_t bytes);

/* Checks that the receipt is good for nothing, and that trying changes nothing. */
void refuse(struct shmq_queue *q, uint64_t receipt);

bool body_is(const struct shmq_view *view, const char *text);

enum shmq_state state_at(struct shmq_queue *q, uint32_t at);
