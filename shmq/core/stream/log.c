#define _GNU_SOURCE
#include "stream/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/futex.h"

static uint64_t most_entry(const struct shmq_log_options *o)
{
    return o->ring_bytes / 4 + SHMQ_ENTRY_HEAD + SHMQ_ENTRY_PRODUCER + SHMQ_ENTRY_SEEN + 8;
}

/* Room for the retained bytes, for one entry to be removed while another is added, and the pad. */
static uint64_t ring_of(const struct shmq_log_options *o)
{
    uint64_t kept = o->durability == SHMQ_LOG_MEMORY && o->retention_bytes
                        ? o->retention_bytes + 2 * most_entry(o)
                        : 0;

    return shmq_page_up(kept > o->ring_bytes ? kept : o->ring_bytes);
}

/* The bytes of a ring touch one more granule than they fill, and the entry behind that is written
 * ahead. */
void shmq_log_lay_out(const struct shmq_log_options *options, struct shmq_log_geometry *geo)
{
    uint64_t at = SHMQ_PAGE;

    memset(geo, 0, sizeof *geo);
    geo->ring_bytes = ring_of(options);
    geo->index_count = geo->ring_bytes / SHMQ_INDEX_STEP + 3;
    geo->holds = shmq_region(&at, SHMQ_HOLDS, sizeof(struct shmq_hold));
    geo->producers = shmq_region(&at, SHMQ_PRODUCERS, sizeof(struct shmq_produced));
    geo->index = shmq_region(&at, geo->index_count, sizeof(struct shmq_index_entry));
    geo->ring = shmq_region(&at, geo->ring_bytes, 1);
    geo->segment_bytes = shmq_page_up(at);
}

/* Copies the options to the handle; for a durable stream the files do the retention. */
static void know(struct shmq_log *log, const struct shmq_log_options *o)
{
    log->most_entry = most_entry(o);
    log->durable = o->durability == SHMQ_LOG_JOURNAL;
    log->retention_bytes = log->durable ? 0 : o->retention_bytes;
    log->retention = log->durable ? 0 : o->retention;
    log->blocks = o->overflow == SHMQ_LOG_BLOCK;
    log->salt = (uint32_t)o->identity;
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
    log->ring_bytes = geo->ring_bytes;
    log->index_count = geo->index_count;
    log->fd = fd;
    log->self = self;
    log->stream = stream;
    know(log, options);
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
    int status;

    shmq_log_lay_out(options, &geo);
    if ((status = shmq_log_back(log, 0, geo.producers)))
        return status;
    SET(h->options, *options);
    SET(h->segment_bytes, geo.segment_bytes);
    SET(h->crc, checksum(h));
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
    if (geo->segment_bytes != h->segment_bytes)
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
    int status;

    if (mapped < SHMQ_PAGE)
        return SHMQ_TRUNCATED;
    status = judge(GET_ACQUIRE(stream->published), SHMQ_STREAM_MAGIC, SHMQ_STREAM_VERSION);
    if (status)
        return status;
    if (shmq_crc32c(0, &stream->options, sizeof stream->options) != stream->crc ||
        !sane(&stream->options) || !shmq_stream_is_shape(stream, shmq_stream_shape(stream)))
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
