/* The simulated libcuda: device memory in all of its kinds. Addresses are numbers; nothing is stored behind them. */
#define _GNU_SOURCE
#include "driver.h"

enum how { PLAIN, POOLED, GRAPHED };
struct handle { /* physical memory of cuMemCreate: lives while a handle or a mapping does */
    uint64_t bytes;
    int gpu, references; /* gpu -1: host memory, which no card counts */
};

static struct map plain, pooled, mapped, handles; /* address -> bytes+context, bytes+pool, bytes+handle; id -> handle */
static CUdeviceptr next_address = 0x700000000000;
static struct {
    CUdeviceptr ptr;
    uint64_t bytes;
} last_freed; /* addresses are reused, as by a real driver */
static struct opaque *default_pool[MAX_GPUS], *pool_of[MAX_GPUS];
static uint64_t next_handle = 1;
static struct {
    uint64_t reserved, used;
} graphs[MAX_GPUS];

void memory_after_fork(void) {
    memset(&plain, 0, sizeof plain); /* leaked on purpose: another thread may have been at work on them */
    memset(&pooled, 0, sizeof pooled);
    memset(&mapped, 0, sizeof mapped);
    memset(&handles, 0, sizeof handles);
    memset(default_pool, 0, sizeof default_pool);
    memset(pool_of, 0, sizeof pool_of);
    memset(graphs, 0, sizeof graphs);
}

static uint64_t rounded(uint64_t n, uint64_t to) { return n > UINT64_MAX - to ? n : (n + to - 1) / to * to; }

static CUdeviceptr address(uint64_t bytes) {
    if (last_freed.ptr && last_freed.bytes == bytes) {
        CUdeviceptr again = last_freed.ptr;
        last_freed.ptr = 0;
        return again;
    }
    CUdeviceptr fresh = next_address;
    next_address += rounded(bytes, 512);
    return fresh;
}

API CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    int d;
    CUresult r = here(&d);
    if (r != CU_OK) return r;
    *left = card_free(gpu_of[d]);
    *total = card_gpus()[gpu_of[d]].total - card_gpus()[gpu_of[d]].reserved;
    return CU_OK;
}
API CUresult cuMemGetInfo(unsigned *left, unsigned *total) {
    size_t l, t;
    CUresult r = cuMemGetInfo_v2(&l, &t);
    if (r == CU_OK) *left = l > UINT32_MAX ? UINT32_MAX : (unsigned)l, *total = t > UINT32_MAX ? UINT32_MAX : (unsigned)t;
    return r;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    int d;
    CUresult r = here(&d);
    if (r != CU_OK) return r;
    if (!bytes || !out) return CU_INVALID_VALUE;
    uint64_t taken = rounded(bytes, 512);
    LOCKED;
    r = card_take(gpu_of[d], taken);
    if (r == CU_OK) {
        *out = address(taken);
        map_put(&plain, *out, taken, (uintptr_t)current());
    }
    UNLOCKED;
    return r;
}
API CUresult cuMemAlloc(unsigned *out, unsigned bytes) { /* the 32-bit one: its addresses do not fit, but its bytes count */
    CUdeviceptr p;
    CUresult r = cuMemAlloc_v2(&p, bytes);
    if (r == CU_OK) {
        LOCKED;
        uint64_t taken = 0, context = 0;
        map_take(&plain, p, &taken, &context);
        next_address += 512;
        *out = (unsigned)(next_address / 512 % UINT32_MAX + 1);
        map_put(&plain, *out, taken, context);
        UNLOCKED;
    }
    return r;
}
API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = rounded(width, 512);
    return cuMemAlloc_v2(out, *pitch * height);
}
API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) {
    (void)flags;
    return cuMemAlloc_v2(out, bytes);
}

static bool free_pooled(CUdeviceptr ptr) { /* under the lock */
    uint64_t bytes, at;
    if (!map_take(&pooled, ptr, &bytes, &at)) return false;
    struct opaque *pool = (struct opaque *)(uintptr_t)at;
    pool->used -= bytes;
    if (pool->gone) {
        if (!pool->host) card_give(gpu_of[pool->device], bytes);
        pool->reserved -= bytes;
    }
    return true;
}

