/* Answers that policy gives later: to what waits, and to what is promised. */
#include <string.h>

#include "server/server.h"
#include "wire_host.h"

#define WAITS SHMQ_T_LIST
#define PROMISED SHMQ_T_STREAM_LIST
#define MINUTE (60 * SECOND)

static struct shmq_session *begin(void)
{
    host_begin(false);
    host.late = true;
    return host_session(false);
}

static void end(struct shmq_session *session)
{
    shmq_session_end(session);
    host.late = false;
    host_end();
}

static void ask(struct shmq_session *session, uint8_t type, uint32_t id)
{
    size_t size;
    unsigned char *at = shmq_session_space(session, &size);

    CHECK(at && size >= SHMQ_FRAME_HEADER);
    (void)shmq_frame_write(at, type, 0, id, 0);
    shmq_session_received(session, SHMQ_FRAME_HEADER);
    host_settle();
}

/* The id of the next frame that was sent; 0: none was. Its status is left in `status`. */
static uint32_t answered(struct shmq_session *session, uint16_t *status)
{
    struct iovec piece;
    struct shmq_frame frame;

    if (!shmq_outbox_pieces(&session->out, &piece, 1))
        return 0;
    CHECK(piece.iov_len >= SHMQ_FRAME_HEADER);
    CHECK_EQ(shmq_frame_read(piece.iov_base, &frame), SHMQ_S_OK);
    *status = frame.status;
    shmq_session_sent(session, SHMQ_FRAME_HEADER + frame.length);
    return frame.id;
}

TEST("what waits holds nothing back, and is answered when policy says so")
{
    struct shmq_session *session = begin();
    uint16_t status;

    ask(session, WAITS, 1);
    ask(session, WAITS, 2);
    ask(session, SHMQ_T_PING, 3);
    CHECK_EQ(answered(session, &status), 3);
    CHECK_EQ(answered(session, &status), 0);
    shmq_answer_late(session, 2, SHMQ_S_QUEUE_FULL, "why", 3);
    CHECK_EQ(answered(session, &status), 2);
    CHECK_EQ(status, SHMQ_S_QUEUE_FULL);
    shmq_answer_late(session, 1, SHMQ_S_OK, NULL, 0);
    CHECK_EQ(answered(session, &status), 1);
    end(session);
}

TEST("what is promised is answered in its order, whatever becomes ready first")
{
    struct shmq_session *session = begin();
    uint64_t first;
    uint16_t status;

    ask(session, PROMISED, 1);
    first = host.ticket;
    ask(session, PROMISED, 2);
    ask(session, SHMQ_T_PING, 3);
    CHECK_EQ(answered(session, &status), 3);
    shmq_durable_reply_settle(session, host.ticket, SHMQ_S_OK, "second", 6);
    CHECK_EQ(answered(session, &status), 0);
    shmq_durable_reply_settle(session, first, SHMQ_S_NO_SPACE, NULL, 0);
    CHECK_EQ(answered(session, &status), 1);
    CHECK_EQ(status, SHMQ_S_NO_SPACE);
    CHECK_EQ(answered(session, &status), 2);
    shmq_durable_reply_settle(session, first, SHMQ_S_OK, NULL, 0); /* it was kept already */
    CHECK_EQ(answered(session, &status), 0);
    end(session);
}

TEST("once the peer sends no more, what waits is not answered, and what is promised is")
{
    struct shmq_session *session = begin();
    uint16_t status;

    ask(session, WAITS, 1);
    ask(session, PROMISED, 2);
    shmq_session_finish(session);
    CHECK(!shmq_session_is_ending(session));
    shmq_answer_late(session, 1, SHMQ_S_OK, NULL, 0);
    CHECK_EQ(answered(session, &status), 0);
    shmq_durable_reply_settle(session, host.ticket, SHMQ_S_OK, "done", 4);
    CHECK_EQ(answered(session, &status), 2);
    CHECK(shmq_session_is_ending(session));
    end(session);
}

TEST("a connection that waits is not idle, and one that does not is")
{
    struct shmq_session *session = begin();
    uint16_t status;

    ask(session, WAITS, 1);
    now += 6 * MINUTE;
    shmq_clock_set = now;
    (void)shmq_engine_tick(&host.engine, now);
    CHECK_EQ(answered(session, &status), 0);
    shmq_answer_late(session, 1, SHMQ_S_OK, NULL, 0);
    CHECK_EQ(answered(session, &status), 1);
    now += 6 * MINUTE;
    shmq_clock_set = now;
    (void)shmq_engine_tick(&host.engine, now);
    CHECK_EQ(answered(session, &status), 0); /* the id of what nobody has asked for */
    CHECK_EQ(status, SHMQ_S_TIMED_OUT);
    end(session);
}

TEST("no more than a connection may have wait")
{
    struct shmq_session *session = begin();
    uint16_t status;

    for (uint32_t id = 1; id <= SHMQ_WAITERS; id++)
        ask(session, WAITS, id);
    CHECK_EQ(answered(session, &status), 0);
    ask(session, WAITS, SHMQ_WAITERS + 1);
    CHECK_EQ(answered(session, &status), SHMQ_WAITERS + 1);
    CHECK_EQ(status, SHMQ_S_BAD_REQUEST);
    end(session);
}
