/* In place of native/shim/entry.c where the shim is compiled into a test program: sanitizers need dlsym for themselves. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "shim/shim.h"

void *(*pliant_real_dlsym)(void *, const char *) = dlsym;
void *(*pliant_real_dlvsym)(void *, const char *, const char *) = dlvsym;
void *real_open(const char *name, bool only_if_loaded) { return dlopen(name, RTLD_LAZY | (only_if_loaded ? RTLD_NOLOAD : 0)); }
void forget_error(void) { dlerror(); }
bool started(void) { return true; }
const char *soname_at(const void *address, char *room, size_t n) {
    (void)address, (void)n;
    room[0] = 0;
    return room;
}