API CUresult cuMemFree_v2(CUdeviceptr ptr) {
    uint64_t bytes, context;
    if (!initialized) return CU_NOT_INITIALIZED;
    if (!ptr) return CU_OK;
    LOCKED;
    bool known = map_take(&plain, ptr, &bytes, &context);
    if (known) {
        card_give(gpu_of[((struct opaque *)(uintptr_t)context)->device], bytes);
        last_freed.ptr = ptr;
        last_freed.bytes = bytes;
    } else {
        known = free_pooled(ptr);
    }
    UNLOCKED;
    return known ? CU_OK : CU_INVALID_VALUE;
}
API CUresult cuMemFree(unsigned ptr) { return cuMemFree_v2(ptr); }

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr) {
    uint64_t bytes, who;
    LOCKED;
    bool known = map_get(&plain, ptr, &bytes, &who) || map_get(&pooled, ptr, &bytes, &who);
    UNLOCKED;
    if (!known) return CU_NOT_FOUND;
    if (base) *base = ptr;
    if (size) *size = bytes;
    return CU_OK;
}

void drop_allocations(struct opaque *context) {
    for (uint64_t i = 0; i < plain.room;) {
        uint64_t bytes, who;
        if (plain.rows[i].key && plain.rows[i].b == (uintptr_t)context && map_take(&plain, plain.rows[i].key, &bytes, &who))
            card_give(gpu_of[context->device], bytes);
        else
            i++; /* a removal may have moved another row here */
    }
}

API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return (*out = malloc(bytes)) ? CU_OK : CU_OUT_OF_MEMORY;
}
API CUresult cuMemAllocHost_v2(void **out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }
API CUresult cuMemFreeHost(void *p) {
    free(p);
    return CU_OK;
}

/* ---- pools ------------------------------------------------------------------------------------------------------ */

static struct opaque *own_pool(int d) {
    if (!default_pool[d]) default_pool[d] = make(POOL, d);
    if (!pool_of[d]) pool_of[d] = default_pool[d];
    return pool_of[d];
}

static void shrink(struct opaque *pool, uint64_t keep) { /* under the lock */
    uint64_t least = rounded(pool->used > keep ? pool->used : keep, CHUNK);
    if (pool->gone || least >= pool->reserved) return;
    if (!pool->host) card_give(gpu_of[pool->device], pool->reserved - least);
    pool->reserved = least;
}

void pools_at_sync(void); /* a pool gives back what exceeds its threshold when the program synchronises */
void pools_at_sync(void) {
    LOCKED;
    for (int d = 0; d < ordinals; d++) {
        if (default_pool[d]) shrink(default_pool[d], default_pool[d]->threshold);
        if (pool_of[d] && pool_of[d] != default_pool[d]) shrink(pool_of[d], pool_of[d]->threshold);
    }
    UNLOCKED;
}

