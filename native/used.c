/* pliant-gpu-used CONF LEDGER: runs in a container, for a caller who may run commands there. Prints CONF, then per GPU
 * what the live processes of the workload use: `used UUID BYTES`. Makes running programs read CONF again. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/shim.h"

static bool lives(const struct ledger *l, int fd, uint32_t i) {
    struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)SLOT_LOCK + i, .l_len = 1};
    if (!__atomic_load_n(&l->slot[i].live, __ATOMIC_ACQUIRE)) return false;
    return fcntl(fd, F_OFD_GETLK, &f) != 0 || f.l_type != F_UNLCK; /* if the lock cannot be tested it counts as live */
}

static void print_used(const struct ledger *l, int fd) {
    for (uint32_t k = 0; k < l->gpus && k < MAX_GPUS; k++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < l->high && i < SLOTS; i++)
            if (lives(l, fd, i)) sum += l->charged[k][i] + l->extra[k][i];
        printf("used ");
        for (int i = 0; i < 16; i++) printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", l->uuid[k][i]);
        printf(" %llu\n", (unsigned long long)sum);
    }
}

int main(int argc, char **argv) {
    char text[16384];
    if (argc != 3) return fprintf(stderr, "usage: pliant-gpu-used CONF LEDGER\n"), 2;
    int conf = open(argv[1], O_RDONLY | O_CLOEXEC), fd = open(argv[2], O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (conf < 0 || fd < 0) return perror(conf < 0 ? argv[1] : argv[2]), 1;
    ssize_t n = read(conf, text, sizeof text - 1);
    if (n <= 0) return fprintf(stderr, "%s is empty\n", argv[1]), 1;
    text[n] = 0;
    fputs(text, stdout);
    struct stat st;
    if (fstat(fd, &st) != 0 || (size_t)st.st_size < sizeof(struct ledger)) return 0; /* no program has used a GPU yet */
    struct ledger *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (l == MAP_FAILED || l->magic != LEDGER_MAGIC || l->version != LEDGER_VERSION)
        return fprintf(stderr, "%s is not a ledger of this version\n", argv[2]), 1;
    const char *line = strstr(text, "\nepoch ");
    unsigned long long epoch = 0;
    if (line && sscanf(line, "\nepoch %llu", &epoch) == 1) __atomic_store_n(&l->epoch, epoch, __ATOMIC_RELEASE);
    print_used(l, fd);
    return 0;
}
