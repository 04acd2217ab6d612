/* The simulated libcuda: initialisation, devices, contexts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

#include "driver.h"

pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
bool initialized;
int ordinals, gpu_of[MAX_GPUS];
__thread struct opaque *stack[MAX_STACK];
__thread int depth;
static struct opaque *primary[MAX_GPUS];
static int contexts_on[MAX_GPUS];

struct opaque *make(enum kind kind, int device) {
    struct opaque *o = calloc(1, sizeof *o);
    if (o) o->kind = kind, o->device = device;
    return o;
}

bool is(const struct opaque *o, enum kind kind) { /* 1 and 2 are the driver's names for two streams */
    return (uintptr_t)o > (uintptr_t)STREAM_PER_THREAD && o->kind == kind;
}

int here(int *device) {
    if (!initialized) return CU_NOT_INITIALIZED;
    if (!current()) return CU_INVALID_CONTEXT;
    *device = current()->device;
    return CU_OK;
}

static void after_fork(void) { /* as with the real driver, a child has to initialise again */
    process_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    initialized = false;
    ordinals = depth = 0;
    memset(primary, 0, sizeof primary);
    memset(contexts_on, 0, sizeof contexts_on);
    memory_after_fork();
}

static int find_card(const char *word, size_t n) {
    if (n && word[0] >= '0' && word[0] <= '9') {
        int i = atoi(word);
        return i < (int)card->gpus ? i : -1;
    }
    for (int i = 0; n && i < (int)card->gpus; i++)
        if (strncmp(card_gpus()[i].uuid, word, n) == 0) return i;
    return -1;
}

API CUresult cuInit(unsigned flags) {
    static bool watched;
    if (flags) return CU_INVALID_VALUE;
    if (!card_attach(true)) return CU_NO_DEVICE;
    LOCKED;
    if (!initialized) {
        const char *list = getenv("CUDA_VISIBLE_DEVICES");
        ordinals = 0;
        if (!list)
            for (; ordinals < (int)card->gpus; ordinals++) gpu_of[ordinals] = ordinals;
        else
            for (const char *word = list; ordinals < MAX_GPUS; word += strcspn(word, ",") + 1) {
                int found = find_card(word, strcspn(word, ","));
                if (found < 0) break; /* like the driver, ignores the rest after an unknown name */
                gpu_of[ordinals++] = found;
                if (!word[strcspn(word, ",")]) break;
            }
        if (!watched) watched = pthread_atfork(NULL, NULL, after_fork) == 0;
        initialized = ordinals > 0;
    }
    UNLOCKED;
    return initialized ? CU_OK : CU_NO_DEVICE;
}

API CUresult cuDriverGetVersion(int *version) { return version ? (*version = DRIVER_VERSION, CU_OK) : CU_INVALID_VALUE; }

#define CHECK_DEVICE(d)                                     \
    do {                                                    \
        if (!initialized) return CU_NOT_INITIALIZED;        \
        if ((d) < 0 || (d) >= ordinals) return CU_INVALID_DEVICE; \
    } while (0)

API CUresult cuDeviceGetCount(int *count) {
    if (!initialized) return CU_NOT_INITIALIZED;
    *count = ordinals;
    return CU_OK;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CHECK_DEVICE(ordinal);
    *device = ordinal;
    return CU_OK;
}

API CUresult cuDeviceGetName(char *name, int n, CUdevice d) {
    CHECK_DEVICE(d);
    if (n > 0) snprintf(name, (size_t)n, "%s", card_gpus()[gpu_of[d]].name);
    return CU_OK;
}

API CUresult cuDeviceGetUuid_v2(struct cu_uuid *uuid, CUdevice d) {
    CHECK_DEVICE(d);
    const char *p = card_gpus()[gpu_of[d]].uuid + 4; /* after GPU- */
    for (int i = 0; i < 16; p += 2) {
        if (*p == '-') p++;
        char digits[3] = {p[0], p[1], 0};
        uuid->bytes[i++] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return CU_OK;
}

API CUresult cuDeviceGetUuid(struct cu_uuid *uuid, CUdevice d) { return cuDeviceGetUuid_v2(uuid, d); }

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) {
    CHECK_DEVICE(d);
    *bytes = card_gpus()[gpu_of[d]].total - card_gpus()[gpu_of[d]].reserved;
    return CU_OK;
}

API CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice d) {
    size_t all;
    CUresult r = cuDeviceTotalMem_v2(&all, d);
    if (r == CU_OK) *bytes = all > UINT32_MAX ? UINT32_MAX : (unsigned)all;
    return r;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d) {
    CHECK_DEVICE(d);
    switch (attribute) {
    case 1: *value = 1024; break;      /* threads per block */
    case 10: *value = 32; break;       /* warp */
    case 13: *value = 1500000; break;  /* kHz */
    case 16: *value = 80; break;       /* multiprocessors */
    case 33: *value = gpu_of[d]; break; /* PCI bus */
    case 41: case 83: case 102: case 115: *value = 1; break; /* unified addressing, managed, VMM, pools */
    case 75: *value = 9; break;        /* compute capability 9.0 */
    default: *value = 0;
    }
    return CU_OK;
}

API CUresult cuDeviceGetPCIBusId(char *text, int n, CUdevice d) {
    CHECK_DEVICE(d);
    snprintf(text, (size_t)n, "00000000:%02X:00.0", gpu_of[d] + 1);
    return CU_OK;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice d) {
    CHECK_DEVICE(d);
    *major = 9, *minor = 0;
    return CU_OK;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
    CHECK_DEVICE(a);
    CHECK_DEVICE(b);
    *can = 0;
    return CU_OK;
}

static CUresult open_context(int d) {
    if (contexts_on[d] == 0 && card_take(gpu_of[d], card->context_bytes) != CU_OK) return CU_OUT_OF_MEMORY;
    contexts_on[d]++;
    card_context(gpu_of[d], true);
    return CU_OK;
}

static void close_context(struct opaque *c) {
    drop_allocations(c);
    if (--contexts_on[c->device] > 0) return;
    card_give(gpu_of[c->device], card->context_bytes);
    card_context(gpu_of[c->device], false);
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) {
    CHECK_DEVICE(d);
    LOCKED;
    if (!primary[d]) primary[d] = make(CONTEXT, d);
    CUresult r = primary[d]->retained ? CU_OK : open_context(d);
    if (r == CU_OK) {
        primary[d]->retained++;
        *out = primary[d];
    }
    UNLOCKED;
    return r;
}

static CUresult primary_down(int d, bool all) {
    CHECK_DEVICE(d);
    LOCKED;
    struct opaque *p = primary[d];
    CUresult r = p && p->retained ? CU_OK : all ? CU_OK : CU_INVALID_CONTEXT;
    if (p && p->retained) {
        uint32_t left = all ? 0 : p->retained - 1;
        if (!left) close_context(p);
        if (!all) p->retained = left;
        if (all && p->retained && open_context(d) != CU_OK) p->retained = 0; /* a reset one is opened again */
    }
    UNLOCKED;
    return r;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) { return primary_down(d, false); }
API CUresult cuDevicePrimaryCtxRelease(CUdevice d) { return primary_down(d, false); }
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice d) { return primary_down(d, true); }
API CUresult cuDevicePrimaryCtxReset(CUdevice d) { return primary_down(d, true); }
API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags) {
    CHECK_DEVICE(d);
    (void)flags;
    return CU_OK;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
    CHECK_DEVICE(d);
    *flags = 0;
    *active = primary[d] && primary[d]->retained;
    return CU_OK;
}

API CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice d) {
    CHECK_DEVICE(d);
    (void)flags;
    if (depth == MAX_STACK) return CU_INVALID_VALUE;
    LOCKED;
    CUresult r = open_context(d);
    if (r == CU_OK) *out = stack[depth++] = make(CONTEXT, d);
    UNLOCKED;
    return r;
}
API CUresult cuCtxCreate(CUcontext *out, unsigned flags, CUdevice d) { return cuCtxCreate_v2(out, flags, d); }
API CUresult cuCtxCreate_v3(CUcontext *out, void *affinity, int n, unsigned flags, CUdevice d) {
    (void)affinity, (void)n;
    return cuCtxCreate_v2(out, flags, d);
}
API CUresult cuCtxCreate_v4(CUcontext *out, void *params, unsigned flags, CUdevice d) {
    (void)params;
    return cuCtxCreate_v2(out, flags, d);
}

API CUresult cuCtxDestroy_v2(CUcontext c) {
    if (!is(c, CONTEXT)) return CU_INVALID_CONTEXT;
    LOCKED;
    close_context(c);
    c->kind = 0; /* never freed: a stale handle gets an error, not a crash */
    UNLOCKED;
    if (current() == c) depth--;
    return CU_OK;
}
API CUresult cuCtxDestroy(CUcontext c) { return cuCtxDestroy_v2(c); }
API CUresult cuCtxDetach(CUcontext c) { return cuCtxDestroy_v2(c); }

API CUresult cuCtxPushCurrent_v2(CUcontext c) {
    if (!is(c, CONTEXT) || depth == MAX_STACK) return CU_INVALID_CONTEXT;
    stack[depth++] = c;
    return CU_OK;
}
API CUresult cuCtxPopCurrent_v2(CUcontext *c) {
    if (!depth) return CU_INVALID_CONTEXT;
    depth--;
    if (c) *c = stack[depth];
    return CU_OK;
}
API CUresult cuCtxSetCurrent(CUcontext c) {
    if (c && !is(c, CONTEXT)) return CU_INVALID_CONTEXT;
    if (depth) depth--;
    if (c) stack[depth++] = c;
    return CU_OK;
}
API CUresult cuCtxGetCurrent(CUcontext *c) {
    if (!initialized) return CU_NOT_INITIALIZED;
    *c = current();
    return CU_OK;
}
API CUresult cuCtxGetDevice(CUdevice *d) { return here(d); }
API CUresult cuCtxGetDevice_v2(CUdevice *d, CUcontext c) {
    if (!c) return here(d);
    if (!is(c, CONTEXT)) return CU_INVALID_CONTEXT;
    *d = c->device;
    return CU_OK;
}
API CUresult cuCtxGetFlags(unsigned *flags) {
    *flags = 0;
    return CU_OK;
}
API CUresult cuCtxGetApiVersion(CUcontext c, unsigned *version) {
    (void)c;
    *version = 3020;
    return CU_OK;
}
API CUresult cuCtxGetId(CUcontext c, unsigned long long *id) {
    *id = (uintptr_t)(c ? c : current());
    return CU_OK;
}
API CUresult cuCtxSetLimit(int limit, size_t value) {
    (void)limit, (void)value;
    return current() ? CU_OK : CU_INVALID_CONTEXT;
}
API CUresult cuCtxGetLimit(size_t *value, int limit) {
    (void)limit;
    *value = 1024;
    return current() ? CU_OK : CU_INVALID_CONTEXT;
}
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = 0;
    return CU_OK;
}
API CUresult cuCtxSynchronize_v2(CUcontext c) {
    int d;
    CUresult r = c ? CU_OK : here(&d);
    if (r == CU_OK) sim_wait_until(busy_until(c ? c : current()));
    return r;
}
API CUresult cuCtxSynchronize(void) { return cuCtxSynchronize_v2(NULL); }

API CUresult cuGetErrorName(int error, const char **text) {
    *text = error == CU_OK              ? "CUDA_SUCCESS"
            : error == CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                        : "CUDA_ERROR_UNKNOWN";
    return CU_OK;
}
API CUresult cuGetErrorString(int error, const char **text) {
    *text = error == CU_OK ? "no error" : error == CU_OUT_OF_MEMORY ? "out of memory" : "an error of the simulated driver";
    return CU_OK;
}
