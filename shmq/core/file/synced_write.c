#define _GNU_SOURCE
#include "file/synced_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUSHED (1u << 19) /* bytes that are copied before the kernel is advised to write them */

/* Writes at most PUSHED bytes. */
static ssize_t write_some(int file, const struct iovec *pieces, int count, int64_t offset)
{
    size_t together = 0;
    int fit = 0;

    while (fit < count && pieces[fit].iov_len <= PUSHED - together)
        together += pieces[fit++].iov_len;
    return fit ? pwritev(file, pieces, fit, offset)
               : pwrite(file, pieces->iov_base, PUSHED, offset);
}

/* Passes over so many bytes, and over empty pieces; returns the pieces left. */
static int pass(struct iovec **pieces, int count, size_t bytes)
{
    while (count && bytes >= (*pieces)->iov_len) {
        bytes -= (*pieces)->iov_len;
        ++*pieces;
        count--;
    }
    if (count) {
        (*pieces)->iov_base = (char *)(*pieces)->iov_base + bytes;
        (*pieces)->iov_len -= bytes;
    }
    return count;
}

static int write_whole(int file, struct iovec *pieces, int count, int64_t offset)
{
    count = pass(&pieces, count, 0);
    while (count) {
        ssize_t done = write_some(file, pieces, count, offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done ? errno : EIO;
        if (done == PUSHED) /* only a hint: the sync reports errors */
            (void)posix_fadvise(file, offset, done, POSIX_FADV_DONTNEED);
        offset += done;
        count = pass(&pieces, count, (size_t)done);
    }
    return 0;
}

/* The kernel's struct statx, which not every C library declares. */
struct links {
    uint32_t mask, block_bytes;
    uint64_t attributes;
    uint32_t links;
    unsigned char others[236];
};

#define LINKS 4u /* STATX_NLINK */

/* After fstat(2), which also reads the times, a kernel with fine-grained file times (Linux 6.13)
 * stores the time of the next write, which makes its sync slower by half. So statx(2) asks for the
 * links alone, where the kernel and the filters of its containers know it. */
static int check_name(int file)
{
    struct links status;
    struct stat all;

    if (!syscall(SYS_statx, file, "", AT_EMPTY_PATH, LINKS, &status))
        return status.links ? 0 : ENOENT;
    if (errno != ENOSYS && errno != EPERM)
        return errno;
    return fstat(file, &all) ? errno : all.st_nlink ? 0 : ENOENT;
}

int shmq_write_synced(int file, struct iovec *pieces, int count, int64_t offset)
{
    int error = write_whole(file, pieces, count, offset);

    while (!error && fdatasync(file))
        error = errno == EINTR ? 0 : errno;
    return error ? error : check_name(file);
}
