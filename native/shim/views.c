/* What programs see: the limit as the card's total, the workload's own use and processes, only its own GPUs. */
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "shim.h"

enum { LIST_MOST = 1024 };

static void numbers(int gpu, uint64_t card_total, uint64_t card_free, uint64_t *total, uint64_t *used, uint64_t *left) {
    static uint64_t said;
    uint64_t limit = __atomic_load_n(&config.gpu[gpu].limit, __ATOMIC_RELAXED);
    if (limit > card_total && say_now(&said))
        say("the limit in %s is more than %s has: what it has is the limit", config.path, config.gpu[gpu].name);
    *total = limit < card_total ? limit : card_total;
    *used = used_bytes(gpu);
    if (*used > *total) *used = *total; /* after a running workload's limit was cut */
    *left = *total - *used < card_free ? *total - *used : card_free;
}

int cuMemGetInfo_v2(size_t *left, size_t *total) {
    struct where w;
    if (!cuda_here() || !real.cuMemGetInfo_v2) return CU_NOT_SUPPORTED;
    if (!attached()) return CU_NOT_PERMITTED;
    size_t f = 0, t = 0;
    uint64_t shown, used, rest;
    int r = real.cuMemGetInfo_v2(&f, &t);
    if (r != CU_OK || !where_now(&w)) return r;
    if (w.gpu < 0) return not_ours(w.device);
    config_check(false);
    pools_refresh();
    numbers(w.gpu, t, f, &shown, &used, &rest);
    if (left) *left = rest;
    if (total) *total = shown;
    return r;
}

static U clamp(uint64_t n) { return n > UINT32_MAX ? UINT32_MAX : (U)n; }

int cuMemGetInfo(U *left, U *total) {
    size_t f, t;
    int r = cuMemGetInfo_v2(&f, &t);
    if (r == CU_OK) *left = clamp(f), *total = clamp(t);
    return r;
}

int cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) {
    if (!cuda_here() || !real.cuDeviceTotalMem_v2) return CU_NOT_SUPPORTED;
    int r = real.cuDeviceTotalMem_v2(bytes, d);
    if (r != CU_OK) return r;
    if (!attached()) return CU_NOT_PERMITTED;
    config_check(false);
    int gpu = gpu_of_device(d);
    if (gpu < 0) return *bytes = 0, r; /* not ours: no memory */
    uint64_t shown, used, rest;
    numbers(gpu, *bytes, *bytes, &shown, &used, &rest);
    *bytes = shown;
    return r;
}

int cuDeviceTotalMem(U *bytes, CUdevice d) {
    size_t n;
    int r = cuDeviceTotalMem_v2(&n, d);
    if (r == CU_OK) *bytes = clamp(n);
    return r;
}

/* ---- NVML: which GPUs there are ---------------------------------------------------------------------------------- */

static int share_of(nvmlDevice d) {
    char uuid[96] = "";
    unsigned char raw[16];
    if (!real.nvmlDeviceGetUUID || real.nvmlDeviceGetUUID(d, uuid, sizeof uuid) != NVML_OK || !parse_uuid(uuid, raw)) return -1;
    return share_of_uuid(raw);
}

static int all_of_them(U *n) { return real.nvmlDeviceGetCount_v2 ? real.nvmlDeviceGetCount_v2(n) : real.nvmlDeviceGetCount ? real.nvmlDeviceGetCount(n) : NVML_FUNCTION_NOT_FOUND; }
static int raw_handle(U i, nvmlDevice *d) {
    return real.nvmlDeviceGetHandleByIndex_v2 ? real.nvmlDeviceGetHandleByIndex_v2(i, d)
           : real.nvmlDeviceGetHandleByIndex  ? real.nvmlDeviceGetHandleByIndex(i, d)
                                              : NVML_FUNCTION_NOT_FOUND;
}

/* Walks the workload's GPUs in NVML's order until number `want` or handle `is`; *n: how many it passed. */
static int walk(U want, nvmlDevice is, nvmlDevice *found, U *n) {
    U all = 0;
    int r = all_of_them(&all);
    *n = 0;
    if (r != NVML_OK) return r;
    if (!config_load()) return NVML_NOT_FOUND;
    for (U i = 0; i < all; i++) {
        nvmlDevice d;
        if (raw_handle(i, &d) != NVML_OK || share_of(d) < 0) continue;
        if ((found && *n == want) || (is && d == is)) {
            if (found) *found = d;
            return NVML_OK;
        }
        ++*n;
    }
    return NVML_NOT_FOUND;
}

#define HERE                                                    \
    if (!nvml_here(false)) return NVML_LIBRARY_NOT_FOUND

