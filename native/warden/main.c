/* The main loop: one child and one order per connection. The parent keeps only its configuration. */
#include "warden.h"

struct order order;
int given[DESCRIPTORS] = {-1, -1, -1, -1};
int connection = -1;
void (*undo)(void);
static int lock = -1; /* of the parent only: a child may still run when another warden takes over */
static const char *const verbs[VERBS] = {"?", "start", "exec", "signal", "limits", "list", "discard", "stray"};
static const int descriptors[VERBS] = {0, 4, 3, 0, 0, 1, 0, 0};

/* Writes one line to the journal; bytes that are not printable ASCII become '?'. */
void note(int level, const char *format, ...) {
    char text[2048];
    va_list args;
    int n = snprintf(text, sizeof text, "<%d>", level);
    va_start(args, format);
    n += vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    if (n > (int)sizeof text - 2) n = sizeof text - 2;
    for (int i = 3; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e) text[i] = '?';
    text[n++] = '\n';
    if (write(2, text, (size_t)n) < 0) return; /* no journal: ignored */
}

void answer(struct answer *said, int descriptor) {
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct iovec part = {said, sizeof *said};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    said->magic = MAGIC;
    said->version = VERSION;
    if (descriptor >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    }
    if (sendmsg(connection, &message, MSG_NOSIGNAL) < 0) return; /* the client is gone */
}

_Noreturn void refuse(int err, const char *format, ...) {
    struct answer said = {.error = err ? err : EPERM};
    va_list args;
    va_start(args, format);
    int n = vsnprintf(said.text, sizeof said.text, format, args);
    va_end(args);
    if (n < (int)sizeof said.text) snprintf(said.text + n, sizeof said.text - (size_t)n, ": %s", strerror(said.error));
    note(4, "refused %s uid=%u attempt=%.63s/%.95s/%u: %s", order.verb < VERBS ? verbs[order.verb] : "?", order.uid,
         order.workload, order.task, order.number, said.text);
    if (undo) undo();
    answer(&said, -1);
    _exit(1);
}

static bool plain(const char *text, size_t room) {
    size_t n = strnlen(text, room);
    return n && n < room && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && *text != '-';
}

static bool path(const char *text, size_t room) {
    size_t n = strnlen(text, room);
    return n && n < room && *text == '/';
}

/* Refuses orders of a leader that was replaced; the highest epoch seen is on disk. LIST is not refused and returns that
 * epoch, so that a server that has lost its own record can lead again. */
static uint64_t check_epoch(void) {
    char name[NAME + 16], text[32] = "";
    snprintf(name, sizeof name, "%s/epoch", conf.state);
    int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) < 0 || pread(fd, text, sizeof text - 1, 0) < 0) refuse(errno, "%s", name);
    uint64_t seen = strtoull(text, NULL, 10);
    if (order.epoch < seen && order.verb != LIST)
        refuse(ESTALE, "epoch %llu is over, %llu leads", (unsigned long long)order.epoch, (unsigned long long)seen);
    if (order.epoch > seen && order.verb != LIST) {
        int n = snprintf(text, sizeof text, "%-20llu\n", (unsigned long long)order.epoch);
        if (pwrite(fd, text, (size_t)n, 0) != n || fsync(fd) < 0) refuse(errno, "%s", name);
    }
    close(fd);
    return seen;
}

static void receive(void) {
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int) * 16)]; } control;
    struct iovec part = {&order, sizeof order};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    int got[16], count = 0;
    if (n < 0) _exit(1);
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(got, CMSG_DATA(head), sizeof(int) * (size_t)count);
    }
    if (n == 0) _exit(0);
    bool whole = n == (ssize_t)sizeof order && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (!whole) memset(&order, 0, sizeof order);
    if (!whole || order.magic != MAGIC) refuse(EPROTO, "%zd bytes are no order", n);
    if (order.version != VERSION) refuse(EPROTONOSUPPORT, "version %u, this is version %d", order.version, VERSION);
    if (order.verb < START || order.verb >= VERBS) refuse(ENOSYS, "no verb %u", order.verb);
    if (count != descriptors[order.verb]) refuse(EBADMSG, "%d descriptors, not %d", count, descriptors[order.verb]);
    for (int i = 0; i < count; i++) /* above the standard streams, so that none is overwritten */
        if ((given[i] = fcntl(got[i], F_DUPFD_CLOEXEC, 10)) < 0) refuse(errno, "descriptor %d", i);
}

static void check(void) {
    bool about = order.verb != LIST && order.verb != STRAY, runs = order.verb == START || order.verb == EXEC;
    if (about && !plain(order.workload, sizeof order.workload)) refuse(EINVAL, "no workload id");
    if (about && order.verb != DISCARD && (!plain(order.task, sizeof order.task) || !order.number))
        refuse(EINVAL, "no attempt");
    if (memchr(order.name, 0, sizeof order.name) == NULL) refuse(EINVAL, "no account name");
    if (runs && !path(order.cwd, sizeof order.cwd)) refuse(EINVAL, "no working directory");
    if (order.verb == START && !path(order.dir, sizeof order.dir)) refuse(EINVAL, "no attempt folder");
    bool limits = order.verb != STRAY; /* there order.pids is a start time, beyond any limit after hours of uptime */
    if (limits && (order.memory > INT64_MAX / 4096 * 4096 || order.cpu > 100000000 || order.pids > 4194304))
        refuse(EINVAL, "a limit beyond what machines have");
}

