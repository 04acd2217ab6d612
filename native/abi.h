/* The parts of the CUDA driver's and NVML's binary interface that the shim and the simulated drivers need, restated
 * as facts (sizes, offsets, numbers) so that neither needs the vendor's headers. */
#ifndef PLIANT_ABI_H
#define PLIANT_ABI_H
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum { /* CUresult */
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_CONTEXT = 201,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_NOT_PERMITTED = 800,
    CU_NOT_SUPPORTED = 801,
};

enum { /* nvmlReturn_t */
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_LIBRARY_NOT_FOUND = 12,
    NVML_FUNCTION_NOT_FOUND = 13,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
};

enum { LOCATION_DEVICE = 1 };                                              /* CUmemLocationType */
enum { POOL_RELEASE_THRESHOLD = 4, POOL_RESERVED = 5, POOL_USED = 7 };     /* CUmemPool_attribute, 64 bits each */
enum { GRAPH_USED = 0, GRAPH_RESERVED = 2 };                               /* CUgraphMem_attribute, 64 bits each */
enum { NODE_GRAPH = 4, NODE_MEM_ALLOC = 10 };                              /* CUgraphNodeType */
enum { PROC_LEGACY_STREAM = 1, PROC_PER_THREAD_STREAM = 2 };               /* flags of cuGetProcAddress */
enum { ARRAY_SPARSE = 0x40, ARRAY_DEFERRED = 0x80 };                       /* flags of CUDA_ARRAY3D_DESCRIPTOR */
enum { EVENT_BLOCKING_SYNC = 1, EVENT_DISABLE_TIMING = 2 };                /* CUevent_flags */
enum { CAPTURE_RELAXED = 2 };                                              /* CUstreamCaptureMode */

typedef int CUresult, CUdevice, nvmlReturn;
typedef uint64_t CUdeviceptr, CUmemHandle;
typedef struct opaque *CUcontext, *CUstream, *CUevent, *CUmodule, *CUfunction, *CUgraph, *CUgraphNode, *CUgraphExec,
    *CUarray, *CUmipmap, *CUmemPool, *CUlibrary, *CUkernel, *nvmlDevice;

#define STREAM_LEGACY ((CUstream)1)
#define STREAM_PER_THREAD ((CUstream)2)

struct cu_uuid {
    unsigned char bytes[16];
};
struct cu_location {
    int type, id; /* id: a device ordinal where type is LOCATION_DEVICE */
};
struct cu_alloc_prop {
    int type, handle_types;
    struct cu_location location;
    void *win32;
    unsigned char flags[8];
};
struct cu_pool_props {
    int alloc_type, handle_types;
    struct cu_location location;
    void *win32;
    size_t max_size;
    unsigned char rest[56];
};
struct cu_graph_alloc { /* CUDA_MEM_ALLOC_NODE_PARAMS */
    struct cu_pool_props pool;
    const void *access;
    size_t access_count, bytes;
    CUdeviceptr ptr;
};
struct cu_node_params { /* CUgraphNodeParams */
    int type, reserved0[3];
    union {
        struct cu_graph_alloc alloc;
        long long room[29];
    } u;
    long long reserved2;
};
struct cu_array {
    size_t width, height;
    int format;
    unsigned channels;
};
struct cu_array3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct cu_requirements {
    size_t size, alignment;
    unsigned reserved[4];
};
struct cu_launch_config {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
};
struct cu_instantiate {
    uint64_t flags;
    CUstream upload;
    CUgraphNode failed;
    int result;
};
static_assert(sizeof(struct cu_alloc_prop) == 32, "CUmemAllocationProp");
static_assert(sizeof(struct cu_pool_props) == 88, "CUmemPoolProps");
static_assert(offsetof(struct cu_graph_alloc, bytes) == 104, "CUDA_MEM_ALLOC_NODE_PARAMS");
static_assert(sizeof(struct cu_node_params) == 256, "CUgraphNodeParams");
static_assert(sizeof(struct cu_array3d) == 40, "CUDA_ARRAY3D_DESCRIPTOR");
static_assert(offsetof(struct cu_launch_config, stream) == 32, "CUlaunchConfig");

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory2 {
    unsigned version; /* NVML_MEMORY2 */
    unsigned long long total, reserved, free, used;
};
#define NVML_MEMORY2 ((unsigned)(sizeof(struct nvml_memory2) | 2u << 24))
struct nvml_process1 {
    unsigned pid;
    unsigned long long used;
};
struct nvml_process { /* of the _v2 and _v3 process lists */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(struct nvml_memory2) == 40, "nvmlMemory_v2_t");
static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_v2_t");
#endif
