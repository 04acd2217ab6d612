/* The configuration and the folders that it names: trusted only if root alone can change them. */
#include "warden.h"

struct config conf = {.min_uid = 1000, .work = "/var/lib/pliant-work", .runtime = "/run/pliant-warden",
                      .state = "/var/lib/pliant-warden", .group = "/pliant.slice/pliant-jobs.service"};

static _Noreturn void wrong(const char *path, const char *what, const char *word) {
    fprintf(stderr, "<3>pliant-warden: %s: %s %s\n", path, what, word);
    exit(2);
}

/* Returns why an account other than root could change `path`, or NULL. Sticky folders are not accepted. */
const char *root_owned(const char *path) {
    static char text[NAME + 128];
    char part[NAME];
    struct stat seen;
    size_t n = strlen(path);
    if (*path != '/' || n >= sizeof part) return "is no absolute path";
    for (size_t i = 1; i <= n; i++) {
        if (i > 1 && i < n && path[i] != '/') continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (lstat(part, &seen) < 0) {
            snprintf(text, sizeof text, "cannot be used: %s", strerror(errno));
            return text;
        }
        if (!S_ISLNK(seen.st_mode) && seen.st_uid == 0 && !(seen.st_mode & (S_IWGRP | S_IWOTH))) continue;
        snprintf(text, sizeof text, "can be changed by others than root: %s has owner %u and mode %04o", part,
                 (unsigned)seen.st_uid, (unsigned)(seen.st_mode & 07777));
        return text;
    }
    return NULL;
}

static void folder(char *place, const char *path, const char *key, const char *value) {
    if (*value != '/' || strlen(value) >= NAME) wrong(path, "no absolute path:", key);
    strcpy(place, value);
}

static uid_t user(const char *path, const char *name) {
    struct passwd *found = getpwnam(name);
    if (!found) wrong(path, "no such user:", name);
    return found->pw_uid;
}

static bool either(const char *path, const char *what, const char *value, const char *yes, const char *no) {
    if (strcmp(value, yes) != 0 && strcmp(value, no) != 0) wrong(path, what, value);
    return !strcmp(value, yes);
}

void config_read(const char *path) {
    static const char *const keys[] = {"server-user", "min-uid", "deny-users", "allow-group", "work", "runtime", "state",
                                       "group", "supervisor", "gpu", "gpu-common", "device", "strays", "cpu"};
    enum { SERVER, MIN_UID, DENY, ALLOW, WORK, RUNTIME, STATE, GROUP, SUPERVISOR, GPU, COMMON, DEVICE, STRAYS, PROCESSOR, KEYS };
    const char *open_to_others = root_owned(path);
    if (open_to_others) wrong(path, open_to_others, "");
    FILE *file = fopen(path, "re");
    if (!file) wrong(path, "cannot be read:", strerror(errno));
    char line[1024], *end;
    unsigned seen = 0;
    while (fgets(line, sizeof line, file)) {
        char *key = line + strspn(line, " \t");
        key[strcspn(key, "\n#")] = 0;
        for (char *last = key + strlen(key); last > key && isspace((unsigned char)last[-1]);) *--last = 0;
        if (!*key) continue;
        char *value = key + strcspn(key, " \t");
        if (*value) *value++ = 0;
        value += strspn(value, " \t");
        int i = 0;
        while (i < KEYS && strcmp(key, keys[i]) != 0) i++;
        if (i == KEYS) wrong(path, "unknown key:", key);
        bool list = i == DENY || i == GPU || i == COMMON || i == DEVICE;
        if (!list && (seen & (1u << i))) wrong(path, "twice:", key);
        if (!*value) wrong(path, "no value:", key);
        seen |= 1u << i;
        switch (i) {
        case SERVER:
            conf.server = user(path, value);
            conf.server_gid = getpwnam(value)->pw_gid;
            break;
        case MIN_UID:
            conf.min_uid = (uid_t)strtoul(value, &end, 10);
            if (*end || !isdigit((unsigned char)*value) || conf.min_uid < 1) wrong(path, "no uid above 0:", value);
            break;
        case DENY:
            for (char *name = strtok(value, " \t"); name; name = strtok(NULL, " \t")) {
                if (conf.denied == sizeof conf.deny / sizeof *conf.deny) wrong(path, "too many users:", key);
                conf.deny[conf.denied++] = user(path, name);
            }
            break;
        case ALLOW: {
            struct group *found = getgrnam(value);
            if (!found) wrong(path, "no such group:", value);
            conf.allow_group = found->gr_gid;
            conf.only_group = true;
            break;
        }
        case WORK: folder(conf.work, path, key, value); break;
        case RUNTIME: folder(conf.runtime, path, key, value); break;
        case STATE: folder(conf.state, path, key, value); break;
        case GROUP: folder(conf.group, path, key, value); break;
        case SUPERVISOR: folder(conf.supervisor, path, key, value); break;
        case STRAYS: conf.stop_strays = either(path, "strays is stop or leave:", value, "stop", "leave"); break;
        case PROCESSOR: conf.own_cores = either(path, "cpu is cores or weight:", value, "cores", "weight"); break;
        default: {
            struct patterns *list = i == GPU ? &conf.gpu : i == COMMON ? &conf.common : &conf.always;
            if (list->count == 8) wrong(path, "more than 8 lines:", key);
            folder(list->name[list->count++], path, key, value);
        }
        }
    }
    fclose(file);
    if (!(seen & (1u << SERVER))) wrong(path, "missing:", "server-user");
    if (!*conf.supervisor) wrong(path, "missing:", "supervisor");
    const char *made[] = {conf.work, conf.runtime, conf.state};
    for (size_t i = 0; i < 3; i++) {
        if (mkdir(made[i], i == 2 ? 0700 : 0755) == 0 || errno == EEXIST) errno = 0;
        const char *why = errno ? strerror(errno) : root_owned(made[i]);
        if (why) wrong(made[i], why, "");
    }
    const char *why = root_owned(conf.supervisor);
    if (why) wrong(conf.supervisor, why, "");
}
