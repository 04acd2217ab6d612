/* Physical memory blocks that are mapped to virtual addresses, and arrays. A block is charged until its last handle is
 * released and its last mapping is gone, because the driver keeps it until then. */
#include "shim.h"

#define START(name)                                                        \
    if (!cuda_here() || !real.name) return CU_NOT_SUPPORTED;               \
    if (!attached()) return CU_OUT_OF_MEMORY

struct block { /* in pages that are reused, never unmapped */
    uint64_t bytes;
    int32_t gpu;
    uint32_t references; /* handles and mappings */
    struct block *next_free;
};
static struct mutex blocking;
static struct block *free_blocks;
enum { BLOCKS_AT_ONCE = 4096 / sizeof(struct block) };

static struct block *new_block(uint64_t bytes, int gpu) {
    lock(&blocking);
    if (!free_blocks) {
        struct block *more = pages(4096);
        for (size_t i = 0; more && i < BLOCKS_AT_ONCE; i++) {
            more[i].next_free = free_blocks;
            free_blocks = &more[i];
        }
    }
    struct block *b = free_blocks;
    if (b) {
        free_blocks = b->next_free;
        *b = (struct block){.bytes = bytes, .gpu = gpu, .references = 1};
    }
    unlock(&blocking);
    return b;
}

static void reference(struct block *b) { __atomic_add_fetch(&b->references, 1, __ATOMIC_RELAXED); }

static void unreference(struct block *b) {
    if (__atomic_sub_fetch(&b->references, 1, __ATOMIC_ACQ_REL)) return;
    release(b->gpu, CLASS_VMM, b->bytes);
    lock(&blocking);
    b->next_free = free_blocks;
    free_blocks = b;
    unlock(&blocking);
}

int cuMemCreate(CUmemHandle *out, size_t n, const struct cu_alloc_prop *prop, unsigned long long flags) {
    START(cuMemCreate);
    if (!prop || prop->location.type != LOCATION_DEVICE) return real.cuMemCreate(out, n, prop, flags); /* host memory */
    int gpu = gpu_of_device(prop->location.id);
    if (gpu < 0) {
        int r = prop->location.id < 0 ? CU_INVALID_DEVICE : not_ours(prop->location.id);
        return r;
    }
    if (!reserve(gpu, CLASS_VMM, n)) return refuse(gpu, n);
    int r = real.cuMemCreate(out, n, prop, flags);
    struct block *b = r == CU_OK ? new_block(n, gpu) : NULL;
    if (r != CU_OK) release(gpu, CLASS_VMM, n);
    if (b) table_put(&handles, (struct entry){*out, n, (uintptr_t)b, gpu, CLASS_VMM});
    return r == CU_OK ? r : card_full(gpu, n, r);
}

int cuMemRelease(CUmemHandle handle) {
    struct entry e;
    START(cuMemRelease);
    bool known = table_take(&handles, handle, &e);
    int r = real.cuMemRelease(handle);
    if (known && r != CU_OK) table_put(&handles, e);
    if (known && r == CU_OK) unreference((struct block *)(uintptr_t)e.owner);
    return r;
}

int cuMemMap(CUdeviceptr at, size_t n, size_t offset, CUmemHandle handle, unsigned long long flags) {
    struct entry e;
    START(cuMemMap);
    bool known = table_get(&handles, handle, &e);
    if (known) reference((struct block *)(uintptr_t)e.owner); /* first, so that it is not released in between */
    int r = real.cuMemMap(at, n, offset, handle, flags);
    if (known && r != CU_OK) unreference((struct block *)(uintptr_t)e.owner);
    if (known && r == CU_OK) table_put(&mappings, (struct entry){at, n, e.owner, e.gpu, CLASS_VMM});
    return r;
}

int cuMemUnmap(CUdeviceptr at, size_t n) {
    struct entry e;
    START(cuMemUnmap);
    int r = real.cuMemUnmap(at, n);
    if (r != CU_OK) return r;
    for (CUdeviceptr p = at; p - at < n;) { /* one call may remove several mappings */
        bool known = table_take(&mappings, p, &e);
        if (known) unreference((struct block *)(uintptr_t)e.owner);
        p += known ? e.bytes : 64 << 10; /* imported ones are not charged */
    }
    return r;
}

int cuMemRetainAllocationHandle(CUmemHandle *out, void *at) {
    struct entry e;
    START(cuMemRetainAllocationHandle);
    int r = real.cuMemRetainAllocationHandle(out, at);
    if (r != CU_OK) return r;
    bool known = table_get(&mappings, (uintptr_t)at, &e) || table_find_range(&mappings, (uintptr_t)at, &e);
    if (known) {
        reference((struct block *)(uintptr_t)e.owner);
        table_put(&handles, (struct entry){*out, e.bytes, e.owner, e.gpu, CLASS_VMM});
    }
    return r;
}

/* ---- arrays ----------------------------------------------------------------------------------------------------- */

