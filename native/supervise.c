/* pliant-supervise: runs one attempt of one task and outlives the server that started it.
 *
 * It holds the attempt's lock, copies the task's output into the log, ends the processes that the task leaves behind
 * and writes exit.json. The contract (files, command line, promises) is docs/reference/attempt.md; supervise.py is the
 * same program in Python for machines without a C compiler. One thread, one poll loop, Linux only. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "confine.h"
#include "task.h"
#include "times.h"

#ifndef TIOCGPTPEER /* headers before Linux 4.13 */
#define TIOCGPTPEER _IO('T', 0x41)
#endif

enum {
    LOG_RETRY_MS = 250,    /* between retries of a failed write to the log */
    LEFTOVER_MS = 2000,    /* grace of processes that outlive the main process, unless --grace-ms is shorter */
    RECORD_MS = 300000,    /* how long a failed write of exit.json is retried */
    RECORD_BYTES = 8192,   /* reserved for exit.json at the start; no record is longer */
    KILL_FAST = 50,        /* the first rounds of SIGKILL, 10 ms apart; later ones are 200 ms apart */
    NAME_BYTES = 512,      /* the most of an attempt's name, and of a command or folder quoted in an error */
    DRAIN_BYTES = 1 << 20, /* the most a pipe holds, so the most to read after the last writer's death */
    EXIT_LOST = 1,         /* our exit code: exit.json could not be written */
    EXIT_REFUSED = 2,      /* our exit code: nothing was started */
    BOMB = 1000,           /* this many refused forks within BOMB_MS end the task */
    BOMB_MS = 10000,
    REFUSED_MS = 2000,     /* between two reads of opt.refused: version 1 control groups send no notification */
    KEPT = 7,              /* descriptors that we hold from the start */
    NR_PIDFD_SEND_SIGNAL = 424, /* system calls that older headers lack; the same number on every architecture */
    NR_PIDFD_OPEN = 434,
    NR_CLOSE_RANGE = 436,
};

enum stage { RUNNING, ENDING, KILLING };

static struct {
    const char *dir, *cwd, *attempt, *read_only;
    const char *kill; /* a file of the task's control group: a write to it kills every process in the group */
    const char *refused; /* another file of that group: counts the refused forks */
    int lock_fd, ready_fd, log_keep;
    int64_t grace_ms, log_max;
    bool tty, with_stdin;
    const char *child; /* pid and four descriptors of a task that the warden has forked for us */
    char **argv;
} opt = {.dir = "", .cwd = "", .lock_fd = -1, .ready_fd = -1, .log_keep = 3, .grace_ms = 30000, .log_max = 16777216};

static struct {
    int fd;          /* -1 when it has to be opened (again) */
    int err;         /* why the last write failed */
    int64_t size;    /* of the file behind fd */
    int64_t dropped; /* bytes of output lost so far */
    int64_t unnoted; /* the part of `dropped` that no line in the log reports yet; 0: the log works */
    int64_t retry_at;
    bool midline; /* the last byte written was not a line end */
} out_log = {.fd = -1};

static struct {
    enum stage stage;
    pid_t pid; /* the main process; 0 before its start and once reaped, because the number may then be reused */
    bool done, stopped, killed;
    int status; /* as wait4 gives it, once done */
    int64_t started_ms, stop_ms, deadline, max_rss_kb;
    int kill_rounds;
    char error[NAME_BYTES + 128];
} task;

static int dir_fd = -1, signal_fd = -1, exec_fd = -1, out_fd = -1, slave_fd = -1, record_fd = -1;
static int input_fd = -1; /* frames of input, from the server */
static int feed_fd = -1;  /* the task's stdin; -1 on a terminal, where out_fd is used, and after the end of the input */
static int go_fd = -1; /* a task that waits for us starts when it reads a byte from here */
static int refused_fd = -1; /* opt.refused */
static int64_t refused_at;  /* when it is read next */
static bool out_ended, lock_written, record_renamed;

static int64_t clock_ms(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The clock of grace and retries: setting the machine's time does not affect it. */
static int64_t now_ms(void) { return clock_ms(CLOCK_MONOTONIC); }

/* Returns 0 or the errno of a failed write; `done` is the number of bytes written in either case. */
static int write_all(int fd, const char *p, size_t n, size_t *done) {
    for (*done = 0; *done < n;) {
        ssize_t w = write(fd, p + *done, n - *done);
        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) return w < 0 ? errno : ENOSPC;
        *done += (size_t)w;
    }
    return 0;
}

/* ---- the log ------------------------------------------------------------------------------------------------- */

