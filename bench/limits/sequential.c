/* sequential FILE BYTES EACH: writes that many bytes into a new FILE, a MiB at a time, with an
 * fdatasync after EACH bytes, in whole MiB, and at the end. With EACH = BYTES it is what dd does
 * with bs=1M and conv=fdatasync. Prints bytes per second. */
#include "sides.h"

#include <fcntl.h>

#define BLOCK (1u << 20)

int main(int argc, char **argv)
{
    static unsigned char block[BLOCK];
    uint64_t bytes, each, left, unsynced = 0;
    int64_t begun;
    int file;

    if (argc != 4)
        fail("usage: sequential FILE BYTES EACH");
    bytes = strtoull(argv[2], NULL, 10);
    each = strtoull(argv[3], NULL, 10);
    file = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (!bytes || file < 0)
        fail("there is nothing to write, or the file cannot be made");
    memset(block, 7, sizeof(block));
    begun = now();
    for (left = bytes; left;) {
        ssize_t written = write(file, block, left < BLOCK ? left : BLOCK);

        if (written <= 0)
            fail("the file cannot be written");
        left -= (uint64_t)written;
        unsynced += (uint64_t)written;
        if (unsynced >= each || !left) {
            if (fdatasync(file))
                fail("the file cannot be synced");
            unsynced = 0;
        }
    }
    printf("%.1f\n", (double)bytes * 1e9 / (double)(now() - begun));
    fflush(stdout);
    if (lseek(file, 0, SEEK_END) != (off_t)bytes)
        fail("the file is not as long as what was written");
    return 0;
}