static uint64_t guess(const struct cu_array3d *a, U levels) { /* the least bytes that the array can take */
    uint64_t width = a->format == 0x01 || a->format == 0x08 ? 1 : a->format == 0x02 || a->format == 0x09 || a->format == 0x10 ? 2 : 4;
    uint64_t bytes = 0, w = a->width, h = a->height ? a->height : 1, z = a->depth ? a->depth : 1;
    if (a->flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) return 0; /* mapped later, from blocks that are charged */
    if (a->format > 0x20) width = 1; /* packed and compressed formats */
    if (w > 1 << 20 || h > 1 << 20 || z > 1 << 20) return 0; /* the driver will refuse it */
    for (U i = 0; i < levels && i < 32; i++) {
        bytes += w * h * z * width * (a->channels ? a->channels : 1);
        w = w > 1 ? w / 2 : 1, h = h > 1 ? h / 2 : 1, z = z > 1 ? z / 2 : 1;
    }
    return bytes;
}

static uint64_t exact(void *array, bool mipmap, CUdevice d, uint64_t otherwise) {
    struct cu_requirements need = {0};
    int r = mipmap ? (real.cuMipmappedArrayGetMemoryRequirements ? real.cuMipmappedArrayGetMemoryRequirements(&need, array, d) : CU_NOT_FOUND)
                   : (real.cuArrayGetMemoryRequirements ? real.cuArrayGetMemoryRequirements(&need, array, d) : CU_NOT_FOUND);
    return r == CU_OK ? need.size : otherwise;
}

/* Corrects the charge of an array that the driver has made and for which `taken` bytes were reserved. */
static int array_made(struct where *w, void *array, bool mipmap, uint64_t taken, bool counted) {
    uint64_t bytes = counted ? exact(array, mipmap, w->device, taken) : 0;
    if (bytes > taken && !reserve(w->gpu, CLASS_ARRAY, bytes - taken)) {
        if (mipmap) real.cuMipmappedArrayDestroy(array);
        else real.cuArrayDestroy(array);
        release(w->gpu, CLASS_ARRAY, taken);
        return refuse(w->gpu, bytes);
    }
    if (bytes < taken) release(w->gpu, CLASS_ARRAY, taken - bytes);
    table_put(&arrays, (struct entry){(uintptr_t)array, bytes, (uintptr_t)w->context, w->gpu, CLASS_ARRAY});
    return CU_OK;
}

#define ARRAY(call, out, description, levels, mipmap)                                              \
    struct where w;                                                                                \
    if (!where_now(&w)) return call;                                                               \
    if (w.gpu < 0) return not_ours(w.device);                                                      \
    uint64_t taken = guess(description, levels);                                                   \
    if (!reserve(w.gpu, CLASS_ARRAY, taken)) return refuse(w.gpu, taken);                          \
    int r = call;                                                                                  \
    if (r == CU_OK) return array_made(&w, *(out), mipmap, taken, !((description)->flags & (ARRAY_SPARSE | ARRAY_DEFERRED))); \
    release(w.gpu, CLASS_ARRAY, taken);                                                            \
    return card_full(w.gpu, taken, r)

int cuArray3DCreate_v2(CUarray *out, const struct cu_array3d *a) {
    START(cuArray3DCreate_v2);
    ARRAY(real.cuArray3DCreate_v2(out, a), out, a, 1, false);
}
int cuArrayCreate_v2(CUarray *out, const struct cu_array *a) {
    START(cuArrayCreate_v2);
    struct cu_array3d full = {.width = a->width, .height = a->height, .format = a->format, .channels = a->channels};
    ARRAY(real.cuArrayCreate_v2(out, a), out, &full, 1, false);
}
int cuMipmappedArrayCreate(CUmipmap *out, const struct cu_array3d *a, U levels) {
    START(cuMipmappedArrayCreate);
    ARRAY(real.cuMipmappedArrayCreate(out, a, levels), out, a, levels, true);
}
int cuArrayCreate(CUarray *out, const void *description) { /* of CUDA 2: 32-bit sizes */
    START(cuArrayCreate);
    const U *v = description;
    struct cu_array3d full = {.width = v[0], .height = v[1], .format = (int)v[2], .channels = v[3]};
    ARRAY(real.cuArrayCreate(out, description), out, &full, 1, false);
}
int cuArray3DCreate(CUarray *out, const void *description) {
    START(cuArray3DCreate);
    const U *v = description;
    struct cu_array3d full = {.width = v[0], .height = v[1], .depth = v[2], .format = (int)v[3], .channels = v[4], .flags = v[5]};
    ARRAY(real.cuArray3DCreate(out, description), out, &full, 1, false);
}

static int array_gone(void *array, int r_of(void *)) {
    struct entry e;
    bool known = table_take(&arrays, (uintptr_t)array, &e);
    int r = r_of(array);
    if (known && r != CU_OK) table_put(&arrays, e);
    if (known && r == CU_OK) release(e.gpu, e.kind, e.bytes);
    return r;
}
static int destroy(void *a) { return real.cuArrayDestroy(a); }
static int destroy_mipmap(void *a) { return real.cuMipmappedArrayDestroy(a); }
int cuArrayDestroy(CUarray a) {
    START(cuArrayDestroy);
    return array_gone(a, destroy);
}
int cuMipmappedArrayDestroy(CUmipmap a) {
    START(cuMipmappedArrayDestroy);
    return array_gone(a, destroy_mipmap);
}