static bool log_open(void) {
    if (out_log.fd >= 0) return true;
    out_log.fd = openat(dir_fd, "log", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (out_log.fd < 0) {
        out_log.err = errno;
        return false;
    }
    struct stat st;
    bool regular = fstat(out_log.fd, &st) == 0 && S_ISREG(st.st_mode);
    out_log.size = regular ? st.st_size : 0;
    if (regular) times_begin(dir_fd, st.st_ino);
    return true;
}

static size_t log_put(const char *p, size_t n) {
    size_t done;
    if (n && (!out_log.midline || memchr(p, '\n', n - 1))) /* a line begins here */
        times_mark(dir_fd, out_log.fd, clock_ms(CLOCK_REALTIME));
    int err = write_all(out_log.fd, p, n, &done);
    if (err) out_log.err = err;
    if (done) out_log.midline = p[done - 1] != '\n';
    out_log.size += (int64_t)done;
    return done;
}

/* NAME becomes NAME.1, NAME.1 becomes NAME.2 and so on. */
static bool shift(const char *name) {
    char from[32], to[32];
    for (int i = opt.log_keep; i > 0; i--) {
        snprintf(from, sizeof from, i > 1 ? "%s.%d" : "%s", name, i - 1);
        snprintf(to, sizeof to, "%s.%d", name, i);
        if (renameat(dir_fd, from, dir_fd, to) < 0 && errno != ENOENT) return false;
    }
    return true;
}

static bool log_rotate(void) {
    if (opt.log_keep ? !shift("log") : ftruncate(out_log.fd, 0) < 0) {
        out_log.err = errno;
        return false;
    }
    if (opt.log_keep) shift("log-times"); /* if it fails, its header still names the inode of the old log */
    else unlinkat(dir_fd, "log-times", 0);
    close(out_log.fd);
    out_log.fd = -1;
    out_log.midline = false;
    return log_open();
}

/* Writes a line of our own, all of it or none. True if it was written. */
static bool log_note(const char *format, ...) {
    char text[NAME_BYTES + 256], line[sizeof text + 32];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int64_t n = snprintf(line, sizeof line, "\npliant-supervise: %s\n", text);
    if (!log_open() || (out_log.size && out_log.size + n > opt.log_max && !log_rotate())) return false;
    int64_t size = out_log.size;
    bool midline = out_log.midline;
    size_t skip = midline ? 0 : 1;
    if (log_put(line + skip, (size_t)n - skip) == (size_t)n - skip) return true;
    if (out_log.size > size && ftruncate(out_log.fd, size) < 0) out_log.err = errno;
    out_log.size = size;
    out_log.midline = midline;
    return false;
}

static void log_failed(size_t lost) {
    out_log.dropped += (int64_t)lost;
    out_log.unnoted += (int64_t)lost;
    out_log.retry_at = now_ms() + LOG_RETRY_MS;
    if (out_log.fd >= 0) close(out_log.fd); /* a stale handle would keep failing: the next try opens the log again */
    out_log.fd = -1;
}

/* After losses: writes a line that says how many bytes are missing. True if it was written. */
static bool log_resume(void) {
    if (log_note("%" PRId64 " bytes of output are missing here: %s", out_log.unnoted, strerror(out_log.err))) {
        out_log.unnoted = 0;
        return true;
    }
    log_failed(0);
    return false;
}

/* Never waits and never fails: bytes that cannot be written are counted and dropped. */
static void log_output(const char *p, size_t n) {
    if (out_log.unnoted && (now_ms() < out_log.retry_at || !log_resume())) {
        out_log.dropped += (int64_t)n;
        out_log.unnoted += (int64_t)n;
        return;
    }
    while (n) {
        if (!log_open()) break;
        int64_t room = opt.log_max > out_log.size ? opt.log_max - out_log.size : 0;
        size_t cut = n;
        if ((int64_t)n > room) { /* a file ends with a whole line, unless one line alone is longer than a file */
            const char *end = room ? memrchr(p, '\n', (size_t)room) : NULL;
            cut = end ? (size_t)(end - p) + 1 : out_log.size && !out_log.midline ? 0 : (size_t)room;
        }
        size_t done = log_put(p, cut);
        p += done;
        n -= done;
        if (done < cut || (n && !log_rotate())) break;
    }
    if (n) log_failed(n);
}

/* ---- processes ----------------------------------------------------------------------------------------------- */

struct process {
    pid_t pid, parent, group;
    unsigned long long start; /* ticks after boot; pid and start identify a process */
    bool ours, dead;
};

static bool process_read(pid_t pid, struct process *p) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything, also brackets */
    char state;
    int parent, group;
    unsigned long long start;
    if (!rest || sscanf(rest + 1,
                        " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                        &state, &parent, &group, &start) != 4)
        return false;
    *p = (struct process){pid, parent, group, start, false, state == 'Z' || state == 'X'};
    return true;
}

static struct process *process_find(struct process *all, size_t n, pid_t pid) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (all[mid].pid == pid) return &all[mid];
        if (all[mid].pid < pid) low = mid + 1;
        else high = mid;
    }
    return NULL;
}

