#define _GNU_SOURCE
#include "stream/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/futex.h"

/* The layout of so large a ring. The bytes of a ring touch one more granule than they fill, and the
 * entry behind that is written ahead. */
static void lay_out(uint64_t ring_bytes, uint64_t rings, struct shmq_log_geometry *geo)
{
    uint64_t at = SHMQ_PAGE;

    memset(geo, 0, sizeof *geo);
    geo->half = ring_bytes;
    geo->index_count = ring_bytes / SHMQ_INDEX_STEP + 3;
    geo->holds = shmq_region(&at, SHMQ_HOLDS, sizeof(struct shmq_hold));
    geo->producers = shmq_region(&at, SHMQ_PRODUCERS, sizeof(struct shmq_produced));
    geo->index = shmq_region(&at, geo->index_count, sizeof(struct shmq_index_entry));
    geo->ring = shmq_region(&at, ring_bytes * rings, 1);
    geo->segment_bytes = shmq_page_up(at);
}

void shmq_log_lay_out(const struct shmq_log_options *options, struct shmq_log_geometry *geo)
{
    struct shmq_log_options greatest = *options;

    shmq_log_greatest(&greatest);
    lay_out(shmq_log_ring_of(&greatest), 2, geo);
}

uint64_t shmq_log_most_bytes(const struct shmq_log_options *options)
{
    struct shmq_log_geometry geo;

    lay_out(shmq_log_ring_of(options), 1, &geo);
    return geo.segment_bytes;
}

void shmq_log_bind(struct shmq_log *log, void *base, int fd, const struct shmq_log_geometry *geo,
                   const struct shmq_log_options *options, struct shmq_stream *stream,
                   const struct shmq_process *self)
{
    unsigned char *at = base;

    memset(log, 0, sizeof *log);
    log->h = (struct shmq_log_header *)base;
    log->holds = (struct shmq_hold *)(at + geo->holds);
    log->producers = (struct shmq_produced *)(at + geo->producers);
    log->index = (struct shmq_index_entry *)(at + geo->index);
    log->ring = at + geo->ring;
    log->first_bytes = shmq_log_ring_of(options);
    log->half = geo->half;
    log->index_count = geo->index_count;
    log->fd = fd;
    log->self = self;
    log->stream = stream;
    log->wanted = stream ? &stream->alterations : &log->h->applied;
    log->durable = options->durability == SHMQ_LOG_JOURNAL;
    log->blocks = options->overflow == SHMQ_LOG_BLOCK;
    log->salt = (uint32_t)options->identity;
}

struct shmq_log_spot shmq_log_altered_spot(const struct shmq_log *log, uint64_t position)
{
    uint32_t made = GET_ACQUIRE(log->h->settings_made);
    const struct shmq_log_settings *s = &log->h->settings[made & 1];
    uint64_t begin = GET_ATOMIC(s->ring.begin);
    const struct shmq_ring *ring = position < begin ? &s->former : &s->ring;
    uint64_t first = GET_ATOMIC(ring->begin), place = GET_ATOMIC(ring->place);
    uint64_t bytes = GET_ATOMIC(ring->bytes), at, end;

    shmq_read_fence();
    if (GET_RELAXED(log->h->settings_made) != made)
        return shmq_log_altered_spot(log, position);
    if (bytes - 1 >= log->half || place > log->half)
        return (struct shmq_log_spot){position, 0, 0, SHMQ_PAGE}; /* they make no sense */
    at = place + (position - first) % bytes;
    end = place + bytes;
    if (position < begin && begin - position < end - at)
        end = at + (begin - position);
    return (struct shmq_log_spot){position, at, place, end};
}

bool shmq_log_look_on(const struct shmq_log *log, struct shmq_log_spot *spot, uint64_t end,
                      struct shmq_peeked_entry *g)
{
    for (int gaps = 0; gaps < SHMQ_GAPS; gaps++) {
        uint64_t left = spot->end - spot->at;

        if (g->size > left)
            return false;
        shmq_log_pass(log, spot, g->size ? g->size : left);
        if (spot->position >= end)
            return false;
        shmq_entry_peek(log->ring + spot->at, spot->end - spot->at, g);
        if (!shmq_log_is_gap(g))
            return shmq_log_is_entry(spot, end, g);
    }
    return false;
}

static uint32_t checksum(const struct shmq_log_header *h)
{
    uint32_t crc = shmq_crc32c(0, &h->options, sizeof h->options);

    return shmq_crc32c(crc, &h->segment_bytes, sizeof h->segment_bytes);
}

int shmq_log_back(struct shmq_log *log, uint64_t offset, uint64_t size)
{
    int error = size ? posix_fallocate(log->fd, (off_t)offset, (off_t)size) : 0;

    shmq_mark();
    if (error == EINTR)
        return shmq_log_back(log, offset, size);
    if (error)
        log->refused_bytes = size;
    return error ? SHMQ_NO_SPACE : SHMQ_OK;
}

int shmq_log_prepare(struct shmq_log *log, const struct shmq_log_options *options,
                     int64_t last_seen)
{
    struct shmq_log_header *h = log->h;
    struct shmq_log_geometry geo;
    uint32_t alterations = GET_RELAXED(*log->wanted);
    int status;

    shmq_log_lay_out(options, &geo);
    if ((status = shmq_log_back(log, 0, geo.producers)))
        return status;
    SET(h->options, *options);
    SET(h->segment_bytes, geo.segment_bytes);
    SET(h->crc, checksum(h));
    shmq_log_set(&h->settings[0], options);
    SET(h->settings[0].ring.bytes, shmq_log_ring_of(options));
    SET(h->settings[0].alterations, alterations);
    SET_RELAXED(h->applied, alterations);
    SET(h->last_seen, last_seen);
    SET_RELAXED(h->next, options->first);
    SET_RELAXED(h->synced, options->first);
    return SHMQ_OK;
}

