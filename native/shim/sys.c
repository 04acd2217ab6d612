/* The system, through calls that every glibc since 2.17 has under the same name and version. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum { BUSY_TRIES = 40, LOCK_NAPS = 200, NAP_NS = 1000000 };

void spin_slow(struct spin *s) {
    for (int i = 1; __atomic_load_n(&s->word, __ATOMIC_RELAXED) || __atomic_exchange_n(&s->word, 1, __ATOMIC_ACQUIRE); i++)
        if (i % BUSY_TRIES == 0) syscall(SYS_sched_yield); /* its holder may not be running */
}

void lock(struct mutex *m) {
    uint32_t free_word = 0;
    for (int i = 0; i < BUSY_TRIES; i++) {
        free_word = 0;
        if (__atomic_compare_exchange_n(&m->word, &free_word, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
    }
    while (__atomic_exchange_n(&m->word, 2, __ATOMIC_ACQUIRE) != 0)
        syscall(SYS_futex, &m->word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, NULL, NULL, 0);
}

void unlock(struct mutex *m) {
    if (__atomic_exchange_n(&m->word, 0, __ATOMIC_RELEASE) == 2)
        syscall(SYS_futex, &m->word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

bool file_id(const char *path, struct file_id *id) {
    struct stat st;
#ifdef SYS_newfstatat
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) != 0) return false;
#else
    if (syscall(SYS_fstatat, AT_FDCWD, path, &st, 0) != 0) return false;
#endif
    *id = (struct file_id){(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size,
                           (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec};
    return true;
}

#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

static long set_lock(int fd, int command, short kind, uint64_t at, struct flock *l) {
    *l = (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
    return syscall(SYS_fcntl, fd, command, l);
}

bool lock_byte(int fd, uint64_t at, bool wait_a_little) {
    struct flock l;
    for (int i = 0;; i++) {
        if (set_lock(fd, F_OFD_SETLK, F_WRLCK, at, &l) == 0) return true;
        if (!wait_a_little || i == LOCK_NAPS) return false; /* its holder may be stopped: the wait is bounded */
        struct timespec t = {.tv_nsec = i < 10 ? 0 : i < 30 ? NAP_NS / 50 : NAP_NS};
        syscall(SYS_nanosleep, &t, NULL);
    }
}

bool unlock_byte(int fd, uint64_t at) {
    struct flock l;
    return set_lock(fd, F_OFD_SETLK, F_UNLCK, at, &l) == 0;
}

bool byte_is_locked(int fd, uint64_t at) {
    struct flock l;
    return set_lock(fd, F_OFD_GETLK, F_WRLCK, at, &l) != 0 || l.l_type != F_UNLCK; /* locked if the test fails */
}

uint64_t now_ns(void) {
    if (sim_now) return sim_now();
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void nap_ns(uint64_t ns) {
    uint32_t never = 0;
    wait_word(&never, 0, ns);
}

void wait_word(uint32_t *word, uint32_t expected, uint64_t ns) {
    if (sim_wait) {
        sim_wait(word, expected, ns);
        return;
    }
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    syscall(SYS_futex, word, FUTEX_WAIT, expected, &t, NULL, 0);
}

void wake_word(uint32_t *word) {
    if (sim_wake) sim_wake(word);
    else syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void say(const char *format, ...) {
    char line[1024] = "pliant-gpu: ";
    size_t n = strlen(line);
    int old = errno;
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    if (more > 0) n = strlen(line);
    line[n++] = '\n';
    if (syscall(SYS_write, 2, line, n) < 0) errno = old; /* stderr cannot be written: ignored */
    errno = old;
}

bool say_now(uint64_t *last_ns) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t now = (uint64_t)t.tv_sec + 1, last = __atomic_load_n(last_ns, __ATOMIC_RELAXED);
    return (!last || now - last >= 60) && __atomic_compare_exchange_n(last_ns, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void *pages(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
