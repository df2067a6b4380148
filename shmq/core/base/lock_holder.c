#define _GNU_SOURCE
#include "base/lock_holder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define SLICE 50000000ll         /* ns in the kernel between two looks for signals */
#define AT_ONCE 100000000ll      /* ns */
#define FOR_ONE_AT_WORK 1000000000ll

/* The file that a mapping maps. */
struct file {
    unsigned major, minor;
    unsigned long inode;
};

/* The letter of the thread's state in /proc; 0: it cannot be read. */
static char state_of(uint32_t thread)
{
    char path[32], text[256], *end;
    ssize_t size;
    int fd;

    snprintf(path, sizeof path, "/proc/%u/stat", thread);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0)
        return 0;
    text[size] = 0;
    end = strrchr(text, ')'); /* the name before it may have any letters */
    return end && end[1] == ' ' ? end[2] : 0;
}

bool shmq_is_at_work(uint32_t thread)
{
    char state = thread ? state_of(thread) : 0;

    return state == 'R' || state == 'D';
}

static _Thread_local int64_t thread_limit; /* ns; 0: none */

void shmq_limit_patience(int64_t ns) { thread_limit = ns; }

int64_t shmq_patience(int64_t waited, int64_t until, uint32_t holder)
{
    int64_t left = AT_ONCE - waited, own;

    if (thread_limit)
        return waited < thread_limit ? thread_limit - waited : 0;
    if (until == INT64_MAX)
        return SLICE;
    own = until ? until - shmq_read_clock(CLOCK_MONOTONIC) : 0;
    if (own > left)
        left = own;
    if (left <= 0 && !until && shmq_is_at_work(holder))
        left = FOR_ONE_AT_WORK - waited;
    return left <= 0 ? 0 : left < SLICE ? left : SLICE;
}

/* Reads one line; only the beginning of a long one. */
static bool next_line(FILE *file, char line[256])
{
    size_t length;

    if (!fgets(line, 256, file))
        return false;
    length = strlen(line);
    if (length && line[length - 1] != '\n')
        for (int c = fgetc(file); c != EOF && c != '\n';)
            c = fgetc(file);
    return true;
}

static bool is_same(const struct file *a, const struct file *b)
{
    return a->major == b->major && a->minor == b->minor && a->inode == b->inode;
}

/* Searches a list of mappings for the one at `address`, and stores its file in `*sought`; or, if
 * `address` is 0, for one of the file `*sought`. False if there is none; errno is 0 if the list was
 * read. */
static bool find(const char *list, uintptr_t address, struct file *sought)
{
    unsigned long from, to;
    bool found = false;
    char line[256];
    struct file of;
    FILE *file = fopen(list, "re");

    if (!file)
        return false;
    errno = 0;
    while (!found && next_line(file, line)) {
        if (sscanf(line, "%lx-%lx %*s %*x %x:%x %lu", &from, &to, &of.major, &of.minor,
                   &of.inode) != 5)
            continue;
        found = address ? from <= address && address < to : is_same(&of, sought);
        if (found)
            *sought = of;
    }
    if (!ferror(file))
        errno = 0;
    fclose(file);
    return found;
}

static enum shmq_holding maps(uint32_t thread, uintptr_t address)
{
    struct file segment = {0};
    char list[32];

    if (!find("/proc/self/maps", address, &segment) || !segment.inode)
        return SHMQ_HOLDS_MAYBE;
    snprintf(list, sizeof list, "/proc/%u/maps", thread);
    if (find(list, 0, &segment))
        return SHMQ_HOLDS;
    return errno ? SHMQ_HOLDS_MAYBE : SHMQ_HOLDS_NOT;
}

enum shmq_holding shmq_may_hold(uint32_t thread, const void *address)
{
    char state;

    if (!thread || thread == (uint32_t)gettid())
        return SHMQ_HOLDS_NOT;
    if (kill((pid_t)thread, 0) && errno == ESRCH)
        return SHMQ_HOLDS_NOT;
    state = state_of(thread);
    if (state == 'Z' || state == 'X')
        return SHMQ_HOLDS_NOT;
    return maps(thread, (uintptr_t)address);
}
