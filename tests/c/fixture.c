#define _GNU_SOURCE
#include "fixture.h"
#include "registered.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "queue/segment.h"
#include "base/clock.h"
#include "queue/lock.h"

#define MOST_HANDLES 64
#define GUARD (1ull << 36) /* bytes that fault on either side of a mapping */

struct held_segment {
    char *area; /* guard, mapping, guard */
    uint64_t size;
    int fd;
};

int64_t now;

static struct shmq_queue *handles[MOST_HANDLES];
static struct held_segment segments[MOST_HANDLES];
static int handle_count, segment_count;

static void *map_guarded(int fd, uint64_t size, char **area)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *base;

    *area = mmap(NULL, size + 2 * GUARD, PROT_NONE, flags, -1, 0);
    CHECK(*area != MAP_FAILED);
    base = mmap(*area + GUARD, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    CHECK(base == *area + GUARD);
    return base;
}

static struct shmq_queue *new_handle(void *base, int fd, const struct shmq_geometry *geo)
{
    struct shmq_queue *q = malloc(sizeof *q);

    CHECK(q && handle_count < MOST_HANDLES);
    shmq_bind(q, base, fd, geo, registered());
    handles[handle_count++] = q;
    q->random = (uint64_t)handle_count; /* not of its address: every run is alike */
    return q;
}

static struct shmq_options with_defaults(const struct shmq_options *given)
{
    struct shmq_options options = *given;

    options.queue_id = options.queue_id ? options.queue_id : 7;
    options.capacity = options.capacity ? options.capacity : 64;
    options.arena_bytes = options.arena_bytes ? options.arena_bytes : 64 << 10;
    options.priorities = options.priorities ? options.priorities : 3;
    options.policies[0].visibility = options.policies[0].visibility ? options.policies[0].visibility
                                                                    : 30 * SECOND;
    if (!options.policies[0].max_message_bytes)
        options.policies[0].max_message_bytes = options.arena_bytes;
    if (!options.policies[0].error_bytes)
        options.policies[0].error_bytes = SHMQ_ERROR_BYTES;
    options.policies[0].capacity = options.capacity;
    options.policies[0].arena_bytes = options.arena_bytes;
    return options;
}

struct shmq_queue *new_queue(const struct shmq_options *given)
{
    struct shmq_options options = with_defaults(given);
    struct held_segment *segment = &segments[segment_count];
    struct shmq_geometry geo;
    struct shmq_queue *q;

    shmq_clock_set = now = 1000 * SECOND;
    CHECK(segment_count++ < MOST_HANDLES);
    shmq_lay_out(&options, &geo);
    segment->size = geo.segment_bytes;
    segment->fd = memfd_create("queue", MFD_CLOEXEC);
    CHECK(segment->fd >= 0 && !ftruncate(segment->fd, (off_t)segment->size));
    q = new_handle(map_guarded(segment->fd, segment->size, &segment->area), segment->fd, &geo);
    CHECK_EQ(shmq_back(q, 0, SHMQ_PAGE), SHMQ_OK);
    shmq_prepare(q, &options);
    shmq_announce(q);
    CHECK_EQ(shmq_lock(q), SHMQ_OK);
    CHECK_EQ(shmq_attach(q, PROCESS, 1, "first"), SHMQ_OK);
    return q;
}

struct shmq_queue *bare_handle(struct shmq_queue *q) { return new_handle(q->base, q->fd, &q->geo); }

struct shmq_queue *another_handle(struct shmq_queue *q)
{
    struct shmq_queue *other = bare_handle(q);

    CHECK_EQ(shmq_attach(other, PROCESS + (uint64_t)handle_count, 1, "another"), SHMQ_OK);
    return other;
}

void release_everything(void)
{
    while (handle_count)
        free(handles[--handle_count]);
    while (segment_count) {
        struct held_segment *segment = &segments[--segment_count];

        (void)munmap(segment->area, segment->size + 2 * GUARD);
        (void)close(segment->fd);
    }
    shmq_clock_set = 0;
}

void starve(struct shmq_queue *q) { q->fd = -q->fd; }

void feed(struct shmq_queue *q) { q->fd = -q->fd; }

int put_status(struct shmq_queue *q, const struct shmq_put *put, uint64_t *seq)
{
    return shmq_put(q, put, now, seq);
}

uint64_t put_checked(struct shmq_queue *q, const struct shmq_put *put)
{
    uint64_t seq = 0;

    CHECK_EQ(shmq_put(q, put, now, &seq), SHMQ_OK);
    return seq;
}

uint64_t put_text(struct shmq_queue *q, const char *text)
{
    return PUT(q, .body = text, .body_bytes = strlen(text));
}

uint64_t put_bytes(struct shmq_queue *q, uint64_t bytes) { return PUT(q, .body_bytes = bytes); }

struct shmq_view take_next(struct shmq_queue *q)
{
    struct shmq_view view;

    CHECK_EQ(shmq_lease(q, now, true, &view), SHMQ_OK);
    return view;
}

uint64_t next_seq(struct shmq_queue *q)
{
    struct shmq_view view;
    int status = shmq_lease(q, now, true, &view);

    CHECK(status == SHMQ_OK || status == SHMQ_EMPTY);
    return status == SHMQ_OK ? view.seq : 0;
}

uint64_t drain(struct shmq_queue *q)
{
    struct shmq_view view;
    uint64_t count = 0;

    while (shmq_lease(q, now, true, &view) == SHMQ_OK) {
        CHECK_EQ(shmq_ack(q, view.receipt, now), SHMQ_OK);
        count++;
    }
    return count;
}

bool body_is(const struct shmq_view *view, const char *text)
{
    return view->body_bytes == strlen(text) && !memcmp(view->body, text, view->body_bytes);
}

enum shmq_state state_at(struct shmq_queue *q, uint32_t at)
{
    return shmq_state_of(shmq_word(&q->slots[at]));
}

struct shmq_view reserve(struct shmq_queue *q, uint64_t bytes)
{
    struct shmq_view view;
    uint64_t seq;

    CHECK_EQ(shmq_reserve(q, bytes, 0, now, NULL, &view, &seq), SHMQ_OK);
    return view;
}

void refuse(struct shmq_queue *q, uint64_t receipt)
{
    struct shmq_view view;
    uint64_t seq;

    CHECK(!shmq_holds(q, receipt, now));
    CHECK_EQ(shmq_ack(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_nack(q, receipt, 0, now), SHMQ_STALE);
    CHECK_EQ(shmq_reject(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_extend(q, receipt, SECOND, now), SHMQ_STALE);
    CHECK_EQ(shmq_return(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_hand(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_pin(q, receipt, now, &view), SHMQ_STALE);
    CHECK_EQ(shmq_commit_staged(q, receipt, now), SHMQ_STALE);
    CHECK_EQ(shmq_abandon(q, receipt), SHMQ_STALE);
    CHECK_EQ(shmq_fill(q, receipt, &(struct shmq_put){0}, now, &seq), SHMQ_STALE);
    CHECK_EQ(shmq_stage(q, receipt, &(struct shmq_put){0}, now), SHMQ_STALE);
    CHECK_WELL(q);
}