API CUresult cuDeviceGetDefaultMemPool(CUmemPool *out, CUdevice d) {
    if (d < 0 || d >= ordinals) return CU_INVALID_DEVICE;
    LOCKED;
    own_pool(d);
    *out = default_pool[d];
    UNLOCKED;
    return CU_OK;
}
API CUresult cuDeviceGetMemPool(CUmemPool *out, CUdevice d) {
    if (d < 0 || d >= ordinals) return CU_INVALID_DEVICE;
    LOCKED;
    *out = own_pool(d);
    UNLOCKED;
    return CU_OK;
}
API CUresult cuDeviceSetMemPool(CUdevice d, CUmemPool pool) {
    if (d < 0 || d >= ordinals || !is(pool, POOL)) return CU_INVALID_VALUE;
    pool_of[d] = pool;
    return CU_OK;
}
API CUresult cuMemPoolCreate(CUmemPool *out, const struct cu_pool_props *props) {
    if (!initialized) return CU_NOT_INITIALIZED;
    bool device = props->location.type == LOCATION_DEVICE;
    if (device && (props->location.id < 0 || props->location.id >= ordinals)) return CU_INVALID_VALUE;
    *out = make(POOL, device ? props->location.id : 0);
    (*out)->host = !device;
    return CU_OK;
}
API CUresult cuMemPoolDestroy(CUmemPool pool) {
    if (!is(pool, POOL) || pool->gone) return CU_INVALID_VALUE;
    LOCKED;
    if (!pool->host) card_give(gpu_of[pool->device], pool->reserved - pool->used);
    pool->reserved = pool->used;
    pool->gone = true;
    if (pool_of[pool->device] == pool) pool_of[pool->device] = default_pool[pool->device];
    UNLOCKED;
    return CU_OK;
}
API CUresult cuMemPoolTrimTo(CUmemPool pool, size_t keep) {
    if (!is(pool, POOL)) return CU_INVALID_VALUE;
    LOCKED;
    shrink(pool, keep);
    UNLOCKED;
    return CU_OK;
}
API CUresult cuMemPoolSetAttribute(CUmemPool pool, int attribute, void *value) {
    if (!is(pool, POOL)) return CU_INVALID_VALUE;
    if (attribute == POOL_RELEASE_THRESHOLD) pool->threshold = *(uint64_t *)value;
    return CU_OK;
}
API CUresult cuMemPoolGetAttribute(CUmemPool pool, int attribute, void *value) {
    if (!is(pool, POOL) || pool->gone) return CU_INVALID_VALUE;
    *(uint64_t *)value = attribute == POOL_RESERVED            ? pool->reserved
                         : attribute == POOL_USED              ? pool->used
                         : attribute == POOL_RELEASE_THRESHOLD ? pool->threshold
                                                               : 0;
    return CU_OK;
}
API CUresult cuMemPoolSetAccess(CUmemPool pool, const void *map, size_t n) {
    (void)pool, (void)map, (void)n;
    return CU_OK;
}

static CUresult from_pool(CUdeviceptr *out, size_t bytes, struct opaque *pool, CUstream stream) {
    if (!bytes) return CU_INVALID_VALUE;
    uint64_t n = rounded(bytes, 512);
    if (is(stream, STREAM) && stream->graph) { /* captured: becomes a node */
        struct opaque *node = make(NODE, pool->device);
        node->node_type = NODE_MEM_ALLOC;
        node->bytes = n;
        node->next = stream->graph->first;
        stream->graph->first = node;
        LOCKED;
        *out = node->ptr = address(n);
        UNLOCKED;
        return CU_OK;
    }
    LOCKED;
    CUresult r = CU_OK;
    if (pool->reserved - pool->used < n) {
        uint64_t more = rounded(n - (pool->reserved - pool->used), CHUNK);
        r = pool->host ? CU_OK : card_take(gpu_of[pool->device], more);
        if (r == CU_OK) pool->reserved += more;
    }
    if (r == CU_OK) {
        pool->used += n;
        *out = address(n);
        map_put(&pooled, *out, n, (uintptr_t)pool);
    }
    UNLOCKED;
    return r;
}

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
    int d;
    CUresult r = here(&d);
    if (r != CU_OK) return r;
    LOCKED;
    struct opaque *pool = own_pool(d);
    UNLOCKED;
    return from_pool(out, bytes, pool, stream);
}
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemPool pool, CUstream stream) {
    if (!is(pool, POOL) || pool->gone) return CU_INVALID_VALUE;
    return from_pool(out, bytes, pool, stream);
}
API CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream) {
    (void)stream;
    LOCKED;
    bool known = free_pooled(ptr);
    UNLOCKED;
    return known ? CU_OK : cuMemFree_v2(ptr);
}
API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t n, CUstream s) { return cuMemAllocAsync(out, n, s ? s : STREAM_PER_THREAD); }
API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t n, CUmemPool p, CUstream s) {
    return cuMemAllocFromPoolAsync(out, n, p, s ? s : STREAM_PER_THREAD);
}
API CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s) { return cuMemFreeAsync(p, s ? s : STREAM_PER_THREAD); }

/* ---- virtual memory --------------------------------------------------------------------------------------------- */

