/* Which devices a job may open: a BPF program generated from its list and attached to its control group while that is
 * empty. It denies all other devices, also to root, and making device nodes. */
#include "warden.h"

enum { INSTRUCTIONS = 6, ROOM = 8 + INSTRUCTIONS * (DEVICES * 2 + 64) };

/* null, zero, full, random, urandom, tty, ptmx and terminals: what every program may have. */
static const struct device usual[] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}, {136, UINT32_MAX}};

static size_t match(const struct patterns *patterns, struct device *list, size_t room) {
    size_t n = 0;
    for (size_t i = 0; i < patterns->count; i++) {
        glob_t found;
        struct stat seen;
        if (glob(patterns->name[i], 0, NULL, &found) != 0) continue;
        for (size_t j = 0; j < found.gl_pathc && n < room; j++)
            if (stat(found.gl_pathv[j], &seen) == 0 && S_ISCHR(seen.st_mode))
                list[n++] = (struct device){major(seen.st_rdev), minor(seen.st_rdev)};
        globfree(&found);
    }
    return n;
}

static bool within(const struct device *list, size_t n, struct device one) {
    for (size_t i = 0; i < n; i++)
        if (list[i].major == one.major && list[i].minor == one.minor) return true;
    return false;
}

bool is_card(dev_t device) {
    struct device cards[DEVICES];
    size_t n = match(&conf.gpu, cards, DEVICES);
    return within(cards, n, (struct device){major(device), minor(device)});
}

/* Lists the devices of one job. Refuses a card that this node does not have; a card is never a usual device. */
size_t wall_devices(struct device *list, size_t room) {
    struct device cards[DEVICES];
    size_t n = 0, known = match(&conf.gpu, cards, DEVICES);
    if (order.devices > DEVICES) refuse(EINVAL, "more than %d devices", DEVICES);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!within(cards, known, usual[i])) list[n++] = usual[i];
    n += match(&conf.always, list + n, DEVICES / 2);
    if (order.devices) n += match(&conf.common, list + n, DEVICES / 2);
    for (size_t i = 0; i < order.devices && n < room; i++) {
        if (!within(cards, known, order.device[i]))
            refuse(EPERM, "device %u:%u is no card of this node", order.device[i].major, order.device[i].minor);
        list[n++] = order.device[i];
    }
    return n;
}

static int kernel(int what, union bpf_attr *attr) { return (int)syscall(SYS_bpf, what, attr, sizeof *attr); }

static struct bpf_insn op(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm) {
    return (struct bpf_insn){.code = code, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm};
}

/* Attaches a program for exactly this list to the group, in place of an earlier one of ours. True on success. */
bool wall_v2(const char *group, const struct device *list, size_t count) {
    struct bpf_insn code[ROOM];
    size_t n = 0;
    code[n++] = op(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0); /* r2 access and type, r3 major, r4 minor */
    code[n++] = op(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 4, 0);
    code[n++] = op(BPF_LDX | BPF_MEM | BPF_W, 4, 1, 8, 0);
    code[n++] = op(BPF_ALU64 | BPF_MOV | BPF_X, 5, 2, 0, 0);
    code[n++] = op(BPF_ALU64 | BPF_AND | BPF_K, 5, 0, 0, 0xffff | BPF_DEVCG_ACC_MKNOD << 16);
    code[n++] = op(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
    for (size_t i = 0; i < count; i++) {
        bool any = list[i].minor == UINT32_MAX;
        int16_t skip = any ? 3 : 4;
        code[n++] = op(BPF_JMP | BPF_JNE | BPF_K, 5, 0, skip, BPF_DEVCG_DEV_CHAR); /* a character device, no mknod */
        code[n++] = op(BPF_JMP | BPF_JNE | BPF_K, 3, 0, (int16_t)(skip - 1), (int32_t)list[i].major);
        if (!any) code[n++] = op(BPF_JMP | BPF_JNE | BPF_K, 4, 0, 2, (int32_t)list[i].minor);
        code[n++] = op(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1);
        code[n++] = op(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }
    code[n++] = op(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE, .insn_cnt = (uint32_t)n,
                           .insns = (uint64_t)(uintptr_t)code, .license = (uint64_t)(uintptr_t) "GPL"};
    int fresh = kernel(BPF_PROG_LOAD, &load), target = open(group, O_RDONLY | O_DIRECTORY | O_CLOEXEC), old = -1;
    uint32_t ids[8] = {0};
    union bpf_attr ask = {.query = {.target_fd = (uint32_t)target, .attach_type = BPF_CGROUP_DEVICE,
                                    .prog_ids = (uint64_t)(uintptr_t)ids, .prog_cnt = 8}};
    if (fresh >= 0 && target >= 0 && kernel(BPF_PROG_QUERY, &ask) == 0 && ask.query.prog_cnt) {
        union bpf_attr by_id = {.prog_id = ids[0]};
        old = kernel(BPF_PROG_GET_FD_BY_ID, &by_id);
    }
    union bpf_attr put = {.target_fd = (uint32_t)target, .attach_bpf_fd = (uint32_t)fresh,
                          .attach_type = BPF_CGROUP_DEVICE, .attach_flags = BPF_F_ALLOW_MULTI};
    if (old >= 0) put.replace_bpf_fd = (uint32_t)old, put.attach_flags |= BPF_F_REPLACE;
    bool done = fresh >= 0 && target >= 0 && kernel(BPF_PROG_ATTACH, &put) == 0;
    if (fresh >= 0) close(fresh);
    if (target >= 0) close(target);
    if (old >= 0) close(old);
    return done;
}
