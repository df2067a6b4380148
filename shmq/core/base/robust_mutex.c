#define _GNU_SOURCE
#include "base/robust_mutex.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

/* ---- the holder, as the kernel knows it ---- */

#define SLICE 50000000ll         /* ns in the kernel between two looks for signals */
#define AT_ONCE 100000000ll      /* ns */
#define FOR_ONE_AT_WORK 1000000000ll

/* The file that a mapping maps. */
struct file {
    unsigned major, minor;
    unsigned long inode;
};

enum holding {
    HOLDS_NOT, /* it is dead, or has not mapped the segment: it is not inside       */
    HOLDS,     /* it lives and has mapped it                                         */
    HOLDS_MAYBE, /* it lives, and its mappings cannot be read                         */
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

static enum holding maps(uint32_t thread, uintptr_t address)
{
    struct file segment = {0};
    char list[32];

    if (!find("/proc/self/maps", address, &segment) || !segment.inode)
        return HOLDS_MAYBE;
    snprintf(list, sizeof list, "/proc/%u/maps", thread);
    if (find(list, 0, &segment))
        return HOLDS;
    return errno ? HOLDS_MAYBE : HOLDS_NOT;
}

/* Whether the thread, if it is not the caller's, may be inside a critical section of the segment
 * that the caller has mapped at `address`. */
static enum holding may_hold(uint32_t thread, const void *address)
{
    char state;

    if (!thread || thread == (uint32_t)gettid())
        return HOLDS_NOT;
    if (kill((pid_t)thread, 0) && errno == ESRCH)
        return HOLDS_NOT;
    state = state_of(thread);
    if (state == 'Z' || state == 'X')
        return HOLDS_NOT;
    return maps(thread, (uintptr_t)address);
}

/* ---- the mutex ---- */

int shmq_robust_mutex_init(union shmq_mutex *lock)
{
    pthread_mutexattr_t attributes;
    int error;

    if (pthread_mutexattr_init(&attributes))
        return SHMQ_DAMAGED;
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    error = pthread_mutex_init(&lock->mutex, &attributes);
    shmq_mark();
    pthread_mutexattr_destroy(&attributes);
    return error || lock->mutex.__data.__kind != SHMQ_ROBUST_MUTEX_KIND ? SHMQ_DAMAGED : SHMQ_OK;
}

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer does not know that pthread_mutex_clocklock takes a lock, nor that
 * pthread_mutex_timedlock takes a dead holder's, so under it only trylocks are used. */
static int sleep_for(union shmq_mutex *lock, int64_t end)
{
    int error;

    while ((error = shmq_robust_mutex_try(lock)) == EBUSY && shmq_read_clock(CLOCK_MONOTONIC) < end)
        sched_yield();
    return error;
}
#else
static int sleep_for(union shmq_mutex *lock, int64_t end)
{
    struct timespec until = {end / 1000000000, end % 1000000000};
    int error = shmq_robust_mutex_try(lock); /* sees damage that clocklock would not       */

    if (error == EBUSY)
        error = pthread_mutex_clocklock(&lock->mutex, CLOCK_MONOTONIC, &until);
    return error == ETIMEDOUT ? EBUSY : error;
}
#endif

int shmq_robust_mutex_wait(union shmq_mutex *lock, int64_t end)
{
    bool long_enough = end - shmq_read_clock(CLOCK_MONOTONIC) >= SHMQ_JUDGE_AFTER;
    int error = sleep_for(lock, end);

    if (error != EBUSY || !long_enough || (error = shmq_robust_mutex_judge(lock)))
        return error;
    return shmq_robust_mutex_try(lock);
}

int shmq_robust_mutex_take(union shmq_mutex *lock, int64_t ns)
{
    int error = shmq_robust_mutex_spin(lock);

    return error == EBUSY && ns
               ? shmq_robust_mutex_wait(lock, shmq_read_clock(CLOCK_MONOTONIC) + ns)
               : error;
}

/* Whether `owner`, which glibc stores beside the word, is a thread that may be inside. */
static bool is_inside(uint32_t owner, const union shmq_mutex *lock)
{
    return owner <= FUTEX_TID_MASK && may_hold(owner, lock) != HOLDS_NOT;
}

/* Takes over from the thread that the word names, if it cannot be inside any more. An exchange sets
 * the word, from exactly the value seen, to what the kernel writes for a holder that dies: so glibc
 * tells the next thread that takes the mutex, and only that one, that its holder died. This is
 * correct because
 *
 *  - the kernel walks the list of a thread that ends or calls exec before it releases the thread's
 *    memory, and before others see a zombie or no thread at all. So a thread seen in that state has
 *    been through the walk, and if the word still names it, nothing else will mark it;
 *  - a thread that has not mapped the segment is not inside: the word that names it is damaged, or
 *    left by an older thread with its id;
 *  - the word cannot come to name another, living holder with the same id between the look and the
 *    exchange: the kernel reuses ids only after thousands of others, so there is no time for that.
 *
 * `__owner` is 0 outside of a critical section, and at its very beginning and end. Otherwise it is
 * the word's thread, the mark of a recovery that is about to begin, or for a moment the previous
 * holder that died. If it names yet another thread that may be inside, the word was damaged while
 * that thread was inside. Then no thread may take over, and the queue is damaged as long as that
 * thread lives. */
int shmq_robust_mutex_judge(union shmq_mutex *lock)
{
    int *word = &lock->mutex.__data.__lock;
    int seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    uint32_t owner = (uint32_t)GET_ATOMIC(lock->mutex.__data.__owner);
    uint32_t thread = (uint32_t)seen & FUTEX_TID_MASK;
    enum holding holding;

    if (!seen || (uint32_t)seen & FUTEX_OWNER_DIED)
        return 0;
    holding = may_hold(thread, lock);
    if (holding == HOLDS || (holding == HOLDS_MAYBE && owner == thread))
        return EBUSY;
    if (holding == HOLDS_MAYBE || (owner != thread && is_inside(owner, lock)))
        return seen == __atomic_load_n(word, __ATOMIC_RELAXED) ? EINVAL : EBUSY;
    __atomic_compare_exchange_n(word, &seen, (int)(FUTEX_OWNER_DIED | FUTEX_WAITERS), false,
                                __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    shmq_mark();
    return 0;
}

int shmq_robust_mutex_mend(union shmq_mutex *lock)
{
    return pthread_mutex_consistent(&lock->mutex);
}

uint32_t shmq_robust_mutex_holder(const union shmq_mutex *lock)
{
    return (uint32_t)GET_ATOMIC(lock->mutex.__data.__lock) & FUTEX_TID_MASK;
}

void shmq_robust_mutex_drop(union shmq_mutex *lock) { (void)pthread_mutex_unlock(&lock->mutex); }

int shmq_robust_mutex_status(int error)
{
    if (error == EBUSY)
        return SHMQ_BUSY;
    return error ? SHMQ_DAMAGED : SHMQ_OK;
}
