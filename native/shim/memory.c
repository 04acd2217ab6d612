/* Plain device memory and contexts. An allocation is charged before the driver is called and released after the driver
 * has freed it: the ledger never has less than the card has given. */
#include "shim.h"

enum { ROUND = 512, MAX_ORDINALS = 64, CONTEXT_MOST = 2047 << 20, MEASURE_NS = 250000000, OPEN_MOST = 64 };

static int8_t ordinal_gpu[MAX_ORDINALS]; /* ordinal -> 1 + index in config.gpu; 0: not asked yet, or not ours */
static uint32_t generation = 1;          /* of the caches in where_now(): which context is on which GPU */
static struct mutex counting;
static struct { /* contexts that this process has opened */
    CUcontext context;
    CUdevice device;
    uint32_t retained; /* how often, of a primary context */
} opened[OPEN_MOST];

void contexts_forget(void) {
    counting.word = 0;
    for (int i = 0; i < OPEN_MOST; i++) opened[i].context = NULL, opened[i].retained = 0;
    for (int i = 0; i < MAX_ORDINALS; i++) ordinal_gpu[i] = 0;
    generation++;
}

int gpu_of_device(CUdevice d) {
    struct cu_uuid uuid;
    if (d < 0 || d >= MAX_ORDINALS) return -1;
    int8_t known = __atomic_load_n(&ordinal_gpu[d], __ATOMIC_RELAXED);
    if (known > 0) return known - 1;
    int r = real.cuDeviceGetUuid_v2 ? real.cuDeviceGetUuid_v2(&uuid, d) : real.cuDeviceGetUuid ? real.cuDeviceGetUuid(&uuid, d) : CU_NOT_FOUND;
    if (r != CU_OK) return -1;
    int gpu = share_of_uuid(uuid.bytes); /* not cached while it is not ours: it may be granted later */
    if (gpu >= 0) __atomic_store_n(&ordinal_gpu[d], (int8_t)(gpu + 1), __ATOMIC_RELAXED);
    return gpu;
}

int not_ours(CUdevice d) {
    static uint64_t said;
    if (say_now(&said)) say("GPU %d of this program is not one that was given to workload %s: see %s", d, config.workload, config.path);
    return CU_OUT_OF_MEMORY;
}

bool where_now(struct where *w) {
    static LOCAL struct where last;
    static LOCAL uint32_t last_generation;
    if (!real.cuCtxGetCurrent || real.cuCtxGetCurrent(&w->context) != CU_OK || !w->context) return false;
    if (LIKELY(last.context == w->context && last_generation == __atomic_load_n(&generation, __ATOMIC_RELAXED) && last.gpu >= 0)) {
        *w = last;
        return true;
    }
    if (real.cuCtxGetDevice(&w->device) != CU_OK) return false;
    w->gpu = gpu_of_device(w->device);
    last = *w;
    last_generation = generation;
    return true;
}

static uint64_t rounded(uint64_t bytes) { return bytes > INT64_MAX ? bytes : (bytes + ROUND - 1) / ROUND * ROUND; }

/* The first lines of a hook: returns an error if the driver lacks the function or there is no ledger. */
#define START(name)                                                        \
    if (!cuda_here() || !real.name) return CU_NOT_SUPPORTED;               \
    if (!attached()) return CU_OUT_OF_MEMORY

/* ---- allocation ------------------------------------------------------------------------------------------------- */

#define CHARGED(kind_, bytes_, call, pointer)                                                   \
    struct where w;                                                                             \
    if (!where_now(&w)) return call;                                                            \
    if (w.gpu < 0) return not_ours(w.device);                                                   \
    uint64_t taken = rounded(bytes_);                                                           \
    if (!reserve(w.gpu, kind_, taken)) return refuse(w.gpu, taken);                             \
    int r = call;                                                                               \
    if (UNLIKELY(r != CU_OK)) {                                                                 \
        release(w.gpu, kind_, taken);                                                           \
        return card_full(w.gpu, taken, r);                                                      \
    }                                                                                           \
    table_put(&pointers, (struct entry){pointer, taken, (uintptr_t)w.context, w.gpu, kind_});   \
    return r

int cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    START(cuMemAlloc_v2);
    CHARGED(CLASS_PLAIN, bytes, real.cuMemAlloc_v2(out, bytes), *out);
}
int cuMemAlloc(U *out, U bytes) {
    START(cuMemAlloc);
    CHARGED(CLASS_PLAIN, bytes, real.cuMemAlloc(out, bytes), *out);
}
int cuMemAllocManaged(CUdeviceptr *out, size_t bytes, U flags) { /* could all become resident: charged in full */
    START(cuMemAllocManaged);
    CHARGED(CLASS_MANAGED, bytes, real.cuMemAllocManaged(out, bytes, flags), *out);
}

