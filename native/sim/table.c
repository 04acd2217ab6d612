/* The simulated libcuda: cuGetProcAddress over a static table, so that an interception of dlsym does not affect it. */
#define _GNU_SOURCE
#include "driver.h"

/* X(base name, since which CUDA version, per-thread-stream variant, symbol). Of the rows that fit, the newest wins. */
#define SYMBOLS(X, P)                                                                                                  \
    X(cuInit, 2000, cuInit) X(cuDriverGetVersion, 2020, cuDriverGetVersion) X(cuGetErrorName, 6000, cuGetErrorName)    \
    X(cuGetErrorString, 6000, cuGetErrorString) X(cuDeviceGetCount, 2000, cuDeviceGetCount)                            \
    X(cuDeviceGet, 2000, cuDeviceGet) X(cuDeviceGetName, 2000, cuDeviceGetName)                                        \
    X(cuDeviceGetUuid, 9020, cuDeviceGetUuid) X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2)                            \
    X(cuDeviceTotalMem, 2000, cuDeviceTotalMem) X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2)                         \
    X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute) X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId)              \
    X(cuDeviceComputeCapability, 2000, cuDeviceComputeCapability) X(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer) \
    X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)                                                        \
    X(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease)                                                      \
    X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2)                                                  \
    X(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset) X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2) \
    X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2)                                                \
    X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState) X(cuCtxCreate, 2000, cuCtxCreate)                  \
    X(cuCtxCreate, 3020, cuCtxCreate_v2) X(cuCtxCreate, 11040, cuCtxCreate_v3) X(cuCtxCreate, 12050, cuCtxCreate_v4)   \
    X(cuCtxDestroy, 2000, cuCtxDestroy) X(cuCtxDestroy, 4000, cuCtxDestroy_v2) X(cuCtxDetach, 2000, cuCtxDetach)       \
    X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2) X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2)                        \
    X(cuCtxSetCurrent, 4000, cuCtxSetCurrent) X(cuCtxGetCurrent, 4000, cuCtxGetCurrent)                                \
    X(cuCtxGetDevice, 2000, cuCtxGetDevice) X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2)                                \
    X(cuCtxGetFlags, 7000, cuCtxGetFlags) X(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion)                              \
    X(cuCtxGetId, 12000, cuCtxGetId) X(cuCtxSetLimit, 3010, cuCtxSetLimit) X(cuCtxGetLimit, 3010, cuCtxGetLimit)       \
    X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange) X(cuCtxSynchronize, 2000, cuCtxSynchronize)      \
    X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2) X(cuMemGetInfo, 2000, cuMemGetInfo)                                \
    X(cuMemGetInfo, 3020, cuMemGetInfo_v2) X(cuMemAlloc, 2000, cuMemAlloc) X(cuMemAlloc, 3020, cuMemAlloc_v2)          \
    X(cuMemAllocPitch, 3020, cuMemAllocPitch_v2) X(cuMemAllocManaged, 6000, cuMemAllocManaged)                         \
    X(cuMemFree, 2000, cuMemFree) X(cuMemFree, 3020, cuMemFree_v2)                                                     \
    X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2) X(cuMemHostAlloc, 2020, cuMemHostAlloc)                     \
    X(cuMemAllocHost, 3020, cuMemAllocHost_v2) X(cuMemFreeHost, 2000, cuMemFreeHost)                                   \
    X(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool)    \
    X(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool) X(cuMemPoolCreate, 11020, cuMemPoolCreate)                        \
    X(cuMemPoolDestroy, 11020, cuMemPoolDestroy) X(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo)                            \
    X(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute) X(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute)      \
    X(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess) P(cuMemAllocAsync, 11020, cuMemAllocAsync)                        \
    P(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync) P(cuMemFreeAsync, 11020, cuMemFreeAsync)                \
    X(cuMemAddressReserve, 10020, cuMemAddressReserve) X(cuMemAddressFree, 10020, cuMemAddressFree)                    \
    X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity) X(cuMemCreate, 10020, cuMemCreate)          \
    X(cuMemRelease, 10020, cuMemRelease) X(cuMemMap, 10020, cuMemMap) X(cuMemUnmap, 10020, cuMemUnmap)                 \
    X(cuMemSetAccess, 10020, cuMemSetAccess) X(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle)        \
    X(cuArrayCreate, 3020, cuArrayCreate_v2) X(cuArray3DCreate, 3020, cuArray3DCreate_v2)                              \
    X(cuArrayDestroy, 2000, cuArrayDestroy) X(cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate)                    \
    X(cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy)                                                          \
    X(cuArrayGetMemoryRequirements, 11060, cuArrayGetMemoryRequirements)                                               \
    X(cuMipmappedArrayGetMemoryRequirements, 11060, cuMipmappedArrayGetMemoryRequirements)                             \
    X(cuDeviceGetGraphMemAttribute, 11040, cuDeviceGetGraphMemAttribute)                                               \
    X(cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim) X(cuStreamCreate, 2000, cuStreamCreate)                       \
    X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority) X(cuStreamDestroy, 4000, cuStreamDestroy_v2)       \
    P(cuStreamSynchronize, 2000, cuStreamSynchronize) P(cuStreamQuery, 2000, cuStreamQuery)                            \
    P(cuStreamWaitEvent, 3020, cuStreamWaitEvent) P(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2)              \
    P(cuStreamEndCapture, 10000, cuStreamEndCapture) P(cuStreamIsCapturing, 10000, cuStreamIsCapturing)                \
    X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode) X(cuEventCreate, 2000, cuEventCreate) \
    P(cuEventRecord, 2000, cuEventRecord) X(cuEventQuery, 2000, cuEventQuery)                                          \
    X(cuEventSynchronize, 2000, cuEventSynchronize) X(cuEventElapsedTime, 2000, cuEventElapsedTime)                    \
    X(cuEventDestroy, 4000, cuEventDestroy_v2) X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2)                                  \
    X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2) X(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2)                                      \
    X(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2)                  \
    X(cuMemsetD8, 3020, cuMemsetD8_v2) X(cuMemsetD32, 3020, cuMemsetD32_v2) X(cuModuleLoad, 2000, cuModuleLoad)        \
    X(cuModuleLoadData, 2000, cuModuleLoadData) X(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx)                        \
    X(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary) X(cuModuleUnload, 2000, cuModuleUnload)                      \
    X(cuModuleGetFunction, 2000, cuModuleGetFunction) X(cuLibraryLoadData, 12000, cuLibraryLoadData)                   \
    X(cuLibraryUnload, 12000, cuLibraryUnload) X(cuLibraryGetKernel, 12000, cuLibraryGetKernel)                        \
    X(cuKernelGetFunction, 12000, cuKernelGetFunction) P(cuLaunchKernel, 4000, cuLaunchKernel)                         \
    P(cuLaunchKernelEx, 11060, cuLaunchKernelEx) P(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel)         \
    X(cuLaunch, 2000, cuLaunch) X(cuLaunchGrid, 2000, cuLaunchGrid) X(cuLaunchGridAsync, 2000, cuLaunchGridAsync)      \
    X(cuGraphCreate, 10000, cuGraphCreate) X(cuGraphDestroy, 10000, cuGraphDestroy)                                    \
    X(cuGraphAddMemAllocNode, 11040, cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode)    \
    X(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode) X(cuGraphAddNode, 12020, cuGraphAddNode)                        \
    X(cuGraphAddNode, 12030, cuGraphAddNode_v2) X(cuGraphGetNodes, 10000, cuGraphGetNodes)                             \
    X(cuGraphNodeGetType, 10000, cuGraphNodeGetType)                                                                   \
    X(cuGraphMemAllocNodeGetParams, 11040, cuGraphMemAllocNodeGetParams)                                               \
    X(cuGraphInstantiate, 10000, cuGraphInstantiate) X(cuGraphInstantiate, 11000, cuGraphInstantiate_v2)               \
    X(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags)                                                          \
    X(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags)                                                 \
    P(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams) P(cuGraphUpload, 11010, cuGraphUpload)        \
    P(cuGraphLaunch, 10000, cuGraphLaunch) X(cuGraphExecDestroy, 10000, cuGraphExecDestroy)

