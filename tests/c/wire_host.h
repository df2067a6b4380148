/* An engine to test, with queues in memory behind it: what policy would answer is answered
 * here in a few lines.
 *
 * The queues "a", "b" and "c" are made once. host_begin puts them back to what they were
 * then, so that a test costs no new segment: it can be run millions of times. */
#pragma once

#include "fixture.h"
#include "server/engine.h"

#define HOST_QUEUES 3

struct host {
    struct shmq_engine engine;
    struct shmq_queue *queues[HOST_QUEUES];    /* the engine's handles                    */
    struct shmq_queue *others[HOST_QUEUES];    /* of another process, which lives        */
    struct shmq_attached_queue *waiting[HOST_QUEUES]; /* hooks->wait was called                 */
    struct shmq_attached_queue *filtered[HOST_QUEUES]; /* the same for those who are filtered    */
    struct shmq_attached_queue
        *confirming[HOST_QUEUES]; /* hooks->confirm was called              */
    uint32_t views[HOST_QUEUES];
    bool deleted[HOST_QUEUES];
    bool damaged[HOST_QUEUES];
    bool late; /* requests about streams are answered later, by the test        */
    uint64_t ticket; /* of the last one that was promised                             */
};

extern struct host host;

/* All as it was; `token`: one is asked for, and a HELLO that has a "token" is OK. */
void host_begin(bool token);

/* Ends the engine, and checks that nothing is leased, written or pinned any more, and that
 * the queues are sound. */
void host_end(void);

/* What the one who runs an engine does after each call. */
void host_settle(void);

/* Does what is due in the queues at `now`. */
void host_tick_queues(void);

/* A session of weak rights may only put into "a", take from "b", and know nothing of "c". */
struct shmq_session *host_session(bool weak);

/* Deletes queue `at`, as another process would. */
void host_delete(uint32_t at);

/* A number that changes with whatever a request could change in the queues. */
uint64_t host_digest(void);