/* Lists all processes and marks our descendants. False if a process lacks its parent, which died: scan again. */
static bool process_scan(struct process **all, size_t *count) {
    size_t room = 0, n = 0;
    struct process *list = NULL;
    DIR *proc = opendir("/proc");
    for (struct dirent *e; proc && (e = readdir(proc));) { /* procfs lists pids in ascending order */
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        if (n == room) {
            struct process *more = realloc(list, (room = room ? room * 2 : 256) * sizeof *list);
            if (!more) break;
            list = more;
        }
        if (process_read((pid_t)atoi(e->d_name), &list[n])) n++;
    }
    if (proc) closedir(proc);
    pid_t self = getpid();
    bool complete = true;
    for (bool again = true; again;) {
        again = false;
        complete = true;
        for (size_t i = 0; i < n; i++) {
            if (list[i].ours || list[i].pid == self) continue;
            struct process *parent = process_find(list, n, list[i].parent);
            if (list[i].parent == self || (parent && parent->ours)) list[i].ours = again = true;
            else if (!parent && list[i].parent) complete = false;
        }
    }
    *all = list;
    *count = n;
    return complete;
}

/* Signals through a pidfd and checks the start time after opening it: a process that reuses the pid is spared. */
static void process_signal(const struct process *p, int sig) {
    struct process same;
    int fd = (int)syscall(NR_PIDFD_OPEN, p->pid, 0);
    bool old_kernel = fd < 0 && errno == ENOSYS;
    if ((fd >= 0 || old_kernel) && process_read(p->pid, &same) && same.start == p->start) {
        if (old_kernel) kill(p->pid, sig);
        else syscall(NR_PIDFD_SEND_SIGNAL, fd, sig, NULL, 0);
    }
    if (fd >= 0) close(fd);
}

/* Signals the task's group and every other descendant, with SIGTERM once each. Returns 0 if there was none. */
static int signal_all(int sig) {
    bool group_hit = task.pid && kill(-task.pid, sig) == 0; /* false before the child has made its group */
    int alive = group_hit; /* it may be gone before the scan */
    struct process *all = NULL;
    size_t n = 0;
    if (task.pid && sig == SIGTERM) kill(-task.pid, SIGCONT); /* a suspended process could not act on it */
    int fd = sig == SIGKILL && opt.kill ? open(opt.kill, O_WRONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && write(fd, "1", 1) == 1) alive = 1; /* no process escapes this by a fork */
    if (fd >= 0) close(fd);
    for (int tries = 0; tries < 3; tries++) {
        free(all);
        if (process_scan(&all, &n)) break;
    }
    for (size_t i = 0; i < n; i++) {
        if (!all[i].ours || all[i].dead) continue;
        alive++;
        if (sig == SIGTERM && group_hit && all[i].group == task.pid) continue;
        process_signal(&all[i], sig);
        if (sig == SIGTERM) process_signal(&all[i], SIGCONT);
    }
    free(all);
    return alive;
}

/* ---- reports ------------------------------------------------------------------------------------------------- */

/* `s` as a JSON string; invalid UTF-8 becomes U+FFFD. `out` must hold 6 bytes per byte of `s`, and 3 more. */
static void json_string(char *out, const char *s) {
    const unsigned char *p = (const unsigned char *)s;
    *out++ = '"';
    while (*p) {
        size_t more = *p >= 0xf0 && *p < 0xf5 ? 3 : *p >= 0xe0 && *p < 0xf0 ? 2 : *p >= 0xc2 && *p < 0xe0 ? 1 : 0;
        size_t n = 1;
        while (n <= more && (p[n] & 0xc0) == 0x80) n++;
        bool whole = n == more + 1 && !(p[0] == 0xe0 && p[1] < 0xa0) && !(p[0] == 0xed && p[1] > 0x9f) &&
                     !(p[0] == 0xf0 && p[1] < 0x90) && !(p[0] == 0xf4 && p[1] > 0x8f);
        if (*p == '"' || *p == '\\') out += sprintf(out, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f) out += sprintf(out, "\\u%04x", *p);
        else if (*p < 0x80 || (more && whole)) out = mempcpy(out, p, n);
        else out += sprintf(out, "\\ufffd");
        p += n;
    }
    strcpy(out, "\"");
}

static void ready(const char *word, const char *text) {
    if (opt.ready_fd < 0) return;
    char line[NAME_BYTES + 256];
    size_t done;
    int n = snprintf(line, sizeof line, "%s %s\n", word, text);
    write_all(opt.ready_fd, line, (size_t)n, &done); /* errors are ignored: the starter may be gone */
    close(opt.ready_fd);
    opt.ready_fd = -1;
}

/* Exits because of a mistake of the starter: nothing was started or written. */
static _Noreturn void refuse(const char *format, ...) {
    char text[NAME_BYTES + 128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "pliant-supervise: %s\n", text);
    ready("error", text);
    exit(EXIT_REFUSED);
}

