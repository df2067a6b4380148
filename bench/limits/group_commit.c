/* group_commit FILE PROCESSES CALLS SIZE append|overwrite: PROCESSES processes each commit CALLS
 * records of SIZE bytes to a new FILE, one at a time. A process copies its record into shared
 * memory. One of the waiting processes writes all records that are there, with one write and one
 * fdatasync, at the end of the file or over zeros that are on disk before the clock starts, and
 * wakes the others. Prints records per second and the median time of a commit in microseconds. It
 * then verifies that the file has every record once, and those of each process in order. */
#include "sides.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define LEAST 16u

struct record {
    uint32_t process, number;
};

struct group {
    pthread_mutex_t lock; /* of the members up to `writing`; `synced` and `turn` are read without */
    uint64_t filled; /* records in shared memory so far */
    _Atomic uint64_t synced; /* records on disk so far */
    _Atomic uint32_t turn; /* the number of commits: what processes sleep on */
    bool writing; /* whether a process writes */
    _Atomic uint32_t ready; /* processes that have started */
    _Atomic bool begun;
};

/* What a process found. */
struct times {
    int64_t begun, ended;
};

static struct group *group;
static unsigned char *records; /* as many as processes: each has one at a time */
static struct times *times;
static int64_t *taken; /* by each commit, in ns */
static uint64_t processes, calls;
static size_t size;
static int file;

/* Processes that wait for neighbouring records differ in their bits. */
static uint32_t bit_of(uint64_t place) { return 1u << place % 32; }

/* Wakes the processes of the records from `first` to `end`; that of `end` writes next. */
static void wake(uint64_t first, uint64_t end)
{
    uint32_t bits = 0;

    for (uint64_t place = first; place <= end && bits != UINT32_MAX; place++)
        bits |= bit_of(place);
    syscall(SYS_futex, &group->turn, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, bits);
}

/* Returns the record's place. */
static uint64_t fill(uint32_t process, uint32_t number)
{
    struct record record = {process, number};
    uint64_t place;

    pthread_mutex_lock(&group->lock);
    place = group->filled++;
    memcpy(records + place % processes * size, &record, sizeof(record));
    pthread_mutex_unlock(&group->lock);
    return place;
}

static void write_synced(uint64_t first, uint64_t end)
{
    uint64_t here = first % processes, count = end - first;
    uint64_t front = count < processes - here ? count : processes - here;
    struct iovec pieces[2] = {{records + here * size, front * size},
                              {records, (count - front) * size}};

    if (pwritev(file, pieces, 2, (off_t)(first * size)) != (ssize_t)(count * size))
        fail("the file cannot be written");
    if (fdatasync(file))
        fail("the file cannot be synced");
}

/* Writes what is in shared memory and not on disk, or sleeps while another process writes. */
static void write_or_sleep(uint64_t place)
{
    uint64_t first, end;
    uint32_t turn;
    bool other;

    pthread_mutex_lock(&group->lock);
    first = group->synced;
    end = group->filled;
    turn = group->turn;
    other = group->writing || first > place;
    group->writing |= !other;
    pthread_mutex_unlock(&group->lock);
    if (other && first <= place)
        syscall(SYS_futex, &group->turn, FUTEX_WAIT_BITSET, turn, NULL, NULL, bit_of(place));
    if (other)
        return;
    write_synced(first, end);
    pthread_mutex_lock(&group->lock);
    group->synced = end;
    group->turn++;
    group->writing = false;
    pthread_mutex_unlock(&group->lock);
    wake(first, end);
}

static void commit_all(uint32_t process)
{
    int64_t before, after;

    atomic_fetch_add(&group->ready, 1);
    while (!group->begun)
        sched_yield();
    times[process].begun = before = now();
    for (uint32_t number = 0; number < calls; number++) {
        uint64_t place = fill(process, number);

        while (group->synced <= place)
            write_or_sleep(place);
        after = now();
        taken[process * calls + number] = after - before;
        before = after;
    }
    times[process].ended = before;
}

static void run_all(void)
{
    for (uint32_t process = 0; process < processes; process++) {
        pid_t child = fork();

        if (child < 0)
            fail("no process can be forked");
        if (child == 0) {
            commit_all(process);
            _exit(0);
        }
    }
    while (group->ready < processes)
        sched_yield();
    group->begun = true;
    for (uint32_t process = 0; process < processes; process++) {
        int status;

        if (wait(&status) < 0 || status)
            fail("a process failed");
    }
}

static void make_zeros(void)
{
    static const unsigned char nothing[1 << 16];

    for (uint64_t left = processes * calls * size; left;) {
        ssize_t written = write(file, nothing, left < sizeof(nothing) ? left : sizeof(nothing));

        if (written <= 0)
            fail("the file cannot be written");
        left -= (uint64_t)written;
    }
}

static void verify(void)
{
    uint64_t total = processes * calls;
    uint32_t *next = calloc(processes, sizeof(*next));
    struct record record;

    if (!next || lseek(file, 0, SEEK_END) != (off_t)(total * size))
        fail("the file is not as long as what was written");
    for (uint64_t place = 0; place < total; place++)
        if (pread(file, &record, sizeof(record), (off_t)(place * size)) != sizeof(record) ||
            record.process >= processes || record.number != next[record.process]++)
            fail("a record was lost, doubled or reordered");
    free(next);
}

static int by_length(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void print_figures(void)
{
    int64_t begun = INT64_MAX, ended = 0;
    uint64_t total = processes * calls;

    for (uint64_t process = 0; process < processes; process++) {
        begun = times[process].begun < begun ? times[process].begun : begun;
        ended = times[process].ended > ended ? times[process].ended : ended;
    }
    qsort(taken, total, sizeof(*taken), by_length);
    printf("%.1f %.3f\n", (double)total * 1e9 / (double)(ended - begun),
           (double)taken[total / 2] / 1e3);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pthread_mutexattr_t between_processes;

    if (argc != 6)
        fail("usage: group_commit FILE PROCESSES CALLS SIZE append|overwrite");
    processes = strtoull(argv[2], NULL, 10);
    calls = strtoull(argv[3], NULL, 10);
    size = strtoull(argv[4], NULL, 10);
    file = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (!processes || !calls || size < LEAST || file < 0)
        fail("one process, one call and 16 bytes are the least, or the file cannot be made");
    group = shared(sizeof(*group));
    records = shared(processes * size);
    times = shared(processes * sizeof(*times));
    taken = shared(processes * calls * sizeof(*taken));
    memset(records, 7, processes * size);
    if (pthread_mutexattr_init(&between_processes) ||
        pthread_mutexattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED) ||
        pthread_mutex_init(&group->lock, &between_processes))
        fail("the lock cannot be made");
    if (!strcmp(argv[5], "overwrite"))
        make_zeros();
    if (fsync(file))
        fail("the file cannot be synced");
    run_all();
    print_figures();
    verify();
    return 0;
}
