/* A disk that fails on demand: loaded in front of the C library, it lets reads, writes and syncs below one folder fail.
 *
 * What is to fail stands in a file that both the test and the process have mapped, so a fault begins and ends at once
 * and costs no system call. Each field holds an errno, 0 for none; `failed` counts the calls that were refused.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static struct control {
    int write_errno, sync_errno, allocate_errno, read_errno, failed;
} *control;
static const char *folder;

__attribute__((constructor)) static void map_control(void) {
    const char *path = getenv("BAD_DISK_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    folder = getenv("BAD_DISK_FOLDER");
    if (fd < 0 || !folder) return;
    void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED) control = found;
    close(fd);
}

static int is_below(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

static int fault_of(int fd, const int *field) {
    int found = field ? __atomic_load_n(field, __ATOMIC_RELAXED) : 0;
    if (!found || !is_below(fd)) return 0;
    __atomic_fetch_add(&control->failed, 1, __ATOMIC_RELAXED);
    return found;
}

#define FIELD(name) (control ? &control->name : NULL)
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE(fd, name) \
    do { int fault = fault_of(fd, FIELD(name)); if (fault) { errno = fault; return -1; } } while (0)

ssize_t write(int fd, const void *from, size_t size) { REFUSE(fd, write_errno); return REAL(write)(fd, from, size); }
ssize_t writev(int fd, const struct iovec *from, int count) {
    REFUSE(fd, write_errno);
    return REAL(writev)(fd, from, count);
}
ssize_t pread64(int fd, void *to, size_t size, off64_t from) {
    REFUSE(fd, read_errno);
    return REAL(pread64)(fd, to, size, from);
}
int fsync(int fd) { REFUSE(fd, sync_errno); return REAL(fsync)(fd); }
int fdatasync(int fd) { REFUSE(fd, sync_errno); return REAL(fdatasync)(fd); }
int posix_fallocate(int fd, off_t from, off_t size) {
    int fault = fault_of(fd, FIELD(allocate_errno));
    return fault ? fault : REAL(posix_fallocate)(fd, from, size);
}
