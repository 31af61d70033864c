//! A wall clock of the test's own for a program: it jumps, and no other clock does.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use super::{Scratch, run_ok};

/// What the C library's clocks are replaced by. All other clocks, those that only go forward, stay the kernel's.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_seconds;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *shared = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) offset_seconds = shared;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && offset_seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset_seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at) *at = exact.tv_sec;
    return exact.tv_sec;
}
"#;

/// The wall clock of programs that run with its environment: so far from that of this machine.
#[derive(Debug)]
pub struct WallClock {
    offset: File,
    /// What programs have to run with, as `NAME=VALUE`.
    pub environment: [String; 2],
}

impl WallClock {
    /// What it takes.
    pub const TOOLS: [&str; 1] = ["cc"];

    /// One that goes as that of this machine does.
    pub fn new(scratch: &Scratch) -> WallClock {
        let [source, library, offset] = ["clock.c", "clock.so", "clock"].map(|name| scratch.text(name));
        std::fs::write(&source, LIBRARY).expect("its source");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o", &library, &source]);
        run_ok(cc, Duration::from_secs(60));
        let environment = [format!("LD_PRELOAD={library}"), format!("WALL_CLOCK={offset}")];
        let clock = WallClock { offset: File::create(&offset).expect("a file"), environment };
        clock.set(0);
        clock
    }

    /// It is so far ahead from now on; behind, if that is negative.
    pub fn set(&self, seconds: i64) {
        self.offset.write_all_at(&seconds.to_ne_bytes(), 0).expect("it is set");
    }
}
