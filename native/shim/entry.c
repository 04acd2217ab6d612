/* dlsym and dlvsym: what a program looks up by name.
 *
 * They end in a jump, not in a call: the real dlsym finds its caller by its return address (RTLD_NEXT), and through a C
 * wrapper that would always be this library. Only names that can be a driver's cost more than three compares. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "shim.h"

__attribute__((visibility("hidden"))) void *pliant_find_dlsym(void *, const char *);
__attribute__((visibility("hidden"))) void *pliant_find_dlvsym(void *, const char *, const char *);
__attribute__((visibility("hidden"))) void *(*pliant_real_dlsym)(void *, const char *) = pliant_find_dlsym;
__attribute__((visibility("hidden"))) void *(*pliant_real_dlvsym)(void *, const char *, const char *) = pliant_find_dlvsym;
static void *(*real_dlopen)(const char *, int);
static char *(*real_dlerror)(void);

/* Called by the assembly below. 1: continue with the real function; anything else, null included, is the result. */
void *pliant_choose(void *handle, const char *name, const char *version);
void pliant_boot(void);

/* Until the real function is found, its pointer leads to code that finds it, so the fast path has no test for that. */
#if defined(__x86_64__)
#define ENTRY(NAME, VERSIONED)                                                                   \
    __asm__(".text\n.globl " #NAME "\n.type " #NAME ",@function\n.p2align 5\n" #NAME ":\n"         \
            "  endbr64\n"                                                                        \
            "  movzbl (%rsi), %eax\n"                                                            \
            "  sub $'c', %eax\n  cmp $('n' - 'c'), %eax\n  jbe 3f\n"                            \
            "2: jmp *pliant_real_" #NAME "(%rip)\n"                                              \
            "3: movzbl (%rsi), %eax\n"                                                           \
            "  cmp $'c', %al\n  je 4f\n  cmp $'n', %al\n  je 4f\n  cmp $'d', %al\n  jne 2b\n"    \
            "4: cmpb $'l', 1(%rsi)\n  je 5f\n  cmpb $'u', 1(%rsi)\n  je 5f\n"                    \
            "  cmpb $'v', 1(%rsi)\n  jne 2b\n"                                                  \
            "5: push %rdi\n  push %rsi\n  push %rdx\n"                                           \
            "  " VERSIONED "\n"                                                                  \
            "  call pliant_choose\n"                                                             \
            "  pop %rdx\n  pop %rsi\n  pop %rdi\n"                                               \
            "  cmp $1, %rax\n  je 2b\n"                                                         \
            "  ret\n"                                                                            \
            ".size " #NAME ", .-" #NAME "\n"                                                     \
            ".hidden pliant_find_" #NAME "\n.globl pliant_find_" #NAME "\n"                      \
            "pliant_find_" #NAME ":\n  endbr64\n"                                               \
            "  push %rdi\n  push %rsi\n  push %rdx\n  call pliant_boot\n"                       \
            "  pop %rdx\n  pop %rsi\n  pop %rdi\n  jmp *pliant_real_" #NAME "(%rip)\n")
ENTRY(dlsym, "xor %edx, %edx");
ENTRY(dlvsym, "");
#elif defined(__aarch64__)
#define ENTRY(NAME, VERSIONED)                                                                   \
    __asm__(".text\n.globl " #NAME "\n.type " #NAME ",%function\n.p2align 4\n" #NAME ":\n"         \
            "  hint #34\n"                                                                       \
            "  ldrb w9, [x1]\n"                                                                  \
            "  cmp w9, #'c'\n  b.eq 3f\n  cmp w9, #'n'\n  b.eq 3f\n  cmp w9, #'d'\n  b.eq 3f\n"  \
            "2: adrp x9, pliant_real_" #NAME "\n"                                                \
            "  ldr x16, [x9, #:lo12:pliant_real_" #NAME "]\n"                                    \
            "  br x16\n"                                                                         \
            "3: ldrb w9, [x1, #1]\n"                                                             \
            "  cmp w9, #'l'\n  b.eq 5f\n  cmp w9, #'u'\n  b.eq 5f\n  cmp w9, #'v'\n  b.ne 2b\n"  \
            "5: stp x29, x30, [sp, #-48]!\n  mov x29, sp\n"                                      \
            "  stp x0, x1, [sp, #16]\n  str x2, [sp, #32]\n"                                     \
            "  " VERSIONED "\n"                                                                  \
            "  bl pliant_choose\n"                                                               \
            "  mov x9, x0\n"                                                                     \
            "  ldp x0, x1, [sp, #16]\n  ldr x2, [sp, #32]\n  ldp x29, x30, [sp], #48\n"          \
            "  cmp x9, #1\n  b.eq 2b\n"                                                          \
            "  mov x0, x9\n  ret\n"                                                              \
            ".size " #NAME ", .-" #NAME "\n"                                                     \
            ".hidden pliant_find_" #NAME "\n.globl pliant_find_" #NAME "\n"                      \
            "pliant_find_" #NAME ":\n  hint #34\n"                                              \
            "  stp x29, x30, [sp, #-48]!\n  mov x29, sp\n"                                      \
            "  stp x0, x1, [sp, #16]\n  str x2, [sp, #32]\n"                                     \
            "  bl pliant_boot\n"                                                                 \
            "  ldp x0, x1, [sp, #16]\n  ldr x2, [sp, #32]\n  ldp x29, x30, [sp], #48\n"          \
            "  adrp x9, pliant_real_" #NAME "\n"                                                \
            "  ldr x16, [x9, #:lo12:pliant_real_" #NAME "]\n  br x16\n")
ENTRY(dlsym, "mov x2, #0");
ENTRY(dlvsym, "");
#else
#error "the GPU shim is written for x86-64 and aarch64"
#endif

/* ---- the real functions, read from the C library's own tables: only its oldest interface is linked --------------- */

struct object {
    ElfW(Addr) base;
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *hash;
    const char *soname;
};

static bool read_object(const struct dl_phdr_info *info, struct object *o) {
    *o = (struct object){.base = info->dlpi_addr};
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    ElfW(Addr) soname = 0;
    bool named = false;
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++) {
        ElfW(Addr) at = d->d_un.d_ptr < o->base ? d->d_un.d_ptr + o->base : d->d_un.d_ptr; /* relocated in place or not */
        if (d->d_tag == DT_SYMTAB) o->symbols = (const ElfW(Sym) *)at;
        if (d->d_tag == DT_STRTAB) o->strings = (const char *)at;
        if (d->d_tag == DT_GNU_HASH) o->hash = (const uint32_t *)at;
        if (d->d_tag == DT_SONAME) soname = d->d_un.d_val, named = true;
    }
    if (o->strings && named) o->soname = o->strings + soname;
    return o->symbols && o->strings;
}

static void *find_symbol(const struct object *o, const char *name) {
    if (!o->hash) return NULL;
    uint32_t h = 5381;
    for (const char *p = name; *p; p++) h = h * 33 + (unsigned char)*p;
    uint32_t buckets = o->hash[0], first = o->hash[1], bloom = o->hash[2];
    const uint32_t *bucket = o->hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t i = buckets ? bucket[h % buckets] : 0;
    for (; i >= first && i; i++) {
        const ElfW(Sym) *s = &o->symbols[i];
        if (((chain[i - first] ^ h) >> 1) == 0 && strcmp(o->strings + s->st_name, name) == 0 && s->st_shndx != SHN_UNDEF)
            return (void *)(o->base + s->st_value);
        if (chain[i - first] & 1) break;
    }
    return NULL;
}

static int look_in(struct dl_phdr_info *info, size_t size, void *unused) {
    struct object o;
    (void)size, (void)unused;
    if (!read_object(info, &o) || !o.soname || (strcmp(o.soname, "libc.so.6") != 0 && strcmp(o.soname, "libdl.so.2") != 0)) return 0;
    void *s = find_symbol(&o, "dlsym"), *v = find_symbol(&o, "dlvsym"), *d = find_symbol(&o, "dlopen"),
         *e = find_symbol(&o, "dlerror");
    if (e && !real_dlerror) *(void **)&real_dlerror = e;
    if (v && pliant_real_dlvsym == pliant_find_dlvsym) *(void **)&pliant_real_dlvsym = v;
    if (d && !real_dlopen) *(void **)&real_dlopen = d;
    if (s && pliant_real_dlsym == pliant_find_dlsym) *(void **)&pliant_real_dlsym = s;
    return 0;
}

__attribute__((constructor)) static void start(void) {
    if (pliant_real_dlsym == pliant_find_dlsym) dl_iterate_phdr(look_in, NULL);
}

__attribute__((visibility("hidden"))) void pliant_boot(void) { /* called by a constructor that ran before ours */
    start();
    if (pliant_real_dlsym != pliant_find_dlsym && pliant_real_dlvsym != pliant_find_dlvsym && real_dlopen) return;
    say("no dlsym in this C library: a share of a GPU cannot be enforced here");
    __builtin_trap(); /* there is no way to continue */
}

bool started(void) { return pliant_real_dlsym != pliant_find_dlsym; }

void forget_error(void) { /* dlerror must not report our look-ups to the program */
    if (real_dlerror) real_dlerror();
}

void *real_open(const char *name, bool only_if_loaded) {
    if (!real_dlopen) pliant_boot();
    return real_dlopen(name, RTLD_LAZY | (only_if_loaded ? RTLD_NOLOAD : 0));
}

struct holder {
    const void *address;
    char *room;
    size_t n;
    bool found;
};

static int holds(struct dl_phdr_info *info, size_t size, void *data) {
    struct holder *h = data;
    struct object o;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        ElfW(Addr) from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || (ElfW(Addr))h->address - from >= info->dlpi_phdr[i].p_memsz) continue;
        h->found = true;
        if (read_object(info, &o) && o.soname && strlen(o.soname) < h->n) strcpy(h->room, o.soname);
        return 1;
    }
    return 0;
}

const char *soname_at(const void *address, char *room, size_t n) {
    struct holder h = {.address = address, .room = room, .n = n};
    room[0] = 0;
    dl_iterate_phdr(holds, &h);
    return room;
}