/* Reports in exit.json, in the log and to the starter why the task could not be started. */
static void start_failed(const char *what, const char *name, int err) {
    snprintf(task.error, sizeof task.error, "%s%s%.*s: %s", what, *name ? " " : "", NAME_BYTES, name, strerror(err));
    if (!log_note("%s", task.error)) log_failed(0);
    ready("error", task.error);
}

static void lock_describe(void) {
    struct process self = {.start = 0};
    char boot[64] = "", line[160];
    process_read(getpid(), &self);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, boot, sizeof boot - 1);
        boot[got > 0 ? got : 0] = 0;
        boot[strcspn(boot, "\n")] = 0;
        close(fd);
    }
    int n = snprintf(line, sizeof line, "{\"version\":1,\"pid\":%d,\"start\":%llu,\"boot_id\":\"%s\"}\n", (int)getpid(),
                     self.start, boot);
    lock_written = pwrite(opt.lock_fd, line, (size_t)n, 0) == n && ftruncate(opt.lock_fd, n) == 0;
}

static bool record_open(void) {
    if (record_fd < 0) record_fd = openat(dir_fd, "exit.json.tmp", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return record_fd >= 0;
}

/* Reserves the space of exit.json now, so that a disk that fills up later cannot lose the record. */
static void record_reserve(void) {
    if (record_open() && fallocate(record_fd, 0, 0, RECORD_BYTES) < 0) return; /* not supported: nothing is reserved */
}

static bool record_try(const char *text, size_t n) {
    if (!record_renamed) {
        if (!record_open()) return false;
        if (pwrite(record_fd, text, n, 0) != (ssize_t)n || ftruncate(record_fd, (off_t)n) < 0 || fsync(record_fd) < 0 ||
            renameat(dir_fd, "exit.json.tmp", dir_fd, "exit.json") < 0) {
            close(record_fd); /* opened without O_TRUNC, the next try uses the same reserved blocks */
            record_fd = -1;
            return false;
        }
        record_renamed = true;
    }
    return fsync(dir_fd) == 0 || errno == EINVAL; /* EINVAL: this file system cannot sync folders */
}

static bool take_signals(void);

static bool record_write(void) {
    char text[RECORD_BYTES], attempt[6 * NAME_BYTES + 3], error[6 * sizeof task.error + 3] = "null";
    char code[16] = "null", sig[16] = "null", stop[24] = "null";
    int64_t ended_ms = clock_ms(CLOCK_REALTIME);
    if (ended_ms < task.started_ms) ended_ms = task.started_ms; /* the clock was set back: no negative durations */
    if (WIFEXITED(task.status)) snprintf(code, sizeof code, "%d", WEXITSTATUS(task.status));
    if (WIFSIGNALED(task.status)) snprintf(sig, sizeof sig, "%d", WTERMSIG(task.status));
    if (task.stop_ms) snprintf(stop, sizeof stop, "%" PRId64, task.stop_ms);
    if (*task.error) json_string(error, task.error);
    json_string(attempt, opt.attempt);
    int n = snprintf(text, sizeof text,
                     "{\"version\":1,\"attempt\":%s,\"code\":%s,\"signal\":%s,\"stopped\":%s,\"stop_requested_ms\":%s,"
                     "\"started_ms\":%" PRId64 ",\"ended_ms\":%" PRId64 ",\"killed\":%s,\"error\":%s,"
                     "\"log_dropped\":%" PRId64 ",\"max_rss_kb\":%" PRId64 "}\n",
                     attempt, code, sig, task.stopped ? "true" : "false", stop, task.started_ms, ended_ms,
                     task.killed ? "true" : "false", error, out_log.dropped, task.max_rss_kb);
    take_signals();
    int64_t give_up = now_ms() + RECORD_MS;
    for (int wait_ms = 50; !record_try(text, (size_t)n); wait_ms = wait_ms < 1000 ? wait_ms * 2 : 2000) {
        struct pollfd p = {.fd = signal_fd, .events = POLLIN};
        if (now_ms() >= give_up) return false;
        poll(&p, 1, wait_ms);
        if (take_signals()) give_up = 0; /* asked to end: one last try */
    }
    return true;
}

/* ---- the task ------------------------------------------------------------------------------------------------ */

static _Noreturn void task_exec(int error_fd, int in, int out) {
    sigset_t none;
    struct exec_error e = {.err = 0};
    const char *what;
    setsid();
    if (opt.tty) ioctl(slave_fd, TIOCSCTTY, 0);
    for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) e.err = errno;
    if (!e.err && opt.read_only && (e.err = confine(opt.read_only, &what)) != 0)
        snprintf(e.what, sizeof e.what, "%s", what);
    if (!e.err && *opt.cwd && chdir(opt.cwd) < 0) e = (struct exec_error){.err = errno, .folder = true};
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* all other descriptors are close-on-exec */
    if (!e.err) {
        execvp(opt.argv[0], opt.argv);
        e.err = errno;
    }
    size_t done;
    write_all(error_fd, (char *)&e, sizeof e, &done);
    _exit(e.err == ENOENT && !e.folder && !*e.what ? 127 : 126);
}