API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t n, size_t align, CUdeviceptr hint, unsigned long long flags) {
    (void)align, (void)hint, (void)flags;
    if (!n || n % GRANULE) return CU_INVALID_VALUE;
    LOCKED;
    next_address = rounded(next_address, GRANULE);
    *out = next_address;
    next_address += n;
    UNLOCKED;
    return CU_OK;
}
API CUresult cuMemAddressFree(CUdeviceptr ptr, size_t n) {
    (void)ptr, (void)n;
    return CU_OK;
}
API CUresult cuMemGetAllocationGranularity(size_t *out, const struct cu_alloc_prop *prop, int option) {
    (void)prop, (void)option;
    *out = GRANULE;
    return CU_OK;
}
API CUresult cuMemCreate(CUmemHandle *out, size_t n, const struct cu_alloc_prop *prop, unsigned long long flags) {
    bool device = prop->location.type == LOCATION_DEVICE;
    if (flags || !n || n % GRANULE) return CU_INVALID_VALUE;
    if (device && (prop->location.id < 0 || prop->location.id >= ordinals)) return CU_INVALID_DEVICE;
    int gpu = device ? gpu_of[prop->location.id] : -1;
    if (gpu >= 0 && card_take(gpu, n) != CU_OK) return CU_OUT_OF_MEMORY;
    struct handle *h = calloc(1, sizeof *h);
    if (!h) abort();
    *h = (struct handle){.bytes = n, .gpu = gpu, .references = 1};
    LOCKED;
    *out = next_handle++;
    map_put(&handles, *out, (uintptr_t)h, 0);
    UNLOCKED;
    return CU_OK;
}

static void unreference(struct handle *h) { /* under the lock */
    if (--h->references) return;
    if (h->gpu >= 0) card_give(h->gpu, h->bytes);
    free(h);
}

API CUresult cuMemRelease(CUmemHandle handle) {
    uint64_t at;
    LOCKED;
    bool known = map_take(&handles, handle, &at, NULL);
    if (known) unreference((struct handle *)(uintptr_t)at);
    UNLOCKED;
    return known ? CU_OK : CU_INVALID_VALUE;
}
API CUresult cuMemMap(CUdeviceptr ptr, size_t n, size_t offset, CUmemHandle handle, unsigned long long flags) {
    (void)flags;
    uint64_t at;
    LOCKED;
    bool fine = map_get(&handles, handle, &at, NULL) && !map_get(&mapped, ptr, NULL, NULL) &&
                offset + n <= ((struct handle *)(uintptr_t)at)->bytes;
    if (fine) {
        ((struct handle *)(uintptr_t)at)->references++;
        map_put(&mapped, ptr, n, at);
    }
    UNLOCKED;
    return fine ? CU_OK : CU_INVALID_VALUE;
}
API CUresult cuMemUnmap(CUdeviceptr ptr, size_t n) {
    uint64_t bytes, at;
    LOCKED;
    CUresult r = CU_INVALID_VALUE;
    for (CUdeviceptr p = ptr; p < ptr + n; p += r == CU_OK ? bytes : n) {
        if (!map_take(&mapped, p, &bytes, &at)) break;
        unreference((struct handle *)(uintptr_t)at);
        r = CU_OK;
    }
    UNLOCKED;
    return r;
}
API CUresult cuMemSetAccess(CUdeviceptr ptr, size_t n, const void *what, size_t count) {
    (void)ptr, (void)n, (void)what, (void)count;
    return CU_OK;
}
API CUresult cuMemRetainAllocationHandle(CUmemHandle *out, void *ptr) {
    uint64_t bytes, at;
    LOCKED;
    bool known = map_get(&mapped, (uintptr_t)ptr, &bytes, &at);
    if (known) {
        ((struct handle *)(uintptr_t)at)->references++;
        *out = next_handle++; /* another number for the same memory */
        map_put(&handles, *out, at, 0);
    }
    UNLOCKED;
    return known ? CU_OK : CU_INVALID_VALUE;
}

/* ---- arrays ----------------------------------------------------------------------------------------------------- */

static uint64_t element_bytes(int format, unsigned channels) {
    uint64_t width = format == 0x01 || format == 0x08 ? 1 : format == 0x02 || format == 0x09 || format == 0x10 ? 2 : 4;
    return width * channels;
}