/* The driver chooses the pitch: `taken` is for rows rounded up to 512 bytes; corrects the charge to the real bytes. */
static int pitched(struct where *w, uint64_t pointer, uint64_t taken, uint64_t real_bytes) {
    if (real_bytes > taken && !reserve(w->gpu, CLASS_PLAIN, real_bytes - taken)) {
        release(w->gpu, CLASS_PLAIN, taken);
        return CU_OUT_OF_MEMORY;
    }
    if (real_bytes < taken) release(w->gpu, CLASS_PLAIN, taken - real_bytes);
    table_put(&pointers, (struct entry){pointer, real_bytes, (uintptr_t)w->context, w->gpu, CLASS_PLAIN});
    return CU_OK;
}
int cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, U element) {
    START(cuMemAllocPitch_v2);
    struct where w;
    if (!where_now(&w) || !height || width > INT64_MAX / height) return real.cuMemAllocPitch_v2(out, pitch, width, height, element);
    if (w.gpu < 0) return not_ours(w.device);
    uint64_t taken = rounded(rounded(width) * height);
    if (!reserve(w.gpu, CLASS_PLAIN, taken)) return refuse(w.gpu, taken);
    int r = real.cuMemAllocPitch_v2(out, pitch, width, height, element);
    if (r != CU_OK) {
        release(w.gpu, CLASS_PLAIN, taken);
        return card_full(w.gpu, taken, r);
    }
    r = pitched(&w, *out, taken, rounded(*pitch * height));
    if (r != CU_OK) real.cuMemFree_v2(*out), refuse(w.gpu, *pitch * height);
    return r;
}
int cuMemAllocPitch(U *out, U *pitch, U width, U height, U element) {
    START(cuMemAllocPitch);
    CHARGED(CLASS_PLAIN, rounded(width) * height, real.cuMemAllocPitch(out, pitch, width, height, element), *out);
}

static int freed(uint64_t pointer, int (*give)(uint64_t, CUstream), CUstream stream) {
    struct entry e;
    bool known = table_take(&pointers, pointer, &e); /* before the driver can hand the address out again */
    int r = give(pointer, stream);
    if (!known) return r;
    if (r != CU_OK) table_put(&pointers, e);
    else if (e.kind != CLASS_POOL || !pool_pointer_freed(&e)) release(e.gpu, e.kind, e.bytes);
    return r;
}
static int give_v2(uint64_t p, CUstream s) { return (void)s, real.cuMemFree_v2(p); }
static int give_v1(uint64_t p, CUstream s) { return (void)s, real.cuMemFree((U)p); }
static int give_async(uint64_t p, CUstream s) { return real.cuMemFreeAsync(p, s); }
static int give_async_ptsz(uint64_t p, CUstream s) { return real.cuMemFreeAsync_ptsz(p, s); }

#define START_FREE(name)                                                   \
    if (!cuda_here() || !real.name) return CU_NOT_SUPPORTED;               \
    attached() /* a forked child must not take its parent's pointers for its own */

int cuMemFree_v2(CUdeviceptr p) {
    START_FREE(cuMemFree_v2);
    return freed(p, give_v2, NULL);
}
int cuMemFree(U p) {
    START_FREE(cuMemFree);
    return freed(p, give_v1, NULL);
}
int cuMemFreeAsync(CUdeviceptr p, CUstream s) {
    START_FREE(cuMemFreeAsync);
    return freed(p, give_async, s);
}
int cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s) {
    START_FREE(cuMemFreeAsync_ptsz);
    return freed(p, give_async_ptsz, s);
}

/* ---- contexts --------------------------------------------------------------------------------------------------- */

static void set_overhead(int gpu, uint64_t bytes) {
    uint64_t old = own_bytes(gpu, CLASS_CONTEXT);
    charge(gpu, CLASS_CONTEXT, (int64_t)(bytes - old));
}

/* Charges what NVML reports for this process beyond its allocations: contexts, modules, heaps. */
void overhead_measure(int gpu) {
    bool known;
    uint64_t seen = nvml_own_bytes(gpu, &known), asked = own_bytes(gpu, CLASSES) - own_bytes(gpu, CLASS_CONTEXT);
    if (!known) return;
    uint64_t beyond = seen > asked ? seen - asked : 0;
    set_overhead(gpu, beyond > CONTEXT_MOST ? CONTEXT_MOST : beyond);
}

