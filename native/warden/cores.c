/* With `cpu cores` in the configuration, a job that requests whole cores has as many of its own; the others share what
 * is left. A group's own cores are its extended attribute: the kernel keeps the only record and drops it with the
 * group. */
#include "warden.h"
#include <sys/xattr.h>

enum { LINE = 8192, PLACE = 1280 };
static const char OWN[] = "trusted.pliant.cores";

static void parse(const char *text, cpu_set_t *set) {
    CPU_ZERO(set);
    while (isdigit((unsigned char)*text)) {
        char *end;
        long first = strtol(text, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (; first <= last && first < CPU_SETSIZE; first++) CPU_SET(first, set);
        text = end + (*end == ',');
    }
}

static void print(const cpu_set_t *set, char *text) {
    size_t n = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, set)) n += (size_t)snprintf(text + n, LINE - n, "%s%d", n ? "," : "", i);
    text[n] = 0;
}

static bool own(const char *group, cpu_set_t *set) {
    char text[LINE];
    ssize_t n = getxattr(group, OWN, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    parse(text, set);
    return n > 0;
}

/* Copies cores and memory nodes from the groups above: in version 1 a new group has none until they are written. */
void cores_inherit(const char *mount, const char *group) {
    static const char *const files[] = {"cpuset.mems", "cpuset.cpus"};
    char above[PLACE], part[PLACE], text[LINE];
    for (const char *at = group + strlen(mount), *end; at && *at; at = end) {
        end = strchr(at + 1, '/');
        snprintf(above, sizeof above, "%.*s", (int)(at - group), group);
        snprintf(part, sizeof part, "%.*s", (int)(end ? end - group : (long)strlen(group)), group);
        for (int i = 0; i < 2; i++)
            if (get(part, files[i], text, sizeof text) && *text == '\n' && get(above, files[i], text, sizeof text))
                put(part, files[i], "%s", text);
    }
}

/* Gives `mine` the cores that the order requests, and groups without own cores those that are left, or all if none is.
 * Called with NULL when a group has been removed. */
void cores_share(const char *root, const char *mine) {
    char name[NAME + 16], text[LINE];
    cpu_set_t all, taken, chosen, theirs, rest;
    size_t wanted = mine && order.cpu % 1000 == 0 ? order.cpu / 1000 : 0;
    glob_t found = {0};
    snprintf(name, sizeof name, "%s/cores", conf.state);
    int lock = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) < 0) note(4, "%s: %s", name, strerror(errno));
    if (!get(root, "cpuset.cpus.effective", text, sizeof text)) get(root, "cpuset.effective_cpus", text, sizeof text);
    parse(text, &all);
    snprintf(text, sizeof text, "%s/user-*/*.*.*", root);
    glob(text, 0, NULL, &found);
    CPU_ZERO(&taken);
    for (size_t i = 0; i < found.gl_pathc; i++)
        if ((!mine || strcmp(found.gl_pathv[i], mine) != 0) && own(found.gl_pathv[i], &theirs)) CPU_OR(&taken, &taken, &theirs);
    CPU_XOR(&rest, &all, &taken);
    CPU_AND(&rest, &rest, &all);
    CPU_ZERO(&chosen);
    size_t left = (size_t)CPU_COUNT(&rest);
    for (int i = 0; wanted <= left && (size_t)CPU_COUNT(&chosen) < wanted; i++)
        if (CPU_ISSET(i, &rest)) CPU_SET(i, &chosen), CPU_CLR(i, &rest);
    print(&chosen, text);
    bool done = wanted <= left;
    if (mine && wanted && done) done = put(mine, "cpuset.cpus", "%s", text) && setxattr(mine, OWN, text, strlen(text), 0) == 0;
    if (mine && !wanted) removexattr(mine, OWN);
    print(CPU_COUNT(&rest) ? &rest : &all, text);
    for (size_t i = 0; done && i < found.gl_pathc; i++)
        if (!own(found.gl_pathv[i], &theirs)) put(found.gl_pathv[i], "cpuset.cpus", "%s", text);
    globfree(&found);
    close(lock); /* before a refusal, which removes the group and calls this function again */
    if (!done) refuse(EBUSY, "it asks for %zu cores of its own, and %zu are free", wanted, left);
}