int nvmlDeviceGetCount_v2(U *n) {
    HERE;
    int r = walk(UINT32_MAX, NULL, NULL, n);
    return r == NVML_NOT_FOUND ? NVML_OK : r;
}
int nvmlDeviceGetCount(U *n) { return nvmlDeviceGetCount_v2(n); }
int nvmlDeviceGetHandleByIndex_v2(U i, nvmlDevice *d) {
    U n;
    HERE;
    if (!d) return NVML_INVALID_ARGUMENT;
    int r = walk(i, NULL, d, &n);
    return r == NVML_NOT_FOUND ? NVML_INVALID_ARGUMENT : r;
}
int nvmlDeviceGetHandleByIndex(U i, nvmlDevice *d) { return nvmlDeviceGetHandleByIndex_v2(i, d); }
int nvmlDeviceGetIndex(nvmlDevice d, U *i) {
    U n;
    HERE;
    int r = walk(UINT32_MAX, d, NULL, &n);
    if (r == NVML_NOT_FOUND) return real.nvmlDeviceGetIndex ? real.nvmlDeviceGetIndex(d, i) : r; /* a part of a MIG GPU */
    if (r == NVML_OK) *i = n;
    return r;
}

static int only_ours(int r, nvmlDevice *d) { return r == NVML_OK && (!config_load() || share_of(*d) < 0) ? NVML_NOT_FOUND : r; }
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice *d) {
    HERE;
    return real.nvmlDeviceGetHandleByUUID ? only_ours(real.nvmlDeviceGetHandleByUUID(uuid, d), d) : NVML_FUNCTION_NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice *d) {
    HERE;
    return real.nvmlDeviceGetHandleByPciBusId_v2 ? only_ours(real.nvmlDeviceGetHandleByPciBusId_v2(id, d), d) : NVML_FUNCTION_NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice *d) {
    HERE;
    return real.nvmlDeviceGetHandleByPciBusId ? only_ours(real.nvmlDeviceGetHandleByPciBusId(id, d), d) : NVML_FUNCTION_NOT_FOUND;
}

/* ---- NVML: memory ------------------------------------------------------------------------------------------------ */

static int ours_now(nvmlDevice d) {
    if (!config_load()) return -1;
    config_check(false);
    return share_of(d);
}

int nvmlDeviceGetMemoryInfo(nvmlDevice d, struct nvml_memory *m) {
    HERE;
    int r = real.nvmlDeviceGetMemoryInfo ? real.nvmlDeviceGetMemoryInfo(d, m) : NVML_FUNCTION_NOT_FOUND, gpu = ours_now(d);
    uint64_t total, used, left;
    if (r != NVML_OK) return r;
    if (gpu < 0) return NVML_NO_PERMISSION;
    numbers(gpu, m->total, m->free, &total, &used, &left);
    *m = (struct nvml_memory){total, left, used};
    return r;
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice d, struct nvml_memory2 *m) {
    HERE;
    int r = real.nvmlDeviceGetMemoryInfo_v2 ? real.nvmlDeviceGetMemoryInfo_v2(d, m) : NVML_FUNCTION_NOT_FOUND, gpu = ours_now(d);
    uint64_t total, used, left;
    if (r != NVML_OK) return r;
    if (gpu < 0) return NVML_NO_PERMISSION;
    numbers(gpu, m->total - m->reserved, m->free, &total, &used, &left);
    m->total = total, m->used = used, m->free = left;
    m->reserved = total - used - left; /* keeps the sum right if the card has less free than the share */
    return r;
}

/* ---- NVML: processes --------------------------------------------------------------------------------------------- */

static int column_of(const struct ledger *l, int gpu) {
    for (uint32_t k = 0; k < MAX_GPUS && k < l->gpus; k++)
        if (memcmp(l->uuid[k], config.gpu[gpu].uuid, 16) == 0) return (int)k;
    return -1;
}

/* Lists the workload's processes on a GPU from its ledger, because in a container NVML's pids mean nothing. */
static int compute_list(nvmlDevice d, U *n, void *rows, bool wide, int asked) {
    if (asked != NVML_OK && asked != NVML_INSUFFICIENT_SIZE) return asked;
    int gpu = ours_now(d);
    if (gpu < 0) return NVML_NO_PERMISSION;
    used_bytes(gpu); /* drops dead processes */
    struct ledger *l = ledger_view();
    int k = l ? column_of(l, gpu) : -1;
    U found = 0;
    for (uint32_t i = 0; k >= 0 && i < l->high && i < SLOTS; i++) {
        const struct slot *s = &l->slot[i];
        uint64_t bytes = l->charged[k][i] + l->extra[k][i];
        if (!s->live || (!bytes && !(s->contexts >> k & 1))) continue;
        if (rows && found < *n && wide) ((struct nvml_process *)rows)[found] = (struct nvml_process){s->pid, bytes, ~0u, ~0u};
        else if (rows && found < *n) ((struct nvml_process1 *)rows)[found] = (struct nvml_process1){s->pid, bytes};
        found++;
    }
    int r = found > *n ? NVML_INSUFFICIENT_SIZE : NVML_OK;
    *n = found;
    return r;
}