static void now_and_then(void) {
    static uint64_t last;
    struct where w;
    uint64_t now = now_ns(), before = __atomic_load_n(&last, __ATOMIC_RELAXED);
    if (before && now - before < MEASURE_NS) return;
    __atomic_store_n(&last, now, __ATOMIC_RELAXED);
    if (attached() && where_now(&w) && w.gpu >= 0) overhead_measure(w.gpu);
}

static bool any_open(CUdevice d) {
    for (int i = 0; i < OPEN_MOST; i++)
        if (opened[i].context && opened[i].device == d) return true;
    return false;
}

static void set_mark(int gpu, bool on) {
    int k = here->column[gpu];
    uint32_t *mask = &here->ledger->slot[here->slot].contexts;
    if (k >= 0 && on) __atomic_or_fetch(mask, 1u << k, __ATOMIC_RELAXED);
    if (k >= 0 && !on) __atomic_and_fetch(mask, ~(1u << k), __ATOMIC_RELAXED);
}

/* Records and charges a new context. False if the workload is then over its limit. */
static bool came(CUcontext c, CUdevice d, int gpu, bool primary) {
    lock(&counting);
    int at = -1;
    for (int i = 0; i < OPEN_MOST; i++) {
        if (opened[i].context == c && opened[i].device == d) at = i;
        else if (at < 0 && !opened[i].context) at = i;
    }
    bool fresh = at >= 0 && !opened[at].context;
    if (at >= 0) {
        opened[at].context = c;
        opened[at].device = d;
        opened[at].retained += primary;
    }
    unlock(&counting);
    if (!fresh) return true;
    set_mark(gpu, true);
    overhead_measure(gpu);
    gate_join(gpu);
    return !over_limit(gpu);
}

static void drop(const struct entry *e) {
    if (e->kind != CLASS_POOL) release(e->gpu, e->kind, e->bytes);
}

/* Releases all that a destroyed context owned. */
static void went(CUcontext c, CUdevice d, bool wholly) {
    lock(&counting);
    for (int i = 0; i < OPEN_MOST; i++) {
        if (opened[i].context != c || opened[i].device != d) continue;
        if (wholly) opened[i].context = NULL, opened[i].retained = 0;
    }
    bool more = any_open(d);
    unlock(&counting);
    __atomic_add_fetch(&generation, 1, __ATOMIC_RELAXED);
    int gpu = gpu_of_device(d);
    if (gpu < 0) return;
    table_sweep(&pointers, (uintptr_t)c, drop);
    table_sweep(&arrays, (uintptr_t)c, drop);
    pools_refresh();
    if (more) overhead_measure(gpu);
    else set_overhead(gpu, 0), set_mark(gpu, false);
}

int cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) {
    START(cuDevicePrimaryCtxRetain);
    int gpu = gpu_of_device(d);
    if (gpu < 0 && d >= 0) {
        int r = real.cuDevicePrimaryCtxRetain(out, d); /* a wrong ordinal gets the driver's error */
        if (r == CU_OK) real.cuDevicePrimaryCtxRelease_v2(d);
        return r == CU_OK ? not_ours(d) : r;
    }
    int r = real.cuDevicePrimaryCtxRetain(out, d);
    if (r != CU_OK || gpu < 0) return r;
    if (came(*out, d, gpu, true)) return r;
    real.cuDevicePrimaryCtxRelease_v2(d);
    went(*out, d, true);
    return refuse(gpu, 0);
}

static int primary_gone(CUdevice d, bool reset, int (*give)(CUdevice)) {
    CUcontext c = NULL;
    bool last = reset;
    lock(&counting);
    for (int i = 0; i < OPEN_MOST; i++) {
        if (!opened[i].context || opened[i].device != d || !opened[i].retained) continue;
        c = opened[i].context;
        if (!reset && --opened[i].retained == 0) last = true;
    }
    unlock(&counting);
    if (last && c) gate_context_gone(c);
    int r = give(d);
    if (r == CU_OK && last && c) went(c, d, !reset);
    return r;
}
int cuDevicePrimaryCtxRelease_v2(CUdevice d) {
    START_FREE(cuDevicePrimaryCtxRelease_v2);
    return primary_gone(d, false, real.cuDevicePrimaryCtxRelease_v2);
}
int cuDevicePrimaryCtxRelease(CUdevice d) {
    START_FREE(cuDevicePrimaryCtxRelease);
    return primary_gone(d, false, real.cuDevicePrimaryCtxRelease);
}
int cuDevicePrimaryCtxReset_v2(CUdevice d) {
    START_FREE(cuDevicePrimaryCtxReset_v2);
    return primary_gone(d, true, real.cuDevicePrimaryCtxReset_v2);
}
int cuDevicePrimaryCtxReset(CUdevice d) {
    START_FREE(cuDevicePrimaryCtxReset);
    return primary_gone(d, true, real.cuDevicePrimaryCtxReset);
}

