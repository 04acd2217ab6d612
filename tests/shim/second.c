/* Somebody else's preload: wraps cuMemAlloc_v2, malloc and dlsym itself, each by RTLD_NEXT, as tracers do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

int cuMemAlloc_v2(uint64_t *out, size_t n) {
    static int (*next)(uint64_t *, size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    return next ? next(out, n) : 999;
}

void *malloc(size_t n) {
    static void *(*next)(size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "malloc");
    return next(n);
}

uint64_t second_looks(void);
uint64_t second_looks(void) { /* the next dlsym must not be this library's caller, nor null */
    void *again = dlsym(RTLD_NEXT, "dlsym");
    return again != NULL;
}

__attribute__((constructor)) static void check(void) {
    if (!second_looks()) __builtin_trap();
}
