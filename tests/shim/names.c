/* Look-ups by name that must behave as without the shim. Prints ok. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MUST(x)                                            \
    do {                                                   \
        if (!(x)) return printf("line %d\n", __LINE__), 1; \
    } while (0)

int cudaFake(void);
int cudaFake(void) { return 7; }

int main(void) {
    MUST(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL || dlerror() != NULL); /* no driver yet: as the linker sees it */
    MUST(dlsym(RTLD_DEFAULT, "no_such_name_at_all") == NULL);
    MUST(strstr(dlerror(), "no_such_name_at_all") != NULL);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    MUST(driver);
    dlerror();
    void *init = dlsym(driver, "cuInit");
    MUST(dlerror() == NULL); /* our own look-ups leave no error behind */
    MUST(init);
    MUST(dlsym(driver, "cuNoSuchFunction") == NULL && strstr(dlerror(), "cuNoSuchFunction"));
    MUST(dlsym(driver, "cuMemAllocFuture_v9") == NULL && dlerror());
    MUST(dlsym(driver, "cuGreenCtxCreate") == NULL); /* a hook of ours that this driver lacks is not invented */
    dlerror();
    MUST(dlsym(RTLD_NEXT, "printf") != NULL && dlerror() == NULL);
    MUST(dlsym(RTLD_NEXT, "main") == NULL); /* the caller is this program, not the shim */
    dlerror();
    MUST(dlvsym(RTLD_DEFAULT, "printf", "GLIBC_2.2.5") || dlvsym(RTLD_DEFAULT, "printf", "GLIBC_2.17"));
    MUST(dlvsym(driver, "cuInit", "NOBODY_1") == NULL || dlvsym(driver, "cuInit", "NOBODY_1") == init);
    dlerror();
    MUST(dlsym(RTLD_DEFAULT, "c") == NULL && dlsym(RTLD_DEFAULT, "") == NULL && dlsym(RTLD_DEFAULT, "d") == NULL);
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    void *(*again)(void *, const char *) = NULL;
    *(void **)&again = dlsym(libc, "dlsym");
    if (again) MUST(again(driver, "cuInit") == init); /* asking for dlsym itself does not lead around us */
    puts("ok");
    return 0;
}
