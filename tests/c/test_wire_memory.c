/* What a session takes of memory, and what becomes of it where there is none. */
#include "wire_host.h"

#include <string.h>

#include "server/requests.h"

/* The sanitizers' allocators stay as they are: they need no such test. Nor does musl, which has no
 * other name for its own. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || !defined __GLIBC__
#define OWN_REALLOC 0
#else
#define OWN_REALLOC 1
#endif

#define PING_BYTES 64u
#define PINGS 100u
#define LARGE (40u << 10) /* a body that is sent in place                                */
#define SMALL 3000u       /* of two, one fits into an outbox that is new                 */

static unsigned char frames[1 << 17];

static void feed_all(struct shmq_session *session, size_t bytes)
{
    size_t room = 0;
    unsigned char *space = shmq_session_space(session, &room);

    CHECK(space && room >= bytes);
    memcpy(space, frames, bytes);
    shmq_session_received(session, bytes);
}

static size_t pings(void)
{
    unsigned char *at = frames;

    for (uint32_t i = 0; i < PINGS; i++) {
        at = shmq_frame_write(at, SHMQ_T_PING, 0, i + 1, PING_BYTES);
        memset(at, 'p', PING_BYTES);
        at += PING_BYTES;
    }
    return (size_t)(at - frames);
}

TEST("a peer that asks on, and never reads all of the answers, makes nothing grow")
{
    struct shmq_session *session;
    size_t bytes = pings();

    host_begin(false);
    session = host_session(false);
    for (int round = 0; round < 2000; round++) {
        feed_all(session, bytes);
        shmq_session_sent(session, shmq_pending(&session->out) - 1);
    }
    CHECK(session->out.room < 512u << 10);
    host_end();
}

#if OWN_REALLOC

extern void *__libc_realloc(void *was, size_t size);

static bool none_left;

void *realloc(void *was, size_t size) { return none_left ? NULL : __libc_realloc(was, size); }

/* A PRODUCE to "c". */
static unsigned char *write_produce(unsigned char *at, uint32_t body)
{
    at = shmq_frame_write(at, SHMQ_T_PRODUCE, 0, 1, 4 + body);
    memcpy(at, "\0\1c", 4);
    memset(at + 4, 'b', body);
    return at + 4 + body;
}

static struct shmq_session *subscriber(void)
{
    struct shmq_session *session = host_session(false);
    unsigned char *at = shmq_frame_write(frames, SHMQ_T_SUBSCRIBE, 0, 1, 8);

    memcpy(at, "\0\1c\0\0\0\12\0", 8);
    feed_all(session, SHMQ_FRAME_HEADER + 8);
    shmq_engine_settle(&host.engine);
    shmq_session_sent(session, shmq_pending(&session->out));
    CHECK_EQ(session->unsettled, 1); /* the one that was there */
    while (shmq_engine_next_pending(&host.engine))
        continue;
    return session;
}

/* Two messages come, and there is no memory to send them. */
static void check_that_they_go_back(uint32_t body)
{
    struct shmq_session *session, *other;
    unsigned char *at;

    host_begin(false);
    session = subscriber();
    other = host_session(false);
    at = write_produce(write_produce(frames, body), body);
    feed_all(other, (size_t)(at - frames));
    none_left = true;
    (void)shmq_attached_queue_serve(host.waiting[2]);
    none_left = false;
    CHECK(session->broken);
    CHECK(shmq_engine_next_pending(&host.engine) == session);
    shmq_session_end(session);
    shmq_engine_settle(&host.engine);
    CHECK_EQ(host.queues[2]->h->visible, 3);
    host_end();
}

TEST("a session that has no memory for a body ends, and its messages go back at once")
{
    check_that_they_go_back(LARGE);
}

TEST("so does one that has none for a message") { check_that_they_go_back(SMALL); }

#endif