/* Opens it for reading and writing: writers come and go, and only a frame ends the input. Returns 0 or an errno. */
static int input_open(void) {
    if (mkfifoat(dir_fd, "input", 0600) < 0 && errno != EEXIST) return errno;
    input_fd = openat(dir_fd, "input", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return input_fd < 0 ? errno : 0;
}

/* Returns 0 or an errno; `what` then names the step that failed. */
static int task_start(const char **what) {
    int error_pipe[2], out_pipe[2] = {-1, -1}, in_pipe[2], in = 0, unlock = 0, err;
    if (opt.child) {
        *what = "stdin";
        if (opt.with_stdin && (err = input_open()) != 0) return err;
        if (opt.with_stdin && !opt.tty) { /* the task already holds the other end */
            feed_fd = openat(dir_fd, "stdin", O_WRONLY | O_CLOEXEC | O_NONBLOCK);
            if (feed_fd < 0 || unlinkat(dir_fd, "stdin", 0) < 0) return errno;
        }
        *what = "the waiting task";
        return write(go_fd, "", 1) == 1 && close(go_fd) == 0 ? 0 : errno;
    }
    *what = "pipe";
    if (pipe2(error_pipe, O_CLOEXEC) < 0) return errno;
    exec_fd = error_pipe[0];
    if (opt.tty) {
        struct winsize size = {.ws_row = 24, .ws_col = 80};
        *what = "pty";
        out_fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (out_fd < 0 || ioctl(out_fd, TIOCSPTLCK, &unlock) < 0) return errno;
        /* Kept open: otherwise the terminal would hang up on a task that only closes its output. */
        slave_fd = ioctl(out_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (slave_fd < 0 || ioctl(out_fd, TIOCSWINSZ, &size) < 0) return errno;
    } else {
        if (pipe2(out_pipe, O_CLOEXEC) < 0) return errno;
        out_fd = out_pipe[0];
        fcntl(out_fd, F_SETFL, O_NONBLOCK);
    }
    if (opt.with_stdin) {
        *what = "stdin";
        if ((err = input_open()) != 0) return err;
        if (opt.tty) {
            in = slave_fd;
        } else {
            if (pipe2(in_pipe, O_CLOEXEC) < 0) return errno;
            in = in_pipe[0];
            feed_fd = in_pipe[1];
            fcntl(feed_fd, F_SETFL, O_NONBLOCK);
        }
    }
    *what = "fork";
    pid_t pid = fork();
    if (pid < 0) return errno;
    if (pid == 0) task_exec(error_pipe[1], in, opt.tty ? slave_fd : out_pipe[1]);
    task.pid = pid;
    close(error_pipe[1]);
    if (!opt.tty) close(out_pipe[1]);
    if (feed_fd >= 0) close(in);
    return 0;
}

/* Reads the exec pipe: it holds an error, or a successful exec has closed it. */
static void exec_result(void) {
    struct exec_error e;
    ssize_t n;
    do n = read(exec_fd, &e, sizeof e);
    while (n < 0 && errno == EINTR);
    close(exec_fd);
    exec_fd = -1;
    if (n == (ssize_t)sizeof e) {
        if (*e.what) start_failed(e.what, opt.read_only ? opt.read_only : "", e.err);
        else start_failed(e.folder ? "cwd" : "exec", e.folder ? opt.cwd : opt.argv[0], e.err);
    } else {
        char pid[16];
        snprintf(pid, sizeof pid, "%d", (int)task.pid);
        ready("started", pid);
    }
}

static void begin_ending(int64_t grace_ms) {
    task.stage = ENDING;
    task.deadline = now_ms() + grace_ms;
    signal_all(SIGTERM);
}

/* Reads the pending signals. True if SIGTERM was among them. */
static bool take_signals(void) {
    bool stop = false;
    struct signalfd_siginfo s;
    while (read(signal_fd, &s, sizeof s) == (ssize_t)sizeof s) stop |= s.ssi_signo == SIGTERM;
    if (!stop) return false;
    if (!task.stop_ms) task.stop_ms = clock_ms(CLOCK_REALTIME);
    if (!task.done) task.stopped = true;
    if (!task.done && task.stage == RUNNING) begin_ending(opt.grace_ms);
    return true;
}

/* Reaps children, also adopted ones. False if no child is left, and thus no descendant. */
static bool reap(void) {
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        struct rusage usage;
        int status;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
            if (errno == EINTR) continue;
            return false;
        }
        if (!info.si_pid) return true;
        bool is_main = info.si_pid == task.pid;
        if (is_main) take_signals(); /* so that a stop that came before the end is recorded as a stop */
        if (wait4(info.si_pid, &status, WNOHANG, &usage) != info.si_pid) continue;
        if (usage.ru_maxrss > task.max_rss_kb) task.max_rss_kb = usage.ru_maxrss;
        if (!is_main) continue;
        if (exec_fd >= 0) exec_result();
        task.status = status;
        task.done = true;
        task.pid = 0;
    }
}