#define COMPUTE(name, type, wide)                                                                \
    int name(nvmlDevice d, U *n, type *rows) {                                                   \
        U none = 0;                                                                              \
        HERE;                                                                                    \
        if (!n) return NVML_INVALID_ARGUMENT;                                                    \
        return compute_list(d, n, rows, wide, real.name ? real.name(d, &none, NULL) : NVML_FUNCTION_NOT_FOUND); \
    }
COMPUTE(nvmlDeviceGetComputeRunningProcesses, struct nvml_process1, false)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v2, struct nvml_process, true)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v3, struct nvml_process, true)

static bool one_of_us(uint32_t pid) {
    const struct ledger *l = ledger_view();
    for (uint32_t i = 0; l && i < l->high && i < SLOTS; i++)
        if (l->slot[i].live && (l->slot[i].pid == pid || l->slot[i].host_pid == pid)) return true;
    return false;
}

/* Keeps the rows whose pid (at `at`) is the workload's. */
static U filter(void *rows, U n, size_t size, size_t at) {
    U kept = 0;
    for (U i = 0; i < n; i++) {
        uint32_t pid;
        memcpy(&pid, (char *)rows + i * size + at, sizeof pid);
        if (!one_of_us(pid)) continue;
        if (kept != i) memmove((char *)rows + kept * size, (char *)rows + i * size, size);
        kept++;
    }
    return kept;
}

#define FILTERED(name, type)                                                     \
    int name(nvmlDevice d, U *n, type *rows) {                                   \
        HERE;                                                                    \
        int r = real.name ? real.name(d, n, rows) : NVML_FUNCTION_NOT_FOUND;     \
        if (r == NVML_OK && rows && config_load()) *n = filter(rows, *n, sizeof *rows, 0); \
        return r;                                                                \
    }
FILTERED(nvmlDeviceGetGraphicsRunningProcesses, struct nvml_process1)
FILTERED(nvmlDeviceGetGraphicsRunningProcesses_v2, struct nvml_process)
FILTERED(nvmlDeviceGetGraphicsRunningProcesses_v3, struct nvml_process)
FILTERED(nvmlDeviceGetMPSComputeRunningProcesses, struct nvml_process1)
FILTERED(nvmlDeviceGetMPSComputeRunningProcesses_v2, struct nvml_process)
FILTERED(nvmlDeviceGetMPSComputeRunningProcesses_v3, struct nvml_process)

int nvmlDeviceGetRunningProcessDetailList(nvmlDevice d, void *list) {
    struct {
        U version, mode, n;
        void *rows;
    } *l = list;
    HERE;
    int r = real.nvmlDeviceGetRunningProcessDetailList ? real.nvmlDeviceGetRunningProcessDetailList(d, list) : NVML_FUNCTION_NOT_FOUND;
    if (r == NVML_OK && l->rows && config_load()) l->n = filter(l->rows, l->n, 32, 0); /* pid, used, instances, protected */
    return r;
}
int nvmlDeviceGetProcessUtilization(nvmlDevice d, void *rows, U *n, unsigned long long since) {
    HERE;
    int r = real.nvmlDeviceGetProcessUtilization ? real.nvmlDeviceGetProcessUtilization(d, rows, n, since) : NVML_FUNCTION_NOT_FOUND;
    if (r == NVML_OK && rows && config_load()) *n = filter(rows, *n, 32, 0); /* pid, time, four rates */
    return r;
}
int nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice d, void *list) {
    struct {
        U version, n;
        unsigned long long since;
        void *rows;
    } *l = list;
    HERE;
    int r = real.nvmlDeviceGetProcessesUtilizationInfo ? real.nvmlDeviceGetProcessesUtilizationInfo(d, list) : NVML_FUNCTION_NOT_FOUND;
    if (r == NVML_OK && l->rows && config_load()) l->n = filter(l->rows, l->n, 40, 8); /* time, pid, six rates */
    return r;
}

uint64_t nvml_own_bytes(int gpu, bool *known) {
    static uint32_t begun;
    nvmlDevice d;
    *known = false;
    if (!nvml_here(true)) return 0;
    if (!__atomic_exchange_n(&begun, 1, __ATOMIC_ACQ_REL) && real.nvmlInit_v2() != NVML_OK) return 0;
    if (!real.nvmlDeviceGetHandleByUUID || real.nvmlDeviceGetHandleByUUID(config.gpu[gpu].name, &d) != NVML_OK) return 0;
    int (*ask)(nvmlDevice, U *, struct nvml_process *) = real.nvmlDeviceGetComputeRunningProcesses_v3 ? real.nvmlDeviceGetComputeRunningProcesses_v3 : real.nvmlDeviceGetComputeRunningProcesses_v2;
    struct nvml_process rows[LIST_MOST / 4];
    U n = LIST_MOST / 4;
    if (!ask || ask(d, &n, rows) != NVML_OK) return 0;
    for (U i = 0; i < n; i++) {
        if (rows[i].pid != (U)getpid() || rows[i].used == ~0ull) continue;
        *known = true; /* in a container no pid matches (they are the host's): the node adds what it sees */
        return rows[i].used;
    }
    return 0;
}
