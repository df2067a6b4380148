#include "wire_answers.h"

#include <string.h>

#include "base/msgpack.h"

#define FIXED 20u /* bytes of a DELIVER before its properties */

void answers_begin(struct answers *answers, unsigned char bytes[MOST_PENDING])
{
    memset(answers, 0, sizeof *answers);
    answers->bytes = bytes;
}

void answers_expect(struct answers *answers, const struct due *due)
{
    if (answers->unknown)
        return;
    if (answers->due_count == MOST_DUE || answers->subscription_count == MOST_DUE) {
        answers->unknown = true;
        return;
    }
    answers->due[answers->due_count++] = *due;
}

/* ---- whether a frame was due ---- */

static void strike(struct answers *answers, uint32_t at)
{
    answers->due_count--;
    memmove(&answers->due[at], &answers->due[at + 1],
            (answers->due_count - at) * sizeof *answers->due);
}

static bool is_subscription(const struct answers *answers, uint32_t id)
{
    for (uint32_t i = 0; i < answers->subscription_count; i++)
        if (answers->subscriptions[i] == id)
            return true;
    return false;
}

static void end_subscription(struct answers *answers, uint32_t id)
{
    for (uint32_t i = 0; i < answers->subscription_count; i++)
        if (answers->subscriptions[i] == id) {
            answers->subscriptions[i] = answers->subscriptions[--answers->subscription_count];
            return;
        }
    CHECK(!"a subscription that is none has ended");
}

/* The request that the frame answers: none that does not wait may stand before it. */
static int find_due(const struct answers *answers, uint32_t id)
{
    bool first = true;

    for (uint32_t i = 0; i < answers->due_count; i++) {
        const struct due *due = &answers->due[i];

        if (due->id == id) {
            CHECK(first || due->may_wait);
            return (int)i;
        }
        first = first && due->may_wait;
    }
    return -1;
}

static void was_due(struct answers *answers, const struct shmq_frame *frame)
{
    int at = find_due(answers, frame->id);
    struct due *due;

    if (at < 0) {
        CHECK(is_subscription(answers, frame->id));
        if (frame->type == SHMQ_T_REPLY) {
            CHECK(frame->status == SHMQ_S_NO_QUEUE || frame->status == SHMQ_S_INTERNAL ||
                  frame->status == SHMQ_S_SHUTTING_DOWN);
            end_subscription(answers, frame->id);
        }
        return;
    }
    due = &answers->due[at];
    if (frame->type == SHMQ_T_DELIVER) {
        CHECK(due->type == SHMQ_T_CONSUME || due->type == SHMQ_T_PEEK);
        due->series = frame->status == SHMQ_FRAME_MORE;
        if (due->series)
            return;
    } else {
        CHECK(!due->series);
        if (due->type == SHMQ_T_SUBSCRIBE && frame->status == SHMQ_S_OK)
            answers->subscriptions[answers->subscription_count++] = frame->id;
        if (due->type == SHMQ_T_UNSUBSCRIBE && frame->status == SHMQ_S_OK)
            end_subscription(answers, due->target);
    }
    strike(answers, (uint32_t)at);
}

/* ---- whether it is one ---- */

static void read_deliver(const struct shmq_frame *frame, const unsigned char *payload,
                         answers_receipt *receipt)
{
    struct shmq_reader r = {payload, payload + frame->length, false};
    uint64_t sequence, receipt_read;
    uint32_t bytes;
    uint8_t flags;

    CHECK(frame->status == SHMQ_S_OK || frame->status == SHMQ_FRAME_MORE);
    CHECK(frame->length >= FIXED);
    sequence = shmq_read64(&r);
    receipt_read = shmq_read64(&r);
    CHECK(sequence && shmq_read16(&r));
    CHECK(shmq_read8(&r) < 16);
    flags = shmq_read8(&r);
    CHECK(!(flags & ~(SHMQ_FLAG_PROPERTIES | SHMQ_FLAG_REDELIVERED)));
    if (flags & SHMQ_FLAG_PROPERTIES) {
        const unsigned char *properties;

        bytes = shmq_read32(&r);
        properties = shmq_read_bytes(&r, bytes);
        CHECK(properties && shmq_msgpack_is_map(properties, bytes));
    }
    if (receipt_read)
        receipt(receipt_read);
}

static bool is_status(uint16_t status)
{
    return status <= SHMQ_S_DAMAGED || (status >= SHMQ_S_BAD_MAGIC && status <= SHMQ_S_TIMED_OUT);
}

static void read_frame(struct answers *answers, const struct shmq_frame *frame,
                       const unsigned char *payload, answers_receipt *receipt)
{
    CHECK(!answers->fatal);
    CHECK(frame->type == SHMQ_T_REPLY || frame->type == SHMQ_T_DELIVER);
    if (frame->type == SHMQ_T_DELIVER)
        read_deliver(frame, payload, receipt);
    else
        CHECK(is_status(frame->status));
    if (frame->status == SHMQ_S_LEASE_EXPIRED)
        CHECK(frame->length && frame->length % 8 == 0);
    answers->fatal = frame->status >= SHMQ_S_BAD_MAGIC;
    if (frame->status == SHMQ_S_BAD_MAGIC || frame->status == SHMQ_S_TIMED_OUT)
        CHECK_EQ(frame->id, 0);
    answers->count++;
    answers->last_status = frame->status;
    answers->last_bytes = frame->length;
    memcpy(answers->last, payload, frame->length < 16 ? frame->length : 16);
    if (!answers->unknown && !answers->fatal && frame->id)
        was_due(answers, frame);
}

void answers_read(struct answers *answers, const void *bytes, size_t size, answers_receipt *receipt)
{
    size_t at = 0;

    CHECK(answers->used + size <= MOST_PENDING);
    if (size)
        memcpy(answers->bytes + answers->used, bytes, size);
    answers->used += size;
    while (answers->used - at >= SHMQ_FRAME_HEADER) {
        struct shmq_frame frame;

        CHECK_EQ(shmq_frame_read(answers->bytes + at, &frame), SHMQ_S_OK);
        if (answers->used - at - SHMQ_FRAME_HEADER < frame.length)
            break;
        read_frame(answers, &frame, answers->bytes + at + SHMQ_FRAME_HEADER, receipt);
        at += SHMQ_FRAME_HEADER + frame.length;
    }
    answers->used -= at;
    memmove(answers->bytes, answers->bytes + at, answers->used);
}

void answers_check_settled(const struct answers *answers)
{
    CHECK_EQ(answers->used, 0);
    if (answers->unknown || answers->fatal)
        return;
    for (uint32_t i = 0; i < answers->due_count; i++)
        CHECK(answers->due[i].may_wait);
}