static void copy_output(size_t most) {
    static char buffer[32768];
    for (size_t total = 0; total < most && !out_ended;) {
        ssize_t n = read(out_fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) { /* the end of the output; a terminal reports it as EIO */
            out_ended = true;
            return;
        }
        log_output(buffer, (size_t)n);
        total += (size_t)n;
    }
}

/* The server writes each frame with one write of at most PIPE_BUF bytes, so frames never interleave. */
struct frame {
    uint8_t kind;     /* 'D': data, 'E': the end of the input, 'W': the size of the terminal */
    uint8_t zero;
    uint16_t length;  /* of the data that follows */
    uint32_t stream;  /* identifies the sender */
    uint64_t at;      /* bytes that the sender sent before; of 'W': rows, and columns times 65536 */
};

static char typed[4096];
static size_t typed_bytes, typed_from; /* input not yet passed to the task: its length and its offset */
static struct { uint32_t stream; uint64_t next; } sender; /* of the last frame; the offset of its next new byte */

/* Reads the next frame into `typed`, without bytes that its sender sent before. False if there is none. */
static bool read_frame(void) {
    struct frame f;
    if (read(input_fd, &f, sizeof f) != (ssize_t)sizeof f) return false;
    ssize_t n = f.length ? read(input_fd, typed, f.length < sizeof typed ? f.length : sizeof typed) : 0;
    if (f.kind == 'W') {
        struct winsize size = {.ws_row = (uint16_t)f.at, .ws_col = (uint16_t)(f.at >> 16)};
        if (opt.tty) (void)ioctl(out_fd, TIOCSWINSZ, &size); /* it fails if the task has closed its terminal */
        return true;
    }
    uint64_t bytes = f.kind == 'E' ? 1 : n > 0 ? (uint64_t)n : 0; /* the end counts as one: a repeated end is ignored */
    uint64_t known = f.stream == sender.stream && f.at < sender.next ? sender.next - f.at : 0;
    if (known >= bytes) return true;
    sender.stream = f.stream;
    sender.next = f.at + bytes;
    if (f.kind == 'E' && opt.tty) {
        typed[0] = 4; /* Ctrl-D, the end of the input on a terminal */
    } else if (f.kind == 'E') {
        if (feed_fd >= 0) close(feed_fd);
        feed_fd = -1;
        return true;
    }
    typed_from = known;
    typed_bytes = bytes - known;
    return true;
}

static void copy_input(void) {
    for (int frames = 0; frames < 64; frames++) { /* then the loop handles its other events */
        if (!typed_bytes && !read_frame()) return;
        if (!typed_bytes) continue;
        int to = opt.tty ? out_fd : feed_fd;
        ssize_t n = to < 0 ? (ssize_t)typed_bytes : write(to, typed + typed_from, typed_bytes);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0) n = (ssize_t)typed_bytes; /* the task no longer reads its input */
        typed_from += (size_t)n;
        typed_bytes -= (size_t)n;
    }
}

/* Kills a task of which BOMB forks were refused within BOMB_MS. Mapping a file waits for the other processes that map
 * it, so that a thousand processes with the same C library delay every new process of the machine. */
