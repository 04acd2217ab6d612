/* pliant-warden: the only part of Pliant that runs as root. It starts a user's jobs as that user, isolated from others.
 * It takes orders from one account only, the server's, within the limits of /etc/pliant/warden.conf.
 * The contract (orders, checks, folders) is docs/reference/warden.md. */
#ifndef PLIANT_WARDEN_H
#define PLIANT_WARDEN_H
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <shadow.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAGIC = 0x444c5750, /* PWLD */
    VERSION = 3,
    DEVICES = 64,
    DESCRIPTORS = 4,
    GROUPS = 1024,       /* supplementary groups of one account */
    LAUNCH_BYTES = 1 << 20,
    SECONDS = 30,        /* the most that one order may take */
    TEXT = 512,
    NAME = 256,          /* bytes of a path in the configuration */
};

enum verb { START = 1, EXEC, SIGNAL, LIMITS, LIST, DISCARD, STRAY, VERBS };
enum { FLAG_TTY = 1, FLAG_STDIN = 2, FLAG_END = 4 };

struct device {
    uint32_t major, minor;
};

/* One order: exactly these bytes in one message, with the descriptors of its verb. Numbers have machine byte order. */
struct order {
    uint32_t magic, version, verb, flags;
    uint64_t epoch; /* of the leader that sends it */
    uint32_t uid, number;
    uint64_t memory, cpu, pids; /* bytes, millicores, processes; 0: no limit (pids: the default) */
    uint64_t grace_ms, log_max;
    uint32_t log_keep, umask, devices, signal;
    char workload[64], task[96]; /* with `number`: the attempt */
    char name[64];               /* of the account, at submission */
    char cwd[4096], dir[1024];
    struct device device[DEVICES]; /* the cards that the job may open */
};

struct answer {
    uint32_t magic, version;
    int32_t error, pid; /* errno of what was refused or failed, 0: done */
    uint32_t status, populated;
    uint64_t oom, peak, limit; /* out-of-memory kills, most bytes used, bytes allowed */
    uint64_t unforked, processes; /* refused forks, processes allowed */
    char text[TEXT];
};

struct config {
    uid_t server;
    gid_t server_gid;
    uid_t min_uid, deny[64];
    size_t denied;
    gid_t allow_group;
    bool only_group, stop_strays, own_cores;
    char work[NAME], runtime[NAME], state[NAME], group[NAME], supervisor[NAME];
    struct patterns {
        char name[8][NAME];
        size_t count;
    } gpu, common, always; /* device nodes: cards; what jobs with cards need; what all jobs may have */
};

struct account {
    uid_t uid;
    gid_t gid;
    gid_t groups[GROUPS];
    int count;
    char name[64];
};

/* A command and its environment, read from a descriptor: arguments and logs show argv[0] only. */
struct launch {
    char **argv, **env;
};

extern struct config conf;
extern struct order order;
extern int given[DESCRIPTORS];
extern int connection;

/* main.c */
_Noreturn void refuse(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));
void note(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void answer(struct answer *said, int descriptor);
extern void (*undo)(void); /* called by refuse(): removes what was made for the order */

/* config.c */
void config_read(const char *path);
const char *root_owned(const char *path);

/* account.c */
void account_find(struct account *who);
void account_become(const struct account *who);
void account_visit(const struct account *who);
void account_return(void);

/* group.c */
bool get(const char *folder, const char *file, char *text, size_t room);
bool put(const char *folder, const char *file, const char *format, ...) __attribute__((format(printf, 3, 4)));
void groups_open(void);
void group_make(void);
void group_limit(void);
pid_t group_fork(bool supervisor);
void group_remove(void);
int group_members(pid_t **pids);
bool group_exists(void);
bool group_populated(void);
uint64_t process_start(pid_t pid);
void group_signal(int number);
void group_kill(void);
bool group_file(char *path, const char *name);
void group_facts(struct answer *said);
void group_list(int out);

/* cores.c */
void cores_inherit(const char *mount, const char *group);
void cores_share(const char *root, const char *mine);

/* wall.c */
bool wall_v2(const char *group, const struct device *list, size_t count);
size_t wall_devices(struct device *list, size_t room);
bool is_card(dev_t device);

/* folders.c */
void folders_make(const struct account *who);
void folders_see(const struct account *who, const char *cwd);
void folders_discard(void);

/* launch.c */
_Noreturn void broken(const char *what);
void launch_read(int fd, struct launch *launch);
_Noreturn void start(void);
_Noreturn void execute(void);

#endif
