/* The engine driven by scripts: those that were kept by the fuzzer, and such as chance makes. */
#include "wire_script.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define CORPUS "tests/prove/fuzz/corpus"
#define MOST_SCRIPT 4096
#define ROUNDS 3000

static size_t read_script(const char *name, unsigned char *script)
{
    char path[512];
    size_t size;
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", CORPUS, name);
    file = fopen(path, "rb");
    CHECK(file);
    size = fread(script, 1, MOST_SCRIPT, file);
    (void)fclose(file);
    return size;
}

TEST("every script of the corpus is answered as the protocol has it")
{
    unsigned char script[MOST_SCRIPT];
    DIR *folder = opendir(CORPUS);
    const struct dirent *entry;
    int count = 0;

    CHECK(folder);
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        script_run(script, read_script(entry->d_name, script));
        count++;
    }
    (void)closedir(folder);
    CHECK(count);
}

TEST("so is every script that chance makes")
{
    struct chance chance = chance_of(20261121);
    unsigned char script[600];

    for (int round = 0; round < ROUNDS; round++) {
        size_t size = chance_below(&chance, sizeof script);

        for (size_t i = 0; i < size; i++)
            script[i] = (unsigned char)chance_next(&chance);
        script_run(script, size);
    }
}