static void count_refused(int64_t now) {
    static int64_t since, before;
    char text[64];
    ssize_t n = pread(refused_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    refused_at = now + REFUSED_MS;
    int64_t count = strncmp(text, "max ", 4) == 0 ? strtoll(text + 4, NULL, 10) : before;
    if (n > 0 && now - since > BOMB_MS) since = now, before = count;
    if (n > 0 && count - before < BOMB) return;
    close(refused_fd);
    refused_fd = -1;
    if (n <= 0) return; /* the control group is gone */
    log_note("ended: %" PRId64 " processes that it may not have were refused within %d s", count - before, BOMB_MS / 1000);
    task.stage = KILLING;
    task.deadline = now;
}

/* Does what is due now. Returns the milliseconds until something else is due, -1 for never. */
static int tick(void) {
    int64_t now = now_ms(), next = INT64_MAX;
    if (refused_fd >= 0 && now >= refused_at) count_refused(now);
    if (refused_fd >= 0) next = refused_at;
    if (task.stage == ENDING && now >= task.deadline) task.stage = KILLING;
    if (task.stage == KILLING && now >= task.deadline) {
        task.killed |= signal_all(SIGKILL) > 0;
        task.deadline = now + (task.kill_rounds++ < KILL_FAST ? 10 : 200);
    }
    if (task.stage != RUNNING && task.deadline < next) next = task.deadline;
    if (!lock_written || out_log.unnoted) {
        if (now >= out_log.retry_at) {
            if (!lock_written) lock_describe();
            if (out_log.unnoted) log_resume();
            out_log.retry_at = now + LOG_RETRY_MS;
        }
        if ((!lock_written || out_log.unnoted) && out_log.retry_at < next) next = out_log.retry_at;
    }
    if (next == INT64_MAX) return -1;
    return next <= now ? 0 : next - now > INT_MAX ? INT_MAX : (int)(next - now);
}

static void supervise(void) {
    enum { SIGNALS, EXEC, OUTPUT, INPUT, FEED, COUNT };
    bool more = true;
    while (more) {
        struct pollfd p[COUNT] = {
            {.fd = signal_fd, .events = POLLIN},
            {.fd = exec_fd, .events = POLLIN},
            {.fd = out_ended ? -1 : out_fd, .events = (short)(POLLIN | (opt.tty && typed_bytes ? POLLOUT : 0))},
            {.fd = typed_bytes ? -1 : input_fd, .events = POLLIN},
            {.fd = typed_bytes ? feed_fd : -1, .events = POLLOUT},
        };
        if (poll(p, COUNT, tick()) < 0) continue; /* EINTR */
        if (p[SIGNALS].revents) take_signals();
        if (p[EXEC].revents) exec_result();
        if (p[OUTPUT].revents & ~POLLOUT) copy_output(1);
        if (p[INPUT].revents || p[FEED].revents || (p[OUTPUT].revents & POLLOUT)) copy_input();
        more = reap();
        if (more && task.done && task.stage == RUNNING)
            begin_ending(opt.grace_ms < LEFTOVER_MS ? opt.grace_ms : LEFTOVER_MS);
    }
    copy_output(DRAIN_BYTES);
    if (out_log.unnoted) log_resume();
}

/* ---- start --------------------------------------------------------------------------------------------------- */

static int64_t number(const char *name, const char *text, int64_t low, int64_t high) {
    size_t n = strspn(text, "0123456789");
    int64_t value = n && n <= 18 && !text[n] ? strtoll(text, NULL, 10) : -1;
    if (value < low || value > high)
        refuse("%s: %.64s is not a number between %" PRId64 " and %" PRId64, name, text, low, high);
    return value;
}

static void parse(char **argv) {
    static const char *const names[] = {"--dir", "--lock-fd", "--ready-fd", "--grace-ms", "--log-max", "--log-keep",
                                        "--cwd", "--read-only", "--tty",    "--stdin",    "--child",   "--attempt",
                                        "--kill", "--refused"};
    enum { DIR_, LOCK_FD, READY_FD, GRACE_MS, LOG_MAX, LOG_KEEP, CWD, READ_ONLY, TTY, STDIN, CHILD, ATTEMPT, KILL, REFUSED_,
           OPTIONS };
    opt.attempt = getenv("PLIANT_ATTEMPT");
    for (argv++; *argv && !strncmp(*argv, "--", 2); argv++) {
        if (!strcmp(*argv, "--")) {
            argv++;
            break;
        }
        int i = 0;
        size_t length = strcspn(*argv, "=");
        while (i < OPTIONS && (strncmp(*argv, names[i], length) != 0 || names[i][length])) i++;
        bool flag = i == TTY || i == STDIN;
        if (i == OPTIONS || (flag && (*argv)[length])) refuse("%.64s: no such option", *argv);
        const char *value = flag ? "" : (*argv)[length] ? *argv + length + 1 : *++argv;
        if (!value) refuse("%s: its value is missing", names[i]);
        switch (i) {
        case DIR_: opt.dir = value; break;
        case CWD: opt.cwd = value; break;
        case READ_ONLY: opt.read_only = value; break;
        case CHILD: opt.child = value; break;
        case ATTEMPT: opt.attempt = value; break;
        case KILL: opt.kill = value; break;
        case REFUSED_: opt.refused = value; break;
        case TTY: opt.tty = true; break;
        case STDIN: opt.with_stdin = true; break;
        case LOCK_FD: opt.lock_fd = (int)number(names[i], value, 0, INT_MAX); break;
        case READY_FD: opt.ready_fd = (int)number(names[i], value, 0, INT_MAX); break;
        case GRACE_MS: opt.grace_ms = number(names[i], value, 0, INT64_C(1000000000000)); break;
        case LOG_MAX: opt.log_max = number(names[i], value, 1, INT64_C(1000000000000000)); break;
        case LOG_KEEP: opt.log_keep = (int)number(names[i], value, 0, 999); break;
        }
    }
    opt.argv = argv;
    if (!*opt.dir || opt.lock_fd < 0 || !*argv) refuse("--dir, --lock-fd and a command are needed");
    if (!opt.attempt || !*opt.attempt || strlen(opt.attempt) > NAME_BYTES)
        refuse("PLIANT_ATTEMPT must be 1 to %d bytes long: by it the task's processes are found", NAME_BYTES);
}

/* Closes what was inherited from the starter, which we may outlive by weeks. Our own descriptors move to 3 and up. */
static void keep_only(int *const ours[KEPT]) {
    enum { FIRST = 3, END = FIRST + KEPT };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < FIRST; fd++)
        if (null < 0 || dup2(null, fd) < 0) refuse("/dev/null: %s", strerror(errno));
    for (int i = 0; i < KEPT; i++)
        if (*ours[i] >= 0) dup3(*ours[i], FIRST + i, O_CLOEXEC), *ours[i] = FIRST + i;
        else close(FIRST + i);
    if (syscall(NR_CLOSE_RANGE, END, ~0U, 0) == 0) return;
    DIR *fds = opendir("/proc/self/fd"); /* before Linux 5.9 */
    for (struct dirent *e; fds && (e = readdir(fds));)
        if (atoi(e->d_name) >= END && atoi(e->d_name) != dirfd(fds)) close(atoi(e->d_name));
    if (fds) closedir(fds);
}