void shmq_log_announce(struct shmq_log *log)
{
    SET_RELEASE(log->h->published, (uint64_t)SHMQ_LOG_MAGIC << 32 | SHMQ_LOG_VERSION);
}

static bool sane(const struct shmq_log_options *o)
{
    return o->ring_bytes >= SHMQ_PAGE && o->ring_bytes <= 1ull << 36 &&
           o->max_record_bytes <= o->ring_bytes / 4 && o->partitions &&
           o->partitions <= SHMQ_MAX_PARTITIONS && o->retention >= 0 &&
           (o->durability != SHMQ_LOG_MEMORY || o->retention_bytes <= o->ring_bytes) &&
           memchr(o->name, 0, sizeof o->name) != NULL;
}

static bool is_ring(const struct shmq_ring *ring, uint64_t half)
{
    return ring->bytes >= SHMQ_PAGE && ring->bytes <= half &&
           (ring->place == 0 || ring->place == half);
}

/* An alteration that comes meanwhile can spoil one look, not the next. */
static bool is_set(const struct shmq_log_header *h, uint64_t half)
{
    uint32_t made;

    do {
        struct shmq_log_settings s;

        made = GET_ACQUIRE(h->settings_made);
        s = h->settings[made & 1];
        if (is_ring(&s.ring, half) && (!s.ring.begin || is_ring(&s.former, half)))
            return true;
        shmq_read_fence();
    } while (made != GET_ACQUIRE(h->settings_made));
    return false;
}

static int judge(uint64_t published, uint32_t magic, uint32_t version)
{
    if (!published)
        return SHMQ_NOT_READY;
    if (published >> 32 != magic)
        return SHMQ_DAMAGED;
    return (uint32_t)published == version ? SHMQ_OK : SHMQ_INCOMPATIBLE;
}

int shmq_log_inspect(const void *base, uint64_t mapped, struct shmq_log_geometry *geo)
{
    struct shmq_log_header *h = (struct shmq_log_header *)base;
    int status;

    if (mapped < SHMQ_PAGE)
        return SHMQ_TRUNCATED;
    status = judge(GET_ACQUIRE(h->published), SHMQ_LOG_MAGIC, SHMQ_LOG_VERSION);
    if (status)
        return status;
    if (checksum(h) != h->crc || !sane(&h->options) ||
        h->options.partition >= h->options.partitions || h->behind > h->options.partition)
        return SHMQ_DAMAGED;
    shmq_log_lay_out(&h->options, geo);
    if (geo->segment_bytes != h->segment_bytes || !is_set(h, geo->half))
        return SHMQ_DAMAGED;
    return mapped < geo->segment_bytes ? SHMQ_TRUNCATED : SHMQ_OK;
}

void shmq_stream_prepare(struct shmq_stream *stream, const struct shmq_log_options *options)
{
    SET(stream->options, *options);
    SET(stream->crc, shmq_crc32c(0, &stream->options, sizeof stream->options));
}

void shmq_stream_announce(struct shmq_stream *stream)
{
    SET_RELEASE(stream->published, (uint64_t)SHMQ_STREAM_MAGIC << 32 | SHMQ_STREAM_VERSION);
}

int shmq_stream_inspect(const void *base, uint64_t mapped)
{
    struct shmq_stream *stream = (struct shmq_stream *)base;
    struct shmq_log_options altered;
    uint32_t alterations;
    int status;

    if (mapped < SHMQ_PAGE)
        return SHMQ_TRUNCATED;
    status = judge(GET_ACQUIRE(stream->published), SHMQ_STREAM_MAGIC, SHMQ_STREAM_VERSION);
    if (status)
        return status;
    if (shmq_crc32c(0, &stream->options, sizeof stream->options) != stream->crc ||
        !sane(&stream->options) || !shmq_stream_read(stream, &altered, &alterations) ||
        !sane(&altered) || !shmq_stream_is_shape(stream, shmq_stream_shape(stream)))
        return SHMQ_DAMAGED;
    return SHMQ_OK;
}

uint64_t shmq_stream_shape(const struct shmq_stream *stream)
{
    uint64_t shape = GET_ACQUIRE(stream->shape);

    return shape ? shape : stream->options.partitions;
}

uint64_t shmq_stream_next_shape(const struct shmq_stream *stream)
{
    uint64_t next = GET_ACQUIRE(stream->next_shape);

    return next == shmq_stream_shape(stream) ? 0 : next;
}

bool shmq_stream_is_shape(const struct shmq_stream *stream, uint64_t shape)
{
    uint64_t begin = shape >> 32, count = shape & UINT32_MAX;

    return begin < count && count >= stream->options.partitions && count <= SHMQ_MAX_PARTITIONS;
}

void shmq_stream_intend(struct shmq_stream *stream, uint64_t shape)
{
    SET_RELEASE(stream->next_shape, shape);
}

void shmq_stream_reshape(struct shmq_stream *stream, uint64_t shape)
{
    SET_RELEASE(stream->shape, shape);
    atomic_fetch_add(&stream->wakeup, 1);
    shmq_futex_wake(&stream->wakeup);
}
