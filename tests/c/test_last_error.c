/* The error of a failed delivery: its parts, and its truncation. */
#include "fixture.h"

#include "base/endian.h"
#include "base/msgpack.h"
#include "queue/alter.h"
#include "queue/last_error.h"
#include "queue/segment.h"

#include <stdlib.h>
#include <string.h>

static unsigned char packed[1 << 18], fit[SHMQ_ERROR_BYTES];
static size_t used;

static void add(const char *key, const char *text, size_t times)
{
    size_t size = strlen(text);

    packed[0]++;
    packed[used++] = (unsigned char)(0xA0 | strlen(key));
    memcpy(packed + used, key, strlen(key));
    used += strlen(key);
    packed[used] = 0xDB;
    shmq_store32(packed + used + 1, (uint32_t)(size * times));
    used += 5;
    while (times--) {
        memcpy(packed + used, text, size);
        used += size;
    }
}

/* {"at": a time, "line": "ValueError" and the text, "type": "ValueError", "trace": the trace}. */
static struct shmq_text error_of(const char *text, size_t times, const char *trace, size_t frames)
{
    packed[0] = 0x80;
    used = 1;
    packed[0]++;
    memcpy(packed + used,
           "\xA2"
           "at\xCF\x01\x02\x03\x04\x05\x06\x07\x08",
           12);
    used += 12;
    add("line", text, times);
    if (!strncmp(text, "ValueError", 10))
        add("type", "ValueError", 1);
    if (frames)
        add("trace", trace, frames);
    return (struct shmq_text){packed, (uint32_t)used};
}

/* Truncates it into a buffer that ends where the limit does, as the sanitizers check. */
static struct shmq_text fit_in(struct shmq_text error, uint32_t most)
{
    unsigned char *to = malloc(most ? most : 1);
    struct shmq_text made = shmq_fit_error(error, most, to);

    CHECK(made.bytes <= most);
    if (made.at == to) {
        CHECK(shmq_msgpack_is_map(made.at, made.bytes));
        memcpy(fit, made.at, made.bytes);
        made.at = fit;
    }
    free(to);
    return made;
}

static bool contains(struct shmq_text bytes, const char *text)
{
    for (uint32_t at = 0; at + strlen(text) <= bytes.bytes; at++)
        if (!memcmp(bytes.at + at, text, strlen(text)))
            return true;
    return false;
}

TEST("an error that fits is unchanged, and a longer one is truncated")
{
    struct shmq_text error = error_of("ValueError: no", 1, "frame", 20), made;

    made = fit_in(error, error.bytes);
    CHECK(made.at == error.at && made.bytes == error.bytes);
    made = fit_in(error, error.bytes - 30);
    CHECK(made.at == fit);
    CHECK(shmq_error_type(made).bytes == 10 && !memcmp(shmq_error_type(made).at, "ValueError", 10));
    CHECK(contains(made, "ValueError: no"));
    CHECK(contains(made, " \xE2\x80\xA6 "));
}

TEST("under each limit the map is whole, its texts too, and below the least nothing is left")
{
    static const char *const texts[] = {"x", "\xC3\xBC", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};

    for (int i = 0; i < 4; i++)
        for (size_t frames = 0; frames < 4000; frames += 1999)
            for (uint32_t most = 0; most <= SHMQ_ERROR_BYTES;
                 most += most < 300 || most > 4000 ? 1 : 97) {
                struct shmq_text error = error_of(texts[i], 6000, texts[3 - i], frames), made;

                made = fit_in(error, most);
                CHECK_EQ(made.bytes == 0, most < SHMQ_LEAST_ERROR);
                CHECK(!made.bytes || made.bytes + 40 > most);
            }
}

TEST("what is longer and has no texts is not kept; parts of other kinds are left out")
{
    unsigned char other[200] = "\x84\xA4line\x01\xA4type\xC0\xA5trace\xC3\xA1x\xDA\0\xA0";
    struct shmq_text error = {other, sizeof other};

    memset(other + 24, 'x', sizeof other - 24);
    CHECK_EQ(shmq_error_type(error).bytes, 0);
    CHECK_EQ(fit_in(error, 100).bytes, 0);
    CHECK_EQ(fit_in(error, 300).bytes, sizeof other);
    memset(other, 'x', sizeof other);
    CHECK_EQ(fit_in(error, 100).bytes, 0);
    CHECK_EQ(fit_in((struct shmq_text){NULL, 0}, 100).bytes, 0);
}

TEST("a message keeps as much of it as the queue's options say at that time")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_policies policies = *shmq_policies_now(q->h);
    static const uint32_t limits[] = {0, 1, SHMQ_LEAST_ERROR, 300, SHMQ_ERROR_BYTES, UINT32_MAX};
    struct shmq_text error = error_of("ValueError: no", 1000, "frame", 1000);

    put_text(q, "a");
    for (uint32_t i = 0; i < 6; i++) {
        struct shmq_view view = take_next(q);
        uint32_t least = limits[i] < SHMQ_LEAST_ERROR ? 0 : 60, most = limits[i];

        policies.error_bytes = most;
        CHECK_EQ(shmq_alter(q, &policies, i), SHMQ_OK);
        CHECK_EQ(shmq_keep_error(q, view.receipt, error, now), SHMQ_OK);
        CHECK_EQ(shmq_nack(q, view.receipt, 0, now), SHMQ_OK);
        view = take_next(q);
        CHECK(view.meta_bytes >= least);
        CHECK(view.meta_bytes <= (most < SHMQ_ERROR_BYTES ? most : SHMQ_ERROR_BYTES) + 7);
        CHECK_EQ(q->h->amended, view.meta_bytes > 0);
        CHECK_EQ(q->h->failed, i + 1);
        CHECK_EQ(shmq_return(q, view.receipt, now), SHMQ_OK);
        CHECK_WELL(q);
    }
    CHECK_EQ(q->h->failure_types, 1);
}
