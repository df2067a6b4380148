/* sync FILE MESSAGES BATCH SIZE append|overwrite: writes MESSAGES of SIZE bytes into a new FILE,
 * BATCH of them at a time with one write and one fdatasync, at its end or over zeros that are on
 * disk before the clock starts. Prints messages per second, and the median and the 99th
 * percentile of the time of a write with its sync, in microseconds. It then verifies the file. */
#include "sides.h"

#include <fcntl.h>

#include "../load/latency.h"

#define LEAST 16u

static unsigned char *batch_bytes;
static uint64_t messages, batch;
static size_t size;

/* Makes the bodies from that number on, up to a batch or to the last; returns their bytes. */
static size_t fill(uint64_t first)
{
    size_t length = 0;

    for (uint64_t number = first; number < messages && number < first + batch; number++) {
        memcpy(batch_bytes + length, &number, sizeof(number));
        memcpy(batch_bytes + length + size - sizeof(number), &number, sizeof(number));
        length += size;
    }
    return length;
}

static void write_all(int file, const unsigned char *bytes, size_t length, off_t at)
{
    if (pwrite(file, bytes, length, at) != (ssize_t)length)
        fail("the file cannot be written");
}

static void zeros(int file)
{
    static const unsigned char nothing[1 << 20];
    uint64_t total = messages * size;

    for (uint64_t at = 0; at < total; at += sizeof(nothing))
        write_all(file, nothing, total - at < sizeof(nothing) ? total - at : sizeof(nothing),
                  (off_t)at);
    if (fsync(file))
        fail("the file cannot be synced");
}

/* Verifies that every message is in the file, in its place. */
static void verify(int file)
{
    unsigned char *found = malloc(batch * size);
    off_t end = lseek(file, 0, SEEK_END);

    if (!found)
        fail("there is no memory");
    if (end != (off_t)(messages * size))
        fail("the file is not as long as what was written");
    for (uint64_t first = 0; first < messages; first += batch) {
        size_t length = fill(first);

        if (pread(file, found, length, (off_t)(first * size)) != (ssize_t)length ||
            memcmp(found, batch_bytes, length))
            fail("the file has other bytes than were written");
    }
    free(found);
}

int main(int argc, char **argv)
{
    struct latency *latency = calloc(1, sizeof(*latency));
    int64_t begun, before;
    int file;

    if (argc != 6)
        fail("usage: sync FILE MESSAGES BATCH SIZE append|overwrite");
    messages = strtoull(argv[2], NULL, 10);
    batch = strtoull(argv[3], NULL, 10);
    size = strtoull(argv[4], NULL, 10);
    if (!messages || !batch || size < LEAST)
        fail("a message, a batch of one and 16 bytes are the least");
    batch_bytes = calloc(batch, size);
    file = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (!latency || !batch_bytes || file < 0)
        fail("there is no memory, or the file cannot be made");
    if (!strcmp(argv[5], "overwrite"))
        zeros(file);
    else if (fsync(file))
        fail("the file cannot be synced");
    begun = before = now();
    for (uint64_t first = 0; first < messages; first += batch) {
        int64_t after;

        write_all(file, batch_bytes, fill(first), (off_t)(first * size));
        if (fdatasync(file))
            fail("the file cannot be synced");
        after = now();
        latency_add(latency, after - before, 1);
        before = after;
    }
    printf("%.1f %.3f %.3f\n", (double)messages * 1e9 / (double)(before - begun),
           latency_at(latency, 0.5) / 1e3, latency_at(latency, 0.99) / 1e3);
    fflush(stdout);
    verify(file);
    return 0;
}