static int created(CUcontext *out, CUdevice d, int r) {
    if (r != CU_OK) return r;
    int gpu = gpu_of_device(d);
    if (gpu >= 0 && came(*out, d, gpu, false)) return r;
    if (gpu >= 0) went(*out, d, true);
    real.cuCtxDestroy_v2(*out);
    return gpu >= 0 ? refuse(gpu, 0) : not_ours(d);
}
int cuCtxCreate(CUcontext *out, U flags, CUdevice d) {
    START(cuCtxCreate);
    return created(out, d, real.cuCtxCreate(out, flags, d));
}
int cuCtxCreate_v2(CUcontext *out, U flags, CUdevice d) {
    START(cuCtxCreate_v2);
    return created(out, d, real.cuCtxCreate_v2(out, flags, d));
}
int cuCtxCreate_v3(CUcontext *out, void *affinity, int n, U flags, CUdevice d) {
    START(cuCtxCreate_v3);
    return created(out, d, real.cuCtxCreate_v3(out, affinity, n, flags, d));
}
int cuCtxCreate_v4(CUcontext *out, void *params, U flags, CUdevice d) {
    START(cuCtxCreate_v4);
    return created(out, d, real.cuCtxCreate_v4(out, params, flags, d));
}
int cuGreenCtxCreate(void **out, void *description, CUdevice d, U flags) {
    START(cuGreenCtxCreate);
    int gpu = gpu_of_device(d), r = gpu < 0 ? not_ours(d) : real.cuGreenCtxCreate(out, description, d, flags);
    if (r == CU_OK) overhead_measure(gpu);
    return r;
}

static int ended(CUcontext c, int (*give)(CUcontext)) {
    CUdevice d = -1;
    lock(&counting);
    for (int i = 0; i < OPEN_MOST; i++)
        if (c && opened[i].context == c) d = opened[i].device;
    unlock(&counting);
    gate_context_gone(c);
    int r = give(c);
    if (r == CU_OK && d >= 0) went(c, d, true);
    return r;
}
int cuCtxDestroy_v2(CUcontext c) {
    START_FREE(cuCtxDestroy_v2);
    return ended(c, real.cuCtxDestroy_v2);
}
int cuCtxDestroy(CUcontext c) {
    START_FREE(cuCtxDestroy);
    return ended(c, real.cuCtxDestroy);
}
int cuCtxDetach(CUcontext c) {
    START_FREE(cuCtxDetach);
    return ended(c, real.cuCtxDetach);
}

/* ---- calls that make a context larger --------------------------------------------------------------------------- */

#define LARGER(name, params, args)                              \
    int name params {                                           \
        if (!cuda_here() || !real.name) return CU_NOT_SUPPORTED; \
        int r = real.name args;                                 \
        if (r == CU_OK) now_and_then();                         \
        return r;                                               \
    }
LARGER(cuCtxSetLimit, (int limit, size_t value), (limit, value))
LARGER(cuModuleLoad, (CUmodule * out, const char *file), (out, file))
LARGER(cuModuleLoadData, (CUmodule * out, const void *image), (out, image))
LARGER(cuModuleLoadDataEx, (CUmodule * out, const void *image, U n, int *options, void **values), (out, image, n, options, values))
LARGER(cuModuleLoadFatBinary, (CUmodule * out, const void *image), (out, image))
LARGER(cuLibraryLoadData, (CUlibrary * out, const void *code, int *a, void **b, U c, int *d, void **e, U f), (out, code, a, b, c, d, e, f))
LARGER(cuLibraryLoadFromFile, (CUlibrary * out, const char *file, int *a, void **b, U c, int *d, void **e, U f), (out, file, a, b, c, d, e, f))

int cuInit(U flags) {
    if (!cuda_here() || !real.cuInit) return CU_NO_DEVICE; /* a program that only asks whether there is a driver */
    if (!attached()) return CU_NOT_PERMITTED;
    return real.cuInit(flags);
}