static CUresult new_array(CUarray *out, enum kind kind, const struct cu_array3d *a, unsigned levels) {
    int d;
    CUresult r = here(&d);
    if (r != CU_OK) return r;
    if (!a->width || !a->channels) return CU_INVALID_VALUE;
    uint64_t bytes = 0, w = a->width, h = a->height ? a->height : 1, z = a->depth ? a->depth : 1;
    for (unsigned i = 0; i < levels; i++) {
        bytes += rounded(w * h * z * element_bytes(a->format, a->channels), 64 << 10);
        w = w > 1 ? w / 2 : 1, h = h > 1 ? h / 2 : 1, z = z > 1 ? z / 2 : 1;
    }
    if (a->flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) bytes = 0;
    if (card_take(gpu_of[d], bytes) != CU_OK) return CU_OUT_OF_MEMORY;
    *out = make(kind, d);
    (*out)->bytes = bytes;
    return CU_OK;
}
static CUresult end_array(CUarray a, enum kind kind) {
    if (!is(a, kind)) return CU_INVALID_HANDLE;
    card_give(gpu_of[a->device], a->bytes);
    a->kind = 0;
    return CU_OK;
}
static CUresult requirements(struct cu_requirements *out, const struct opaque *a, enum kind kind) {
    if (!is(a, kind)) return CU_INVALID_HANDLE;
    *out = (struct cu_requirements){.size = a->bytes, .alignment = 64 << 10};
    return CU_OK;
}

API CUresult cuArray3DCreate_v2(CUarray *out, const struct cu_array3d *a) { return new_array(out, ARRAY, a, 1); }
API CUresult cuArrayCreate_v2(CUarray *out, const struct cu_array *a) {
    struct cu_array3d full = {.width = a->width, .height = a->height, .format = a->format, .channels = a->channels};
    return new_array(out, ARRAY, &full, 1);
}
API CUresult cuArrayDestroy(CUarray a) { return end_array(a, ARRAY); }
API CUresult cuMipmappedArrayCreate(CUmipmap *out, const struct cu_array3d *a, unsigned levels) {
    return new_array(out, MIPMAP, a, levels);
}
API CUresult cuMipmappedArrayDestroy(CUmipmap a) { return end_array(a, MIPMAP); }
API CUresult cuArrayGetMemoryRequirements(struct cu_requirements *out, CUarray a, CUdevice d) {
    (void)d;
    return requirements(out, a, ARRAY);
}
API CUresult cuMipmappedArrayGetMemoryRequirements(struct cu_requirements *out, CUmipmap a, CUdevice d) {
    (void)d;
    return requirements(out, a, MIPMAP);
}

/* ---- memory of graphs: one reserve per device, which only a trim gives back ------------------------------------- */

CUresult graph_memory(int d, int64_t delta, bool trim) {
    LOCKED;
    CUresult r = CU_OK;
    if (delta > 0 && graphs[d].reserved - graphs[d].used < (uint64_t)delta) {
        uint64_t more = rounded((uint64_t)delta - (graphs[d].reserved - graphs[d].used), CHUNK);
        r = card_take(gpu_of[d], more);
        if (r == CU_OK) graphs[d].reserved += more;
    }
    if (r == CU_OK) graphs[d].used += (uint64_t)delta;
    if (trim) {
        card_give(gpu_of[d], graphs[d].reserved - rounded(graphs[d].used, CHUNK));
        graphs[d].reserved = rounded(graphs[d].used, CHUNK);
    }
    UNLOCKED;
    return r;
}
API CUresult cuDeviceGetGraphMemAttribute(CUdevice d, int attribute, void *value) {
    if (d < 0 || d >= ordinals) return CU_INVALID_DEVICE;
    *(uint64_t *)value = attribute == GRAPH_RESERVED ? graphs[d].reserved : attribute == GRAPH_USED ? graphs[d].used : 0;
    return CU_OK;
}
API CUresult cuDeviceGraphMemTrim(CUdevice d) {
    if (d < 0 || d >= ordinals) return CU_INVALID_DEVICE;
    return graph_memory(d, 0, true);
}