/* Only the addresses: the real types are with the functions. */
#define DECLARE(base, since, symbol) extern const char symbol[];
#define DECLARE_BOTH(base, since, symbol) extern const char symbol[], symbol##_ptsz[];
SYMBOLS(DECLARE, DECLARE_BOTH)

API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status);
API CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);

#define ROW(base, since, symbol) {#base, since, 0, symbol},
#define ROW_BOTH(base, since, symbol) {#base, since, 0, symbol}, {#base, since, PROC_PER_THREAD_STREAM, symbol##_ptsz},
static const struct {
    const char *name;
    int since;
    unsigned variant;
    const void *at;
} rows[] = {SYMBOLS(ROW, ROW_BOTH)
            {"", -1, 0, NULL}};
static const size_t row_count = sizeof rows / sizeof *rows - 1;

API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    size_t best = row_count;
    int found = 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    if (!name || !out) return CU_INVALID_VALUE;
    *out = NULL;
    if (strcmp(name, "cuGetProcAddress") == 0) *out = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    for (size_t i = 0; i < row_count; i++) {
        if (strcmp(rows[i].name, name) != 0 || rows[i].since < 0) continue;
        if (rows[i].since > version) {
            found = found == 0 ? 0 : 2; /* exists only since a later version */
            continue;
        }
        if (rows[i].variant && !(flags & PROC_PER_THREAD_STREAM)) continue;
        bool better = best == row_count || rows[i].since > rows[best].since ||
                      (rows[i].since == rows[best].since && rows[i].variant);
        if (better) best = i;
        found = 0;
    }
    if (best < row_count) *out = (void *)(uintptr_t)rows[best].at;
    if (status) *status = *out ? 0 : found;
    return *out ? CU_OK : CU_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