static _Noreturn void end_or_signal(void) {
    struct answer said = {0};
    bool there = group_exists();
    if (order.flags & FLAG_END) {
        if (there) {
            group_kill();
            group_facts(&said);
            group_remove();
        }
    } else if (!there) {
        refuse(ESRCH, "nothing of the attempt runs");
    } else if (order.signal < 1 || order.signal > 31) {
        refuse(EINVAL, "signal %u is no number between 1 and 31", order.signal);
    } else {
        group_signal((int)order.signal);
        group_facts(&said);
    }
    answer(&said, -1);
    exit(0);
}

/* Signals a process that holds a card and belongs to no job: order.number is its pid, order.pids its start time. */
static _Noreturn void end_stray(void) {
    char name[64], text[4096], below[NAME + 16];
    struct stat seen;
    bool holds = false;
    if (!conf.stop_strays) refuse(EPERM, "strays are left alone here");
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)order.number, 0);
    snprintf(name, sizeof name, "/proc/%u", order.number);
    int proc = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || proc < 0 || fstat(proc, &seen) < 0) refuse(ESRCH, "process %u", order.number);
    if (seen.st_uid < conf.min_uid) refuse(EPERM, "process %u is of uid %u", order.number, (unsigned)seen.st_uid);
    if (process_start(order.number) != order.pids) refuse(ESRCH, "process %u is another one now", order.number);
    int file = openat(proc, "cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(file, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    snprintf(below, sizeof below, "%s/", conf.group);
    if (n <= 0 || strstr(text, below)) refuse(EPERM, "process %u belongs to a job", order.number);
    account_visit(&(struct account){.uid = seen.st_uid, .gid = seen.st_gid});
    int fds = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fds < 0 ? NULL : fdopendir(fds);
    for (struct dirent *one; all && (one = readdir(all));)
        if (fstatat(fds, one->d_name, &seen, 0) == 0 && S_ISCHR(seen.st_mode)) holds |= is_card(seen.st_rdev);
    account_return();
    if (!holds) refuse(EPERM, "process %u holds no card", order.number);
    if (order.signal != SIGTERM && order.signal != SIGKILL) refuse(EINVAL, "signal %u", order.signal);
    if (syscall(SYS_pidfd_send_signal, fd, (int)order.signal, NULL, 0) < 0) refuse(errno, "process %u", order.number);
    note(5, "stray pid=%u signal=%u", order.number, order.signal);
    answer(&(struct answer){.pid = (int32_t)order.number}, -1);
    exit(0);
}

static _Noreturn void serve(void) {
    signal(SIGCHLD, SIG_DFL);
    close(lock);
    alarm(SECONDS);
    receive();
    check();
    uint64_t epoch = check_epoch();
    switch (order.verb) {
    case START: start();
    case EXEC: execute();
    case SIGNAL: end_or_signal();
    case STRAY: end_stray();
    case LIMITS:
        if (!group_exists()) refuse(ESRCH, "nothing of the attempt runs");
        group_limit();
        break;
    case LIST:
        group_list(given[0]);
        answer(&(struct answer){.limit = epoch}, -1);
        exit(0);
    case DISCARD:
        folders_discard();
        break;
    }
    answer(&(struct answer){0}, -1);
    exit(0);
}

static void ready(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *name = getenv("NOTIFY_SOCKET");
    if (!name || strlen(name) >= sizeof to.sun_path) return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(to.sun_path, name, strlen(name));
    if (*name == '@') to.sun_path[0] = 0;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    if (sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&to, size) < 0) note(4, "systemd was not told");
    close(fd);
}

static int socket_open(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if ((size_t)snprintf(at.sun_path, sizeof at.sun_path, "%s/sock", conf.runtime) >= sizeof at.sun_path)
        note(3, "%s: the name is too long for a socket", conf.runtime), exit(2);
    unlink(at.sun_path);
    mode_t before = umask(0177);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 ||
        lchown(at.sun_path, conf.server, conf.server_gid) < 0 || listen(fd, 256) < 0)
        note(3, "%s: %s", at.sun_path, strerror(errno)), exit(2);
    umask(before);
    return fd;
}

static void own_folders(void) {
    char name[NAME + 16];
    struct statfs there;
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/%s", conf.runtime, i ? "shm" : "job");
        if (mkdir(name, 0755) < 0 && errno != EEXIST) note(3, "%s: %s", name, strerror(errno)), exit(2);
    }
    if (statfs(name, &there) < 0 || (there.f_type != 0x01021994 && mount("tmpfs", name, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0))
        note(3, "%s: no memory file system: %s", name, strerror(errno)), exit(2);
    snprintf(name, sizeof name, "%s/lock", conf.state);
    lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    for (int tries = 0; lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (lock < 0 || tries == 100) note(3, "%s: another warden runs", name), exit(2);
        nanosleep(&(struct timespec){0, 20000000}, NULL); /* a child of a killed warden may not have closed it yet */
    }
}

int main(int argc, char **argv) {
    umask(022);
    if (geteuid() != 0) note(3, "the warden needs root"), exit(2);
    config_read(argc > 1 ? argv[1] : "/etc/pliant/warden.conf");
    own_folders();
    groups_open();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN); /* children are not waited for */
    int listener = socket_open();
    ready();
    for (;;) {
        struct ucred peer;
        socklen_t size = sizeof peer;
        connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0) continue;
        if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != conf.server) {
            note(4, "refused connection of uid=%u pid=%d", (unsigned)peer.uid, (int)peer.pid);
        } else {
            pid_t pid = fork();
            if (pid == 0) {
                close(listener);
                serve();
            }
            if (pid < 0) note(3, "fork: %s", strerror(errno));
        }
        close(connection);
    }
}
