/* log-times: the arrival times of the lines of the log. Marks of 16 bytes, little-endian: an offset in the log, and the
 * time in ms since the epoch at which the bytes from there arrived. The first mark is the header: a magic word, and the
 * inode of the log. No error here stops the log. */
#ifndef PLIANT_TIMES_H
#define PLIANT_TIMES_H
#include <endian.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TIMES_SPARE = 4096, /* log-times may be this many bytes longer than the log; beyond that, 1 mark per second */
    TIMES_PAUSE_MS = 1000,
};

struct mark {
    uint64_t offset, ms;
};

static struct {
    int fd;          /* -1 when it has to be opened (again) */
    int64_t size;    /* of the whole marks: the offset of the next one */
    int64_t last_ms; /* of the last mark; -1: none yet */
} times = {.fd = -1, .last_ms = -1};

/* A mark that was written in part is not counted: the next one overwrites it. */
static bool times_put(int64_t at, uint64_t offset, uint64_t ms) {
    struct mark m = {htole64(offset), htole64(ms)};
    if (pwrite(times.fd, &m, sizeof m, at) != (ssize_t)sizeof m) return false;
    times.size = at + (int64_t)sizeof m;
    return true;
}

static bool times_open(int dir_fd, uint64_t inode) {
    struct mark header;
    struct stat st;
    uint64_t word;
    if (times.fd >= 0) return true;
    times.fd = openat(dir_fd, "log-times", O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW, 0600);
    if (times.fd < 0) return false;
    memcpy(&word, "PLTIMES1", sizeof word);
    word = le64toh(word);
    if (fstat(times.fd, &st) == 0 && S_ISREG(st.st_mode)) {
        times.size = st.st_size - st.st_size % (int64_t)sizeof header;
        if (pread(times.fd, &header, sizeof header, 0) == (ssize_t)sizeof header && le64toh(header.offset) == word &&
            le64toh(header.ms) == inode)
            return true;
        /* a new file, or that of an older log which could not be renamed with its log */
        if (ftruncate(times.fd, 0) == 0 && times_put(0, word, inode)) return true;
    }
    close(times.fd);
    times.fd = -1;
    return false;
}

/* To be called when the log was opened. */
static void times_begin(int dir_fd, uint64_t inode) {
    if (times.fd >= 0) close(times.fd);
    times.fd = -1;
    times.last_ms = -1;
    times_open(dir_fd, inode);
}

/* Records that the bytes written next to log_fd arrived at now_ms. */
static void times_mark(int dir_fd, int log_fd, int64_t now_ms) {
    struct stat log; /* read each time: another process may have truncated it */
    int64_t since = times.last_ms < 0 ? TIMES_PAUSE_MS : now_ms - times.last_ms;
    if (since == 0 || fstat(log_fd, &log) < 0 || !S_ISREG(log.st_mode)) return;
    if (since > 0 && since < TIMES_PAUSE_MS && times.size > log.st_size + TIMES_SPARE) return;
    if (times_open(dir_fd, log.st_ino) && times_put(times.size, (uint64_t)log.st_size, (uint64_t)now_ms))
        times.last_ms = now_ms;
}

#endif