/* Takes over a task that the warden has forked as another user, who must not be able to inspect this process. */
static void take_child(void) {
    int pid, fd[4], *const ours[] = {&out_fd, &exec_fd, &go_fd, &slave_fd};
    if (sscanf(opt.child, "%d,%d,%d,%d,%d", &pid, &fd[0], &fd[1], &fd[2], &fd[3]) != 5 || pid < 2)
        refuse("--child: %.64s is not a pid and four descriptors", opt.child);
    for (int i = 0; i < 4; i++) *ours[i] = fd[i] < 0 ? -1 : fcntl(fd[i], F_DUPFD_CLOEXEC, 3 + KEPT);
    if (out_fd < 0 || exec_fd < 0 || go_fd < 0 || fcntl(out_fd, F_SETFL, O_NONBLOCK | (opt.tty ? O_RDWR : O_RDONLY)) < 0)
        refuse("--child: %s", strerror(errno));
    task.pid = pid;
    prctl(PR_SET_DUMPABLE, 0);
}

static void check_lock(void) {
    struct stat held, named;
    if (fstat(opt.lock_fd, &held) < 0 || fstatat(dir_fd, "lock", &named, 0) < 0 || held.st_dev != named.st_dev ||
        held.st_ino != named.st_ino)
        refuse("--lock-fd is not the file %.*s/lock", NAME_BYTES, opt.dir);
    if (flock(opt.lock_fd, LOCK_EX | LOCK_NB) < 0) /* no effect if the starter locked this open file description */
        refuse("%.*s/lock is held by another process: the attempt is running", NAME_BYTES, opt.dir);
    if (faccessat(dir_fd, "exit.json", F_OK, 0) == 0)
        refuse("%.*s/exit.json exists: the attempt has ended", NAME_BYTES, opt.dir);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--confine") == 0) return confine_command(argv);
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ};
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGTERM);
    sigaddset(&handled, SIGCHLD);
    sigprocmask(SIG_SETMASK, &handled, NULL);
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored it would hide every exit code */
    signal(SIGTERM, SIG_DFL); /* and an ignored signal never reaches a signalfd */
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);

    if (argc < 1) return EXIT_REFUSED;
    parse(argv);
    int dir = open(opt.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) refuse("--dir %.*s: %s", NAME_BYTES, opt.dir, strerror(errno));
    /* Duplicated above their final numbers, so that keep_only() overwrites none of them. */
    dir_fd = fcntl(dir, F_DUPFD_CLOEXEC, 3 + KEPT);
    opt.lock_fd = fcntl(opt.lock_fd, F_DUPFD_CLOEXEC, 3 + KEPT);
    opt.ready_fd = fcntl(opt.ready_fd, F_DUPFD_CLOEXEC, 3 + KEPT); /* -1 if invalid: nothing is reported */
    if (opt.child) take_child();
    check_lock();
    keep_only((int *[KEPT]){&opt.lock_fd, &opt.ready_fd, &dir_fd, &out_fd, &exec_fd, &go_fd, &slave_fd});

    prctl(PR_SET_NAME, "pliant-superv");
    signal_fd = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
    if (opt.refused) refused_fd = open(opt.refused, O_RDONLY | O_CLOEXEC);
    lock_describe();
    log_open(); /* exists from the start, for readers; if this fails, the first output retries */
    task.started_ms = clock_ms(CLOCK_REALTIME);
    const char *what = "setup";
    int err = signal_fd < 0 || dir_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ? errno : task_start(&what);
    int moved = chdir("/"); /* frees the folder that we were started in */
    (void)moved;
    record_reserve();
    if (err) {
        task.done = true;
        task.status = 126 << 8; /* as wait4 would give exit code 126 */
        start_failed(what, "", err);
    } else {
        supervise();
    }
    if (opt.with_stdin) unlinkat(dir_fd, "input", 0);
    bool written = record_write();
    if (!written) unlinkat(dir_fd, "exit.json.tmp", 0);
    return written ? 0 : EXIT_LOST; /* the exit releases the lock, after the record was written */
}
