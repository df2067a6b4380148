#define _GNU_SOURCE
#include "base/process.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptor.h"

/* Whether the namespace's file has given out the number. */
static bool is_of_this_file(const struct shmq_process *self, int fd, uint64_t number)
{
    uint64_t next;

    return number >= atomic_load(&self->first) && pread(fd, &next, sizeof next, 0) == sizeof next &&
           number < le64toh(next);
}

/* Asks for the lock on the byte of that number. False: no answer. The descriptor was open
 * for all of the time if our own number is the same afterwards, because that becomes 0 first, and
 * is another one once there is another file. */
static bool ask(const struct shmq_process *self, uint64_t number, struct flock *lock)
{
    uint64_t own = atomic_load(&self->number);
    int fd = atomic_load(&self->fd);

    *lock = (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)number, .l_len = 1};
    return own && fd >= 0 && is_of_this_file(self, fd, number) && !fcntl(fd, F_GETLK, lock) &&
           atomic_load(&self->number) == own;
}

uint64_t shmq_current_number(const struct shmq_process *self)
{
    uint64_t number = atomic_load(&self->number);
    struct stat file;

    return number && !fstat(atomic_load(&self->fd), &file) && file.st_nlink ? number : 0;
}

bool shmq_has_died(const struct shmq_process *self, uint64_t number)
{
    struct flock lock;

    if (number < SHMQ_FIRST_PROCESS)
        return true;
    return number != atomic_load(&self->number) && ask(self, number, &lock) &&
           lock.l_type == F_UNLCK;
}

uint32_t shmq_pid_of(const struct shmq_process *self, uint64_t number)
{
    struct flock lock;

    if (number && number == atomic_load(&self->number))
        return (uint32_t)getpid();
    if (number < SHMQ_FIRST_PROCESS || !ask(self, number, &lock) || lock.l_type == F_UNLCK)
        return 0;
    return lock.l_pid > 0 ? (uint32_t)lock.l_pid : 0;
}

/* The letter of the thread's state in /proc; 0: it cannot be read. */
static char state_of(uint32_t pid, const char *thread)
{
    char path[64], text[256], *end;
    ssize_t size;
    int fd;

    snprintf(path, sizeof path, "/proc/%u/task/%.16s/stat", pid, thread);
    shmq_reserve_standard();
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

bool shmq_is_at_work(const struct shmq_process *self, uint64_t number)
{
    uint32_t pid = shmq_pid_of(self, number);
    struct dirent *thread;
    bool found = false;
    char path[32], state;
    DIR *threads;

    if (!pid || pid == (uint32_t)getpid())
        return number && !shmq_has_died(self, number);
    snprintf(path, sizeof path, "/proc/%u/task", pid);
    shmq_reserve_standard();
    if (!(threads = opendir(path)))
        return false;
    while (!found && (thread = readdir(threads))) {
        state = thread->d_name[0] == '.' ? 0 : state_of(pid, thread->d_name);
        found = state == 'R' || state == 'D';
    }
    closedir(threads);
    return found;
}
