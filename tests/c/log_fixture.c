#define _GNU_SOURCE
#include "log_fixture.h"
#include "registered.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 64
#define RING 65536u

static struct made {
    struct shmq_log *log;
    void *base;
    size_t size;
    int fd;
} made[MOST];
static int made_count;

static struct shmq_stream *new_stream(void)
{
    void *page = mmap(NULL, SHMQ_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    return page;
}

static struct shmq_log *keep(void *base, size_t size, int fd)
{
    struct shmq_log *log = malloc(sizeof *log);

    CHECK(log && made_count < MOST);
    made[made_count++] = (struct made){log, base, size, fd};
    return log;
}

struct shmq_log *new_log(const struct shmq_log_options *options)
{
    struct shmq_log_options o = *options;
    struct shmq_log_geometry geo;
    struct shmq_log *log;
    void *base;
    int fd = memfd_create("partition", MFD_CLOEXEC);

    o.ring_bytes = o.ring_bytes ? o.ring_bytes : RING;
    o.max_record_bytes = o.ring_bytes / 4;
    o.partitions = 1;
    o.identity = 0x5A175A175A17ull;
    shmq_log_lay_out(&o, &geo);
    CHECK(fd >= 0 && !ftruncate(fd, (off_t)geo.segment_bytes));
    base = mmap(NULL, geo.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(base != MAP_FAILED);
    log = keep(base, geo.segment_bytes, fd);
    shmq_log_bind(log, base, fd, &geo, &o, new_stream(), registered());
    CHECK_EQ(shmq_log_prepare(log, &o, 0), SHMQ_OK);
    shmq_log_announce(log);
    return log;
}

struct shmq_log *another_log(struct shmq_log *log)
{
    struct shmq_log_geometry geo;
    struct shmq_log *other = keep(NULL, 0, -1);

    CHECK_EQ(shmq_log_inspect(log->h, log->h->segment_bytes, &geo), SHMQ_OK);
    shmq_log_bind(other, log->h, log->fd, &geo, &log->h->options, log->stream, registered());
    return other;
}

void end_logs(void)
{
    while (made_count--) {
        struct made *m = &made[made_count];

        if (m->base) {
            (void)munmap(m->log->stream, SHMQ_PAGE);
            (void)munmap(m->base, m->size);
            (void)close(m->fd);
        }
        free(m->log);
    }
    made_count = 0;
}

int append_piece(struct shmq_log *log, uint32_t count, uint32_t bytes, uint64_t *first)
{
    struct shmq_log_item *items = calloc(count, sizeof *items);
    unsigned char *values = malloc((size_t)count * bytes + 1);
    struct shmq_log_piece piece = {.items = items, .count = count};
    struct shmq_log_appended out = {.first = 0};
    int status;

    CHECK(items && values);
    CHECK_EQ(shmq_log_lock(log, 1000000000), SHMQ_OK);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t offset = atomic_load(&log->h->next) + i;

        memset(values + (size_t)i * bytes, (int)(offset % 251), bytes);
        items[i] = (struct shmq_log_item){
            .value = values + (size_t)i * bytes, .value_bytes = bytes, .count = 1};
    }
    status = shmq_log_append(log, &piece, &out);
    shmq_log_unlock(log);
    shmq_log_wake(log);
    *first = out.first;
    free(items);
    free(values);
    return status;
}

bool append_short(struct shmq_log *log, uint32_t count, uint32_t bytes, uint64_t *first)
{
    struct shmq_log_value *values = calloc(count, sizeof *values);
    unsigned char *room = malloc((size_t)count * bytes + 1);
    struct shmq_log_appended out = {.first = 0};
    bool done;

    CHECK(values && room);
    CHECK_EQ(shmq_log_lock(log, 1000000000), SHMQ_OK);
    for (uint32_t i = 0; i < count; i++) {
        memset(room + (size_t)i * bytes, (int)((atomic_load(&log->h->next) + i) % 251), bytes);
        values[i] = (struct shmq_log_value){room + (size_t)i * bytes, bytes};
    }
    done = shmq_log_append_values(log, values, count, count * shmq_entry_size(0, bytes, 0, 0),
                                  &out);
    shmq_log_unlock(log);
    shmq_log_wake(log);
    CHECK(!done || (out.records == count && !out.duplicate && out.timestamp > 0));
    *first = out.first;
    free(values);
    free(room);
    return done;
}

uint64_t append_bytes(struct shmq_log *log, uint32_t bytes)
{
    uint64_t first;

    CHECK_EQ(append_piece(log, 1, bytes, &first), SHMQ_OK);
    return first;
}

static void check_block(const struct shmq_log *log, const unsigned char *at, uint64_t bytes,
                        uint64_t offset, uint64_t count)
{
    for (; count--; offset++) {
        struct shmq_entry e;
        uint64_t next = 0;

        CHECK_EQ(shmq_entry_read(at, bytes, log->salt, log->durable, &e, &next), SHMQ_E_OK);
        CHECK(log->durable || !(shmq_entry_word(at) >> 32)); /* not summed yet                */
        CHECK_EQ(e.offset, offset);
        for (uint32_t i = 0; i < e.value_bytes; i++)
            CHECK_EQ(e.value[i], offset % 251);
        at += next;
        bytes -= next;
    }
    CHECK_EQ(bytes, 0);
}

uint64_t read_some(struct shmq_log *log, uint64_t offset, uint64_t limit)
{
    struct shmq_log_extent x;
    unsigned char *copy;
    int status = shmq_log_find(log, offset, UINT64_MAX, limit, UINT64_MAX, UINT64_MAX, &x);

    if (status == SHMQ_OUT_OF_RANGE)
        return 0;
    CHECK_EQ(status, SHMQ_OK);
    copy = malloc(x.bytes + 8);
    CHECK(copy);
    if (!shmq_log_copy(log, &x, copy)) {
        free(copy);
        return 0;
    }
    CHECK_EQ(x.first, offset);
    CHECK_EQ(x.next - x.first, x.entries);
    check_block(log, copy, x.bytes, offset, x.entries);
    free(copy);
    return x.entries;
}

struct shmq_log_bounds bounds_of(struct shmq_log *log)
{
    struct shmq_log_bounds bounds;

    CHECK_EQ(shmq_log_bounds(log, &bounds), SHMQ_OK);
    return bounds;
}
