/* For libFuzzer: any bytes as gpu.conf and as a ledger. Nothing may crash, and nothing may be granted over the limit. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "../../native/shim/config.c"

#include "../../native/shim/ledger.c"
#include "../../native/shim/sys.c"
#include "../../native/shim/table.c"

uint64_t (*sim_now)(void);
void (*sim_wait)(const uint32_t *, uint32_t, uint64_t);
void (*sim_wake)(const uint32_t *);
void contexts_forget(void) {}
void pools_forget(void) {}
void pools_refresh(void) {}
void gate_forget(void) {}

static char room[64];

static void clean(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/ledger", room);
    unlink(path);
    rmdir(room);
}

static const char *folder(void) {
    if (!room[0]) {
        snprintf(room, sizeof room, "/dev/shm/pliant-fuzz-XXXXXX");
        if (!mkdtemp(room)) abort();
        atexit(clean);
    }
    return room;
}

static void put(const char *path, const void *data, size_t n, uint64_t size) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || (size && ftruncate(fd, (off_t)size))) abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct config parsed;
    char path[128], conf[512];
    if (n < 4) return 0;
    size_t text = data[0] * 4u;
    if (text > n - 4) text = n - 4;
    char *copy_of = malloc(text + 1);
    memcpy(copy_of, data + 4, text);
    memset(&parsed, 0, sizeof parsed);
    if (config_parse(&parsed, copy_of, text) && (!parsed.ledger[0] || parsed.gpus > MAX_GPUS)) abort();
    for (int i = 0; i < parsed.gpus; i++)
        if (parsed.why[0] == 0 && !parsed.gpu[i].limit) abort(); /* never unlimited, never a limit of nothing */
    free(copy_of);

    snprintf(path, sizeof path, "%s/ledger", folder());
    int whole = snprintf(conf, sizeof conf, "pliant-gpu 1\nworkload w\nledger %s\ngpu GPU-00000000-0000-4000-8000-000000000000 limit=1048576\nend 1\n", path);
    memset(&config, 0, sizeof config);
    if (!config_parse(&config, conf, (size_t)whole)) abort();
    config.good = true;
    snprintf(config.path, sizeof config.path, "%s/none", folder());
    static struct ledger image;
    memset(&image, 0, sizeof image);
    image.magic = LEDGER_MAGIC, image.version = LEDGER_VERSION, image.slots = SLOTS;
    strcpy(image.workload, "w");
    const uint8_t *rest = data + 4 + text;
    size_t more = n - 4 - text, at = (size_t)(data[1] | data[2] << 8) * 8 % sizeof image;
    if (at + more > sizeof image) more = sizeof image - at;
    memcpy((char *)&image + at, rest, more);
    put(path, &image, data[3] & 1 ? sizeof image : at + more, data[3] & 2 ? sizeof image : 0);
    if (attach_slow()) {
        int k = here->column[0];
        uint64_t others = k < 0 ? 0 : sum(here->ledger, k);
        if (reserve(0, CLASS_PLAIN, 4096)) {
            if (others > 1048576) abort();
            release(0, CLASS_PLAIN, 4096);
        } else {
            refuse(0, 4096);
        }
        used_bytes(0);
        over_limit(0);
        charge(0, CLASS_CONTEXT, 4096);
        munmap(here->ledger, sizeof *here->ledger);
        memset(here, 0, sizeof *here);
        attached_pid = 0;
    }
    return 0;
}
